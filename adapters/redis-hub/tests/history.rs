//! The history that a server keeps for those whom no buffer reaches: given only where every event is there.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a test names what it expects, and fails on the rest or passes over it"
)]

mod support;

use futures::StreamExt as _;
use std::time::Duration;
use strandline_core::coverage::{HubConfig, HubTimes, Item, Outcome, Publish, Reason, TopicName};
use strandline_core::id::Run;
use strandline_hub::{Delivery, HandleOptions, HubHandle, Start, Subscription};
use strandline_redis_hub::{HubNames, RedisBackend, RedisOptions};
use support::Server;

/// Long enough on any machine; nothing is asserted about time.
const GIVE_UP: Duration = Duration::from_secs(120);

fn topic() -> TopicName {
    TopicName::parse("orders").unwrap()
}

fn names() -> HubNames {
    HubNames::new("test").unwrap()
}

/// An instance that has heard nothing yet.
fn cold(server: &Server, number: u8, history_events_max: u64) -> HubHandle {
    let options = RedisOptions { history_events_max, answer_ms: 20_000, ..RedisOptions::new(names()) };
    let backend = RedisBackend::new(&server.url(), &options).unwrap();
    // A machine that stalls ends no coverage.
    let times =
        HubTimes { heartbeat_ms: 5_000, resubscribe_ms: 50, settle_ms: 20_000, ..HubTimes::default() };
    let config = HubConfig { times, history: true, ..HubConfig::broker() };
    let (hub, driver) = HubHandle::new(config, HandleOptions::default(), backend, Run(1), [number; 32]);
    tokio::spawn(driver.run(tokio::time::sleep));
    hub
}

async fn next(stream: &mut Subscription) -> Item {
    let Delivery { item, .. } =
        tokio::time::timeout(GIVE_UP, stream.next()).await.expect("an item in time").expect("an open stream");
    item
}

async fn events(stream: &mut Subscription, count: usize) -> Vec<String> {
    let mut found = Vec::new();
    while found.len() < count {
        match next(stream).await {
            Item::Event { entry, .. } => found.push(String::from_utf8(entry.payload.to_vec()).unwrap()),
            other => panic!("expected an event, found {other:?} after {found:?}"),
        }
    }
    found
}

/// Publishes texts and gives the ID of a client that has everything up to each.
async fn publish(hub: &HubHandle, texts: &[&str]) -> Vec<String> {
    let mut ids = Vec::new();
    for text in texts {
        match hub.publish(&topic(), Publish::new(text.as_bytes())).await.unwrap() {
            Outcome::Accepted(accepted) => ids.push(hub.codec().write("orders", accepted.mark).to_string()),
            other => panic!("expected it to be in, found {other:?}"),
        }
    }
    ids
}

async fn resumed(hub: &HubHandle, id: &str) -> Subscription {
    let mut stream = hub.subscribe(&[topic()], Start::after(id)).unwrap();
    match next(&mut stream).await {
        Item::Opened(opened) if opened.resumed => stream,
        other => panic!("expected a resume, found {other:?}"),
    }
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

fn ask<T: redis::FromRedisValue>(server: &Server, words: &[&str]) -> T {
    redis::cmd(words[0]).arg(&words[1..]).query(&mut server.connection()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cold_hub_replays_what_another_published_before_it_was_there() {
    let server = Server::start();
    let a = cold(&server, 1, 100);
    let ids = publish(&a, &["1", "2", "3", "4"]).await;
    let b = cold(&server, 2, 100);
    let mut stream = resumed(&b, &ids[0]).await;
    assert_eq!(events(&mut stream, 3).await, ["2", "3", "4"]);
    publish(&a, &["5"]).await;
    assert_eq!(events(&mut stream, 1).await, ["5"], "and goes on live, without a repeat");
    let mut stream = resumed(&b, &ids[1]).await;
    assert_eq!(events(&mut stream, 3).await, ["3", "4", "5"], "the history and the buffer are joined");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_trimmed_is_not_vouched_for() {
    let server = Server::start();
    let a = cold(&server, 1, 3);
    let ids = publish(&a, &["1", "2", "3", "4", "5", "6"]).await;
    let b = cold(&server, 2, 3);
    assert_eq!(refused(&b, &ids[1]).await, Reason::StartsAfterCursor);
    let mut stream = resumed(&b, &ids[2]).await;
    assert_eq!(events(&mut stream, 3).await, ["4", "5", "6"]);
    let length: u64 = ask(&server, &["XLEN", &names().history(&topic())]);
    assert_eq!(length, 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_history_that_is_lost_or_has_a_hole_vouches_for_nothing() {
    let server = Server::start();
    let a = cold(&server, 1, 100);
    let ids = publish(&a, &["1", "2", "3", "4"]).await;
    let key = names().history(&topic());
    let gone: u64 = ask(&server, &["XDEL", &key, "3-0"]);
    assert_eq!(gone, 1);
    let b = cold(&server, 2, 100);
    assert_eq!(refused(&b, &ids[0]).await, Reason::StartsAfterCursor, "a hole");
    let mut stream = resumed(&b, &ids[2]).await;
    assert_eq!(events(&mut stream, 1).await, ["4"], "behind the hole everything is there");
    let gone: u64 = ask(&server, &["DEL", &key]);
    assert_eq!(gone, 1);
    let c = cold(&server, 3, 100);
    assert_eq!(refused(&c, &ids[0]).await, Reason::StartsAfterCursor, "nothing is left");
    // It begins anew with the next event, and speaks for what follows only.
    let more = publish(&a, &["5", "6"]).await;
    let d = cold(&server, 4, 100);
    assert_eq!(refused(&d, &ids[0]).await, Reason::StartsAfterCursor);
    let mut stream = resumed(&d, &more[0]).await;
    assert_eq!(events(&mut stream, 1).await, ["6"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_is_lost_takes_its_history_with_it() {
    let server = Server::start();
    let a = cold(&server, 1, 100);
    let ids = publish(&a, &["1", "2", "3"]).await;
    let gone: u64 = ask(&server, &["DEL", &names().state(&topic())]);
    assert_eq!(gone, 1);
    let b = cold(&server, 2, 100);
    let fresh = publish(&b, &["4", "5"]).await;
    let c = cold(&server, 3, 100);
    assert_eq!(refused(&c, &ids[0]).await, Reason::OtherIncarnation);
    let mut stream = resumed(&c, &fresh[0]).await;
    assert_eq!(events(&mut stream, 1).await, ["5"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_forgot_everything_keeps_a_history_of_its_new_space() {
    let mut server = Server::start();
    let a = cold(&server, 1, 100);
    let ids = publish(&a, &["1", "2"]).await;
    server.restart();
    let b = cold(&server, 2, 100);
    let fresh = publish(&b, &["3", "4"]).await;
    let c = cold(&server, 3, 100);
    assert_eq!(refused(&c, &ids[0]).await, Reason::OtherIncarnation);
    let mut stream = resumed(&c, &fresh[0]).await;
    assert_eq!(events(&mut stream, 1).await, ["4"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_of_another_incarnation_are_not_taken_for_ours() {
    let server = Server::start();
    let a = cold(&server, 1, 100);
    let ids = publish(&a, &["1", "2", "3"]).await;
    let key = names().history(&topic());
    // A copy of an older history was put back beside the state of today.
    let gone: u64 = ask(&server, &["DEL", &key]);
    assert_eq!(gone, 1);
    for sequence in ["1", "2", "3"] {
        let message = format!("e 00000001aabbccddeeff0011 {sequence} 0 0 old");
        let _: String = ask(&server, &["XADD", &key, &format!("{sequence}-0"), "m", &message]);
    }
    let b = cold(&server, 2, 100);
    assert_eq!(refused(&b, &ids[0]).await, Reason::StartsAfterCursor);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_of_somebody_else_is_left_alone_and_keeps_nothing() {
    let server = Server::start();
    let key = names().history(&topic());
    let _: String = ask(&server, &["SET", &key, "rubbish"]);
    let a = cold(&server, 1, 100);
    let ids = publish(&a, &["1", "2"]).await;
    let held: String = ask(&server, &["GET", &key]);
    assert_eq!(held, "rubbish");
    let b = cold(&server, 2, 100);
    assert_eq!(refused(&b, &ids[0]).await, Reason::StartsAfterCursor);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hub_without_a_history_refuses_what_its_buffer_lacks() {
    let server = Server::start();
    let a = cold(&server, 1, 0);
    let ids = publish(&a, &["1", "2"]).await;
    let exists: u64 = ask(&server, &["EXISTS", &names().history(&topic())]);
    assert_eq!(exists, 0);
    let b = cold(&server, 2, 0);
    assert_eq!(refused(&b, &ids[0]).await, Reason::StartsAfterCursor);
}
