//! The root: routes inputs to topics, and what they have to say to the host.

use super::admission::Admission;
use super::api::{
    Command, CommandOutcome, Event, HubCompletion, Item, Subscribe, SubscribeError, SubscriberId,
    SubscriptionId, Upstream,
};
use super::config::{HubConfig, Source};
use super::cursor::CursorCodec;
use super::decide::{Claim, Coverage, CoverageVerdict};
use super::position::{Mark, Position};
use super::report::{Counters, EndReason, LostReason};
use super::shared::{Due, Purpose, Shared, TopicId};
use super::sse::{self, Frame};
use super::subscriber::Subscriber;
use super::topic::Topic;
use super::topic_name::TopicName;
use crate::id::{Incarnation, Run};
use crate::machine::{FrameInfo, Machine, Out, Pending};
use crate::seed::Seed;
use crate::ticket::Tickets;
use crate::time::Now;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// A hub of topics: takes what is published, gives every subscriber what it has promised it, and
/// answers each cursor by one table.
///
/// A caller may unsubscribe twice, poll anybody at any time, call [`Machine::handle_timeout`] too early
/// or too late, hand in what came over an ended subscription, and answer commands in any order. A
/// command that is never answered delays only who waits for it, at most `settle_ms`.
///
/// ```
/// use strandline_core::coverage::{From, Hub, HubConfig, Item, Publish, Subscribe, TopicName};
/// use strandline_core::{id::Run, seed::Seed, time::Now};
/// let now = Now::default();
/// let mut hub = Hub::new(HubConfig::minted(), Run(1), Seed::new([7; 32]), now);
/// let topic = TopicName::parse("orders").unwrap();
/// let alice = hub.handle_subscribe(now, &topic, Subscribe::new(From::Now)).unwrap();
/// let _ = hub.handle_publish(now, &topic, Publish::new(b"one")).unwrap();
/// assert!(matches!(hub.poll_item(alice), Some(Item::Opened(_))));
/// let Some(Item::Event { entry, .. }) = hub.poll_item(alice) else { panic!("an event") };
/// hub.handle_unsubscribe(now, alice);
///
/// // She comes back with the cursor of the last event she has, and misses nothing.
/// let _ = hub.handle_publish(now, &topic, Publish::new(b"two")).unwrap();
/// let claim = hub.codec().read("orders", entry.cursor.as_str());
/// let alice = hub.handle_subscribe(now, &topic, Subscribe::new(From::After(claim))).unwrap();
/// assert!(matches!(hub.poll_item(alice), Some(Item::Opened(opened)) if opened.resumed));
/// assert!(matches!(hub.poll_item(alice), Some(Item::Event { entry, .. }) if &*entry.payload == b"two"));
/// ```
pub struct Hub {
    pub(super) shared: Shared,
    pub(super) topics: BTreeMap<TopicId, Topic>,
    names: BTreeMap<TopicName, TopicId>,
    admission: Admission,
    pub(super) publishing: usize,
    /// Where positions come from outside: up to where everything was handed in, of every topic that was
    /// forgotten at least. `None` while nothing is handed in.
    pub(super) fed: Option<Mark>,
    pub(super) closed: bool,
}

/// How a topic stands.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct TopicStatus {
    /// Its name.
    pub topic: TopicName,
    /// What is vouched for.
    pub coverage: Option<Coverage>,
    /// Events held.
    pub held_events: usize,
    /// Bytes held.
    pub held_bytes: usize,
    /// Its subscribers.
    pub subscribers: usize,
    /// Items that wait for the subscriber furthest behind; a stretch of the buffer counts as one.
    pub waiting_items: usize,
}

impl Hub {
    /// An empty hub. `run` and `seed` must differ from every start before.
    ///
    /// # Panics
    /// If `config.times.heartbeat_ms` is zero: such a hub would do nothing but ask.
    #[must_use]
    pub fn new(mut config: HubConfig, run: Run, seed: Seed, now: Now) -> Self {
        assert!(config.times.heartbeat_ms > 0, "expected a heartbeat_ms of at least 1, found 0");
        // A topic in use is looked at once in this time.
        config.times.topic_idle_ms = config.times.topic_idle_ms.max(1);
        let limits = config.limits;
        let fed = match config.source {
            Source::Positioned { incarnation, after } => Some(Mark { incarnation, position: after }),
            Source::Minted | Source::Broker(_) => None,
        };
        Self {
            shared: Shared::new(config, Out::new(Tickets::new(run)), seed, now),
            topics: BTreeMap::new(),
            names: BTreeMap::new(),
            admission: Admission::new(limits.subscribers_max, limits.client_subscribers_max),
            publishing: 0,
            fed,
            closed: false,
        }
    }

    /// How this hub's cursors are read.
    #[must_use]
    pub const fn codec(&self) -> &CursorCodec {
        &self.shared.config.codec
    }

    /// What was counted.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Whether [`Hub::handle_close`] was called.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        self.closed
    }

    /// The topics that have a state, by name.
    pub fn topics(&self) -> impl Iterator<Item = TopicStatus> + '_ {
        self.names.values().filter_map(|id| self.topics.get(id)).map(status)
    }

    /// One of them.
    #[must_use]
    pub fn topic(&self, topic: &str) -> Option<TopicStatus> {
        self.find(topic).map(status)
    }

    /// Subscribers in all.
    #[must_use]
    pub fn subscribers(&self) -> usize {
        self.admission.held()
    }

    /// What the table says to a claim from what is known here, without asking anybody and without
    /// counting. Not an answer for a client: over a server only a subscription gets one.
    pub fn peek(&self, topic: &str, claim: Claim) -> CoverageVerdict {
        match self.find(topic) {
            Some(topic) => topic.judge(claim),
            None => super::decide::decide(None, claim),
        }
    }

    /// The events that are held of a topic, oldest first.
    pub fn held(&self, topic: &str) -> impl Iterator<Item = &super::buffer::Entry> {
        self.find(topic).into_iter().flat_map(|topic| topic.buffer.iter().map(|entry| &**entry))
    }

    /// Subscribes to one topic. Judging, replay and what follows live are one step: an event is in the
    /// replay or live, never both, never neither.
    ///
    /// # Errors
    /// [`SubscribeError`] names the limit that is reached; nothing has changed then.
    pub fn handle_subscribe(
        &mut self,
        now: Now,
        topic: &TopicName,
        wish: Subscribe<'_>,
    ) -> Result<SubscriberId, SubscribeError> {
        self.advance(now);
        if self.closed {
            return Err(SubscribeError::Closed);
        }
        let taken = self.find(topic.as_str()).map_or(0, |t| t.subscribers.len());
        let max = wish.topic_subscribers_max.or(self.shared.config.limits.topic_subscribers_max);
        if let Some(max) = max.filter(|max| taken >= *max as usize) {
            return Err(SubscribeError::TopicLimit { max });
        }
        let number = self.shared.number();
        self.admission.admit(number, wish.client)?;
        let Some(id) = self.topic_or_new(topic) else {
            self.admission.release(number);
            return Err(SubscribeError::Topics { max: self.shared.config.limits.topics_max });
        };
        let subscriber = SubscriberId { topic: id, number };
        let (shared, topic) = (&mut self.shared, self.topics.get_mut(&id).expect("just found or made"));
        unlinger(shared, topic);
        topic.subscribers.insert(subscriber, Subscriber::new(wish.from));
        match shared.config.source {
            Source::Minted => topic.judge_waiting(shared, None),
            Source::Positioned { .. } => {
                topic.reach(self.fed);
                topic.judge_waiting(shared, None);
            }
            Source::Broker(_) => topic.join(shared, subscriber, wish.from),
        }
        Ok(subscriber)
    }

    /// Ends a subscriber; doing so again is harmless.
    pub fn handle_unsubscribe(&mut self, now: Now, subscriber: SubscriberId) {
        self.advance(now);
        self.admission.release(subscriber.number);
        let Some(topic) = self.topics.get_mut(&subscriber.topic) else { return };
        if topic.subscribers.remove(&subscriber).is_some() {
            self.left(subscriber.topic);
        }
    }

    /// Covers a topic whether it has subscribers or not, until [`Hub::handle_unwatch`].
    ///
    /// # Errors
    /// As [`Hub::handle_subscribe`].
    pub fn handle_watch(&mut self, now: Now, topic: &TopicName) -> Result<(), SubscribeError> {
        self.advance(now);
        if self.closed {
            return Err(SubscribeError::Closed);
        }
        let Some(id) = self.topic_or_new(topic) else {
            return Err(SubscribeError::Topics { max: self.shared.config.limits.topics_max });
        };
        let (shared, topic) = (&mut self.shared, self.topics.get_mut(&id).expect("just found or made"));
        unlinger(shared, topic);
        topic.watched = true;
        if let Source::Broker(_) = shared.config.source {
            topic.want(shared);
        }
        Ok(())
    }

    /// The opposite of [`Hub::handle_watch`].
    pub fn handle_unwatch(&mut self, now: Now, topic: &str) {
        self.advance(now);
        let Some(id) = self.names.get(topic).copied() else { return };
        if let Some(topic) = self.topics.get_mut(&id)
            && core::mem::take(&mut topic.watched)
        {
            self.left(id);
        }
    }

    /// Takes what came over a subscription at the server, in the order of its connection.
    pub fn handle_upstream(&mut self, now: Now, id: SubscriptionId, input: Upstream) {
        self.advance(now);
        match self.topics.get_mut(&id.topic) {
            Some(topic) => topic.on_upstream(&mut self.shared, id, input),
            None => self.shared.counters.ignored += 1,
        }
    }

    /// Ends the hub: every stream ends after what waits in it, and nothing is published any more.
    pub fn handle_close(&mut self, now: Now) {
        self.advance(now);
        if core::mem::replace(&mut self.closed, true) {
            return;
        }
        for topic in self.topics.values_mut() {
            topic.close(&mut self.shared);
            topic.stop(&mut self.shared, LostReason::Closed, EndReason::Closed);
        }
    }

    /// The next item of a subscriber; `None` if nothing waits or there is no such subscriber.
    #[must_use]
    pub fn poll_item(&mut self, subscriber: SubscriberId) -> Option<Item> {
        self.topics.get_mut(&subscriber.topic)?.take(&mut self.shared, subscriber)
    }

    pub(super) const fn advance(&mut self, now: Now) {
        self.shared.now = self.shared.now.latest(now);
    }

    pub(super) fn find(&self, topic: &str) -> Option<&Topic> {
        self.topics.get(self.names.get(topic)?)
    }

    pub(super) fn topic_or_new(&mut self, name: &TopicName) -> Option<TopicId> {
        if let Some(id) = self.names.get(name.as_str()) {
            return Some(*id);
        }
        if self.topics.len() >= self.shared.config.limits.topics_max {
            let unused = self.topics.values().filter(|t| t.subscribers.is_empty() && !t.watched);
            let oldest = unused.min_by_key(|t| t.used)?.id;
            self.forget(oldest, LostReason::Idle);
        }
        let shared = &mut self.shared;
        let number = shared.number();
        let id = TopicId(number);
        let mut topic = Topic::new(id, name.clone(), shared.now.mono);
        match shared.config.source {
            Source::Minted => {
                let counter = u32::try_from(number).unwrap_or(u32::MAX);
                let incarnation = Incarnation { counter, nonce: shared.nonce() };
                topic.begin(shared, Mark { incarnation, position: Position::ZERO });
            }
            Source::Positioned { .. } => {
                if let Some(fed) = self.fed {
                    topic.begin(shared, fed);
                }
            }
            Source::Broker(_) => {}
        }
        if !matches!(shared.config.source, Source::Broker(_)) {
            shared.arm(Due::Idle, id, shared.config.times.topic_idle_ms);
        }
        self.names.insert(name.clone(), id);
        self.topics.insert(id, topic);
        Some(id)
    }

    /// A topic lost its last reason to be covered, perhaps.
    fn left(&mut self, id: TopicId) {
        let Some(topic) = self.topics.get_mut(&id) else { return };
        topic.used = self.shared.now.mono;
        if !topic.subscribers.is_empty() || topic.watched || self.closed {
            return;
        }
        let Source::Broker(_) = self.shared.config.source else { return };
        let linger_ms = self.shared.config.times.linger_ms;
        if linger_ms == 0 || self.shared.lingering >= self.shared.config.limits.lingering_topics_max {
            return self.forget(id, LostReason::Stopped);
        }
        self.shared.lingering += 1;
        self.shared.arm(Due::Linger, id, linger_ms);
    }

    /// Drops a topic and all that was vouched for: it comes back as another ID space, or from the
    /// server's state.
    fn forget(&mut self, id: TopicId, reason: LostReason) {
        let Some(mut topic) = self.topics.remove(&id) else { return };
        unlinger(&mut self.shared, &topic);
        topic.stop(&mut self.shared, reason, EndReason::Stopped);
        if let (Some(fed), Some(head)) = (&mut self.fed, topic.head()) {
            fed.position = fed.position.max(head.position);
        }
        topic.end(&mut self.shared, reason);
        for due in [Due::Settle, Due::Idle] {
            self.shared.due.disarm((due, id));
        }
        self.names.remove(topic.name.as_str());
    }

    fn on_due(&mut self, due: Due, id: TopicId) {
        let Some(topic) = self.topics.get_mut(&id) else { return };
        let shared = &mut self.shared;
        match due {
            Due::Heartbeat => topic.on_heartbeat(shared),
            Due::Silence => topic.on_silence(shared),
            Due::Settle => topic.on_settled(shared),
            Due::Owed => topic.on_overdue(shared),
            Due::Resubscribe => topic.ask(shared),
            Due::Linger => {
                shared.lingering -= 1;
                self.forget(id, LostReason::Stopped);
            }
            Due::Idle => {
                let until = topic.used.after_ms(shared.config.times.topic_idle_ms);
                let in_use = !topic.subscribers.is_empty() || topic.watched;
                if in_use || self.closed {
                    shared.arm(due, id, shared.config.times.topic_idle_ms);
                } else if until > shared.now.mono {
                    shared.due.arm((due, id), until);
                } else {
                    self.forget(id, LostReason::Idle);
                }
            }
        }
    }
}

/// Takes a topic out of those that linger.
fn unlinger(shared: &mut Shared, topic: &Topic) {
    if shared.due.armed((Due::Linger, topic.id)) {
        shared.due.disarm((Due::Linger, topic.id));
        shared.lingering -= 1;
    }
}

fn status(topic: &Topic) -> TopicStatus {
    TopicStatus {
        topic: topic.name.clone(),
        coverage: topic.evidence(),
        held_events: topic.buffer.len(),
        held_bytes: topic.buffer.bytes(),
        subscribers: topic.subscribers.len(),
        waiting_items: topic.subscribers.values().map(Subscriber::waiting).max().unwrap_or(0),
    }
}

impl Machine for Hub {
    type Command = Command;
    type Event = Event;
    type Completion = HubCompletion;
    type Channel = SubscriberId;

    fn handle_completion(&mut self, now: Now, completion: HubCompletion) {
        self.advance(now);
        let Some((purpose, outcome)) = self.shared.out.tickets().settle(completion) else { return };
        match (purpose, outcome) {
            (Purpose::Position(id, begun_on, seen), CommandOutcome::Position(result)) => {
                if let Some(topic) = self.topics.get_mut(&id) {
                    topic.on_position(&mut self.shared, begun_on, seen, result);
                }
            }
            (Purpose::Publish(topic, id), CommandOutcome::Publish(result)) => {
                self.on_published(topic, id, result);
            }
            (Purpose::History(id, subscriber, reason), CommandOutcome::History(result)) => {
                if let Some(topic) = self.topics.get_mut(&id) {
                    topic.on_history(&mut self.shared, subscriber, reason, result);
                }
            }
            (purpose, outcome) => unreachable!("{outcome:?} answers no {purpose:?}"),
        }
    }

    fn handle_timeout(&mut self, now: Now) {
        self.advance(now);
        while let Some((due, topic)) = self.shared.due.expire(self.shared.now.mono) {
            self.on_due(due, topic);
        }
    }

    fn poll_command(&mut self) -> Option<Command> {
        self.shared.out.poll_command()
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.shared.out.poll_event()
    }

    /// Appends the next item as a frame of `text/event-stream` with the topic's own cursor as its ID.
    fn poll_channel(&mut self, channel: SubscriberId, buf: &mut Vec<u8>) -> Option<FrameInfo> {
        let before = buf.len();
        let topic = self.topics.get_mut(&channel.topic)?;
        let item = topic.take(&mut self.shared, channel)?;
        let mark = match &item {
            Item::Opened(opened) => opened.from,
            Item::Event { entry, .. } => Some(entry.mark),
            Item::SyncRequired { at, .. } => Some(*at),
            Item::Gap { .. } | Item::Stale { .. } | Item::Closed => None,
        };
        let cursor = mark.map(|mark| self.shared.config.codec.write(topic.name.as_str(), mark));
        let id = cursor.as_ref().map(super::cursor::CursorText::as_str);
        sse::write(&item, Frame { id, ..Frame::default() }, buf);
        Some(FrameInfo { bytes: buf.len() - before })
    }

    fn pending(&self) -> Pending {
        Pending { deadline: self.shared.due.next(), ..self.shared.out.pending() }
    }
}

impl core::fmt::Debug for Hub {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Hub({} topics, {} subscribers)", self.topics.len(), self.subscribers())
    }
}
