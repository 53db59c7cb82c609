//! The log of a generation and the consumer groups on it, as a server with streams keeps them.

use crate::stream::event::{Entry, EventId, Stored};
use crate::stream::name::{ConsumerName, GroupName};
use crate::stream::time::ServerTime;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Bound as Edge;

/// Entries in order, the last position given out, and the groups that read them.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Log {
    /// What is kept.
    pub entries: BTreeMap<EventId, Stored>,
    /// The last position given out, kept or not.
    pub last: EventId,
    /// How many entries were ever published here.
    pub added: u64,
    /// The groups; they live and die with the log.
    pub groups: BTreeMap<GroupName, LogGroup>,
    /// When the log dies, in milliseconds of the server's clock.
    pub expires_at_ms: Option<u64>,
}

/// What a group was given and has not settled.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct LogGroup {
    /// The last position that was given to anybody of the group.
    pub delivered: EventId,
    /// Who reads.
    pub consumers: BTreeSet<ConsumerName>,
    /// What is not settled.
    pub pending: BTreeMap<EventId, Pending>,
    /// How many of the entries ever published lay up to `delivered`; `None` where nobody counted.
    pub seen: Option<u64>,
}

/// One entry that is not settled.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Pending {
    /// Who has it.
    pub consumer: ConsumerName,
    /// Since when, in milliseconds of the server's clock.
    pub since_ms: u64,
    /// How often it was given out.
    pub count: u64,
}

/// What a claim took, and what it found missing.
#[derive(Debug)]
pub(super) struct Claim {
    pub(super) next: EventId,
    pub(super) entries: Vec<Entry>,
    pub(super) vanished: Vec<EventId>,
    pub(super) counts: Vec<u64>,
}

impl Log {
    /// The position the next entry gets; `None` when there is none left.
    pub(super) fn next_id(&self, now: ServerTime) -> Option<EventId> {
        let by_clock = EventId { ms: now.ms(), seq: 0 };
        if by_clock > self.last {
            return Some(by_clock);
        }
        let seq = self.last.seq.checked_add(1)?;
        Some(EventId { ms: self.last.ms, seq })
    }

    pub(super) fn append(&mut self, id: EventId, stored: Stored) {
        self.entries.insert(id, stored);
        self.last = id;
        self.added += 1;
    }

    /// Drops the oldest entries until `len_max` are left.
    pub(super) fn trim(&mut self, len_max: u64) {
        while self.entries.len() as u64 > len_max {
            self.entries.pop_first();
        }
    }

    pub(super) fn after(&self, id: EventId, events_max: u32) -> Vec<Entry> {
        self.entries
            .range((Edge::Excluded(id), Edge::Unbounded))
            .take(events_max as usize)
            .map(|(id, stored)| Entry { id: *id, stored: stored.clone() })
            .collect()
    }

    /// The highest position up to which the group has settled everything.
    pub(super) fn settled(&self, group: &LogGroup) -> EventId {
        match group.pending.first_key_value() {
            None => group.delivered,
            Some((lowest, _)) => {
                self.entries.range(..lowest).next_back().map_or(EventId::ZERO, |(id, _)| *id)
            }
        }
    }

    /// Gives a consumer what nobody of the group was given.
    pub(super) fn deliver(
        &mut self,
        group: &GroupName,
        consumer: &ConsumerName,
        events_max: u32,
        now: ServerTime,
    ) -> Option<Vec<Entry>> {
        let delivered = self.groups.get(group)?.delivered;
        let entries = self.after(delivered, events_max);
        let group = self.groups.get_mut(group)?;
        group.consumers.insert(consumer.clone());
        for entry in &entries {
            group.delivered = entry.id;
            let pending = Pending { consumer: consumer.clone(), since_ms: now.ms(), count: 1 };
            group.pending.insert(entry.id, pending);
        }
        Some(entries)
    }

    /// Takes over pending entries from `from` on. It looks at ten times as many as it may take.
    pub(super) fn claim(
        &mut self,
        group: &GroupName,
        consumer: &ConsumerName,
        idle_ms: u64,
        from: EventId,
        events_max: u32,
        now: ServerTime,
    ) -> Option<Claim> {
        let group = self.groups.get_mut(group)?;
        group.consumers.insert(consumer.clone());
        let looked: Vec<EventId> = group.pending.range(from..).map(|(id, _)| *id).collect();
        let (mut tries, mut room) = (u64::from(events_max) * 10, events_max);
        let mut claim =
            Claim { next: EventId::ZERO, entries: Vec::new(), vanished: Vec::new(), counts: Vec::new() };
        for id in looked {
            if tries == 0 || room == 0 {
                claim.next = id;
                break;
            }
            tries -= 1;
            let Some(stored) = self.entries.get(&id) else {
                group.pending.remove(&id);
                claim.vanished.push(id);
                room -= 1;
                continue;
            };
            let pending = group.pending.get_mut(&id).expect("looked at");
            if now.ms().saturating_sub(pending.since_ms) < idle_ms {
                continue;
            }
            *pending = Pending { consumer: consumer.clone(), since_ms: now.ms(), count: pending.count + 1 };
            claim.counts.push(pending.count);
            claim.entries.push(Entry { id, stored: stored.clone() });
            room -= 1;
        }
        Some(claim)
    }
}

impl LogGroup {
    /// How many entries a consumer has not settled.
    #[must_use]
    pub fn pending_of(&self, consumer: &ConsumerName) -> usize {
        self.pending.values().filter(|pending| pending.consumer == *consumer).count()
    }

    /// Deletes a consumer that has settled everything. `false` keeps one that has not.
    pub(super) fn delete_settled(&mut self, consumer: &ConsumerName) -> bool {
        let settled = self.pending_of(consumer) == 0;
        if settled {
            self.consumers.remove(consumer);
        }
        settled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::event::Event;

    fn stored() -> Stored {
        Stored::Event(Event::new("e", "").unwrap())
    }

    const fn id(ms: u64, seq: u64) -> EventId {
        EventId { ms, seq }
    }

    fn log(ids: &[EventId]) -> Log {
        let mut log = Log::default();
        for id in ids {
            log.append(*id, stored());
        }
        log
    }

    fn names() -> (GroupName, ConsumerName, ConsumerName) {
        let consumer = |name| ConsumerName::new(name).unwrap();
        (GroupName::new("g").unwrap(), consumer("a"), consumer("b"))
    }

    #[test]
    fn positions_rise_even_when_the_clock_falls() {
        let log = log(&[id(10, 3)]);
        assert_eq!(log.next_id(ServerTime::from_ms(11)), Some(id(11, 0)));
        assert_eq!(log.next_id(ServerTime::from_ms(10)), Some(id(10, 4)));
        assert_eq!(log.next_id(ServerTime::from_ms(2)), Some(id(10, 4)));
    }

    #[test]
    fn no_position_is_left_after_the_last() {
        assert_eq!(log(&[EventId::MAX]).next_id(ServerTime::from_ms(1)), None);
    }

    #[test]
    fn the_settled_prefix_ends_before_the_lowest_pending_entry() {
        let (group, a, _) = names();
        let mut log = log(&[id(1, 0), id(2, 0), id(3, 0)]);
        log.groups.insert(group.clone(), LogGroup::default());
        log.deliver(&group, &a, 10, ServerTime::from_ms(5)).unwrap();
        log.groups.get_mut(&group).unwrap().pending.remove(&id(1, 0));
        assert_eq!(log.settled(&log.groups[&group]), id(1, 0));
        log.trim(2);
        assert_eq!(log.settled(&log.groups[&group]), EventId::ZERO);
        log.groups.get_mut(&group).unwrap().pending.clear();
        assert_eq!(log.settled(&log.groups[&group]), id(3, 0));
    }

    #[test]
    fn a_claim_takes_the_idle_and_reports_the_vanished() {
        let (group, a, b) = names();
        let mut log = log(&[id(1, 0), id(2, 0), id(3, 0)]);
        log.groups.insert(group.clone(), LogGroup::default());
        log.deliver(&group, &a, 2, ServerTime::from_ms(10)).unwrap();
        log.deliver(&group, &a, 1, ServerTime::from_ms(19)).unwrap();
        log.entries.remove(&id(1, 0));
        let claim = log.claim(&group, &b, 5, EventId::ZERO, 10, ServerTime::from_ms(20)).unwrap();
        assert_eq!(claim.vanished, [id(1, 0)]);
        assert_eq!(claim.entries.iter().map(|e| e.id).collect::<Vec<_>>(), [id(2, 0)]);
        assert_eq!(claim.next, EventId::ZERO);
        let held = &log.groups[&group];
        assert_eq!((held.pending_of(&a), held.pending_of(&b)), (1, 1));
        assert_eq!(held.pending[&id(2, 0)].count, 2);
    }

    #[test]
    fn a_claim_in_pages_tells_where_to_go_on() {
        let (group, a, b) = names();
        let mut log = log(&[id(1, 0), id(2, 0), id(3, 0)]);
        log.groups.insert(group.clone(), LogGroup::default());
        log.deliver(&group, &a, 3, ServerTime::from_ms(10)).unwrap();
        let claim = log.claim(&group, &b, 0, EventId::ZERO, 2, ServerTime::from_ms(10)).unwrap();
        assert_eq!((claim.entries.len(), claim.next), (2, id(3, 0)));
    }
}
