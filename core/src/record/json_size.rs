//! How many bytes a record takes as JSON, without writing it.
//!
//! The rules are those of Go's `encoding/json`, which the reference uses.

use super::{Record, State};

/// How a character is written inside a JSON string.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Escape {
    /// As its own UTF-8 bytes.
    Raw,
    /// As a backslash and this byte.
    Short(u8),
    /// As `\u` and four lower-case hexadecimal digits.
    Unicode(u16),
}

/// How the reference writes a character: `<`, `>` and `&` are escaped so that JSON may stand in
/// HTML, U+2028 and U+2029 so that it may stand in JavaScript; `/` and DEL are not escaped.
#[must_use]
pub const fn escape(c: char) -> Escape {
    match c {
        '"' | '\\' => Escape::Short(c as u8),
        '\u{8}' => Escape::Short(b'b'),
        '\u{c}' => Escape::Short(b'f'),
        '\n' => Escape::Short(b'n'),
        '\r' => Escape::Short(b'r'),
        '\t' => Escape::Short(b't'),
        '\0'..='\u{1f}' | '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => Escape::Unicode(c as u16),
        _ => Escape::Raw,
    }
}

/// Length of a text as a JSON string, quotes included.
#[must_use]
pub fn string_json_bytes(text: &str) -> usize {
    let written = |c: char| match escape(c) {
        Escape::Raw => c.len_utf8(),
        Escape::Short(_) => 2,
        Escape::Unicode(_) => 6,
    };
    2 + text.chars().map(written).sum::<usize>()
}

/// Length of `bytes` bytes as a JSON string of standard padded base64, quotes included.
#[must_use]
pub const fn base64_json_bytes(bytes: usize) -> usize {
    2 + bytes.div_ceil(3) * 4
}

/// Number of decimal digits.
#[must_use]
pub const fn decimal_bytes(value: u64) -> usize {
    match value.checked_ilog10() {
        Some(log) => log as usize + 1,
        None => 1,
    }
}

impl Record {
    /// Length of this record as JSON, as the reference encodes it.
    ///
    /// ```
    /// use strandline_core::record::{RecordLimits, State, Version};
    /// let limits = RecordLimits::default();
    /// let key = limits.key(b"n", b"k")?;
    /// let record = limits.record(key, State::Deleted, Version::new(1, 1), limits.authority("a")?)?;
    /// assert_eq!(record.json_bytes(), 113);
    /// # Ok::<(), strandline_core::record::RecordError>(())
    /// ```
    #[must_use]
    pub fn json_bytes(&self) -> usize {
        let blob = match self.state {
            State::Present { .. } => r#","blob_key":"#.len() + base64_json_bytes(32),
            State::Deleted => 0,
        };
        r#"{"namespace":,"logical_key":,"state":"","version":{"epoch":,"sequence":},"authority_id":}"#.len()
            + base64_json_bytes(self.key.namespace().len())
            + base64_json_bytes(self.key.logical_key().len())
            + self.state.name().len()
            + blob
            + decimal_bytes(self.version.epoch)
            + decimal_bytes(self.version.sequence)
            + string_json_bytes(self.authority.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_measured_in_digits() {
        for (value, digits) in [(0, 1), (9, 1), (10, 2), (99, 2), (100, 3), (u64::MAX, 20)] {
            assert_eq!(decimal_bytes(value), digits, "{value}");
        }
    }

    #[test]
    fn base64_is_padded_to_groups_of_four() {
        for (bytes, written) in [(0, 2), (1, 6), (2, 6), (3, 6), (4, 10), (32, 46)] {
            assert_eq!(base64_json_bytes(bytes), written, "{bytes}");
        }
    }

    #[test]
    fn html_characters_and_line_separators_take_six_bytes() {
        for text in ["<", ">", "&", "\u{2028}", "\u{2029}", "\u{1}", "\0"] {
            assert_eq!(string_json_bytes(text), 8, "{text:?}");
        }
    }

    #[test]
    fn short_escapes_take_two_bytes() {
        for text in ["\"", "\\", "\u{8}", "\u{c}", "\n", "\r", "\t"] {
            assert_eq!(string_json_bytes(text), 4, "{text:?}");
        }
    }

    #[test]
    fn solidus_del_and_other_characters_are_raw() {
        for (text, bytes) in [("/", 3), ("\u{7f}", 3), ("\u{e9}", 4), ("\u{1f41d}", 6)] {
            assert_eq!(string_json_bytes(text), bytes, "{text:?}");
        }
    }
}
