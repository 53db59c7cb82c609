//! Payloads with the answer of each decoder, frames, and what capabilities mean.

use super::Trouble;
use super::input::{Input, Limits, digest, sha256};
use super::judge::{Names, Refused, Report};
use strandline_core::compat::streamhive::capability::{self, Readiness};
use strandline_core::compat::streamhive::reference::{frame_rule, repair_frame, wire_rule};
use strandline_core::record::{Record, RecordLimits, Version};
use strandline_core::wire::capability::Capability;
use strandline_core::wire::error::WireError;
use strandline_core::wire::frame::{FrameDecoder, write_frame};
use strandline_core::wire::limits::WireLimits;
use strandline_core::wire::message::{Message, encode};
use strandline_core::wire::repair::{
    Batch, Snapshot, decode_ack, decode_batch, decode_record, decode_snapshot,
};

/// What a payload was read as, as far as the vectors show it.
#[derive(Debug, PartialEq)]
enum Shown {
    Record(Box<Record>),
    Batch { from: Version, to: Version, more: bool, count: u64, digest: String },
    Snapshot { watermark: Version, count: u64, digest: String },
    Ack { watermark: Version },
}

type Decode = fn(&[u8], &WireLimits) -> Result<Message, WireError>;

const DECODERS: [(&str, Decode); 5] = [
    ("DecodeRecord", |payload, limits| decode_record(payload, limits).map(Message::Record)),
    ("DecodeRepairAck", |payload, limits| {
        decode_ack(payload, limits).map(|watermark| Message::Ack { watermark })
    }),
    ("DecodeRepairBatch", |payload, limits| decode_batch(payload, limits).map(Message::Batch)),
    ("DecodeRepairFrame", repair_frame),
    ("DecodeRepairSnapshot", |payload, limits| decode_snapshot(payload, limits).map(Message::Snapshot)),
];

pub(super) fn wire(file: &Input<'_>, name: &str, bytes: &[u8], report: &mut Report) -> Result<(), Trouble> {
    let limits = Limits::new(file.field("limits"))?.wire()?;
    let results = file.field("results");
    for decoder in results.object()?.keys() {
        let what = format!("{name} {decoder}");
        let result = results.field(decoder);
        let (_, decode) = DECODERS
            .iter()
            .find(|(known, _)| known == decoder)
            .ok_or_else(|| format!("decoder {decoder:?} is unknown to this runner"))?;
        let expected = result.outcome(expected)?;
        let read = decode(bytes, &limits);
        let found = read.as_ref().map(shown).map_err(|error| Refused::new(error, wire_rule(error)));
        let found = found.and_then(|shown| shown.ok_or_else(|| Refused::named("", "another message")));
        report.answer(&what, &expected, &found, None);
        if let (Ok(_), Ok(message)) = (&expected, &read) {
            let mut written = Vec::new();
            encode(message, &limits, &mut written).map_err(|error| error.to_string())?;
            let identical = result.flag("reencode_identical")?;
            report.same(&format!("{what} re-encoded"), &identical, &(written == bytes));
        }
    }
    Ok(())
}

fn expected(result: Input<'_>) -> Result<Shown, Trouble> {
    let (record, batch) = (result.field("record"), result.field("batch"));
    let (snapshot, ack) = (result.field("snapshot"), result.field("ack"));
    if !record.is_null() {
        let record = record.record(&RecordLimits::default())?.map_err(|error| error.to_string())?;
        Ok(Shown::Record(Box::new(record)))
    } else if !batch.is_null() {
        Ok(Shown::Batch {
            from: batch.version("from")?,
            to: batch.version("to")?,
            more: batch.flag("more")?,
            count: batch.number("records_count")?,
            digest: batch.text("records_digest")?.to_owned(),
        })
    } else if !snapshot.is_null() {
        Ok(Shown::Snapshot {
            watermark: snapshot.version("watermark")?,
            count: snapshot.number("records_count")?,
            digest: snapshot.text("records_digest")?.to_owned(),
        })
    } else {
        Ok(Shown::Ack { watermark: ack.version("watermark")? })
    }
}

fn shown(message: &Message) -> Option<Shown> {
    Some(match message {
        Message::Record(record) => Shown::Record(Box::new(record.clone())),
        Message::Batch(Batch { from, to, more, records }) => Shown::Batch {
            from: *from,
            to: *to,
            more: *more,
            count: records.len() as u64,
            digest: digest(records),
        },
        Message::Snapshot(Snapshot { watermark, records }) => {
            Shown::Snapshot { watermark: *watermark, count: records.len() as u64, digest: digest(records) }
        }
        Message::Ack { watermark } => Shown::Ack { watermark: *watermark },
        Message::Blob(_) | Message::Own(_) => return None,
    })
}

/// A stream of frames: each payload, then how the stream ends.
pub(super) fn frames(file: &Input<'_>, name: &str, bytes: &[u8], report: &mut Report) -> Result<(), Trouble> {
    let limit = Limits::new(file.field("limits"))?.frame_payload_bytes_max()?;
    let mut decoder = FrameDecoder::new(limit);
    let mut pushed = 0;
    let mut written = Vec::new();
    for (index, read) in file.list("reads")?.into_iter().enumerate() {
        let what = format!("{name} read {index}");
        let expected = if read.field("errors").is_null() {
            Ok((read.number("size")?, read.text("sha256")?.to_owned()))
        } else {
            Err(read.texts("errors")?.into_iter().map(String::from).collect::<Names>())
        };
        pushed += decoder.push(&bytes[pushed..]);
        let frame = decoder.next_frame().map(|frame| frame.map(<[u8]>::to_vec));
        let found = match frame {
            Ok(Some(payload)) => {
                write_frame(&payload, &mut written).map_err(|error| error.to_string())?;
                Ok((payload.len() as u64, sha256(&payload)))
            }
            Ok(None) => match decoder.finish() {
                Ok(()) => Err(Refused::named("io.EOF", "the stream ends between two frames")),
                Err(error) => Err(Refused::new(&error, frame_rule(&error))),
            },
            Err(error) => Err(Refused::new(&error, frame_rule(&error))),
        };
        report.answer(&what, &expected, &found, None);
    }
    if !file.field("reencode_identical").is_null() {
        let identical = file.flag("reencode_identical")?;
        report.same(&format!("{name} re-encoded"), &identical, &(written == bytes));
    }
    Ok(())
}

pub(super) fn capability(case: &Input<'_>, name: &str, report: &mut Report) -> Result<(), Trouble> {
    let declared = case.texts("capabilities")?;
    let lifecycle = capability::has(&declared, Capability::Lifecycle);
    report.same(name, &case.flag("lifecycle")?, &lifecycle);
    report.same(name, &case.flag("reconcile")?, &capability::has(&declared, Capability::RepairReconcile));
    for (field, required) in [("status_required", true), ("status_optional", false)] {
        report.same(name, &case.text(field)?, &Readiness::of(lifecycle, required).name());
    }
    Ok(())
}

pub(super) fn capability_gate(case: &Input<'_>, name: &str, report: &mut Report) -> Result<(), Trouble> {
    let declared = case.texts("capabilities")?;
    let payload = case.text("payload")?.as_bytes();
    let limits = WireLimits::default();
    let decoders = [("record", DECODERS[0].1), ("repair_frame", repair_frame as Decode)];
    for (field, decode) in decoders {
        let what = format!("{name} {field}");
        let expected = case.field(field).outcome(|result| result.flag("ok").map(drop))?;
        let found = match capability::gate(&declared) {
            Err(error) => Err(Refused::plain(&error)),
            Ok(()) => {
                let read = decode(payload, &limits);
                read.map(drop).map_err(|error| Refused::new(&error, wire_rule(&error)))
            }
        };
        report.answer(&what, &expected, &found, None);
    }
    Ok(())
}
