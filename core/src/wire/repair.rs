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
