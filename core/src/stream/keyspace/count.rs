//! What a group or reader missed, told from how many entries were ever published.

use super::log::Log;
use crate::stream::event::{Entry, EventId};
use crate::stream::name::GroupName;
use crate::stream::reply::Dropped;

impl Log {
    /// How many entries were ever published up to a position, where that can be told without a walk.
    pub(super) fn seen_up_to(&self, id: EventId) -> Option<u64> {
        if id == EventId::ZERO {
            Some(self.added.saturating_sub(self.entries.len() as u64))
        } else if id == self.last {
            Some(self.added)
        } else {
            None
        }
    }

    /// Takes note of what a group was just given behind `after`, and tells what it never will be.
    ///
    /// Only the oldest entries are trimmed: what is kept before the first one given proves that nothing
    /// behind `after` was.
    pub(super) fn note_delivered(
        &mut self,
        group: &GroupName,
        after: EventId,
        given: &[Entry],
        events_max: u32,
    ) -> Option<Dropped> {
        let (added, kept, count) = (self.added, self.entries.len() as u64, given.len() as u64);
        let before = given.first().map(|first| first.id);
        let is_anchored = before.is_some_and(|first| self.entries.range(..first).next().is_some());
        let group = self.groups.get_mut(group)?;
        let seen = group.seen;
        group.seen = if given.len() < events_max as usize {
            Some(added)
        } else if is_anchored {
            seen.map(|seen| seen + count)
        } else {
            Some(added.saturating_sub(kept - count))
        };
        let missing = |kept: u64| {
            let missing = seen.map(|seen| added.saturating_sub(seen).saturating_sub(kept));
            let owed = missing.map_or(after > EventId::ZERO, |missing| missing > 0);
            owed.then_some(Dropped { after, before, events: missing })
        };
        match before {
            None if seen.is_none() => None,
            None => missing(0),
            Some(_) if is_anchored => None,
            Some(_) => missing(kept),
        }
    }
}
