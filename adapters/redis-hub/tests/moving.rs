//! Hubs whose server is not the one any more: demoted, restarted, or silent on a connection that stands.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a test names what it expects, and fails on the rest or passes over it"
)]

#[path = "support/listening.rs"]
mod listening;
#[expect(dead_code, reason = "it can break more than these tests want broken")]
#[path = "../../cli/tests/faults/proxy.rs"]
mod proxy;
mod support;

use listening::{GIVE_UP, event, next, opened, publish, topic};
use proxy::Proxy;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use strandline_core::coverage::{Command, HubConfig, HubTimes, Item, Outcome, SubscriptionId, TopicName};
use strandline_core::id::Run;
use strandline_hub::{Backend, HandleOptions, HubHandle, ShardId, Start, Subscription};
use strandline_redis_hub::{HubNames, RedisBackend, RedisOptions};
use support::Server;

/// No heartbeat comes within a test.
const NEVER_MS: u64 = 10 * 60 * 1_000;

fn names() -> HubNames {
    HubNames::new("test").unwrap()
}

fn backend(url: &str, answer_ms: u64) -> RedisBackend {
    RedisBackend::new(url, &RedisOptions { answer_ms, ..RedisOptions::new(names()) }).unwrap()
}

fn hub(backend: impl Backend, heartbeat_ms: u64) -> HubHandle {
    let times = HubTimes { heartbeat_ms, resubscribe_ms: 50, settle_ms: 20_000, ..HubTimes::default() };
    let config = HubConfig { times, ..HubConfig::broker() };
    let (hub, driver) = HubHandle::new(config, HandleOptions::default(), backend, Run(1), [1; 32]);
    tokio::spawn(driver.run(tokio::time::sleep));
    hub
}

fn ask<T: redis::FromRedisValue>(server: &Server, words: &[&str]) -> T {
    redis::cmd(words[0]).arg(&words[1..]).query(&mut server.connection()).unwrap()
}

/// The connections that listen there.
fn listeners(server: &Server) -> usize {
    ask::<String>(server, &["CLIENT", "LIST", "TYPE", "pubsub"]).lines().count()
}

fn subscribed(server: &Server, topic: &TopicName) -> u64 {
    let (_, count): (String, u64) = ask(server, &["PUBSUB", "NUMSUB", &names().channel(topic)]);
    count
}

async fn wait(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < GIVE_UP, "expected {what}, waited {GIVE_UP:?}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Publishes until the stream has one of these events.
async fn goes_on(hub: &HubHandle, stream: &mut Subscription) {
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < GIVE_UP, "expected an event from the new server, found none");
        publish(hub, &topic(), "new", None).await;
        let heard = tokio::time::timeout(Duration::from_secs(1), event(stream)).await;
        if heard.is_ok_and(|text| text == "new") {
            return;
        }
    }
}

/// Two servers, and a name that leads to the first.
struct Pair {
    proxy: Proxy,
    old: Server,
    new: Server,
}

impl Pair {
    fn start() -> Self {
        let (proxy, old, new) = (Proxy::start(), Server::start(), Server::start());
        proxy.lead_to(&old.address());
        Self { proxy, old, new }
    }

    fn url(&self) -> String {
        format!("redis://{}/", self.proxy.address)
    }

    /// The first server follows the second from now on, and keeps its connections.
    fn demote(&self) {
        let address = self.new.address();
        let (host, port) = address.split_once(':').unwrap();
        let () = ask(&self.old, &["REPLICAOF", host, port]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_demoted_master_that_keeps_its_connections_is_left() {
    let pair = Pair::start();
    let hub = hub(backend(&pair.url(), 20_000), NEVER_MS);
    let mut stream = opened(&hub, &topic(), Start::now()).await;
    assert!(matches!(publish(&hub, &topic(), "one", None).await, Outcome::Accepted(_)));
    assert_eq!(event(&mut stream).await, "one");
    pair.proxy.lead_to(&pair.new.address());
    pair.demote();
    let outcome = publish(&hub, &topic(), "two", None).await;
    assert!(matches!(outcome, Outcome::Accepted(_)), "{outcome:?}");
    wait("the subscription at the new server", || {
        (subscribed(&pair.old, &topic()), subscribed(&pair.new, &topic())) == (0, 1)
    })
    .await;
    goes_on(&hub, &mut stream).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_replica_refuses_is_not_published_and_not_uncertain() {
    let pair = Pair::start();
    let hub = hub(backend(&pair.url(), 2_000), NEVER_MS);
    assert!(matches!(publish(&hub, &topic(), "one", None).await, Outcome::Accepted(_)));
    pair.demote();
    let begun = Instant::now();
    // A machine that stalls may lose an answer; nothing but a refusal comes otherwise.
    loop {
        assert!(begun.elapsed() < GIVE_UP, "expected a refusal, found none");
        match publish(&hub, &topic(), "two", None).await {
            Outcome::Refused(fault) if fault.detail.contains("read only replica") => break,
            Outcome::Refused(_) | Outcome::Uncertain(_) => {}
            other => panic!("expected a refusal, found {other:?}"),
        }
    }
    // The name leads to the master again: so do commands.
    pair.proxy.lead_to(&pair.new.address());
    while !matches!(publish(&hub, &topic(), "two", None).await, Outcome::Accepted(_)) {
        assert!(begun.elapsed() < GIVE_UP, "expected the new server to be found");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_subscription_goes_over_another_connection() {
    let pair = Pair::start();
    let hub = hub(backend(&pair.url(), 20_000), 300);
    let mut stream = opened(&hub, &topic(), Start::now()).await;
    goes_on(&hub, &mut stream).await;
    // Only the connection for commands follows the name; the other one stands, and says nothing.
    pair.proxy.lead_to(&pair.new.address());
    let _: u64 = ask(&pair.old, &["CLIENT", "KILL", "TYPE", "normal"]);
    wait("commands at the new server", || ask::<u64>(&pair.new, &["EXISTS", &names().state(&topic())]) == 1)
        .await;
    goes_on(&hub, &mut stream).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_connection_is_made_anew_at_once() {
    let mut server = Server::start();
    let hub = hub(backend(&server.url(), 20_000), NEVER_MS);
    let mut stream = opened(&hub, &topic(), Start::now()).await;
    publish(&hub, &topic(), "one", None).await;
    assert_eq!(event(&mut stream).await, "one");
    server.restart();
    while !matches!(next(&mut stream).await, Item::SyncRequired { .. }) {}
}

/// A backend that remembers the subscriptions it was asked for.
#[derive(Clone)]
struct Noting {
    backend: Arc<RedisBackend>,
    asked: Arc<Mutex<Vec<(ShardId, SubscriptionId, TopicName)>>>,
}

impl Noting {
    fn new(server: &Server) -> Self {
        Self { backend: Arc::new(backend(&server.url(), 20_000)), asked: Arc::default() }
    }

    /// As the hub does when the topic was silent for too long.
    fn abandon(&self, hub: &HubHandle, topic: &TopicName) {
        let asked = self.asked.lock().unwrap();
        let (shard, id, _) = asked.iter().rfind(|(_, _, asked)| asked == topic).cloned().unwrap();
        self.backend.start(hub, shard, Command::Abandon { id, topic: topic.clone() });
    }
}

impl Backend for Noting {
    fn start(&self, handle: &HubHandle, shard: ShardId, command: Command) {
        if let Command::Subscribe { id, topic } = &command {
            self.asked.lock().unwrap().push((shard, *id, topic.clone()));
        }
        self.backend.start(handle, shard, command);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_topic_costs_the_others_of_its_connection_nothing() {
    let server = Server::start();
    let noting = Noting::new(&server);
    let hub = hub(noting.clone(), NEVER_MS);
    let [silent, later] = ["silent", "later"].map(|name| TopicName::parse(name).unwrap());
    let mut stream = opened(&hub, &topic(), Start::now()).await;
    let _silent = opened(&hub, &silent, Start::now()).await;
    assert_eq!(listeners(&server), 1);
    noting.abandon(&hub, &silent);
    wait("nobody on the silent topic", || subscribed(&server, &silent) == 0).await;
    let _later = opened(&hub, &later, Start::now()).await;
    assert_eq!(listeners(&server), 2, "what comes later goes over another connection");
    publish(&hub, &topic(), "one", None).await;
    let item = next(&mut stream).await;
    assert!(matches!(item, Item::Event { .. }), "expected the event and no notice, found {item:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_that_take_nothing_new_are_bounded() {
    let server = Server::start();
    let noting = Noting::new(&server);
    let hub = hub(noting.clone(), NEVER_MS);
    let mut kept = Vec::new();
    for number in 0..12 {
        let [kept_one, silent] =
            ["kept", "silent"].map(|name| TopicName::parse(&format!("{name}{number}")).unwrap());
        let streams =
            [opened(&hub, &kept_one, Start::now()).await, opened(&hub, &silent, Start::now()).await];
        noting.abandon(&hub, &silent);
        wait("nobody on the silent topic", || subscribed(&server, &silent) == 0).await;
        kept.push((kept_one, streams));
    }
    wait("all that is not silent on few connections", || {
        listeners(&server) <= 9 && kept.iter().all(|(topic, _)| subscribed(&server, topic) == 1)
    })
    .await;
}
