//! Rows about how groups stand.

use super::loss::Befall;
use super::*;
use crate::stream::contract::{GroupContract, Start};
use crate::stream::event::{Event, EventId, Ids};
use crate::stream::filter::Filter;
use crate::stream::handle::Handle;
use crate::stream::listing::{GroupState, GroupTotals, Groups, MemberState, OldestPending};
use crate::stream::name::{ConsumerName, GroupName};
use crate::stream::op::{Condition, Nonce};
use crate::stream::retention::Settings;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

struct Server {
    keyspace: Keyspace,
    handle: Handle,
}

fn group(name: &str) -> GroupName {
    GroupName::new(name).unwrap()
}

fn consumer() -> ConsumerName {
    ConsumerName::new("c").unwrap()
}

fn contract() -> GroupContract {
    GroupContract { filter: Filter::All, start: Start::Oldest, no_ack: false, grace_ms: 10 }
}

impl Server {
    fn new(layout: Layout) -> Self {
        let wanted = Settings::new().max_len(10).wanted().unwrap();
        let handle = Handle::new(StreamName::new("s").unwrap(), wanted, layout).unwrap();
        Self { keyspace: Keyspace::new(layout), handle }
    }

    fn ask(&mut self, ms: u64, verb: Verb) -> Result<Told, StreamError> {
        let op = self.handle.op(verb, Nonce([1; 16]));
        let result = self.keyspace.apply(ServerTime::from_ms(ms), &op);
        self.handle.answered(&op.verb, &result);
        result.map(|reply| reply.told)
    }

    fn add(&mut self, ms: u64) -> EventId {
        let event = Event::new("e", "").unwrap();
        match self.ask(ms, Verb::Add { event, condition: Condition::Always }) {
            Ok(Told::Added { id: Some(id) }) => id,
            other => panic!("{other:?}"),
        }
    }

    fn open(&mut self, ms: u64, name: &str) {
        self.ask(ms, Verb::GroupOpen { group: group(name), contract: contract(), settled: None }).unwrap();
    }

    fn groups(&mut self, ms: u64, after: Option<&str>, groups_max: u32) -> Groups {
        let after = after.map(group);
        match self.ask(ms, Verb::Groups { after, groups_max }) {
            Ok(Told::Groups(groups)) => groups,
            other => panic!("{other:?}"),
        }
    }
}

/// Three events at 5, 6 and 7 ms, two of which a consumer took at 10, one settled at 12.
fn history(layout: Layout) -> (Server, [EventId; 3]) {
    let mut server = Server::new(layout);
    let ids = [5, 6, 7].map(|ms| server.add(ms));
    server.open(8, "g");
    server.ask(9, Verb::GroupRegister { group: group("g"), consumer: consumer() }).unwrap();
    server.ask(10, Verb::GroupRead { group: group("g"), consumer: consumer(), events_max: 2 }).unwrap();
    server.ask(12, Verb::GroupAck { group: group("g"), ids: Ids::new([ids[0]]).unwrap() }).unwrap();
    server.ask(12, Verb::LeaseAcquire { group: group("g"), owner: "o".into(), lease_ms: 5 }).unwrap();
    (server, ids)
}

#[test]
fn a_group_is_told_with_what_is_pending_and_how_far_behind_it_is() {
    for layout in [Layout::Tagged, Layout::Pulse] {
        let (mut server, ids) = history(layout);
        let Groups { groups, more } = server.groups(20, None, 10);
        let oldest = OldestPending { id: ids[1], consumer: Some(consumer()), idle_ms: 10, count: 1 };
        let member = MemberState { consumer: consumer(), silent_ms: Some(11), pending: 1 };
        let expected = GroupState {
            group: group("g"),
            contract: Some(contract()),
            cursor: Some(ids[0]),
            delivered: Some(ids[1]),
            lag: (layout == Layout::Tagged).then_some(1),
            pending: 1,
            oldest: Some(oldest),
            members: alloc::vec![member],
            fence: 1,
            later: 0,
            missed: 0,
        };
        assert_eq!((groups, more), (alloc::vec![expected], false));
    }
}

#[test]
fn a_lag_counts_what_was_trimmed_before_it_was_given() {
    let (mut server, _) = history(Layout::Tagged);
    for ms in 20..40 {
        server.add(ms);
    }
    assert_eq!(server.groups(40, None, 10).groups[0].lag, Some(21));
    server.ask(41, Verb::GroupRead { group: group("g"), consumer: consumer(), events_max: 100 }).unwrap();
    let state = server.groups(42, None, 10).groups.remove(0);
    assert_eq!((state.lag, state.missed, state.pending), (Some(0), 1, 11));
}

#[test]
fn what_was_given_back_belongs_to_nobody_and_what_is_put_off_is_counted() {
    let (mut server, ids) = history(Layout::Tagged);
    let ids = Ids::new([ids[1]]).unwrap();
    let nack = Verb::GroupNack { group: group("g"), consumer: consumer(), ids, delay_ms: 100 };
    server.ask(15, nack).unwrap();
    let Groups { groups, .. } = server.groups(20, None, 10);
    assert_eq!(groups[0].oldest.as_ref().unwrap().consumer, None);
    assert_eq!((groups[0].later, groups[0].members[0].pending), (1, 0));
    assert_eq!(GroupTotals::of(&groups).oldest_pending_ms, 0);
}

#[test]
fn a_group_without_its_log_keeps_its_books() {
    let (mut server, ids) = history(Layout::Tagged);
    let name = StreamName::new("s").unwrap();
    server.keyspace.befall(ServerTime::from_ms(19), &name, 1, Befall::LoseLog);
    let state = server.groups(20, None, 10).groups.remove(0);
    assert_eq!((state.cursor, state.delivered, state.lag, state.pending), (Some(ids[0]), None, None, 0));
}

#[test]
fn groups_come_in_pages_by_name() {
    let mut server = Server::new(Layout::Tagged);
    for name in ["b", "a", "d", "c", "a.b"] {
        server.open(5, name);
    }
    let names = |groups: &Groups| -> Vec<_> { groups.groups.iter().map(|g| g.group.to_string()).collect() };
    let first = server.groups(6, None, 2);
    assert_eq!((names(&first), first.more), (["a", "a.b"].map(String::from).to_vec(), true));
    let second = server.groups(6, Some("a.b"), 3);
    assert_eq!((names(&second), second.more), (["b", "c", "d"].map(String::from).to_vec(), false));
    assert_eq!(server.groups(6, Some("d"), 3), Groups::default());
}

#[test]
fn the_groups_of_a_stream_that_is_not_there_are_refused() {
    let mut server = Server::new(Layout::Tagged);
    let refused = server.ask(5, Verb::Groups { after: None, groups_max: 1 });
    assert_eq!(refused, Err(CallerError::StreamNotFound.into()));
}

#[test]
fn totals_are_sums_and_the_longest_age() {
    let (mut server, _) = history(Layout::Tagged);
    server.open(13, "h");
    let Groups { groups, .. } = server.groups(20, None, 10);
    let totals = GroupTotals::of(&groups);
    let expected = GroupTotals {
        groups: 2,
        lag: 4,
        lag_unknown: 0,
        pending: 1,
        oldest_pending_ms: 10,
        later: 0,
        members: 1,
    };
    assert_eq!(totals, expected);
}
