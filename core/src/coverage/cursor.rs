//! Cursors as clients carry them: opaque text that names its ID space and cannot be mistaken.
//!
//! base64url without padding of: version (1 byte), incarnation counter (4, big endian), nonce (8),
//! position (8 bytes in version 1, 16 in version 2), tag. The tag is the CRC-32 (4 bytes), or with a
//! key the first 16 bytes of the HMAC-SHA-256, of topic, tenant (each behind its length) and body.

use super::decide::Claim;
use super::position::{Mark, Position};
use crate::id::Incarnation;
use alloc::string::String;
use alloc::vec::Vec;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use core::fmt;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;

/// Most cursors in one ID.
pub const CURSORS_MAX: usize = 32;
/// Longest text of one cursor.
pub const CURSOR_CHARS_MAX: usize = 60;
/// Longest text of an ID: cursors and the dots between them.
pub const ID_CHARS_MAX: usize = CURSORS_MAX * (CURSOR_CHARS_MAX + 1) - 1;

const NARROW: u8 = 1;
const WIDE: u8 = 2;
const BODY_BYTES_MAX: usize = 1 + 12 + 16;
const TAG_BYTES_MAX: usize = 16;

/// Whether positions of a hub take 8 or 16 bytes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Width {
    /// Sequence numbers.
    Sequence,
    /// Versions of a log.
    Version,
}

/// The text of one cursor: 34, 44, 50 or 60 characters of `A-Z a-z 0-9 - _`.
#[derive(Clone, Copy, Eq, PartialEq)]
pub struct CursorText {
    chars: [u8; CURSOR_CHARS_MAX],
    len: u8,
}

impl CursorText {
    /// The characters.
    #[must_use]
    pub fn as_str(&self) -> &str {
        core::str::from_utf8(&self.chars[..usize::from(self.len)]).expect("base64url is ASCII")
    }
}

impl fmt::Display for CursorText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for CursorText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Writes and reads the cursors of one hub.
///
/// ```
/// use strandline_core::coverage::{Claim, CursorCodec, Mark, Position};
/// use strandline_core::id::Incarnation;
/// let codec = CursorCodec::keyed("tenant", [7; 32]);
/// let incarnation = Incarnation { counter: 1, nonce: [2; 8] };
/// let mark = Mark { incarnation, position: Position::sequence(5) };
/// let text = codec.write("orders", mark);
/// assert_eq!(text.as_str().len(), 50);
/// assert_eq!(codec.read("orders", text.as_str()), Claim::Cursor(mark));
/// assert_eq!(codec.read("invoices", text.as_str()), Claim::Unreadable);
/// ```
#[derive(Clone)]
pub struct CursorCodec {
    tenant: String,
    mac: Option<Hmac<Sha256>>,
    width: Width,
    legacy: bool,
}

impl fmt::Debug for CursorCodec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key = if self.mac.is_some() { "keyed" } else { "open" };
        write!(f, "CursorCodec({key}, {:?}, legacy: {})", self.width, self.legacy)
    }
}

impl CursorCodec {
    /// Cursors whose tag catches mistakes, not forgery.
    #[must_use]
    pub fn open(tenant: &str) -> Self {
        Self { tenant: tenant.into(), mac: None, width: Width::Sequence, legacy: false }
    }

    /// Cursors that only holders of the key can make. All hubs that share clients share the key.
    ///
    /// # Panics
    /// Never: HMAC takes keys of any length.
    #[must_use]
    pub fn keyed(tenant: &str, key: [u8; 32]) -> Self {
        let mac = Hmac::new_from_slice(&key).expect("HMAC takes any key");
        Self { mac: Some(mac), ..Self::open(tenant) }
    }

    /// With positions of this width.
    #[must_use]
    pub const fn width(mut self, width: Width) -> Self {
        self.width = width;
        self
    }

    /// Takes a bare positive integer for a cursor of an older system. It names no ID space: use this
    /// only while such cursors are still about.
    #[must_use]
    pub const fn legacy_integers(mut self, accepted: bool) -> Self {
        self.legacy = accepted;
        self
    }

    /// The cursor of a client that has everything of `topic` up to `mark`.
    #[must_use]
    pub fn write(&self, topic: &str, mark: Mark) -> CursorText {
        let mut bytes = [0; BODY_BYTES_MAX + TAG_BYTES_MAX];
        bytes[1..13].copy_from_slice(&mark.incarnation.to_bytes());
        let position = mark.position.get().to_be_bytes();
        let body = match self.width {
            Width::Sequence => {
                bytes[0] = NARROW;
                bytes[13..21].copy_from_slice(&position[8..]);
                21
            }
            Width::Version => {
                bytes[0] = WIDE;
                bytes[13..29].copy_from_slice(&position);
                29
            }
        };
        let (tag, tag_bytes) = self.tag(topic, &bytes[..body]);
        bytes[body..body + tag_bytes].copy_from_slice(&tag[..tag_bytes]);
        let mut chars = [0; CURSOR_CHARS_MAX];
        let len = URL_SAFE_NO_PAD
            .encode_slice(&bytes[..body + tag_bytes], &mut chars)
            .expect("the longest cursor has 60 characters");
        CursorText { chars, len: u8::try_from(len).expect("at most 60") }
    }

    /// Reads one cursor. Whatever is not exactly what [`CursorCodec::write`] gave is unreadable.
    #[must_use]
    pub fn read(&self, topic: &str, text: &str) -> Claim {
        if self.legacy && text.bytes().next().is_some_and(|b| b.is_ascii_digit()) && text.len() < 20 {
            return legacy(text);
        }
        self.mark(topic, text).map_or(Claim::Unreadable, Claim::Cursor)
    }

    fn mark(&self, topic: &str, text: &str) -> Option<Mark> {
        if text.len() > CURSOR_CHARS_MAX {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let body = match (bytes.first()?, self.width) {
            (&NARROW, Width::Sequence) => 21,
            (&WIDE, Width::Version) => 29,
            _ => return None,
        };
        let (tag, tag_bytes) = self.tag(topic, bytes.get(..body)?);
        if bytes.len() != body + tag_bytes || !same(&bytes[body..], &tag[..tag_bytes]) {
            return None;
        }
        let incarnation = Incarnation::from_bytes(bytes[1..13].try_into().ok()?);
        let bits = bytes[13..body].iter().fold(0, |bits, byte| bits << 8 | u128::from(*byte));
        Some(Mark { incarnation, position: Position::from_bits(bits) })
    }

    fn tag(&self, topic: &str, body: &[u8]) -> ([u8; TAG_BYTES_MAX], usize) {
        let lengths = [topic.len() as u64, self.tenant.len() as u64].map(u64::to_be_bytes);
        let parts = [&lengths[0][..], topic.as_bytes(), &lengths[1][..], self.tenant.as_bytes(), body];
        let mut tag = [0; TAG_BYTES_MAX];
        let Some(mac) = &self.mac else {
            let mut crc = crc32fast::Hasher::new();
            parts.iter().for_each(|part| crc.update(part));
            tag[..4].copy_from_slice(&crc.finalize().to_be_bytes());
            return (tag, 4);
        };
        let mut mac = mac.clone();
        parts.iter().for_each(|part| mac.update(part));
        tag.copy_from_slice(&mac.finalize().into_bytes()[..TAG_BYTES_MAX]);
        (tag, TAG_BYTES_MAX)
    }
}

/// A positive integer in its shortest form that fits in 63 bits, as the older systems write it.
fn legacy(text: &str) -> Claim {
    match text.parse::<i64>() {
        Ok(value) if value > 0 && !text.starts_with('0') => {
            Claim::Legacy(Position::sequence(value.unsigned_abs()))
        }
        Ok(_) | Err(_) => Claim::Unreadable,
    }
}

/// Compares all bytes whatever they are, so that time tells nothing of a keyed tag.
fn same(a: &[u8], b: &[u8]) -> bool {
    a.len() == b.len() && a.iter().zip(b).fold(0, |differ, (x, y)| differ | (x ^ y)) == 0
}

/// The ID that a client sent: nothing, or one or several cursors.
///
/// Cursors find their topics by their tags, so their order does not matter. An ID that holds anything
/// unreadable gives every topic without a cursor of its own the claim [`Claim::Unreadable`]: such a
/// topic may be the one whose cursor was spoilt, and must not start afresh.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CursorSet {
    claims: Vec<Option<Claim>>,
}

impl CursorSet {
    /// Reads an ID for the topics of one stream. `None` or empty text gives no claim for any.
    #[must_use]
    pub fn read(codec: &CursorCodec, topics: &[&str], id: Option<&str>) -> Self {
        let Some(id) = id.filter(|id| !id.is_empty()) else {
            return Self { claims: topics.iter().map(|_| None).collect() };
        };
        let too_many = id.len() > ID_CHARS_MAX || id.bytes().filter(|b| *b == b'.').count() >= CURSORS_MAX;
        if too_many || topics.len() > CURSORS_MAX {
            return Self { claims: topics.iter().map(|_| Some(Claim::Unreadable)).collect() };
        }
        let mut claims: Vec<Option<Claim>> = topics.iter().map(|_| None).collect();
        let mut spoilt = false;
        for text in id.split('.') {
            let found = topics.iter().enumerate().find_map(|(i, topic)| match codec.read(topic, text) {
                Claim::Unreadable => None,
                claim @ (Claim::Cursor(_) | Claim::Legacy(_)) => Some((i, claim)),
            });
            match found {
                // A bare integer fits any topic: only a stream of one topic can carry it.
                Some((_, Claim::Legacy(_))) if topics.len() > 1 => spoilt = true,
                Some((i, claim)) if claims[i].is_none() => claims[i] = Some(claim),
                Some((i, _)) => claims[i] = Some(Claim::Unreadable),
                None => spoilt = true,
            }
        }
        if spoilt {
            claims
                .iter_mut()
                .filter(|claim| claim.is_none())
                .for_each(|claim| *claim = Some(Claim::Unreadable));
        }
        Self { claims }
    }

    /// The claim for the topic at this place of the list given to [`CursorSet::read`]; `None` means
    /// that the client has no position there.
    #[must_use]
    pub fn claim(&self, index: usize) -> Option<Claim> {
        self.claims.get(index).copied().flatten()
    }
}

/// Stands in an ID for the topics that have no position yet. It is no cursor, so a client that brings it
/// back is told to synchronise; were it left out, such a topic would start afresh, and what it missed
/// would never be told.
const PENDING: &str = "-";

/// Joins the cursors of a stream's topics into one ID, which speaks for each of them. Empty if no topic
/// has a position.
#[must_use]
pub fn join<'a>(cursors: impl IntoIterator<Item = Option<&'a CursorText>>) -> String {
    let (mut id, mut positioned) = (String::new(), false);
    for cursor in cursors {
        if !id.is_empty() {
            id.push('.');
        }
        id.push_str(cursor.map_or(PENDING, CursorText::as_str));
        positioned |= cursor.is_some();
    }
    if positioned { id } else { String::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(position: Position) -> Mark {
        Mark { incarnation: Incarnation { counter: 1, nonce: *b"nonce  8" }, position }
    }

    #[test]
    fn the_four_lengths() {
        let open = CursorCodec::open("");
        let keyed = CursorCodec::keyed("", [1; 32]);
        let mark = mark(Position::sequence(1));
        let len = |codec: &CursorCodec| codec.write("t", mark).as_str().len();
        assert_eq!((len(&open), len(&keyed)), (34, 50));
        assert_eq!((len(&open.width(Width::Version)), len(&keyed.width(Width::Version))), (44, 60));
    }

    #[test]
    fn what_was_written_is_read_and_nothing_else() {
        for codec in [CursorCodec::open("x"), CursorCodec::keyed("x", [3; 32]).width(Width::Version)] {
            let mark = mark(Position::sequence(u64::MAX));
            let text = codec.write("topic", mark);
            assert_eq!(codec.read("topic", text.as_str()), Claim::Cursor(mark));
            for i in 0..text.as_str().len() {
                for with in [b'A', b'z', b'9', b'_', b' ', b'.'] {
                    let mut bytes = text.as_str().as_bytes().to_vec();
                    if bytes[i] != with {
                        bytes[i] = with;
                        let changed = String::from_utf8(bytes).unwrap();
                        assert_eq!(codec.read("topic", &changed), Claim::Unreadable, "{changed}");
                    }
                }
            }
            assert_eq!(codec.read("topic", &text.as_str()[1..]), Claim::Unreadable);
        }
    }

    #[test]
    fn a_tag_binds_topic_tenant_width_and_key() {
        let codec = CursorCodec::keyed("a", [1; 32]);
        let text = codec.write("t", mark(Position::sequence(1)));
        for other in [
            CursorCodec::keyed("b", [1; 32]),
            CursorCodec::keyed("a", [2; 32]),
            CursorCodec::open("a"),
            CursorCodec::keyed("a", [1; 32]).width(Width::Version),
        ] {
            assert_eq!(other.read("t", text.as_str()), Claim::Unreadable);
        }
        assert_eq!(codec.read("u", text.as_str()), Claim::Unreadable);
        // The lengths keep one name from running into the next.
        let first = CursorCodec::open("bc").write("a", mark(Position::sequence(1)));
        assert_eq!(CursorCodec::open("c").read("ab", first.as_str()), Claim::Unreadable);
    }

    #[test]
    fn integers_count_only_where_they_are_accepted() {
        let strict = CursorCodec::open("");
        let lenient = CursorCodec::open("").legacy_integers(true);
        assert_eq!(strict.read("t", "2"), Claim::Unreadable);
        assert_eq!(lenient.read("t", "2"), Claim::Legacy(Position::sequence(2)));
        for text in ["0", "-1", " 2", "2 ", "\"2\"", "abc", "+2", "02", "9223372036854775808", ""] {
            assert_eq!(lenient.read("t", text), Claim::Unreadable, "{text:?}");
        }
    }

    #[test]
    fn several_cursors_find_their_topics_in_any_order() {
        let codec = CursorCodec::open("");
        let (a, b) = (mark(Position::sequence(1)), mark(Position::sequence(2)));
        let id = join([Some(&codec.write("b", b)), Some(&codec.write("a", a))]);
        let set = CursorSet::read(&codec, &["a", "b", "new"], Some(&id));
        assert_eq!(set.claim(0), Some(Claim::Cursor(a)));
        assert_eq!(set.claim(1), Some(Claim::Cursor(b)));
        assert_eq!(set.claim(2), None, "a topic that was added starts as asked");
    }

    #[test]
    fn a_spoilt_cursor_never_starts_afresh() {
        let codec = CursorCodec::open("");
        let id = alloc::format!("{}.rubbish", codec.write("a", mark(Position::sequence(1))));
        let set = CursorSet::read(&codec, &["a", "b"], Some(&id));
        assert!(matches!(set.claim(0), Some(Claim::Cursor(_))));
        assert_eq!(set.claim(1), Some(Claim::Unreadable));
    }

    #[test]
    fn no_id_is_no_claim_and_too_many_are_unreadable() {
        let codec = CursorCodec::open("");
        assert_eq!(CursorSet::read(&codec, &["a"], None).claim(0), None);
        assert_eq!(CursorSet::read(&codec, &["a"], Some("")).claim(0), None);
        let one = codec.write("a", mark(Position::sequence(1)));
        let id = join([Some(&one); CURSORS_MAX + 1]);
        assert_eq!(CursorSet::read(&codec, &["a"], Some(&id)).claim(0), Some(Claim::Unreadable));
        let twice = join([Some(&one); 2]);
        assert_eq!(CursorSet::read(&codec, &["a"], Some(&twice)).claim(0), Some(Claim::Unreadable));
    }

    #[test]
    fn an_id_speaks_for_topics_without_a_position() {
        let codec = CursorCodec::open("");
        let a = mark(Position::sequence(3));
        let id = join([None, Some(&codec.write("a", a))]);
        let claims = CursorSet::read(&codec, &["b", "a"], Some(&id));
        assert_eq!((claims.claim(0), claims.claim(1)), (Some(Claim::Unreadable), Some(Claim::Cursor(a))));
        assert_eq!(join([None, None]), "");
    }
}
