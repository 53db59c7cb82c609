//! Rows of the tables of the model.

use super::loss::Befall;
use super::*;
use crate::stream::contract::{GroupContract, Start};
use crate::stream::error::{CallerError, Mismatch, ServerFault};
use crate::stream::event::{Event, EventId, Ids, OnceKey};
use crate::stream::filter::Filter;
use crate::stream::handle::Handle;
use crate::stream::limits::{GROUP_MEMBERS_MAX, ONCE_DROPPED_MAX};
use crate::stream::name::{ConsumerName, GroupName};
use crate::stream::op::{Condition, Lease, Nonce};
use crate::stream::retention::{Settings, Wanted};
use alloc::format;
use alloc::vec::Vec;
use core::time::Duration;

/// A server and its clock.
struct World {
    server: Keyspace,
    now_ms: u64,
    nonces: u8,
}

type Result_ = Result<Told, StreamError>;

impl World {
    fn new(layout: Layout) -> Self {
        Self { server: Keyspace::new(layout), now_ms: 1000, nonces: 0 }
    }

    fn both() -> [Self; 2] {
        [Self::new(Layout::Tagged), Self::new(Layout::Pulse)]
    }

    fn handle(&self, settings: Settings) -> Handle {
        Handle::new(name(), settings.wanted().unwrap(), self.server.layout()).unwrap()
    }

    fn ask(&mut self, handle: &mut Handle, verb: Verb) -> Result_ {
        self.nonces += 1;
        let op = handle.op(verb, Nonce([self.nonces; 16]));
        let before = self.server.space(&name(), ServerTime::from_ms(self.now_ms));
        let result = self.server.apply(ServerTime::from_ms(self.now_ms), &op);
        if result.is_err() {
            let after = self.server.space(&name(), ServerTime::from_ms(self.now_ms));
            assert_eq!(after, before, "a refusal changes nothing: {op:?}");
        }
        handle.answered(&op.verb, &result);
        result.map(|reply| reply.told)
    }

    fn befall(&mut self, what: Befall) {
        self.server.befall(ServerTime::from_ms(self.now_ms), &name(), 1, what);
    }

    fn data(&self) -> space::Data {
        let space = self.server.space(&name(), ServerTime::from_ms(self.now_ms)).unwrap();
        space.data.values().next().cloned().unwrap_or_default()
    }
}

fn name() -> StreamName {
    StreamName::new("s").unwrap()
}

fn event(payload: &str) -> Event {
    Event::new("e", payload).unwrap()
}

fn add() -> Verb {
    Verb::Add { event: event(""), condition: Condition::Always }
}

fn once(key: &str, payload: &str) -> Verb {
    Verb::AddOnce { key: OnceKey::new(key).unwrap(), event: event(payload) }
}

fn group() -> GroupName {
    GroupName::new("g").unwrap()
}

fn consumer(name: &str) -> ConsumerName {
    ConsumerName::new(name).unwrap()
}

fn open(start: Start, settled: Option<EventId>) -> Verb {
    let contract = GroupContract { filter: Filter::All, start, no_ack: false, grace_ms: 10 };
    Verb::GroupOpen { group: group(), contract, settled }
}

fn read() -> Verb {
    Verb::GroupRead { group: group(), consumer: consumer("c"), events_max: 10 }
}

fn ids(told: Result_) -> Vec<EventId> {
    match told {
        Ok(Told::Entries(entries) | Told::Read { entries, .. } | Told::Taken { entries, .. }) => {
            entries.iter().map(|entry| entry.id).collect()
        }
        other => panic!("{other:?}"),
    }
}

fn refused(error: CallerError) -> Result_ {
    Err(error.into())
}

#[test]
fn an_unbound_handle_makes_generation_1_where_nothing_is() {
    for mut world in World::both() {
        let mut handle = world.handle(Settings::new());
        assert_eq!(world.ask(&mut handle, Verb::Open), Ok(Told::Done));
        assert_eq!(handle.bound().unwrap().generation, 1);
    }
}

#[test]
fn an_unbound_handle_makes_the_next_generation_after_a_tombstone_with_its_own_contract() {
    for mut world in World::both() {
        let mut first = world.handle(Settings::new().max_len(5));
        world.ask(&mut first, add()).unwrap();
        world.ask(&mut first, Verb::Destroy).unwrap();
        let mut second = world.handle(Settings::new().max_len(7));
        world.ask(&mut second, Verb::Open).unwrap();
        let bound = second.bound().unwrap();
        assert_eq!((bound.generation, bound.contract), (2, Some(second.wanted().contract)));
        world.ask(&mut second, add()).unwrap();
    }
}

#[test]
fn what_does_not_create_finds_nothing_or_the_tombstone() {
    for mut world in World::both() {
        let after = EventId::ZERO;
        let verbs = || {
            [
                Verb::Attend,
                Verb::Snapshot,
                Verb::Destroy,
                Verb::Remove { ids: Ids::default() },
                Verb::Add { event: event(""), condition: Condition::IfExists },
                Verb::Add { event: event(""), condition: Condition::After(after) },
                Verb::Read { after, events_max: 1 },
                Verb::Replay { after, events_max: 1, bytes_max: 100 },
            ]
        };
        for verb in verbs() {
            let mut handle = world.handle(Settings::new());
            assert_eq!(world.ask(&mut handle, verb), refused(CallerError::StreamNotFound));
        }
        let mut maker = world.handle(Settings::new());
        world.ask(&mut maker, Verb::Open).unwrap();
        world.ask(&mut maker, Verb::Destroy).unwrap();
        for verb in verbs().into_iter().take(7) {
            let mut handle = world.handle(Settings::new());
            let destroyed = CallerError::StreamDestroyed { current: Some(1) };
            assert_eq!(world.ask(&mut handle, verb), refused(destroyed));
        }
    }
}

#[test]
fn an_explicit_contract_must_be_the_generations() {
    for mut world in World::both() {
        let mut maker = world.handle(Settings::new().max_len(5));
        world.ask(&mut maker, Verb::Open).unwrap();
        for settings in [Settings::new().max_len(6), Settings::new().ttl(Duration::from_secs(1))] {
            let mut other = world.handle(settings);
            let mismatch = CallerError::ConfigMismatch { kind: Mismatch::Contract };
            assert_eq!(world.ask(&mut other, Verb::Open), refused(mismatch.clone()));
            assert_eq!(world.ask(&mut other, Verb::Destroy), refused(mismatch));
        }
        let mut adopts = world.handle(Settings::new());
        world.ask(&mut adopts, Verb::Open).unwrap();
        assert_eq!(adopts.bound().unwrap().contract, Some(maker.wanted().contract));
    }
}

#[test]
fn a_handles_own_elapsed_deadline_is_told_before_anything_else() {
    for mut world in World::both() {
        let mut maker = world.handle(Settings::new());
        world.ask(&mut maker, Verb::Open).unwrap();
        let mut late = world.handle(Settings::new().deadline_ms(1000));
        let elapsed = CallerError::DeadlineElapsed { deadline_ms: 1000, now_ms: 1000 };
        assert_eq!(world.ask(&mut late, Verb::Open), refused(elapsed));
        let mismatch = CallerError::ConfigMismatch { kind: Mismatch::Contract };
        assert_eq!(world.ask(&mut late, once("k", "p")), refused(mismatch), "add_once looks at it first");
    }
}

#[test]
fn at_the_deadline_everything_is_refused_but_destroying() {
    for mut world in World::both() {
        let mut handle = world.handle(Settings::new().deadline_ms(2000));
        world.ask(&mut handle, open(Start::Oldest, None)).unwrap();
        world.now_ms = 2000;
        let verbs = [
            add(),
            once("k", "p"),
            Verb::Attend,
            Verb::Snapshot,
            read(),
            Verb::GroupKeepAlive { group: group(), consumer: consumer("c") },
            Verb::GroupRegister { group: group(), consumer: consumer("c") },
        ];
        for verb in verbs {
            let elapsed = CallerError::DeadlineElapsed { deadline_ms: 2000, now_ms: 2000 };
            assert_eq!(world.ask(&mut handle, verb), refused(elapsed));
        }
        world.now_ms = 2001;
        assert_eq!(world.data(), space::Data::default(), "everything it owned is gone");
        assert_eq!(world.ask(&mut handle, Verb::Destroy), Ok(Told::Destroyed { now: true }));
        assert_eq!(world.ask(&mut handle, Verb::Destroy), Ok(Told::Destroyed { now: false }));
    }
}

#[test]
fn after_a_loss_a_tagged_handle_is_told_so_whatever_it_asks() {
    let mut world = World::new(Layout::Tagged);
    let mut handle = world.handle(Settings::new());
    world.ask(&mut handle, add()).unwrap();
    world.befall(Befall::LoseLife);
    for verb in [add(), Verb::Open, Verb::Snapshot, Verb::Destroy, read()] {
        assert_eq!(world.ask(&mut handle, verb), refused(CallerError::StreamLost { current: None }));
    }
    let mut other = world.handle(Settings::new());
    world.ask(&mut other, Verb::Open).unwrap();
    assert_eq!(ids(world.ask(&mut other, Verb::Snapshot)), [], "what the lost one left is not the new one's");
    assert_eq!(world.ask(&mut handle, add()), refused(CallerError::StreamLost { current: Some(1) }));
}

#[test]
fn after_a_loss_a_pulse_handle_of_generation_1_writes_the_record_again() {
    let mut world = World::new(Layout::Pulse);
    let mut handle = world.handle(Settings::new());
    world.ask(&mut handle, add()).unwrap();
    world.befall(Befall::LoseLife);
    for verb in [Verb::Snapshot, Verb::Destroy, read()] {
        assert_eq!(world.ask(&mut handle, verb), refused(CallerError::StreamNotFound));
    }
    world.ask(&mut handle, add()).unwrap();
    assert_eq!(ids(world.ask(&mut handle, Verb::Snapshot)).len(), 2, "the data is kept");
}

#[test]
fn a_handle_that_saw_the_end_brings_nothing_back() {
    let mut world = World::new(Layout::Pulse);
    let mut handle = world.handle(Settings::new());
    world.ask(&mut handle, add()).unwrap();
    world.ask(&mut handle, Verb::Destroy).unwrap();
    world.befall(Befall::LoseLife);
    assert_eq!(world.ask(&mut handle, add()), refused(CallerError::StreamDestroyed { current: None }));
    let mut other = world.handle(Settings::new());
    world.ask(&mut other, Verb::Open).unwrap();
    assert_eq!(world.ask(&mut handle, add()), refused(CallerError::StreamDestroyed { current: Some(1) }));
}

#[test]
fn once_the_same_event_is_found_and_another_conflicts() {
    for mut world in World::both() {
        let mut handle = world.handle(Settings::new().ttl(Duration::from_secs(60)));
        let Ok(Told::AddedOnce { id, published: true }) = world.ask(&mut handle, once("k", "p")) else {
            panic!("published")
        };
        assert_eq!(world.ask(&mut handle, once("k", "p")), Ok(Told::AddedOnce { id, published: false }));
        assert_eq!(world.ask(&mut handle, once("k", "q")), refused(CallerError::IdempotencyConflict));
        assert_eq!(world.data().log.unwrap().entries.len(), 1);
    }
}

#[test]
fn once_pulse_needs_an_expiry_and_tagged_has_a_window() {
    let [mut tagged, mut pulse] = World::both();
    let mut handle = pulse.handle(Settings::new());
    let required = CallerError::ConfigMismatch { kind: Mismatch::ExpiryRequired };
    assert_eq!(pulse.ask(&mut handle, once("k", "p")), refused(required));
    let mut handle = tagged.handle(Settings::new().once_window(Duration::from_millis(50)));
    tagged.ask(&mut handle, once("k", "p")).unwrap();
    tagged.now_ms += 50;
    assert!(matches!(tagged.ask(&mut handle, once("k", "p")), Ok(Told::AddedOnce { published: false, .. })));
    tagged.now_ms += 1;
    assert!(matches!(tagged.ask(&mut handle, once("k", "p")), Ok(Told::AddedOnce { published: true, .. })));
}

#[test]
fn once_drops_a_bounded_number_of_expired_records_oldest_first() {
    let mut world = World::new(Layout::Tagged);
    let mut handle = world.handle(Settings::new().once_window(Duration::from_millis(50)));
    for i in 0..ONCE_DROPPED_MAX + 20 {
        world.ask(&mut handle, once(&format!("{i:03}"), "p")).unwrap();
    }
    // A record of another window keeps the rest from dying together.
    world.now_ms += 40;
    world.ask(&mut handle, once("late", "p")).unwrap();
    world.now_ms += 20;
    world.ask(&mut handle, once("next", "p")).unwrap();
    let left = world.data().once.records;
    assert_eq!(left.len(), 22);
    assert!(left.contains_key(&b"119"[..]) && !left.contains_key(&b"099"[..]));
}

#[test]
fn once_in_the_datas_last_millisecond_gives_it_a_new_term() {
    let mut world = World::new(Layout::Pulse);
    let mut handle = world.handle(Settings::new().ttl(Duration::from_millis(100)));
    world.ask(&mut handle, add()).unwrap();
    world.now_ms += 100;
    world.ask(&mut handle, once("k", "p")).unwrap();
    assert_eq!(world.data().log.unwrap().expires_at_ms, Some(1200));
}

#[test]
fn a_sliding_write_moves_the_records_with_the_data() {
    let mut world = World::new(Layout::Pulse);
    let mut handle = world.handle(Settings::new().ttl(Duration::from_millis(100)).sliding());
    world.ask(&mut handle, once("k", "p")).unwrap();
    world.now_ms += 60;
    world.ask(&mut handle, add()).unwrap();
    world.now_ms += 60;
    assert!(matches!(world.ask(&mut handle, once("k", "p")), Ok(Told::AddedOnce { published: false, .. })));
}

#[test]
fn a_groups_state_never_ends_with_a_ttl() {
    let mut world = World::new(Layout::Pulse);
    let mut handle = world.handle(Settings::new().ttl(Duration::from_millis(100)));
    world.ask(&mut handle, once("k", "p")).unwrap();
    assert_eq!(world.data().books.recovery_expires_at_ms, Some(1100), "no group yet");
    world.ask(&mut handle, open(Start::Oldest, None)).unwrap();
    world.ask(&mut handle, once("l", "p")).unwrap();
    let books = world.data().books;
    assert_eq!((books.recovery_expires_at_ms, books.registry_expires_at_ms), (None, None));
}

#[test]
fn a_bound_is_the_generations_whoever_publishes() {
    for mut world in World::both() {
        let mut maker = world.handle(Settings::new().max_len(2).ttl(Duration::from_secs(9)));
        world.ask(&mut maker, Verb::Open).unwrap();
        let mut other = world.handle(Settings::new());
        for key in ["a", "b", "c"] {
            world.ask(&mut other, once(key, "p")).unwrap();
        }
        assert_eq!(world.data().log.unwrap().entries.len(), 2);
    }
}

#[test]
fn append_after_publishes_only_behind_that_position() {
    for mut world in World::both() {
        let mut handle = world.handle(Settings::new());
        let Ok(Told::Added { id: Some(first) }) = world.ask(&mut handle, add()) else { panic!("added") };
        let after = |id| Verb::Add { event: event(""), condition: Condition::After(id) };
        let Ok(Told::Added { id: Some(second) }) = world.ask(&mut handle, after(first)) else {
            panic!("added")
        };
        assert_eq!(world.ask(&mut handle, after(first)), Ok(Told::Added { id: None }));
        world.ask(&mut handle, Verb::Remove { ids: Ids::new([second]).unwrap() }).unwrap();
        let again = world.ask(&mut handle, after(second));
        assert!(matches!(again, Ok(Told::Added { id: Some(_) })), "the position counts, kept or not");
    }
}

#[test]
fn a_group_comes_back_at_its_cursor_and_sees_what_came_since() {
    for mut world in World::both() {
        let mut handle = world.handle(Settings::new());
        world.ask(&mut handle, open(Start::Newest, None)).unwrap();
        world.ask(&mut handle, add()).unwrap();
        let first = ids(world.ask(&mut handle, read()));
        let ack = Verb::GroupAck { group: group(), ids: Ids::new(first.clone()).unwrap() };
        assert_eq!(world.ask(&mut handle, ack), Ok(Told::Acked { count: 1, cursor: Some(first[0]) }));
        world.befall(Befall::LoseLog);
        world.now_ms += 5;
        world.ask(&mut handle, add()).unwrap();
        assert_eq!(world.ask(&mut handle, read()), Err(ServerFault::NoGroup.into()));
        world.ask(&mut handle, open(Start::Newest, None)).unwrap();
        assert_eq!(ids(world.ask(&mut handle, read())).len(), 1);
    }
}

#[test]
fn a_clock_set_back_hides_no_event_from_a_group() {
    for mut world in World::both() {
        let mut handle = world.handle(Settings::new());
        world.ask(&mut handle, open(Start::Oldest, None)).unwrap();
        world.ask(&mut handle, add()).unwrap();
        let ack =
            Verb::GroupAck { group: group(), ids: Ids::new(ids(world.ask(&mut handle, read()))).unwrap() };
        world.ask(&mut handle, ack).unwrap();
        world.befall(Befall::LoseLog);
        world.now_ms = 10;
        world.ask(&mut handle, add()).unwrap();
        world.ask(&mut handle, open(Start::Oldest, None)).unwrap();
        assert_eq!(ids(world.ask(&mut handle, read())).len(), 1);
    }
}

#[test]
fn the_cursor_falls_only_in_the_pulse_layout() {
    for mut world in World::both() {
        let mut handle = world.handle(Settings::new().max_len(2));
        world.ask(&mut handle, open(Start::Oldest, None)).unwrap();
        world.ask(&mut handle, add()).unwrap();
        let first = ids(world.ask(&mut handle, read()))[0];
        let ack = |id| Verb::GroupAck { group: group(), ids: Ids::new([id]).unwrap() };
        world.ask(&mut handle, ack(first)).unwrap();
        world.ask(&mut handle, add()).unwrap();
        world.ask(&mut handle, add()).unwrap();
        let third = ids(world.ask(&mut handle, read()))[1];
        let cursor = match world.server.layout() {
            Layout::Tagged => first,
            Layout::Pulse => EventId::ZERO,
        };
        assert_eq!(world.ask(&mut handle, ack(third)), Ok(Told::Acked { count: 1, cursor: Some(cursor) }));
    }
}

#[test]
fn a_group_has_a_bounded_number_of_members() {
    for mut world in World::both() {
        let mut handle = world.handle(Settings::new());
        world.ask(&mut handle, open(Start::Oldest, None)).unwrap();
        let register =
            |n: usize| Verb::GroupRegister { group: group(), consumer: consumer(&format!("c{n}")) };
        let data = &mut world.server.spaces.get_mut(&name()).unwrap().data.get_mut(&1).unwrap();
        let members = &mut data.groups.get_mut(&group()).unwrap().members;
        members.extend(
            (0..GROUP_MEMBERS_MAX)
                .map(|n| space::Member { consumer: consumer(&format!("c{n}")), alive_us: 0 }),
        );
        assert_eq!(world.ask(&mut handle, register(GROUP_MEMBERS_MAX)), refused(CallerError::GroupFull));
        world.ask(&mut handle, register(0)).unwrap();
    }
}

#[test]
fn the_fence_rises_with_every_owner_and_after_every_lapse() {
    for mut world in World::both() {
        let mut handle = world.handle(Settings::new());
        world.ask(&mut handle, Verb::Open).unwrap();
        let acquire = |owner: &str| Verb::LeaseAcquire { group: group(), owner: owner.into(), lease_ms: 100 };
        let leased = |acquired, fence| Ok(Told::Leased { acquired, fence });
        assert_eq!(world.ask(&mut handle, acquire("a")), leased(true, 1));
        assert_eq!(world.ask(&mut handle, acquire("a")), leased(true, 1));
        assert_eq!(world.ask(&mut handle, acquire("b")), leased(false, 1));
        world.now_ms += 100;
        assert_eq!(world.ask(&mut handle, acquire("a")), leased(true, 2));
        world.now_ms += 100;
        assert_eq!(world.ask(&mut handle, acquire("b")), leased(true, 3));
        let late = Lease { owner: "a".into(), fence: 2, lease_ms: 100 };
        let verbs = [
            Verb::LeaseRenew { group: group(), lease: late.clone() },
            Verb::GroupSweep { group: group(), lease: late, grace_ms: 1 },
        ];
        for verb in verbs {
            assert_eq!(world.ask(&mut handle, verb), refused(CallerError::LeaseLost { fence: 2 }));
        }
    }
}

#[test]
fn a_sweep_takes_out_the_silent_and_keeps_what_is_pending() {
    for mut world in World::both() {
        let mut handle = world.handle(Settings::new());
        world.ask(&mut handle, open(Start::Oldest, None)).unwrap();
        world.ask(&mut handle, Verb::GroupRegister { group: group(), consumer: consumer("c") }).unwrap();
        world.ask(&mut handle, add()).unwrap();
        world.ask(&mut handle, read()).unwrap();
        let acquire = Verb::LeaseAcquire { group: group(), owner: "o".into(), lease_ms: 1000 };
        world.ask(&mut handle, acquire).unwrap();
        let sweep = || Verb::GroupSweep {
            group: group(),
            lease: Lease { owner: "o".into(), fence: 1, lease_ms: 1000 },
            grace_ms: 10,
        };
        world.now_ms += 20;
        let nobody = Told::Swept { removed: alloc::vec![], malformed: alloc::vec![] };
        assert_eq!(world.ask(&mut handle, sweep()), Ok(nobody));
        world.now_ms += 1;
        let swept = Told::Swept { removed: alloc::vec![consumer("c")], malformed: alloc::vec![] };
        assert_eq!(world.ask(&mut handle, sweep()), Ok(swept));
        assert!(world.data().groups[&group()].members.is_empty());
        assert_eq!(world.data().log.unwrap().groups[&group()].pending.len(), 1);
    }
}

#[test]
fn a_default_handle_asks_for_the_default_contract() {
    assert_eq!(Wanted::default(), Settings::new().wanted().unwrap());
}
