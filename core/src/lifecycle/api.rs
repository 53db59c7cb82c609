//! What goes into a replica and what comes out of it: mutations, answers, events, status.

use crate::error::{Classified, Family, StorageFault};
use crate::id::{Incarnation, LinkId, LogId, Lsn};
use crate::record::{AuthorityId, BlobKey, Key, RecordError, State, Version};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// What a mutation makes of its key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Change {
    /// The key names this blob. The caller promises that the blob is stored and durable.
    Put {
        /// SHA-256 of the blob.
        blob: BlobKey,
    },
    /// The key is deleted: a tombstone, also where there was nothing.
    Delete,
}

/// One change of one key, as the log's authority makes it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mutation {
    /// Which key.
    pub key: Key,
    /// What it becomes.
    pub change: Change,
    /// If given, the mutation happens only while the key is at exactly this version
    /// ([`Version::ZERO`]: while the key has no record).
    pub if_version: Option<Version>,
}

/// A mutation that was submitted. It has happened when [`Event::Durable`] reaches `lsn`; if
/// [`Event::Halted`] comes first, whether it happened is uncertain until the log is recovered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Accepted {
    /// Its place in the journal.
    pub lsn: Lsn,
    /// The version it was given.
    pub version: Version,
}

/// Why mutations were refused; none of them was submitted (family: caller).
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum MutationError {
    /// Too much waits for the disk: try again after the next [`Event::Durable`].
    #[error("write queue is full: {queued_bytes} of {bytes_max} bytes wait for the disk")]
    Full {
        /// What waits.
        queued_bytes: u64,
        /// The limit.
        bytes_max: u64,
    },
    /// More than one batch can hold, now and ever.
    #[error("batch of {found} {unit} is too large: at most {max}")]
    BatchTooLarge {
        /// What was given.
        found: u64,
        /// The limit.
        max: u64,
        /// Of what.
        unit: &'static str,
    },
    /// The retained journal is at its limit and cannot be compacted.
    #[error("journal is full: {found} of at most {max} {unit}; compaction is blocked by {blocked_by}")]
    JournalFull {
        /// What is retained.
        found: u64,
        /// The limit.
        max: u64,
        /// Of what.
        unit: &'static str,
        /// The member that has not acknowledged, or what is missing.
        blocked_by: String,
    },
    /// A condition did not hold.
    #[error("{key} is at version {found}, not at {expected} as the condition asks")]
    Precondition {
        /// Which key.
        key: Key,
        /// What `if_version` asked for.
        expected: Version,
        /// The submitted version; zero for none.
        found: Version,
    },
    /// Only the log's authority gives versions; this replica follows.
    #[error("this replica follows {authority} and takes no mutations of its own")]
    NotAuthority {
        /// Who writes this log, as far as is known.
        authority: String,
    },
    /// The authority's reservation is lost or fenced.
    #[error("the authority of this log must be fenced first: {reason}")]
    Fenced {
        /// What is wrong.
        reason: String,
    },
    /// The value is no record.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The log does not hold this namespace.
    #[error("namespace {found} is none of this log's {count}")]
    Namespace {
        /// What was given.
        found: String,
        /// How many the log holds.
        count: usize,
    },
    /// The replica installs a snapshot.
    #[error("a snapshot is being installed; nothing can be written until it is done")]
    Installing,
    /// The replica is closing.
    #[error("the replica is closing")]
    Closing,
    /// The journal stopped after a fault and must be recovered.
    #[error("the journal has stopped and must be recovered: {0}")]
    Halted(StorageFault),
}

impl Classified for MutationError {
    const FAMILY: Family = Family::Caller;
}

/// What a key is, durably.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Entry {
    /// Present or deleted.
    pub state: State,
    /// Since which version.
    pub version: Version,
    /// Who gave that version.
    pub authority: AuthorityId,
}

/// Which part of the key space a scan reads.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Scan {
    /// The namespace; all of them if absent.
    pub namespace: Option<Vec<u8>>,
    /// What the logical keys start with.
    pub prefix: Vec<u8>,
    /// Resume after this key: the `next` of the page before. It need not exist any more.
    pub after: Option<Key>,
    /// Longest page.
    pub entries_max: u32,
    /// Whether tombstones are part of the answer.
    pub deleted: bool,
}

/// One page of a scan: keys in order, each at its state when the page was read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ScanPage {
    /// The keys.
    pub entries: Vec<(Key, Entry)>,
    /// Where the next page resumes; `None` at the end.
    pub next: Option<Key>,
    /// The durable tail this page shows.
    pub at: Version,
}

/// Which way records may flow over a link.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum LinkRole {
    /// Both; who is behind is repaired.
    Both,
    /// We send, the peer receives.
    Source,
    /// The peer sends, we receive.
    Receiver,
}

/// Names one request whose answer comes as [`Event::Done`].
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct RequestId(pub u64);

/// A change of who counts for compaction.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum MembersChange {
    /// Adds a member; it counts once it has read a cut.
    Add(String),
    /// Removes a member; it must be reseeded before it counts again.
    Remove(String),
    /// Says explicitly that the set is empty, so that nobody is waited for.
    Clear,
}

/// How a request ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Done {
    /// The members are stored.
    Members,
    /// The journal was compacted.
    Compacted(Compacted),
    /// It could not be done; nothing changed.
    Refused(RequestError),
}

/// What a compaction achieved.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Compacted {
    /// The new floor.
    pub floor: Version,
    /// Records in the new checkpoint.
    pub records: u64,
    /// Bytes of the new checkpoint.
    pub checkpoint_bytes: u64,
    /// Journal entries no longer retained.
    pub entries_dropped: u64,
    /// Tombstones no longer kept.
    pub tombstones_dropped: u64,
}

/// Why a request was refused (family: caller).
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RequestError {
    /// No membership was ever stored: nobody said who must have the records.
    #[error("no membership is configured: name the members, or say explicitly that there are none")]
    MembershipMissing,
    /// A member has not acknowledged enough.
    #[error("blocked by {member}: it acknowledged {acked}, the floor is {floor}")]
    Behind {
        /// The one furthest behind.
        member: String,
        /// What it acknowledged.
        acked: Version,
        /// The present floor.
        floor: Version,
    },
    /// Nothing lies between the floor and what may go.
    #[error("nothing to compact: the floor is already {floor}")]
    NoProgress {
        /// The present floor.
        floor: Version,
    },
    /// The version asked for is not one of the log's durable records, or above what may go.
    #[error("cannot compact to {found}: expected a durable version above {floor} and at most {most}")]
    Target {
        /// What was asked.
        found: Version,
        /// The present floor.
        floor: Version,
        /// The highest that may go.
        most: Version,
    },
    /// A compaction or snapshot installation is already under way.
    #[error("{what} is already under way")]
    Busy {
        /// What.
        what: &'static str,
    },
    /// The member list would break a limit or rule.
    #[error("member {member:?} is refused: {reason}")]
    Member {
        /// Who.
        member: String,
        /// Why.
        reason: String,
    },
    /// The replica is closing.
    #[error("the replica is closing")]
    Closing,
    /// The disk failed; what it had done so far does not count.
    #[error("storage failed: {0}")]
    Storage(StorageFault),
}

impl Classified for RequestError {
    const FAMILY: Family = Family::Caller;
}

/// Why a link must be closed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum CloseReason {
    /// Another live link of the same identity stays.
    Duplicate,
    /// The peer broke the protocol.
    Fault(PeerFault),
    /// The disk failed while it was read for this link; the log goes on.
    Storage(StorageFault),
    /// Nothing came for too long.
    Idle,
    /// This replica is closing or has stopped.
    Closing,
}

/// What a peer did wrong (family: peer). Its link is closed; nothing of ours changed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{what}: expected {expected}, found {found}")]
pub struct PeerFault {
    /// Which rule.
    pub what: PeerFaultKind,
    /// What the rule asks for.
    pub expected: String,
    /// What came.
    pub found: String,
}

impl Classified for PeerFault {
    const FAMILY: Family = Family::Peer;
}

/// Which rule a peer broke. A closed set: it becomes a metric label.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum PeerFaultKind {
    /// Bytes that are no frame.
    Frame,
    /// A frame that is no message.
    Message,
    /// A message at a time or in a role in which it may not come.
    Sequence,
    /// Records out of order, or not after their watermark.
    Order,
    /// A record of another namespace or lineage.
    Lineage,
    /// An acknowledgement of something that is not ours.
    Acknowledgement,
    /// A snapshot that is not what was offered.
    Snapshot,
    /// Blob bytes that are not what was asked for.
    Blob,
    /// More than a limit allows.
    Limit,
}

impl fmt::Display for PeerFaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Frame => "frame",
            Self::Message => "message",
            Self::Sequence => "sequence",
            Self::Order => "order",
            Self::Lineage => "lineage",
            Self::Acknowledgement => "acknowledgement",
            Self::Snapshot => "snapshot",
            Self::Blob => "blob",
            Self::Limit => "limit",
        })
    }
}

/// Why a link was not taken up (family: peer).
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum LinkRefused {
    /// The peer's log is another one.
    #[error("peer {identity} serves log {found}, this is log {expected}")]
    Log {
        /// Who.
        identity: String,
        /// Our log.
        expected: LogId,
        /// The peer's.
        found: LogId,
    },
    /// The peer named no log and no direction was configured for it.
    #[error("peer {identity} names no log: configure it as source or receiver")]
    RoleNeeded {
        /// Who.
        identity: String,
    },
    /// The peer has our own name.
    #[error("peer calls itself {identity}, which is this replica's name")]
    OwnName {
        /// The name.
        identity: String,
    },
    /// An existing link of the same identity stays.
    #[error("a link with {identity} exists and stays")]
    Duplicate {
        /// Who.
        identity: String,
    },
    /// The table of links is full.
    #[error("{links_max} links are open, which is the limit")]
    Full {
        /// The limit.
        links_max: u32,
    },
    /// The replica is closing or has stopped.
    #[error("the replica takes no links now")]
    Closing,
}

impl Classified for LinkRefused {
    const FAMILY: Family = Family::Peer;
}

/// How far a completeness between two peers was verified.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verified {
    /// The digests of the common history agree.
    Digest,
    /// There was no common anchor: by version only.
    VersionOnly,
}

/// Why a pair of peers stands as it does. A closed set: it becomes a metric label.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum PairReason {
    /// The peer is below the floor: a snapshot is needed.
    BelowFloor,
    /// The peer has records above our tail and may not send them.
    AheadOfTail,
    /// Another history at the same version.
    OtherHistory,
    /// A version between floor and tail that our log does not have.
    ForeignVersion,
    /// Another life of the same name, holding less than it acknowledged.
    OtherIncarnation,
    /// The peer takes no snapshot of this size.
    SnapshotTooLarge,
    /// The peer takes no blob of this size.
    BlobTooLarge,
    /// A blob that the peer needs is not stored here.
    BlobMissing,
}

impl PairReason {
    /// Every reason.
    pub const ALL: [Self; 8] = [
        Self::BelowFloor,
        Self::AheadOfTail,
        Self::OtherHistory,
        Self::ForeignVersion,
        Self::OtherIncarnation,
        Self::SnapshotTooLarge,
        Self::BlobTooLarge,
        Self::BlobMissing,
    ];

    /// The word for it, on the wire and in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::BelowFloor => "below-floor",
            Self::AheadOfTail => "ahead-of-tail",
            Self::OtherHistory => "other-history",
            Self::ForeignVersion => "foreign-version",
            Self::OtherIncarnation => "other-incarnation",
            Self::SnapshotTooLarge => "snapshot-too-large",
            Self::BlobTooLarge => "blob-too-large",
            Self::BlobMissing => "blob-missing",
        }
    }

    /// The reason of this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.name() == name)
    }
}

impl fmt::Display for PairReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Where two histories part, as evidence.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Divergence {
    /// The version at which they are known to differ.
    pub at: Version,
    /// Our digest or version there.
    pub ours: String,
    /// The peer's.
    pub theirs: String,
    /// Which kind of difference.
    pub reason: PairReason,
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}: ours {}, theirs {}", self.reason, self.at, self.ours, self.theirs)
    }
}

/// The verdict over a pair of peers.
pub type PairVerdict = crate::verdict::Verdict<Version, Verified, PairReason, Divergence>;

/// Whether the link may hand in more bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Flow {
    /// Yes.
    More,
    /// Not before [`Event::Resume`]: frames that came already wait for the disk.
    Pause,
}

/// Something the host should know.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Event {
    /// Every entry up to this one survives power loss and is visible.
    Durable {
        /// The last of them.
        upto: Lsn,
    },
    /// The journal stopped for good. What was submitted and not durable is uncertain.
    Halted {
        /// Why.
        fault: StorageFault,
    },
    /// The channel of this link has frames to poll, after it had none.
    Frames {
        /// Which link.
        link: LinkId,
    },
    /// The link may hand in bytes again, after [`Flow::Pause`].
    Resume {
        /// Which link.
        link: LinkId,
    },
    /// A verdict over the peer of a link, also shown in the status.
    Verdict {
        /// Which link.
        link: LinkId,
        /// The peer's identity.
        identity: String,
        /// The verdict.
        verdict: PairVerdict,
    },
    /// The host must close this link once its frames are out; it is already down here.
    CloseLink {
        /// Which link.
        link: LinkId,
        /// Why.
        reason: CloseReason,
    },
    /// The peer of a link has everything up to our durable tail, blobs included.
    Synced {
        /// Which link.
        link: LinkId,
        /// The tail.
        tail: Version,
    },
    /// A snapshot from a peer became this replica's state.
    Installed {
        /// The version it stands for.
        cut: Version,
        /// How many records.
        records: u64,
    },
    /// A request ended.
    Done {
        /// Which.
        request: RequestId,
        /// How.
        done: Done,
    },
    /// Everything submitted is durable, the journal is sealed: the host may end.
    Closed,
}

/// How a link stands.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LinkStatus {
    /// The link.
    pub link: LinkId,
    /// The peer.
    pub identity: String,
    /// The peer's incarnation, if it names one.
    pub incarnation: Option<Incarnation>,
    /// Which way records may flow.
    pub role: LinkRole,
    /// A word for what the session is doing.
    pub state: &'static str,
    /// What the peer has acknowledged on this link.
    pub acked: Version,
    /// The latest verdict.
    pub verdict: Option<PairVerdict>,
}

/// How a member stands.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct MemberStatus {
    /// Who.
    pub identity: String,
    /// `joining`, `active` or `lapsed`.
    pub state: &'static str,
    /// What it has durably acknowledged.
    pub acked: Version,
}

/// How a replica stands.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Status {
    /// The log.
    pub log: LogId,
    /// This replica's name.
    pub identity: String,
    /// This replica's life.
    pub incarnation: Incarnation,
    /// The namespaces the log may hold.
    pub namespaces: Vec<Vec<u8>>,
    /// The authority identity if this replica writes the log.
    pub authority: Option<String>,
    /// Why this replica, which wrote the log, must be fenced before it may go on.
    pub fenced: Option<String>,
    /// The last submitted version.
    pub submitted: Version,
    /// The last durable version.
    pub tail: Version,
    /// Digest of the history up to the tail.
    pub tail_digest: [u8; 32],
    /// What compaction kept: versions at or below it are only in the checkpoint.
    pub floor: Version,
    /// Journal entries retained.
    pub entries: u64,
    /// Journal bytes retained.
    pub journal_bytes: u64,
    /// Keys that are present.
    pub present: u64,
    /// Tombstones kept.
    pub tombstones: u64,
    /// Whether a membership was ever stored.
    pub members_configured: bool,
    /// The members.
    pub members: Vec<MemberStatus>,
    /// The links.
    pub links: Vec<LinkStatus>,
    /// Whether a snapshot is being installed.
    pub installing: bool,
    /// Whether the journal is being compacted.
    pub compacting: bool,
    /// The fault that stopped the journal.
    pub halted: Option<StorageFault>,
    /// Commands out and not answered.
    pub commands_outstanding: usize,
}
