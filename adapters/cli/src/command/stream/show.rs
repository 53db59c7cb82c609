//! How entries are printed.

use crate::exit::Failure;
use crate::output::Output;
use crate::text::{Bytes, shown};
use serde::Serialize;
use strandline_core::stream::client::Failover;
use strandline_core::stream::event::Entry;
use strandline_core::stream::failover::Survival;
use strandline_core::stream::name::StreamName;
use strandline_core::stream::reply::{Dropped, GapReason};

#[derive(Serialize)]
struct Line {
    id: String,
    /// Absent in an entry that something else wrote.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<Bytes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    topic: Option<Bytes>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Bytes>,
}

#[derive(Serialize)]
struct Gap {
    gap: &'static str,
    stream: String,
    after: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    events: Option<u64>,
}

/// Prints that entries are missing which were never handed out.
pub(super) fn gap(
    output: Output,
    stream: &StreamName,
    why: GapReason,
    dropped: Dropped,
) -> Result<(), Failure> {
    let gap = Gap {
        gap: why.word(),
        stream: stream.to_string(),
        after: dropped.after.to_string(),
        before: dropped.before.map(|before| before.to_string()),
        events: dropped.events,
    };
    let many = gap.events.map_or_else(|| "an unknown number of".into(), |events| events.to_string());
    let before = gap.before.as_ref().map_or_else(String::new, |before| format!(" and before {before}"));
    let text = format!("gap: {many} events of {stream} after {}{before} are no longer kept", gap.after);
    output.result(text, &gap)
}

#[derive(Serialize)]
struct Survived {
    failover: &'static str,
    stream: String,
    handed_out: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    kept: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
}

/// Prints that another server, or another history of it, answers now.
pub(super) fn failover(output: Output, failover: &Failover) -> Result<(), Failure> {
    let reason = match failover.survival {
        Survival::Kept | Survival::Lost => None,
        Survival::Unknown { reason } => Some(reason.word()),
    };
    let survived = Survived {
        failover: failover.survival.word(),
        stream: failover.stream.to_string(),
        handed_out: failover.handed_out.to_string(),
        kept: failover.kept.map(|kept| kept.to_string()),
        reason,
    };
    let kept = survived.kept.as_deref().unwrap_or("nothing that is known");
    let why = reason.map_or_else(String::new, |reason| format!(" ({reason})"));
    let text = format!(
        "failover: what came of {} up to {} is {}{why}; kept through {kept}",
        survived.stream, survived.handed_out, survived.failover,
    );
    output.result(text, &survived)
}

/// Prints one entry.
pub(super) fn entry(output: Output, entry: &Entry) -> Result<(), Failure> {
    let event = entry.stored.event();
    let bytes = |part: &[u8]| Bytes(part.to_vec());
    let line = Line {
        id: entry.id.to_string(),
        name: event.map(|event| bytes(event.name())),
        topic: event.map(|event| event.topic()).filter(|topic| !topic.is_empty()).map(bytes),
        payload: event.map(|event| bytes(event.payload())),
    };
    let text = match event {
        None => format!("{} is no event", line.id),
        Some(event) => {
            let topic = if event.topic().is_empty() { "-".into() } else { shown(event.topic()) };
            format!("{} {} {topic} {}", line.id, shown(event.name()), shown(event.payload()))
        }
    };
    output.result(text, &line)
}
