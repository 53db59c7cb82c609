//! Subscriptions: who has everything up to a cursor is given what came after, each change once.
//!
//! A subscriber asks for one page at a time, so that it is never waited for and nothing gathers for
//! it. What it asks for comes from memory if it keeps up, from the journal if it does not; below the
//! floor it is told so and may ask for a reset, which reads the checkpoint that the floor stands on.

mod cursor;
mod recent;
mod serve;
mod state;

pub(super) use recent::Recent;

use super::api::{
    Cursor, CursorReason, CursorVerdict, Event, Page, RequestError, SubscribeRefused, SubscriptionEnd,
    SubscriptionId, SubscriptionStatus,
};
use super::shared::Shared;
use crate::journal::read::{EntryReader, ReadRequest};
use crate::record::Version;
use crate::time::Instant;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use state::StateReader;

/// The subscriptions of a replica.
#[derive(Debug, Default)]
pub(super) struct Subscriptions {
    open: BTreeMap<SubscriptionId, Subscription>,
    next: u64,
    /// Those that may have something to do in this turn.
    woken: BTreeSet<SubscriptionId>,
    /// Those whose reset waits for the end of a compaction or an installation.
    parked: BTreeSet<SubscriptionId>,
    /// Those that wait until fewer reads are under way.
    waiting: VecDeque<SubscriptionId>,
    reads_out: u32,
}

#[derive(Debug)]
struct Subscription {
    /// The last version it was given.
    at: Version,
    doing: Doing,
    /// It wants a page.
    asked: bool,
    /// Changes with `doing`: an answer to an older read is not for what it does now.
    turn: u64,
    /// The turn that a read is under way for.
    reading: Option<u64>,
    /// Until when a compaction leaves it what comes after its reset.
    hold_until: Option<Instant>,
}

/// What a subscription is doing.
#[derive(Debug)]
enum Doing {
    /// Follows the changes.
    Following,
    /// Changes are read from the journal for it.
    Reading(EntryReader),
    /// It has not been told yet that it lost its place.
    Losing(CursorVerdict),
    /// It lost its place, and knows it.
    Lost,
    /// It asked for a reset that has not begun.
    ResetAsked,
    /// It is given the state.
    State(Box<StateReader>),
}

/// What a read for a subscription is for.
#[derive(Debug)]
pub(super) enum SubscriptionRead {
    /// Changes.
    Changes(ReadRequest),
    /// A piece of the state.
    State,
}

impl Subscriptions {
    /// What the reset furthest behind still needs of the journal: only what lies at or below that
    /// version may be compacted.
    fn held(&self, now: Instant) -> Option<(SubscriptionId, Version)> {
        let holds = self.open.iter().filter(|(_, sub)| sub.hold_until.is_some_and(|until| until > now));
        let needs = holds.map(|(id, sub)| match &sub.doing {
            Doing::State(state) => (*id, state.cut),
            Doing::Following | Doing::Reading(_) | Doing::Losing(_) | Doing::Lost | Doing::ResetAsked => {
                (*id, sub.at)
            }
        });
        needs.min_by_key(|(_, version)| *version)
    }
}

impl Shared {
    /// What can be vouched for to who has everything up to `cursor`.
    pub(super) fn judge_cursor(&self, cursor: Cursor) -> CursorVerdict {
        cursor::judge(&self.history, self.current.log, cursor)
    }

    /// Opens a subscription. Its ID is given also where the verdict is not `Complete`, so that it can
    /// ask for a reset.
    pub(super) fn subscribe(
        &mut self,
        cursor: Cursor,
    ) -> Result<(SubscriptionId, CursorVerdict), SubscribeRefused> {
        if self.closing || self.halted.is_some() {
            return Err(SubscribeRefused::Closing);
        }
        let subscriptions_max = self.config.subscriptions_max;
        if self.subscriptions.open.len() >= subscriptions_max as usize {
            return Err(SubscribeRefused::Full { subscriptions_max });
        }
        let verdict = self.judge_cursor(cursor);
        let doing = if verdict.is_complete() { Doing::Following } else { Doing::Lost };
        self.subscriptions.next += 1;
        let id = SubscriptionId(self.subscriptions.next);
        let subscription =
            Subscription { at: cursor.at, doing, asked: false, turn: 0, reading: None, hold_until: None };
        self.subscriptions.open.insert(id, subscription);
        Ok((id, verdict))
    }

    /// A subscription wants its next page. Asking again before it came adds nothing.
    pub(super) fn ask_page(&mut self, id: SubscriptionId) {
        let until = self.now.mono.after_ms(self.config.snapshot_pin_ms);
        if let Some(subscription) = self.subscriptions.open.get_mut(&id) {
            subscription.asked = true;
            if let Doing::State(state) = &mut subscription.doing {
                state.until = until;
            }
            self.subscriptions.woken.insert(id);
        }
    }

    /// A subscription wants the state, and what comes after it.
    pub(super) fn ask_reset(&mut self, id: SubscriptionId) {
        self.put_doing(id, Doing::ResetAsked);
        self.subscriptions.woken.insert(id);
    }

    /// A subscription is over.
    pub(super) fn unsubscribe(&mut self, id: SubscriptionId) {
        self.put_doing(id, Doing::Lost);
        self.subscriptions.open.remove(&id);
        self.subscriptions.parked.remove(&id);
        self.subscriptions.woken.remove(&id);
    }

    /// All subscriptions end: nothing is read for them any more.
    pub(super) fn end_subscriptions(&mut self) {
        let ids: Vec<SubscriptionId> = self.subscriptions.open.keys().copied().collect();
        for id in ids {
            self.end_subscription(id, SubscriptionEnd::Closing);
        }
    }

    fn end_subscription(&mut self, id: SubscriptionId, end: SubscriptionEnd) {
        self.unsubscribe(id);
        self.out.event(Event::Page { subscription: id, page: Page::Ended(end) });
    }

    /// Something happened that any subscription may be waiting for.
    pub(super) fn wake_subscriptions(&mut self) {
        let Subscriptions { open, woken, .. } = &mut self.subscriptions;
        woken.extend(open.iter().filter(|(_, sub)| sub.asked).map(|(id, _)| *id));
    }

    /// Lets go of the state of resets that were left unread.
    pub(super) fn expire_resets(&mut self) {
        let now = self.now.mono;
        let expired = |sub: &Subscription| matches!(&sub.doing, Doing::State(state) if state.until <= now);
        let open = self.subscriptions.open.iter();
        let ids: Vec<SubscriptionId> = open.filter(|(_, sub)| expired(sub)).map(|(id, _)| *id).collect();
        for id in ids {
            let verdict = cursor::gap(Version::ZERO, self.history.floor(), CursorReason::ResetExpired);
            self.put_doing(id, Doing::Losing(verdict));
        }
    }

    /// How far a compaction may go that could go to `most`, beside the resets that are being read.
    pub(super) fn compaction_beside_resets(&self, most: Version) -> Result<Version, RequestError> {
        let floor = self.history.floor();
        match self.subscriptions.held(self.now.mono) {
            Some((id, acked)) if acked <= floor => {
                let member = alloc::format!("the reset of subscription {id}");
                Err(RequestError::Behind { member, acked, floor })
            }
            Some((_, version)) => Ok(most.min(version)),
            None => Ok(most),
        }
    }

    /// How all subscriptions stand.
    pub(super) fn subscriptions_status(&self) -> Vec<SubscriptionStatus> {
        let status = |(id, sub): (&SubscriptionId, &Subscription)| {
            let behind = self.behind(sub.at);
            let state = match &sub.doing {
                Doing::Following if behind == Some(0) => "live",
                Doing::Following => "following",
                Doing::Reading(_) => "reading the journal",
                Doing::Losing(_) | Doing::Lost => "lost",
                Doing::ResetAsked | Doing::State(_) => "resetting",
            };
            SubscriptionStatus { id: *id, state, at: sub.at, behind }
        };
        self.subscriptions.open.iter().map(status).collect()
    }

    /// How many journal entries the durable tail lies ahead of `at`; `None` below the floor.
    pub(super) fn behind(&self, at: Version) -> Option<u64> {
        if at < self.history.floor() {
            return None;
        }
        let first = self.history.first_after(at).map(|(lsn, _)| lsn);
        let last = self.history.lsn_of(self.history.tail());
        Some(first.zip(last).map_or(0, |(first, last)| last.get() + 1 - first.get()))
    }

    /// Changes what a subscription is doing; what it held for that is released.
    fn put_doing(&mut self, id: SubscriptionId, doing: Doing) {
        let Some(subscription) = self.subscriptions.open.get_mut(&id) else { return };
        subscription.turn += 1;
        let before = core::mem::replace(&mut subscription.doing, doing);
        match &subscription.doing {
            Doing::Losing(_) | Doing::Lost | Doing::ResetAsked => subscription.hold_until = None,
            Doing::Following | Doing::Reading(_) | Doing::State(_) => {}
        }
        if let Doing::State(state) = before
            && let Some(number) = state.pinned()
        {
            self.unpin(number);
        }
    }
}
