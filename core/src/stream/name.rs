//! Names of streams, groups and consumers: parsed once, and how they are written into keys.

use super::error::{CallerError, Setting};
use super::limits::NAME_CHARS_MAX;
use alloc::string::String;
use core::fmt;

/// The rule all names share: 1 to 512 characters, none of space, NUL, `*`, `?`, `[`, `]`.
fn check(name: &str) -> Result<(), CallerError> {
    let length = name.chars().take(NAME_CHARS_MAX + 1).count();
    let forbidden = name.chars().any(|c| matches!(c, ' ' | '\0' | '*' | '?' | '[' | ']'));
    if length == 0 || length > NAME_CHARS_MAX || forbidden {
        return Err(CallerError::InvalidOption { setting: Setting::Name });
    }
    Ok(())
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $rule:expr) => {
        $(#[$doc])*
        #[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
        pub struct $type(String);

        impl $type {
            /// Parses a name.
            ///
            /// # Errors
            /// `InvalidOption` for an empty or over-long name, or one with a character that patterns
            /// or the layouts give a meaning.
            pub fn new(name: impl Into<String>) -> Result<Self, CallerError> {
                let name = name.into();
                check(&name)?;
                let rule: fn(&str) -> bool = $rule;
                if !rule(&name) {
                    return Err(CallerError::InvalidOption { setting: Setting::Name });
                }
                Ok(Self(name))
            }

            /// The name as it was given.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

name!(
    /// The logical name of a stream; it lives through all generations.
    StreamName,
    |_| true
);
name!(
    /// The name of a consumer group. It does not begin with `=`: such fields hold the books of the
    /// Pulse layout.
    GroupName,
    |name| !name.starts_with('=')
);
name!(
    /// The identity of one consumer in its group: name and incarnation, so that a restarted worker is
    /// another consumer. It does not begin with `=`: such a name holds what is put off.
    ConsumerName,
    |name| !name.starts_with('=')
);

impl ConsumerName {
    /// Who holds what no consumer does: what was given back, or put off.
    pub(super) fn shelf() -> Self {
        Self(String::from("="))
    }
}

/// Writes a name so that no part of a key can be mistaken for another: everything but letters,
/// digits, `-`, `_`, `.` and `~` as `%XX`.
///
/// ```
/// assert_eq!(strandline_core::stream::name::escape("a:{b}%"), "a%3A%7Bb%7D%25");
/// ```
#[must_use]
pub fn escape(name: &str) -> String {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    let mut out = String::with_capacity(name.len());
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            out.push(char::from(byte));
        } else {
            out.push('%');
            out.push(char::from(HEX[usize::from(byte >> 4)]));
            out.push(char::from(HEX[usize::from(byte & 15)]));
        }
    }
    out
}

/// The inverse of [`escape`]; `None` for what it never writes.
#[must_use]
pub fn unescape(text: &str) -> Option<String> {
    let mut bytes = alloc::vec::Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte == b'%' {
            let mut digit = || char::from(rest.next()?).to_digit(16);
            let (high, low) = (digit()?, digit()?);
            bytes.push(u8::try_from(high * 16 + low).ok()?);
        } else {
            bytes.push(byte);
        }
    }
    let name = String::from_utf8(bytes).ok()?;
    (escape(&name) == text).then_some(name)
}

/// What is put between braces of a Tagged key: it decides the slot in a cluster. Never empty.
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Tag(StreamName);

impl Tag {
    /// Streams with one tag live on one node.
    #[must_use]
    pub const fn new(name: StreamName) -> Self {
        Self(name)
    }

    /// The tag as a key holds it.
    #[must_use]
    pub fn escaped(&self) -> String {
        escape(self.0.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_1_to_512_characters_and_no_patterns() {
        for bad in ["", "a b", "a*", "a?", "a[b", "a]", "n\0l"] {
            assert!(StreamName::new(bad).is_err(), "{bad:?}");
        }
        assert!(StreamName::new("ö".repeat(512)).is_ok());
        assert!(StreamName::new("x".repeat(513)).is_err());
        for good in ["a:b/c=d", "tab\tand\nnewline", "=x"] {
            assert!(StreamName::new(good).is_ok(), "{good:?}");
        }
    }

    #[test]
    fn group_names_leave_the_books_of_the_pulse_layout_alone() {
        assert!(GroupName::new("=rev").is_err() && GroupName::new("=deadline").is_err());
        assert!(GroupName::new("a=rev").is_ok());
    }

    #[test]
    fn escaped_names_come_back_and_hold_no_mark() {
        for name in ["a:b", "{a}", "100%", "ö\n", "plain-_.~"] {
            let text = escape(name);
            assert!(!text.contains([':', '{', '}']), "{text}");
            assert_eq!(unescape(&text).as_deref(), Some(name));
        }
        for never in ["%", "%4", "%zz", "%41", "a:b", "%3a"] {
            assert_eq!(unescape(never), None, "{never}");
        }
    }
}
