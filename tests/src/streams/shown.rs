//! Replies and errors as the file shows them.

use serde_json::{Value, json};
use strandline_core::stream::error::{CallerError, ForeignFault, StreamError};
use strandline_core::stream::event::Entry;
use strandline_core::stream::layout::PulseKeys;
use strandline_core::stream::reply::Told;
use strandline_core::stream::{ConsumerName, EventId, Handle, Layout, Verb};

/// What the file calls an error.
pub(super) fn error_name(error: &StreamError) -> &'static str {
    match error {
        StreamError::Caller(error) => match error {
            CallerError::InvalidOption { .. } => "InvalidOption",
            CallerError::EmptyEventName
            | CallerError::EventTooLarge { .. }
            | CallerError::InvalidOnceKey { .. }
            | CallerError::TooManyIds { .. } => "InvalidArgument",
            CallerError::ConfigMismatch { .. } => "ConfigMismatch",
            CallerError::GroupConfigMismatch => "SinkConfigMismatch",
            CallerError::GroupFull => "GroupFull",
            CallerError::DeadLettersFull => "DeadLettersFull",
            CallerError::TaggedOnly => "TaggedOnly",
            CallerError::StreamNotFound => "StreamNotFound",
            CallerError::StreamDestroyed { .. } => "StreamDestroyed",
            CallerError::StreamLost { .. } => "StreamLost",
            CallerError::DeadlineElapsed { .. } => "DeadlineElapsed",
            CallerError::SnapshotUnbounded => "SnapshotUnbounded",
            CallerError::SnapshotBoundExceeded { .. } => "SnapshotBoundExceeded",
            CallerError::IdempotencyConflict => "IdempotencyConflict",
            CallerError::IdempotencyFull { .. } => "IdempotencyFull",
            CallerError::LeaseLost { .. } => "LeaseLost",
            CallerError::InvalidReplayPosition => "InvalidReplayPosition",
            CallerError::ReplayPositionUnavailable { .. } => "ReplayPositionUnavailable",
            CallerError::ReplayEventTooLarge { .. } => "ReplayEventTooLarge",
            CallerError::LastStream => "LastStream",
            CallerError::ReaderClosed => "ReaderClosed",
            CallerError::ConsumerClosed => "SinkClosed",
            CallerError::NotAttached => "NotAttached",
        },
        StreamError::Foreign(error) => match error {
            ForeignFault::MalformedEvent { .. } => "MalformedEvent",
            ForeignFault::InvalidRetention { .. } => "InvalidRetention",
            ForeignFault::Lifecycle { .. } => "LifecycleInvalid",
            ForeignFault::Membership => "MembershipInvalid",
            ForeignFault::KeepAlive => "KeepAliveInvalid",
            ForeignFault::Resource | ForeignFault::Idempotency | ForeignFault::Books { .. } => "RedisError",
        },
        StreamError::Server(_) => "RedisError",
    }
}

pub(super) fn ids(entries: &[Entry]) -> Value {
    entries.iter().map(|entry| Value::from(entry.id.to_string())).collect()
}

pub(super) fn events(entries: &[Entry]) -> Value {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let shown = entries.iter().filter_map(|entry| {
        let event = entry.stored.event()?;
        Some(json!({
            "id": entry.id.to_string(), "name": text(event.name()),
            "payload": text(event.payload()), "topic": text(event.topic()),
        }))
    });
    shown.collect()
}

/// A handle as the file shows it, whatever its layout.
pub(super) fn state(handle: &Handle) -> Value {
    let generation = handle.bound().map_or(1, |bound| bound.generation);
    let keys = PulseKeys { stream: handle.stream(), generation };
    let contract = handle.bound().and_then(|bound| bound.contract);
    json!({
        "generation": handle.bound().map(|bound| bound.generation.to_string()).unwrap_or_default(),
        "key": keys.log(),
        "retention": contract.map(|contract| contract.text(Layout::Pulse)).unwrap_or_default(),
    })
}

/// A reply as the file shows it.
pub(super) fn told(verb: &Verb, told: &Told, handle: Option<&Handle>) -> Value {
    let name = |id: &EventId| Value::from(id.to_string());
    let names = |list: &[ConsumerName]| list.iter().map(|c| Value::from(c.as_str())).collect::<Value>();
    match told {
        Told::Done | Told::Attended { .. } => match (verb, handle) {
            (Verb::Open, Some(handle)) => state(handle),
            _ => json!({}),
        },
        Told::Added { id } => json!({ "id": id.map(|id| id.to_string()).unwrap_or_default() }),
        Told::AddedOnce { id, published } => json!({ "id": name(id), "published": published }),
        Told::Removed { count } => json!({ "deleted": count }),
        Told::Entries(entries) | Told::Read { entries, .. } | Told::Taken { entries, .. } => {
            json!({ "ids": ids(entries), "events": events(entries), "count": entries.len() })
        }
        Told::Replayed { anchor, entries } => {
            json!({ "anchor": anchor.as_ref().map(|entry| entry.id.to_string()), "ids": ids(entries) })
        }
        Told::Destroyed { now } => json!({ "destroyed_now": now }),
        Told::GroupOpened { log_was_absent, .. } => json!({ "data_was_absent": log_was_absent }),
        Told::Acked { count, .. } => json!({ "acked": count }),
        Told::Detached { deleted } => json!({ "consumer_deleted": deleted }),
        Told::Leased { acquired, fence } => json!({ "acquired": acquired, "fence": fence }),
        Told::Claimed { next, entries, vanished, .. } => json!({
            "claimed": ids(entries), "next": name(next), "vanished": vanished.iter().map(name).collect::<Value>(),
        }),
        Told::Nacked { count } => json!({ "nacked": count }),
        Told::Buried { count, .. } => json!({ "buried": count }),
        Told::Dead(letters) => json!({ "count": letters.len() }),
        Told::Groups(groups) => json!({ "count": groups.groups.len() }),
        Told::Swept { removed, malformed } => {
            json!({ "removed": names(removed), "malformed": names(malformed) })
        }
    }
}
