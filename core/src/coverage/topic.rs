//! One topic: what is vouched for, what is held, and who listens.

use super::api::{Command, Event, From, History, How, Item, Message, Opened, SubscriberId};
use super::buffer::{Buffer, Entry};
use super::config::Source;
use super::decide::{Claim, Coverage, CoverageVerdict, Reason, decide};
use super::position::{Mark, Position};
use super::report::{LostReason, count};
use super::shared::{Purpose, Shared, TopicId};
use super::subscriber::{Backlog, Fate, Phase, Subscriber};
use super::tier;
use super::tokens::Tokens;
use super::topic_name::TopicName;
use super::upstream::Link;
use crate::error::StorageFault;
use crate::id::Incarnation;
use crate::time::Instant;
use crate::verdict::Verdict;
use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

#[derive(Debug)]
pub(super) struct Topic {
    pub(super) id: TopicId,
    pub(super) name: TopicName,
    pub(super) coverage: Option<Coverage>,
    /// The head of the last coverage that ended: the server may come back with less.
    seen: Option<Mark>,
    pub(super) buffer: Buffer,
    pub(super) subscribers: BTreeMap<SubscriberId, Subscriber>,
    pub(super) tokens: Tokens,
    pub(super) link: Link,
    /// When it was last published to, or left by its last subscriber.
    pub(super) used: Instant,
    /// Kept without subscribers, because the host asked for it.
    pub(super) watched: bool,
    /// The coverage has vouched for at least one event.
    vouched: bool,
    /// The next event follows a hole in what is held.
    breaks: bool,
}

impl Topic {
    pub(super) fn new(id: TopicId, name: TopicName, used: Instant) -> Self {
        Self {
            id,
            name,
            coverage: None,
            seen: None,
            buffer: Buffer::new(),
            subscribers: BTreeMap::new(),
            tokens: Tokens::new(),
            link: Link::new(),
            used,
            watched: false,
            vouched: false,
            breaks: false,
        }
    }

    /// What is vouched for, with what eviction has taken from it.
    pub(super) fn evidence(&self) -> Option<Coverage> {
        self.coverage.map(|c| Coverage { evicted_through: self.buffer.evicted_through(), ..c })
    }

    pub(super) fn head(&self) -> Option<Mark> {
        self.coverage.map(|c| Mark { incarnation: c.incarnation, position: c.head })
    }

    /// The highest position that was ever seen here of the last ID space: a state below it was put back.
    pub(super) fn seen(&self) -> Option<Mark> {
        self.head().or(self.seen)
    }

    /// Everything up to `fed` was handed in, so the head is there at least.
    pub(super) fn reach(&mut self, fed: Option<Mark>) {
        let Some((coverage, fed)) = self.coverage.as_mut().zip(fed) else { return };
        if coverage.incarnation == fed.incarnation {
            coverage.head = coverage.head.max(fed.position);
        }
    }

    pub(super) fn judge(&self, claim: Claim) -> CoverageVerdict {
        decide(self.evidence().as_ref(), claim)
    }

    /// Coverage begins after `at`: everything above comes here from now on. What is held stays only if it
    /// lies before `at`: anything else would be handed out as what followed.
    pub(super) fn begin(&mut self, shared: &mut Shared, at: Mark) {
        let goes_on =
            self.seen().is_some_and(|s| s.incarnation == at.incarnation && s.position <= at.position);
        if !goes_on {
            self.buffer.drop_all();
            self.subscribers.values_mut().for_each(Subscriber::lose_buffer);
        }
        self.coverage = Some(Coverage {
            incarnation: at.incarnation,
            known_from: at.position.next(),
            head: at.position,
            evicted_through: Position::ZERO,
        });
        self.vouched = false;
        self.breaks = self.buffer.len() > 0;
        for (id, subscriber) in &mut self.subscribers {
            let idle = subscriber.is_empty();
            if subscriber.sync(at) {
                shared.counters.sync_required += 1;
                if idle {
                    shared.out.event(Event::Ready(*id));
                }
            }
        }
    }

    /// Coverage ends. What is held stays only where the buffer goes on in the same ID space.
    pub(super) fn end(&mut self, shared: &mut Shared, reason: LostReason) {
        self.seen = self.seen();
        if self.coverage.take().is_none() {
            return;
        }
        if core::mem::take(&mut self.vouched) {
            count(&mut shared.counters.lost, reason);
            shared.out.event(Event::CoverageLost { topic: self.name.clone(), reason });
        }
        let kept = match reason {
            // After a close nothing is pushed out any more, and streams end behind what waits in them.
            LostReason::Missed | LostReason::Behind | LostReason::OutOfOrder | LostReason::Closed => true,
            LostReason::ConnectionLost
            | LostReason::Resubscribed
            | LostReason::Silent
            | LostReason::Undecodable
            | LostReason::NewIncarnation
            | LostReason::Rewound
            | LostReason::Reset
            | LostReason::Stopped
            | LostReason::Idle => false,
        };
        if !kept {
            self.buffer.drop_all();
        }
        for (id, subscriber) in &mut self.subscribers {
            let idle = subscriber.is_empty();
            subscriber.stale(reason.reason(), kept);
            if idle && !subscriber.is_empty() {
                shared.out.event(Event::Ready(*id));
            }
        }
    }

    /// Coverage ends for what was missed and begins again right behind it.
    pub(super) fn skip(&mut self, shared: &mut Shared, reason: LostReason, missed: u64, to: Mark) {
        shared.counters.holes += 1;
        shared.counters.missed += missed;
        self.end(shared, reason);
        self.begin(shared, to);
    }

    /// Takes the next event of the coverage: into the buffer and to everyone who is live.
    pub(super) fn push(&mut self, shared: &mut Shared, message: Message) {
        let Some(coverage) = &mut self.coverage else { return };
        let previous = coverage.head;
        coverage.head = message.mark.position;
        self.vouched = true;
        let breaks = core::mem::take(&mut self.breaks);
        let entry = Arc::new(entry_of(shared, &self.name, message, breaks));
        shared.counters.published += 1;
        shared.counters.copied_bytes += (entry.kind.len() + entry.payload.len()) as u64;
        let limits = shared.config.limits;
        self.buffer.push(shared.now.mono, entry.clone(), &limits.buffer);
        for (id, subscriber) in &mut self.subscribers {
            let idle = subscriber.is_empty();
            match subscriber.event(&entry, previous, limits.queue_events_max) {
                Fate::Queued => shared.counters.queued += 1,
                Fate::Dropped { first } => {
                    shared.counters.dropped += 1;
                    if first {
                        shared.out.event(Event::Slow { subscriber: *id, topic: self.name.clone() });
                    }
                }
                Fate::Ignored => {}
            }
            if idle && !subscriber.is_empty() {
                shared.out.event(Event::Ready(*id));
            }
        }
        self.overtake(shared);
    }

    /// Lets go of what is too old.
    pub(super) fn age(&mut self, shared: &mut Shared) {
        if self.buffer.evict(shared.now.mono, &shared.config.limits.buffer) {
            self.overtake(shared);
        }
    }

    /// Tells those who leaned on what eviction took, also after the coverage of what is held has ended.
    fn overtake(&mut self, shared: &mut Shared) {
        let Some(seen) = self.seen() else { return };
        let evicted = self.buffer.evicted_through();
        let mark = |position| Mark { position, ..seen };
        for subscriber in self.subscribers.values_mut() {
            if subscriber.overtaken(evicted, mark) {
                shared.counters.sync_required += 1;
            }
        }
    }

    pub(super) fn waiting(&self) -> Vec<(SubscriberId, From)> {
        let waiting = |(id, s): (&SubscriberId, &Subscriber)| match s.phase {
            Phase::Waiting(from) => Some((*id, from)),
            Phase::Fetching(_) | Phase::Live | Phase::Stale(_) | Phase::Closed => None,
        };
        self.subscribers.iter().filter_map(waiting).collect()
    }

    /// Judges everyone who waits. `unless` is why nothing can be said, if so.
    pub(super) fn judge_waiting(&mut self, shared: &mut Shared, unless: Option<Reason>) {
        self.age(shared);
        for (id, from) in self.waiting() {
            match (from, unless) {
                (From::After(_), Some(reason)) => self.refuse(shared, id, reason),
                (From::After(claim), None) => self.resume(shared, id, claim),
                (From::Now | From::Earliest | From::Since(_) | From::Last, _) => {
                    self.open_fresh(shared, id, from, unless);
                }
            }
        }
    }

    fn resume(&mut self, shared: &mut Shared, id: SubscriberId, claim: Claim) {
        match (self.judge(claim), claim, self.coverage) {
            // Not until the log says that it ever gave out that position.
            (Verdict::Complete { .. }, Claim::Cursor(mark), Some(coverage))
                if self.is_foreign(shared, &coverage, mark.position) =>
            {
                self.ask_history(shared, id, mark, Reason::Unreachable);
            }
            (Verdict::Complete { through, .. }, Claim::Cursor(_) | Claim::Legacy(_), Some(coverage)) => {
                let after = match claim {
                    Claim::Cursor(mark) => mark.position,
                    Claim::Legacy(position) => position,
                    Claim::Unreadable => unreachable!("an unreadable claim is never complete"),
                };
                shared.counters.resumed += 1;
                let backlog = Backlog::vouched(after, through, How::Replayed);
                self.open(shared, id, opened(coverage.incarnation, after, through, true), Some(backlog));
            }
            (Verdict::Gap { reason, .. }, Claim::Cursor(mark), _) if shared.config.history => {
                self.ask_history(shared, id, mark, reason);
            }
            (Verdict::Gap { reason, .. } | Verdict::Unknown { reason }, _, _) => {
                self.refuse(shared, id, reason);
            }
            (Verdict::Complete { .. }, ..) => unreachable!("nothing is complete without coverage"),
            (Verdict::Diverged(never), ..) => match never {},
        }
    }

    /// Whether only the log can say that a position of its ID space is one of its own: it holds more
    /// of them than this topic was given.
    fn is_foreign(&self, shared: &Shared, coverage: &Coverage, position: Position) -> bool {
        let of_a_log = match shared.config.source {
            Source::Positioned { .. } => shared.config.history,
            Source::Minted | Source::Broker(_) => false,
        };
        let known = [coverage.head, coverage.known_from.before(), self.buffer.evicted_through()];
        of_a_log && !known.contains(&position) && self.buffer.at(position).is_none()
    }

    fn ask_history(&mut self, shared: &mut Shared, id: SubscriberId, after: Mark, reason: Reason) {
        shared.counters.history_reads += 1;
        let topic = self.name.clone();
        let events_max = shared.config.limits.history_events_max;
        shared.out.command(Purpose::History(self.id, id, reason), |ticket| Command::History {
            ticket,
            topic,
            after,
            events_max,
        });
        if let Some(subscriber) = self.subscribers.get_mut(&id) {
            subscriber.phase = Phase::Fetching(after);
        }
    }

    /// Goes on with what a shared history holds, or refuses for its reason or the one found before.
    pub(super) fn on_history(
        &mut self,
        shared: &mut Shared,
        id: SubscriberId,
        reason: Reason,
        answer: Result<History, StorageFault>,
    ) {
        let Some(Phase::Fetching(after)) = self.subscribers.get(&id).map(|s| s.phase) else { return };
        let history = answer.unwrap_or(History::Refused(reason));
        let Some(coverage) = self.evidence() else { return self.refuse(shared, id, reason) };
        let messages = match tier::splice(after, history, &coverage) {
            Ok(messages) => messages,
            Err(why) => return self.refuse(shared, id, why.unwrap_or(reason)),
        };
        shared.counters.resumed += 1;
        let seam = after.position.max(tier::seam(&coverage));
        let entries: Vec<Arc<Entry>> =
            messages.into_iter().map(|m| Arc::new(entry_of(shared, &self.name, m, false))).collect();
        let opened = opened(coverage.incarnation, after.position, coverage.head, true);
        let backlog = Backlog::vouched(seam, coverage.head, How::Replayed);
        self.with(shared, id, |subscriber| subscriber.open_with(opened, entries, backlog));
    }

    pub(super) fn open_fresh(
        &mut self,
        shared: &mut Shared,
        id: SubscriberId,
        from: From,
        unless: Option<Reason>,
    ) {
        let Some(coverage) = self.coverage else {
            let reason = unless.unwrap_or(Reason::NoCoverage);
            return self.with(shared, id, |subscriber| subscriber.refuse(reason));
        };
        shared.counters.fresh += 1;
        let through = coverage.head;
        let first = match from {
            From::Now | From::After(_) => None,
            From::Earliest => self.buffer.iter().next(),
            From::Since(at) => self.buffer.iter().find(|entry| entry.at >= at),
            From::Last => self.buffer.iter().last(),
        };
        match first.map(|entry| entry.mark.position.before()) {
            None => self.open(shared, id, opened(coverage.incarnation, through, through, false), None),
            Some(after) => {
                // What is held may have holes: then it is handed out, and no more is claimed of it.
                let claimed = if after < coverage.known_from.before() { after } else { through };
                let opened = opened(coverage.incarnation, after, claimed, false);
                let at = Mark { incarnation: coverage.incarnation, position: through };
                let hole_at_end = self.breaks;
                self.with(shared, id, |subscriber| {
                    subscriber.open(opened, Some(Backlog::held(after, through)));
                    if hole_at_end {
                        subscriber.stale(Reason::Missed, true);
                        subscriber.sync(at);
                    }
                });
            }
        }
    }

    pub(super) fn open(
        &mut self,
        shared: &mut Shared,
        id: SubscriberId,
        opened: Opened,
        backlog: Option<Backlog>,
    ) {
        self.with(shared, id, |subscriber| subscriber.open(opened, backlog));
    }

    /// Refuses a resume. Where a position exists, the stream goes on from there at once.
    pub(super) fn refuse(&mut self, shared: &mut Shared, id: SubscriberId, reason: Reason) {
        shared.refused(&self.name, reason);
        let head = self.head();
        let synced = head.is_some();
        self.with(shared, id, |subscriber| {
            subscriber.refuse(reason);
            if let Some(head) = head {
                subscriber.sync(head);
            }
        });
        shared.counters.sync_required += u64::from(synced);
    }

    /// Changes a subscriber, and tells the host if it has something to poll after it had nothing.
    fn with(&mut self, shared: &mut Shared, id: SubscriberId, change: impl FnOnce(&mut Subscriber)) {
        let Some(subscriber) = self.subscribers.get_mut(&id) else { return };
        let idle = subscriber.is_empty();
        change(subscriber);
        if idle && !subscriber.is_empty() {
            shared.out.event(Event::Ready(id));
        }
    }

    /// Ends all streams.
    pub(super) fn close(&mut self, shared: &mut Shared) {
        let ids: Vec<SubscriberId> = self.subscribers.keys().copied().collect();
        for id in ids {
            self.with(shared, id, Subscriber::close);
        }
    }

    /// The next item of a subscriber; `None` also for one that does not exist.
    pub(super) fn take(&mut self, shared: &mut Shared, id: SubscriberId) -> Option<Item> {
        let item = self.subscribers.get_mut(&id)?.take(&self.buffer)?;
        shared.counters.polled += 1;
        shared.counters.backfilled += u64::from(matches!(item, Item::Gap { .. }));
        Some(item)
    }
}

fn opened(incarnation: Incarnation, from: Position, through: Position, resumed: bool) -> Opened {
    let mark = |position| Some(Mark { incarnation, position });
    Opened { from: mark(from), through: mark(through), resumed }
}

pub(super) fn entry_of(shared: &Shared, topic: &TopicName, message: Message, breaks: bool) -> Entry {
    let Message { mark, at, kind, payload } = message;
    Entry { cursor: shared.config.codec.write(topic.as_str(), mark), mark, at, kind, payload, breaks }
}
