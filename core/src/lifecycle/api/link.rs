//! Links: which way they go, why they are refused and why they end.

use crate::error::{Classified, Family, StorageFault};
use crate::id::LogId;
use alloc::string::String;
use core::fmt;

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
