//! Installing a snapshot from a peer: one pinned cut, read in pieces, resumable over another link,
//! verified whole before anything of ours changes.

use super::api::{Divergence, Entry, PairReason, PeerFaultKind};
use super::checkpoint::{CheckpointError, CheckpointHeader, CheckpointRule, CheckpointWriter};
use super::checkpoint_read::{CheckpointItem, CheckpointLimits, CheckpointReader};
use super::command::BlobCommand;
use super::digests::Answered;
use super::epochs::Side;
use super::session::Session;
use super::shared::{InstallPurpose, Purpose, Shared};
use super::views::Views;
use crate::id::LinkId;
use crate::journal::command::{FileName, StorageCommand};
use crate::journal::current::CheckpointRef;
use crate::limits::PIECE_BYTES_MAX;
use crate::record::{BlobKey, State, Version};
use crate::verdict::Verdict;
use crate::wire::own::{OwnMessage, SnapshotChunk, SnapshotGet, SnapshotOffer};
use crate::wire::repair::Snapshot;
use alloc::collections::BTreeSet;
use alloc::string::ToString;
use alloc::vec::Vec;

/// How many blob keys are looked up at once.
const STAT_KEYS: usize = 1024;
/// How many blobs may be missing before no more of the snapshot is asked for.
const MISSING_MAX: usize = 4096;

/// What is left to do.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Stage {
    /// Pieces come, or their blobs and writes are awaited.
    Reading,
    /// The file is being made durable.
    Syncing,
    /// A fresh segment to go on in is awaited.
    Entering,
    /// `current` is being replaced.
    Committing,
}

/// A snapshot that a peer brings, in either way.
#[derive(Debug)]
pub(super) enum Offered {
    /// In pieces, to be asked for.
    Pieces(SnapshotOffer),
    /// Whole, in one frame.
    Frame(Snapshot),
}

impl Offered {
    const fn cut(&self) -> Version {
        match self {
            Self::Pieces(offer) => offer.cut,
            Self::Frame(snapshot) => snapshot.watermark,
        }
    }
}

/// A snapshot on its way in.
#[derive(Debug)]
pub(super) struct Install {
    pub(super) offer: SnapshotOffer,
    pub(super) number: u64,
    pub(super) reader: CheckpointReader,
    pub(super) views: Views,
    pub(super) header: Option<CheckpointHeader>,
    pub(super) stage: Stage,
    /// The link it comes over; none while it waits for a peer that offers it again.
    pub(super) link: Option<LinkId>,
    pub(super) asked: u64,
    pub(super) received: u64,
    pub(super) records: u64,
    pub(super) writes_out: u32,
    pub(super) stats_out: u32,
    pub(super) unlooked: BTreeSet<BlobKey>,
    pub(super) missing: BTreeSet<BlobKey>,
    /// Blobs that the peer which brings it does not have either: its records wait for them.
    pub(super) absent: BTreeSet<BlobKey>,
    /// How many blobs had been found lost when it began.
    pub(super) blobs_lost: u64,
}

impl Install {
    fn new(offer: SnapshotOffer, number: u64, shared: &Shared, link: LinkId) -> Self {
        let limits = CheckpointLimits {
            bytes_max: offer.bytes,
            records_max: offer.records,
            record: shared.config.record,
            ..CheckpointLimits::of(shared.current.log)
        };
        Self {
            reader: CheckpointReader::new(limits),
            offer,
            number,
            views: Views::default(),
            header: None,
            stage: Stage::Reading,
            link: Some(link),
            asked: 0,
            received: 0,
            records: 0,
            writes_out: 0,
            stats_out: 0,
            unlooked: BTreeSet::new(),
            missing: BTreeSet::new(),
            absent: BTreeSet::new(),
            blobs_lost: shared.blobs_lost,
        }
    }

    /// The link is gone; one that offers the same snapshot goes on where this one ended.
    pub(super) fn link_down(&mut self, link: LinkId) {
        if self.link == Some(link) {
            self.link = None;
            self.asked = self.received;
        }
    }

    /// How many pieces were asked for that did not come.
    fn open_questions(&self) -> u64 {
        self.asked.saturating_sub(self.received).div_ceil(u64::from(PIECE_BYTES_MAX))
    }

    /// Whether nobody brings it at present.
    pub(super) fn is_idle(&self) -> bool {
        self.link.is_none() && self.stage == Stage::Reading
    }

    pub(super) fn file(&self) -> FileName {
        FileName::Checkpoint(self.number)
    }

    /// Parses the next bytes into the views to come.
    fn take(&mut self, shared: &Shared, data: &[u8]) -> Result<(), CheckpointError> {
        let Self { reader, views, header, unlooked, records, .. } = self;
        reader.push(data, &mut |item| {
            match item {
                CheckpointItem::Header(found) => *header = Some(found.clone()),
                CheckpointItem::Record { view, .. } => {
                    let record = view.to_record();
                    let namespace = record.key.namespace();
                    if !shared.current.namespaces.iter().any(|n| n == namespace) {
                        let found = namespace.escape_ascii().to_string();
                        return Err(CheckpointError::new(
                            CheckpointRule::Log,
                            0,
                            "a namespace of this log",
                            found,
                        ));
                    }
                    // What is ours is sent on, and must be within the limits that peers hold us to.
                    shared.config.record.check(&record).map_err(|error| {
                        CheckpointError::new(CheckpointRule::Use, 0, "a record within our limits", error)
                    })?;
                    *records += 1;
                    if let State::Present { blob } = record.state {
                        unlooked.insert(blob);
                    }
                    let entry =
                        Entry { state: record.state, version: record.version, authority: record.authority };
                    views.load(record.key, entry);
                }
            }
            Ok(())
        })
    }

    /// Looks up the blobs of the records that came.
    fn look_up(&mut self, shared: &mut Shared) {
        let whole = self.received == self.offer.bytes;
        while self.unlooked.len() >= STAT_KEYS || (whole && !self.unlooked.is_empty()) {
            let keys: Vec<BlobKey> = self.unlooked.iter().copied().take(STAT_KEYS).collect();
            for key in &keys {
                self.unlooked.remove(key);
            }
            self.stats_out += 1;
            let purpose = Purpose::Install(self.number, InstallPurpose::Stat(keys.clone()));
            shared.out.command(purpose, |ticket| BlobCommand::Stat { ticket, keys });
        }
    }

    fn write(&mut self, shared: &mut Shared, offset: u64, bytes: Vec<u8>) {
        self.writes_out += 1;
        let file = self.file();
        let purpose = Purpose::Install(self.number, InstallPurpose::Write);
        shared.out.command(purpose, |ticket| StorageCommand::Write { ticket, file, offset, bytes });
    }

    pub(super) fn reference(&self) -> CheckpointRef {
        CheckpointRef { number: self.number, bytes: self.offer.bytes, sha256: self.offer.sha256 }
    }
}

/// What a peer did wrong whose snapshot breaks a rule.
const fn fault_of(rule: CheckpointRule) -> PeerFaultKind {
    match rule {
        CheckpointRule::Log => PeerFaultKind::Lineage,
        CheckpointRule::Use => PeerFaultKind::Limit,
        CheckpointRule::Magic
        | CheckpointRule::Format
        | CheckpointRule::Header
        | CheckpointRule::Block
        | CheckpointRule::Record
        | CheckpointRule::Order
        | CheckpointRule::Cut
        | CheckpointRule::Count
        | CheckpointRule::End
        | CheckpointRule::Trailing
        | CheckpointRule::Limit => PeerFaultKind::Snapshot,
    }
}

impl Session {
    /// The peer offers a snapshot, since we are below its floor.
    pub(super) fn on_offer(&mut self, shared: &mut Shared, offer: SnapshotOffer) {
        self.on_offered(shared, Offered::Pieces(offer));
    }

    /// A peer without pieces sends a whole snapshot in one frame.
    pub(super) fn on_snapshot_frame(&mut self, shared: &mut Shared, snapshot: Snapshot) {
        self.on_offered(shared, Offered::Frame(snapshot));
    }

    fn on_offered(&mut self, shared: &mut Shared, offered: Offered) {
        if self.is_stopped()
            || self.too_early(shared, "a snapshot")
            || !self.may_receive(shared, offered.cut())
        {
            return;
        }
        if let Some(install) = shared.install.as_mut().filter(|install| install.link == Some(self.link)) {
            match (&offered, install.stage) {
                (Offered::Frame(_), _) => {
                    let expected = "no snapshot while the last one is being installed";
                    return self.fault(shared, PeerFaultKind::Sequence, expected, offered.cut().to_string());
                }
                // The peer gave up the offer we were reading and makes a new one. Of the same snapshot it may
                // have got what we asked for behind that offer: then it answers twice.
                (Offered::Pieces(offer), Stage::Reading) => {
                    if install.offer == *offer {
                        self.crossed += install.open_questions();
                    }
                    install.link_down(self.link);
                }
                // It let go of what we have read whole, as it may: it is answered when that is done.
                (Offered::Pieces(_), Stage::Syncing | Stage::Entering | Stage::Committing) => {}
            }
        }
        self.offered = Some(offered);
        self.retry_offered(shared);
    }

    /// Takes up the snapshot that the peer offered, if nothing stands in the way any more.
    pub(super) fn retry_offered(&mut self, shared: &mut Shared) {
        let Some(offered) = self.offered.take_if(|_| !self.down) else { return };
        let cut = offered.cut();
        // Only what is durable says whether our log knows the cut.
        let undecided = (cut > shared.history.tail() && cut <= shared.submitted)
            || shared.fencing.is_some()
            || shared.beginning.is_some()
            // A blob that is looked up now may be gone in a moment.
            || shared.removing();
        if self.judging() || undecided || (shared.compaction.is_some() && cut > shared.submitted) {
            self.offered = Some(offered);
            return;
        }
        if cut <= shared.submitted {
            return self.answer_offer_below_tail(shared, cut);
        }
        // An epoch may have begun here while it waited.
        if !self.may_receive(shared, cut) {
            return;
        }
        // Another link, or this one, brings a snapshot: the peer is answered when that is done.
        if shared.installing() {
            self.offered = Some(offered);
            return;
        }
        match offered {
            Offered::Pieces(offer) => self.take_up(shared, offer),
            Offered::Frame(snapshot) => self.install_frame(shared, &snapshot),
        }
    }

    /// Goes on with a snapshot that another link began, or begins this one.
    fn take_up(&mut self, shared: &mut Shared, offer: SnapshotOffer) {
        self.offered = Some(Offered::Pieces(offer));
        match shared.install.as_mut().filter(|install| install.offer == offer) {
            Some(install) => {
                install.link = Some(self.link);
                for key in &install.missing {
                    self.fetch.want(*key);
                }
            }
            None => {
                shared.abandon_idle_install();
                shared.yield_collection();
                let number = shared.take_checkpoint_number();
                shared.install = Some(Install::new(offer, number, shared, self.link));
            }
        }
        self.pump_fetch(shared);
        self.pump_install(shared);
    }

    /// An offer that stands for less than we hold. Our log knows the cut: we are not behind after
    /// all, and say so. It does not: a snapshot never drops local records.
    fn answer_offer_below_tail(&mut self, shared: &mut Shared, cut: Version) {
        if shared.history.contains(cut) || cut < shared.history.floor() {
            if self.peer.history {
                return self.vouch(shared, cut, Answered::Snapshot);
            }
            // As for a batch: a peer of the reference is answered with our tail.
            let tail = shared.history.tail();
            return self.send_ack(shared, tail);
        }
        let verdict = Verdict::Diverged(Divergence {
            at: cut,
            ours: alloc::format!("records up to {}, none at {cut}", shared.submitted),
            theirs: alloc::format!("a snapshot at {cut}"),
            reason: PairReason::ForeignVersion,
        });
        self.part(shared, verdict);
    }

    /// Asks for the next pieces of the snapshot that comes over this link.
    pub(super) fn pump_install(&mut self, shared: &mut Shared) {
        let Some(mut install) = shared.install.take() else { return };
        if install.link == Some(self.link) && !self.down {
            let window = u64::from(shared.config.snapshot_requests_max) * u64::from(PIECE_BYTES_MAX);
            while install.asked < install.offer.bytes
                && install.asked < install.received + window
                && install.writes_out < shared.config.snapshot_requests_max
                && install.missing.len() < MISSING_MAX
            {
                let (sha256, offset) = (install.offer.sha256, install.asked);
                install.asked += u64::from(PIECE_BYTES_MAX);
                self.send_own(shared, OwnMessage::SnapshotGet(SnapshotGet { sha256, offset }));
            }
        }
        shared.install = Some(install);
    }

    /// A piece of the snapshot came.
    pub(super) fn on_chunk(&mut self, shared: &mut Shared, chunk: SnapshotChunk) {
        let SnapshotChunk { offset, data } = chunk;
        if self.is_stopped() {
            return;
        }
        let ours = |install: &mut Install| install.link == Some(self.link) && install.stage == Stage::Reading;
        let awaited = shared.install.as_mut().is_some_and(|found| ours(found) && offset >= found.received);
        if !awaited && self.crossed > 0 {
            // It came before, in answer to the question that was asked twice.
            self.crossed -= 1;
            return;
        }
        let Some(mut install) = shared.install.take_if(ours) else {
            let found = alloc::format!("a piece at {offset}");
            return self.fault(
                shared,
                PeerFaultKind::Sequence,
                "pieces of a snapshot that is asked for",
                found,
            );
        };
        let rest = install.offer.bytes - install.received;
        let bytes = rest.min(u64::from(PIECE_BYTES_MAX));
        if offset != install.received || data.len() as u64 != bytes || offset >= install.asked {
            let expected = alloc::format!("{bytes} bytes at {}", install.received);
            let found = alloc::format!("{} bytes at {offset}", data.len());
            shared.abandon_install(&install);
            return self.fault(shared, PeerFaultKind::Snapshot, expected, found);
        }
        let unjudged = install.header.is_none();
        if let Err(error) = install.take(shared, &data) {
            shared.abandon_install(&install);
            return self.refuse_snapshot(shared, &error);
        }
        // Nothing is submitted here between this and its installation.
        let header = install.header.as_ref().filter(|_| unjudged);
        let side = header.map(|header| Side { tail: header.cut, epochs: &header.epochs });
        if let Some(found) = side.and_then(|side| shared.judge_epochs(shared.submitted, side)) {
            shared.abandon_install(&install);
            return self.stop(shared, found);
        }
        install.received += bytes;
        install.write(shared, offset, data);
        install.look_up(shared);
        shared.install = Some(install);
        self.pump_install(shared);
    }

    /// Bytes of a snapshot broke a rule.
    fn refuse_snapshot(&mut self, shared: &mut Shared, error: &CheckpointError) {
        self.fault(shared, fault_of(error.rule), error.expected.clone(), error.to_string());
    }

    /// Makes a checkpoint of a whole snapshot; from there on it is installed as any other.
    fn install_frame(&mut self, shared: &mut Shared, snapshot: &Snapshot) {
        shared.abandon_idle_install();
        let cut = snapshot.watermark;
        if let Some(found) = shared.over_in(&snapshot.records) {
            return self.stop(shared, found);
        }
        let header =
            CheckpointHeader { log: shared.current.log, cut, cut_digest: [0; 32], epochs: Vec::new() };
        let mut writer = CheckpointWriter::new(&header);
        for record in &snapshot.records {
            if let Err(error) = writer.push(record) {
                return self.refuse_snapshot(shared, &error);
            }
        }
        let mut pieces = Vec::new();
        while let Some(piece) = writer.take_output() {
            pieces.push(piece);
        }
        let (offset, last, written) = writer.finish();
        pieces.push((offset, last));
        let offer = SnapshotOffer {
            cut,
            cut_digest: None,
            bytes: written.bytes,
            sha256: written.sha256,
            records: written.records,
        };
        shared.yield_collection();
        let number = shared.take_checkpoint_number();
        let mut install = Install::new(offer, number, shared, self.link);
        for (offset, bytes) in pieces {
            if let Err(error) = install.take(shared, &bytes) {
                return self.refuse_snapshot(shared, &error);
            }
            install.asked += bytes.len() as u64;
            install.received += bytes.len() as u64;
            install.write(shared, offset, bytes);
        }
        install.look_up(shared);
        shared.install = Some(install);
        // Acknowledged like any other once it is installed.
        self.offered = Some(Offered::Frame(Snapshot { watermark: cut, records: Vec::new() }));
    }

    /// Which blobs of the snapshot are missing: this link fetches them.
    pub(super) fn want_install_blobs(&mut self, shared: &mut Shared) {
        if let Some(install) = &shared.install
            && install.link == Some(self.link)
        {
            for key in &install.missing {
                self.fetch.want(*key);
            }
        }
        self.pump_fetch(shared);
    }
}
