//! Requests whose answers come later: members and compaction.

use super::{Collected, Scrubbed};
use crate::error::{Classified, Family, StorageFault};
use crate::lifecycle::authority::FenceRefusal;
use crate::record::{AuthorityId, Version};
use alloc::string::String;

/// Names one request whose answer comes as [`super::Event::Done`].
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct RequestId(pub u64);

/// A change of who counts for compaction.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum MembersChange {
    /// Adds a member; it counts once it has read a cut. One that was removed before is lapsed until it
    /// was reseeded, or took a snapshot.
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
    /// Blobs that nothing needs were collected.
    Collected(Collected),
    /// The blobs were looked at.
    Scrubbed(Scrubbed),
    /// The log's authority is here, in a new epoch.
    Fenced(Fenced),
    /// It could not be done; nothing changed.
    Refused(RequestError),
}

/// An epoch that was taken: its first entry is durable.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Fenced {
    /// The epoch.
    pub epoch: u64,
    /// Who writes in it: this replica.
    pub authority: AuthorityId,
    /// The last version before it.
    pub previous_end: Version,
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
    /// The epoch asked for is not above all that are known.
    #[error(transparent)]
    Fence(#[from] FenceRefusal),
    /// A peer has records that this replica is still taking: the new epoch would part from them.
    #[error("peer {peer} has records up to {theirs}, this replica up to {ours}: wait until it has them")]
    PeerAhead {
        /// Who.
        peer: String,
        /// Where it stands.
        theirs: Version,
        /// Where we stand.
        ours: Version,
    },
    /// The entry that begins the epoch could not be appended.
    #[error("{reason}")]
    EpochStart {
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
