//! Bounds of a journal, asserted against each other.

use super::{batch, segment};

/// Bounds of one journal. Recovery refuses what lies beyond them, so append refuses it first.
///
/// ```
/// use strandline_core::journal::limits::JournalLimits;
/// assert!(JournalLimits::default().validate().is_ok());
/// let tight = JournalLimits { segment_bytes: 4096, ..JournalLimits::default() };
/// assert!(tight.validate().is_err(), "a batch of the default size does not fit");
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct JournalLimits {
    /// Length a segment is prepared with; a multiple of 8.
    pub segment_bytes: u64,
    /// Longest payload of one batch: its entries with 5 bytes before each.
    pub batch_bytes_max: u32,
    /// Longest entry.
    pub entry_bytes_max: u32,
    /// Most payload bytes that wait to be submitted. A batch in flight does not count.
    pub pending_bytes_max: u32,
    /// Most entries that wait to be submitted.
    pub pending_entries_max: u32,
    /// Longest read; a single longer batch is still read whole.
    pub read_bytes_max: u32,
    /// Most payload bytes the journal holds.
    pub journal_bytes_max: u64,
    /// Most entries the journal holds.
    pub journal_entries_max: u64,
    /// How long after the last append the root seals.
    pub seal_ms: u64,
}

impl Default for JournalLimits {
    fn default() -> Self {
        Self {
            segment_bytes: 16 << 20,
            batch_bytes_max: 4 << 20,
            entry_bytes_max: 1 << 20,
            pending_bytes_max: 8 << 20,
            pending_entries_max: 65_536,
            read_bytes_max: 1 << 20,
            journal_bytes_max: 256 << 30,
            journal_entries_max: 4_000_000_000,
            seal_ms: 1000,
        }
    }
}

/// Why limits contradict each other (the caller's mistake).
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{name} is {found}: expected {min} to {max} ({why})")]
pub struct JournalLimitsError {
    /// Which limit.
    pub name: &'static str,
    /// Its value.
    pub found: u64,
    /// The least it may be.
    pub min: u64,
    /// The most it may be.
    pub max: u64,
    /// What it must agree with.
    pub why: &'static str,
}

impl crate::error::Classified for JournalLimitsError {
    const FAMILY: crate::error::Family = crate::error::Family::Caller;
}

/// Longest batch payload of any configuration: with its header it fits one read.
pub const BATCH_BYTES_CEILING: u32 = 1 << 29;
/// Longest segment of any configuration: offsets and entry counts in it fit 32 bits.
pub const SEGMENT_BYTES_CEILING: u64 = 16 << 30;

const _: () = assert!(SEGMENT_BYTES_CEILING / batch::ENTRY_PREFIX_BYTES as u64 <= u32::MAX as u64);
const _: () = assert!(SEGMENT_BYTES_CEILING / segment::ALIGN <= u32::MAX as u64);

impl JournalLimits {
    /// The widest there are. What any configuration wrote can be read within them; memory for a batch is
    /// still taken only for bytes that are there.
    #[must_use]
    pub const fn widest() -> Self {
        Self {
            segment_bytes: SEGMENT_BYTES_CEILING,
            batch_bytes_max: BATCH_BYTES_CEILING,
            entry_bytes_max: BATCH_BYTES_CEILING - batch::ENTRY_PREFIX_BYTES as u32,
            pending_bytes_max: u32::MAX,
            pending_entries_max: u32::MAX,
            read_bytes_max: 1 << 20,
            journal_bytes_max: u64::MAX,
            journal_entries_max: u64::MAX / 2,
            seal_ms: 1000,
        }
    }

    /// Checks every limit against those it depends on.
    ///
    /// # Errors
    /// The first limit out of its range.
    pub fn validate(&self) -> Result<(), JournalLimitsError> {
        let batch = u64::from(self.batch_bytes_max);
        let ranges = [
            (
                "entry_bytes_max",
                u64::from(self.entry_bytes_max),
                1,
                batch.saturating_sub(batch::ENTRY_PREFIX_BYTES as u64),
                "an entry and its 5 bytes fit a batch",
            ),
            (
                "batch_bytes_max",
                batch,
                1,
                u64::from(BATCH_BYTES_CEILING.min(self.pending_bytes_max)),
                "a full batch may wait, and is read whole",
            ),
            (
                "segment_bytes",
                self.segment_bytes,
                segment::HEADER_BYTES + batch::batch_bytes(self.batch_bytes_max),
                SEGMENT_BYTES_CEILING,
                "a full batch fits a segment",
            ),
            (
                "pending_entries_max",
                u64::from(self.pending_entries_max),
                1,
                u64::from(u32::MAX),
                "one entry may wait",
            ),
            ("read_bytes_max", u64::from(self.read_bytes_max), 64, 1 << 30, "a header fits a read"),
            ("journal_bytes_max", self.journal_bytes_max, batch, u64::MAX, "a full batch fits the journal"),
            ("journal_entries_max", self.journal_entries_max, 1, u64::MAX / 2, "one entry fits the journal"),
        ];
        for (name, found, min, max, why) in ranges {
            if found < min || found > max {
                return Err(JournalLimitsError { name, found, min, max, why });
            }
        }
        if !self.segment_bytes.is_multiple_of(segment::ALIGN) {
            let (name, found) = ("segment_bytes", self.segment_bytes);
            let (min, max) =
                (found / segment::ALIGN * segment::ALIGN, found.next_multiple_of(segment::ALIGN));
            return Err(JournalLimitsError { name, found, min, max, why: "a multiple of 8" });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_contradiction_is_named() {
        let ok = JournalLimits::default();
        let bad = [
            ("entry_bytes_max", JournalLimits { entry_bytes_max: 4 << 20, ..ok }),
            ("batch_bytes_max", JournalLimits { batch_bytes_max: 9 << 20, ..ok }),
            ("segment_bytes", JournalLimits { segment_bytes: 4 << 20, ..ok }),
            ("segment_bytes", JournalLimits { segment_bytes: (64 << 20) + 4, ..ok }),
            ("pending_entries_max", JournalLimits { pending_entries_max: 0, ..ok }),
            ("read_bytes_max", JournalLimits { read_bytes_max: 8, ..ok }),
            ("journal_bytes_max", JournalLimits { journal_bytes_max: 8, ..ok }),
            ("journal_entries_max", JournalLimits { journal_entries_max: 0, ..ok }),
        ];
        for (name, limits) in bad {
            assert_eq!(limits.validate().map_err(|e| e.name), Err(name));
        }
        assert_eq!((ok.validate(), JournalLimits::widest().validate()), (Ok(()), Ok(())));
    }
}
