//! What is published: judged, then minted here or sent to the server.

use super::api::{
    Accepted, Command, Event, Message, Minted, Outcome, Publish, PublishError, PublishId, Publishing,
};
use super::config::Source;
use super::hub::Hub;
use super::position::Mark;
use super::shared::{Purpose, TopicId};
use super::sse;
use super::topic::Topic;
use super::topic_name::TopicName;
use crate::error::StorageFault;
use crate::time::Now;
use alloc::boxed::Box;
use alloc::string::String;

impl Hub {
    /// Publishes. A hub that mints sequences has it when this returns; over a server
    /// [`super::Event::Published`] tells how it ended, and only its outcome `Uncertain` leaves open
    /// whether it is in.
    ///
    /// # Errors
    /// [`PublishError`]: nothing was sent.
    pub fn handle_publish(
        &mut self,
        now: Now,
        topic: &TopicName,
        publish: Publish<'_>,
    ) -> Result<Publishing, PublishError> {
        self.advance(now);
        self.check(publish)?;
        match self.shared.config.source {
            Source::Minted => self.mint(topic, publish).map(Publishing::Done),
            Source::Positioned { .. } => Err(PublishError::Source),
            Source::Broker(_) => self.send(topic, publish).map(Publishing::Sent),
        }
    }

    pub(super) fn check(&self, publish: Publish<'_>) -> Result<(), PublishError> {
        if self.closed {
            return Err(PublishError::Closed);
        }
        let (max, found) =
            (self.shared.config.limits.event_bytes_max, publish.kind.len() + publish.payload.len());
        if found > max {
            return Err(PublishError::TooLarge { max, found });
        }
        if let Some(found) = publish.kind.chars().find(|c| c.is_control()) {
            return Err(PublishError::BadKind { found });
        }
        sse::reserved(publish.kind).map_or(Ok(()), |found| Err(PublishError::ReservedKind { found }))
    }

    fn mint(&mut self, topic: &TopicName, publish: Publish<'_>) -> Result<Accepted, PublishError> {
        let Some(id) = self.topic_or_new(topic) else {
            return Err(PublishError::Topics { max: self.shared.config.limits.topics_max });
        };
        let (shared, topic) = (&mut self.shared, self.topics.get_mut(&id).expect("just found or made"));
        let now = shared.now.mono;
        if let Some(mark) = publish.token.and_then(|token| topic.tokens.seen(now, token)) {
            return Ok(Accepted { mark, repeated: true });
        }
        let head = topic.head().expect("a topic of our own is covered from its start");
        let mark = Mark { position: head.position.next(), ..head };
        topic.used = now;
        let message = message(shared.now, mark, publish);
        topic.push(shared, message);
        if let Some(token) = publish.token {
            let until = now.after_ms(shared.config.times.token_ms);
            topic.tokens.remember(now, until, token, mark, shared.config.limits.tokens_max);
        }
        Ok(Accepted { mark, repeated: false })
    }

    fn send(&mut self, topic: &TopicName, publish: Publish<'_>) -> Result<PublishId, PublishError> {
        let max = self.shared.config.limits.publishes_max;
        if self.publishing >= max {
            return Err(PublishError::Busy { max });
        }
        self.publishing += 1;
        let known = self.find(topic.as_str());
        let (topic_id, seen) = (known.map(|t| t.id), known.and_then(Topic::seen));
        let shared = &mut self.shared;
        let id = PublishId(shared.number());
        let nonce = shared.nonce();
        let token = publish.token.map_or_else(|| crate::id::hex(&shared.token()), String::from);
        let (topic, kind): (_, Box<str>) = (topic.clone(), publish.kind.into());
        let (payload, at) = (publish.payload.into(), publish.at.unwrap_or(shared.now.wall));
        shared.out.command(Purpose::Publish(topic_id, id), |ticket| Command::Publish {
            ticket,
            topic,
            seen,
            nonce,
            token,
            kind,
            payload,
            at,
        });
        Ok(id)
    }

    pub(super) fn on_published(
        &mut self,
        topic: Option<TopicId>,
        id: PublishId,
        result: Result<Minted, StorageFault>,
    ) {
        self.publishing -= 1;
        let outcome = match result {
            Ok(Minted::Accepted(accepted)) => {
                if let Some(topic) = topic.and_then(|id| self.topics.get_mut(&id)) {
                    topic.on_own_publish(&mut self.shared, accepted.mark);
                }
                Outcome::Accepted(accepted)
            }
            Ok(Minted::NoSequence) => Outcome::NoSequence,
            Ok(Minted::Refused(fault)) => Outcome::Refused(fault),
            Err(fault) => Outcome::Uncertain(fault),
        };
        self.shared.out.event(Event::Published { id, outcome });
    }
}

pub(super) fn message(now: Now, mark: Mark, publish: Publish<'_>) -> Message {
    let at = publish.at.unwrap_or(now.wall);
    Message { mark, at, kind: publish.kind.into(), payload: publish.payload.into() }
}
