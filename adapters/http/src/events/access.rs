//! Who may do what: a hook of the embedder.

use axum::http::request::Parts;
use strandline_core::coverage::{Entry, TopicName};

/// What a client wants to do with a topic.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Action {
    /// Be given its events, its position, or how a cursor of it is judged.
    Subscribe,
    /// Publish to it.
    Publish,
}

/// The answer for one topic.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Access {
    /// Yes.
    Allowed,
    /// No: the status 403. An `EventSource` stops and reports an error.
    Denied,
    /// No more: the status 204, with which an `EventSource` stops quietly.
    Over,
}

/// The request comes from nobody we know: the status 401.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("expected a client that is known, found one that is not")]
pub struct Denied;

/// Finds out who asks. Called once for each request, before anything else; it must not block. What takes
/// long belongs into a layer before the router, which leaves its finding in the request's extensions.
pub trait Gate: Send + Sync + 'static {
    /// Who asks, and what it may.
    ///
    /// # Errors
    /// [`Denied`]: the request is refused.
    fn admit(&self, request: &Parts) -> Result<Box<dyn Grant>, Denied>;
}

/// What one client may. Asked for each topic of a request, and for each event before it goes out.
pub trait Grant: Send + 'static {
    /// Who it is, for the limit of streams per client. `None` counts in the total only.
    fn client(&self) -> Option<&str> {
        None
    }

    /// Whether it may do this with that topic.
    fn topic(&self, topic: &TopicName, action: Action) -> Access;

    /// Whether it may see this event, replayed or live. One that it may not see only moves its cursor,
    /// so that what it resumes from is told from what it is shown.
    fn event(&self, _topic: &TopicName, _event: &Entry) -> bool {
        true
    }
}

/// Everyone may do everything.
#[derive(Clone, Copy, Debug)]
pub struct Everyone;

impl Gate for Everyone {
    fn admit(&self, _request: &Parts) -> Result<Box<dyn Grant>, Denied> {
        Ok(Box::new(Self))
    }
}

impl Grant for Everyone {
    fn topic(&self, _topic: &TopicName, _action: Action) -> Access {
        Access::Allowed
    }
}

/// The answer for several topics: nothing is done unless all are allowed.
pub(super) fn all(grant: &dyn Grant, topics: &[TopicName], action: Action) -> Access {
    let mut over = false;
    for topic in topics {
        match grant.topic(topic, action) {
            Access::Allowed => {}
            Access::Denied => return Access::Denied,
            Access::Over => over = true,
        }
    }
    if over { Access::Over } else { Access::Allowed }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct By(fn(&str) -> Access);

    impl Grant for By {
        fn topic(&self, topic: &TopicName, _action: Action) -> Access {
            self.0(topic.as_str())
        }
    }

    #[test]
    fn one_denied_topic_denies_all_and_one_that_is_over_ends_all() {
        let topics = ["a", "b"].map(|name| TopicName::parse(name).unwrap());
        let judged = |by| all(&By(by), &topics, Action::Subscribe);
        assert_eq!(judged(|_| Access::Allowed), Access::Allowed);
        assert_eq!(judged(|t| if t == "b" { Access::Over } else { Access::Allowed }), Access::Over);
        assert_eq!(judged(|t| if t == "b" { Access::Denied } else { Access::Over }), Access::Denied);
    }
}
