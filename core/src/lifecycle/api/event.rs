//! What the host is told, and how a replica stands.

use super::{
    CloseReason, Compacted, Done, LinkRole, Page, PairVerdict, RequestId, SubscriptionId, SubscriptionStatus,
};
use crate::error::StorageFault;
use crate::id::{Incarnation, LinkId, LogId, Lsn};
use crate::record::{AuthorityId, Version};
use alloc::string::String;
use alloc::vec::Vec;

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
    /// An epoch of the authority begins: here, or at a peer with whose history ours agrees. Its entry
    /// is durable.
    EpochStarted {
        /// The epoch.
        epoch: u64,
        /// Who writes in it.
        authority: AuthorityId,
        /// The last version before it.
        previous_end: Version,
    },
    /// A member is too far behind: it holds compaction up no more, and must be reseeded before it
    /// counts again.
    MemberLapsed {
        /// Who.
        identity: String,
        /// What it counted at.
        acked: Version,
        /// Bytes of journal above that.
        lag_bytes: u64,
        /// For how long it had not acknowledged what was there.
        lag_ms: u64,
    },
    /// The journal was compacted by policy.
    Compacted {
        /// What that achieved.
        compacted: Compacted,
    },
    /// A request ended.
    Done {
        /// Which.
        request: RequestId,
        /// How.
        done: Done,
    },
    /// What a subscription asked for, or its end.
    Page {
        /// Which.
        subscription: SubscriptionId,
        /// What it is given.
        page: Page,
    },
    /// Everything submitted is durable, the journal is sealed: the host may end.
    Closed,
}

/// How far someone is behind our durable tail.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Lag {
    /// Journal entries that it lacks; absent below the floor, where they are no longer counted.
    pub entries: Option<u64>,
    /// For how long, in milliseconds, the first of them has been durable: at most a little less than
    /// that, and no further back than this run of the replica. Absent if it lacks nothing of this run.
    pub age_ms: Option<u64>,
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
    /// How far that is behind our tail.
    pub lag: Lag,
    /// Where the peer said it stands, if it did: its durable tail.
    pub peer_tail: Option<Version>,
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
    /// The life of its data that was seen last.
    pub incarnation: Option<Incarnation>,
    /// What it has durably acknowledged.
    pub acked: Version,
    /// Journal entries that it lacks; absent below the floor, where they are no longer counted.
    pub lag_entries: Option<u64>,
    /// Up to where it has the blobs as well.
    pub complete: Version,
    /// Where compaction counts it; absent if it holds compaction up at nothing.
    pub counts_at: Option<Version>,
    /// Bytes of journal above that.
    pub lag_bytes: u64,
    /// For how long it has not acknowledged what was there, in this run.
    pub lag_ms: u64,
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
    /// The latest epoch that has begun, as far as is known here; zero for none.
    pub epoch: u64,
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
    /// Up to where every record that is the last of its key has its blob here.
    pub complete: Version,
    /// Records that wait for their blobs.
    pub blobs_wanted: u64,
    /// Whether a membership was ever stored.
    pub members_configured: bool,
    /// The members.
    pub members: Vec<MemberStatus>,
    /// The version up to which the journal may be compacted now, if it may at all.
    pub compactable: Option<Version>,
    /// Who or what keeps compaction from going on to the tail.
    pub blocked_by: Option<String>,
    /// The links.
    pub links: Vec<LinkStatus>,
    /// Reads of the journal for peers since the start. One serves every peer that needs the same bytes.
    pub reads_for_peers: u64,
    /// The subscriptions.
    pub subscriptions: Vec<SubscriptionStatus>,
    /// Whether a snapshot is being installed.
    pub installing: bool,
    /// Whether the journal is being compacted.
    pub compacting: bool,
    /// The fault that stopped the journal.
    pub halted: Option<StorageFault>,
    /// Commands out and not answered.
    pub commands_outstanding: usize,
}
