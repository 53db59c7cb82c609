//! What a consumer does beside reading: saying that it lives, and, under the lease of its group, taking
//! over what stale consumers left and cleaning up after them.

use super::event::{Delivery, Gap, Item};
use crate::stream::error::{CallerError, ServerFault, StreamError};
use crate::stream::event::{Entry, EventId, Ids};
use crate::stream::filter::Filter;
use crate::stream::group::Consumer;
use crate::stream::layout::Layout;
use crate::stream::name::StreamName;
use crate::stream::op::{Lease, Nonce, StreamOp, Verb};
use crate::stream::reply::{Dropped, GapReason, Missed, StreamReply, Told};
use alloc::collections::{BTreeMap, VecDeque};
use alloc::vec::Vec;

/// How a consumer tends its group.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    pub(super) filter: Filter,
    pub(super) no_ack: bool,
    pub(super) grace_ms: u64,
    pub(super) lease_ms: u64,
    pub(super) events_max: u32,
    /// How often an event is handed out before it becomes a dead letter; `None` for ever.
    pub(super) deliveries_max: Option<u64>,
}

/// One thing to do on a stream.
#[derive(Clone, Debug)]
enum Chore {
    /// Say that the consumer lives.
    KeepAlive,
    /// Take or keep the lease. What follows depends on the answer.
    Lease,
    /// Take over what was pending for too long, from a position on.
    Claim { fence: u64, from: EventId },
    /// Settle what was taken over and is not to be handed out, or is settled before it is.
    Settle { ids: Ids, then: Vec<Item> },
    /// Move what was handed out too often to the dead letters.
    Bury { ids: Ids },
    /// Take out who is silent.
    Sweep { fence: u64 },
    /// Say that holes were told.
    Told { through: u64 },
}

/// What a chore brought.
#[derive(Debug, Default)]
pub(super) struct Tended {
    pub(super) items: Vec<Item>,
    /// The lease of a stream was taken under this number, or lost: in this order, where it lapsed before it
    /// was taken again.
    pub(super) leases: Vec<(StreamName, Option<u64>)>,
    /// What a chore was refused with that does not end the consumer.
    pub(super) trouble: Option<StreamError>,
    /// The chore that was refused is to be done again, after a pause.
    pub(super) again: bool,
}

/// A part: the chores of one consumer, one at a time.
#[derive(Debug)]
pub(super) struct Tending {
    rules: Rules,
    chores: VecDeque<(StreamName, Chore)>,
    /// The chore whose answer is out.
    current: Option<(StreamName, Chore)>,
    leases: BTreeMap<StreamName, u64>,
    /// The holes of each stream that the server keeps and that were handed out, and whether that has been
    /// said.
    told: BTreeMap<StreamName, (Vec<Missed>, bool)>,
    /// Events may be taken over: there is room for them.
    room: bool,
}

impl Tending {
    pub(super) const fn new(rules: Rules) -> Self {
        Self {
            rules,
            chores: VecDeque::new(),
            current: None,
            leases: BTreeMap::new(),
            told: BTreeMap::new(),
            room: false,
        }
    }

    pub(super) const fn rules(&self) -> &Rules {
        &self.rules
    }

    /// There is room for what a claim brings, until one has brought something.
    ///
    /// Who has room has taken all it was handed: holes among it were told, and that is said.
    pub(super) fn give_room(&mut self) {
        self.room = true;
        for (stream, (told, said)) in &mut self.told {
            if let (false, Some(last)) = (*said, told.last()) {
                *said = true;
                self.chores.push_back((stream.clone(), Chore::Told { through: last.number }));
            }
        }
    }

    /// The holes of a stream that this consumer has not handed out.
    pub(super) fn missed(&mut self, stream: &StreamName, missed: Vec<Missed>) -> Vec<Item> {
        if missed.is_empty() {
            self.told.remove(stream);
            return Vec::new();
        }
        let known = self.told.get(stream).map(|(told, _)| told.as_slice()).unwrap_or_default();
        let new: Vec<Missed> = missed.iter().filter(|missed| !known.contains(missed)).cloned().collect();
        if !new.is_empty() {
            self.told.insert(stream.clone(), (missed, false));
        }
        new.into_iter().map(|missed| Item::Gap(Gap::of(stream, missed.reason, missed.dropped))).collect()
    }

    /// It is time to say that the consumer lives, on every stream, before anything else.
    pub(super) fn keep_alive(&mut self, consumer: &Consumer) {
        for stream in consumer.streams() {
            let known = |(of, chore): &(StreamName, Chore)| of == stream && matches!(chore, Chore::KeepAlive);
            if !self.chores.iter().any(known) {
                self.chores.push_front((stream.clone(), Chore::KeepAlive));
            }
        }
    }

    /// It is time to look after the group, on every stream whose round is not still under way.
    pub(super) fn look_after(&mut self, consumer: &Consumer) {
        for stream in consumer.streams() {
            let known = |(of, chore): &(StreamName, Chore)| {
                of == stream && !matches!(chore, Chore::KeepAlive | Chore::Told { .. })
            };
            if !self.chores.iter().chain(&self.current).any(known) {
                self.chores.push_back((stream.clone(), Chore::Lease));
            }
        }
    }

    /// The chore that is out had no answer: the others come first.
    pub(super) fn put_off(&mut self) {
        self.chores.extend(self.current.take());
    }

    /// What is to be asked; `None` when no chore is left.
    pub(super) fn op(&mut self, consumer: &Consumer, nonce: Nonce) -> Option<StreamOp> {
        loop {
            let (stream, chore) = self.chores.pop_front()?;
            if let Some(handle) = consumer.handle(&stream) {
                let op = handle.op(self.verb(consumer, &stream, &chore), nonce);
                self.current = Some((stream, chore));
                return Some(op);
            }
        }
    }

    fn verb(&self, consumer: &Consumer, stream: &StreamName, chore: &Chore) -> Verb {
        let (group, name) = (consumer.group().clone(), consumer.name().clone());
        let (rules, owner) = (&self.rules, consumer.owner(stream));
        match chore {
            Chore::KeepAlive => Verb::GroupKeepAlive { group, consumer: name },
            Chore::Lease => Verb::LeaseAcquire { group, owner, lease_ms: rules.lease_ms },
            Chore::Claim { fence, from } => Verb::GroupClaim {
                group,
                lease: Lease { owner, fence: *fence, lease_ms: rules.lease_ms },
                consumer: name,
                idle_ms: rules.grace_ms,
                from: *from,
                events_max: rules.events_max,
            },
            Chore::Settle { ids, .. } => Verb::GroupAck { group, ids: ids.clone() },
            Chore::Bury { ids } => Verb::GroupBury { group, consumer: name, ids: ids.clone() },
            Chore::Told { through } => Verb::GroupTold { group, through: *through },
            Chore::Sweep { fence } => Verb::GroupSweep {
                group,
                lease: Lease { owner, fence: *fence, lease_ms: rules.lease_ms },
                grace_ms: rules.grace_ms,
            },
        }
    }

    /// Takes the answer to the first chore, and puts what follows from it in its place.
    ///
    /// # Errors
    /// What ends the consumer. Any other refusal ends the round on that stream; the next one begins
    /// again with the lease.
    pub(super) fn answered(
        &mut self,
        layout: Layout,
        result: Result<StreamReply, StreamError>,
    ) -> Result<Tended, StreamError> {
        let Some((stream, chore)) = self.current.take() else { return Ok(Tended::default()) };
        let told = match result {
            Ok(reply) => reply.told,
            Err(error) if error.is_final() => return Err(error),
            Err(StreamError::Caller(CallerError::LeaseLost { .. })) => return Ok(self.lost(stream)),
            // The read path makes the group again.
            Err(StreamError::Server(ServerFault::NoGroup)) => return Ok(Tended::default()),
            Err(error) => {
                let again = self.refused(stream, chore);
                return Ok(Tended { trouble: Some(error), again, ..Tended::default() });
            }
        };
        Ok(self.follow(layout, stream, chore, told))
    }

    /// The table of refusals: what becomes of a chore that its server would not do; whether it is to be
    /// done again, after a pause.
    fn refused(&mut self, stream: StreamName, chore: Chore) -> bool {
        match chore {
            // It is said again when there is room the next time.
            Chore::Told { .. } => {
                if let Some((_, said)) = self.told.get_mut(&stream) {
                    *said = false;
                }
                false
            }
            // An asking before this one may have settled it: then nobody else would be handed it.
            Chore::Settle { ids, then } if !then.is_empty() => {
                self.chores.push_back((stream, Chore::Settle { ids, then }));
                true
            }
            // What was not settled or buried stays pending and comes back; the others have their own time.
            Chore::Settle { .. } | Chore::Bury { .. } => false,
            Chore::KeepAlive | Chore::Lease | Chore::Claim { .. } | Chore::Sweep { .. } => false,
        }
    }

    /// The table of chores: what each answer leads to.
    fn follow(&mut self, layout: Layout, stream: StreamName, chore: Chore, told: Told) -> Tended {
        match (chore, told) {
            (Chore::Lease, Told::Leased { acquired: true, fence }) => {
                let next = if self.room {
                    Chore::Claim { fence, from: EventId::ZERO }
                } else {
                    Chore::Sweep { fence }
                };
                self.chores.push_front((stream.clone(), next));
                let held = self.leases.insert(stream.clone(), fence);
                let leases = match held {
                    Some(held) if held == fence => Vec::new(),
                    Some(_) => alloc::vec![(stream.clone(), None), (stream, Some(fence))],
                    None => alloc::vec![(stream, Some(fence))],
                };
                Tended { leases, ..Tended::default() }
            }
            (Chore::Lease, Told::Leased { acquired: false, .. }) => self.lost(stream),
            (Chore::Claim { fence, .. }, Told::Claimed { next, entries, vanished, counts, missed }) => {
                let gaps = match layout {
                    Layout::Tagged => self.missed(&stream, missed),
                    Layout::Pulse => vanished_gap(&stream, &vanished).map(Item::Gap).into_iter().collect(),
                };
                self.claimed(layout, &stream, fence, next, entries, gaps, &counts)
            }
            (Chore::Settle { then, .. }, _) => Tended { items: then, ..Tended::default() },
            (Chore::KeepAlive | Chore::Bury { .. } | Chore::Sweep { .. } | Chore::Told { .. }, _)
            | (Chore::Lease | Chore::Claim { .. }, _) => Tended::default(),
        }
    }

    fn lost(&mut self, stream: StreamName) -> Tended {
        let held = self.leases.remove(&stream);
        Tended { leases: held.map(|_| (stream, None)).into_iter().collect(), ..Tended::default() }
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of one reply")]
    fn claimed(
        &mut self,
        layout: Layout,
        stream: &StreamName,
        fence: u64,
        next: EventId,
        entries: Vec<Entry>,
        gaps: Vec<Item>,
        counts: &[u64],
    ) -> Tended {
        let mut tended = Tended { items: gaps, ..Tended::default() };
        let (mut settle, mut bury, mut hand_out) = (Vec::new(), Vec::new(), Vec::new());
        for (at, entry) in entries.into_iter().enumerate() {
            let count = counts.get(at).copied().unwrap_or(1);
            let too_often =
                layout == Layout::Tagged && self.rules.deliveries_max.is_some_and(|max| count > max);
            let shows = entry.stored.event().is_some_and(|event| self.rules.filter.shows(event));
            match (shows, too_often) {
                (false, _) => settle.push(entry.id),
                (true, true) => bury.push(entry.id),
                (true, false) => hand_out.extend(Delivery::of(stream, entry, count, Some(fence))),
            }
        }
        if next == EventId::ZERO {
            self.chores.push_front((stream.clone(), Chore::Sweep { fence }));
        } else if hand_out.is_empty() {
            self.chores.push_front((stream.clone(), Chore::Claim { fence, from: next }));
        }
        if !hand_out.is_empty() {
            self.room = false;
        }
        if self.rules.no_ack {
            settle.extend(hand_out.iter().map(|delivery| delivery.id));
        }
        let hand_out = hand_out.into_iter().map(Item::Event);
        let then = if self.rules.no_ack {
            hand_out.collect()
        } else {
            tended.items.extend(hand_out);
            Vec::new()
        };
        // One claim never brings more than one acknowledgement takes.
        if let Some(ids) = some(bury) {
            self.chores.push_front((stream.clone(), Chore::Bury { ids }));
        }
        if let Some(ids) = some(settle) {
            self.chores.push_front((stream.clone(), Chore::Settle { ids, then }));
        }
        tended
    }
}

fn some(ids: Vec<EventId>) -> Option<Ids> {
    if ids.is_empty() { None } else { Ids::new(ids).ok() }
}

/// The hole that entries left which had been given to somebody and are no longer kept.
fn vanished_gap(stream: &StreamName, vanished: &[EventId]) -> Option<Gap> {
    let (first, last) = (vanished.iter().min()?, vanished.iter().max()?);
    let dropped =
        Dropped { after: first.previous(), before: last.next(), events: Some(vanished.len() as u64) };
    Some(Gap::of(stream, GapReason::TrimmedPending, dropped))
}
