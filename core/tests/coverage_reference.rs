//! What the reference of protocol C says of itself, where no table shows it: its two ways of numbering,
//! the end of a subscription, and what one topic may not do to another.
#![cfg(feature = "coverage")]

use std::collections::BTreeMap;
use strandline_core::coverage::{
    Accepted, Claim, Command, Event, From, History, Hub, HubConfig, Item, Mark, Message, Minted, Outcome,
    Position, Publish, Publishing, Reason, Source, Standing, Subscribe, SubscriberId, SubscriptionId,
    TopicName, Upstream,
};
use strandline_core::error::{StorageAction, StorageCause, StorageFault};
use strandline_core::id::{Incarnation, Run};
use strandline_core::machine::Machine;
use strandline_core::seed::Seed;
use strandline_core::time::{Instant, Now, WallTime};

const SPACE: Incarnation = Incarnation { counter: 1, nonce: [3; 8] };

fn now(ms: u64) -> Now {
    Now { mono: Instant::default().after_ms(ms), wall: WallTime(ms) }
}

fn mark(position: u64) -> Mark {
    Mark { incarnation: SPACE, position: Position::sequence(position) }
}

fn name(topic: &str) -> TopicName {
    TopicName::parse(topic).unwrap()
}

fn hub(config: HubConfig, run: u64) -> Hub {
    let mut seed = [1; 32];
    seed[0] = u8::try_from(run).unwrap();
    Hub::new(config, Run(run), Seed::new(seed), now(0))
}

/// A hub whose positions come from a counter that all topics share.
fn positioned() -> Hub {
    let source = Source::Positioned { incarnation: SPACE, after: Position::ZERO };
    hub(HubConfig { source, ..HubConfig::minted() }, 1)
}

fn after(position: u64) -> From {
    From::After(Claim::Cursor(mark(position)))
}

fn subscribe(hub: &mut Hub, topic: &str, from: From) -> SubscriberId {
    hub.handle_subscribe(now(1), &name(topic), Subscribe::new(from)).unwrap()
}

/// The positions of the events a subscriber is given, or why it must synchronise.
fn answer(hub: &mut Hub, id: SubscriberId) -> Result<Vec<u64>, Reason> {
    let mut events = Vec::new();
    while let Some(item) = hub.poll_item(id) {
        match item {
            Item::Event { entry, .. } => events.push(entry.mark.position.as_sequence().unwrap()),
            Item::SyncRequired { reason, .. } | Item::Stale { reason } => return Err(reason),
            Item::Opened(_) | Item::Gap { .. } | Item::Closed => {}
        }
    }
    Ok(events)
}

/// A server with one sequence for each topic, and the channels of one hub.
struct Server {
    hub: Hub,
    ms: u64,
    minted: BTreeMap<String, u64>,
    channels: BTreeMap<String, SubscriptionId>,
    reachable: bool,
    outcomes: Vec<Outcome>,
}

impl Server {
    fn new() -> Self {
        Self {
            hub: hub(HubConfig::broker(), 1),
            ms: 0,
            minted: BTreeMap::new(),
            channels: BTreeMap::new(),
            reachable: true,
            outcomes: Vec::new(),
        }
    }

    fn fault() -> StorageFault {
        StorageFault {
            action: StorageAction::Write,
            file: "server".into(),
            offset: None,
            cause: StorageCause::Failed,
            detail: "expected an answer, found none".into(),
        }
    }

    /// Answers everything that the hub asks for.
    fn answer(&mut self) {
        while let Some(command) = self.hub.poll_command() {
            let now = now(self.ms);
            match command {
                Command::Subscribe { id, topic } => {
                    self.channels.insert(topic.as_str().into(), id);
                    self.hub.handle_upstream(now, id, Upstream::Confirmed);
                }
                Command::Unsubscribe { topic, .. } | Command::Abandon { topic, .. } => {
                    self.channels.remove(topic.as_str());
                }
                Command::Position { ticket, topic, .. } => {
                    let minted = self.minted.get(topic.as_str()).copied().unwrap_or(0);
                    let at = Standing::At { incarnation: SPACE, minted: Position::sequence(minted) };
                    self.hub.handle_completion(now, ticket.complete(Ok(at)));
                }
                Command::Publish { ticket, topic, .. } if self.reachable => {
                    let minted = self.minted.entry(topic.as_str().into()).or_default();
                    *minted += 1;
                    let done = Minted::Accepted(Accepted { mark: mark(*minted), repeated: false });
                    self.hub.handle_completion(now, ticket.complete(Ok(done)));
                }
                Command::Publish { ticket, .. } => {
                    self.hub.handle_completion(now, ticket.complete(Err(Self::fault())));
                }
                Command::History { ticket, .. } => {
                    self.hub.handle_completion(now, ticket.complete(Ok(History::Run(Vec::new()))));
                }
            }
        }
        while let Some(event) = self.hub.poll_event() {
            if let Event::Published { outcome, .. } = event {
                self.outcomes.push(outcome);
            }
        }
    }

    fn wait(&mut self, ms: u64) {
        self.ms += ms;
        self.hub.handle_timeout(now(self.ms));
        self.answer();
    }

    /// Somebody publishes; whoever listens hears it.
    fn publish(&mut self, topic: &str) {
        let minted = self.minted.entry(topic.into()).or_default();
        *minted += 1;
        let position = *minted;
        self.carry(topic, position);
    }

    fn carry(&mut self, topic: &str, position: u64) {
        let Some(id) = self.channels.get(topic).copied() else { return };
        let (kind, payload) = ("".into(), b"x"[..].into());
        let message = Message { mark: mark(position), at: WallTime(0), kind, payload };
        self.hub.handle_upstream(now(self.ms), id, Upstream::Message(message));
        self.answer();
    }

    fn subscribe(&mut self, topic: &str, from: From) -> SubscriberId {
        let wish = Subscribe::new(from);
        let id = self.hub.handle_subscribe(now(self.ms), &name(topic), wish).unwrap();
        self.answer();
        id
    }

    fn resume(&mut self, topic: &str, position: u64) -> Result<Vec<u64>, Reason> {
        let id = self.subscribe(topic, after(position));
        let answer = answer(&mut self.hub, id);
        self.hub.handle_unsubscribe(now(self.ms), id);
        answer
    }
}

#[test]
fn numbers_that_topics_share_leave_no_holes() {
    let mut hub = positioned();
    for (topic, position) in [("w", 1), ("x", 2), ("x", 3), ("w", 4)] {
        let at = Position::sequence(position);
        hub.handle_publish_at(now(1), &name(topic), at, Publish::new(b"p")).unwrap();
    }
    let (w, x) = (subscribe(&mut hub, "w", after(1)), subscribe(&mut hub, "x", after(2)));
    assert_eq!((answer(&mut hub, w), answer(&mut hub, x)), (Ok(vec![4]), Ok(vec![3])));
    assert_eq!((hub.counters().holes, hub.counters().refused.len()), (0, 0));
}

#[test]
fn a_topic_that_this_instance_never_heard_of_is_not_caught_up() {
    let mut server = Server::new();
    server.minted.insert("t".into(), 5);
    assert_eq!(server.resume("t", 3), Err(Reason::StartsAfterCursor), "published before we listened");
    assert_eq!(server.resume("t", 5), Ok(vec![]), "the server says that nothing came since");
}

#[test]
fn a_buffer_neither_full_nor_empty_does_not_reach_below_its_start() {
    let mut server = Server::new();
    server.minted.insert("t".into(), 5);
    let live = server.subscribe("t", From::Now);
    server.publish("t");
    server.publish("t");
    assert_eq!(answer(&mut server.hub, live), Ok(vec![6, 7]));
    assert_eq!(server.resume("t", 3), Err(Reason::StartsAfterCursor));
    assert_eq!(server.resume("t", 5), Ok(vec![6, 7]));
}

#[test]
fn what_was_held_goes_with_its_subscription() {
    let mut server = Server::new();
    let live = server.subscribe("t", From::Now);
    server.publish("t");
    server.hub.handle_unsubscribe(now(server.ms), live);
    server.wait(HubConfig::broker().times.linger_ms);
    assert!(server.channels.is_empty(), "nobody listened for long enough");
    assert_eq!(server.hub.held("t").count(), 0);
    server.publish("t");
    assert_eq!(server.resume("t", 1), Err(Reason::StartsAfterCursor), "what came meanwhile is not here");
}

#[test]
fn one_lost_subscription_ends_the_coverage_of_one_topic() {
    let mut server = Server::new();
    for topic in ["a", "b"] {
        server.subscribe(topic, From::Now);
        server.publish(topic);
        server.publish(topic);
    }
    let lost = server.channels["a"];
    server.hub.handle_upstream(now(server.ms), lost, Upstream::Lost);
    assert_eq!((server.hub.held("a").count(), server.hub.held("b").count()), (0, 2));
    assert_eq!(server.resume("b", 1), Ok(vec![2]));
    server.wait(HubConfig::broker().times.resubscribe_ms);
    assert_eq!(server.resume("a", 1), Err(Reason::StartsAfterCursor));
    server.publish("a");
    assert_eq!(server.resume("a", 2), Ok(vec![3]), "and the topic is heard again");
}

#[test]
fn an_event_comes_to_a_subscriber_only_from_the_server() {
    let mut server = Server::new();
    let live = server.subscribe("t", From::Now);
    assert_eq!(answer(&mut server.hub, live), Ok(vec![]));
    let Publishing::Sent(_) = server.hub.handle_publish(now(1), &name("t"), Publish::new(b"x")).unwrap()
    else {
        panic!("a server mints")
    };
    server.answer();
    assert_eq!(answer(&mut server.hub, live), Ok(vec![]), "accepted, and not here yet");
    server.carry("t", 1);
    assert_eq!(answer(&mut server.hub, live), Ok(vec![1]));
}

#[test]
fn without_the_server_no_number_is_made_up() {
    let mut server = Server::new();
    let live = server.subscribe("t", From::Now);
    server.reachable = false;
    let _ = server.hub.handle_publish(now(1), &name("t"), Publish::new(b"x")).unwrap();
    server.answer();
    assert_eq!(server.outcomes, [Outcome::Uncertain(Server::fault())]);
    assert_eq!(answer(&mut server.hub, live), Ok(vec![]));
    assert_eq!((server.hub.held("t").count(), server.hub.counters().published), (0, 0));
}

#[test]
fn what_the_server_refused_is_not_in_and_not_uncertain() {
    let mut server = Server::new();
    let _ = server.hub.handle_publish(now(1), &name("t"), Publish::new(b"x")).unwrap();
    let Some(Command::Publish { ticket, .. }) = server.hub.poll_command() else { panic!("a publish") };
    let refused = Minted::Refused(Server::fault());
    server.hub.handle_completion(now(1), ticket.complete(Ok(refused)));
    server.answer();
    assert_eq!(server.outcomes, [Outcome::Refused(Server::fault())]);
}

#[test]
fn the_bare_query_and_the_subscription_give_one_answer() {
    let mut minted = hub(HubConfig::minted(), 1);
    let mut positioned = positioned();
    let mut earlier = hub(HubConfig::minted(), 2);
    let mut marks = vec![mark(0), mark(9)];
    for position in 1..=3 {
        let publish = Publish::new(b"p");
        let at = Position::sequence(2 * position);
        marks.push(positioned.handle_publish_at(now(1), &name("t"), at, publish).unwrap());
        for hub in [&mut minted, &mut earlier] {
            let Publishing::Done(done) = hub.handle_publish(now(1), &name("t"), publish).unwrap() else {
                panic!("a hub of its own mints")
            };
            marks.push(done.mark);
        }
    }
    let mut complete = 0;
    for hub in [&mut minted, &mut positioned] {
        for claim in marks.iter().map(|mark| Claim::Cursor(*mark)).chain([Claim::Unreadable]) {
            let id = subscribe(hub, "t", From::After(claim));
            let peeked = hub.peek("t", claim).is_complete();
            assert_eq!(answer(hub, id).is_ok(), peeked, "{claim:?}");
            complete += u32::from(peeked);
        }
    }
    assert_eq!(complete, 3 + 4, "a cursor of another life is never complete");
}

#[test]
fn a_hot_topic_costs_another_nothing() {
    let work = |hot: usize| {
        let mut hub = hub(HubConfig::minted(), 1);
        for _ in 0..hot {
            subscribe(&mut hub, "hot", From::Now);
        }
        for _ in 0..if hot > 0 { 100 } else { 0 } {
            let _ = hub.handle_publish(now(1), &name("hot"), Publish::new(b"p")).unwrap();
        }
        let cold = subscribe(&mut hub, "cold", From::Now);
        let before = hub.counters().clone();
        let _ = hub.handle_publish(now(1), &name("cold"), Publish::new(b"0123456789")).unwrap();
        assert_eq!(answer(&mut hub, cold), Ok(vec![1]));
        let after = hub.counters();
        let work = |c: &strandline_core::coverage::Counters| [c.queued, c.copied_bytes, c.polled, c.dropped];
        std::array::from_fn::<u64, 4, _>(|i| work(after)[i] - work(&before)[i])
    };
    assert_eq!(work(1_000), work(0));
}
