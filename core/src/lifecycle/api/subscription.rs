//! Subscriptions to a replica: cursors, verdicts over them, and the pages that are handed out.

use super::Verified;
use crate::error::{Classified, Family, StorageFault};
use crate::id::{LogId, hex, unhex};
use crate::record::{Record, Version};
use crate::verdict::Verdict;
use alloc::vec::Vec;
use core::fmt;

/// A place in the history of one log: "I have everything up to here". Any replica of the log can be
/// asked for what came after, also after a restart.
///
/// The text is `SPACE:EPOCH.SEQUENCE`, the space in 24 hexadecimal digits.
///
/// ```
/// use strandline_core::id::LogId;
/// use strandline_core::lifecycle::api::Cursor;
/// use strandline_core::record::Version;
/// let cursor = Cursor::new(LogId([7; 16]), Version::new(1, 42));
/// assert_eq!(cursor.to_string(), "070707070707070707070707:1.42");
/// assert_eq!(Cursor::parse(&cursor.to_string()), Some(cursor));
/// ```
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Cursor {
    /// Whose versions these are: the first 12 bytes of the log's ID.
    pub space: [u8; 12],
    /// The last version that the asker has; [`Version::ZERO`] for nothing yet.
    pub at: Version,
}

impl Cursor {
    /// A place in `log`.
    #[must_use]
    pub const fn new(log: LogId, at: Version) -> Self {
        Self { space: log.id_space(), at }
    }

    /// Space, epoch and sequence, the numbers big endian.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 28] {
        let mut out = [0; 28];
        out[..12].copy_from_slice(&self.space);
        out[12..20].copy_from_slice(&self.at.epoch.to_be_bytes());
        out[20..].copy_from_slice(&self.at.sequence.to_be_bytes());
        out
    }

    /// The inverse of [`Cursor::to_bytes`]; every value is a cursor.
    #[must_use]
    pub fn from_bytes(bytes: [u8; 28]) -> Self {
        let number = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        let space = bytes[..12].try_into().expect("twelve bytes");
        Self { space, at: Version::new(number(12), number(20)) }
    }

    /// Reads the text of a cursor; anything else than what [`Cursor`] displays is `None`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (space, at) = text.split_once(':')?;
        Some(Self { space: unhex(space)?, at: Version::parse(at)? })
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", hex(&self.space), self.at)
    }
}

/// Why a cursor is answered as it is. A closed set: it becomes a metric label.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum CursorReason {
    /// It lies below the floor: what came after it was compacted away.
    BelowFloor,
    /// It lies above our durable tail: whoever holds it has seen more than we have.
    AheadOfTail,
    /// It lies between floor and tail, and our log has no such version.
    ForeignVersion,
    /// It belongs to another log.
    OtherLog,
    /// A reset was left unread for so long that its state was let go.
    ResetExpired,
}

impl CursorReason {
    /// Every reason.
    pub const ALL: [Self; 5] =
        [Self::BelowFloor, Self::AheadOfTail, Self::ForeignVersion, Self::OtherLog, Self::ResetExpired];

    /// The word for it, for people and in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::BelowFloor => "below-floor",
            Self::AheadOfTail => "ahead-of-tail",
            Self::ForeignVersion => "foreign-version",
            Self::OtherLog => "other-log",
            Self::ResetExpired => "reset-expired",
        }
    }
}

impl fmt::Display for CursorReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The verdict over a cursor. `Complete` with [`Verified::Digest`] only for "nothing yet": a cursor
/// carries no digest to compare.
pub type CursorVerdict = Verdict<Version, Verified, CursorReason, CursorDivergence>;

/// A cursor that is no place of our history, as evidence.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CursorDivergence {
    /// The cursor.
    pub at: Version,
    /// What our log has instead: the next version above it, or our tail if it lies above that.
    pub ours: Version,
    /// Which kind of difference.
    pub reason: CursorReason,
}

impl fmt::Display for CursorDivergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}: ours {}", self.reason, self.at, self.ours)
    }
}

/// Names one subscription of one run of a replica; never given twice in it.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SubscriptionId(pub u64);

impl fmt::Display for SubscriptionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Where the changes of a page were read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Served {
    /// From the changes that are kept in memory: the subscriber keeps up.
    Memory,
    /// From the journal: the subscriber is further behind than memory reaches.
    Journal,
}

/// What a subscriber is given for one request.
///
/// Changes come in the order of their versions, each exactly once: the first after the cursor, then
/// one after the other. Only what is durable is shown.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Page {
    /// The changes after the last page.
    Changes {
        /// At least one.
        records: Vec<Record>,
        /// Where they came from.
        served: Served,
        /// How many journal entries the durable tail lies ahead of the last of them.
        behind: u64,
    },
    /// What can be vouched for ended: a compaction, an installation or a deadline went past the
    /// subscriber. Nothing follows unless it asks for a reset. Never `Complete`.
    Lost(CursorVerdict),
    /// A reset begins: the state at `cut` follows, keys in order.
    ResetBegin {
        /// The version that the state stands for.
        cut: Version,
    },
    /// A part of the state: present keys only, in order over all parts, none twice.
    State {
        /// At least one.
        records: Vec<Record>,
    },
    /// The state is whole. The receiver drops every key that it did not name; every change after
    /// `cut` follows.
    ResetEnd {
        /// The version that the state stands for.
        cut: Version,
        /// How many keys it named.
        keys: u64,
    },
    /// The subscription is over and its ID names nothing any more; the cursor stays good.
    Ended(SubscriptionEnd),
}

/// Why a subscription ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum SubscriptionEnd {
    /// The replica is closing or has stopped.
    Closing,
    /// The disk failed while it was read for this subscriber; the log goes on.
    Storage(StorageFault),
}

/// Why a subscription was not taken (family: caller).
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SubscribeRefused {
    /// The table of subscriptions is full.
    #[error("{subscriptions_max} subscriptions are open, which is the limit")]
    Full {
        /// The limit.
        subscriptions_max: u32,
    },
    /// The replica is closing or has stopped.
    #[error("the replica takes no subscriptions now")]
    Closing,
}

impl Classified for SubscribeRefused {
    const FAMILY: Family = Family::Caller;
}

/// How a subscription stands.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SubscriptionStatus {
    /// Which.
    pub id: SubscriptionId,
    /// A word for what it is doing.
    pub state: &'static str,
    /// The last version it was given.
    pub at: Version,
    /// How many journal entries the durable tail lies ahead of that; `None` where that is not known.
    pub behind: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_cursor_round_trips_as_text_and_as_bytes() {
        let cursor = Cursor::new(LogId([9; 16]), Version::new(u64::MAX, 7));
        assert_eq!(Cursor::parse(&cursor.to_string()), Some(cursor));
        assert_eq!(Cursor::from_bytes(cursor.to_bytes()), cursor);
    }

    #[test]
    fn only_the_text_of_a_cursor_is_one() {
        let space = "090909090909090909090909";
        for text in ["", ":", "1.7", "09:1.7", &alloc::format!("{space}:1"), &alloc::format!("{space}:01.7")]
        {
            assert_eq!(Cursor::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn reasons_have_names_of_their_own() {
        let names: alloc::collections::BTreeSet<&str> =
            CursorReason::ALL.into_iter().map(CursorReason::name).collect();
        assert_eq!(names.len(), CursorReason::ALL.len());
    }
}
