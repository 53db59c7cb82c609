//! Cases of records: validation, application, appending, delivery and planning.

use super::Trouble;
use super::cases_compaction::draft;
use super::input::{Input, Limits, RawParts, digest, sha256, unhex};
use super::judge::{Refused, Report};
use std::collections::BTreeMap;
use strandline_core::compat::streamhive::applier::Replica;
use strandline_core::compat::streamhive::compaction::Draft;
use strandline_core::compat::streamhive::journal::{End, Journal, JournalLimits, Writer};
use strandline_core::compat::streamhive::plan::{self, Plan};
use strandline_core::lifecycle::apply::{Application, classify};
use strandline_core::lifecycle::delivery::{Delivery, delivery as deliver};
use strandline_core::record::{BlobKey, Key, Record, RecordLimits, Version};
use strandline_core::wire::json_write::{write_bytes, write_list, write_string, write_version};
use strandline_core::wire::repair::decode_batch;

pub(super) fn validate(case: &Input<'_>, name: &str, report: &mut Report) -> Result<(), Trouble> {
    let limits = Limits::new(case.field("limits"))?.record()?;
    let found = case.field("record").record(&limits)?;
    let expected = case.outcome(|case| case.flag("ok").map(drop))?;
    report.answer(name, &expected, &found.map(drop).map_err(|error| Refused::plain(&error)), None);
    if let Ok(record) = case.field("record").record(&RecordLimits::default())? {
        report.same(name, &case.number("encoded_len")?, &(record.json_bytes() as u64));
    }
    Ok(())
}

/// The reference's word and version for what became of a record.
fn named(application: Application, incoming: Version) -> (&'static str, Version) {
    match application {
        Application::Applied => ("applied", incoming),
        Application::Stale { previous } => ("stale", previous),
        Application::Duplicate => ("duplicate", incoming),
        Application::Conflict => ("conflict", incoming),
    }
}

fn applied(result: Input<'_>) -> Result<(String, Version), Trouble> {
    Ok((result.text("outcome")?.to_owned(), result.as_version()?))
}

type State = BTreeMap<Key, Record>;

fn take(state: &mut State, record: Record) -> Application {
    let application = classify(state.get(&record.key), &record);
    if application == Application::Applied {
        state.insert(record.key.clone(), record);
    }
    application
}

pub(super) fn apply(case: &Input<'_>, name: &str, report: &mut Report) -> Result<(), Trouble> {
    let limits = RecordLimits::default();
    let mut state = State::new();
    for record in case.good_records("state", &limits)? {
        let _: Application = take(&mut state, record);
    }
    let incoming = case.field("incoming").record(&limits)?;
    let answer = |application: Application, version| match application {
        Application::Conflict => Err(Refused::named("ErrConflict", "conflict")),
        Application::Applied | Application::Stale { .. } | Application::Duplicate => {
            let (word, version) = named(application, version);
            Ok((word.to_owned(), version))
        }
    };
    let classified = match &incoming {
        Ok(record) => answer(classify(state.get(&record.key), record), record.version),
        Err(error) => Err(Refused::plain(error)),
    };
    report.answer(name, &case.field("classify").outcome(applied)?, &classified, None);
    let found = match incoming {
        Ok(record) => {
            let version = record.version;
            answer(take(&mut state, record), version)
        }
        Err(error) => Err(Refused::plain(&error)),
    };
    report.answer(name, &case.field("apply").outcome(applied)?, &found, None);
    let stats = case.field("after_stats");
    let tombstones = state.values().filter(|record| record.state.blob().is_none()).count();
    report.same(name, &stats.number("records")?, &(state.len() as u64));
    report.same(name, &stats.number("tombstones")?, &(tombstones as u64));
    report.same(name, &case.text("after_digest")?.to_owned(), &digest(state.values()));
    Ok(())
}

pub(super) fn applier(case: &Input<'_>, name: &str, report: &mut Report) -> Result<(), Trouble> {
    let limits = RecordLimits::default();
    let mut journal =
        Writer::new(Version::ZERO, JournalLimits::default()).map_err(|error| error.to_string())?;
    let mut state = State::new();
    for record in case.good_records("journal_and_state", &limits)? {
        journal.append(&record).map_err(|error| error.to_string())?;
        let _: Application = take(&mut state, record);
    }
    let mut blobs = BTreeMap::new();
    for (key, bytes) in case.field("stored_blobs").object()? {
        let key = unhex(key)?.try_into().map_err(|_| format!("{key:?} is no SHA-256"))?;
        blobs.insert(BlobKey(key), unhex(Input::new(bytes).string()?)?);
    }
    let stored_before = blobs.len();
    let blobs = case.flag("blob_store")?.then_some(blobs);
    let mut replica = Replica { journal, state, blobs };
    let supplied = case.bytes_if_any("supplied_blob_hex")?;
    let incoming = case.field("incoming").record(&limits)?;
    let done = replica.apply(&case.texts("capabilities")?, incoming, supplied.as_deref());
    let found = done
        .map(|(application, version)| (named(application, version).0.to_owned(), version))
        .map_err(|error| Refused::plain(&error));
    report.answer(name, &case.field("result").outcome(applied)?, &found, None);
    let stored = replica.blobs.as_ref().map_or(stored_before, BTreeMap::len);
    report.same(name, &case.number("blobs_after")?, &(stored as u64));
    report.same(name, &case.number("journal_len_after")?, &replica.journal.entries());
    report.same(name, &case.text("state_digest_after")?.to_owned(), &digest(replica.state.values()));
    Ok(())
}

pub(super) fn journal_append(case: &Input<'_>, name: &str, report: &mut Report) -> Result<(), Trouble> {
    let limits = Limits::new(case.field("options"))?.journal()?;
    let mut journal = Writer::new(case.version("floor")?, limits).map_err(|error| error.to_string())?;
    for record in case.good_records("journal", &RecordLimits::default())? {
        journal.append(&record).map_err(|error| error.to_string())?;
    }
    let found = match case.field("incoming").record(&limits.record)? {
        Err(error) => Err(Refused::plain(&error)),
        Ok(record) => journal.append(&record).map_err(|error| Refused::new(&error, error.rule())),
    };
    let expected = case.field("result").outcome(|result| result.flag("ok").map(drop))?;
    let differs = expected.is_ok() && found.is_err();
    report.answer(name, &expected, &found, None);
    if differs {
        return Ok(());
    }
    report.same(name, &case.number("bytes_after")?, &(journal.bytes().len() as u64));
    report.same(name, &case.number("len_after")?, &journal.entries());
    report.same(name, &case.version("last_after")?, &journal.last());
    report.same(name, &case.text("file_sha256_after")?.to_owned(), &sha256(journal.bytes()));
    Ok(())
}

/// The payload of a batch as the case describes it, valid or not.
fn batch_payload(batch: Input<'_>) -> Result<Vec<u8>, Trouble> {
    let mut out = Vec::from(br#"{"type":"lifecycle.repair.batch","from":"#);
    write_version(batch.version("from")?, &mut out);
    out.extend_from_slice(br#","to":"#);
    write_version(batch.version("to")?, &mut out);
    out.extend_from_slice(if batch.flag("more")? { br#","more":true"# } else { br#","more":false"# });
    out.extend_from_slice(br#","records":"#);
    let records = batch.list("records")?.into_iter().map(RawParts::read).collect::<Result<Vec<_>, _>>()?;
    write_list(&records, &mut out, write_parts);
    out.push(b'}');
    Ok(out)
}

fn write_parts(record: &RawParts, out: &mut Vec<u8>) {
    out.extend_from_slice(br#"{"namespace":"#);
    write_bytes(&record.namespace, out);
    out.extend_from_slice(br#","logical_key":"#);
    write_bytes(&record.logical_key, out);
    out.extend_from_slice(br#","state":"#);
    write_string(&record.state, out);
    if !record.blob_key.is_empty() {
        out.extend_from_slice(br#","blob_key":"#);
        write_bytes(&record.blob_key, out);
    }
    out.extend_from_slice(br#","version":"#);
    write_version(record.version, out);
    out.extend_from_slice(br#","authority_id":"#);
    write_string(&String::from_utf8_lossy(&record.authority), out);
    out.push(b'}');
}

/// A batch reaches its receiver as a payload: reading judges it, then the table says what it is.
pub(super) fn delivery(case: &Input<'_>, name: &str, report: &mut Report) -> Result<(), Trouble> {
    let limits = Limits::new(case.field("limits"))?.wire()?;
    let expected = case.field("result").outcome(|result| result.text("delivery").map(String::from))?;
    let payload = batch_payload(case.field("batch"))?;
    let found = match decode_batch(&payload, &limits) {
        Err(error) => Err(Refused::plain(&error)),
        Ok(batch) => match deliver(case.version("expected")?, batch.from, batch.to) {
            Delivery::Ready => Ok("ready".to_owned()),
            Delivery::Duplicate => Ok("duplicate".to_owned()),
            Delivery::Gap => Err(Refused::named("ErrRepairWatermarkMismatch", "gap")),
        },
    };
    report.answer(name, &expected, &found, None);
    Ok(())
}

/// What a plan looks like from outside.
#[derive(Debug, PartialEq)]
struct Planned {
    mode: String,
    from: Version,
    to: Version,
    more: bool,
    records: u64,
    payload_sha256: String,
}

pub(super) fn plan(case: &Input<'_>, name: &str, report: &mut Report) -> Result<(), Trouble> {
    let limits = Limits::new(case.field("limits"))?.wire()?;
    let from = case.version("from")?;
    let records = match case.field("journal_generated") {
        generated if generated.is_null() => case.good_records("journal", &RecordLimits::default())?,
        generated => generate(generated, report, name)?,
    };
    let journal = Journal { floor: case.version("floor")?, records, end: End::Clean };
    let snapshot = match (case.field("snapshot_generated"), case.field("snapshot")) {
        (generated, _) if !generated.is_null() => {
            let records = generate(generated, report, name)?.into_iter().map(Ok).collect();
            Some(Draft { watermark: generated.version("watermark")?, records })
        }
        (_, given) if !given.is_null() => Some(draft(given)?),
        (_, _) => None,
    };
    let expected = case.field("result").outcome(|result| {
        Ok(Planned {
            mode: result.text("mode")?.to_owned(),
            from: result.version("from")?,
            to: result.version("to")?,
            more: result.flag("more")?,
            records: result.number("records")?,
            payload_sha256: result.text("payload_sha256")?.to_owned(),
        })
    })?;
    let found = plan::plan(&journal, from, snapshot, &limits);
    let found = found.map(|plan| planned(&plan)).map_err(|error| Refused::plain(&error));
    report.answer(name, &expected, &found, None);
    Ok(())
}

fn planned(plan: &Plan) -> Planned {
    Planned {
        mode: plan.mode.name().to_owned(),
        from: plan.from,
        to: plan.to,
        more: plan.more,
        records: plan.records as u64,
        payload_sha256: sha256(&plan.payload),
    }
}

/// The records `plan_generator` describes, checked against their digest.
fn generate(generated: Input<'_>, report: &mut Report, name: &str) -> Result<Vec<Record>, Trouble> {
    let limits = RecordLimits::default();
    let mut records = Vec::new();
    for index in 0..generated.number("count")? {
        let key = format!("key-{index:06}");
        let blob = unhex(&sha256(format!("blob:{key}").as_bytes()))?;
        let parts = RawParts {
            namespace: b"documents".to_vec(),
            logical_key: key.into_bytes(),
            state: if index % 2 == 0 { "present" } else { "deleted" }.to_owned(),
            blob_key: if index % 2 == 0 { blob } else { Vec::new() },
            version: Version::new(1, index + 1),
            authority: b"authority-a".to_vec(),
        };
        records.push(parts.judge(&limits).map_err(|error| error.to_string())?);
    }
    report.same(name, &generated.text("digest")?.to_owned(), &digest(&records));
    Ok(records)
}
