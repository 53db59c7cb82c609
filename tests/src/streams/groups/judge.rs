//! What must hold, and what is known about every event to judge it.

use std::collections::{BTreeMap, BTreeSet};
use strandline_core::stream::EventId;
use strandline_core::stream::client::Gap;
use strandline_core::stream::keyspace::space::Data;

/// The era of what a failover lost.
const LOST_TAIL: u64 = u64::MAX;

/// What became of one event.
#[derive(Clone, Debug)]
struct Fate {
    id: EventId,
    /// Which life of the server it was published in.
    era: u64,
    processed: bool,
    /// A hole that covers it was handed out, or its loss cannot be told.
    excused: bool,
}

/// Knows every event that was published.
#[derive(Debug, Default)]
pub(super) struct Judge {
    fates: BTreeMap<u64, Fate>,
    era: u64,
    fences: BTreeMap<u64, String>,
    gave_up: BTreeSet<u64>,
}

impl Judge {
    pub(super) fn published(&mut self, number: u64, id: EventId) {
        // After a failover a position can name another event than the one that somebody still holds:
        // what replication loses, nobody here can tell apart.
        let reused = self.fates.values().any(|fate| fate.id == id && fate.era == LOST_TAIL);
        let fate = Fate { id, era: self.era, processed: false, excused: reused };
        self.fates.insert(number, fate);
    }

    pub(super) fn processed(&mut self, number: u64) {
        if let Some(fate) = self.fates.get_mut(&number) {
            fate.processed = true;
        }
    }

    /// A worker means to give an event up for good.
    pub(super) fn gave_up(&mut self, number: u64) {
        self.gave_up.insert(number);
    }

    fn at(&self, id: EventId) -> Option<(&u64, &Fate)> {
        self.fates.iter().rev().find(|(_, fate)| fate.era == self.era && fate.id == id)
    }

    /// Entries were settled on the server by a consumer.
    pub(super) fn settled(&self, ids: &[EventId]) -> Result<(), String> {
        for id in ids {
            if let Some((number, fate)) = self.at(*id)
                && !fate.processed
                && !fate.excused
            {
                return Err(format!("event {number} at {id} was acknowledged and nobody processed it"));
            }
        }
        Ok(())
    }

    /// A hole was handed out: it covers what had been published by then.
    pub(super) fn told(&mut self, gap: &Gap) {
        let era = self.era;
        for fate in self.fates.values_mut().filter(|fate| fate.era == era) {
            let inside = fate.id > gap.after && gap.before.is_none_or(|before| fate.id < before);
            fate.excused |= inside;
        }
    }

    /// The group was made: what was no longer kept by then is not owed to it.
    pub(super) fn group_made(&mut self, kept: impl Fn(EventId) -> bool) {
        let era = self.era;
        for fate in self.fates.values_mut().filter(|fate| fate.era == era) {
            fate.excused |= !kept(fate.id);
        }
    }

    /// A lease was taken on the server.
    pub(super) fn leased(&mut self, fence: u64, owner: &str) -> Result<(), String> {
        let highest = self.fences.last_key_value().map(|(fence, owner)| (*fence, owner.clone()));
        match highest {
            Some((highest, _)) if fence < highest => Err(format!("fence {fence} after {highest}")),
            Some((highest, of)) if fence == highest && of != owner => {
                Err(format!("fence {fence} has two owners: {of} and {owner}"))
            }
            Some(_) | None => {
                self.fences.insert(fence, owner.into());
                Ok(())
            }
        }
    }

    /// Everything was lost: workers are ended with that word.
    pub(super) fn lost_all(&mut self) {
        for fate in self.fates.values_mut() {
            fate.excused = true;
        }
        self.era += 1;
        self.fences.clear();
    }

    /// A replica took over that has events up to this number, and this fence: what came later was never
    /// there.
    pub(super) fn failed_over(&mut self, last: u64, fence: u64) {
        let era = self.era;
        let later = self.fates.range_mut(last + 1..).map(|(_, fate)| fate);
        for fate in later.filter(|fate| fate.era == era) {
            fate.excused = true;
            // The position may name another event from now on.
            fate.era = LOST_TAIL;
        }
        self.fences.retain(|held, _| *held <= fence);
    }

    /// What is still owed, by the state of the server: neither processed, nor told as a hole, nor a dead
    /// letter.
    pub(super) fn owed(&self, data: Option<&Data>) -> Option<String> {
        let dead =
            |id: EventId| data.is_some_and(|data| data.dead.letters.values().any(|letter| letter.id == id));
        let owed = |(number, fate): &(&u64, &Fate)| {
            !(fate.processed || fate.excused || dead(fate.id) || self.gave_up.contains(number))
        };
        let (number, fate) = self.fates.iter().find(owed)?;
        Some(format!("event {number} at {} was neither processed nor told as missing", fate.id))
    }
}
