//! Holes of a group: kept until a consumer says that somebody was told, as an answer may be lost.

use super::Step;
use super::space::{Group, Space};
use crate::stream::event::EventId;
use crate::stream::limits::GROUP_MISSED_MAX;
use crate::stream::name::GroupName;
use crate::stream::reply::{Dropped, GapReason, Missed, Told};
use crate::stream::time::ServerTime;

impl Group {
    /// Takes note of a hole. Its number begins at the clock, so that a server that lost the last ones does
    /// not give their numbers to others.
    pub(super) fn miss(&mut self, now: ServerTime, reason: GapReason, dropped: Dropped) {
        self.missed_last = now.ms().max(self.missed_last.saturating_add(1));
        let number = self.missed_last;
        let is_full = self.missed.len() >= GROUP_MISSED_MAX;
        match self.missed.last_mut().filter(|_| is_full) {
            Some(last) => {
                last.number = number;
                last.dropped = last.dropped.joined(dropped);
            }
            None => self.missed.push(Missed { number, reason, dropped }),
        }
    }

    /// Takes note of entries that had been given out and are no longer kept.
    pub(super) fn miss_pending(&mut self, now: ServerTime, vanished: &[EventId]) {
        if let (Some(first), Some(last)) = (vanished.first(), vanished.last()) {
            let events = Some(vanished.len() as u64);
            let dropped = Dropped { after: first.previous(), before: last.next(), events };
            self.miss(now, GapReason::TrimmedPending, dropped);
        }
    }
}

pub(super) fn told(step: &Step<'_>, space: &mut Space, name: &GroupName, through: u64) -> Told {
    let data = space.data.get_mut(&step.life().generation);
    if let Some(group) = data.and_then(|data| data.groups.get_mut(name)) {
        group.missed.retain(|missed| missed.number > through);
    }
    Told::Done
}
