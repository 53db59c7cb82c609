//! `lifecycle.repair.snapshot`: a whole state in one frame.

use super::{Sums, expect_type, judge, read_repair, within_payload};
use crate::record::{Record, Version};
use crate::wire::error::{EncodeError, RepairFault, WireError};
use crate::wire::json_read::{List, RecordObject, json_object};
use crate::wire::json_write::{write_list, write_record, write_version};
use crate::wire::limits::{RepairLimits, WireLimits};
use crate::wire::message::MessageType;
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// A whole state in one frame.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Snapshot {
    /// The version it stands for.
    pub watermark: Version,
    /// The records, keys ascending, none above the watermark.
    pub records: Vec<Record>,
}

impl Snapshot {
    /// Appends the payload.
    ///
    /// # Errors
    /// Keys do not ascend, a record is above the watermark, or a limit is exceeded; `out` is unchanged.
    pub fn encode(&self, limits: &RepairLimits, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        self.check(limits)?;
        within_payload(limits, out, |out| {
            MessageType::Snapshot.write_head(out);
            out.extend_from_slice(br#","watermark":"#);
            write_version(self.watermark, out);
            out.extend_from_slice(br#","records":"#);
            write_list(&self.records, out, write_record);
            out.push(b'}');
        })
    }

    fn from_object(object: SnapshotObject<'_>, limits: &WireLimits) -> Result<Self, WireError> {
        let mut records: Vec<Record> = Vec::with_capacity(object.records.0.len());
        for (index, raw) in object.records.0.iter().enumerate() {
            records.push(judge(raw, index, &limits.record, records.last())?);
        }
        let snapshot = Self { watermark: object.watermark, records };
        snapshot.check(&limits.repair).map_err(WireError::Repair)?;
        Ok(snapshot)
    }

    fn check(&self, limits: &RepairLimits) -> Result<(), RepairFault> {
        let watermark = self.watermark;
        if watermark.is_zero() && !self.records.is_empty() {
            return Err(RepairFault::WatermarkZero { records: self.records.len() });
        }
        let mut sums = Sums::default();
        let mut previous: Option<&Record> = None;
        for record in &self.records {
            if record.version > watermark {
                return Err(RepairFault::AboveWatermark { version: record.version, watermark });
            }
            match previous.map(|previous| previous.key.cmp(&record.key)) {
                None | Some(core::cmp::Ordering::Less) => {}
                Some(core::cmp::Ordering::Equal) => {
                    return Err(RepairFault::DuplicateKey { key: Box::new(record.key.clone()) });
                }
                Some(core::cmp::Ordering::Greater) => {
                    return Err(RepairFault::Unsorted { key: Box::new(record.key.clone()) });
                }
            }
            sums = sums.with(record, limits)?;
            previous = Some(record);
        }
        Ok(())
    }
}

/// Reads a `lifecycle.repair.snapshot` payload.
///
/// # Errors
/// In order: too long, malformed, of another type, its records do not make a snapshot.
pub fn decode_snapshot(payload: &[u8], limits: &WireLimits) -> Result<Snapshot, WireError> {
    let object: SnapshotObject<'_> = read_repair(payload, &limits.repair)?;
    expect_type(&object.kind, MessageType::Snapshot)?;
    Snapshot::from_object(object, limits)
}

json_object! {
    struct SnapshotObject<'de> = "lifecycle.repair.snapshot" {
        kind: Cow<'de, str> = always "type",
        watermark: Version = always "watermark",
        records: List<RecordObject<'de>> = always "records",
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{record, text};
    use super::*;
    use crate::wire::json_read::Refusal;
    use alloc::vec;

    fn snapshot(records: Vec<Record>) -> Snapshot {
        Snapshot { watermark: Version::new(1, 9), records }
    }

    fn forced_snapshot(snapshot: &Snapshot) -> Vec<u8> {
        let mut out = vec![];
        MessageType::Snapshot.write_head(&mut out);
        out.extend_from_slice(br#","watermark":"#);
        write_version(snapshot.watermark, &mut out);
        out.extend_from_slice(br#","records":"#);
        write_list(&snapshot.records, &mut out, write_record);
        out.push(b'}');
        out
    }

    fn refused(snapshot: &Snapshot, fault: &RepairFault) {
        let limits = WireLimits::default();
        let encoded = snapshot.encode(&limits.repair, &mut vec![]);
        assert_eq!(encoded, Err(EncodeError::Repair(fault.clone())));
        let decoded = decode_snapshot(&forced_snapshot(snapshot), &limits);
        assert_eq!(decoded, Err(WireError::Repair(fault.clone())));
    }

    #[test]
    fn written_in_field_order_and_read_back() {
        let limits = WireLimits::default();
        let one = snapshot(vec![record(b"k", 2)]);
        let payload = text(|out| one.encode(&limits.repair, out));
        assert_eq!(
            payload,
            r#"{"type":"lifecycle.repair.snapshot","watermark":{"epoch":1,"sequence":9},"records":[{"namespace":"bg==","logical_key":"aw==","state":"deleted","version":{"epoch":1,"sequence":2},"authority_id":"a"}]}"#
        );
        assert_eq!(decode_snapshot(payload.as_bytes(), &limits), Ok(one));

        for watermark in [Version::ZERO, Version::new(1, 1)] {
            let empty = Snapshot { watermark, records: vec![] };
            let payload = text(|out| empty.encode(&limits.repair, out));
            assert!(payload.ends_with(r#""records":[]}"#));
            assert_eq!(decode_snapshot(payload.as_bytes(), &limits), Ok(empty));
        }
    }

    #[test]
    fn watermark_zero_with_records() {
        let zero = Snapshot { watermark: Version::ZERO, ..snapshot(vec![record(b"k", 1)]) };
        refused(&zero, &RepairFault::WatermarkZero { records: 1 });
    }

    #[test]
    fn above_watermark() {
        let above = snapshot(vec![record(b"k", 10)]);
        let (version, watermark) = (Version::new(1, 10), Version::new(1, 9));
        refused(&above, &RepairFault::AboveWatermark { version, watermark });
    }

    #[test]
    fn duplicate_key() {
        let twice = snapshot(vec![record(b"k", 1), record(b"k", 2)]);
        let key = Box::new(record(b"k", 1).key);
        refused(&twice, &RepairFault::DuplicateKey { key });
    }

    #[test]
    fn unsorted() {
        let unsorted = snapshot(vec![record(b"l", 1), record(b"k", 2)]);
        let fault = RepairFault::Unsorted { key: Box::new(record(b"k", 1).key) };
        assert_eq!(WireError::Repair(fault.clone()).refusal(), Some(Refusal::Unsorted));
        refused(&unsorted, &fault);
    }
}
