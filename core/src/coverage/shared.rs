//! What the parts of a hub share: its configuration, the time, its deadlines and its outputs.

use super::api::{Command, Event, PublishId, SubscriberId, SubscriptionId};
use super::config::HubConfig;
use super::decide::Reason;
use super::position::Mark;
use super::report::{Counters, count};
use super::topic_name::TopicName;
use crate::machine::{Deadlines, Out};
use crate::seed::Seed;
use crate::time::Now;

/// A topic with a state; never used again for another one.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) struct TopicId(pub(super) u64);

/// What a topic waits for.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(super) enum Due {
    /// Nothing heard for one period: ask.
    Heartbeat,
    /// Nothing heard for three.
    Silence,
    /// A resume has waited long enough.
    Settle,
    /// What our own publishes were answered has had time enough to come.
    Owed,
    /// A lost subscription is asked for again.
    Resubscribe,
    /// A subscription without subscribers ends.
    Linger,
    /// A topic of our own is forgotten.
    Idle,
}

/// What a command was for.
#[derive(Debug)]
pub(super) enum Purpose {
    /// A run of the position script, begun while this subscription was confirmed and this was seen.
    Position(TopicId, Option<SubscriptionId>, Option<Mark>),
    Publish(Option<TopicId>, PublishId),
    History(TopicId, SubscriberId, Reason),
}

pub(super) struct Shared {
    pub(super) now: Now,
    pub(super) config: HubConfig,
    pub(super) due: Deadlines<(Due, TopicId)>,
    pub(super) out: Out<Purpose, Command, Event>,
    pub(super) counters: Counters,
    pub(super) lingering: usize,
    seed: Seed,
    numbers: u64,
}

impl Shared {
    pub(super) fn new(config: HubConfig, out: Out<Purpose, Command, Event>, seed: Seed, now: Now) -> Self {
        Self {
            now,
            config,
            due: Deadlines::default(),
            out,
            counters: Counters::default(),
            lingering: 0,
            seed,
            numbers: 0,
        }
    }

    /// A number that was not given out before.
    pub(super) const fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Eight random bytes that were not given out before.
    pub(super) fn nonce(&mut self) -> [u8; 8] {
        let number = self.number();
        self.seed.bytes("incarnation", number)
    }

    /// Sixteen random bytes as a token.
    pub(super) fn token(&mut self) -> [u8; 16] {
        let number = self.number();
        self.seed.bytes("token", number)
    }

    /// The period of heartbeats, a little longer by chance, so that instances do not ask all at once.
    pub(super) fn heartbeat_ms(&mut self) -> u64 {
        let number = self.number();
        let period = self.config.times.heartbeat_ms;
        period.saturating_add(self.seed.number("jitter", number) % (period / 4).max(1))
    }

    /// How long nothing may be heard.
    pub(super) const fn silence_ms(&self) -> u64 {
        self.config.times.heartbeat_ms.saturating_mul(3)
    }

    pub(super) fn arm(&mut self, due: Due, topic: TopicId, ms: u64) {
        self.due.arm((due, topic), self.now.mono.after_ms(ms));
    }

    /// Counts and reports a refused resume.
    pub(super) fn refused(&mut self, topic: &TopicName, reason: Reason) {
        count(&mut self.counters.refused, reason);
        self.out.event(Event::Refused { topic: topic.clone(), reason });
    }
}
