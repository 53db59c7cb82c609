//! Which events a reader or group is shown: all, those of one topic, or those whose topic matches.

use super::error::{CallerError, Setting};
use super::event::Event;
use super::limits::PATTERN_BYTES_MAX;
use alloc::string::{String, ToString as _};
use regex::{Regex, RegexBuilder};

/// A filter on topics. It is applied where events are taken, never by the server.
#[derive(Clone, Debug)]
pub enum Filter {
    /// Every event.
    All,
    /// Events with exactly this topic.
    Topic(String),
    /// Events whose topic the pattern matches somewhere.
    Pattern(Pattern),
}

/// A compiled regular expression over topics.
#[derive(Clone, Debug)]
pub struct Pattern(Regex);

impl Filter {
    /// A filter by pattern.
    ///
    /// # Errors
    /// `InvalidOption` for text that is no regular expression or compiles to more than 1 MiB.
    pub fn pattern(text: &str) -> Result<Self, CallerError> {
        RegexBuilder::new(text)
            .size_limit(PATTERN_BYTES_MAX)
            .build()
            .map(|regex| Self::Pattern(Pattern(regex)))
            .map_err(|_| CallerError::InvalidOption { setting: Setting::Pattern })
    }

    /// Reads kind and value as a group's contract stores them; `None` for anything else.
    #[must_use]
    pub fn of_parts(kind: &str, value: &str) -> Option<Self> {
        match kind {
            "all" => Some(Self::All),
            "topic" => Some(Self::Topic(value.to_string())),
            "pattern" => Self::pattern(value).ok(),
            _ => None,
        }
    }

    /// Whether the event is shown. A topic that is not text matches no pattern.
    #[must_use]
    pub fn shows(&self, event: &Event) -> bool {
        match self {
            Self::All => true,
            Self::Topic(topic) => topic.as_bytes() == event.topic(),
            Self::Pattern(Pattern(regex)) => {
                core::str::from_utf8(event.topic()).is_ok_and(|topic| regex.is_match(topic))
            }
        }
    }

    /// Kind and value as a group's contract stores them.
    #[must_use]
    pub fn parts(&self) -> (&'static str, String) {
        match self {
            Self::All => ("all", String::new()),
            Self::Topic(topic) => ("topic", topic.clone()),
            Self::Pattern(Pattern(regex)) => ("pattern", regex.as_str().to_string()),
        }
    }
}

impl PartialEq for Filter {
    fn eq(&self, other: &Self) -> bool {
        self.parts() == other.parts()
    }
}

impl Eq for Filter {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_match_whole_patterns_anywhere() {
        let event = |topic: &str| Event::new("e", "").unwrap().with_topic(topic).unwrap();
        let topic = Filter::Topic("eu".into());
        assert!(topic.shows(&event("eu")) && !topic.shows(&event("eu.1")));
        let pattern = Filter::pattern(r"^(eu|us)\.").unwrap();
        assert!(pattern.shows(&event("us.1")) && !pattern.shows(&event("asia.us.1")));
        assert!(Filter::All.shows(&event("")));
    }

    #[test]
    fn a_pattern_must_compile_and_stay_small() {
        let refused = CallerError::InvalidOption { setting: Setting::Pattern };
        assert_eq!(Filter::pattern("(").unwrap_err(), refused);
        assert_eq!(Filter::pattern("(a{1000}){1000}").unwrap_err(), refused);
    }
}
