//! The keys and channels of a topic. Those of one topic share a hash tag, so that a cluster keeps them
//! together; a topic's name holds no braces.

use strandline_core::coverage::TopicName;
use strandline_core::error::{Classified, Family};

/// Longest namespace, in bytes.
const NAMESPACE_BYTES_MAX: usize = 64;

/// A namespace that cannot be one.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("expected a namespace of 1 to {NAMESPACE_BYTES_MAX} letters, digits, '-' and '_', found {found:?}")]
pub struct BadNamespace {
    /// What was given, cut.
    pub found: String,
}

impl Classified for BadNamespace {
    const FAMILY: Family = Family::Caller;
}

/// The names of one installation. Installations on one server hear nothing of each other if their
/// namespaces differ; channels are not separated by database number.
#[derive(Clone, Debug)]
pub struct HubNames {
    prefix: String,
}

impl HubNames {
    /// The names in a namespace.
    ///
    /// # Errors
    /// [`BadNamespace`].
    pub fn new(namespace: &str) -> Result<Self, BadNamespace> {
        let fits = !namespace.is_empty()
            && namespace.len() <= NAMESPACE_BYTES_MAX
            && namespace.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
        if !fits {
            return Err(BadNamespace { found: namespace.chars().take(NAMESPACE_BYTES_MAX).collect() });
        }
        Ok(Self { prefix: format!("strandline:hub:{namespace}:") })
    }

    /// The hash of incarnation and sequence.
    #[must_use]
    pub fn state(&self, topic: &TopicName) -> String {
        format!("{}{{{topic}}}:state", self.prefix)
    }

    /// The channel.
    #[must_use]
    pub fn channel(&self, topic: &TopicName) -> String {
        format!("{}{{{topic}}}:live", self.prefix)
    }

    /// The stream of the events that are kept for those who come back late.
    #[must_use]
    pub fn history(&self, topic: &TopicName) -> String {
        format!("{}{{{topic}}}:history", self.prefix)
    }

    /// The record of one publish.
    #[must_use]
    pub fn token(&self, topic: &TopicName, token: &str) -> String {
        format!("{}{{{topic}}}:token:{token}", self.prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_a_topic_share_its_tag() {
        let names = HubNames::new("prod-1").unwrap();
        let topic = TopicName::parse("orders:7").unwrap();
        assert_eq!(names.state(&topic), "strandline:hub:prod-1:{orders:7}:state");
        assert_eq!(names.channel(&topic), "strandline:hub:prod-1:{orders:7}:live");
        assert_eq!(names.history(&topic), "strandline:hub:prod-1:{orders:7}:history");
        assert_eq!(names.token(&topic, "k"), "strandline:hub:prod-1:{orders:7}:token:k");
    }

    #[test]
    fn namespaces_that_are_none() {
        for bad in ["", " ", "a:b", "{a}", &"x".repeat(65)] {
            assert!(HubNames::new(bad).is_err(), "{bad:?}");
        }
    }
}
