//! Rows about where a log begins that is made after another was lost.

use super::*;
use crate::stream::contract::{GroupContract, Start};
use crate::stream::error::ServerFault;
use crate::stream::event::{Event, EventId, Ids, OnceKey, Stored};
use crate::stream::filter::Filter;
use crate::stream::handle::Handle;
use crate::stream::keyspace::loss::Befall;
use crate::stream::name::{ConsumerName, GroupName};
use crate::stream::op::{Condition, Nonce};
use crate::stream::retention::Wanted;
use alloc::vec::Vec;

const FAR: EventId = EventId { ms: 1_893_456_000_000, seq: 0 };

struct World {
    server: Keyspace,
    handle: Handle,
}

impl World {
    fn new(layout: Layout) -> Self {
        let handle = Handle::new(StreamName::new("s").unwrap(), Wanted::default(), layout).unwrap();
        Self { server: Keyspace::new(layout), handle }
    }

    fn ask(&mut self, ms: u64, verb: Verb) -> Result<Told, StreamError> {
        let op = self.handle.op(verb, Nonce([1; 16]));
        let result = self.server.apply(ServerTime::from_ms(ms), &op);
        self.handle.answered(&op.verb, &result);
        result.map(|reply| reply.told)
    }

    fn befall(&mut self, ms: u64, what: Befall) {
        self.server.befall(ServerTime::from_ms(ms), &StreamName::new("s").unwrap(), 1, what);
    }

    fn add(&mut self, ms: u64) -> EventId {
        let event = Event::new("e", "").unwrap();
        match self.ask(ms, Verb::Add { event, condition: Condition::Always }) {
            Ok(Told::Added { id: Some(id) }) => id,
            other => panic!("{other:?}"),
        }
    }

    fn open(&mut self, ms: u64, start: Start) {
        let contract = GroupContract { filter: Filter::All, start, no_ack: false, grace_ms: 10 };
        self.ask(ms, Verb::GroupOpen { group: group(), contract, settled: None }).unwrap();
    }

    fn read(&mut self, ms: u64) -> Vec<EventId> {
        let consumer = ConsumerName::new("c").unwrap();
        match self.ask(ms, Verb::GroupRead { group: group(), consumer, events_max: 100 }) {
            Ok(Told::Taken { entries, .. }) => entries.into_iter().map(|entry| entry.id).collect(),
            other => panic!("{other:?}"),
        }
    }
}

fn group() -> GroupName {
    GroupName::new("g").unwrap()
}

const fn at(ms: u64) -> EventId {
    EventId { ms, seq: 0 }
}

#[test]
fn a_start_that_nobody_came_past_moves_no_log() {
    for layout in [Layout::Pulse, Layout::Tagged] {
        for (start, made_first) in [(FAR, true), (FAR, false), (EventId::MAX, true), (EventId::MAX, false)] {
            let mut world = World::new(layout);
            world.add(5);
            world.open(5, Start::After(start));
            world.befall(6, Befall::LoseLog);
            if made_first {
                world.open(6, Start::After(start));
            }
            assert_eq!(world.add(7), at(7), "{layout:?} {start}");
            world.open(8, Start::After(start));
            assert_eq!(world.read(9), [], "it still begins where it was asked to");
        }
    }
}

#[test]
fn a_group_with_a_far_start_that_was_lost_alone_begins_there_again() {
    for layout in [Layout::Pulse, Layout::Tagged] {
        let mut world = World::new(layout);
        world.open(5, Start::After(FAR));
        world.befall(5, Befall::LoseGroup(group()));
        world.add(6);
        world.open(7, Start::After(FAR));
        assert_eq!(world.read(8), [], "{layout:?}");
    }
}

#[test]
fn what_was_settled_or_given_behind_a_far_start_moves_the_next_log() {
    for settles in [true, false] {
        let mut world = World::new(Layout::Tagged);
        world.open(5, Start::After(FAR));
        let given = world.add(FAR.ms + 1);
        assert_eq!(world.read(FAR.ms + 1), [given]);
        if settles {
            world
                .ask(FAR.ms + 1, Verb::GroupAck { group: group(), ids: Ids::new([given]).unwrap() })
                .unwrap();
        }
        world.befall(5, Befall::LoseLog);
        assert_eq!(Some(world.add(5)), given.next(), "the clock was set back");
    }
}

#[test]
fn a_log_that_would_begin_behind_the_last_position_is_not_made() {
    let end = EventId::MAX;
    let mut world = World::new(Layout::Tagged);
    world.open(5, Start::Oldest);
    let stored = Stored::Event(Event::new("e", "").unwrap());
    world.befall(5, Befall::Append { id: Some(end), stored });
    assert_eq!(world.read(5), [end]);
    world.befall(5, Befall::LoseLog);
    let before = world.server.clone();
    let event = Event::new("e", "").unwrap();
    let key = OnceKey::new(*b"k").unwrap();
    for verb in
        [Verb::Add { event: event.clone(), condition: Condition::Always }, Verb::AddOnce { key, event }]
    {
        assert_eq!(world.ask(5, verb), Err(ServerFault::NoPosition.into()));
        assert_eq!(world.server, before);
    }
}
