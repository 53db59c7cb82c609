//! `strandline watch`: the changes as they become durable.

use crate::backend::Backend;
use crate::context::Context;
use crate::exit::Failure;
use crate::output::Output;
use crate::text::{VersionText, shown};
use crate::watch::{CursorText, PageReport, RecordReport};
use serde::Serialize;

/// Print each change once, as it becomes durable, with the cursor to go on from; until interrupted.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Begin after this cursor, as `watch` prints it, or a plain EPOCH.SEQUENCE; `0.0` is the beginning.
    /// Without it only what comes from now on is printed, or with --reset the state first.
    #[arg(long, value_name = "CURSOR")]
    from: Option<CursorText>,
    /// Where changes are no longer held, print the whole state and go on from there.
    #[arg(long)]
    reset: bool,
    /// End once everything that is durable was printed.
    #[arg(long)]
    once: bool,
}

/// What is printed, a line each.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
enum Line<'a> {
    /// A change; whoever has seen it goes on from `cursor`.
    Change {
        cursor: String,
        #[serde(flatten)]
        record: &'a RecordReport,
    },
    /// What was held no longer; a reset follows.
    Gap { reason: &'a str, floor: VersionText },
    /// The state at `cut` follows: forget what you have.
    ResetBegin { cut: VersionText },
    /// A key of the state.
    State {
        #[serde(flatten)]
        record: &'a RecordReport,
    },
    /// The state is whole; whoever has seen it goes on from `cursor`.
    ResetEnd { cursor: String, keys: u64 },
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<(), Failure> {
    context.with_replica(|replica| watch(replica, args, context.output))
}

fn watch(replica: &mut dyn Backend, args: &Args, output: Output) -> Result<(), Failure> {
    let until = if args.once { Some(replica.status()?.tail.0) } else { None };
    let mut watch = replica.watch(args.from)?;
    let began = watch.verdict().clone();
    let space = began.cursor.to_string();
    let space = space.split_once(':').map_or("", |(space, _)| space);
    let cursor = |at: VersionText| format!("{space}:{at}");
    let gap = |output: Output, verdict: &crate::watch::CursorReport| {
        // Only a gap is answered with a reset: whatever else needs a person first.
        if !args.reset || verdict.verdict != "gap" {
            return Err(verdict.failure());
        }
        let reason = verdict.reason.as_deref().unwrap_or_default();
        output.note(format!("{}; the state follows", verdict.text));
        output.result("", &Line::Gap { reason, floor: verdict.floor })
    };
    if began.verdict != "complete" {
        gap(output, &began)?;
        watch.reset()?;
    } else if args.reset && args.from.is_none() {
        watch.reset()?;
    } else if until.is_some_and(|tail| tail <= at_of(&began.cursor)) {
        return Ok(());
    }
    let reached = |at: VersionText| until.is_some_and(|tail| at.0 >= tail);
    loop {
        match watch.next()? {
            None => {}
            Some(PageReport::Changes { records, .. }) => {
                for record in &records {
                    let cursor = cursor(record.entry.version);
                    let text = format!("{cursor} {} {}", shown(&record.key.key.0), record.what());
                    output.result(text, &Line::Change { cursor, record })?;
                }
                if records.last().is_some_and(|record| reached(record.entry.version)) {
                    return Ok(());
                }
            }
            Some(PageReport::Lost { verdict }) => {
                gap(output, &verdict)?;
                watch.reset()?;
            }
            Some(PageReport::ResetBegin { cut }) => {
                output.result(format!("state at {cut}:"), &Line::ResetBegin { cut })?;
            }
            Some(PageReport::State { records }) => {
                for record in &records {
                    let text = format!("  {} {}", shown(&record.key.key.0), record.what());
                    output.result(text, &Line::State { record })?;
                }
            }
            Some(PageReport::ResetEnd { cut, keys }) => {
                let cursor = cursor(cut);
                let text = format!("{cursor} the state has {keys} keys; changes follow");
                output.result(text, &Line::ResetEnd { cursor, keys })?;
                if reached(cut) {
                    return Ok(());
                }
            }
            Some(PageReport::Ended { why }) => {
                return Err(Failure::peer(format!("the watch ended: {why}"))
                    .advise("go on with --from and the last cursor printed"));
            }
        }
    }
}

fn at_of(cursor: &CursorText) -> strandline_core::record::Version {
    let text = cursor.to_string();
    let at = text.split_once(':').map_or(text.as_str(), |(_, at)| at);
    strandline_core::record::Version::parse(at).expect("a cursor names a version")
}
