//! What is to be done with the subscriptions of a backend, and was not done yet.
//!
//! It is done one after the other, so a server that does not answer holds it up. Of each topic only what still
//! counts waits meanwhile: a subscription that is ended before its turn came is neither asked for nor ended.
//! So as many topics wait as the hub has, for however long.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use strandline_core::coverage::{SubscriptionId, TopicName};
use strandline_hub::{HubHandle, ShardId};
use tokio::sync::mpsc;

/// Asks for a subscription.
pub(crate) struct Begin {
    pub(crate) handle: HubHandle,
    pub(crate) shard: ShardId,
    pub(crate) id: SubscriptionId,
}

/// Ends one.
pub(crate) struct End {
    pub(crate) handle: HubHandle,
    pub(crate) id: SubscriptionId,
    /// It was silent: what comes next goes over another connection.
    pub(crate) silent: bool,
}

/// What is done next.
pub(crate) enum Order {
    /// Commands go to another server now.
    Leave(HubHandle),
    /// Of one topic: what ends, then what begins.
    Topic(TopicName, Option<End>, Option<Begin>),
}

/// Gives orders. The receiver of [`orders`] ends with the last of its clones.
#[derive(Clone)]
pub(crate) struct Orders {
    waiting: Arc<Mutex<Waiting>>,
    bell: mpsc::Sender<()>,
}

/// Takes them.
pub(crate) struct Received {
    waiting: Arc<Mutex<Waiting>>,
    bell: mpsc::Receiver<()>,
}

pub(crate) fn orders() -> (Orders, Received) {
    let (ring, bell) = mpsc::channel(1);
    let waiting = Arc::new(Mutex::new(Waiting { leave: None, topics: Newest::new() }));
    (Orders { waiting: waiting.clone(), bell: ring }, Received { waiting, bell })
}

struct Waiting {
    leave: Option<HubHandle>,
    topics: Newest<TopicName, End, Begin>,
}

fn lock(waiting: &Mutex<Waiting>) -> MutexGuard<'_, Waiting> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Orders {
    pub(crate) fn begin(&self, topic: TopicName, begin: Begin) {
        lock(&self.waiting).topics.begin(topic, begin);
        self.ring();
    }

    pub(crate) fn end(&self, topic: TopicName, end: End) {
        let id = end.id;
        lock(&self.waiting).topics.end(topic, end, |begin| begin.id == id);
        self.ring();
    }

    pub(crate) fn leave(&self, handle: HubHandle) {
        lock(&self.waiting).leave = Some(handle);
        self.ring();
    }

    fn ring(&self) {
        // Full: it rings already. Closed: the runtime has ended.
        let _ = self.bell.try_send(());
    }
}

impl Received {
    /// The next order; `None` once nobody can give one any more.
    ///
    /// Dropping the future loses no order.
    pub(crate) async fn next(&mut self) -> Option<Order> {
        loop {
            if let Some(order) = self.take() {
                return Some(order);
            }
            self.bell.recv().await?;
        }
    }

    fn take(&self) -> Option<Order> {
        let mut waiting = lock(&self.waiting);
        let leave = waiting.leave.take().map(Order::Leave);
        leave.or_else(|| waiting.topics.take().map(|(topic, end, begin)| Order::Topic(topic, end, begin)))
    }
}

/// By key, what ends and what begins, in the order in which keys came.
struct Newest<K, E, B> {
    slots: BTreeMap<K, (Option<E>, Option<B>)>,
    turns: VecDeque<K>,
}

impl<K: Clone + Ord, E, B> Newest<K, E, B> {
    const fn new() -> Self {
        Self { slots: BTreeMap::new(), turns: VecDeque::new() }
    }

    fn slot(&mut self, key: K) -> &mut (Option<E>, Option<B>) {
        if !self.slots.contains_key(&key) {
            self.turns.push_back(key.clone());
        }
        self.slots.entry(key).or_insert((None, None))
    }

    /// Keeps the turn of one that waits and counts no more.
    fn begin(&mut self, key: K, begin: B) {
        self.slot(key).1 = Some(begin);
    }

    /// What waits to begin and is the same never does.
    fn end(&mut self, key: K, end: E, same: impl Fn(&B) -> bool) {
        let slot = self.slot(key);
        if slot.1.as_ref().is_some_and(same) {
            slot.1 = None;
        } else {
            slot.0 = Some(end);
        }
    }

    fn take(&mut self) -> Option<(K, Option<E>, Option<B>)> {
        loop {
            let key = self.turns.pop_front()?;
            let (end, begin) = self.slots.remove(&key).unwrap_or((None, None));
            if end.is_some() || begin.is_some() {
                return Some((key, end, begin));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Bench = Newest<&'static str, u32, u32>;

    fn end(bench: &mut Bench, key: &'static str, id: u32) {
        bench.end(key, id, |begin| *begin == id);
    }

    #[test]
    fn what_never_began_is_not_ended() {
        let mut bench = Bench::new();
        bench.begin("a", 1);
        end(&mut bench, "a", 1);
        bench.begin("b", 2);
        assert_eq!(bench.take(), Some(("b", None, Some(2))));
        assert_eq!(bench.take(), None);
    }

    #[test]
    fn what_began_is_ended_before_the_newest_begins() {
        let mut bench = Bench::new();
        bench.begin("a", 1);
        assert_eq!(bench.take(), Some(("a", None, Some(1))));
        for id in 1..100 {
            end(&mut bench, "a", id);
            bench.begin("a", id + 1);
        }
        assert_eq!((bench.slots.len(), bench.turns.len()), (1, 1));
        assert_eq!(bench.take(), Some(("a", Some(1), Some(100))));
        assert_eq!(bench.take(), None);
    }

    #[test]
    fn a_topic_that_is_asked_for_again_keeps_its_turn() {
        let mut bench = Bench::new();
        bench.begin("a", 1);
        bench.begin("b", 2);
        end(&mut bench, "a", 1);
        bench.begin("a", 3);
        assert_eq!(bench.take(), Some(("a", None, Some(3))));
        assert_eq!(bench.take(), Some(("b", None, Some(2))));
    }
}
