//! `lifecycle.record` and `lifecycle.repair.*`: what the reference's replicas say to each other.

use super::error::{EncodeError, RepairFault, WireError};
use super::json_read::{JsonFault, JsonFaultKind, List, Object, RecordObject, json_object, read_object};
use super::json_write::{write_list, write_record, write_version};
use super::limits::{RepairLimits, WireLimits};
use super::message::MessageType;
use crate::record::{Record, RecordLimits, Version};
use alloc::borrow::Cow;
use alloc::boxed::Box;
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

/// A whole state in one frame.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Snapshot {
    /// The version it stands for.
    pub watermark: Version,
    /// The records, keys ascending, none above the watermark.
    pub records: Vec<Record>,
}

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

/// Judges one record of a batch by the version before it.
pub(super) fn check_order(previous: Version, version: Version) -> Result<(), RepairFault> {
    if version > previous { Ok(()) } else { Err(RepairFault::Order { previous, version }) }
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

fn judge(
    raw: &RecordObject<'_>,
    index: usize,
    limits: &RecordLimits,
    previous: Option<&Record>,
) -> Result<Record, WireError> {
    raw.judge(limits, previous.map(|record| &record.authority))
        .map_err(|fault| WireError::RepairRecord { index, fault })
}

/// Appends what stands before a batch's list.
pub(super) fn write_batch_head(from: Version, to: Version, more: bool, out: &mut Vec<u8>) {
    MessageType::Batch.write_head(out);
    out.extend_from_slice(br#","from":"#);
    write_version(from, out);
    out.extend_from_slice(br#","to":"#);
    write_version(to, out);
    out.extend_from_slice(if more { br#","more":true"# } else { br#","more":false"# });
    out.extend_from_slice(br#","records":"#);
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

/// Reads a `lifecycle.repair.batch` payload.
///
/// # Errors
/// In order: too long, malformed, of another type, its records do not make a batch.
pub fn decode_batch(payload: &[u8], limits: &WireLimits) -> Result<Batch, WireError> {
    let object: BatchObject<'_> = read_repair(payload, &limits.repair)?;
    expect_type(&object.kind, MessageType::Batch)?;
    Batch::from_object(object, limits)
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
    struct BatchObject<'de> = "lifecycle.repair.batch" {
        kind: Cow<'de, str> = always "type",
        from: Version = always "from",
        to: Version = always "to",
        more: bool = always "more",
        records: List<RecordObject<'de>> = always "records",
    }
}

json_object! {
    struct SnapshotObject<'de> = "lifecycle.repair.snapshot" {
        kind: Cow<'de, str> = always "type",
        watermark: Version = always "watermark",
        records: List<RecordObject<'de>> = always "records",
    }
}

json_object! {
    struct AckObject<'de> = "lifecycle.repair.ack" {
        kind: Cow<'de, str> = always "type",
        watermark: Version = always "watermark",
    }
}

#[cfg(test)]
mod tests {
    use super::super::json_read::Refusal;
    use super::*;
    use crate::record::{AuthorityId, Key, RecordError, State};
    use alloc::string::String;
    use alloc::vec;

    fn record(key: &[u8], sequence: u64) -> Record {
        Record {
            key: Key::from_parts(b"n", key).expect("short"),
            state: State::Deleted,
            version: Version::new(1, sequence),
            authority: AuthorityId::from_text("a"),
        }
    }

    fn batch(records: Vec<Record>) -> Batch {
        let to = records.last().map_or(Version::ZERO, |record| record.version);
        Batch { from: Version::ZERO, to, more: false, records }
    }

    fn snapshot(records: Vec<Record>) -> Snapshot {
        Snapshot { watermark: Version::new(1, 9), records }
    }

    fn text(write: impl FnOnce(&mut Vec<u8>) -> Result<(), EncodeError>) -> String {
        let mut out = vec![];
        write(&mut out).expect("valid");
        String::from_utf8(out).expect("JSON")
    }

    /// Writes without judging, so that the decoder has something to refuse.
    fn forced_batch(batch: &Batch) -> Vec<u8> {
        let mut out = vec![];
        write_batch_head(batch.from, batch.to, batch.more, &mut out);
        write_list(&batch.records, &mut out, write_record);
        out.push(b'}');
        out
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

    fn batch_refused(batch: &Batch, limits: &WireLimits, fault: &RepairFault) {
        let encoded = batch.encode(&limits.repair, &mut vec![]);
        assert_eq!(encoded, Err(EncodeError::Repair(fault.clone())));
        let decoded = decode_batch(&forced_batch(batch), limits);
        assert_eq!(decoded, Err(WireError::Repair(fault.clone())));
    }

    fn snapshot_refused(snapshot: &Snapshot, fault: &RepairFault) {
        let limits = WireLimits::default();
        let encoded = snapshot.encode(&limits.repair, &mut vec![]);
        assert_eq!(encoded, Err(EncodeError::Repair(fault.clone())));
        let decoded = decode_snapshot(&forced_snapshot(snapshot), &limits);
        assert_eq!(decoded, Err(WireError::Repair(fault.clone())));
    }

    #[test]
    fn each_message_is_written_in_field_order_and_reads_back() {
        let limits = WireLimits::default();
        let one = record(b"k", 2);
        let body = r#"{"namespace":"bg==","logical_key":"aw==","state":"deleted","version":{"epoch":1,"sequence":2},"authority_id":"a"}"#;

        let payload = text(|out| encode_record(&one, &limits, out));
        assert_eq!(payload, alloc::format!(r#"{{"type":"lifecycle.record","record":{body}}}"#));
        assert_eq!(decode_record(payload.as_bytes(), &limits), Ok(one.clone()));

        let payload = text(|out| batch(vec![one.clone()]).encode(&limits.repair, out));
        assert_eq!(
            payload,
            alloc::format!(
                r#"{{"type":"lifecycle.repair.batch","from":{{"epoch":0,"sequence":0}},"to":{{"epoch":1,"sequence":2}},"more":false,"records":[{body}]}}"#
            )
        );
        assert_eq!(decode_batch(payload.as_bytes(), &limits), Ok(batch(vec![one.clone()])));

        let payload = text(|out| snapshot(vec![one.clone()]).encode(&limits.repair, out));
        assert_eq!(
            payload,
            alloc::format!(
                r#"{{"type":"lifecycle.repair.snapshot","watermark":{{"epoch":1,"sequence":9}},"records":[{body}]}}"#
            )
        );
        assert_eq!(decode_snapshot(payload.as_bytes(), &limits), Ok(snapshot(vec![one])));

        let payload = text(|out| encode_ack(Version::new(1, 2), &limits.repair, out));
        assert_eq!(payload, r#"{"type":"lifecycle.repair.ack","watermark":{"epoch":1,"sequence":2}}"#);
        assert_eq!(decode_ack(payload.as_bytes(), &limits), Ok(Version::new(1, 2)));
    }

    #[test]
    fn empty_lists_are_written_and_read() {
        let limits = WireLimits::default();
        for watermark in [Version::ZERO, Version::new(1, 1)] {
            let empty = Snapshot { watermark, records: vec![] };
            let payload = text(|out| empty.encode(&limits.repair, out));
            assert!(payload.ends_with(r#""records":[]}"#));
            assert_eq!(decode_snapshot(payload.as_bytes(), &limits), Ok(empty));
        }
        let payload = text(|out| batch(vec![]).encode(&limits.repair, out));
        assert_eq!(decode_batch(payload.as_bytes(), &limits), Ok(batch(vec![])));
    }

    #[test]
    fn order() {
        let limits = WireLimits::default();
        for sequences in [[2, 1], [2, 2]] {
            let (previous, version) = (Version::new(1, 2), Version::new(1, sequences[1]));
            let records = sequences.map(|sequence| record(b"k", sequence)).to_vec();
            batch_refused(&batch(records), &limits, &RepairFault::Order { previous, version });
        }
        let first = Batch { from: Version::new(1, 1), ..batch(vec![record(b"k", 1)]) };
        let version = Version::new(1, 1);
        batch_refused(&first, &limits, &RepairFault::Order { previous: version, version });
    }

    #[test]
    fn watermark_mismatch() {
        let limits = WireLimits::default();
        let to = Version::new(5, 5);
        let last = Version::new(1, 1);
        let records = Batch { to, ..batch(vec![record(b"k", 1)]) };
        batch_refused(&records, &limits, &RepairFault::WatermarkMismatch { last, to });
        let empty = Batch { to, ..batch(vec![]) };
        batch_refused(&empty, &limits, &RepairFault::WatermarkMismatch { last: Version::ZERO, to });
    }

    #[test]
    fn limits_of_count_keys_records_and_payload() {
        let two = batch(vec![record(b"k", 1), record(b"l", 2)]);
        let json_bytes: u64 = two.records.iter().map(|record| record.json_bytes() as u64).sum();
        let with = |repair| WireLimits { repair, ..WireLimits::default() };
        let repair = RepairLimits { records_max: 1, ..RepairLimits::default() };
        let fault = RepairFault::TooManyRecords { records: 2, records_max: 1 };
        batch_refused(&two, &with(repair), &fault);
        let repair = RepairLimits { key_bytes_max: 3, ..RepairLimits::default() };
        batch_refused(&two, &with(repair), &RepairFault::KeysTooLarge { bytes: 4, bytes_max: 3 });
        let bytes_max = u32::try_from(json_bytes - 1).expect("small");
        let repair = RepairLimits { record_json_bytes_max: bytes_max, ..RepairLimits::default() };
        let fault = RepairFault::RecordsTooLarge { bytes: json_bytes, bytes_max };
        batch_refused(&two, &with(repair), &fault);
        let bytes = forced_batch(&two).len();
        let bytes_max = u32::try_from(bytes - 1).expect("small");
        let repair = RepairLimits { payload_bytes_max: bytes_max, ..RepairLimits::default() };
        batch_refused(&two, &with(repair), &RepairFault::PayloadTooLarge { bytes, bytes_max });
    }

    #[test]
    fn watermark_zero_with_records() {
        let zero = Snapshot { watermark: Version::ZERO, ..snapshot(vec![record(b"k", 1)]) };
        snapshot_refused(&zero, &RepairFault::WatermarkZero { records: 1 });
    }

    #[test]
    fn above_watermark() {
        let above = snapshot(vec![record(b"k", 10)]);
        let (version, watermark) = (Version::new(1, 10), Version::new(1, 9));
        snapshot_refused(&above, &RepairFault::AboveWatermark { version, watermark });
    }

    #[test]
    fn duplicate_key() {
        let twice = snapshot(vec![record(b"k", 1), record(b"k", 2)]);
        let key = Box::new(record(b"k", 1).key);
        snapshot_refused(&twice, &RepairFault::DuplicateKey { key });
    }

    #[test]
    fn unsorted() {
        let unsorted = snapshot(vec![record(b"l", 1), record(b"k", 2)]);
        let fault = RepairFault::Unsorted { key: Box::new(record(b"k", 1).key) };
        assert_eq!(WireError::Repair(fault.clone()).refusal(), Some(Refusal::Unsorted));
        snapshot_refused(&unsorted, &fault);
    }

    #[test]
    fn a_value_that_is_no_records_is_told_with_its_place() {
        let limits = WireLimits::default();
        let mut records = vec![record(b"k", 1), record(b"l", 2)];
        records[1].authority = AuthorityId::from_text("");
        let fault = RecordError::AuthorityEmpty { bytes_max: 128 };
        let decoded = decode_batch(&forced_batch(&batch(records.clone())), &limits);
        assert_eq!(decoded, Err(WireError::RepairRecord { index: 1, fault: fault.clone() }));
        let payload = text(|out| encode_record(&records[1], &limits, out));
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
