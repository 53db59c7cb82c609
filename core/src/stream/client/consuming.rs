//! The loop of one consumer of a group: join, read, wait, and again; and its chores beside it.

use super::event::{Delivery, Gap, Item};
use super::reading::Want;
use super::rounds::{Round, Rounds};
use super::tending::{Rules, Tended, Tending};
use crate::stream::error::{CallerError, Setting, StreamError};
use crate::stream::event::{EventId, Ids};
use crate::stream::failover::{Standing, Vouched};
use crate::stream::group::{Consumer, Taken};
use crate::stream::handle::Handle;
use crate::stream::layout::Layout;
use crate::stream::limits::{DELIVERIES_MAX_DEFAULT, LEASE_MS_DEFAULT};
use crate::stream::name::{ConsumerName, GroupName, StreamName};
use crate::stream::op::{Nonce, StreamOp, Verb};
use crate::stream::reply::{Dropped, GapReason, StreamReply};
use crate::stream::settings::Taking;
use crate::stream::vouching::Failover;
use alloc::vec::Vec;

/// Who consumes, and how.
#[derive(Clone, Debug)]
pub struct Consume {
    /// The group.
    pub group: GroupName,
    /// The consumer: fresh for every start, or a worker takes over what its predecessor has not settled
    /// without any claim.
    pub name: ConsumerName,
    /// What is taken, and the contract of the group with it.
    pub taking: Taking,
    /// How long the lease of the group's recovery lasts without renewal. It is renewed twice in that time.
    pub lease_ms: u64,
    /// How often an event is handed out before it becomes a dead letter; `None` for ever. The Pulse
    /// layout has no dead letters: there it is for ever.
    pub deliveries_max: Option<u64>,
}

impl Consume {
    /// A consumer with the default lease and limit.
    #[must_use]
    pub const fn new(group: GroupName, name: ConsumerName, taking: Taking) -> Self {
        Self { group, name, taking, lease_ms: LEASE_MS_DEFAULT, deliveries_max: Some(DELIVERIES_MAX_DEFAULT) }
    }

    /// Checks what is not checked by its type.
    ///
    /// # Errors
    /// `InvalidOption` for a lease below two milliseconds, or a limit of no delivery at all.
    pub fn checked(self) -> Result<Self, CallerError> {
        let invalid = |setting| Err(CallerError::InvalidOption { setting });
        match (self.lease_ms, self.deliveries_max) {
            (0 | 1, _) => invalid(Setting::Lease),
            (_, Some(0)) => invalid(Setting::Deliveries),
            (_, _) => Ok(self),
        }
    }
}

/// A part: a consumer, where its loop is, and its chores.
#[derive(Debug)]
pub(super) struct Consuming {
    consumer: Consumer,
    pub(super) tending: Tending,
    layout: Layout,
    rounds: Rounds,
    wait_ms: u64,
    leaving: bool,
    /// What is handed out once it is settled, where that comes first.
    unsettled: Vec<Item>,
    /// Where the server stood beside the answer that is being taken.
    standing: Option<Standing>,
}

impl Consuming {
    pub(super) fn new(streams: Vec<Handle>, consume: Consume, layout: Layout) -> Self {
        let Consume { group, name, taking, lease_ms, deliveries_max } = consume;
        let rules = Rules {
            filter: taking.filter.clone(),
            no_ack: taking.no_ack,
            grace_ms: taking.grace_ms,
            lease_ms,
            events_max: taking.events_max,
            deliveries_max,
        };
        Self {
            wait_ms: taking.block_ms,
            consumer: Consumer::new(group, name, taking, lease_ms),
            tending: Tending::new(rules),
            layout,
            rounds: Rounds::new(streams),
            leaving: false,
            unsettled: Vec::new(),
            standing: None,
        }
    }

    pub(super) const fn is_ready(&self) -> bool {
        self.rounds.is_ready()
    }

    /// The host has room for more.
    pub(super) fn want(&mut self) {
        self.rounds.want();
        self.tending.give_room();
    }

    /// What the loop wants next. Called only while nothing of it is outstanding.
    pub(super) fn next(&mut self, nonce: Nonce) -> Result<Want, CallerError> {
        if let Some(op) = self.consumer.op(nonce) {
            return Ok(Want::Ask(op));
        }
        match self.rounds.next() {
            Round::Attach(handle) => self.consumer.join(&handle, None)?,
            Round::Ready => return Ok(Want::Ready),
            Round::Wait => {
                return Ok(Want::Wait { logs: self.consumer.positions(), wait_ms: self.wait_ms });
            }
            Round::Rest => return Ok(Want::Rest),
            Round::Pass => self.consumer.pass()?,
        }
        self.next(nonce)
    }

    /// What is left to do before it ends; `None` when nothing is. What was read and not settled is given
    /// back, so that nothing stays claimed.
    pub(super) fn leave(&mut self, nonce: Nonce) -> Option<Want> {
        if !self.leaving {
            self.leaving = true;
            self.unsettled.clear();
            match self.layout {
                Layout::Tagged => self.consumer.release(),
                Layout::Pulse => self.consumer.close(),
            }
        }
        self.consumer.op(nonce).map(Want::Ask)
    }

    /// Goes on behind a stream whose read failed; how often it has in a row.
    pub(super) fn rest(&mut self, op: &StreamOp) -> Option<u32> {
        self.consumer.rest(op).filter(|_| self.is_ready())
    }

    pub(super) fn rouse(&mut self) {
        self.consumer.rouse();
    }

    /// What is noted of the server of a stream.
    pub(super) fn noted(&self, op: &StreamOp) -> Option<Vouched> {
        self.consumer.noted(op)
    }

    /// Takes where the server stood beside an answer, before the answer; with what was noted when it was
    /// asked.
    pub(super) fn heard(
        &mut self,
        op: &StreamOp,
        asked: Option<Vouched>,
        standing: Option<&Standing>,
    ) -> Option<Failover> {
        self.standing = standing.copied();
        self.consumer.heard(op, asked, standing)
    }

    /// Takes the answer to a step of the loop, and tells what is to be handed out.
    pub(super) fn answered(
        &mut self,
        op: &StreamOp,
        result: Result<StreamReply, StreamError>,
    ) -> Result<Vec<Item>, StreamError> {
        let settles = matches!(op.verb, Verb::GroupAck { .. });
        let standing = self.standing.take();
        let taken = self.consumer.answered(op, result)?;
        if let Some(standing) = standing {
            self.consumer.note(op, &standing);
        }
        if settles {
            return Ok(core::mem::take(&mut self.unsettled));
        }
        let items: Vec<Item> = match taken {
            Taken::More => Vec::new(),
            Taken::Entries(stream, entries, missed) => {
                let gaps = self.tending.missed(&stream, missed);
                let events = entries.into_iter().filter_map(|entry| Delivery::of(&stream, entry, 1, None));
                let events: Vec<Item> = events.map(Item::Event).collect();
                if self.tending.rules().no_ack {
                    if !events.is_empty() {
                        self.rounds.brought();
                    }
                    self.unsettled.extend(events);
                    gaps
                } else {
                    gaps.into_iter().chain(events).collect()
                }
            }
            Taken::Repaired { stream, log_was_absent } => {
                let dropped = Dropped { after: EventId::ZERO, before: None, events: None };
                let gap = Gap::of(&stream, GapReason::LogLost, dropped);
                // The Tagged layout keeps it, and tells it with the next read.
                let told = log_was_absent && self.layout == Layout::Pulse;
                told.then_some(Item::Gap(gap)).into_iter().collect()
            }
        };
        if !items.is_empty() {
            self.rounds.brought();
        }
        Ok(items)
    }

    /// The next chore.
    pub(super) fn chore(&mut self, nonce: Nonce) -> Option<StreamOp> {
        self.tending.op(&self.consumer, nonce)
    }

    pub(super) fn keep_alive(&mut self) {
        self.tending.keep_alive(&self.consumer);
    }

    pub(super) fn look_after(&mut self) {
        self.tending.look_after(&self.consumer);
    }

    /// Takes the answer to a chore.
    pub(super) fn tended(
        &mut self,
        op: &StreamOp,
        result: Result<StreamReply, StreamError>,
    ) -> Result<Tended, StreamError> {
        // Nothing was handed out by it that could be noted; the loop's next answer says its own.
        self.standing = None;
        self.consumer.note_cursor(op, &result);
        self.tending.answered(self.layout, result)
    }

    /// Takes note of what a call of its own settled.
    pub(super) fn note_settled(&mut self, op: &StreamOp, result: &Result<StreamReply, StreamError>) {
        self.consumer.note_cursor(op, result);
    }

    /// What asks to settle, give back or bury events of a stream.
    pub(super) fn give(&self, stream: &StreamName, give: Give, ids: Ids, nonce: Nonce) -> Option<StreamOp> {
        let handle = self.consumer.handle(stream)?;
        let (group, consumer) = (self.consumer.group().clone(), self.consumer.name().clone());
        let verb = match give {
            Give::Ack => Verb::GroupAck { group, ids },
            Give::Nack { delay_ms } => Verb::GroupNack { group, consumer, ids, delay_ms },
            Give::Bury => Verb::GroupBury { group, consumer, ids },
        };
        Some(handle.op(verb, nonce))
    }
}

/// What a consumer does with events that it was handed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Give {
    /// They are processed: settle them.
    Ack,
    /// They are to be handed out again, to anybody, after a time.
    Nack {
        /// The time; at most thirty days.
        delay_ms: u64,
    },
    /// They never will be processed: make them dead letters.
    Bury,
}
