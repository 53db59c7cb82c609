//! Rows about entries that are given back, given up, or missed.

use super::*;
use crate::stream::contract::{GroupContract, Start};
use crate::stream::event::{Event, EventId, Ids};
use crate::stream::filter::Filter;
use crate::stream::handle::Handle;
use crate::stream::limits::{DEAD_LETTERS_MAX, GROUP_LATER_MAX, GROUP_MISSED_MAX};
use crate::stream::name::{ConsumerName, GroupName};
use crate::stream::op::{Condition, Nonce};
use crate::stream::reply::{Dropped, GapReason, Missed};
use crate::stream::retention::Settings;
use alloc::vec::Vec;

fn server(layout: Layout, max_len: u64) -> (Keyspace, Handle) {
    let wanted = Settings::new().max_len(max_len).wanted().unwrap();
    (Keyspace::new(layout), Handle::new(StreamName::new("s").unwrap(), wanted, layout).unwrap())
}

fn ask(server: &mut Keyspace, handle: &mut Handle, ms: u64, verb: Verb) -> Result<Told, StreamError> {
    let op = handle.op(verb, Nonce([1; 16]));
    let result = server.apply(ServerTime::from_ms(ms), &op);
    handle.answered(&op.verb, &result);
    result.map(|reply| reply.told)
}

fn group() -> GroupName {
    GroupName::new("g").unwrap()
}

fn consumer() -> ConsumerName {
    ConsumerName::new("c").unwrap()
}

fn add() -> Verb {
    Verb::Add { event: Event::new("e", "").unwrap(), condition: Condition::Always }
}

fn open() -> Verb {
    let contract = GroupContract { filter: Filter::All, start: Start::Oldest, no_ack: false, grace_ms: 10 };
    Verb::GroupOpen { group: group(), contract, settled: None }
}

fn read() -> Verb {
    Verb::GroupRead { group: group(), consumer: consumer(), events_max: 10_000 }
}

/// A stream with so many entries, all given to the consumer.
fn given(count: u64) -> (Keyspace, Handle, Vec<EventId>) {
    let (mut server, mut handle) = server(Layout::Tagged, 100_000);
    for _ in 0..count {
        ask(&mut server, &mut handle, 5, add()).unwrap();
    }
    ask(&mut server, &mut handle, 5, open()).unwrap();
    let mut ids = Vec::new();
    while let Told::Taken { entries, .. } = ask(&mut server, &mut handle, 5, read()).unwrap() {
        if entries.is_empty() {
            break;
        }
        ids.extend(entries.iter().map(|entry| entry.id));
    }
    (server, handle, ids)
}

fn nack(ids: &[EventId], delay_ms: u64) -> Verb {
    Verb::GroupNack { group: group(), consumer: consumer(), ids: Ids::new(ids).unwrap(), delay_ms }
}

fn bury(ids: &[EventId]) -> Verb {
    Verb::GroupBury { group: group(), consumer: consumer(), ids: Ids::new(ids).unwrap() }
}

#[test]
fn pulse_refuses_what_it_has_no_place_for() {
    let (mut server, mut handle) = server(Layout::Pulse, 10);
    ask(&mut server, &mut handle, 5, add()).unwrap();
    let release = Verb::GroupDetach { group: group(), consumer: consumer(), release: true };
    let dead = Verb::DeadRead { after: EventId::ZERO, events_max: 1 };
    let told = Verb::GroupTold { group: group(), through: 1 };
    for verb in [nack(&[], 0), bury(&[]), release, dead, Verb::DeadRemove { ids: Ids::default() }, told] {
        assert_eq!(ask(&mut server, &mut handle, 5, verb), Err(CallerError::TaggedOnly.into()));
    }
}

#[test]
fn only_so_many_entries_are_put_off_and_the_rest_stays_with_its_consumer() {
    let count = GROUP_LATER_MAX as u64 + 1;
    let (mut server, mut handle, ids) = given(count);
    let nacked = ask(&mut server, &mut handle, 5, nack(&ids, 100));
    assert_eq!(nacked, Ok(Told::Nacked { count: count - 1 }));
    let again = ask(&mut server, &mut handle, 5, nack(&ids, 0));
    assert_eq!(again, Ok(Told::Nacked { count: 1 }), "the others are no longer its own");
}

#[test]
fn a_buried_entry_is_settled_and_kept_with_where_it_came_from() {
    let (mut server, mut handle, ids) = given(1);
    let buried = ask(&mut server, &mut handle, 7, bury(&ids));
    assert_eq!(buried, Ok(Told::Buried { count: 1, cursor: Some(ids[0]) }));
    assert_eq!(ask(&mut server, &mut handle, 7, bury(&ids)), Ok(Told::Buried { count: 0, cursor: None }));
    let dead = ask(&mut server, &mut handle, 7, Verb::DeadRead { after: EventId::ZERO, events_max: 5 });
    let Ok(Told::Dead(letters)) = dead else { panic!("{dead:?}") };
    assert_eq!((letters[0].at, letters[0].id, letters[0].count), (EventId { ms: 7, seq: 0 }, ids[0], 1));
}

#[test]
fn dead_letters_are_bounded_and_none_is_buried_where_not_all_fit() {
    let (mut server, mut handle, ids) = given(DEAD_LETTERS_MAX as u64 + 1);
    let full = Err(CallerError::DeadLettersFull.into());
    assert_eq!(ask(&mut server, &mut handle, 5, bury(&ids)), full);
    let fits = ask(&mut server, &mut handle, 5, bury(&ids[1..]));
    assert!(matches!(fits, Ok(Told::Buried { count, .. }) if count == DEAD_LETTERS_MAX as u64));
    assert_eq!(ask(&mut server, &mut handle, 5, bury(&ids[..1])), full);
}

#[test]
fn a_hole_stays_until_it_was_told_and_too_many_become_one() {
    let mut group = space::Group::default();
    let hole = |at| Dropped { after: EventId { ms: at, seq: 0 }, before: None, events: Some(1) };
    for at in 0..=GROUP_MISSED_MAX as u64 {
        group.miss(ServerTime::from_ms(5), GapReason::Trimmed, hole(at));
    }
    assert_eq!(group.missed.len(), GROUP_MISSED_MAX);
    let last = group.missed.last().unwrap();
    let joined = Dropped { events: Some(2), ..hole(GROUP_MISSED_MAX as u64 - 1) };
    let number = 5 + GROUP_MISSED_MAX as u64;
    assert_eq!(*last, Missed { number, reason: GapReason::Trimmed, dropped: joined });
}

#[test]
fn a_group_is_told_what_was_trimmed_before_it_was_given() {
    let (mut server, mut handle) = server(Layout::Tagged, 2);
    ask(&mut server, &mut handle, 5, open()).unwrap();
    for _ in 0..5 {
        ask(&mut server, &mut handle, 5, add()).unwrap();
    }
    let taken = ask(&mut server, &mut handle, 5, read());
    let Ok(Told::Taken { missed, entries, .. }) = taken else { panic!("{taken:?}") };
    assert_eq!((missed[0].reason, missed[0].dropped.events), (GapReason::Trimmed, Some(3)));
    assert_eq!(missed[0].dropped.before, Some(entries[0].id));
    let told = Verb::GroupTold { group: group(), through: missed[0].number };
    ask(&mut server, &mut handle, 5, told).unwrap();
    let again = ask(&mut server, &mut handle, 5, read());
    assert!(matches!(again, Ok(Told::Taken { missed, .. }) if missed.is_empty()));
}
