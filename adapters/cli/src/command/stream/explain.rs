//! `strandline stream explain`.

use super::position;
use super::target::{Access, Place, closing};
use crate::context::Context;
use crate::exit::Failure;
use serde::Serialize;
use strandline_core::stream::eviction::Eviction;
use strandline_core::stream::judge::{LogEdges, PositionReason, judge};
use strandline_core::stream::{EventId, StreamName};
use strandline_core::verdict::Verdict;

/// Say how a stream stands, and whether everything after a position can still be had, with the evidence.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    #[command(flatten)]
    place: Place,
    #[arg(value_parser = super::stream)]
    stream: StreamName,
    /// The last position that was seen.
    #[arg(long, value_name = "ID", value_parser = position)]
    after: Option<EventId>,
}

#[derive(Serialize)]
struct Explained {
    stream: String,
    state: &'static str,
    generation: u64,
    contract: String,
    floor: Option<String>,
    head: Option<String>,
    published: u64,
    kept: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    verdict: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    /// What the server may do to it.
    #[serde(skip_serializing_if = "Option::is_none")]
    warning: Option<&'static str>,
}

/// In words; without a log there was never an event, or all have gone.
fn judged(after: EventId, log: Option<&LogEdges>) -> (&'static str, Option<&'static str>) {
    let Some(log) = log else { return ("unknown", Some("no data")) };
    match judge(after, log) {
        Verdict::Complete { .. } => ("complete", None),
        Verdict::Gap { reason, .. } => ("gap", Some(words(reason))),
        Verdict::Unknown { reason } => ("unknown", Some(words(reason))),
        Verdict::Diverged(never) => match never {},
    }
}

const fn words(reason: PositionReason) -> &'static str {
    match reason {
        PositionReason::NotRetained => "not retained",
        PositionReason::Ahead => "ahead",
    }
}

pub(super) async fn run(args: &Args, context: &Context) -> Result<(), Failure> {
    let mut target = args.place.open(context, Access::Existing).await?;
    let seen = target.look(&args.stream).await;
    let done = seen.and_then(|seen| {
        let seen = seen
            .ok_or_else(|| Failure::refused("the stream does not exist").advise("`stream add` makes it"))?;
        let verdict = args.after.map(|after| judged(after, seen.log.as_ref()));
        let explained = Explained {
            stream: args.stream.to_string(),
            state: if seen.active { "active" } else { "destroyed" },
            generation: seen.generation,
            contract: seen.contract,
            floor: seen.log.and_then(|log| log.first).map(|id| id.to_string()),
            head: seen.log.map(|log| log.last.to_string()),
            published: seen.log.map_or(0, |log| log.added),
            kept: seen.log.map_or(0, |log| log.kept),
            verdict: verdict.map(|(verdict, _)| verdict),
            reason: verdict.and_then(|(_, reason)| reason),
            warning: seen.eviction.and_then(Eviction::warning),
        };
        if let Some(warning) = explained.warning {
            context.output.note(format!("warning: {warning}"));
        }
        if context.output.is_json() {
            return context.output.result("", &explained);
        }
        let shown = |text: Option<String>| text.unwrap_or_else(|| "-".into());
        let word = |text: Option<&str>| text.unwrap_or("-").to_owned();
        let row = [
            explained.state.to_owned(),
            explained.generation.to_string(),
            explained.contract,
            shown(explained.floor),
            shown(explained.head),
            explained.kept.to_string(),
            word(explained.verdict),
            word(explained.reason),
        ];
        let head = ["state", "generation", "contract", "floor", "head", "kept", "verdict", "reason"];
        context.output.table(head, [row])
    });
    closing(target, done)
}
