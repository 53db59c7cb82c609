//! Items as `text/event-stream`: what a browser is sent.

use super::api::Item;
use super::buffer::Entry;
use alloc::vec::Vec;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// The event name of [`Item::SyncRequired`].
pub const SYNC_REQUIRED: &str = "sync_required";
/// The event name of [`Item::Gap`].
pub const GAP: &str = "gap";
/// The event name of [`Item::Opened`].
pub const OPENED: &str = "opened";
/// What stands behind the name of an event whose bytes are no text, and so are sent as base64.
pub const BASE64: &str = ";base64";

/// What of a kind would make its frames look like others: a name of ours, or the end that says base64.
/// `None` if nothing does.
#[must_use]
pub fn reserved(kind: &str) -> Option<&'static str> {
    let name = [SYNC_REQUIRED, GAP, OPENED].into_iter().find(|name| *name == kind);
    name.or_else(|| kind.ends_with(BASE64).then_some(BASE64))
}

/// What goes into a frame beside the item.
#[derive(Clone, Copy, Debug, Default)]
pub struct Frame<'a> {
    /// The ID of the whole stream after this item; `None` leaves the client's as it is. Never empty,
    /// and never with a control character: cursors hold neither.
    pub id: Option<&'a str>,
    /// The topic, where a stream has several.
    pub topic: Option<&'a str>,
    /// How long a client waits before it connects again, in milliseconds.
    pub retry_ms: Option<u64>,
}

/// Appends the frame of one item. [`Item::Stale`] is a comment, which moves no cursor; [`Item::Closed`]
/// appends nothing, the stream just ends.
pub fn write(item: &Item, frame: Frame<'_>, out: &mut Vec<u8>) {
    match item {
        Item::Opened(opened) => {
            head(OPENED, frame, out);
            let data = alloc::format!("{{\"resumed\":{}{}}}", opened.resumed, Member(frame.topic));
            line(out, b"data", data.as_bytes());
        }
        Item::Event { entry, .. } => event(entry, frame, out),
        Item::Gap { after, through } => {
            // The events of the gap follow and carry their own cursors.
            head(GAP, Frame { id: None, ..frame }, out);
            let topic = Member(frame.topic);
            let data = alloc::format!("{{\"after\":\"{after}\",\"through\":\"{through}\"{topic}}}");
            line(out, b"data", data.as_bytes());
        }
        Item::Stale { reason } => {
            out.extend_from_slice(b": stale ");
            out.extend_from_slice(reason.label().as_bytes());
            out.push(b'\n');
        }
        Item::SyncRequired { reason, .. } => {
            head(SYNC_REQUIRED, frame, out);
            let data = alloc::format!("{{\"reason\":\"{}\"{}}}", reason.label(), Member(frame.topic));
            line(out, b"data", data.as_bytes());
        }
        Item::Closed => return,
    }
    out.push(b'\n');
}

/// Appends a frame that only moves the cursor: a browser takes its ID and dispatches nothing. For an event
/// that this client may not see, so that it is not asked for again at each reconnect.
pub fn moved(id: &str, out: &mut Vec<u8>) {
    if !id.is_empty() {
        line(out, b"id", id.as_bytes());
        out.push(b'\n');
    }
}

/// Appends how long a client waits before it connects again.
pub fn retry(retry_ms: u64, out: &mut Vec<u8>) {
    line(out, b"retry", alloc::format!("{retry_ms}").as_bytes());
    out.push(b'\n');
}

/// Appends a comment that keeps the connection alive and moves no cursor.
pub fn keep_alive(out: &mut Vec<u8>) {
    out.extend_from_slice(b":\n\n");
}

/// The topic as a further member of an object: EventSource shows a page nothing but data and ID.
struct Member<'a>(Option<&'a str>);

impl core::fmt::Display for Member<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let Some(topic) = self.0 else { return Ok(()) };
        f.write_str(",\"topic\":\"")?;
        // A topic holds no control characters.
        for c in topic.chars() {
            if matches!(c, '"' | '\\') {
                f.write_str("\\")?;
            }
            core::fmt::Write::write_char(f, c)?;
        }
        f.write_str("\"")
    }
}

fn head(name: &str, frame: Frame<'_>, out: &mut Vec<u8>) {
    if !name.is_empty() {
        line(out, b"event", name.as_bytes());
    }
    if let Some(topic) = frame.topic {
        // No field of the format is free for it; a comment would be lost on EventSource.
        line(out, b"topic", topic.as_bytes());
    }
    if let Some(id) = frame.id.filter(|id| !id.is_empty()) {
        line(out, b"id", id.as_bytes());
    }
    if let Some(retry_ms) = frame.retry_ms {
        line(out, b"retry", alloc::format!("{retry_ms}").as_bytes());
    }
}

fn event(entry: &Entry, frame: Frame<'_>, out: &mut Vec<u8>) {
    match core::str::from_utf8(&entry.payload) {
        // A carriage return would end a line, and come back as another character.
        // Another instance may have let a kind pass that we refuse.
        Ok(text) if !text.contains('\r') && reserved(&entry.kind).is_none() => {
            head(&entry.kind, frame, out);
            for part in text.split('\n') {
                line(out, b"data", part.as_bytes());
            }
        }
        Ok(_) | Err(_) => {
            head(&alloc::format!("{}{BASE64}", entry.kind), frame, out);
            line(out, b"data", STANDARD.encode(&entry.payload).as_bytes());
        }
    }
}

fn line(out: &mut Vec<u8>, field: &[u8], value: &[u8]) {
    out.extend_from_slice(field);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::super::api::{How, Opened};
    use super::super::buffer::tests::entry;
    use super::super::decide::Reason;
    use super::*;
    use alloc::string::String;

    fn text(item: &Item, frame: Frame<'_>) -> String {
        let mut out = Vec::new();
        write(item, frame, &mut out);
        String::from_utf8(out).unwrap()
    }

    fn event(payload: &[u8]) -> Item {
        Item::Event { entry: entry(1, payload), how: How::Live }
    }

    #[test]
    fn an_event_carries_its_cursor() {
        let frame = Frame { id: Some("abc"), ..Frame::default() };
        assert_eq!(text(&event(b"one\ntwo"), frame), "id: abc\ndata: one\ndata: two\n\n");
    }

    #[test]
    fn bytes_that_are_no_lines_of_text_are_base64() {
        for payload in [&b"\xff"[..], b"a\rb"] {
            let sent = text(&event(payload), Frame::default());
            assert!(sent.starts_with("event: ;base64\ndata: "), "{sent}");
        }
    }

    #[test]
    fn an_event_poses_as_nothing_else() {
        for kind in [SYNC_REQUIRED, GAP, OPENED, "x;base64"] {
            let known = entry(1, b"text");
            let (mark, cursor, at) = (known.mark, known.cursor, known.at);
            let entry =
                Entry { mark, cursor, at, kind: kind.into(), payload: b"text"[..].into(), breaks: false };
            let sent = text(&Item::Event { entry: entry.into(), how: How::Live }, Frame::default());
            assert_eq!(sent, alloc::format!("event: {kind};base64\ndata: dGV4dA==\n\n"));
        }
        assert_eq!((reserved("opened later"), reserved("base64"), reserved("")), (None, None, None));
    }

    #[test]
    fn sync_required_replaces_the_cursor_and_never_clears_it() {
        let at = entry(1, b"").mark;
        let item = Item::SyncRequired { reason: Reason::Evicted, at };
        let frame = Frame { id: Some("abc"), retry_ms: Some(750), topic: None };
        let sent = text(&item, frame);
        assert_eq!(sent, "event: sync_required\nid: abc\nretry: 750\ndata: {\"reason\":\"evicted\"}\n\n");
        assert!(!text(&item, Frame { id: Some(""), ..Frame::default() }).contains("id:"));
    }

    #[test]
    fn a_notice_names_its_topic_as_json() {
        let frame = Frame { topic: Some("a\"b\\c"), ..Frame::default() };
        let sent = text(&Item::Opened(Opened::default()), frame);
        assert!(sent.ends_with("data: {\"resumed\":false,\"topic\":\"a\\\"b\\\\c\"}\n\n"), "{sent}");
    }

    #[test]
    fn a_hidden_event_moves_the_cursor_and_never_clears_it() {
        let mut out = Vec::new();
        moved("abc", &mut out);
        moved("", &mut out);
        assert_eq!(out, b"id: abc\n\n");
    }

    #[test]
    fn what_moves_no_cursor_has_no_id() {
        let frame = Frame { id: Some("abc"), ..Frame::default() };
        assert_eq!(text(&Item::Stale { reason: Reason::Missed }, frame), ": stale missed\n\n");
        let after = entry(1, b"").mark.position;
        assert!(!text(&Item::Gap { after, through: after }, frame).contains("id:"));
        assert!(text(&Item::Opened(Opened::default()), frame).contains("id: abc"));
        assert_eq!(text(&Item::Closed, frame), "");
    }
}
