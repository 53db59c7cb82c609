//! What goes into and comes out of an embedded keyspace.

use crate::error::{Classified, Family, StorageFault};
use crate::id::Lsn;
use crate::journal::limits::{JournalLimits, JournalLimitsError};
use crate::journal::log::{CHECKPOINT_BYTES_MAX, LogError};
use crate::journal::writer::AppendError;
use crate::stream::event::EventId;
use crate::stream::limits::{EVENT_BYTES_MAX, IDS_PER_CALL_MAX, NAME_CHARS_MAX, ONCE_KEY_BYTES_MAX};
use crate::stream::name::StreamName;
use crate::stream::op::StreamOp;
use crate::stream::reply::Outcome;

/// Longest entry of the journal by default: any operation but one with an absurd topic or owner fits.
const ENTRY_BYTES_MAX: u32 = 2 << 20;

/// Everything of an operation but its event or its IDs: names of at most four bytes a character, three
/// contracts, a key, numbers.
const ENTRY_REST_BYTES: usize = 3 * 4 * NAME_CHARS_MAX + 3 * 256 + ONCE_KEY_BYTES_MAX + 256;

const _: () = {
    assert!(EVENT_BYTES_MAX + ENTRY_REST_BYTES <= ENTRY_BYTES_MAX as usize);
    assert!(IDS_PER_CALL_MAX * size_of::<EventId>() + ENTRY_REST_BYTES <= ENTRY_BYTES_MAX as usize);
};

/// Bounds of an embedded keyspace.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct EmbeddedLimits {
    /// Bounds of its journal.
    pub journal: JournalLimits,
    /// A checkpoint is made when so many bytes of entries came since the last one, or as many as that
    /// one had, whichever is more.
    pub checkpoint_after_bytes: u64,
    /// Longest checkpoint; what a keyspace holds in memory is of the same order.
    pub checkpoint_bytes_max: u64,
    /// Most operations that wait for the disk.
    pub waiting_max: u32,
}

impl Default for EmbeddedLimits {
    fn default() -> Self {
        Self {
            journal: JournalLimits { entry_bytes_max: ENTRY_BYTES_MAX, ..JournalLimits::default() },
            checkpoint_after_bytes: 64 << 20,
            checkpoint_bytes_max: CHECKPOINT_BYTES_MAX,
            waiting_max: 65_536,
        }
    }
}

impl EmbeddedLimits {
    /// Checks every limit against those it depends on.
    ///
    /// # Errors
    /// The first limit out of its range.
    pub fn validate(&self) -> Result<(), JournalLimitsError> {
        self.journal.validate()?;
        let ranges = [
            (
                "checkpoint_bytes_max",
                self.checkpoint_bytes_max,
                CHECKPOINT_BYTES_MAX,
                "recovery holds one in memory",
            ),
            (
                "checkpoint_after_bytes",
                self.checkpoint_after_bytes,
                self.journal.journal_bytes_max,
                "a checkpoint comes before the journal is full",
            ),
            ("waiting_max", u64::from(self.waiting_max), u64::from(u32::MAX), "one may wait"),
        ];
        match ranges.into_iter().find(|(_, found, max, _)| *found == 0 || found > max) {
            Some((name, found, max, why)) => Err(JournalLimitsError { name, found, min: 1, max, why }),
            None => Ok(()),
        }
    }
}

/// One operation that was asked, to know its answer by.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Ask(pub u64);

/// What happened in an [`super::Embedded`] keyspace.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum EmbeddedEvent {
    /// An operation came to its end. What is answered is durable, with everything it rests on.
    Answered {
        /// Which.
        ask: Ask,
        /// How.
        outcome: Outcome,
    },
    /// A stream has new entries, or came to its end: whoever waits for it looks again.
    Stirred(StreamName),
    /// Recovery begins with a checkpoint of so many bytes from now on.
    Checkpointed {
        /// The last entry of the journal that is in it.
        through: Lsn,
        /// Its length.
        bytes: u64,
    },
    /// A checkpoint could not be written. The journal grows until the next try.
    NotCheckpointed(StorageFault),
    /// The keyspace is longer than a checkpoint may be. The journal grows until it is full.
    CheckpointTooLarge {
        /// The limit.
        bytes_max: u64,
    },
    /// Files that no longer count could not be removed; the next open tries again.
    NotRemoved(StorageFault),
    /// A write or a sync failed: what was waiting is `Uncertain`, and nothing more is taken. Recover
    /// from storage.
    Halted(StorageFault),
}

/// Why an operation was not asked. Nothing was done.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum NotAsked {
    /// Too much waits for the disk: ask again after the next completion.
    #[error("too much waits for the disk: ask again later")]
    Full(alloc::boxed::Box<StreamOp>),
    /// The journal does not take it.
    #[error(transparent)]
    Refused(#[from] AppendError),
}

impl Classified for NotAsked {
    const FAMILY: Family = Family::Caller;
}

/// Why an embedded keyspace was not opened.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum EmbeddedError {
    /// The limits contradict each other.
    #[error(transparent)]
    Limits(#[from] JournalLimitsError),
    /// The journal could not be opened.
    #[error(transparent)]
    Log(#[from] LogError),
}

impl EmbeddedError {
    /// Whose fault it is.
    #[must_use]
    pub const fn family(&self) -> Family {
        match self {
            Self::Limits(_) => Family::Caller,
            Self::Log(error) => error.family(),
        }
    }
}
