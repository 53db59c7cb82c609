//! Hubs over a real server: two instances, a lost connection, a server that forgot everything.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a test names what it expects, and fails on the rest or passes over it"
)]

#[path = "support/listening.rs"]
mod listening;
mod support;

use listening::{event, next, topic};
use strandline_core::coverage::{From, HubConfig, HubTimes, Item, Outcome, Reason};
use strandline_core::id::Run;
use strandline_hub::{HandleOptions, HubHandle, Start, Subscription};
use strandline_redis_hub::{HubNames, RedisBackend, RedisOptions};
use support::Server;

fn instance(server: &Server, number: u8) -> HubHandle {
    instance_with(server, number, false)
}

fn instance_with(server: &Server, number: u8, history: bool) -> HubHandle {
    let options = RedisOptions { answer_ms: 20_000, ..RedisOptions::new(HubNames::new("test").unwrap()) };
    let backend = RedisBackend::new(&server.url(), &options).unwrap();
    // A machine that stalls ends no coverage: what is told here is seen on the connection.
    let times =
        HubTimes { heartbeat_ms: 5_000, resubscribe_ms: 50, settle_ms: 20_000, ..HubTimes::default() };
    let config = HubConfig { times, history, ..HubConfig::broker() };
    let (hub, driver) = HubHandle::new(config, HandleOptions::default(), backend, Run(1), [number; 32]);
    tokio::spawn(driver.run(tokio::time::sleep));
    hub
}

async fn opened(hub: &HubHandle, start: Start<'_>) -> Subscription {
    listening::opened(hub, &topic(), start).await
}

async fn publish(hub: &HubHandle, text: &str, token: Option<&str>) -> Outcome {
    listening::publish(hub, &topic(), text, token).await
}

async fn refused(hub: &HubHandle, id: &str) -> Reason {
    let mut stream = hub.subscribe(&[topic()], Start::after(id)).unwrap();
    loop {
        match next(&mut stream).await {
            Item::SyncRequired { reason, .. } => return reason,
            Item::Stale { .. } => {}
            other => panic!("expected a refusal, found {other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_one_instance_takes_another_gives() {
    let server = Server::start();
    let (a, b) = (instance(&server, 1), instance(&server, 2));
    let mut stream = opened(&b, Start::now()).await;
    assert!(matches!(publish(&a, "one", Some("k")).await, Outcome::Accepted(done) if !done.repeated));
    assert!(matches!(publish(&a, "one", Some("k")).await, Outcome::Accepted(done) if done.repeated));
    assert!(matches!(publish(&b, "two", None).await, Outcome::Accepted(_)));
    assert_eq!((event(&mut stream).await, event(&mut stream).await), ("one".into(), "two".into()));

    // An instance that heard nothing answers for a client that missed nothing.
    let id = stream.id();
    drop(stream);
    let c = instance(&server, 3);
    let mut stream = opened(&c, Start::after(&id)).await;
    publish(&a, "three", None).await;
    assert_eq!(event(&mut stream).await, "three");

    // And not for one that missed something before it listened.
    let d = instance(&server, 4);
    assert_eq!(refused(&d, &id).await, Reason::StartsAfterCursor);
    let mut stream = opened(&b, Start::after(&id)).await;
    assert_eq!(event(&mut stream).await, "three", "who listened all the time has it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_connection_ends_coverage_and_is_told() {
    let server = Server::start();
    let (a, b) = (instance(&server, 1), instance(&server, 2));
    let mut stream = opened(&b, Start::now()).await;
    publish(&a, "one", None).await;
    assert_eq!(event(&mut stream).await, "one");
    let id = stream.id();
    let killed: u64 =
        redis::cmd("CLIENT").arg(&["KILL", "TYPE", "pubsub"]).query(&mut server.connection()).unwrap();
    assert!(killed > 0);
    let told = loop {
        match next(&mut stream).await {
            Item::SyncRequired { reason, .. } => break reason,
            Item::Stale { .. } => {}
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(told, Reason::Disconnected);
    publish(&a, "two", None).await;
    assert_eq!(event(&mut stream).await, "two", "and the stream goes on");
    // Nothing was published while nobody listened, so the old cursor is still good.
    drop(stream);
    let mut stream = opened(&b, Start::after(&id)).await;
    assert_eq!(event(&mut stream).await, "two");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_forgot_everything_is_another_space() {
    let mut server = Server::start();
    let a = instance(&server, 1);
    let mut stream = opened(&a, Start::now()).await;
    publish(&a, "one", None).await;
    assert_eq!(event(&mut stream).await, "one");
    let id = stream.id();
    server.restart();
    while !matches!(next(&mut stream).await, Item::SyncRequired { .. }) {}
    assert_ne!(stream.id(), id, "the dead cursor is replaced");
    while !matches!(publish(&a, "two", Some("again")).await, Outcome::Accepted(_)) {}
    assert_eq!(event(&mut stream).await, "two");
    assert_eq!(refused(&a, &id).await, Reason::OtherIncarnation);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_somebody_else_mints_nothing() {
    let server = Server::start();
    let a = instance(&server, 1);
    let key = HubNames::new("test").unwrap().state(&topic());
    let () = redis::cmd("SET").arg(&key).arg("rubbish").query(&mut server.connection()).unwrap();
    assert_eq!(publish(&a, "one", None).await, Outcome::NoSequence);
    let held: String = redis::cmd("GET").arg(&key).query(&mut server.connection()).unwrap();
    assert_eq!(held, "rubbish");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_was_put_back_is_spent() {
    let server = Server::start();
    let a = instance(&server, 1);
    let mut stream = opened(&a, Start { fresh: From::Earliest, ..Start::now() }).await;
    for text in ["one", "two", "three"] {
        publish(&a, text, None).await;
        assert_eq!(event(&mut stream).await, text);
    }
    let id = stream.id();
    let key = HubNames::new("test").unwrap().state(&topic());
    let () = redis::cmd("HSET").arg(&key).arg(&["sequence", "1"]).query(&mut server.connection()).unwrap();
    // The next script is told what was seen, and begins another space.
    publish(&a, "four", None).await;
    while !matches!(next(&mut stream).await, Item::SyncRequired { .. }) {}
    assert_eq!(event(&mut stream).await, "four");
    assert_eq!(refused(&a, &id).await, Reason::OtherIncarnation);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_server_came_back_without_is_never_taken_for_what_comes_now() {
    let mut server = Server::start();
    let a = instance(&server, 1);
    let mut stream = opened(&a, Start::now()).await;
    publish(&a, "one", None).await;
    assert_eq!(event(&mut stream).await, "one");
    let kept = stream.id();
    let () = redis::cmd("SAVE").query(&mut server.connection()).unwrap();
    for text in ["two", "three"] {
        publish(&a, text, None).await;
        assert_eq!(event(&mut stream).await, text);
    }
    let lost = stream.id();
    // Nobody is left who saw them.
    a.close();
    server.restart();
    let b = instance_with(&server, 2, true);
    for text in ["two of now", "three of now"] {
        assert!(matches!(publish(&b, text, None).await, Outcome::Accepted(_)));
    }
    for id in [&lost, &kept] {
        assert_eq!(refused(&b, id).await, Reason::OtherIncarnation, "what was lost after it, nobody knows");
    }
}
