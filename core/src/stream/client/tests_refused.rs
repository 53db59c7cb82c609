//! What a server refused for now: nothing is handed out twice, and nothing stays unsaid.

use super::tests::{GRACE_MS, World, name};
use super::*;
use crate::stream::error::{ServerFault, StreamError};
use crate::stream::event::EventId;
use crate::stream::name::{ConsumerName, GroupName};
use crate::stream::settings::TakeSettings;
use crate::stream::unready::Unready;

fn not_sent() -> StreamError {
    ServerFault::NotSent { detail: "cut".into() }.into()
}

const fn settles(verb: &Verb) -> bool {
    matches!(verb, Verb::GroupAck { .. })
}

/// A consumer that settles before it hands out.
fn at_most_once(world: &mut World, handle: HandleId, consumer: &str) -> PartyId {
    let taking = TakeSettings::new().start(crate::stream::Start::Oldest).no_ack();
    let taking = taking.grace(core::time::Duration::from_millis(GRACE_MS)).taking().unwrap();
    let consumer = ConsumerName::new(consumer).unwrap();
    let consume = Consume::new(GroupName::new("g").unwrap(), consumer, taking);
    let party = world.client.handle_consumer(world.now(), &[handle], consume).unwrap();
    world.run();
    party
}

fn pending(world: &World) -> Vec<EventId> {
    let space = world.server.space(&name(), world.server_time()).unwrap();
    let log = space.data[&1].log.as_ref().unwrap();
    log.groups[&GroupName::new("g").unwrap()].pending.keys().copied().collect()
}

#[test]
fn what_could_not_be_settled_first_is_handed_out_once_and_only_when_it_is() {
    let mut world = World::new();
    let handle = world.handle(10);
    let first = world.add(handle);
    let party = at_most_once(&mut world, handle, "a");
    world.refused = Some((settles, not_sent()));
    world.want(party);
    assert_eq!((world.ids(party), pending(&world)), (Vec::new(), [first].to_vec()));
    world.refused = None;
    let second = world.add(handle);
    let mut handed_out = Vec::new();
    for _ in 0..20 {
        world.pass_ms(100);
        let now = world.ids(party);
        let held = pending(&world);
        assert!(now.iter().all(|(id, _)| !held.contains(id)), "{now:?} and still pending: {held:?}");
        if !now.is_empty() {
            world.want(party);
        }
        handed_out.extend(now);
    }
    world.pass_ms(4 * GRACE_MS);
    handed_out.extend(world.ids(party));
    assert_eq!(handed_out, [(first, 1), (second, 1)]);
}

/// The first asking was done and its answer lost: who forgot what it was for would hand it out to nobody.
#[test]
fn what_was_settled_without_an_answer_is_handed_out_although_the_next_asking_is_refused() {
    let mut world = World::new();
    let handle = world.handle(10);
    let id = world.add(handle);
    let party = at_most_once(&mut world, handle, "a");
    world.lost = Some(settles);
    world.want(party);
    assert_eq!((world.ids(party), pending(&world)), (Vec::new(), Vec::new()));
    world.lost = None;
    world.refused = Some((settles, not_sent()));
    world.pass_ms(1000);
    assert_eq!(world.ids(party), []);
    world.refused = None;
    world.pass_ms(10_000);
    assert_eq!(world.ids(party), [(id, 1)]);
}

/// The same of what was taken over from somebody else.
#[test]
fn what_was_taken_over_and_settled_without_an_answer_is_handed_out_although_the_next_asking_is_refused() {
    let mut world = World::new();
    let handle = world.handle(10);
    let id = world.add(handle);
    let stale = at_most_once(&mut world, handle, "stale");
    world.refused = Some((settles, not_sent()));
    world.want(stale);
    world.client.handle_close(world.now(), stale);
    world.run();
    world.refused = None;
    assert_eq!(pending(&world), [id], "given back");
    let party = at_most_once(&mut world, handle, "next");
    world.lost = Some(settles);
    world.want(party);
    world.pass_ms(3000);
    assert_eq!((world.ids(party), pending(&world)), (Vec::new(), Vec::new()), "settled, and no answer came");
    world.lost = None;
    world.refused = Some((settles, not_sent()));
    world.pass_ms(2000);
    world.refused = None;
    world.pass_ms(10_000);
    assert_eq!(world.ids(party), [(id, 2)]);
}

#[test]
fn that_holes_were_told_is_said_again_when_it_was_refused() {
    let mut world = World::new();
    let handle = world.handle(2);
    let party = world.consumer(handle, "a");
    for _ in 0..4 {
        world.add(handle);
    }
    let tells = |verb: &Verb| matches!(verb, Verb::GroupTold { .. });
    let full = ServerFault::Unready { why: Unready::OutOfMemory, message: "full".into() };
    world.refused = Some((tells, full.into()));
    world.want(party);
    assert_eq!(world.items(party).len(), 3, "the hole, and what is kept");
    world.want(party);
    world.pass_ms(500);
    assert!(world.asked.iter().any(tells));
    world.refused = None;
    world.want(party);
    world.pass_ms(500);
    let space = world.server.space(&name(), world.server_time()).unwrap();
    assert_eq!(space.data[&1].groups[&GroupName::new("g").unwrap()].missed, [], "said");
}
