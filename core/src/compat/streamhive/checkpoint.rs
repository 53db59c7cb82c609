//! The v1 checkpoint: one envelope around `{watermark, records}`; records sorted by namespace and
//! logical key, each key once, none above the watermark.

use super::envelope::{self, ENVELOPE_BYTES, EnvelopeError};
use super::payload::{self, PayloadError};
use super::{ReferenceNames, Rule};
use crate::error::{Classified, Family};
use crate::record::{Key, Record, RecordError, RecordLimits, Version};
use crate::wire::json_write::{write_list, write_record, write_version};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Bounds of a v1 checkpoint. The defaults are the reference's.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CheckpointLimits {
    /// Of each record.
    pub record: RecordLimits,
    /// Longest file.
    pub checkpoint_bytes_max: u64,
}

impl Default for CheckpointLimits {
    fn default() -> Self {
        Self { record: RecordLimits::default(), checkpoint_bytes_max: 64 << 20 }
    }
}

/// Why bytes or records are no checkpoint.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum CheckpointError {
    /// More bytes than the limit.
    #[error("checkpoint has {bytes} bytes: expected at most {bytes_max}")]
    TooLong {
        /// What was found, or would be written.
        bytes: u64,
        /// The limit.
        bytes_max: u64,
    },
    /// Not one whole envelope.
    #[error("checkpoint: {0}")]
    Envelope(#[from] EnvelopeError),
    /// Not the JSON of a checkpoint.
    #[error("checkpoint: {0}")]
    Payload(#[from] PayloadError),
    /// Records under a watermark of zero, which stands for "nothing yet".
    #[error("checkpoint at watermark zero holds {records} records: expected none")]
    ZeroWatermark {
        /// How many.
        records: usize,
    },
    /// A record that is none.
    #[error("checkpoint record {index}: {source}")]
    Record {
        /// Which one, from 0.
        index: usize,
        /// Why.
        source: RecordError,
    },
    /// A record newer than the state it belongs to.
    #[error("checkpoint record {key} has version {version}: expected at most the watermark {watermark}")]
    AboveWatermark {
        /// Its key.
        key: Box<Key>,
        /// Its version.
        version: Version,
        /// The checkpoint's.
        watermark: Version,
    },
    /// One key twice.
    #[error("checkpoint holds key {key} twice: expected each key once")]
    DuplicateKey {
        /// Which key.
        key: Box<Key>,
    },
}

impl CheckpointError {
    /// The rule under which the reference answers otherwise, if there is one.
    #[must_use]
    pub fn rule(&self) -> Option<Rule> {
        match self {
            Self::Payload(payload) => payload.rule(),
            Self::TooLong { .. }
            | Self::Envelope(_)
            | Self::ZeroWatermark { .. }
            | Self::Record { .. }
            | Self::AboveWatermark { .. }
            | Self::DuplicateKey { .. } => None,
        }
    }
}

impl Classified for CheckpointError {
    const FAMILY: Family = Family::Storage;
}

impl ReferenceNames for CheckpointError {
    fn reference_names(&self) -> Vec<&'static str> {
        alloc::vec![match self {
            Self::TooLong { .. } => "ErrCheckpointTooLarge",
            Self::Envelope(EnvelopeError::Checksum { .. }) => "ErrCheckpointChecksum",
            Self::Envelope(_) => "ErrCheckpointCorrupt",
            Self::ZeroWatermark { .. } => "ErrZeroVersion",
            Self::AboveWatermark { .. } => "ErrConflict",
            Self::DuplicateKey { .. } => "ErrDuplicateLogicalKey",
            Self::Record { source, .. } => return source.reference_names(),
            Self::Payload(PayloadError::Record(error)) => return error.reference_names(),
            Self::Payload(PayloadError::Json(_)) => "ErrCheckpointCorrupt",
        }]
    }
}

/// A complete logical state at a version.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Checkpoint {
    watermark: Version,
    records: Vec<Record>,
}

impl Checkpoint {
    /// The version it stands for.
    #[must_use]
    pub const fn watermark(&self) -> Version {
        self.watermark
    }

    /// Its records, sorted by key, each key once.
    #[must_use]
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// Makes a checkpoint of records in any order; one that failed to be a record stands in its
    /// place, so that the first fault in order is the one reported.
    ///
    /// # Errors
    /// In this order: records at watermark zero; the first record that is none or lies above the
    /// watermark; a key twice.
    pub fn new(
        watermark: Version,
        records: impl IntoIterator<Item = Result<Record, RecordError>>,
    ) -> Result<Self, CheckpointError> {
        Ok(Self::judge(watermark, records.into_iter().collect())?.0)
    }

    /// As [`Checkpoint::new`]; also whether the records came sorted.
    fn judge(
        watermark: Version,
        records: Vec<Result<Record, RecordError>>,
    ) -> Result<(Self, bool), CheckpointError> {
        if watermark.is_zero() && !records.is_empty() {
            return Err(CheckpointError::ZeroWatermark { records: records.len() });
        }
        let mut sorted = Vec::with_capacity(records.len());
        for (index, record) in records.into_iter().enumerate() {
            let record = record.map_err(|source| CheckpointError::Record { index, source })?;
            if record.version > watermark {
                let (key, version) = (Box::new(record.key), record.version);
                return Err(CheckpointError::AboveWatermark { key, version, watermark });
            }
            sorted.push(record);
        }
        let came_sorted = sorted.is_sorted_by(|a, b| a.key <= b.key);
        sorted.sort_by(|a, b| a.key.cmp(&b.key));
        match sorted.windows(2).find(|pair| pair[0].key == pair[1].key) {
            Some(pair) => Err(CheckpointError::DuplicateKey { key: Box::new(pair[0].key.clone()) }),
            None => Ok((Self { watermark, records: sorted }, came_sorted)),
        }
    }

    /// Reads a whole file.
    ///
    /// # Errors
    /// It is too long, not one whole envelope, or its payload is not strictly a checkpoint; records
    /// out of order are refused, where the reference sorts them.
    pub fn decode(file: &[u8], limits: &CheckpointLimits) -> Result<Self, CheckpointError> {
        check_length(file.len(), limits)?;
        let text = envelope::whole(file, limits.checkpoint_bytes_max)?;
        let (watermark, records) = payload::checkpoint(text)?;
        let mut judged = Vec::<Result<Record, RecordError>>::with_capacity(records.len());
        for record in &records {
            let shared = judged.last().and_then(|before| before.as_ref().ok());
            let record = record.judge(&limits.record, shared.map(|record| &record.authority));
            judged.push(record);
        }
        let (checkpoint, came_sorted) = Self::judge(watermark, judged)?;
        if !came_sorted {
            return Err(PayloadError::unsorted("records are not sorted by namespace and logical key").into());
        }
        Ok(checkpoint)
    }

    /// The file, as the reference writes it.
    ///
    /// # Errors
    /// It would be too long.
    pub fn encode(&self, limits: &CheckpointLimits) -> Result<Vec<u8>, CheckpointError> {
        let mut text = Vec::from(br#"{"watermark":"#);
        write_version(self.watermark, &mut text);
        text.extend_from_slice(br#","records":"#);
        write_list(&self.records, &mut text, write_record);
        text.push(b'}');
        check_length(text.len() + ENVELOPE_BYTES, limits)?;
        let mut file = Vec::with_capacity(text.len() + ENVELOPE_BYTES);
        envelope::put(&mut file, &text);
        Ok(file)
    }
}

fn check_length(bytes: usize, limits: &CheckpointLimits) -> Result<(), CheckpointError> {
    let (bytes, bytes_max) = (bytes as u64, limits.checkpoint_bytes_max);
    if bytes > bytes_max {
        return Err(CheckpointError::TooLong { bytes, bytes_max });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::State;

    fn record(key: &[u8], sequence: u64) -> Result<Record, RecordError> {
        let limits = RecordLimits::default();
        let authority = limits.authority("node-a")?;
        limits.record(limits.key(b"documents", key)?, State::Deleted, Version::new(1, sequence), authority)
    }

    #[test]
    fn zero_watermark_comes_before_a_bad_record() {
        let found = Checkpoint::new(Version::ZERO, [record(b"", 1)]);
        assert_eq!(found, Err(CheckpointError::ZeroWatermark { records: 1 }));
    }

    #[test]
    fn record_names_the_first_bad_one() {
        let found = Checkpoint::new(Version::new(1, 2), [record(b"a", 1), record(b"", 9)]);
        assert!(matches!(found, Err(CheckpointError::Record { index: 1, .. })));
    }

    #[test]
    fn above_watermark() {
        let found = Checkpoint::new(Version::new(1, 2), [record(b"a", 3)]);
        assert!(matches!(found, Err(CheckpointError::AboveWatermark { .. })));
    }

    #[test]
    fn duplicate_key() {
        let found = Checkpoint::new(Version::new(1, 2), [record(b"a", 1), record(b"b", 1), record(b"a", 2)]);
        assert!(matches!(found, Err(CheckpointError::DuplicateKey { .. })));
    }

    #[test]
    fn records_are_sorted_and_come_back() {
        let limits = CheckpointLimits::default();
        let made = Checkpoint::new(Version::new(1, 2), [record(b"b", 1), record(b"a", 2)]).unwrap();
        assert_eq!(made.records()[0].key.logical_key(), b"a");
        let file = made.encode(&limits).unwrap();
        assert_eq!(Checkpoint::decode(&file, &limits), Ok(made));
    }

    #[test]
    fn too_long_to_write_is_too_long_to_read() {
        let made = Checkpoint::new(Version::new(1, 2), [record(b"a", 2)]).unwrap();
        let file = made.encode(&CheckpointLimits::default()).unwrap();
        let bytes_max = file.len() as u64 - 1;
        let limits = CheckpointLimits { checkpoint_bytes_max: bytes_max, ..CheckpointLimits::default() };
        let refused = CheckpointError::TooLong { bytes: file.len() as u64, bytes_max };
        assert_eq!(made.encode(&limits), Err(refused.clone()));
        assert_eq!(Checkpoint::decode(&file, &limits), Err(refused));
    }
}
