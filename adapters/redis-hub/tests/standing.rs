//! Whether a topic's state goes on or is spent, asked of the scripts on a real server.

mod support;

use redis::Connection;
use strandline_core::coverage::{Mark, Minted, Position, Standing, TopicName};
use strandline_core::id::Incarnation;
use strandline_core::time::WallTime;
use strandline_redis_hub::{Asked, HubNames, HubScripts, Keeping, Offer, PubSub};
use support::Server;

/// The scripts, and one server that they run on.
struct Bench {
    scripts: HubScripts,
    connection: Connection,
    topic: TopicName,
    /// Each has a nonce of its own, so a new incarnation is seen.
    calls: u8,
}

impl Bench {
    fn new(server: &Server) -> Self {
        let keeping = Keeping { topic_state_ms: 86_400_000, token_ms: 60_000, history_events_max: 100 };
        let scripts = HubScripts::new(HubNames::new("test").unwrap(), keeping, PubSub::Plain);
        let topic = TopicName::parse("orders").unwrap();
        Self { scripts, connection: server.connection(), topic, calls: 0 }
    }

    fn publish(&mut self, token: &str) -> Mark {
        self.calls += 1;
        let asked = Asked { topic: &self.topic, seen: None, nonce: [self.calls; 8] };
        let offer = Offer { token, at: WallTime(0), kind: "", payload: b"x" };
        match self.scripts.run_publish(&mut self.connection, asked, offer).unwrap() {
            Minted::Accepted(accepted) => accepted.mark,
            other @ (Minted::NoSequence | Minted::Refused(_)) => panic!("expected a mark, found {other:?}"),
        }
    }

    fn position(&mut self, seen: Option<Mark>) -> Mark {
        self.calls += 1;
        let asked = Asked { topic: &self.topic, seen, nonce: [self.calls; 8] };
        match self.scripts.run_position(&mut self.connection, asked).unwrap() {
            Standing::At { incarnation, minted } => Mark { incarnation, position: minted },
            Standing::Unreadable => panic!("expected a position, found a state that cannot be read"),
        }
    }

    fn state(&self) -> String {
        self.scripts.names().state(&self.topic)
    }

    fn history_exists(&mut self) -> bool {
        let key = self.scripts.names().history(&self.topic);
        redis::cmd("EXISTS").arg(key).query(&mut self.connection).unwrap()
    }
}

#[test]
fn a_state_that_another_server_wrote_is_spent_with_its_history() {
    let mut server = Server::start();
    let mut bench = Bench::new(&server);
    let one = bench.publish("one");
    assert_eq!(bench.position(None), one, "its own server goes on");
    let () = redis::cmd("SAVE").query(&mut bench.connection).unwrap();
    server.restart();
    let mut bench = Bench { calls: 10, ..Bench::new(&server) };
    assert!(bench.history_exists());
    let renewed = bench.position(None);
    assert_eq!(renewed.incarnation.counter, one.incarnation.counter + 1);
    assert_eq!(renewed.position, Position::ZERO);
    assert!(!bench.history_exists());
    assert_eq!(bench.position(None), renewed, "and goes on from there");
}

#[test]
fn a_state_of_an_earlier_version_which_named_no_server_is_spent() {
    let server = Server::start();
    let mut bench = Bench::new(&server);
    let one = bench.publish("one");
    let () = redis::cmd("HDEL").arg(bench.state()).arg("lineage").query(&mut bench.connection).unwrap();
    let renewed = bench.position(Some(one));
    assert_eq!(renewed.incarnation.counter, one.incarnation.counter + 1);
    assert_eq!(bench.position(None), renewed);
}

#[test]
fn an_older_server_that_callers_come_back_to_is_spent() {
    let server = Server::start();
    let mut bench = Bench::new(&server);
    let here = bench.publish("one");
    // Another server took over, and gave out what this one lacks.
    let counter = here.incarnation.counter + 1;
    let there = Mark { incarnation: Incarnation { counter, nonce: [9; 8] }, ..here };
    let renewed = bench.position(Some(there));
    assert_eq!((renewed.incarnation.counter, renewed.position), (counter + 1, Position::ZERO));
    assert_eq!(bench.position(Some(there)), renewed, "once");
    assert_eq!(bench.position(Some(here)), renewed, "who saw an older one spends nothing");
}

#[test]
fn the_last_counter_that_a_caller_saw_does_not_spend_every_state() {
    let server = Server::start();
    let mut bench = Bench::new(&server);
    let last = Incarnation { counter: u32::MAX, nonce: [9; 8] };
    let seen = Mark { incarnation: last, position: Position::sequence(7) };
    let first = bench.position(Some(seen));
    assert_eq!(first.incarnation.counter, 1, "the last counter is followed by the first");
    assert_eq!(bench.position(Some(seen)), first);
    assert_eq!(bench.position(Some(seen)), first);
}
