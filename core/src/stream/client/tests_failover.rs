//! A failover, as readers, consumers and handles are told of it.

use super::tests::{World, name};
use super::*;
use crate::stream::event::EventId;
use crate::stream::failover::{Doubt, ReplicationId, Role, Standing, Survival};
use crate::stream::settings::TakeSettings;

fn id(letter: &str) -> ReplicationId {
    ReplicationId::parse(&letter.repeat(40)).unwrap()
}

/// Where a master stands after so many events of the test.
fn master(offset: u64) -> Standing {
    Standing { role: Role::Master, id: id("a"), offset, second: None }
}

/// One that took over, and has what the other had below `parting`.
fn heir(parting: u64) -> Standing {
    Standing { role: Role::Master, id: id("b"), offset: 1000, second: Some((id("a"), parting)) }
}

/// A world of a master with two events, at the offsets 10 and 20, and what a replica had between them.
struct Two {
    world: World,
    handle: HandleId,
    ids: [EventId; 2],
    replica: crate::stream::Keyspace,
}

impl Two {
    fn new() -> Self {
        let mut world = World::new();
        world.standing = Some(master(5));
        let handle = world.handle(10);
        world.standing = Some(master(10));
        let first = world.add(handle);
        let replica = world.server.clone();
        Self { handle, ids: [first, first], replica, world }
    }

    fn second(&mut self) {
        self.world.standing = Some(master(20));
        self.world.pass_ms(50);
        self.ids[1] = self.world.add(self.handle);
    }

    fn fail_over(&mut self, standing: Standing) {
        self.world.server = self.replica.clone();
        self.world.standing = Some(standing);
    }

    fn reader(&mut self) -> PartyId {
        let taking = TakeSettings::new().start(crate::stream::Start::Oldest).taking().unwrap();
        let party = self.world.client.handle_reader(self.world.now(), &[self.handle], taking);
        self.world.run();
        party
    }

    fn read(&mut self, party: PartyId) -> Vec<Item> {
        self.world.want(party);
        self.world.pass_ms(100);
        self.world.items(party)
    }

    fn told(&mut self, party: PartyId) -> Vec<(Option<Failover>, Option<EventId>)> {
        let items = self.read(party);
        items
            .into_iter()
            .map(|item| match item {
                Item::Event(delivery) => (None, Some(delivery.id)),
                Item::Failover(failover) => (Some(failover), None),
                Item::Gap(gap) => panic!("{gap:?}"),
            })
            .collect()
    }
}

const fn failover_told(event: &ClientEvent) -> Option<&Failover> {
    if let ClientEvent::Failover { failover, .. } = event { Some(failover) } else { None }
}

fn failover(survival: Survival, handed_out: EventId, kept: Option<EventId>) -> Failover {
    Failover { stream: name(), survival, handed_out, kept }
}

#[test]
fn a_reader_whose_events_are_kept_is_told_so_and_goes_on() {
    let mut two = Two::new();
    let reader = two.reader();
    let first = two.ids[0];
    assert_eq!(two.told(reader), [(None, Some(first))]);
    two.fail_over(heir(11));
    two.world.pass_ms(50);
    let other = two.world.add(two.handle);
    let kept = failover(Survival::Kept, first, Some(first));
    assert_eq!(two.told(reader), [(Some(kept), None), (None, Some(other))], "before what follows");
    assert_eq!(two.told(reader), [], "once");
}

#[test]
fn a_reader_whose_end_is_lost_goes_back_to_what_is_kept_and_reads_the_other_history() {
    let mut two = Two::new();
    let reader = two.reader();
    let first = two.ids[0];
    assert_eq!(two.told(reader), [(None, Some(first))]);
    two.second();
    let second = two.ids[1];
    assert_eq!(two.told(reader), [(None, Some(second))]);
    two.fail_over(heir(15));
    // The clock of the heir is behind: without going back the reader would never see it.
    two.world.now_ms -= 149;
    let other = two.world.add(two.handle);
    assert!(first < other && other < second, "{first} {other} {second}");
    let lost = failover(Survival::Lost, second, Some(first));
    assert_eq!(two.told(reader), [(Some(lost), None), (None, Some(other))]);
    assert_eq!(two.told(reader), []);
}

#[test]
fn a_reader_of_which_nothing_is_known_to_be_kept_reads_the_other_history_from_its_beginning() {
    let mut two = Two::new();
    let reader = two.reader();
    let first = two.ids[0];
    assert_eq!(two.told(reader), [(None, Some(first))]);
    two.fail_over(heir(8));
    let lost = failover(Survival::Lost, first, None);
    assert_eq!(two.told(reader), [(Some(lost), None), (None, Some(first))]);
}

#[test]
fn a_reader_of_a_server_with_another_history_is_told_that_nobody_knows() {
    let mut two = Two::new();
    let reader = two.reader();
    let first = two.ids[0];
    assert_eq!(two.told(reader), [(None, Some(first))]);
    two.fail_over(Standing { id: id("c"), ..master(500) });
    let reason = Doubt::OtherHistory;
    assert_eq!(two.told(reader), [(Some(failover(Survival::Unknown { reason }, first, None)), None)]);
}

#[test]
fn a_reader_that_ends_with_a_failover_is_told_of_it_first() {
    let mut two = Two::new();
    let reader = two.reader();
    assert_eq!(two.told(reader).len(), 1);
    two.fail_over(Standing { id: id("c"), ..master(500) });
    two.world.server.lose_all();
    assert!(matches!(two.read(reader)[..], [Item::Failover(_)]));
    let ended = |event: &ClientEvent| matches!(event, ClientEvent::Ended { party, .. } if *party == reader);
    assert!(two.world.events.iter().any(ended));
}

#[test]
fn a_consumer_is_told_before_it_is_handed_anything_of_the_other_history() {
    let mut two = Two::new();
    let consumer = two.world.consumer(two.handle, "a");
    let first = two.ids[0];
    assert_eq!(two.told(consumer), [(None, Some(first))]);
    two.replica = two.world.server.clone();
    two.second();
    let second = two.ids[1];
    assert_eq!(two.told(consumer), [(None, Some(second))]);
    two.fail_over(heir(15));
    let other = two.world.add(two.handle);
    let lost = failover(Survival::Lost, second, Some(first));
    assert_eq!(two.told(consumer), [(Some(lost), None), (None, Some(other))]);
}

/// A claim and a read are under way together, over two connections perhaps.
#[test]
fn an_answer_that_was_overtaken_is_no_server_that_fell_behind() {
    for noted_before in [true, false] {
        let mut two = Two::new();
        let consumer = two.world.consumer(two.handle, "a");
        if noted_before {
            assert_eq!(two.told(consumer).len(), 1);
        }
        two.world.standing = Some(master(11));
        two.world.kept_back = Some(|verb| matches!(verb, Verb::GroupClaim { .. }));
        // It has the answer before it, and room: the claim follows its lease.
        two.world.want(consumer);
        two.world.pass_ms(crate::stream::limits::LEASE_MS_DEFAULT);
        two.second();
        two.told(consumer);
        two.world.items(consumer);
        assert_eq!(two.world.release(), 1);
        two.world.pass_ms(1000);
        assert_eq!(two.world.items(consumer), [], "{noted_before}");
    }
}

#[test]
fn a_handle_is_told_up_to_where_its_publications_are_kept() {
    let mut two = Two::new();
    two.second();
    let ([first, second], handle) = (two.ids, two.handle);
    let now = heir(15);
    assert_eq!(two.world.client.survival(handle, Some(&master(20))), Survival::Kept);
    assert_eq!(two.world.client.survival(handle, Some(&now)), Survival::Lost);
    two.fail_over(now);
    two.world.add(handle);
    let told = ClientEvent::Failover { handle, failover: failover(Survival::Lost, second, Some(first)) };
    assert!(two.world.events.contains(&told), "{:?}", two.world.events);
    assert_eq!(two.world.client.survival(handle, Some(&now)), Survival::Kept, "what it was answered since");
}

#[test]
fn what_a_handle_removed_may_be_lost_too() {
    let mut two = Two::new();
    let (handle, ids) = (two.handle, crate::stream::Ids::new([two.ids[0]]).unwrap());
    two.world.standing = Some(master(20));
    assert!(matches!(two.world.call(handle, Verb::Remove { ids }), Some(Ok(_))));
    assert_eq!(two.world.client.survival(handle, Some(&heir(15))), Survival::Lost);
}

#[test]
fn where_nothing_fails_over_nothing_is_told() {
    let mut two = Two::new();
    two.world.standing = None;
    let (reader, consumer) = (two.reader(), two.world.consumer(two.handle, "a"));
    for party in [reader, consumer] {
        assert_eq!(two.told(party).len(), 1, "the event");
        assert_eq!(two.told(party), []);
    }
}

#[test]
fn a_handle_vouches_for_nothing_of_a_history_that_was_lost() {
    let mut two = Two::new();
    two.second();
    two.fail_over(heir(15));
    two.world.client.handle_call(two.world.now(), two.handle, crate::stream::op::Verb::Open);
    two.world.run();
    let told: Vec<_> = two.world.events.iter().filter_map(failover_told).collect();
    assert_eq!(told, [&failover(Survival::Lost, two.ids[1], Some(two.ids[0]))]);
    let next = Standing { role: Role::Master, id: id("c"), offset: 2000, second: Some((id("b"), 1500)) };
    two.world.standing = Some(next);
    two.world.client.handle_call(two.world.now(), two.handle, crate::stream::op::Verb::Open);
    two.world.run();
    let told: Vec<_> = two.world.events.iter().filter_map(failover_told).collect();
    let kept = failover(Survival::Kept, two.ids[0], Some(two.ids[0]));
    assert_eq!(told.last(), Some(&&kept), "what was lost is not kept");
}
