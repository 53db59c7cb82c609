//! Names of topics.

use alloc::sync::Arc;
use core::borrow::Borrow;
use core::fmt;

/// Longest name of a topic, in bytes.
pub const TOPIC_BYTES_MAX: usize = 200;

/// The name of a topic: 1 to 200 bytes without control characters and braces (which a server's key
/// layout needs for itself).
#[derive(Clone, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct TopicName(Arc<str>);

/// A name that no topic can have.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("expected a topic of 1 to {TOPIC_BYTES_MAX} bytes without control characters, '{{' and '}}', found {found} bytes{bad}", bad = Bad(*.bad))]
pub struct BadTopic {
    /// How many bytes it has.
    pub found: usize,
    /// The first character that may not stand in it.
    pub bad: Option<char>,
}

impl crate::error::Classified for BadTopic {
    const FAMILY: crate::error::Family = crate::error::Family::Caller;
}

struct Bad(Option<char>);

impl fmt::Display for Bad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |c| write!(f, " with {c:?}"))
    }
}

impl TopicName {
    /// Checks a name.
    ///
    /// # Errors
    /// [`BadTopic`] says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, BadTopic> {
        let bad = text.chars().find(|c| c.is_control() || matches!(c, '{' | '}'));
        if text.is_empty() || text.len() > TOPIC_BYTES_MAX || bad.is_some() {
            return Err(BadTopic { found: text.len(), bad });
        }
        Ok(Self(text.into()))
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for TopicName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString as _;

    #[test]
    fn names_that_fit() {
        for name in ["t", "workspace:7/items", "ü", &"x".repeat(TOPIC_BYTES_MAX)] {
            assert_eq!(TopicName::parse(name).unwrap().as_str(), name);
        }
    }

    #[test]
    fn names_that_do_not() {
        for name in ["", "a\nb", "{a}", "a}", &"x".repeat(TOPIC_BYTES_MAX + 1)] {
            assert!(TopicName::parse(name).is_err(), "{name:?}");
        }
        let text = TopicName::parse("a\n").unwrap_err().to_string();
        assert!(text.ends_with("found 2 bytes with '\\n'"), "{text}");
    }
}
