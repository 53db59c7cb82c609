//! One subscriber of one topic: what it has been promised and what waits for it.

use super::api::{From, How, Item, Opened};
use super::buffer::{Buffer, Entry};
use super::decide::Reason;
use super::position::{Mark, Position};
use alloc::collections::VecDeque;
use alloc::sync::Arc;

/// A stretch of the buffer that is handed out as it is asked for, without copies.
#[derive(Clone, Copy, Debug)]
pub(super) struct Backlog {
    pub(super) after: Position,
    pub(super) through: Position,
    pub(super) how: How,
    /// It begins where nothing was claimed, so a hole inside is told in its place.
    pub(super) across: bool,
    /// The last item was an event of this stretch: a break that follows lies inside what is handed out.
    inside: bool,
}

impl Backlog {
    /// What lies between a judged cursor, or a gap, and `through`.
    pub(super) const fn vouched(after: Position, through: Position, how: How) -> Self {
        Self { after, through, how, across: false, inside: false }
    }

    /// What is held after `after`, holes and all.
    pub(super) const fn held(after: Position, through: Position) -> Self {
        Self { after, through, how: How::Replayed, across: true, inside: false }
    }
}

#[derive(Debug)]
enum Queued {
    Item(Item),
    Event(Arc<Entry>, How),
    Backlog(Backlog),
    /// What did not fit, so far. Becomes a gap and a backlog when its turn comes.
    Overflow {
        after: Position,
        through: Position,
    },
}

/// Where a subscriber stands.
#[derive(Clone, Copy, Debug)]
pub(super) enum Phase {
    /// Not judged yet.
    Waiting(From),
    /// Behind the buffer: a shared history is asked for what follows this mark.
    Fetching(Mark),
    /// It is given what comes.
    Live,
    /// Told, or about to be, that nothing is vouched for; it waits for a position.
    Stale(Reason),
    /// Nothing more comes.
    Closed,
}

/// What became of a live event.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Fate {
    Queued,
    /// No room: it is part of a gap, which it begins if `first`.
    Dropped {
        first: bool,
    },
    /// The subscriber is not live.
    Ignored,
}

#[derive(Debug)]
pub(super) struct Subscriber {
    pub(super) phase: Phase,
    queue: VecDeque<Queued>,
    events: usize,
    /// The queue holds a backlog or an overflow, which eviction may overtake.
    leans: bool,
}

impl Subscriber {
    pub(super) const fn new(from: From) -> Self {
        Self { phase: Phase::Waiting(from), queue: VecDeque::new(), events: 0, leans: false }
    }

    /// Items that wait to be taken; a stretch of the buffer counts as one.
    pub(super) fn waiting(&self) -> usize {
        self.queue.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Joins the stream: what is replayed first, then what comes.
    pub(super) fn open(&mut self, opened: Opened, backlog: Option<Backlog>) {
        self.phase = Phase::Live;
        self.queue.push_back(Queued::Item(Item::Opened(opened)));
        if let Some(backlog) = backlog {
            self.leans = true;
            self.queue.push_back(Queued::Backlog(backlog));
        }
    }

    /// Joins the stream with events of a shared history before the backlog.
    pub(super) fn open_with(
        &mut self,
        opened: Opened,
        history: impl IntoIterator<Item = Arc<Entry>>,
        backlog: Backlog,
    ) {
        self.open(opened, None);
        self.queue.extend(history.into_iter().map(|entry| Queued::Event(entry, How::Replayed)));
        self.leans = true;
        self.queue.push_back(Queued::Backlog(backlog));
    }

    /// Gives it a live event. `previous` is the topic's head before it.
    pub(super) fn event(&mut self, entry: &Arc<Entry>, previous: Position, events_max: usize) -> Fate {
        match self.phase {
            Phase::Live => {}
            Phase::Waiting(_) | Phase::Fetching(_) | Phase::Stale(_) | Phase::Closed => return Fate::Ignored,
        }
        if let Some(Queued::Overflow { through, .. }) = self.queue.back_mut() {
            *through = entry.mark.position;
            return Fate::Dropped { first: false };
        }
        if self.events >= events_max {
            self.leans = true;
            self.queue.push_back(Queued::Overflow { after: previous, through: entry.mark.position });
            return Fate::Dropped { first: true };
        }
        self.events += 1;
        self.queue.push_back(Queued::Event(entry.clone(), How::Live));
        Fate::Queued
    }

    /// Tells it that coverage ended. What waits stays in front of the notice, unless it leans on a
    /// buffer that is gone: handing out what lies behind such a hole would move the client's cursor
    /// over it.
    pub(super) fn stale(&mut self, reason: Reason, buffer_kept: bool) {
        match self.phase {
            Phase::Live => {}
            Phase::Stale(_) | Phase::Closed if !buffer_kept => return self.lose_buffer(),
            Phase::Waiting(_) | Phase::Fetching(_) | Phase::Stale(_) | Phase::Closed => return,
        }
        self.phase = Phase::Stale(reason);
        // A notice that was not handed out yet covers everything behind it.
        let cut = self.queue.iter().position(|queued| match queued {
            Queued::Item(Item::Stale { .. } | Item::SyncRequired { .. }) => true,
            Queued::Backlog(_) | Queued::Overflow { .. } => !buffer_kept,
            Queued::Item(Item::Opened(_) | Item::Event { .. } | Item::Gap { .. } | Item::Closed)
            | Queued::Event(..) => false,
        });
        if let Some(cut) = cut {
            self.truncate(cut);
        }
        self.queue.push_back(Queued::Item(Item::Stale { reason }));
    }

    /// The buffer is gone: what leans on it goes with all behind, and only how the stream stands is left to
    /// tell.
    pub(super) fn lose_buffer(&mut self) {
        let leans = |queued: &Queued| matches!(queued, Queued::Backlog(_) | Queued::Overflow { .. });
        let Some(cut) = self.queue.iter().position(leans) else { return };
        self.truncate(cut);
        match self.phase {
            Phase::Stale(reason) => self.queue.push_back(Queued::Item(Item::Stale { reason })),
            Phase::Closed => self.queue.push_back(Queued::Item(Item::Closed)),
            Phase::Waiting(_) | Phase::Fetching(_) | Phase::Live => {}
        }
    }

    /// Refuses it, or tells it so again: nothing is vouched for until [`Subscriber::sync`].
    pub(super) fn refuse(&mut self, reason: Reason) {
        self.phase = Phase::Stale(reason);
        self.queue.push_back(Queued::Item(Item::Stale { reason }));
    }

    /// Goes on live after `at`, if it waits for that. Returns whether it did.
    pub(super) fn sync(&mut self, at: Mark) -> bool {
        let Phase::Stale(reason) = self.phase else { return false };
        if let Some(Queued::Item(Item::Stale { .. })) = self.queue.back() {
            self.queue.pop_back();
        }
        self.queue.push_back(Queued::Item(Item::SyncRequired { reason, at }));
        self.phase = Phase::Live;
        true
    }

    /// Ends it after what waits.
    pub(super) fn close(&mut self) {
        self.phase = Phase::Closed;
        self.queue.push_back(Queued::Item(Item::Closed));
    }

    /// Turns a backlog into a notice if eviction has overtaken it. `mark` gives the mark of a position.
    /// Returns whether one more waits now.
    pub(super) fn overtaken(&mut self, evicted_through: Position, mark: impl Fn(Position) -> Mark) -> bool {
        if !self.leans {
            return false;
        }
        let overtaken = |queued: &Queued| match queued {
            Queued::Backlog(b) => b.after < evicted_through && b.after < b.through,
            Queued::Overflow { after, .. } => *after < evicted_through,
            Queued::Item(_) | Queued::Event(..) => false,
        };
        let Some(hit) = self.queue.iter().position(overtaken) else { return false };
        // Several may be overtaken at once; one notice behind the last of them covers all.
        let last = self.queue.iter().rposition(overtaken).unwrap_or(hit);
        let through = match &self.queue[last] {
            Queued::Backlog(b) => b.through,
            Queued::Overflow { through, .. } => *through,
            Queued::Item(_) | Queued::Event(..) => {
                unreachable!("only what leans on the buffer was looked for")
            }
        };
        self.queue.drain(hit + 1..=last);
        self.queue[hit] = Queued::Item(Item::SyncRequired { reason: Reason::Evicted, at: mark(through) });
        // A later notice covers this one; it must be the only one.
        let later = self.queue.iter().skip(hit + 1).position(is_notice);
        if let Some(later) = later {
            let rest: VecDeque<Queued> = self.queue.drain(hit + 1 + later..).collect();
            self.truncate(hit);
            self.queue.extend(rest);
        }
        // So does this one an earlier one: however long a subscriber sleeps, one notice waits for it.
        let earlier = self.queue.iter().take(hit).position(is_notice);
        if let Some(earlier) = earlier {
            self.queue.drain(earlier..hit);
        }
        self.recount();
        earlier.is_none() && later.is_none()
    }

    /// The next item.
    pub(super) fn take(&mut self, buffer: &Buffer) -> Option<Item> {
        loop {
            match self.queue.front_mut()? {
                Queued::Backlog(backlog) => {
                    if let Some(item) = step(backlog, buffer) {
                        return Some(item);
                    }
                    self.queue.pop_front();
                    self.recount();
                }
                Queued::Overflow { after, through } => {
                    let (after, through) = (*after, *through);
                    self.queue[0] = Queued::Backlog(Backlog::vouched(after, through, How::Backfilled));
                    return Some(Item::Gap { after, through });
                }
                Queued::Event(..) | Queued::Item(_) => {
                    return match self.queue.pop_front()? {
                        Queued::Event(entry, how) => {
                            self.events -= usize::from(how == How::Live);
                            Some(Item::Event { entry, how })
                        }
                        Queued::Item(item) => Some(item),
                        Queued::Backlog(_) | Queued::Overflow { .. } => {
                            unreachable!("the front was looked at above")
                        }
                    };
                }
            }
        }
    }

    fn truncate(&mut self, len: usize) {
        self.queue.truncate(len);
        self.recount();
    }

    fn recount(&mut self) {
        self.events = self.queue.iter().filter(|q| matches!(q, Queued::Event(_, How::Live))).count();
        self.leans = self.queue.iter().any(|q| matches!(q, Queued::Backlog(_) | Queued::Overflow { .. }));
    }
}

fn is_notice(queued: &Queued) -> bool {
    matches!(queued, Queued::Item(Item::Stale { .. } | Item::SyncRequired { .. }))
}

/// The next item of a backlog. A hole that it crosses is told before the event behind it.
fn step(backlog: &mut Backlog, buffer: &Buffer) -> Option<Item> {
    let entry = buffer.next_after(backlog.after).filter(|e| e.mark.position <= backlog.through)?;
    if core::mem::replace(&mut backlog.inside, false) && backlog.across && entry.breaks {
        // Where only order is promised what is missing may lie behind what was handed out.
        let before = entry.mark.position.before();
        backlog.after = before;
        let at = Mark { position: before, ..entry.mark };
        return Some(Item::SyncRequired { reason: Reason::Missed, at });
    }
    (backlog.after, backlog.inside) = (entry.mark.position, true);
    Some(Item::Event { entry: entry.clone(), how: backlog.how })
}

#[cfg(test)]
mod tests {
    use super::super::buffer::BufferLimits;
    use super::super::buffer::tests::entry;
    use super::*;
    use crate::time::Instant;
    use alloc::vec::Vec;

    const LIMITS: BufferLimits = BufferLimits { events_max: 10, bytes_max: 1 << 20, age_ms_max: 1_000 };

    fn at(value: u64) -> Position {
        Position::sequence(value)
    }

    struct Bench {
        buffer: Buffer,
        subscriber: Subscriber,
        head: u64,
    }

    impl Bench {
        fn live() -> Self {
            let mut subscriber = Subscriber::new(From::Now);
            subscriber.open(Opened::default(), None);
            let mut bench = Self { buffer: Buffer::new(), subscriber, head: 0 };
            bench.all();
            bench
        }

        fn publish(&mut self, count: u64, queue: usize) {
            for _ in 0..count {
                self.head += 1;
                let entry = entry(self.head, b"x");
                self.buffer.push(Instant(0), entry.clone(), &LIMITS);
                self.subscriber.event(&entry, at(self.head - 1), queue);
                self.subscriber
                    .overtaken(self.buffer.evicted_through(), |position| Mark { position, ..entry.mark });
            }
        }

        fn all(&mut self) -> Vec<Item> {
            core::iter::from_fn(|| self.subscriber.take(&self.buffer)).collect()
        }

        fn told(&mut self) -> Vec<(char, u128)> {
            self.all()
                .iter()
                .map(|item| match item {
                    Item::Opened(_) => ('o', 0),
                    Item::Event { entry, how: How::Live } => ('e', entry.mark.position.get()),
                    Item::Event { entry, how: How::Replayed } => ('r', entry.mark.position.get()),
                    Item::Event { entry, how: How::Backfilled } => ('b', entry.mark.position.get()),
                    Item::Gap { through, .. } => ('g', through.get()),
                    Item::Stale { .. } => ('!', 0),
                    Item::SyncRequired { at, .. } => ('s', at.position.get()),
                    Item::Closed => ('c', 0),
                })
                .collect()
        }
    }

    #[test]
    fn what_does_not_fit_is_told_and_backfilled() {
        let mut bench = Bench::live();
        bench.publish(5, 3);
        assert_eq!(bench.told(), [('e', 1), ('e', 2), ('e', 3), ('g', 5), ('b', 4), ('b', 5)]);
        bench.publish(1, 3);
        assert_eq!(bench.told(), [('e', 6)]);
    }

    #[test]
    fn what_the_buffer_no_longer_holds_becomes_sync_required() {
        let mut bench = Bench::live();
        bench.publish(15, 3);
        assert_eq!(bench.told(), [('e', 1), ('e', 2), ('e', 3), ('s', 14), ('g', 15), ('b', 15)]);
        let mut bench = Bench::live();
        bench.publish(14, 3);
        assert_eq!(bench.told(), [('e', 1), ('e', 2), ('e', 3), ('s', 14)]);
    }

    #[test]
    fn what_is_overtaken_in_two_places_is_told_once_behind_both() {
        let mut bench = Bench::live();
        bench.publish(1, 3);
        bench.subscriber.open(Opened::default(), Some(Backlog::vouched(at(0), at(1), How::Replayed)));
        bench.publish(3, 2);
        bench.subscriber.overtaken(at(4), |position| Mark { position, ..entry(1, b"").mark });
        assert_eq!(bench.told(), [('e', 1), ('o', 0), ('s', 4)]);
    }

    #[test]
    fn what_a_later_notice_covers_is_not_one_more() {
        let mut bench = Bench::live();
        bench.publish(5, 3);
        let mark = |position| Mark { position, ..entry(1, b"").mark };
        bench.subscriber.stale(Reason::Missed, true);
        assert!(bench.subscriber.sync(mark(at(9))));
        assert!(!bench.subscriber.overtaken(at(4), mark));
        assert_eq!(bench.told(), [('e', 1), ('e', 2), ('e', 3), ('s', 9)]);
    }

    #[test]
    fn a_lost_buffer_takes_what_leans_on_it_and_all_behind() {
        let mut bench = Bench::live();
        bench.publish(5, 3);
        bench.subscriber.stale(Reason::Disconnected, false);
        bench.buffer.drop_all();
        assert_eq!(bench.told(), [('e', 1), ('e', 2), ('e', 3), ('!', 0)]);
    }

    #[test]
    fn a_notice_that_waits_becomes_sync_required_at_the_new_position() {
        let mut bench = Bench::live();
        bench.publish(1, 3);
        bench.subscriber.stale(Reason::Missed, true);
        assert!(bench.subscriber.sync(Mark { position: at(7), ..entry(1, b"").mark }));
        assert_eq!(bench.told(), [('e', 1), ('s', 7)]);
    }

    #[test]
    fn notices_do_not_pile_up() {
        let mut bench = Bench::live();
        for round in 0..50 {
            bench.publish(5, 3);
            bench.subscriber.stale(Reason::Missed, true);
            bench.subscriber.sync(Mark { position: at(round), ..entry(1, b"").mark });
        }
        assert!(bench.subscriber.queue.len() < 10, "{}", bench.subscriber.queue.len());
    }

    #[test]
    fn closed_comes_last() {
        let mut bench = Bench::live();
        bench.publish(1, 3);
        bench.subscriber.close();
        bench.publish(1, 3);
        assert_eq!(bench.told(), [('e', 1), ('c', 0)]);
    }

    #[test]
    fn a_sleeper_is_told_once_however_often_what_it_missed_is_overtaken() {
        let mut bench = Bench::live();
        bench.publish(1_000, 2);
        assert!(bench.subscriber.waiting() <= 4, "{} items wait", bench.subscriber.waiting());
        let told = bench.told();
        assert_eq!(told[..2], [('e', 1), ('e', 2)]);
        assert_eq!(told.iter().filter(|(what, _)| *what == 's').count(), 1, "{told:?}");
        assert_eq!(told.last().map(|(_, at)| *at), Some(1_000), "what is still held follows");
    }
}
