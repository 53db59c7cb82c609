//! What the entries of a log's journal are.

use crate::record::{AuthorityId, CanonicalError, RecordView, Version};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Kind of an entry that is a record's canonical bytes.
pub const ENTRY_RECORD: u8 = 1;

/// Kind of an entry that is a record's canonical bytes, appended while its blob was missing: the blob
/// is wanted until it is stored, or until a later record of the key settles it.
pub const ENTRY_RECORD_WANTED: u8 = 3;

/// Whether an entry of this kind is a record.
#[must_use]
pub const fn is_record(kind: u8) -> bool {
    matches!(kind, ENTRY_RECORD | ENTRY_RECORD_WANTED)
}

/// Kind of an entry that begins an epoch of the authority.
pub const ENTRY_EPOCH_START: u8 = 2;

/// An epoch of the authority begins; durable before the epoch's first record.
///
/// Its bytes, big endian: u64 epoch, previous end (u64 epoch, u64 sequence), authority in UTF-8 up to
/// the end of the entry.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct EpochStart {
    /// The new epoch.
    pub epoch: u64,
    /// Who writes in it.
    pub authority: AuthorityId,
    /// The last version before it.
    pub previous_end: Version,
}

/// An entry of the journal, parsed.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum JournalEntry<'a> {
    /// A record.
    Record(RecordView<'a>),
    /// An epoch begins.
    EpochStart(EpochStart),
}

/// Why bytes are no entry of a log. The journal's checksums hold, so this is no torn write.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum EntryError {
    /// A kind this program does not know.
    #[error("entry of kind {found}: expected 1 (record), 2 (epoch start) or 3 (record without its blob)")]
    Kind {
        /// What was found.
        found: u8,
    },
    /// Not a record.
    #[error("entry is no record: {0}")]
    Record(#[from] CanonicalError),
    /// Not the start of an epoch.
    #[error("entry is no epoch start: {reason}")]
    EpochStart {
        /// What was expected and found.
        reason: String,
    },
}

impl EpochStart {
    /// Appends the bytes of the entry.
    pub fn encode(&self, out: &mut Vec<u8>) {
        for number in [self.epoch, self.previous_end.epoch, self.previous_end.sequence] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        out.extend_from_slice(self.authority.as_str().as_bytes());
    }

    /// Reads an entry's bytes.
    ///
    /// # Errors
    /// They are not what [`EpochStart::encode`] writes, or the epoch is not above the previous one.
    pub fn decode(bytes: &[u8]) -> Result<Self, EntryError> {
        let wrong = |reason| EntryError::EpochStart { reason };
        let (numbers, rest) =
            bytes.split_at_checked(24).filter(|(_, rest)| !rest.is_empty()).ok_or_else(|| {
                wrong(format!("expected 24 bytes and an authority, found {} bytes", bytes.len()))
            })?;
        let number = |at: usize| u64::from_be_bytes(numbers[at..at + 8].try_into().expect("eight bytes"));
        let (epoch, previous_end) = (number(0), Version::new(number(8), number(16)));
        if epoch <= previous_end.epoch {
            return Err(wrong(format!("expected an epoch above {}, found {epoch}", previous_end.epoch)));
        }
        let authority = core::str::from_utf8(rest).map_err(|e| {
            wrong(format!("expected UTF-8, found other bytes after {} of the authority", e.valid_up_to()))
        })?;
        Ok(Self { epoch, authority: AuthorityId::from_text(authority), previous_end })
    }
}

impl<'a> JournalEntry<'a> {
    /// Reads an entry of the journal.
    ///
    /// # Errors
    /// The kind is unknown or the bytes are none of that kind.
    pub fn parse(kind: u8, bytes: &'a [u8]) -> Result<Self, EntryError> {
        match kind {
            ENTRY_RECORD | ENTRY_RECORD_WANTED => Ok(Self::Record(RecordView::parse(bytes)?)),
            ENTRY_EPOCH_START => EpochStart::decode(bytes).map(Self::EpochStart),
            found => Err(EntryError::Kind { found }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Key, Record, State};

    fn start() -> EpochStart {
        EpochStart { epoch: 3, authority: AuthorityId::from_text("b"), previous_end: Version::new(2, 40) }
    }

    fn encoded(start: &EpochStart) -> Vec<u8> {
        let mut out = Vec::new();
        start.encode(&mut out);
        out
    }

    #[test]
    fn an_epoch_start_round_trips() {
        let bytes = encoded(&start());
        assert_eq!(JournalEntry::parse(ENTRY_EPOCH_START, &bytes), Ok(JournalEntry::EpochStart(start())));
        assert_eq!(bytes.len(), 25);
    }

    #[test]
    fn a_record_is_its_canonical_bytes() {
        let record = Record {
            key: Key::from_parts(b"n", b"k").expect("short"),
            state: State::Deleted,
            version: Version::new(1, 1),
            authority: AuthorityId::from_text("a"),
        };
        let mut bytes = Vec::new();
        record.encode_canonical(&mut bytes);
        let Ok(JournalEntry::Record(view)) = JournalEntry::parse(ENTRY_RECORD, &bytes) else {
            panic!("not a record");
        };
        assert_eq!(view.to_record(), record);
    }

    #[test]
    fn unknown_kind() {
        assert_eq!(JournalEntry::parse(9, b""), Err(EntryError::Kind { found: 9 }));
    }

    #[test]
    fn not_a_record() {
        assert!(matches!(JournalEntry::parse(ENTRY_RECORD, b"x"), Err(EntryError::Record(_))));
    }

    #[test]
    fn not_an_epoch_start() {
        let epoch_not_above = encoded(&EpochStart { epoch: 2, ..start() });
        let mut not_utf8 = encoded(&start());
        not_utf8[24] = 0xff;
        for bytes in [&encoded(&start())[..24], b"", &epoch_not_above, &not_utf8] {
            assert!(matches!(EpochStart::decode(bytes), Err(EntryError::EpochStart { .. })), "{bytes:?}");
        }
    }
}
