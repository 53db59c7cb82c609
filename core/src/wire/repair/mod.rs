//! `lifecycle.record` and `lifecycle.repair.*`: what the reference's replicas say to each other.

mod batch;
mod snapshot;

pub use batch::{Batch, decode_batch};
pub(super) use batch::{check_order, write_batch_head};
pub use snapshot::{Snapshot, decode_snapshot};

use super::error::{EncodeError, RepairFault, WireError};
use super::json_read::{JsonFault, JsonFaultKind, Object, RecordObject, json_object, read_object};
use super::json_write::{write_record, write_version};
use super::limits::{RepairLimits, WireLimits};
use super::message::MessageType;
use crate::record::{Record, RecordLimits, Version};
use alloc::borrow::Cow;
use alloc::vec::Vec;

/// Counts what a repair message may hold.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Sums {
    records: usize,
    key_bytes: u64,
    record_json_bytes: u64,
}

impl Sums {
    /// How many records were counted.
    pub(super) const fn records(&self) -> usize {
        self.records
    }

    /// These sums with one more record, if the limits allow it.
    pub(super) fn with(self, record: &Record, limits: &RepairLimits) -> Result<Self, RepairFault> {
        let key_bytes = record.key.namespace().len() + record.key.logical_key().len();
        let next = Self {
            records: self.records + 1,
            key_bytes: self.key_bytes + key_bytes as u64,
            record_json_bytes: self.record_json_bytes + record.json_bytes() as u64,
        };
        if next.records > limits.records_max as usize {
            let records_max = limits.records_max;
            return Err(RepairFault::TooManyRecords { records: next.records, records_max });
        }
        if next.key_bytes > u64::from(limits.key_bytes_max) {
            let bytes_max = limits.key_bytes_max;
            return Err(RepairFault::KeysTooLarge { bytes: next.key_bytes, bytes_max });
        }
        if next.record_json_bytes > u64::from(limits.record_json_bytes_max) {
            let bytes_max = limits.record_json_bytes_max;
            return Err(RepairFault::RecordsTooLarge { bytes: next.record_json_bytes, bytes_max });
        }
        Ok(next)
    }
}

fn judge(
    raw: &RecordObject<'_>,
    index: usize,
    limits: &RecordLimits,
    previous: Option<&Record>,
) -> Result<Record, WireError> {
    raw.judge(limits, previous.map(|record| &record.authority))
        .map_err(|fault| WireError::RepairRecord { index, fault })
}

/// Writes a payload and takes it back if it is too long.
fn within_payload(
    limits: &RepairLimits,
    out: &mut Vec<u8>,
    write: impl FnOnce(&mut Vec<u8>),
) -> Result<(), EncodeError> {
    let start = out.len();
    write(out);
    let bytes = out.len() - start;
    if bytes > limits.payload_bytes_max as usize {
        out.truncate(start);
        let bytes_max = limits.payload_bytes_max;
        return Err(RepairFault::PayloadTooLarge { bytes, bytes_max }.into());
    }
    Ok(())
}

/// Appends a `lifecycle.record` payload.
///
/// # Errors
/// It is longer than the limit; `out` is unchanged.
pub fn encode_record(record: &Record, limits: &WireLimits, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    let start = out.len();
    MessageType::Record.write_head(out);
    out.extend_from_slice(br#","record":"#);
    write_record(record, out);
    out.push(b'}');
    let bytes = out.len() - start;
    if bytes > limits.record_payload_bytes_max as usize {
        out.truncate(start);
        return Err(EncodeError::PayloadTooLarge { bytes, bytes_max: limits.record_payload_bytes_max });
    }
    Ok(())
}

/// Appends a `lifecycle.repair.ack` payload.
///
/// # Errors
/// It is longer than the limit; `out` is unchanged.
pub fn encode_ack(watermark: Version, limits: &RepairLimits, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    within_payload(limits, out, |out| {
        MessageType::Ack.write_head(out);
        out.extend_from_slice(br#","watermark":"#);
        write_version(watermark, out);
        out.push(b'}');
    })
}

/// Reads a `lifecycle.record` payload.
///
/// # Errors
/// In order: too long, malformed, followed by other data, of another type, not a record.
pub fn decode_record(payload: &[u8], limits: &WireLimits) -> Result<Record, WireError> {
    let bytes_max = limits.record_payload_bytes_max;
    if payload.len() > bytes_max as usize {
        return Err(WireError::PayloadTooLarge { bytes: payload.len(), bytes_max });
    }
    let object: EnvelopeObject<'_> = read_object(payload, 0).map_err(|fault| match fault.kind {
        JsonFaultKind::Trailing => WireError::EnvelopeTrailing(fault),
        JsonFaultKind::Malformed | JsonFaultKind::TooMany { .. } => WireError::EnvelopeMalformed(fault),
    })?;
    expect_type(&object.kind, MessageType::Record)?;
    object.record.judge(&limits.record, None).map_err(WireError::EnvelopeRecord)
}

/// Reads a `lifecycle.repair.ack` payload and returns its watermark.
///
/// # Errors
/// In order: too long, malformed, of another type.
pub fn decode_ack(payload: &[u8], limits: &WireLimits) -> Result<Version, WireError> {
    let object: AckObject<'_> = read_repair(payload, &limits.repair)?;
    expect_type(&object.kind, MessageType::Ack)?;
    Ok(object.watermark)
}

fn read_repair<'de, T: Object<'de>>(payload: &'de [u8], limits: &RepairLimits) -> Result<T, WireError> {
    check_payload(payload, limits)?;
    read_object(payload, limits.records_max).map_err(|fault| repair_fault(fault, limits))
}

/// Judges a repair payload's length.
pub(super) fn check_payload(payload: &[u8], limits: &RepairLimits) -> Result<(), WireError> {
    let bytes_max = limits.payload_bytes_max;
    if payload.len() > bytes_max as usize {
        let bytes = payload.len();
        return Err(WireError::Repair(RepairFault::PayloadTooLarge { bytes, bytes_max }));
    }
    Ok(())
}

fn repair_fault(fault: JsonFault, limits: &RepairLimits) -> WireError {
    match fault.kind {
        JsonFaultKind::TooMany { .. } => WireError::Repair(RepairFault::TooManyRecords {
            records: limits.records_max as usize + 1,
            records_max: limits.records_max,
        }),
        JsonFaultKind::Malformed | JsonFaultKind::Trailing => WireError::RepairMalformed(fault),
    }
}

fn expect_type(found: &str, expected: MessageType) -> Result<(), WireError> {
    if found == expected.name() {
        return Ok(());
    }
    Err(WireError::MessageType { expected: expected.name(), found: WireError::shown_type(found) })
}

json_object! {
    struct EnvelopeObject<'de> = "lifecycle.record" {
        kind: Cow<'de, str> = always "type",
        record: RecordObject<'de> = always "record",
    }
}

json_object! {
    struct AckObject<'de> = "lifecycle.repair.ack" {
        kind: Cow<'de, str> = always "type",
        watermark: Version = always "watermark",
    }
}

#[cfg(test)]
mod testing {
    //! Values for the tests of each message.

    use super::*;
    use crate::record::{AuthorityId, Key, State};
    use alloc::string::String;

    /// A deleted record of epoch 1.
    pub(super) fn record(key: &[u8], sequence: u64) -> Record {
        Record {
            key: Key::from_parts(b"n", key).expect("short"),
            state: State::Deleted,
            version: Version::new(1, sequence),
            authority: AuthorityId::from_text("a"),
        }
    }

    /// The payload that `write` writes.
    pub(super) fn text(write: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>) -> String {
        let mut out = Vec::new();
        write(&mut out).expect("valid");
        String::from_utf8(out).expect("JSON")
    }
}

#[cfg(test)]
mod tests {
    use super::testing::{record, text};
    use super::*;
    use crate::record::{AuthorityId, RecordError};
    use alloc::format;
    use alloc::vec;

    #[test]
    fn a_record_and_an_ack_are_written_in_field_order_and_read_back() {
        let limits = WireLimits::default();
        let one = record(b"k", 2);
        let payload = text(|out| encode_record(&one, &limits, out));
        let body = text(|out| {
            write_record(&one, out);
            Ok(())
        });
        assert_eq!(payload, format!(r#"{{"type":"lifecycle.record","record":{body}}}"#));
        assert_eq!(decode_record(payload.as_bytes(), &limits), Ok(one));

        let payload = text(|out| encode_ack(Version::new(1, 2), &limits.repair, out));
        assert_eq!(payload, r#"{"type":"lifecycle.repair.ack","watermark":{"epoch":1,"sequence":2}}"#);
        assert_eq!(decode_ack(payload.as_bytes(), &limits), Ok(Version::new(1, 2)));
    }

    #[test]
    fn a_value_that_is_no_records() {
        let limits = WireLimits::default();
        let mut wrong = record(b"k", 1);
        wrong.authority = AuthorityId::from_text("");
        let payload = text(|out| encode_record(&wrong, &limits, out));
        let fault = RecordError::AuthorityEmpty { bytes_max: 128 };
        assert_eq!(decode_record(payload.as_bytes(), &limits), Err(WireError::EnvelopeRecord(fault)));
    }

    #[test]
    fn another_type_than_the_decoders() {
        let limits = WireLimits::default();
        let payload = text(|out| encode_ack(Version::ZERO, &limits.repair, out));
        let payload = payload.replace(".ack", ".Ack");
        assert_eq!(
            decode_ack(payload.as_bytes(), &limits),
            Err(WireError::MessageType {
                expected: "lifecycle.repair.ack",
                found: "lifecycle.repair.Ack".into()
            })
        );
    }

    #[test]
    fn a_record_payload_is_bounded_both_ways_and_judged_for_trailing_data() {
        let limits = WireLimits::default();
        let payload = text(|out| encode_record(&record(b"k", 1), &limits, out));
        let bytes = payload.len();
        let bytes_max = u32::try_from(bytes - 1).expect("small");
        let less = WireLimits { record_payload_bytes_max: bytes_max, ..limits };
        let refused = decode_record(payload.as_bytes(), &less);
        assert_eq!(refused, Err(WireError::PayloadTooLarge { bytes, bytes_max }));
        let refused = encode_record(&record(b"k", 1), &less, &mut vec![]);
        assert_eq!(refused, Err(EncodeError::PayloadTooLarge { bytes, bytes_max }));
        let trailing = payload + "{}";
        let refused = decode_record(trailing.as_bytes(), &limits);
        assert!(matches!(refused, Err(WireError::EnvelopeTrailing(_))));
    }
}
