//! Cases of compaction and snapshot installation.

use super::Trouble;
use super::input::{Input, sha256};
use super::judge::{Refused, Report};
use strandline_core::compat::streamhive::checkpoint::CheckpointLimits;
use strandline_core::compat::streamhive::compaction::{
    self, CheckpointPath, CompactionError, Draft, Request, Written,
};
use strandline_core::compat::streamhive::journal::{End, Journal, JournalLimits};
use strandline_core::record::RecordLimits;

fn journal(case: &Input<'_>) -> Result<Journal, Trouble> {
    let records = case.good_records("journal", &RecordLimits::default())?;
    Ok(Journal { floor: case.version("floor")?, records, end: End::Clean })
}

pub(super) fn draft(input: Input<'_>) -> Result<Draft, Trouble> {
    let records = input.records("records", &RecordLimits::default())?;
    Ok(Draft { watermark: input.version("watermark")?, records })
}

fn path(case: &Input<'_>) -> Result<CheckpointPath, Trouble> {
    match case.text("checkpoint_path")? {
        "empty" => Ok(CheckpointPath::Missing),
        "journal" => Ok(CheckpointPath::Journal),
        "other" => Ok(CheckpointPath::Other),
        other => Err(format!("checkpoint path {other:?} is unknown to this runner")),
    }
}

pub(super) fn compaction(case: &Input<'_>, name: &str, report: &mut Report) -> Result<(), Trouble> {
    let journal = journal(case)?;
    let base = case.field("base");
    let request = Request {
        path: path(case)?,
        draft: draft(*case)?,
        base: if base.is_null() { None } else { Some(draft(base)?) },
        peers: case.list("peer_watermarks")?.into_iter().map(Input::as_version).collect::<Result<_, _>>()?,
    };
    let found =
        compaction::compact(&journal, request, &CheckpointLimits::default(), &JournalLimits::default());
    compare(case, name, &journal, found, report)
}

pub(super) fn install_snapshot(case: &Input<'_>, name: &str, report: &mut Report) -> Result<(), Trouble> {
    let journal = journal(case)?;
    let found = compaction::install_snapshot(
        &journal,
        path(case)?,
        draft(case.field("checkpoint"))?,
        &CheckpointLimits::default(),
        &JournalLimits::default(),
    );
    compare(case, name, &journal, found, report)
}

/// Compares the answer and the files left: the new ones, or the old journal after a refusal.
fn compare(
    case: &Input<'_>,
    name: &str,
    before: &Journal,
    found: Result<Written, CompactionError>,
    report: &mut Report,
) -> Result<(), Trouble> {
    let limits = JournalLimits::default();
    let result = case.field("result");
    let expected = result.outcome(|result| result.flag("ok").map(drop))?;
    let (answer, left, checkpoint) = match found {
        Ok(written) => (Ok(()), written.journal, Some(written.checkpoint)),
        Err(error) => {
            let unchanged = before.encode(&limits).map_err(|error| error.to_string())?;
            (Err(Refused::plain(&error)), unchanged, None)
        }
    };
    report.answer(name, &expected, &answer, None);
    let after = Journal::decode(&left, &limits).map_err(|error| error.to_string())?;
    report.same(name, &result.version("floor_after")?, &after.floor);
    report.same(name, &result.version("last_after")?, &after.last());
    report.same(name, &result.number("len_after")?, &(after.records.len() as u64));
    if !result.field("bytes_after").is_null() {
        report.same(name, &result.number("bytes_after")?, &(left.len() as u64));
    }
    for (field, bytes) in
        [("journal_sha256_after", Some(&left)), ("checkpoint_sha256_after", checkpoint.as_ref())]
    {
        if let (Ok(sum), Some(bytes)) = (result.text(field), bytes) {
            report.same(&format!("{name} {field}"), &sum.to_owned(), &sha256(bytes));
        }
    }
    Ok(())
}
