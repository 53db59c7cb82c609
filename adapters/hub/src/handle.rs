//! The handle that tasks share.

use crate::clock::Clock;
use crate::driver::{Alarm, Driver};
use crate::shard::{Locked, Shard, Todo};
use crate::subscription::{Shards, Subscription};
use futures::StreamExt as _;
use futures::channel::oneshot;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use strandline_core::coverage::{
    Accepted, Admission, Command, Counters, CursorCodec, CursorSet, CursorText, Event, From, Hub,
    HubCompletion, HubConfig, HubLimits, Item, LostReason, Mark, Outcome, Position, Publish, PublishError,
    Publishing, Subscribe, SubscribeError, SubscriberId, SubscriptionId, TopicName, TopicStatus, Upstream,
};
use strandline_core::id::Run;
use strandline_core::machine::Machine;
use strandline_core::seed::Seed;
use strandline_core::time::{Instant, Now};

/// One of a handle's hubs. Each topic belongs to one of them.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct ShardId(pub(crate) usize);

/// Executes the commands of hubs that share a server. Called without any lock.
pub trait Backend: Send + Sync + 'static {
    /// Starts a command. Its answer comes back by [`HubHandle::complete`] or [`HubHandle::upstream`],
    /// with the same shard.
    fn start(&self, handle: &HubHandle, shard: ShardId, command: Command);
}

/// For a hub that mints its own sequences: it has no commands.
#[derive(Clone, Copy, Debug)]
pub struct NoBackend;

impl Backend for NoBackend {
    fn start(&self, _handle: &HubHandle, _shard: ShardId, command: Command) {
        unreachable!("a hub without a server wants {command:?}")
    }
}

/// Takes reports. Called without any lock, so it may use the hub.
pub type Report = Box<dyn Fn(&HubHandle, &Event) + Send + Sync>;

/// How a handle is made.
pub struct HandleOptions {
    /// Locks that topics are spread over. One hot topic holds up only those that share its lock.
    pub shards: usize,
    /// Takes reports: resumes refused, coverage lost, subscriptions ended, slow subscribers.
    pub report: Report,
}

impl Default for HandleOptions {
    fn default() -> Self {
        Self { shards: 16, report: Box::new(|_, _| {}) }
    }
}

/// Where a stream begins.
#[derive(Clone, Copy, Debug)]
pub struct Start<'a> {
    /// The ID that the client brings back, if it has one.
    pub id: Option<&'a str>,
    /// Where topics begin that it has no position of.
    pub fresh: From,
    /// Who it is, for the limit per client.
    pub client: Option<&'a str>,
}

impl<'a> Start<'a> {
    /// From now on.
    #[must_use]
    pub const fn now() -> Self {
        Self { id: None, fresh: From::Now, client: None }
    }

    /// After what the client has.
    #[must_use]
    pub const fn after(id: &'a str) -> Self {
        Self { id: Some(id), fresh: From::Now, client: None }
    }
}

struct Inner {
    shards: Shards,
    admission: Mutex<Admission>,
    permits: AtomicU64,
    closed: AtomicBool,
    clock: Clock,
    codec: CursorCodec,
    alarm: Alarm,
    backend: Box<dyn Backend>,
    report: Report,
}

/// A hub that tasks share. Cheap to clone; every method may be called from any task or thread.
#[derive(Clone)]
pub struct HubHandle {
    inner: Arc<Inner>,
}

/// A handle that keeps no hub alive: for what a hub has itself, as a connection of its backend.
#[derive(Clone)]
pub struct WeakHandle {
    inner: Weak<Inner>,
}

impl WeakHandle {
    /// The hub, if any handle, stream or driver of it is left.
    #[must_use]
    pub fn upgrade(&self) -> Option<HubHandle> {
        self.inner.upgrade().map(|inner| HubHandle { inner })
    }
}

impl std::fmt::Debug for WeakHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "WeakHandle({} handles)", self.inner.strong_count())
    }
}

impl HubHandle {
    /// Starts the hubs. The driver must be run beside them; `seed` is 32 random bytes.
    ///
    /// # Panics
    /// If `options.shards` is zero.
    pub fn new(
        config: HubConfig,
        options: HandleOptions,
        backend: impl Backend,
        run: Run,
        seed: [u8; 32],
    ) -> (Self, Driver) {
        assert!(options.shards > 0, "a handle has at least one shard");
        let clock = Clock::start();
        let limits = config.limits;
        let shards: Shards = (0..options.shards)
            .map(|shard| {
                // The totals are counted once, over all shards.
                let limits = HubLimits {
                    subscribers_max: None,
                    client_subscribers_max: None,
                    topics_max: limits.topics_max.div_ceil(options.shards),
                    ..limits
                };
                let seed = Seed::new(Seed::new(seed).bytes("shard", shard as u64));
                Shard::new(Hub::new(HubConfig { limits, ..config.clone() }, run, seed, clock.now()))
            })
            .collect();
        let inner = Inner {
            shards,
            admission: Mutex::new(Admission::new(limits.subscribers_max, limits.client_subscribers_max)),
            permits: AtomicU64::new(0),
            closed: AtomicBool::new(false),
            clock,
            codec: config.codec,
            alarm: Alarm::default(),
            backend: Box::new(backend),
            report: options.report,
        };
        let handle = Self { inner: Arc::new(inner) };
        (handle.clone(), Driver { handle })
    }

    /// A hub of this process alone, with the default bounds.
    pub fn in_process(run: Run, seed: [u8; 32]) -> (Self, Driver) {
        Self::new(HubConfig::minted(), HandleOptions::default(), NoBackend, run, seed)
    }

    /// The same hub, without keeping it.
    #[must_use]
    pub fn downgrade(&self) -> WeakHandle {
        WeakHandle { inner: Arc::downgrade(&self.inner) }
    }

    /// How cursors are read.
    #[must_use]
    pub fn codec(&self) -> &CursorCodec {
        &self.inner.codec
    }

    /// Subscribes to topics, at most [`CURSORS_MAX`](strandline_core::coverage::CURSORS_MAX) of them.
    /// Each is judged by itself.
    ///
    /// # Errors
    /// [`SubscribeError`]: nobody was subscribed.
    pub fn subscribe(&self, topics: &[TopicName], start: Start<'_>) -> Result<Subscription, SubscribeError> {
        let permit = self.inner.permits.fetch_add(1, Ordering::Relaxed);
        self.admission().admit(permit, start.client)?;
        // From here on dropping the subscription gives everything back.
        let mut subscription = Subscription::new(self.clone(), permit);
        let names: Vec<&str> = topics.iter().map(TopicName::as_str).collect();
        let claims = CursorSet::read(self.codec(), &names, start.id);
        for (index, topic) in topics.iter().enumerate() {
            let from = claims.claim(index).map_or(start.fresh, From::After);
            let shard = self.shard_of(topic);
            let subscriber =
                self.with(shard, |l, now| l.hub.handle_subscribe(now, topic, Subscribe::new(from)))?;
            subscription.push(topic.clone(), shard, subscriber);
        }
        Ok(subscription)
    }

    /// The ID that goes with a state read after this returns: a page fetches it first, then its state,
    /// then subscribes after it.
    ///
    /// Dropping the future changes nothing.
    ///
    /// # Errors
    /// [`SubscribeError`]; `Closed` also if the hub is closed meanwhile.
    pub async fn position(&self, topics: &[TopicName]) -> Result<String, SubscribeError> {
        let mut subscription = self.subscribe(topics, Start::now())?;
        while !subscription.is_positioned() {
            if subscription.next().await.is_none_or(|delivery| delivery.item == Item::Closed) {
                return Err(SubscribeError::Closed);
            }
        }
        Ok(subscription.id())
    }

    /// Publishes.
    ///
    /// Over a server, dropping the future after its first poll leaves the publish on its way; a repeat
    /// with the same token is safe.
    ///
    /// # Errors
    /// [`PublishError`]: nothing was sent. Only [`Outcome::Uncertain`] leaves open whether it is in.
    pub async fn publish(&self, topic: &TopicName, publish: Publish<'_>) -> Result<Outcome, PublishError> {
        match self.publish_now(topic, publish)? {
            Ok(accepted) => Ok(Outcome::Accepted(accepted)),
            Err(waiter) => Ok(waiter.await.expect("a hub answers every publish it took")),
        }
    }

    fn publish_now(
        &self,
        topic: &TopicName,
        publish: Publish<'_>,
    ) -> Result<Result<Accepted, oneshot::Receiver<Outcome>>, PublishError> {
        self.with(self.shard_of(topic), |locked, now| {
            Ok(match locked.hub.handle_publish(now, topic, publish)? {
                Publishing::Done(accepted) => Ok(accepted),
                Publishing::Sent(id) => {
                    let (sender, waiter) = oneshot::channel();
                    locked.publishing.insert(id, sender);
                    Err(waiter)
                }
            })
        })
    }

    /// Publishes at a position that comes from outside; see
    /// [`Hub::handle_publish_at`](strandline_core::coverage::Hub::handle_publish_at).
    ///
    /// # Errors
    /// [`PublishError`]: nothing has changed.
    pub fn publish_at(
        &self,
        topic: &TopicName,
        position: Position,
        publish: Publish<'_>,
    ) -> Result<CursorText, PublishError> {
        let mark = self.with(self.shard_of(topic), |locked, now| {
            locked.hub.handle_publish_at(now, topic, position, publish)
        })?;
        Ok(self.codec().write(topic.as_str(), mark))
    }

    /// Everything up to `position` was given to [`HubHandle::publish_at`], whatever its topic; see
    /// [`Hub::handle_fed`](strandline_core::coverage::Hub::handle_fed).
    pub fn fed(&self, position: Position) {
        self.each(|locked, now| locked.hub.handle_fed(now, position));
    }

    /// What was given to [`HubHandle::publish_at`] is lost: nothing is vouched for until
    /// [`HubHandle::feed_began`].
    pub fn feed_lost(&self, reason: LostReason) {
        self.each(|locked, now| locked.hub.handle_feed_lost(now, reason));
    }

    /// Everything after `at` will be given to [`HubHandle::publish_at`] from now on.
    pub fn feed_began(&self, at: Mark) {
        self.each(|locked, now| locked.hub.handle_feed_began(now, at));
    }

    /// Covers a topic whether anybody listens or not.
    ///
    /// # Errors
    /// As [`HubHandle::subscribe`].
    pub fn watch(&self, topic: &TopicName) -> Result<(), SubscribeError> {
        self.with(self.shard_of(topic), |locked, now| locked.hub.handle_watch(now, topic))
    }

    /// Ends all streams after what waits in them, and refuses what comes after.
    pub fn close(&self) {
        self.inner.closed.store(true, Ordering::Release);
        for shard in 0..self.inner.shards.len() {
            self.with(shard, |locked, now| locked.hub.handle_close(now));
        }
        self.inner.alarm.ring();
    }

    /// Whether [`HubHandle::close`] was called.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.inner.closed.load(Ordering::Acquire)
    }

    /// Streams that are open.
    #[must_use]
    pub fn streams(&self) -> usize {
        self.admission().held()
    }

    /// The topics that have a state, by name.
    #[must_use]
    pub fn topics(&self) -> Vec<TopicStatus> {
        let mut all: Vec<TopicStatus> = self
            .inner
            .shards
            .iter()
            .flat_map(|shard| shard.lock().hub.topics().collect::<Vec<_>>())
            .collect();
        all.sort_by(|a, b| a.topic.cmp(&b.topic));
        all
    }

    /// What was counted, over all shards.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let mut sum = Counters::default();
        for shard in self.inner.shards.iter() {
            sum.add(shard.lock().hub.counters());
        }
        sum
    }

    /// Takes the answer to a command that [`Backend::start`] was given.
    pub fn complete(&self, shard: ShardId, completion: HubCompletion) {
        self.with(shard.0, |locked, now| locked.hub.handle_completion(now, completion));
    }

    /// Takes what came over a subscription at the server.
    pub fn upstream(&self, shard: ShardId, id: SubscriptionId, input: Upstream) {
        self.with(shard.0, |locked, now| locked.hub.handle_upstream(now, id, input));
    }

    pub(crate) fn now(&self) -> Now {
        self.inner.clock.now()
    }

    pub(crate) fn alarm(&self) -> &Alarm {
        &self.inner.alarm
    }

    pub(crate) fn shard(&self, shard: usize) -> &Shard {
        &self.inner.shards[shard]
    }

    /// Tells every shard the time.
    pub(crate) fn tick(&self) {
        self.each(|locked, now| locked.hub.handle_timeout(now));
    }

    /// The next deadline of all shards.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.inner.shards.iter().filter_map(|shard| shard.lock().hub.pending().deadline).min()
    }

    pub(crate) fn unsubscribe(&self, shard: usize, subscriber: SubscriberId) {
        self.with(shard, |locked, now| {
            locked.wakers.remove(&subscriber);
            locked.hub.handle_unsubscribe(now, subscriber);
        });
    }

    pub(crate) fn release(&self, permit: u64) {
        self.admission().release(permit);
    }

    fn admission(&self) -> std::sync::MutexGuard<'_, Admission> {
        self.inner.admission.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same topic always has the same shard: FNV-1a of its name.
    fn shard_of(&self, topic: &TopicName) -> usize {
        let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        let hash = topic.as_str().bytes().fold(0xcbf2_9ce4_8422_2325, step);
        usize::try_from(hash % self.inner.shards.len() as u64).expect("an index")
    }

    /// Does something to every shard, one after the other.
    fn each(&self, act: impl Fn(&mut Locked, Now)) {
        (0..self.inner.shards.len()).for_each(|shard| self.with(shard, &act));
    }

    /// Does something under the lock of a shard, then everything that follows without it.
    fn with<R>(&self, shard: usize, act: impl FnOnce(&mut Locked, Now) -> R) -> R {
        let now = self.now();
        let (result, todo) = self.shard(shard).with(|locked| act(locked, now));
        self.follow(shard, todo);
        result
    }

    fn follow(&self, shard: usize, todo: Todo) {
        todo.wakers.into_iter().for_each(std::task::Waker::wake);
        for (waiter, outcome) in todo.outcomes {
            // Whoever published may have gone.
            let _ = waiter.send(outcome);
        }
        let backend = &self.inner.backend;
        todo.commands.into_iter().for_each(|command| backend.start(self, ShardId(shard), command));
        todo.reports.iter().for_each(|report| (self.inner.report)(self, report));
        self.inner.alarm.deadline(todo.deadline);
    }
}

impl std::fmt::Debug for HubHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "HubHandle({} streams)", self.streams())
    }
}
