//! `lifecycle.repair.batch`: an ordered piece of a log.

use super::{Sums, expect_type, judge, read_repair, within_payload};
use crate::record::{Record, Version};
use crate::wire::error::{EncodeError, RepairFault, WireError};
use crate::wire::json_read::{List, RecordObject, json_object};
use crate::wire::json_write::{write_list, write_record, write_version};
use crate::wire::limits::{RepairLimits, WireLimits};
use crate::wire::message::MessageType;
use alloc::borrow::Cow;
use alloc::vec::Vec;

/// An ordered piece of a log: everything after `from` up to `to`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Batch {
    /// The version before the first record.
    pub from: Version,
    /// The last record's version, or `from` if there is none.
    pub to: Version,
    /// Whether the log goes on after `to`.
    pub more: bool,
    /// The records, versions ascending.
    pub records: Vec<Record>,
}

impl Batch {
    fn check_end(from: Version, to: Version, records: &[Record]) -> Result<(), RepairFault> {
        let last = records.last().map_or(from, |record| record.version);
        if to == last { Ok(()) } else { Err(RepairFault::WatermarkMismatch { last, to }) }
    }

    /// Appends the payload.
    ///
    /// # Errors
    /// The records do not ascend from `from` to `to`, or exceed a limit; `out` is unchanged.
    pub fn encode(&self, limits: &RepairLimits, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let mut sums = Sums::default();
        let mut previous = self.from;
        for record in &self.records {
            check_order(previous, record.version)?;
            sums = sums.with(record, limits)?;
            previous = record.version;
        }
        Self::check_end(self.from, self.to, &self.records)?;
        within_payload(limits, out, |out| {
            write_batch_head(self.from, self.to, self.more, out);
            write_list(&self.records, out, write_record);
            out.push(b'}');
        })
    }

    fn from_object(object: BatchObject<'_>, limits: &WireLimits) -> Result<Self, WireError> {
        let mut sums = Sums::default();
        let mut previous = object.from;
        let mut records: Vec<Record> = Vec::with_capacity(object.records.0.len());
        for (index, raw) in object.records.0.iter().enumerate() {
            check_order(previous, raw.version()).map_err(WireError::Repair)?;
            let record = judge(raw, index, &limits.record, records.last())?;
            sums = sums.with(&record, &limits.repair).map_err(WireError::Repair)?;
            previous = record.version;
            records.push(record);
        }
        Self::check_end(object.from, object.to, &records).map_err(WireError::Repair)?;
        Ok(Self { from: object.from, to: object.to, more: object.more, records })
    }
}

/// Judges one record of a batch by the version before it.
pub(in crate::wire) fn check_order(previous: Version, version: Version) -> Result<(), RepairFault> {
    if version > previous { Ok(()) } else { Err(RepairFault::Order { previous, version }) }
}

/// Appends what stands before a batch's list.
pub(in crate::wire) fn write_batch_head(from: Version, to: Version, more: bool, out: &mut Vec<u8>) {
    MessageType::Batch.write_head(out);
    out.extend_from_slice(br#","from":"#);
    write_version(from, out);
    out.extend_from_slice(br#","to":"#);
    write_version(to, out);
    out.extend_from_slice(if more { br#","more":true"# } else { br#","more":false"# });
    out.extend_from_slice(br#","records":"#);
}

/// Reads a `lifecycle.repair.batch` payload.
///
/// # Errors
/// In order: too long, malformed, of another type, its records do not make a batch.
pub fn decode_batch(payload: &[u8], limits: &WireLimits) -> Result<Batch, WireError> {
    let object: BatchObject<'_> = read_repair(payload, &limits.repair)?;
    expect_type(&object.kind, MessageType::Batch)?;
    Batch::from_object(object, limits)
}

json_object! {
    struct BatchObject<'de> = "lifecycle.repair.batch" {
        kind: Cow<'de, str> = always "type",
        from: Version = always "from",
        to: Version = always "to",
        more: bool = always "more",
        records: List<RecordObject<'de>> = always "records",
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{record, text};
    use super::*;
    use crate::record::{AuthorityId, RecordError};
    use alloc::vec;

    fn batch(records: Vec<Record>) -> Batch {
        let to = records.last().map_or(Version::ZERO, |record| record.version);
        Batch { from: Version::ZERO, to, more: false, records }
    }

    /// Writes without judging, so that the decoder has something to refuse.
    fn forced_batch(batch: &Batch) -> Vec<u8> {
        let mut out = vec![];
        write_batch_head(batch.from, batch.to, batch.more, &mut out);
        write_list(&batch.records, &mut out, write_record);
        out.push(b'}');
        out
    }

    fn refused(batch: &Batch, limits: &WireLimits, fault: &RepairFault) {
        let encoded = batch.encode(&limits.repair, &mut vec![]);
        assert_eq!(encoded, Err(EncodeError::Repair(fault.clone())));
        let decoded = decode_batch(&forced_batch(batch), limits);
        assert_eq!(decoded, Err(WireError::Repair(fault.clone())));
    }

    #[test]
    fn written_in_field_order_and_read_back() {
        let limits = WireLimits::default();
        let one = batch(vec![record(b"k", 2)]);
        let payload = text(|out| one.encode(&limits.repair, out));
        assert_eq!(
            payload,
            r#"{"type":"lifecycle.repair.batch","from":{"epoch":0,"sequence":0},"to":{"epoch":1,"sequence":2},"more":false,"records":[{"namespace":"bg==","logical_key":"aw==","state":"deleted","version":{"epoch":1,"sequence":2},"authority_id":"a"}]}"#
        );
        assert_eq!(decode_batch(payload.as_bytes(), &limits), Ok(one));

        let payload = text(|out| batch(vec![]).encode(&limits.repair, out));
        assert!(payload.ends_with(r#""records":[]}"#));
        assert_eq!(decode_batch(payload.as_bytes(), &limits), Ok(batch(vec![])));
    }

    #[test]
    fn order() {
        let limits = WireLimits::default();
        for sequences in [[2, 1], [2, 2]] {
            let (previous, version) = (Version::new(1, 2), Version::new(1, sequences[1]));
            let records = sequences.map(|sequence| record(b"k", sequence)).to_vec();
            refused(&batch(records), &limits, &RepairFault::Order { previous, version });
        }
        let first = Batch { from: Version::new(1, 1), ..batch(vec![record(b"k", 1)]) };
        let version = Version::new(1, 1);
        refused(&first, &limits, &RepairFault::Order { previous: version, version });
    }

    #[test]
    fn watermark_mismatch() {
        let limits = WireLimits::default();
        let to = Version::new(5, 5);
        let last = Version::new(1, 1);
        let records = Batch { to, ..batch(vec![record(b"k", 1)]) };
        refused(&records, &limits, &RepairFault::WatermarkMismatch { last, to });
        let empty = Batch { to, ..batch(vec![]) };
        refused(&empty, &limits, &RepairFault::WatermarkMismatch { last: Version::ZERO, to });
    }

    #[test]
    fn limits_of_count_keys_records_and_payload() {
        let two = batch(vec![record(b"k", 1), record(b"l", 2)]);
        let json_bytes: u64 = two.records.iter().map(|record| record.json_bytes() as u64).sum();
        let with = |repair| WireLimits { repair, ..WireLimits::default() };
        let repair = RepairLimits { records_max: 1, ..RepairLimits::default() };
        let fault = RepairFault::TooManyRecords { records: 2, records_max: 1 };
        refused(&two, &with(repair), &fault);
        let repair = RepairLimits { key_bytes_max: 3, ..RepairLimits::default() };
        refused(&two, &with(repair), &RepairFault::KeysTooLarge { bytes: 4, bytes_max: 3 });
        let bytes_max = u32::try_from(json_bytes - 1).expect("small");
        let repair = RepairLimits { record_json_bytes_max: bytes_max, ..RepairLimits::default() };
        let fault = RepairFault::RecordsTooLarge { bytes: json_bytes, bytes_max };
        refused(&two, &with(repair), &fault);
        let bytes = forced_batch(&two).len();
        let bytes_max = u32::try_from(bytes - 1).expect("small");
        let repair = RepairLimits { payload_bytes_max: bytes_max, ..RepairLimits::default() };
        refused(&two, &with(repair), &RepairFault::PayloadTooLarge { bytes, bytes_max });
    }

    #[test]
    fn a_value_that_is_no_records_is_told_with_its_place() {
        let limits = WireLimits::default();
        let mut records = vec![record(b"k", 1), record(b"l", 2)];
        records[1].authority = AuthorityId::from_text("");
        let fault = RecordError::AuthorityEmpty { bytes_max: 128 };
        let decoded = decode_batch(&forced_batch(&batch(records)), &limits);
        assert_eq!(decoded, Err(WireError::RepairRecord { index: 1, fault }));
    }
}
