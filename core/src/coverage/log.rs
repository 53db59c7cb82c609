//! A replica's log as the source of a hub: its ID space, its topics, its events, and what its verdicts
//! mean here.
//!
//! A topic is a namespace of the log. An event is a durable change of a key, at its version; its kind is
//! the state's word. The ID space is the first 12 bytes of the log's ID, so that any replica of the log
//! can answer for a cursor.

use super::api::{History, Message};
use super::decide::Reason;
use super::position::{Mark, Position};
use super::topic_name::TopicName;
use crate::id::{Incarnation, hex};
use crate::lifecycle::api::{Cursor, CursorReason, CursorVerdict, SubscriptionEnd};
use crate::record::{Record, Version};
use crate::time::WallTime;
use crate::verdict::Verdict;
use alloc::string::String;
use alloc::vec::Vec;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde::Serialize;

/// What begins the topic of a namespace that cannot be a topic's name itself.
const ENCODED: char = '=';

/// The topic of a namespace: its own bytes if they are a topic's name, else `=` and base64url without
/// padding. Two namespaces never share one. `None` for a namespace of more than 149 bytes that must be
/// encoded; the default limit is 128.
///
/// ```
/// use strandline_core::coverage::log::topic;
/// assert_eq!(topic(b"files").unwrap().as_str(), "files");
/// assert_eq!(topic(b"\xff").unwrap().as_str(), "=_w");
/// ```
#[must_use]
pub fn topic(namespace: &[u8]) -> Option<TopicName> {
    let itself = core::str::from_utf8(namespace).ok().filter(|text| !text.starts_with(ENCODED));
    itself.and_then(|text| TopicName::parse(text).ok()).or_else(|| {
        let mut name = String::from(ENCODED);
        URL_SAFE_NO_PAD.encode_string(namespace, &mut name);
        TopicName::parse(&name).ok()
    })
}

/// The place of a version in the ID space of its log.
#[must_use]
pub const fn position(version: Version) -> Position {
    Position::version(version.epoch, version.sequence)
}

/// Where a log's cursor stands in its ID space.
#[must_use]
pub fn mark(cursor: Cursor) -> Mark {
    Mark { incarnation: Incarnation::from_bytes(cursor.space), position: position(cursor.at) }
}

/// The inverse of [`mark`].
#[must_use]
pub fn cursor(mark: Mark) -> Cursor {
    let bits = mark.position.get();
    let half = |bits: u128| u64::try_from(bits & u128::from(u64::MAX)).expect("64 bits");
    Cursor { space: mark.incarnation.to_bytes(), at: Version::new(half(bits >> 64), half(bits)) }
}

/// A change as clients are given it.
#[derive(Serialize)]
struct Change<'a> {
    version: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key_base64: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    blob: Option<String>,
}

/// A durable change as an event: kind `present` or `deleted`, and `{"version","key","blob"}` in JSON,
/// with `key_base64` in place of a key that is no text, and without `blob` after a deletion.
///
/// # Panics
/// Never: nothing in it can fail to be written.
#[must_use]
pub fn message(space: Incarnation, record: &Record) -> Message {
    let bytes = record.key.logical_key();
    let text = core::str::from_utf8(bytes).ok();
    let change = Change {
        version: alloc::format!("{}", record.version),
        key: text,
        key_base64: text.is_none().then(|| STANDARD.encode(bytes)),
        blob: record.state.blob().map(|blob| hex(&blob.0)),
    };
    let payload = serde_json::to_vec(&change).expect("texts are JSON");
    Message {
        mark: Mark { incarnation: space, position: position(record.version) },
        // A log keeps no times.
        at: WallTime(0),
        kind: record.state.name().into(),
        payload: payload.into(),
    }
}

/// What one topic is given out of changes of a log.
#[must_use]
pub fn messages(space: Incarnation, topic: &TopicName, records: &[Record]) -> Vec<Message> {
    let of_topic = |record: &&Record| self::topic(record.key.namespace()).as_ref() == Some(topic);
    records.iter().filter(of_topic).map(|record| message(space, record)).collect()
}

/// How a resume goes on whose cursor the log was asked about: up to which version its changes are to be
/// read, or what is answered at once.
///
/// # Errors
/// The refusal.
pub const fn judged(verdict: &CursorVerdict) -> Result<Version, History> {
    match verdict {
        Verdict::Complete { through, .. } => Ok(*through),
        Verdict::Gap { reason, .. } | Verdict::Unknown { reason } => Err(History::Refused(why(*reason))),
        Verdict::Diverged(found) => Err(History::Refused(why(found.reason))),
    }
}

/// What a log's reason is called here.
#[must_use]
pub const fn why(reason: CursorReason) -> Reason {
    match reason {
        CursorReason::BelowFloor | CursorReason::ResetExpired => Reason::BelowFloor,
        CursorReason::AheadOfTail => Reason::AheadOfHead,
        CursorReason::ForeignVersion => Reason::ForeignPosition,
        CursorReason::OtherLog => Reason::OtherIncarnation,
    }
}

/// Where a feed goes on that lost its place: behind what the log still holds, or at its tail.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Place {
    /// It has not lost it.
    Kept,
    /// After this version, the cut: everything above is held.
    Cut(Version),
    /// Wherever the log stands now: its versions are others than those this hub was fed.
    Tail,
}

/// Where a feed goes on after the verdict over its own cursor.
#[must_use]
pub const fn place(verdict: &CursorVerdict) -> Place {
    match verdict {
        Verdict::Complete { .. } => Place::Kept,
        Verdict::Gap { to, .. } => Place::Cut(*to),
        Verdict::Unknown { .. } | Verdict::Diverged(_) => Place::Tail,
    }
}

/// Whether a feed that ended may go on where it stood: a disk that failed under one read.
#[must_use]
pub const fn passes(end: &SubscriptionEnd) -> bool {
    match end {
        SubscriptionEnd::Storage(_) => true,
        SubscriptionEnd::Closing => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::LogId;
    use crate::lifecycle::api::{CursorDivergence, Verified};
    use crate::record::{AuthorityId, BlobKey, Key, State};

    fn record(namespace: &[u8], key: &[u8], state: State) -> Record {
        let key = Key::from_parts(namespace, key).expect("a key");
        Record { key, state, version: Version::new(2, 7), authority: AuthorityId::from_text("a") }
    }

    const SPACE: Incarnation = Incarnation { counter: 7, nonce: [7; 8] };

    fn text(message: &Message) -> &str {
        core::str::from_utf8(&message.payload).expect("JSON")
    }

    #[test]
    fn no_two_namespaces_share_a_topic() {
        let namespaces: [&[u8]; 6] = [b"a", b"=YQ", b"a{b}", b"a\n", b"\xff", b""];
        let mut topics: Vec<TopicName> = namespaces.iter().filter_map(|name| topic(name)).collect();
        assert_eq!(topics.len(), namespaces.len());
        topics.sort();
        topics.dedup();
        assert_eq!(topics.len(), namespaces.len());
        assert!(topic(&[0xff; 128]).is_some(), "the longest that a log has by default");
        assert!(topic(&[0xff; 150]).is_none());
    }

    #[test]
    fn a_change_is_json_with_text_where_there_is_text() {
        let put = message(SPACE, &record(b"n", b"readme", State::Present { blob: BlobKey([0xab; 32]) }));
        let blob = "ab".repeat(32);
        assert_eq!(
            text(&put),
            alloc::format!("{{\"version\":\"2.7\",\"key\":\"readme\",\"blob\":\"{blob}\"}}")
        );
        assert_eq!((&*put.kind, put.mark.position), ("present", Position::version(2, 7)));
        let gone = message(SPACE, &record(b"n", b"\xff", State::Deleted));
        assert_eq!((&*gone.kind, text(&gone)), ("deleted", "{\"version\":\"2.7\",\"key_base64\":\"/w==\"}"));
    }

    #[test]
    fn a_topic_is_given_its_own_changes_only() {
        let records = [record(b"n", b"1", State::Deleted), record(b"m", b"2", State::Deleted)];
        assert_eq!(messages(SPACE, &topic(b"n").unwrap(), &records).len(), 1);
    }

    #[test]
    fn a_cursor_of_the_log_and_a_mark_are_one_place() {
        let at = Cursor::new(LogId([9; 16]), Version::new(u64::MAX, 3));
        assert_eq!(cursor(mark(at)), at);
    }

    #[test]
    fn complete_is_read_and_the_rest_is_refused() {
        let (at, through) = (Version::new(1, 5), Version::new(1, 9));
        let verdict = Verdict::Complete { through, verified: Verified::VersionOnly };
        assert_eq!((judged(&verdict), place(&verdict)), (Ok(through), Place::Kept));
        let verdict = Verdict::Gap { from: at, to: through, reason: CursorReason::BelowFloor };
        let refused = |reason| Err(History::Refused(reason));
        assert_eq!((judged(&verdict), place(&verdict)), (refused(Reason::BelowFloor), Place::Cut(through)));
        let verdict = Verdict::Unknown { reason: CursorReason::OtherLog };
        assert_eq!((judged(&verdict), place(&verdict)), (refused(Reason::OtherIncarnation), Place::Tail));
        for (reason, ours) in [
            (CursorReason::ForeignVersion, Reason::ForeignPosition),
            (CursorReason::AheadOfTail, Reason::AheadOfHead),
        ] {
            let verdict = Verdict::Diverged(CursorDivergence { at, ours: through, reason });
            assert_eq!((judged(&verdict), place(&verdict)), (refused(ours), Place::Tail));
        }
    }
}
