//! The root against the model, answer by answer.

use super::*;
use crate::machine::Machine as _;
use crate::stream::error::StreamError;
use crate::stream::event::{Event, EventId, Ids};
use crate::stream::failover::Standing;
use crate::stream::keyspace::Keyspace;
use crate::stream::name::{ConsumerName, GroupName, StreamName};
use crate::stream::op::Condition;
use crate::stream::reply::Told;
use crate::stream::retention::{Settings, Wanted};
use crate::stream::settings::TakeSettings;
use crate::stream::time::ServerTime;
use crate::time::{Instant, WallTime};

use core::time::Duration;

pub(super) const GRACE_MS: u64 = 4000;

/// Which operations.
pub(super) type Chosen = fn(&Verb) -> bool;

/// A server, and a client whose commands are executed at once, unless answers are lost.
pub(super) struct World {
    pub(super) server: Keyspace,
    pub(super) client: StreamClient,
    pub(super) now_ms: u64,
    /// So many answers are lost, after their effect.
    pub(super) lose: u32,
    pub(super) asked: Vec<Verb>,
    waits: Vec<crate::ticket::Ticket<op::Wait>>,
    /// How long the last wait for news may be.
    wait_ms: u64,
    pub(super) events: Vec<ClientEvent>,
    /// Has room for more whenever it was handed something.
    eager: bool,
    /// Streams whose server gives no answer.
    pub(super) gone: Vec<StreamName>,
    /// Where the server stands; `None` for one that knows no failovers.
    pub(super) standing: Option<Standing>,
    /// What the server refuses for now, and how.
    pub(super) refused: Option<(Chosen, StreamError)>,
    /// What is done and not answered.
    pub(super) lost: Option<fn(&Verb) -> bool>,
    /// What is done and answered only by [`World::release`].
    pub(super) kept_back: Option<fn(&Verb) -> bool>,
    on_their_way: Vec<(crate::ticket::Ticket<op::Execute>, Execution)>,
}

impl World {
    pub(super) fn new() -> Self {
        let client = StreamClient::new(Layout::Tagged, Run(1), Seed::new([3; 32]), Now::default());
        let server = Keyspace::new(Layout::Tagged);
        let (asked, waits, events) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            server,
            client,
            now_ms: 0,
            lose: 0,
            asked,
            waits,
            wait_ms: 0,
            events,
            eager: false,
            gone: Vec::new(),
            standing: None,
            refused: None,
            lost: None,
            kept_back: None,
            on_their_way: Vec::new(),
        }
    }

    pub(super) fn now(&self) -> Now {
        Now { mono: Instant(self.now_ms * 1_000_000), wall: WallTime(0) }
    }

    pub(super) fn server_time(&self) -> ServerTime {
        ServerTime::from_ms(1_000_000 + self.now_ms)
    }

    pub(super) fn handle(&mut self, max_len: u64) -> HandleId {
        self.handle_of("s", max_len)
    }

    pub(super) fn handle_of(&mut self, stream: &str, max_len: u64) -> HandleId {
        let wanted = Settings::new().max_len(max_len).wanted().unwrap();
        self.client.handle_stream(self.now(), StreamName::new(stream).unwrap(), wanted).unwrap()
    }

    pub(super) fn run(&mut self) {
        while let Some(command) = self.client.poll_command() {
            match command {
                Command::Wait { ticket, wait_ms, .. } => {
                    self.wait_ms = wait_ms;
                    self.waits.push(ticket);
                }
                Command::Execute { ticket, op, noted, .. } => {
                    self.asked.push(op.verb.clone());
                    let at = self.server_time();
                    let refusal = self.refused.as_ref().filter(|(refuses, _)| refuses(&op.verb));
                    let loses = self.lost.is_some_and(|loses| loses(&op.verb));
                    let keeps_back = self.kept_back.is_some_and(|keeps| keeps(&op.verb));
                    let outcome = if self.gone.contains(&op.stream) {
                        Outcome::Uncertain(Uncertain::new(op))
                    } else if let Some((_, error)) = refusal {
                        Outcome::Answered { at: None, result: Err(error.clone()) }
                    } else if loses {
                        let _ = self.server.apply(at, &op);
                        Outcome::Uncertain(Uncertain::new(op))
                    } else if self.lose > 0 {
                        let _ = self.server.apply(at, &op);
                        self.lose -= 1;
                        Outcome::Uncertain(Uncertain::new(op))
                    } else {
                        let result = self.server.apply(at, &op);
                        Outcome::Answered { at: Some(at), result }
                    };
                    let execution = match self.standing {
                        Some(_) if noted => Execution::Beside { outcome, standing: self.standing },
                        Some(_) | None => Execution::Ended(outcome),
                    };
                    if keeps_back {
                        self.on_their_way.push((ticket, execution));
                    } else {
                        self.client.handle_completion(self.now(), ticket.complete(Ok(execution)));
                    }
                }
            }
            self.hear();
        }
        self.hear();
    }

    /// Lets the answers come that were kept back; how many there were.
    pub(super) fn release(&mut self) -> usize {
        self.kept_back = None;
        let answers = core::mem::take(&mut self.on_their_way);
        let count = answers.len();
        for (ticket, execution) in answers {
            self.client.handle_completion(self.now(), ticket.complete(Ok(execution)));
        }
        self.run();
        count
    }

    fn hear(&mut self) {
        while let Some(event) = self.client.poll_event() {
            if let (true, ClientEvent::Items { party, .. }) = (self.eager, &event) {
                self.client.handle_want(self.now(), *party);
            }
            self.events.push(event);
        }
    }

    /// Lets time pass in steps, as deadlines and waits come.
    pub(super) fn pass_ms(&mut self, ms: u64) {
        let until_ms = self.now_ms + ms;
        while self.now_ms < until_ms {
            self.now_ms = (self.now_ms + 50).min(until_ms);
            self.client.handle_timeout(self.now());
            for ticket in core::mem::take(&mut self.waits) {
                self.client.handle_completion(self.now(), ticket.complete(Ok(Waited::TimeOut)));
            }
            self.run();
        }
    }

    /// Another client takes the lease of the group, when it lapses or at once.
    pub(super) fn steal_lease(&mut self) {
        let mut handle = Handle::new(name(), Wanted::default(), Layout::Tagged).unwrap();
        // The owner stands still meanwhile.
        self.now_ms += 60_000;
        let group = GroupName::new("g").unwrap();
        for verb in [Verb::Open, Verb::LeaseAcquire { group, owner: "other".into(), lease_ms: 60_000 }] {
            let op = handle.op(verb, Nonce([9; 16]));
            let result = self.server.apply(ServerTime::from_ms(1_000_000 + self.now_ms), &op);
            handle.answered(&op.verb, &result);
        }
    }

    pub(super) fn call(&mut self, handle: HandleId, verb: Verb) -> Option<Result<Told, Failure>> {
        let call = self.client.handle_call(self.now(), handle, verb);
        self.run();
        self.result(call)
    }

    pub(super) fn result(&self, call: CallId) -> Option<Result<Told, Failure>> {
        self.events.iter().find_map(|event| {
            let ClientEvent::Called { call: of, result } = event else { return None };
            (*of == call).then(|| result.clone())
        })
    }

    pub(super) fn add(&mut self, handle: HandleId) -> EventId {
        let event = Event::new("e", "").unwrap();
        match self.call(handle, Verb::Add { event, condition: Condition::Always }) {
            Some(Ok(Told::Added { id: Some(id) })) => id,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn consumer(&mut self, handle: HandleId, consumer: &str) -> PartyId {
        self.consumer_of(&[handle], consumer)
    }

    pub(super) fn consumer_of(&mut self, handles: &[HandleId], consumer: &str) -> PartyId {
        let taking =
            TakeSettings::new().start(crate::stream::Start::Oldest).grace(Duration::from_millis(GRACE_MS));
        let group = GroupName::new("g").unwrap();
        let mut consume = Consume::new(group, ConsumerName::new(consumer).unwrap(), taking.taking().unwrap());
        consume.deliveries_max = Some(2);
        let party = self.client.handle_consumer(self.now(), handles, consume).unwrap();
        self.run();
        assert!(self.events.contains(&ClientEvent::Ready { party }));
        party
    }

    pub(super) fn want(&mut self, party: PartyId) {
        self.client.handle_want(self.now(), party);
        self.run();
    }

    pub(super) fn items(&mut self, party: PartyId) -> Vec<Item> {
        let mut all = Vec::new();
        self.events.retain(|event| {
            let ClientEvent::Items { party: of, items } = event else { return true };
            if *of == party {
                all.extend(items.clone());
            }
            *of != party
        });
        all
    }

    pub(super) fn ids(&mut self, party: PartyId) -> Vec<(EventId, u64)> {
        let items = self.items(party);
        items
            .iter()
            .map(|item| match item {
                Item::Event(delivery) => (delivery.id, delivery.count),
                other @ (Item::Gap(_) | Item::Failover(_)) => panic!("{other:?}"),
            })
            .collect()
    }

    pub(super) fn give(&mut self, party: PartyId, give: Give, id: EventId) -> Option<Result<Told, Failure>> {
        let ids = Ids::new([id]).unwrap();
        let call = self.client.handle_give(self.now(), party, &name(), give, ids);
        self.run();
        self.result(call)
    }
}

pub(super) fn name() -> StreamName {
    StreamName::new("s").unwrap()
}

#[test]
fn a_call_that_may_be_repeated_is_asked_again_after_a_pause() {
    let mut world = World::new();
    let handle = world.handle(10);
    world.lose = 2;
    let call = world.client.handle_call(world.now(), handle, Verb::Open);
    world.run();
    assert_eq!(world.result(call), None, "not before its pause is over");
    world.pass_ms(1000);
    assert_eq!(world.result(call), Some(Ok(Told::Done)));
    assert_eq!(world.asked, [Verb::Open, Verb::Open, Verb::Open]);
}

#[test]
fn a_call_that_must_not_be_repeated_ends_as_uncertain() {
    let mut world = World::new();
    let handle = world.handle(10);
    world.lose = 1;
    let event = Event::new("e", "").unwrap();
    let result = world.call(handle, Verb::Add { event, condition: Condition::Always });
    assert!(matches!(result, Some(Err(Failure::Uncertain(_)))));
    world.pass_ms(1000);
    assert_eq!(world.asked.len(), 1, "it was done: a second time would publish a copy");
}

#[test]
fn a_given_up_call_is_not_asked_again() {
    let mut world = World::new();
    let handle = world.handle(10);
    let call = world.client.handle_call(world.now(), handle, Verb::Open);
    let Some(Command::Execute { ticket, .. }) = world.client.poll_command() else { panic!("asked") };
    world.client.handle_completion(world.now(), ticket.complete(Ok(Execution::GivenUp)));
    world.pass_ms(1000);
    assert!(matches!(world.result(call), Some(Err(Failure::Uncertain(_)))));
    assert!(world.asked.is_empty());
}

#[test]
fn a_client_that_is_shut_asks_nothing_again() {
    let mut world = World::new();
    let handle = world.handle(10);
    world.lose = 2;
    let unknown = |result: Option<Result<Told, Failure>>| matches!(result, Some(Err(Failure::Uncertain(_))));
    let waiting = world.client.handle_call(world.now(), handle, Verb::Open);
    world.run();
    let out = world.client.handle_call(world.now(), handle, Verb::Open);
    world.client.handle_shut(world.now());
    world.run();
    assert!(unknown(world.result(waiting)), "it was asked once, and waited to be asked again");
    assert!(unknown(world.result(out)), "its answer was lost after that");
    world.pass_ms(10_000);
    assert_eq!(world.asked, [Verb::Open, Verb::Open]);
}

#[test]
fn a_consumer_hands_out_only_what_is_wanted_and_settles_what_it_is_told() {
    let mut world = World::new();
    let handle = world.handle(10);
    let id = world.add(handle);
    let party = world.consumer(handle, "a");
    world.pass_ms(200);
    assert_eq!(world.items(party), []);
    world.want(party);
    assert_eq!(world.ids(party), [(id, 1)]);
    let acked = world.give(party, Give::Ack, id);
    assert_eq!(acked, Some(Ok(Told::Acked { count: 1, cursor: Some(id) })));
}

/// The host may have room again before the last stream of the pass has answered.
#[test]
fn what_is_wanted_while_other_streams_are_still_read_is_brought() {
    let mut world = World::new();
    let (first, second) = (world.handle_of("s", 10), world.handle_of("t", 10));
    let party = world.consumer_of(&[first, second], "a");
    world.eager = true;
    world.want(party);
    for _ in 0..3 {
        let id = world.add(first);
        world.pass_ms(200);
        assert_eq!(world.ids(party), [(id, 1)]);
    }
}

/// The streams may lie on several servers.
#[test]
fn a_stream_whose_server_is_gone_holds_up_no_other() {
    let mut world = World::new();
    let (first, second) = (world.handle_of("s", 10), world.handle_of("t", 10));
    let consumer = world.consumer_of(&[first, second], "a");
    let taking = TakeSettings::new().taking().unwrap();
    let reader = world.client.handle_reader(world.now(), &[first, second], taking);
    world.run();
    world.eager = true;
    world.gone = alloc::vec![name()];
    for party in [consumer, reader] {
        world.want(party);
    }
    for _ in 0..5 {
        let id = world.add(second);
        world.pass_ms(300);
        assert_eq!([world.ids(consumer), world.ids(reader)], [[(id, 1)], [(id, 1)]]);
    }
    world.pass_ms(60_000);
    let now = ServerTime::from_ms(1_000_000 + world.now_ms);
    let space = world.server.space(&StreamName::new("t").unwrap(), now).unwrap();
    let member = &space.data[&1].groups[&GroupName::new("g").unwrap()].members[0];
    assert!(now.us() - member.alive_us < GRACE_MS * 1000, "its chores go on too");
    let asked = world.asked.len();
    world.pass_ms(10_000);
    let asked = world.asked[asked..].iter().filter(|verb| matches!(verb, Verb::Read { .. })).count();
    assert!(asked < 2 * 10_000 / 50, "the one that is gone is asked less and less: {asked}");
    world.gone.clear();
    let id = world.add(first);
    world.pass_ms(6_000);
    let came = [world.ids(consumer), world.ids(reader)];
    assert!(came.iter().all(|ids| ids.contains(&(id, 1))), "and it comes back: {came:?}");
}

#[test]
fn no_wait_outlasts_the_rest_of_a_stream_that_is_left_out() {
    let mut world = World::new();
    let handles = [world.handle_of("s", 10), world.handle_of("t", 10)];
    for handle in handles {
        world.add(handle);
    }
    let taking = TakeSettings::new().block(Duration::from_secs(3600)).taking().unwrap();
    let reader = world.client.handle_reader(world.now(), &handles, taking);
    world.run();
    world.gone = alloc::vec![name()];
    world.want(reader);
    assert_eq!(world.wait_ms, REST_MS_MAX);
    world.gone.clear();
    world.pass_ms(REST_MS_MAX);
    assert_eq!(world.wait_ms, 3_600_000, "it is back");
}

#[test]
fn a_consumer_keeps_itself_alive_and_takes_the_lease() {
    let mut world = World::new();
    let handle = world.handle(10);
    let party = world.consumer(handle, "a");
    let leased = |event: &&ClientEvent| matches!(event, ClientEvent::Leased { fence: Some(1), .. });
    assert!(world.events.iter().any(|event| leased(&event)), "the first to come has it");
    world.pass_ms(10 * GRACE_MS);
    let kept = world.asked.iter().filter(|verb| matches!(verb, Verb::GroupKeepAlive { .. })).count();
    assert!(kept >= 10, "at least once in its grace: {kept}");
    assert_eq!(world.events.iter().filter(leased).count(), 1, "and keeps it");
    let _ = party;
}

#[test]
fn a_closed_consumer_leaves_nothing_claimed_and_the_next_takes_it_at_once() {
    let mut world = World::new();
    let handle = world.handle(10);
    let id = world.add(handle);
    let first = world.consumer(handle, "a");
    world.want(first);
    assert_eq!(world.ids(first), [(id, 1)]);
    world.client.handle_close(world.now(), first);
    world.run();
    assert!(world.events.contains(&ClientEvent::Ended { party: first, end: End::Closed }));
    let second = world.consumer(handle, "b");
    world.want(second);
    // Longer than the lease of the first, shorter than the grace.
    world.pass_ms(GRACE_MS / 2);
    assert_eq!(world.ids(second), [(id, 2)]);
}

#[test]
fn an_event_given_back_is_not_handed_out_before_its_time_and_not_too_often() {
    let mut world = World::new();
    let handle = world.handle(10);
    let id = world.add(handle);
    let party = world.consumer(handle, "a");
    world.want(party);
    assert_eq!(world.ids(party), [(id, 1)]);
    let given = world.give(party, Give::Nack { delay_ms: 5000 }, id);
    assert_eq!(given, Some(Ok(Told::Nacked { count: 1 })));
    world.want(party);
    world.pass_ms(4900);
    assert_eq!(world.ids(party), [], "longer than the grace, and not due");
    world.pass_ms(1000);
    assert_eq!(world.ids(party), [(id, 2)]);
    world.give(party, Give::Nack { delay_ms: 0 }, id);
    world.want(party);
    world.pass_ms(1000);
    assert_eq!(world.ids(party), [], "twice was the limit");
    let dead = world.call(handle, Verb::DeadRead { after: EventId::ZERO, events_max: 10 });
    let Some(Ok(Told::Dead(letters))) = dead else { panic!("{dead:?}") };
    assert_eq!((letters[0].id, letters[0].count), (id, 3));
}

#[test]
fn a_hole_is_handed_out_once_although_the_answer_that_told_of_it_was_lost() {
    let mut world = World::new();
    let handle = world.handle(2);
    let party = world.consumer(handle, "a");
    let ids: Vec<EventId> = (0..4).map(|_| world.add(handle)).collect();
    world.lose = 1;
    world.want(party);
    world.pass_ms(500);
    let items = world.items(party);
    let gaps: Vec<&Gap> =
        items.iter().filter_map(|item| if let Item::Gap(gap) = item { Some(gap) } else { None }).collect();
    assert_eq!(gaps.len(), 1, "{items:?}");
    assert_eq!((gaps[0].reason, gaps[0].events, gaps[0].before), (GapReason::Trimmed, Some(2), Some(ids[2])));
    world.want(party);
    world.pass_ms(500);
    assert!(world.asked.iter().any(|verb| matches!(verb, Verb::GroupTold { .. })));
    let second = world.consumer(handle, "b");
    world.want(second);
    world.pass_ms(500);
    assert_eq!(world.items(second), [], "it was told, and nothing else is due");
}

#[test]
fn a_lost_generation_ends_reader_and_consumer() {
    let mut world = World::new();
    let handle = world.handle(10);
    world.add(handle);
    let consumer = world.consumer(handle, "a");
    let reader = world.client.handle_reader(world.now(), &[handle], TakeSettings::new().taking().unwrap());
    world.run();
    world.server.lose_all();
    for party in [consumer, reader] {
        world.want(party);
        let lost = Failure::Refused(CallerError::StreamLost { current: None }.into());
        assert!(world.events.contains(&ClientEvent::Ended { party, end: End::Failed(lost) }));
    }
}

#[test]
fn what_is_gone_is_refused_and_changes_nothing() {
    let mut world = World::new();
    let handle = world.handle(10);
    let party = world.consumer(handle, "a");
    world.client.handle_close(world.now(), party);
    world.run();
    let closed = Some(Err(Failure::Refused(CallerError::ConsumerClosed.into())));
    assert_eq!(world.give(party, Give::Ack, EventId::MAX), closed);
    world.client.handle_forget(world.now(), handle);
    assert_eq!(world.call(handle, Verb::Open), Some(Err(Failure::Closed)));
    let before = world.asked.len();
    world.client.handle_want(world.now(), party);
    world.pass_ms(5000);
    assert_eq!(world.asked.len(), before);
    assert_eq!(world.client.pending().deadline, None);
}
