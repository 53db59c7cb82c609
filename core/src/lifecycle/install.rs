//! Installing a snapshot from a peer: one pinned cut, read in pieces, resumable over another link,
//! verified whole before anything of ours changes.

use super::api::{CloseReason, Divergence, Entry, Event, PairReason, PeerFaultKind};
use super::checkpoint::{CheckpointError, CheckpointHeader, CheckpointRule, CheckpointWriter};
use super::checkpoint_read::{CheckpointItem, CheckpointLimits, CheckpointReader};
use super::command::BlobCommand;
use super::session::Session;
use super::shared::{Commit, InstallPurpose, Purpose, Shared};
use super::views::Views;
use crate::error::StorageFault;
use crate::id::LinkId;
use crate::journal::command::{FileName, SegmentNumber, StorageCommand};
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
enum Stage {
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
    offer: SnapshotOffer,
    number: u64,
    reader: CheckpointReader,
    views: Views,
    header: Option<CheckpointHeader>,
    stage: Stage,
    /// The link it comes over; none while it waits for a peer that offers it again.
    link: Option<LinkId>,
    asked: u64,
    received: u64,
    records: u64,
    writes_out: u32,
    stats_out: u32,
    unlooked: BTreeSet<BlobKey>,
    missing: BTreeSet<BlobKey>,
}

impl Install {
    fn new(offer: SnapshotOffer, number: u64, shared: &Shared, link: LinkId) -> Self {
        let limits = CheckpointLimits {
            bytes_max: offer.bytes,
            records_max: offer.records,
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
        }
    }

    /// The link is gone; one that offers the same snapshot goes on where this one ended.
    pub(super) fn link_down(&mut self, link: LinkId) {
        if self.link == Some(link) {
            self.link = None;
            self.asked = self.received;
        }
    }

    /// Whether nobody brings it at present.
    fn is_idle(&self) -> bool {
        self.link.is_none() && self.stage == Stage::Reading
    }

    fn file(&self) -> FileName {
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

    fn reference(&self) -> CheckpointRef {
        CheckpointRef { number: self.number, bytes: self.offer.bytes, sha256: self.offer.sha256 }
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
            if install.stage != Stage::Reading || matches!(offered, Offered::Frame(_)) {
                let expected = "no snapshot while the last one is being installed";
                return self.fault(shared, PeerFaultKind::Sequence, expected, offered.cut().to_string());
            }
            // The peer gave up the offer we were reading and makes a new one.
            install.link_down(self.link);
        }
        self.offered = Some(offered);
        self.retry_offered(shared);
    }

    /// Takes up the snapshot that the peer offered, if nothing stands in the way any more.
    pub(super) fn retry_offered(&mut self, shared: &mut Shared) {
        let Some(offered) = self.offered.take_if(|_| !self.down) else { return };
        let cut = offered.cut();
        // Only what is durable says whether our log knows the cut.
        let undecided = cut > shared.history.tail() && cut <= shared.submitted;
        if self.judging() || undecided || (shared.compaction.is_some() && cut > shared.submitted) {
            self.offered = Some(offered);
            return;
        }
        if cut <= shared.submitted {
            return self.answer_offer_below_tail(shared, cut);
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
            return self.send_ack(shared, cut);
        }
        let verdict = Verdict::Diverged(Divergence {
            at: cut,
            ours: alloc::format!("records up to {}, none at {cut}", shared.submitted),
            theirs: alloc::format!("a snapshot at {cut}"),
            reason: PairReason::ForeignVersion,
        });
        self.stop(shared, verdict);
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
        let ours =
            |install: &mut Install| install.link == Some(self.link) && install.stage == Stage::Reading;
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
        if let Err(error) = install.take(shared, &data) {
            shared.abandon_install(&install);
            return self.fault(shared, PeerFaultKind::Snapshot, error.expected.clone(), error.to_string());
        }
        install.received += bytes;
        install.write(shared, offset, data);
        install.look_up(shared);
        shared.install = Some(install);
        self.pump_install(shared);
    }

    /// Makes a checkpoint of a whole snapshot; from there on it is installed as any other.
    fn install_frame(&mut self, shared: &mut Shared, snapshot: &Snapshot) {
        shared.abandon_idle_install();
        let cut = snapshot.watermark;
        let header =
            CheckpointHeader { log: shared.current.log, cut, cut_digest: [0; 32], epochs: Vec::new() };
        let mut writer = CheckpointWriter::new(&header);
        for record in &snapshot.records {
            if let Err(error) = writer.push(record) {
                return self.fault(
                    shared,
                    PeerFaultKind::Snapshot,
                    error.expected.clone(),
                    error.to_string(),
                );
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
        let number = shared.take_checkpoint_number();
        let mut install = Install::new(offer, number, shared, self.link);
        for (offset, bytes) in pieces {
            if let Err(error) = install.take(shared, &bytes) {
                return self.fault(shared, PeerFaultKind::Lineage, error.expected.clone(), error.to_string());
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

impl Shared {
    /// Gives up a snapshot that is not going to be installed.
    fn abandon_install(&mut self, install: &Install) {
        self.removals.insert(install.file());
        self.remove_unused();
        self.freed = true;
    }

    /// Whether a snapshot is being installed that some link brings, or that is past that.
    pub(super) fn installing(&self) -> bool {
        self.install.as_ref().is_some_and(|install| !install.is_idle())
    }

    /// Gives up a snapshot that nobody brings.
    pub(super) fn abandon_idle_install(&mut self) {
        if let Some(install) = self.install.take_if(|install| install.is_idle()) {
            self.abandon_install(&install);
        }
    }

    /// A command of the installation was answered. `Err` carries the link that must go down.
    pub(super) fn on_install(
        &mut self,
        number: u64,
        purpose: InstallPurpose,
        result: Result<Vec<Option<u64>>, StorageFault>,
    ) -> Option<(LinkId, CloseReason)> {
        // An answer to one that was given up says nothing of its successor.
        let mut install = self.install.take_if(|install| install.number == number)?;
        let lengths = match result {
            Ok(lengths) => lengths,
            Err(fault) => {
                self.abandon_install(&install);
                return install.link.map(|link| (link, CloseReason::Storage(fault)));
            }
        };
        match purpose {
            InstallPurpose::Write => install.writes_out -= 1,
            InstallPurpose::Stat(keys) => {
                install.stats_out -= 1;
                let missing = keys.iter().zip(&lengths).filter(|(_, length)| length.is_none());
                install.missing.extend(missing.map(|(key, _)| *key));
            }
            InstallPurpose::Sync => {
                install.stage = Stage::Entering;
                let gate = self.gate();
                self.journal.switch_segment(gate, &mut self.out);
            }
        }
        self.install = Some(install);
        self.advance_install()
    }

    /// A blob is stored, whoever brought it.
    pub(super) fn install_has_blob(&mut self, key: BlobKey) {
        if let Some(install) = &mut self.install {
            install.missing.remove(&key);
        }
    }

    /// Goes on with the installation as far as it can. The link that must go down, if one must.
    pub(super) fn advance_install(&mut self) -> Option<(LinkId, CloseReason)> {
        let mut install = self.install.take()?;
        let complete = install.received == install.offer.bytes
            && install.writes_out == 0
            && install.stats_out == 0
            && install.unlooked.is_empty()
            && install.missing.is_empty();
        match install.stage {
            Stage::Reading if complete => {
                if let Err((link, reason)) = self.verify_install(&mut install) {
                    self.abandon_install(&install);
                    return link.map(|link| (link, reason));
                }
                install.stage = Stage::Syncing;
                let file = install.file();
                let purpose = Purpose::Install(install.number, InstallPurpose::Sync);
                self.out.command(purpose, |ticket| StorageCommand::Sync { ticket, file });
            }
            Stage::Entering => {
                if let Some(switched) = self.journal.take_switched() {
                    install.stage = Stage::Committing;
                    self.commit_install(&install, switched.segment);
                }
            }
            Stage::Reading | Stage::Syncing | Stage::Committing => {}
        }
        self.install = Some(install);
        None
    }

    /// All bytes are here: they must be what was offered.
    fn verify_install(&self, install: &mut Install) -> Result<(), (Option<LinkId>, CloseReason)> {
        let limits = CheckpointLimits::of(self.current.log);
        let reader = core::mem::replace(&mut install.reader, CheckpointReader::new(limits));
        let fault = |expected: alloc::string::String, found: alloc::string::String| {
            let fault = super::api::PeerFault { what: PeerFaultKind::Snapshot, expected, found };
            (install.link, CloseReason::Fault(fault))
        };
        let summary = reader.finish().map_err(|error| fault(error.expected.clone(), error.to_string()))?;
        let digest_fits = install.offer.cut_digest.is_none_or(|digest| digest == summary.header.cut_digest);
        if summary.sha256 != install.offer.sha256
            || summary.records != install.offer.records
            || summary.header.cut != install.offer.cut
            || !digest_fits
        {
            let expected = alloc::format!("{} records at {}", install.offer.records, install.offer.cut);
            let found = alloc::format!(
                "{} records at {}, or another SHA-256 or digest",
                summary.records,
                summary.header.cut
            );
            return Err(fault(expected, found));
        }
        install.header = Some(summary.header);
        Ok(())
    }

    fn commit_install(&mut self, install: &Install, first_segment: SegmentNumber) {
        self.obsolete = self.current.checkpoint.map(|c| FileName::Checkpoint(c.number)).into_iter().collect();
        let (mut current, mut opaque) = (self.current.clone(), self.opaque.clone());
        current.first_segment = first_segment;
        current.checkpoint = Some(install.reference());
        current.floor = super::opaque::floor_bytes(install.offer.cut);
        current.floor_digest = install.header.as_ref().map_or([0; 32], |header| header.cut_digest);
        opaque.chained = install.offer.cut_digest.is_some();
        opaque.checkpoint_records = install.records;
        self.save_current(Commit::Installation, current, opaque);
    }

    /// `current` names the snapshot: it is our state now.
    pub(super) fn installed(&mut self) {
        let Some(install) = self.install.take() else { return };
        let cut = install.offer.cut;
        self.views = install.views;
        let (digest, epochs) = match install.header {
            Some(header) => (header.cut_digest, header.epochs),
            None => ([0; 32], Vec::new()),
        };
        self.submitted_authority =
            epochs.last().filter(|mark| mark.epoch == cut.epoch).map(|mark| mark.authority.clone());
        self.history.reset(cut, digest, &epochs);
        self.submitted = cut;
        self.drop_segments();
        self.out.event(Event::Installed { cut, records: install.records });
    }
}
