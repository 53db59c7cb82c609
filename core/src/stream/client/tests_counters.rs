//! What is counted, against histories of which every number is known.

use super::tests::World;
use super::*;
use crate::stream::event::Ids;
use crate::stream::failover::{ReplicationId, Role, Standing};
use crate::stream::settings::TakeSettings;

#[test]
fn what_was_published_handed_out_and_settled_is_counted() {
    let mut world = World::new();
    let handle = world.handle(10);
    let party = world.consumer(handle, "a");
    let ids = [world.add(handle), world.add(handle), world.add(handle)];
    world.want(party);
    world.pass_ms(100);
    world.give(party, Give::Ack, ids[0]);
    world.give(party, Give::Ack, ids[0]);
    world.give(party, Give::Bury, ids[1]);
    world.give(party, Give::Nack { delay_ms: 0 }, ids[2]);
    world.want(party);
    world.pass_ms(2000);
    let counters = world.client.counters();
    assert_eq!((counters.published, counters.handed_out, counters.again), (3, 4, 1));
    assert_eq!((counters.settled, counters.buried), (1, 1), "once, however often it was asked");
}

#[test]
fn what_is_missing_is_counted_by_reason() {
    let mut world = World::new();
    let handle = world.handle(2);
    let taking = TakeSettings::new().taking().unwrap();
    let reader = world.client.handle_reader(world.now(), &[handle], taking);
    world.add(handle);
    let consumer = world.consumer(handle, "a");
    for _ in 0..5 {
        world.add(handle);
    }
    for party in [reader, consumer] {
        world.want(party);
        world.pass_ms(100);
    }
    // Two were given to the consumer, and are dropped before it settles them.
    world.add(handle);
    world.add(handle);
    world.want(consumer);
    world.pass_ms(10_000);
    let missing = |reason| world.client.counters().missing.get(&reason).copied();
    // Of six there were two left, for the group that began at the oldest.
    assert_eq!(missing(GapReason::Trimmed), Some(Missing { gaps: 1, events: 4 }));
    assert_eq!(missing(GapReason::TrimmedPending), Some(Missing { gaps: 1, events: 2 }));
    assert_eq!(missing(GapReason::LogLost), None);
}

#[test]
fn what_a_fence_kept_out_is_counted_by_what_it_was() {
    let mut world = World::new();
    let handle = world.handle(10);
    world.add(handle);
    let clone = world.client.handle_clone(world.now(), handle).unwrap();
    world.call(handle, Verb::Destroy);
    world.call(clone, Verb::Snapshot);
    let other = world.handle(10);
    world.add(other);
    world.call(clone, Verb::Snapshot);
    world.server.lose_all();
    world.call(other, Verb::Snapshot);
    let counters = world.client.counters();
    let fenced = |fenced| counters.fenced.get(&fenced).copied().unwrap_or(0);
    assert_eq!(Fenced::ALL.map(fenced), [2, 1, 0]);
}

#[test]
fn leases_that_were_taken_and_lost_are_counted() {
    let mut world = World::new();
    let handle = world.handle(10);
    let first = world.consumer(handle, "a");
    let taken = |world: &World| (world.client.counters().leases_taken, world.client.counters().leases_lost);
    assert_eq!(taken(&world), (1, 0));
    let second = world.consumer(handle, "b");
    world.pass_ms(5000);
    assert_eq!(taken(&world), (1, 0), "the first keeps it");
    world.client.handle_close(world.now(), first);
    world.run();
    world.pass_ms(5000);
    assert_eq!(taken(&world), (2, 0), "the second has it");
    // Somebody else of whom this client knows nothing takes it.
    world.steal_lease();
    world.pass_ms(1000);
    assert_eq!(taken(&world), (2, 1));
    let _ = second;
}

#[test]
fn a_lease_that_lapsed_and_is_taken_again_was_lost() {
    let mut world = World::new();
    let handle = world.handle(10);
    world.consumer(handle, "a");
    // The owner stands still meanwhile, and nobody else wants it.
    world.now_ms += 60_000;
    world.pass_ms(1000);
    let counters = world.client.counters();
    assert_eq!((counters.leases_taken, counters.leases_lost), (2, 1));
    let leased = world.events.iter().filter_map(|event| {
        let ClientEvent::Leased { fence, .. } = event else { return None };
        Some(*fence)
    });
    assert_eq!(leased.collect::<Vec<_>>(), [Some(1), None, Some(2)]);
}

#[test]
fn askings_without_an_answer_are_counted() {
    let mut world = World::new();
    let handle = world.handle(10);
    world.lose = 2;
    world.call(handle, Verb::Open);
    world.pass_ms(1000);
    assert_eq!(world.client.counters().uncertain, 2);
}

#[test]
fn failovers_are_counted_by_their_verdict() {
    let mut world = World::new();
    let id = |letter: &str| ReplicationId::parse(&letter.repeat(40)).unwrap();
    let master = |letter, offset| Standing { role: Role::Master, id: id(letter), offset, second: None };
    world.standing = Some(master("a", 10));
    let handle = world.handle(10);
    let first = world.add(handle);
    world.standing = Some(Standing { second: Some((id("a"), 11)), ..master("b", 20) });
    world.call(handle, Verb::Remove { ids: Ids::new([first]).unwrap() });
    world.standing = Some(Standing { second: Some((id("b"), 20)), ..master("c", 30) });
    world.call(handle, Verb::Snapshot);
    world.standing = Some(master("d", 40));
    world.call(handle, Verb::Snapshot);
    let failovers = Failovers { kept: 1, lost: 1, unknown: 1 };
    assert_eq!(world.client.counters().failovers, failovers);
}
