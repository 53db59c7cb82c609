//! The stream of one subscriber.

use crate::handle::HubHandle;
use crate::shard::Shard;
use futures::Stream;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use strandline_core::coverage::{CursorText, Item, Mark, SubscriberId, TopicName, join};

/// One item with its topic.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Delivery {
    /// Which of the stream's topics.
    pub topic: TopicName,
    /// What it is given.
    pub item: Item,
}

struct Part {
    topic: TopicName,
    shard: usize,
    subscriber: SubscriberId,
    cursor: Option<CursorText>,
    closed: bool,
}

/// The stream of one subscriber over one or several topics: events, gaps that were told and filled, and
/// word that it must synchronise. It ends when the hub is closed.
///
/// A subscriber that does not poll is never waited for, and costs the others nothing. Dropping the
/// stream unsubscribes; dropping a future that waits for its next item loses no item.
#[must_use = "a stream does nothing unless polled"]
pub struct Subscription {
    handle: HubHandle,
    parts: Vec<Part>,
    /// Where polling goes on, so that a hot topic does not starve the others.
    turn: usize,
    permit: u64,
}

impl Subscription {
    pub(crate) const fn new(handle: HubHandle, permit: u64) -> Self {
        Self { handle, parts: Vec::new(), turn: 0, permit }
    }

    pub(crate) fn push(&mut self, topic: TopicName, shard: usize, subscriber: SubscriberId) {
        self.parts.push(Part { topic, shard, subscriber, cursor: None, closed: false });
    }

    /// The ID of the stream after the last item it gave: what a client brings back. It speaks for every
    /// topic: one without a position is refused then. Empty before there is any position; a client must
    /// never be sent an empty one.
    #[must_use]
    pub fn id(&self) -> String {
        join(self.parts.iter().map(|part| part.cursor.as_ref()))
    }

    /// Whether every topic has a position.
    #[must_use]
    pub fn is_positioned(&self) -> bool {
        self.parts.iter().all(|part| part.cursor.is_some())
    }

    /// Takes what waits, without waiting.
    pub fn try_next(&mut self) -> Option<Delivery> {
        let count = self.parts.len();
        for step in 0..count {
            let index = (self.turn + step) % count;
            if self.parts[index].closed {
                continue;
            }
            let shard = self.handle.shard(self.parts[index].shard);
            let item = shard.lock().hub.poll_item(self.parts[index].subscriber);
            if let Some(item) = item {
                return Some(self.took(index, item));
            }
        }
        None
    }

    fn took(&mut self, index: usize, item: Item) -> Delivery {
        self.turn = index + 1;
        let write = |mark: Mark, part: &Part| self.handle.codec().write(part.topic.as_str(), mark);
        let part = &self.parts[index];
        let cursor = match &item {
            Item::Opened(opened) => opened.from.map(|mark| write(mark, part)),
            Item::Event { entry, .. } => Some(entry.cursor),
            Item::SyncRequired { at, .. } => Some(write(*at, part)),
            Item::Gap { .. } | Item::Stale { .. } | Item::Closed => None,
        };
        let part = &mut self.parts[index];
        part.cursor = cursor.or(part.cursor);
        part.closed |= item == Item::Closed;
        Delivery { topic: part.topic.clone(), item }
    }
}

impl Stream for Subscription {
    type Item = Delivery;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Delivery>> {
        let this = &mut *self;
        let count = this.parts.len();
        for step in 0..count {
            let index = (this.turn + step) % count;
            let part = &this.parts[index];
            if part.closed {
                continue;
            }
            let shard = this.handle.shard(part.shard);
            let mut locked = shard.lock();
            match locked.hub.poll_item(part.subscriber) {
                Some(item) => {
                    drop(locked);
                    return Poll::Ready(Some(this.took(index, item)));
                }
                // Under the lock, so that nothing can come in between.
                None => _ = locked.wakers.insert(part.subscriber, cx.waker().clone()),
            }
        }
        if this.parts.iter().all(|part| part.closed) { Poll::Ready(None) } else { Poll::Pending }
    }
}

impl Drop for Subscription {
    fn drop(&mut self) {
        for part in &self.parts {
            self.handle.unsubscribe(part.shard, part.subscriber);
        }
        self.handle.release(self.permit);
    }
}

impl std::fmt::Debug for Subscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let topics: Vec<&str> = self.parts.iter().map(|part| part.topic.as_str()).collect();
        write!(f, "Subscription({topics:?}, at {})", self.id())
    }
}

/// The shards of a handle, for whoever must outlive a borrow.
pub(crate) type Shards = Arc<[Shard]>;
