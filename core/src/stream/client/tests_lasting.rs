//! What outlasts failures, stalls and repeated endings.

use super::tests::{GRACE_MS, World};
use super::*;
use crate::machine::Machine as _;
use crate::stream::error::ServerFault;
use crate::stream::error::StreamError;
use crate::stream::event::EventId;
use crate::stream::event::Ids;
use crate::stream::keyspace::loss::Befall;
use crate::stream::name::GroupName;
use crate::stream::op::Lease;
use crate::stream::reply::Told;

fn reads(world: &World) -> usize {
    world.asked.iter().filter(|verb| matches!(verb, Verb::GroupRead { .. })).count()
}

fn members(world: &World, stream: &str) -> Vec<alloc::string::String> {
    let name = StreamName::new(stream).unwrap();
    let space = world.server.space(&name, world.server_time()).unwrap();
    let group = &space.data[&1].groups[&GroupName::new("g").unwrap()];
    group.members.iter().map(|member| member.consumer.as_str().into()).collect()
}

#[test]
fn closing_again_and_again_ends_once() {
    let mut world = World::new();
    let handle = world.handle(10);
    let id = world.add(handle);
    let party = world.consumer(handle, "a");
    world.client.handle_want(world.now(), party);
    let Some(Command::Execute { ticket, op, .. }) = world.client.poll_command() else { panic!("it reads") };
    for _ in 0..8 {
        world.client.handle_close(world.now(), party);
    }
    assert!(world.client.poll_command().is_none(), "it waits for the answer that is out");
    let at = world.server_time();
    let result = world.server.apply(at, &op);
    let outcome = Outcome::Answered { at: Some(at), result };
    world.client.handle_completion(world.now(), ticket.complete(Ok(Execution::Ended(outcome))));
    world.run();
    world.client.handle_close(world.now(), party);
    world.run();
    let ended = ClientEvent::Ended { party, end: End::Closed };
    assert_eq!(world.events.iter().filter(|event| **event == ended).count(), 1);
    assert_eq!(members(&world, "s"), [""; 0]);
    let next = world.consumer(handle, "b");
    world.want(next);
    world.pass_ms(GRACE_MS / 2);
    assert_eq!(world.ids(next), [(id, 2)], "what the read brought was given back");
}

#[test]
fn only_the_end_of_its_generation_ends_a_loop() {
    let faults = [
        (StreamError::from(ServerFault::NotSent { detail: "cut".into() }), false),
        (CallerError::StreamDestroyed { current: Some(1) }.into(), true),
        (CallerError::DeadlineElapsed { deadline_ms: 1, now_ms: 2 }.into(), true),
    ];
    for (error, is_final) in faults {
        let mut world = World::new();
        let handle = world.handle(10);
        let id = world.add(handle);
        let party = world.consumer(handle, "a");
        world.client.handle_want(world.now(), party);
        let Some(Command::Execute { ticket, .. }) = world.client.poll_command() else { panic!("it reads") };
        let outcome = Outcome::Answered { at: None, result: Err(error.clone()) };
        world.client.handle_completion(world.now(), ticket.complete(Ok(Execution::Ended(outcome))));
        world.pass_ms(200);
        let failure = Failure::Refused(error);
        let ended = ClientEvent::Ended { party, end: End::Failed(failure.clone()) };
        assert_eq!(world.events.contains(&ended), is_final);
        assert_eq!(world.events.contains(&ClientEvent::Trouble { party, failure }), !is_final);
        let handed_out = if is_final { Vec::new() } else { [(id, 1)].to_vec() };
        assert_eq!(world.ids(party), handed_out, "and what can be got over is");
    }
}

#[test]
fn an_outage_is_asked_about_less_and_less() {
    let mut world = World::new();
    let handle = world.handle(10);
    let party = world.consumer(handle, "a");
    let before = reads(&world);
    world.lose = u32::MAX;
    world.want(party);
    world.pass_ms(349);
    assert!((2..=4).contains(&(reads(&world) - before)), "{}", reads(&world) - before);
    world.lose = 0;
    let id = world.add(handle);
    world.pass_ms(1000);
    assert_eq!(world.ids(party), [(id, 1)]);
}

#[test]
fn a_group_that_is_lost_again_and_again_is_no_hot_loop() {
    let mut world = World::new();
    let handle = world.handle(10);
    let party = world.consumer(handle, "a");
    world.want(party);
    let (before, name) = (reads(&world), StreamName::new("s").unwrap());
    for _ in 0..4 {
        let group = GroupName::new("g").unwrap();
        world.server.befall(world.server_time(), &name, 1, Befall::LoseGroup(group));
        world.pass_ms(50);
    }
    assert!(reads(&world) - before <= 10, "within 200 ms: {}", reads(&world) - before);
    let id = world.add(handle);
    world.pass_ms(100);
    let came = |item: &Item| matches!(item, Item::Event(delivery) if delivery.id == id);
    assert!(world.items(party).iter().any(came), "beside the holes that the losses left");
}

/// Its host has no room, for as long as it likes: that is no silence.
#[test]
fn a_consumer_that_takes_nothing_stays_a_member() {
    let mut world = World::new();
    let handle = world.handle(10);
    world.add(handle);
    let stalled = world.consumer(handle, "a");
    world.consumer(handle, "b");
    world.want(stalled);
    assert_eq!(world.ids(stalled).len(), 1);
    world.pass_ms(10 * GRACE_MS);
    let swept = world.asked.iter().filter(|verb| matches!(verb, Verb::GroupSweep { .. })).count();
    assert!(swept > 10, "others had looked for the silent: {swept}");
    assert_eq!(members(&world, "s"), ["a", "b"]);
}

/// Who was taken out while it was cut off comes back as itself, on all its streams; no other takes its place.
#[test]
fn a_swept_consumer_is_a_member_again_everywhere() {
    let mut world = World::new();
    let (first, second) = (world.handle_of("s", 10), world.handle_of("t", 10));
    let party = world.consumer_of(&[first, second], "a");
    world.now_ms += 3 * GRACE_MS;
    for stream in ["s", "t"] {
        let (group, owner) = (GroupName::new("g").unwrap(), alloc::string::String::from("other"));
        let handle = world.client.handle(if stream == "s" { first } else { second }).unwrap().clone();
        let acquire = Verb::LeaseAcquire { group: group.clone(), owner: owner.clone(), lease_ms: 100 };
        let acquired = world.server.apply(world.server_time(), &handle.op(acquire, Nonce([9; 16])));
        let Ok(Told::Leased { acquired: true, fence }) = acquired.map(|reply| reply.told) else {
            panic!("the lease had lapsed")
        };
        let lease = Lease { owner, fence, lease_ms: 1 };
        let sweep = Verb::GroupSweep { group, lease, grace_ms: GRACE_MS };
        world.server.apply(world.server_time(), &handle.op(sweep, Nonce([9; 16]))).unwrap();
        assert_eq!(members(&world, stream), [""; 0]);
    }
    world.pass_ms(GRACE_MS);
    assert_eq!((members(&world, "s"), members(&world, "t")), (["a".into()].into(), ["a".into()].into()));
    let id = world.add(second);
    world.want(party);
    world.pass_ms(100);
    assert_eq!(world.ids(party), [(id, 1)]);
}

#[test]
fn an_event_is_settled_on_the_stream_it_came_from() {
    let mut world = World::new();
    let (first, second) = (world.handle_of("s", 10), world.handle_of("t", 10));
    let party = world.consumer_of(&[first, second], "a");
    let id = world.add(second);
    world.want(party);
    assert_eq!(world.ids(party), [(id, 1)]);
    let of = |stream| (StreamName::new(stream).unwrap(), Ids::new([id]).unwrap());
    for (stream, count) in [("s", 0), ("t", 1)] {
        let (stream, ids) = of(stream);
        let call = world.client.handle_give(world.now(), party, &stream, Give::Ack, ids);
        world.run();
        let Some(Ok(Told::Acked { count: settled, .. })) = world.result(call) else { panic!("settled") };
        assert_eq!(settled, count, "{stream}");
    }
    let acks = world
        .asked
        .iter()
        .filter(|verb| matches!(verb, Verb::GroupAck { ids, .. } if ids.as_slice() == [id]));
    assert_eq!(acks.count(), 2, "each asked once");
    assert!(EventId::ZERO < id);
}
