//! Builds a batch from records as they are read, in linear time.

use super::error::{EncodeError, RepairFault};
use super::json_write::write_record;
use super::limits::RepairLimits;
use super::message::MessageType;
use super::repair::{Sums, check_order, write_batch_head};
use crate::record::json_size::decimal_bytes;
use crate::record::{Record, Version};
use alloc::vec::Vec;

/// Takes records in version order until one does not fit, and writes the payload the reference's
/// planner would write.
///
/// ```
/// use strandline_core::record::{RecordLimits, State, Version};
/// use strandline_core::wire::batch_builder::BatchBuilder;
/// use strandline_core::wire::limits::RepairLimits;
/// let limits = RecordLimits::default();
/// let key = limits.key(b"documents", b"a")?;
/// let record = limits.record(key, State::Deleted, Version::new(1, 1), limits.authority("node-a")?)?;
///
/// let mut batch = BatchBuilder::new(Version::ZERO, RepairLimits::default());
/// batch.push(&record, false)?;
/// let mut payload = Vec::new();
/// assert_eq!(batch.finish(false, &mut payload)?, Version::new(1, 1));
/// assert!(payload.starts_with(br#"{"type":"lifecycle.repair.batch""#));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct BatchBuilder {
    from: Version,
    to: Version,
    limits: RepairLimits,
    sums: Sums,
    /// The records written so far, separated by commas.
    list: Vec<u8>,
}

impl BatchBuilder {
    /// An empty batch for a peer that has everything up to `from`.
    #[must_use]
    pub fn new(from: Version, limits: RepairLimits) -> Self {
        Self { from, to: from, limits, sums: Sums::default(), list: Vec::new() }
    }

    /// Adds a record if it fits. `more` says whether the log goes on after it: a batch that says so is
    /// one byte shorter.
    ///
    /// # Errors
    /// The record does not fit, or its version is not above the one before. The batch is as it was:
    /// with records in it, it can be finished with `more`; without, the record can never be sent under
    /// these limits.
    pub fn push(&mut self, record: &Record, more: bool) -> Result<(), RepairFault> {
        check_order(self.to, record.version)?;
        let sums = self.sums.with(record, &self.limits)?;
        let comma = usize::from(!self.list.is_empty());
        let list_bytes = self.list.len() + comma + record.json_bytes();
        self.check_payload(self.payload_bytes(record.version, more, list_bytes))?;
        if comma == 1 {
            self.list.push(b',');
        }
        write_record(record, &mut self.list);
        self.to = record.version;
        self.sums = sums;
        Ok(())
    }

    /// How many records are in the batch.
    #[must_use]
    pub const fn records(&self) -> usize {
        self.sums.records()
    }

    /// The version up to which the batch goes.
    #[must_use]
    pub const fn to(&self) -> Version {
        self.to
    }

    /// Appends the payload and returns its `to`. `more` says whether the log goes on after it.
    ///
    /// # Errors
    /// The payload is too long: only if nothing was pushed, or if `more` was true in the last push and
    /// is false now. `out` is unchanged.
    pub fn finish(self, more: bool, out: &mut Vec<u8>) -> Result<Version, EncodeError> {
        let bytes = self.payload_bytes(self.to, more, self.list.len());
        self.check_payload(bytes)?;
        out.reserve(bytes);
        write_batch_head(self.from, self.to, more, out);
        out.push(b'[');
        out.extend_from_slice(&self.list);
        out.extend_from_slice(b"]}");
        Ok(self.to)
    }

    fn check_payload(&self, bytes: usize) -> Result<(), RepairFault> {
        let bytes_max = self.limits.payload_bytes_max;
        if bytes > bytes_max as usize {
            Err(RepairFault::PayloadTooLarge { bytes, bytes_max })
        } else {
            Ok(())
        }
    }

    fn payload_bytes(&self, to: Version, more: bool, list_bytes: usize) -> usize {
        const FIXED: usize =
            r#"{"type":"","from":{"epoch":,"sequence":},"to":{"epoch":,"sequence":},"more":,"records":[]}"#
                .len()
                + MessageType::Batch.name().len();
        let numbers = [self.from.epoch, self.from.sequence, to.epoch, to.sequence].map(decimal_bytes);
        let more_bytes = if more { "true".len() } else { "false".len() };
        FIXED + numbers.iter().sum::<usize>() + more_bytes + list_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{AuthorityId, BlobKey, Key, State};
    use crate::wire::repair::Batch;
    use alloc::format;
    use alloc::vec;

    const FROM: Version = Version::new(9, 10);

    fn records(count: u64) -> Vec<Record> {
        let record = |i| Record {
            key: Key::from_parts(b"documents", format!("key-{i:06}").as_bytes()).expect("short"),
            state: if i % 2 == 0 { State::Present { blob: BlobKey([7; 32]) } } else { State::Deleted },
            version: Version::new(10, i),
            authority: AuthorityId::from_text("a<b"),
        };
        (0..count).map(record).collect()
    }

    /// What the planner does: pushes until one does not fit.
    fn plan(records: &[Record], limits: RepairLimits) -> (usize, Vec<u8>) {
        let mut builder = BatchBuilder::new(FROM, limits);
        for (i, record) in records.iter().enumerate() {
            if builder.push(record, i + 1 < records.len()).is_err() {
                break;
            }
        }
        let count = builder.records();
        let mut out = vec![];
        builder.finish(count < records.len(), &mut out).expect("fits");
        (count, out)
    }

    fn encoded(records: &[Record], more: bool) -> Vec<u8> {
        let to = records.last().map_or(FROM, |record| record.version);
        let mut out = vec![];
        Batch { from: FROM, to, more, records: records.to_vec() }
            .encode(&RepairLimits::default(), &mut out)
            .expect("within limits");
        out
    }

    #[test]
    fn the_payload_is_that_of_the_whole_batch() {
        for (count, taken) in [(0, 0), (1, 1), (2, 2), (128, 128), (129, 128)] {
            let records = records(count);
            let expected = encoded(&records[..taken], taken < records.len());
            assert_eq!(plan(&records, RepairLimits::default()), (taken, expected), "{count}");
        }
    }

    #[test]
    fn the_payload_limit_counts_the_word_of_more() {
        let all = records(3);
        let whole = encoded(&all, false).len();
        let two = encoded(&all[..2], true).len();
        for (limit, taken) in [(whole, 3), (whole - 1, 2), (two, 2), (two - 1, 1)] {
            let payload_bytes_max = u32::try_from(limit).expect("small");
            let limits = RepairLimits { payload_bytes_max, ..RepairLimits::default() };
            assert_eq!(plan(&all, limits).0, taken, "{limit}");
        }
    }

    #[test]
    fn a_record_that_can_never_be_sent_is_told_with_its_limit() {
        let one = &records(1)[0];
        let refused = |limits| BatchBuilder::new(FROM, limits).push(one, false).expect_err("too small");
        let limits = RepairLimits { key_bytes_max: 18, ..RepairLimits::default() };
        assert_eq!(refused(limits), RepairFault::KeysTooLarge { bytes: 19, bytes_max: 18 });
        let limits = RepairLimits { record_json_bytes_max: 10, ..RepairLimits::default() };
        assert!(matches!(refused(limits), RepairFault::RecordsTooLarge { bytes_max: 10, .. }));
        let limits = RepairLimits { payload_bytes_max: 10, ..RepairLimits::default() };
        assert!(matches!(refused(limits), RepairFault::PayloadTooLarge { bytes_max: 10, .. }));
    }

    #[test]
    fn a_record_that_does_not_follow_is_refused_and_changes_nothing() {
        let all = records(2);
        let mut builder = BatchBuilder::new(FROM, RepairLimits::default());
        builder.push(&all[1], true).expect("fits");
        let (previous, version) = (all[1].version, all[0].version);
        assert_eq!(builder.push(&all[0], true), Err(RepairFault::Order { previous, version }));
        assert_eq!((builder.records(), builder.to()), (1, previous));
    }

    #[test]
    fn an_empty_batch_must_fit_too() {
        let limits = RepairLimits { payload_bytes_max: 20, ..RepairLimits::default() };
        let mut out = b"before".to_vec();
        let refused = BatchBuilder::new(FROM, limits).finish(false, &mut out);
        assert!(matches!(refused, Err(EncodeError::Repair(RepairFault::PayloadTooLarge { .. }))));
        assert_eq!(out, b"before");
    }
}
