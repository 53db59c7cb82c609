//! Strict reading of JSON: any field order, white space allowed, and nothing else that a writer of
//! ours or of the reference does not write.
//!
//! Objects are read by hand-written visitors over `serde_json`: a derive takes an array for an object
//! and a `null` for an absent value, and a tree of values hides duplicate names. One visitor
//! ([`object`]) holds the rules; each message lists its fields.

pub mod base64;
pub mod object;
pub mod record;
pub mod refusal;
pub mod scalar;

pub(crate) use object::json_object;
pub use object::{Field, Names, Object, read_object};
pub use record::RecordObject;
pub use refusal::Refusal;
pub use scalar::{Filled, FromJson, List, Seed};

use alloc::string::{String, ToString as _};
use core::cell::Cell;
use core::fmt;
use serde::de;

/// Why a text is not the JSON expected.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("{detail}")]
pub struct JsonFault {
    /// What was expected, what was found, and where.
    pub detail: String,
    /// The leniency refused, if the reference may have accepted the text.
    pub refusal: Option<Refusal>,
    /// How far the text was what was expected.
    pub kind: JsonFaultKind,
}

/// How far a refused text was what was expected.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum JsonFaultKind {
    /// It is not a value of the kind expected.
    Malformed,
    /// The value was read, and something follows it.
    Trailing,
    /// A list has more than this many elements; the rest was not read.
    TooMany {
        /// The limit.
        count_max: u32,
    },
}

/// What a text is read under; carries what `serde`'s errors, which are only texts, cannot.
#[derive(Debug)]
pub struct Context {
    list_max: u32,
    refusal: Cell<Option<Refusal>>,
    kind: Cell<JsonFaultKind>,
}

impl Context {
    /// Lists may have `list_max` elements.
    #[must_use]
    pub const fn new(list_max: u32) -> Self {
        Self { list_max, refusal: Cell::new(None), kind: Cell::new(JsonFaultKind::Malformed) }
    }

    /// An error that names the leniency refused. The first one stays.
    pub fn refuse<E: de::Error>(&self, refusal: Refusal, detail: impl fmt::Display) -> E {
        if self.refusal.get().is_none() {
            self.refusal.set(Some(refusal));
        }
        E::custom(detail)
    }

    /// An error that says that a list is longer than it may be.
    fn too_many<E: de::Error>(&self) -> E {
        self.kind.set(JsonFaultKind::TooMany { count_max: self.list_max });
        E::custom(format_args!("list has more than {} elements", self.list_max))
    }

    fn fault(&self, text: &str, error: &serde_json::Error) -> JsonFault {
        let surrogate = || has_lone_surrogate(text).then_some(Refusal::LoneSurrogate);
        JsonFault {
            detail: error.to_string(),
            refusal: self.refusal.get().or_else(surrogate),
            kind: self.kind.get(),
        }
    }
}

/// Judges the bytes of a whole payload: they are UTF-8.
fn as_text(payload: &[u8]) -> Result<&str, JsonFault> {
    core::str::from_utf8(payload).map_err(|error| JsonFault {
        detail: alloc::format!("not UTF-8 after the first {} bytes", error.valid_up_to()),
        refusal: Some(Refusal::InvalidUtf8),
        kind: JsonFaultKind::Malformed,
    })
}

/// Whether a string in `text` holds an escaped half of a surrogate pair. Only asked about texts that
/// were refused already.
fn has_lone_surrogate(text: &str) -> bool {
    let mut rest = text.as_bytes();
    let mut high = false;
    loop {
        let (unit, skip) = match rest {
            [] => return high,
            [b'\\', b'u', digits @ ..] if digits.len() >= 4 => (hex_unit(&digits[..4]), 6),
            [b'\\', _, ..] => (None, 2),
            [_, ..] => (None, 1),
        };
        match (high, unit) {
            (false, Some(0xdc00..=0xdfff)) => return true,
            (false, Some(0xd800..=0xdbff)) => high = true,
            (true, Some(0xdc00..=0xdfff)) => high = false,
            (true, _) => return true,
            (false, _) => {}
        }
        rest = &rest[skip.min(rest.len())..];
    }
}

fn hex_unit(digits: &[u8]) -> Option<u16> {
    u16::from_str_radix(core::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lone_surrogates_are_found_and_pairs_are_not() {
        for (text, lone) in [
            (r#""\ud83d""#, true),
            (r#""\ud83d\ud83d""#, true),
            (r#""\ud83dA""#, true),
            (r#""\udc1d""#, true),
            (r#""\ud83d\udc1d""#, false),
            (r#""\uD83D\uDC1D""#, false),
            (r#""\\ud83d""#, false),
            (r#""\u00e9\n""#, false),
            (r#""\ud83"#, false),
        ] {
            assert_eq!(has_lone_surrogate(text), lone, "{text}");
        }
    }
}
