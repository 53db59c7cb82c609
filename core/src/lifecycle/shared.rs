//! What all parts of a replica share: its configuration, its state and its output queues.

use super::acked::Acked;
use super::ages::Ages;
use super::api::{Event, MutationError, RequestId, SubscriptionId};
use super::authority::Authority;
use super::blob_work::BlobPurpose;
use super::collect::Collection;
use super::command::{BlobCommand, Command};
use super::compact::CompactPurpose;
use super::compaction::Running;
use super::config::ReplicaConfig;
use super::doubt::Doubts;
use super::fencing::{Beginning, Fencing};
use super::history::History;
use super::install::Install;
use super::judge::{Known, Standing};
use super::lagging::Lagging;
use super::membership::Members;
use super::opaque::Opaque;
use super::partials::Partials;
use super::scrub::Scrubbing;
use super::sharing::Sharing;
use super::sidecars::Saves;
use super::subscribe::{Recent, SubscriptionRead, Subscriptions};
use super::views::Views;
use super::wanted::Wanted;
use crate::error::StorageFault;
use crate::id::{LinkId, Lsn};
use crate::journal::command::{FileName, StorageCommand};
use crate::journal::current::Current;
use crate::journal::read::{EntryReader, ReadRequest};
use crate::journal::writer::{Journal, JournalPurpose};
use crate::machine::Out;
use crate::record::{AuthorityId, BlobKey, Record, Version};
use crate::ticket::Tickets;
use crate::time::Now;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;

/// What a command of a replica is for.
#[derive(Debug)]
pub(super) enum Purpose {
    Journal(JournalPurpose),
    Compact(CompactPurpose),
    /// The authority's reservation.
    Authority,
    /// The authority's sidecar of an epoch that is being taken.
    Fence,
    Members(RequestId),
    Acked,
    Current(Commit),
    Remove,
    /// A read of a file that may be removed later.
    Read(FileName, ReadFor),
    Link(LinkId, LinkPurpose),
    /// On the blob store, for no link.
    Blobs(BlobPurpose),
    /// Of the installation whose checkpoint has this number.
    Install(u64, InstallPurpose),
}

impl From<JournalPurpose> for Purpose {
    fn from(purpose: JournalPurpose) -> Self {
        Self::Journal(purpose)
    }
}

impl From<CompactPurpose> for Purpose {
    fn from(purpose: CompactPurpose) -> Self {
        Self::Compact(purpose)
    }
}

/// What replacing `current` commits.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Commit {
    Compaction,
    Installation,
    /// From now on what is damaged, or was collected, is looked for after each start.
    Scrub,
    /// A follower becomes the log's writer.
    Authority,
}

/// What a read of a journal segment or checkpoint is for.
#[derive(Debug)]
pub(super) enum ReadFor {
    /// The next batches, for whichever peers need them.
    Plan(ReadRequest),
    /// The digest of our history at a peer's tail.
    Digest(LinkId, ReadRequest),
    /// A piece of a snapshot that a peer asked for: its offset, and its place in the order.
    SnapshotPiece(LinkId, u64, u64),
    /// A whole checkpoint for a peer that takes snapshots in one frame.
    SnapshotFrame(LinkId),
    /// What a subscription asked for, and its turn.
    Subscription(SubscriptionId, u64, SubscriptionRead),
}

/// What a blob command of one link is for.
#[derive(Debug)]
pub(super) enum LinkPurpose {
    /// Which of the blobs that received records need are stored, and which look at them this is.
    StatWanted(u64, Vec<BlobKey>),
    /// Which of the blobs that the peer has are missing here.
    StatOffered(Vec<BlobKey>),
    /// A piece that the peer asked for: its offset, and its place in the order.
    ServePiece(BlobKey, u64, u64),
    /// A whole blob for a peer that asked for it, by which of its requests, or that needs it ahead of a
    /// record.
    ServeWhole(BlobKey, Option<u64>),
    /// A whole blob from the peer, unasked.
    PutOffered(BlobKey),
    /// A whole blob that was fetched.
    PutFetched(BlobKey),
    /// A piece of one, and its length.
    WriteFetched(BlobKey, u64),
    /// All pieces of one.
    CommitFetched(BlobKey),
}

/// What a command of a snapshot installation is for.
#[derive(Debug)]
pub(super) enum InstallPurpose {
    Write,
    Sync,
    Stat(Vec<BlobKey>),
}

/// The state of a replica that its parts share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) config: ReplicaConfig,
    pub(super) now: Now,
    pub(super) out: Out<Purpose, Command, Event>,
    pub(super) journal: Journal,
    pub(super) views: Views,
    /// The durable prefix of the log.
    pub(super) history: History,
    /// The last submitted version; decides what may follow.
    pub(super) submitted: Version,
    /// The latest epoch submitted, and who writes in it.
    pub(super) submitted_epoch: Option<(u64, AuthorityId)>,
    /// The latest epoch that links were told of.
    pub(super) told_epoch: u64,
    /// The highest epoch that any peer has named in this run.
    pub(super) peers_epoch: u64,
    /// The epoch that is being taken.
    pub(super) fencing: Option<Fencing>,
    /// An epoch whose beginning is submitted and not durable.
    pub(super) beginning: Option<Beginning>,
    /// What the authority's sidecar must say, since a later epoch was heard of.
    pub(super) superseded: Option<Vec<u8>>,
    pub(super) authority: Option<Authority>,
    pub(super) members: Members,
    pub(super) acked: Acked,
    pub(super) current: Current,
    /// What protocol A keeps in `current`.
    pub(super) opaque: Opaque,
    /// Reads out, by file: a file with one is not removed.
    pub(super) reads: BTreeMap<FileName, u32>,
    /// Files to remove once nothing reads them.
    pub(super) removals: BTreeSet<FileName>,
    /// Blobs that some link is fetching right now.
    pub(super) fetching: BTreeMap<BlobKey, LinkId>,
    /// Blobs that came in part.
    pub(super) partials: Partials,
    /// Records that wait for their blobs.
    pub(super) wanted: Wanted,
    /// Whether the blob store is being asked for what is wanted.
    pub(super) looking: bool,
    /// How many blobs were found lost: an earlier look at blobs does not count any more.
    pub(super) blobs_lost: u64,
    /// The collection of blobs under way.
    pub(super) collection: Option<Collection>,
    /// The scrub under way.
    pub(super) scrubbing: Option<Scrubbing>,
    /// Blobs that may be damaged, as peers found out.
    pub(super) doubts: Doubts,
    /// Reads of the journal for peers.
    pub(super) sharing: Sharing,
    /// Checkpoints that a session serves to a peer.
    pub(super) pins: BTreeMap<u64, u32>,
    /// The snapshot on its way in.
    pub(super) install: Option<Install>,
    /// The compaction under way.
    pub(super) compaction: Option<Running>,
    /// Submitted groups whose versions the authority has not durably reserved: first LSN, last version.
    pub(super) gated: VecDeque<(Lsn, Version)>,
    /// Why a replica that wrote the log may not go on writing it.
    pub(super) fenced: Option<String>,
    /// What `current` says once its replacement is durable; until then the old one holds.
    pub(super) committing: Option<(Current, Opaque)>,
    /// Files that the next commit of `current` makes useless.
    pub(super) obsolete: Vec<FileName>,
    /// Links that went down in this turn.
    pub(super) went_down: Vec<LinkId>,
    /// How far members are behind.
    pub(super) lagging: Lagging,
    /// Something changed that may let a compaction by policy begin.
    pub(super) policy_due: bool,
    /// Something that a link may be waiting for was freed in this turn.
    pub(super) freed: bool,
    /// Links that had no room for what they have to send.
    pub(super) blocked: BTreeSet<LinkId>,
    pub(super) saves: Saves,
    /// The latest durable changes, for subscriptions.
    pub(super) recent: Recent,
    /// When the tail moved.
    pub(super) ages: Ages,
    pub(super) subscriptions: Subscriptions,
    pub(super) next_request: u64,
    pub(super) closing: bool,
    pub(super) halted: Option<StorageFault>,
    /// Records that came outside of repair, which repair delivers anyway.
    pub(super) loose_records: u64,
}

/// What recovery hands to a replica.
pub(super) struct Parts {
    pub(super) config: ReplicaConfig,
    pub(super) now: Now,
    pub(super) journal: Journal,
    pub(super) views: Views,
    pub(super) history: History,
    pub(super) authority: Option<Authority>,
    pub(super) fenced: Option<String>,
    pub(super) members: Members,
    pub(super) acked: Acked,
    pub(super) current: Current,
    pub(super) opaque: Opaque,
    pub(super) wanted: Wanted,
}

impl Shared {
    pub(super) fn new(parts: Parts) -> Self {
        let submitted = parts.history.tail();
        let last_epoch = parts.history.epochs().pop();
        let sharing = Sharing::new(parts.config.plan_reads_max, parts.config.plan_kept_bytes_max);
        Self {
            config: parts.config,
            now: parts.now,
            out: Out::new(Tickets::new(parts.current.run)),
            journal: parts.journal,
            views: parts.views,
            history: parts.history,
            submitted,
            submitted_epoch: last_epoch.map(|mark| (mark.epoch, mark.authority)),
            told_epoch: 0,
            peers_epoch: 0,
            fencing: None,
            beginning: None,
            superseded: None,
            authority: parts.authority,
            members: parts.members,
            acked: parts.acked,
            current: parts.current,
            opaque: parts.opaque,
            reads: BTreeMap::new(),
            removals: BTreeSet::new(),
            fetching: BTreeMap::new(),
            partials: Partials::default(),
            wanted: parts.wanted,
            looking: false,
            blobs_lost: 0,
            collection: None,
            scrubbing: None,
            doubts: Doubts::default(),
            sharing,
            pins: BTreeMap::new(),
            install: None,
            compaction: None,
            gated: VecDeque::new(),
            fenced: parts.fenced,
            committing: None,
            obsolete: Vec::new(),
            went_down: Vec::new(),
            lagging: Lagging::default(),
            policy_due: true,
            freed: false,
            blocked: BTreeSet::new(),
            saves: Saves::default(),
            recent: Recent::new(submitted),
            ages: Ages::default(),
            subscriptions: Subscriptions::default(),
            next_request: 0,
            closing: false,
            halted: None,
            loose_records: 0,
        }
    }

    /// Nothing is written any more. What was under way ends with the fault; which of it a recovery
    /// finds done is uncertain.
    pub(super) fn halt(&mut self, fault: &StorageFault) {
        self.halted = Some(fault.clone());
        self.install = None;
        self.committing = None;
        self.refuse_running(fault);
        self.end_collection(Err(super::api::RequestError::Storage(fault.clone())));
        self.end_scrub(Err(super::api::RequestError::Storage(fault.clone())));
        self.refuse_fencing(fault);
    }

    /// Whether the journal lacks its last seal and may still be given one.
    pub(super) fn needs_seal(&self) -> bool {
        self.halted.is_none() && self.journal.needs_seal()
    }

    /// Where our durable history stands.
    pub(super) fn standing(&self) -> Standing {
        let digest = |d| self.opaque.chained.then_some(d);
        Standing {
            floor: self.history.floor(),
            floor_digest: digest(self.history.floor_digest()),
            tail: self.history.tail(),
            tail_digest: digest(self.history.tail_digest()),
        }
    }

    /// What our durable log knows of `version`, if that needs no reading.
    pub(super) fn known(&self, version: Version) -> Known {
        let standing = self.standing();
        if version == standing.tail {
            Known::Ours(standing.tail_digest)
        } else if version == standing.floor {
            Known::Ours(standing.floor_digest)
        } else if self.history.contains(version) {
            Known::Ours(None)
        } else {
            Known::Foreign
        }
    }

    /// Reads what `reader` needs next, if anything. `Err` says that it is no longer retained.
    pub(super) fn read_entries(
        &mut self,
        reader: &EntryReader,
        purpose: impl FnOnce(ReadRequest) -> ReadFor,
    ) -> Result<bool, crate::journal::read::Dropped> {
        let bytes_max = self.config.journal.read_bytes_max;
        let Some(request) = reader.request(self.journal.index(), bytes_max)? else {
            return Ok(false);
        };
        self.read(request.file, request.offset, request.bytes, purpose(request));
        Ok(true)
    }

    /// Reads a file; it is not removed before the answer came.
    pub(super) fn read(&mut self, file: FileName, offset: u64, bytes_max: u32, purpose: ReadFor) {
        *self.reads.entry(file).or_default() += 1;
        self.out.command(Purpose::Read(file, purpose), |ticket| StorageCommand::Read {
            ticket,
            file,
            offset,
            bytes_max,
        });
    }

    /// A read was answered.
    pub(super) fn read_done(&mut self, file: FileName) {
        if let Some(count) = self.reads.get_mut(&file) {
            *count -= 1;
            if *count == 0 {
                self.reads.remove(&file);
            }
        }
        self.remove_unused();
    }

    /// Removes the files that wait for it and that nothing names any more.
    pub(super) fn remove_unused(&mut self) {
        if self.halted.is_some() {
            return;
        }
        let free: Vec<FileName> = self.removals.iter().copied().filter(|f| !self.in_use(*f)).collect();
        if free.is_empty() {
            return;
        }
        for file in &free {
            self.removals.remove(file);
        }
        self.out.command(Purpose::Remove, |ticket| StorageCommand::Remove { ticket, files: free });
    }

    fn in_use(&self, file: FileName) -> bool {
        let pinned = match file {
            FileName::Checkpoint(number) => self.pins.contains_key(&number),
            FileName::Current
            | FileName::Authority
            | FileName::Members
            | FileName::Acked
            | FileName::Segment(_) => false,
        };
        pinned || self.reads.contains_key(&file)
    }

    /// A session serves checkpoint `number`: it stays until [`Shared::unpin`].
    pub(super) fn pin(&mut self, number: u64) {
        *self.pins.entry(number).or_default() += 1;
    }

    /// The inverse of [`Shared::pin`].
    pub(super) fn unpin(&mut self, number: u64) {
        if let Some(count) = self.pins.get_mut(&number) {
            *count -= 1;
            if *count == 0 {
                self.pins.remove(&number);
            }
        }
        self.remove_unused();
    }

    /// A blob command of a link.
    pub(super) fn blob<Op>(
        &mut self,
        link: LinkId,
        purpose: LinkPurpose,
        make: impl FnOnce(crate::ticket::Ticket<Op>) -> BlobCommand,
    ) where
        Op: crate::ticket::Operation,
    {
        self.out.command(Purpose::Link(link, purpose), make);
    }

    /// Submits records of one journal batch. They were judged: in order, of this log.
    /// Those whose blob is `absent` want it from now on.
    pub(super) fn submit_records(
        &mut self,
        records: &[Record],
        absent: &BTreeSet<BlobKey>,
    ) -> Result<Lsn, MutationError> {
        super::submit::submit(self, records, absent)
    }
}
