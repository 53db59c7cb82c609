//! Pad's two event buses: the names they use on a server and what their messages hold.
//!
//! Source of the rules: PerpetualSoftware/pad at 9f88e94832, `internal/events` (a channel per topic, one
//! counter) and `internal/watchevents` (one stream for all).

use crate::error::{Classified, Family};
use alloc::format;
use alloc::string::String;
use serde_json::{Map, Value};

/// Longest namespace, in bytes. Pad sets no bound; its own are words.
pub const NAMESPACE_BYTES_MAX: usize = 64;

/// Words that a namespace may not be, because the names without one use them.
const TAKEN: [&str; 7] =
    ["event_seq", "events", "session", "sessions", "watchevents", "watchevents_epoch", "watchevents_seq"];

/// A namespace that Pad would not take.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "expected a namespace of a-z, 0-9, '-' and '_', at most {NAMESPACE_BYTES_MAX} bytes, that is none of \
     Pad's own names; found {found:?}"
)]
pub struct BadNamespace {
    /// What was given, cut to the limit.
    pub found: String,
}

impl Classified for BadNamespace {
    const FAMILY: Family = Family::Caller;
}

/// The names of one installation.
///
/// ```
/// use strandline_core::compat::pad::Names;
/// let names = Names::new("inst-b").unwrap();
/// assert_eq!(names.event_channel("T"), "pad:inst-b:events:T");
/// assert!(Names::new("events").is_err());
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Names {
    prefix: String,
}

impl Names {
    /// The names in a namespace; empty text for none.
    ///
    /// # Errors
    /// [`BadNamespace`].
    pub fn new(namespace: &str) -> Result<Self, BadNamespace> {
        if namespace.is_empty() {
            return Ok(Self { prefix: "pad:".into() });
        }
        let fits = namespace.len() <= NAMESPACE_BYTES_MAX
            && namespace.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_'));
        if !fits || TAKEN.contains(&namespace) {
            return Err(BadNamespace { found: namespace.chars().take(NAMESPACE_BYTES_MAX).collect() });
        }
        Ok(Self { prefix: format!("pad:{namespace}:") })
    }

    /// The counter shared by the topics of the per-topic bus.
    #[must_use]
    pub fn event_counter(&self) -> String {
        format!("{}event_seq", self.prefix)
    }

    /// The channel of one topic of the per-topic bus.
    #[must_use]
    pub fn event_channel(&self, topic: &str) -> String {
        format!("{}events:{topic}", self.prefix)
    }

    /// The counter of the single stream.
    #[must_use]
    pub fn watch_counter(&self) -> String {
        format!("{}watchevents_seq", self.prefix)
    }

    /// The name of the single stream's ID space.
    #[must_use]
    pub fn watch_epoch(&self) -> String {
        format!("{}watchevents_epoch", self.prefix)
    }

    /// The channel of the single stream.
    #[must_use]
    pub fn watch_channel(&self) -> String {
        format!("{}watchevents", self.prefix)
    }

    /// The token of one publish on the single stream.
    #[must_use]
    pub fn watch_token(&self, token: &str) -> String {
        format!("{}watchevents:pub:{token}", self.prefix)
    }
}

/// A message that is none of Pad's. It never becomes an event.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Rejected {
    /// The single stream's messages have three parts.
    #[error("expected <epoch>|<id>|<JSON>, found fewer than two bars")]
    Parts,
    /// The ID space has no name.
    #[error("expected the name of an ID space, found none")]
    Epoch,
    /// The ID is no positive integer of 63 bits.
    #[error("expected a positive integer of 63 bits as ID, found something else")]
    Id,
    /// The body is no JSON object.
    #[error("expected a JSON object, found something else")]
    Body,
}

impl Classified for Rejected {
    const FAMILY: Family = Family::Peer;
}

/// A message of the single stream.
#[derive(Clone, Debug, PartialEq)]
pub struct Notification<'a> {
    /// The name of its ID space.
    pub epoch: &'a str,
    /// Its number; the one inside the body is always zero and counts for nothing.
    pub id: u64,
    /// The body as it was sent.
    pub text: &'a str,
    /// The body, read.
    pub body: Map<String, Value>,
}

/// Reads a message of the single stream. The body may hold bars.
///
/// # Errors
/// [`Rejected`].
pub fn read_notification(payload: &str) -> Result<Notification<'_>, Rejected> {
    let mut parts = payload.splitn(3, '|');
    let (Some(epoch), Some(id), Some(text)) = (parts.next(), parts.next(), parts.next()) else {
        return Err(Rejected::Parts);
    };
    if epoch.is_empty() {
        return Err(Rejected::Epoch);
    }
    let id = id.parse::<i64>().ok().filter(|id| *id > 0).ok_or(Rejected::Id)?;
    Ok(Notification { epoch, id: id.unsigned_abs(), text, body: object(text)? })
}

/// A message of the per-topic bus.
#[derive(Clone, Debug, PartialEq)]
pub struct TopicEvent {
    /// Its number, from the counter that all topics share.
    pub id: u64,
    /// The body, its number included.
    pub body: Map<String, Value>,
}

/// Reads a message of the per-topic bus.
///
/// # Errors
/// [`Rejected`].
pub fn read_event(payload: &str) -> Result<TopicEvent, Rejected> {
    let body = object(payload)?;
    let id = body.get("id").and_then(Value::as_i64).filter(|id| *id > 0).ok_or(Rejected::Id)?;
    Ok(TopicEvent { id: id.unsigned_abs(), body })
}

/// Writes a message of the single stream.
#[must_use]
pub fn write_notification(epoch: &str, id: u64, body: &str) -> String {
    format!("{epoch}|{id}|{body}")
}

fn object(text: &str) -> Result<Map<String, Value>, Rejected> {
    serde_json::from_str(text).map_err(|_| Rejected::Body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_and_without_a_namespace() {
        let plain = Names::new("").unwrap();
        assert_eq!(plain.event_counter(), "pad:event_seq");
        assert_eq!(plain.watch_epoch(), "pad:watchevents_epoch");
        let named = Names::new("inst-a").unwrap();
        assert_eq!(named.watch_counter(), "pad:inst-a:watchevents_seq");
        assert_eq!(named.watch_channel(), "pad:inst-a:watchevents");
        assert_eq!(named.watch_token("u"), "pad:inst-a:watchevents:pub:u");
    }

    #[test]
    fn bad_namespaces() {
        for bad in [" ", "a:b", "Big", "ü", "a b"].into_iter().chain(TAKEN) {
            assert!(Names::new(bad).is_err(), "{bad:?}");
        }
        assert!(Names::new(&"x".repeat(NAMESPACE_BYTES_MAX + 1)).is_err());
    }

    #[test]
    fn every_field_a_filter_reads_survives_the_wire() {
        let body = serde_json::json!({
            "ID": 0, "Workspace": "w", "ItemID": "i", "Collection": "c", "ItemRef": "TASK-9", "Kind": "push",
            "Actor": "a", "Summary": "a|b|c", "AssignedUserID": "u", "TargetUserID": "v",
            "TargetSessionID": "s", "StatusField": "state", "NewStatus": "done", "At": "2026-01-02T03:04:05Z",
        });
        let sent = write_notification("ep", 77, &serde_json::to_string(&body).unwrap());
        let read = read_notification(&sent).unwrap();
        assert_eq!((read.epoch, read.id), ("ep", 77));
        assert_eq!(Value::Object(read.body), body);
    }

    #[test]
    fn what_is_no_notification() {
        let cases = [
            ("", Rejected::Parts),
            ("1|{}", Rejected::Parts),
            ("|1|{}", Rejected::Epoch),
            ("ep|abc|{}", Rejected::Id),
            ("ep|0|{}", Rejected::Id),
            ("ep|9223372036854775808|{}", Rejected::Id),
            ("ep|1|not json", Rejected::Body),
            ("ep|1|[]", Rejected::Body),
            ("ep|1|{} {}", Rejected::Body),
        ];
        for (payload, rejected) in cases {
            assert_eq!(read_notification(payload), Err(rejected), "{payload}");
        }
    }

    #[test]
    fn an_event_has_its_number_inside() {
        assert_eq!(read_event("{\"id\":7,\"type\":\"x\"}").unwrap().id, 7);
        assert_eq!(read_event("{\"type\":\"x\"}"), Err(Rejected::Id));
        assert_eq!(read_event("7"), Err(Rejected::Body));
    }
}
