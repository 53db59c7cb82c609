//! What append refuses: whatever recovery would refuse, and back-pressure.

use super::pending::payload_bytes;
use super::{InFlight, Journal};
use crate::error::{Classified, Family};
use crate::journal::batch::BatchHeader;

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
    /// A group has more entries than may ever wait: no completion makes room for it.
    #[error("a group has {entries} entries: expected {entries_max} at most")]
    GroupTooLong {
        /// How many.
        entries: u64,
        /// The limit, `pending_entries_max`.
        entries_max: u32,
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

impl Journal {
    /// Whether these entries could be appended now, as one group.
    ///
    /// # Errors
    /// What [`Journal::append_group`] would refuse them with.
    pub fn admits(&self, entries: &[(u8, &[u8])]) -> Result<(), AppendError> {
        self.check(entries).map(drop)
    }

    /// Refuses what recovery would refuse, in the order of how final the answer is.
    pub(super) fn check(&self, entries: &[(u8, &[u8])]) -> Result<u32, AppendError> {
        let limits = &self.limits;
        if self.is_halted() {
            return Err(AppendError::Halted);
        }
        if entries.is_empty() {
            return Err(AppendError::GroupEmpty);
        }
        let longest = entries.iter().map(|(_, bytes)| bytes.len() as u64).max().unwrap_or(0);
        if longest > u64::from(limits.entry_bytes_max) {
            return Err(AppendError::EntryTooLarge { bytes: longest, bytes_max: limits.entry_bytes_max });
        }
        let (bytes, count) = (payload_bytes(entries), entries.len() as u64);
        if bytes > u64::from(limits.batch_bytes_max) {
            return Err(AppendError::GroupTooLarge { bytes, bytes_max: limits.batch_bytes_max });
        }
        if count > u64::from(limits.pending_entries_max) {
            return Err(AppendError::GroupTooLong {
                entries: count,
                entries_max: limits.pending_entries_max,
            });
        }
        let flying =
            self.in_flight_header().map_or((0, 0), |h| (u64::from(h.payload_bytes), u64::from(h.count)));
        let journal_bytes = self.index.bytes() + flying.0 + self.pending.bytes();
        let journal_entries = self.index.entries() + flying.1 + self.pending.entries();
        if journal_bytes + bytes > limits.journal_bytes_max
            || journal_entries + count > limits.journal_entries_max
        {
            return Err(AppendError::JournalFull {
                bytes: journal_bytes,
                bytes_max: limits.journal_bytes_max,
                entries: journal_entries,
                entries_max: limits.journal_entries_max,
            });
        }
        if self.pending.bytes() + bytes > u64::from(limits.pending_bytes_max)
            || self.pending.entries() + count > u64::from(limits.pending_entries_max)
        {
            return Err(AppendError::Full {
                bytes: self.pending.bytes(),
                bytes_max: limits.pending_bytes_max,
                entries: self.pending.entries(),
                entries_max: limits.pending_entries_max,
            });
        }
        Ok(u32::try_from(bytes).expect("at most batch_bytes_max"))
    }

    fn in_flight_header(&self) -> Option<&BatchHeader> {
        match &self.in_flight {
            Some(InFlight::Batch { header, .. }) => Some(header),
            Some(InFlight::Header(_)) | None => None,
        }
    }
}
