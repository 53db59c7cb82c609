//! Positions that come from outside, as a log's versions do: what is handed in, and where it begins and ends.

use super::api::{Publish, PublishError};
use super::config::Source;
use super::hub::Hub;
use super::position::{Mark, Position};
use super::publish::message;
use super::report::LostReason;
use super::topic_name::TopicName;
use crate::time::Now;

impl Hub {
    /// Publishes at a position that comes from outside. Everything of this hub's ID space above its
    /// start must come through here, in the order of positions within each topic.
    ///
    /// # Errors
    /// [`PublishError`]: nothing has changed. [`PublishError::Source`] also between
    /// [`Hub::handle_feed_lost`] and [`Hub::handle_feed_began`].
    pub fn handle_publish_at(
        &mut self,
        now: Now,
        topic: &TopicName,
        position: Position,
        publish: Publish<'_>,
    ) -> Result<Mark, PublishError> {
        self.advance(now);
        self.check(publish)?;
        let Some(fed) = self.fed else { return Err(PublishError::Source) };
        let mark = Mark { position, ..fed };
        let Some(id) = self.topic_or_new(topic) else {
            // Nobody listens and nothing is kept; what is remembered is that it was not.
            self.feed_reached(position);
            return Ok(mark);
        };
        let (shared, topic) = (&mut self.shared, self.topics.get_mut(&id).expect("just found or made"));
        let head = topic.head().map_or(Position::ZERO, |head| head.position);
        if position <= head {
            return Err(PublishError::Position { head, found: position });
        }
        topic.used = shared.now.mono;
        let message = message(shared.now, mark, publish);
        topic.push(shared, message);
        Ok(mark)
    }

    /// Everything up to `position` was handed in, whatever its topic: cursors up to there are no longer
    /// ahead of a topic that had no event meanwhile. Lower positions change nothing.
    pub fn handle_fed(&mut self, now: Now, position: Position) {
        self.advance(now);
        self.feed_reached(position);
    }

    /// What this hub was fed from is lost: nothing is vouched for until [`Hub::handle_feed_began`].
    pub fn handle_feed_lost(&mut self, now: Now, reason: LostReason) {
        self.advance(now);
        self.fed = None;
        for topic in self.topics.values_mut() {
            topic.end(&mut self.shared, reason);
        }
    }

    /// Everything after `at` is handed in from now on. Whoever was told that nothing is vouched for is
    /// told to synchronise at it. A hub whose source is not [`Source::Positioned`] takes no notice.
    pub fn handle_feed_began(&mut self, now: Now, at: Mark) {
        self.advance(now);
        match self.shared.config.source {
            Source::Positioned { .. } => {}
            Source::Minted | Source::Broker(_) => return,
        }
        self.fed = Some(at);
        for topic in self.topics.values_mut() {
            let other = topic.head().is_some_and(|head| head.incarnation != at.incarnation);
            let reason = if other { LostReason::NewIncarnation } else { LostReason::Reset };
            topic.end(&mut self.shared, reason);
            topic.begin(&mut self.shared, at);
        }
    }

    fn feed_reached(&mut self, position: Position) {
        if let Some(fed) = &mut self.fed {
            fed.position = fed.position.max(position);
        }
    }
}
