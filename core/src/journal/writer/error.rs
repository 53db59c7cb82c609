//! Why the live journal refuses or has stopped.

use crate::error::{Classified, Family, StorageFault};

/// Why entries were not appended (the caller's mistake, or a limit it configured). Nothing was.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum AppendError {
    /// Too much waits to be submitted; append again after the next completion.
    #[error(
        "{bytes} bytes and {entries} entries are pending: expected room below {bytes_max} bytes and {entries_max} entries"
    )]
    Full {
        /// Payload bytes pending.
        bytes: u64,
        /// Their limit.
        bytes_max: u32,
        /// Entries pending.
        entries: u64,
        /// Their limit.
        entries_max: u32,
    },
    /// The journal holds as much as it may; compaction makes room.
    #[error(
        "the journal holds {bytes} bytes and {entries} entries: expected room below {bytes_max} bytes and {entries_max} entries"
    )]
    JournalFull {
        /// Payload bytes held or pending.
        bytes: u64,
        /// Their limit.
        bytes_max: u64,
        /// Entries held or pending.
        entries: u64,
        /// Their limit.
        entries_max: u64,
    },
    /// An entry is too long.
    #[error("an entry has {bytes} bytes: expected {bytes_max} at most")]
    EntryTooLarge {
        /// Its length.
        bytes: u64,
        /// The limit.
        bytes_max: u32,
    },
    /// A group does not fit one batch.
    #[error("a group has {bytes} bytes with 5 before each entry: expected {bytes_max} at most")]
    GroupTooLarge {
        /// Its length.
        bytes: u64,
        /// The limit.
        bytes_max: u32,
    },
    /// A group has no entry.
    #[error("a group has no entry: expected one or more")]
    GroupEmpty,
    /// A write or a sync failed before; recover from storage.
    #[error("the journal is halted: expected a restart that recovers from storage")]
    Halted,
}

impl Classified for AppendError {
    const FAMILY: Family = Family::Caller;
}

/// The journal has stopped for good: its storage failed, and what was not durable has an unknown
/// outcome. Recover from storage.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the journal is halted: {0}")]
pub struct Halted(
    /// The first failure.
    pub StorageFault,
);

impl Classified for Halted {
    const FAMILY: Family = Family::Storage;
}
