//! How entries are printed.

use crate::exit::Failure;
use crate::output::Output;
use crate::text::{Bytes, shown};
use serde::Serialize;
use strandline_core::stream::event::Entry;

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
