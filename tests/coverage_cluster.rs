//! Live topics on a Redis Cluster of three masters, over sharded pub/sub.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a test names what it expects, and fails on the rest or passes over it"
)]

use futures::StreamExt as _;
use std::time::Duration;
use strandline_core::coverage::{HubConfig, HubTimes, Item, Outcome, Publish, Reason, TopicName};
use strandline_core::id::Run;
use strandline_hub::{Delivery, HandleOptions, HubHandle, Start, Subscription};
use strandline_redis_hub::{HubNames, RedisBackend, RedisOptions};
use strandline_tests::redis_cluster::RedisCluster;

/// Long enough on any machine; nothing is asserted about time.
const GIVE_UP: Duration = Duration::from_secs(60);

fn names() -> HubNames {
    HubNames::new("test").unwrap()
}

/// A topic on each master.
fn topics(cluster: &RedisCluster) -> [TopicName; 3] {
    [0, 1, 2].map(|master| {
        (0..)
            .map(|n| TopicName::parse(&format!("topic-{n}")).unwrap())
            .find(|topic| cluster.master_of(&names().state(topic)) == master)
            .expect("every master has topics")
    })
}

fn instance(cluster: &RedisCluster, number: u8) -> HubHandle {
    let backend = RedisBackend::cluster(&cluster.urls(), &RedisOptions::new(names())).unwrap();
    // What is told here is seen on the connection, not by silence.
    let times =
        HubTimes { heartbeat_ms: 60_000, resubscribe_ms: 50, settle_ms: 5_000, ..HubTimes::default() };
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

/// The next event, with nothing before it.
async fn event(stream: &mut Subscription) -> String {
    match next(stream).await {
        Item::Event { entry, .. } => String::from_utf8(entry.payload.to_vec()).unwrap(),
        other => panic!("expected an event, found {other:?}"),
    }
}

async fn opened(hub: &HubHandle, topic: &TopicName, start: Start<'_>) -> (Subscription, bool) {
    let mut stream = hub.subscribe(std::slice::from_ref(topic), start).unwrap();
    loop {
        match next(&mut stream).await {
            Item::Opened(opened) => return (stream, opened.resumed),
            // A fresh stream may be told to wait before the cluster has answered.
            Item::Stale { .. } | Item::SyncRequired { .. } if start.id.is_none() => {
                if stream.is_positioned() {
                    return (stream, false);
                }
            }
            other => panic!("expected a beginning, found {other:?}"),
        }
    }
}

/// Publishes with one token until it is in.
async fn publish(hub: &HubHandle, topic: &TopicName, text: &str) {
    let begun = std::time::Instant::now();
    loop {
        let publish = Publish { token: Some(text), ..Publish::new(text.as_bytes()) };
        match hub.publish(topic, publish).await.unwrap() {
            Outcome::Accepted(_) => return,
            outcome => assert!(begun.elapsed() < GIVE_UP, "{outcome:?}"),
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn topics_on_three_masters_reach_every_instance_and_a_cold_one_resumes_them() {
    let cluster = RedisCluster::start();
    let (a, b) = (instance(&cluster, 1), instance(&cluster, 2));
    let topics = topics(&cluster);
    for topic in &topics {
        let (mut stream, _) = opened(&b, topic, Start::now()).await;
        publish(&a, topic, "one").await;
        publish(&b, topic, "two").await;
        assert_eq!((event(&mut stream).await, event(&mut stream).await), ("one".into(), "two".into()));
        let id = stream.id();
        publish(&a, topic, "three").await;
        let (mut stream, resumed) = opened(&b, topic, Start::after(&id)).await;
        assert!(resumed);
        assert_eq!(event(&mut stream).await, "three");
        // Of another instance the history answers, on the master of the topic.
        let cold = instance(&cluster, 3);
        let (mut stream, resumed) = opened(&cold, topic, Start::after(&id)).await;
        assert!(resumed);
        assert_eq!(event(&mut stream).await, "three");
        publish(&a, topic, "four").await;
        assert_eq!(event(&mut stream).await, "four");
    }
    // Sharded: a plain channel of that name carries nothing.
    let plain: Vec<String> = redis::cmd("PUBSUB").arg("CHANNELS").query(&mut cluster.connection(0)).unwrap();
    assert_eq!(plain, [] as [&str; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_whose_slot_moves_is_told_so_and_goes_on_at_its_new_master() {
    let cluster = RedisCluster::start();
    let hub = instance(&cluster, 1);
    let [topic, other, _] = topics(&cluster);
    let (mut stream, _) = opened(&hub, &topic, Start::now()).await;
    let (mut undisturbed, _) = opened(&hub, &other, Start::now()).await;
    publish(&hub, &topic, "one").await;
    assert_eq!(event(&mut stream).await, "one");
    let id = stream.id();
    let keys = [names().state(&topic), names().history(&topic), names().token(&topic, "one")];
    cluster.move_slot(&keys[0], &keys.each_ref().map(String::as_str), 2);
    loop {
        match next(&mut stream).await {
            Item::SyncRequired { reason, .. } => {
                assert_eq!(reason, Reason::Disconnected);
                break;
            }
            Item::Stale { .. } => {}
            other => panic!("expected word of the loss, found {other:?}"),
        }
    }
    publish(&hub, &topic, "two").await;
    assert_eq!(event(&mut stream).await, "two");
    // Nothing was lost with the move: state and history went along.
    let (mut stream, resumed) = opened(&hub, &topic, Start::after(&id)).await;
    assert!(resumed);
    assert_eq!(event(&mut stream).await, "two");
    publish(&hub, &other, "there").await;
    assert_eq!(event(&mut undisturbed).await, "there", "the other masters' topics heard of nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_lost_everything_costs_its_own_topics_only() {
    let mut cluster = RedisCluster::start();
    let hub = instance(&cluster, 1);
    let [topic, other, _] = topics(&cluster);
    let (mut stream, _) = opened(&hub, &topic, Start::now()).await;
    let (mut undisturbed, _) = opened(&hub, &other, Start::now()).await;
    publish(&hub, &topic, "one").await;
    assert_eq!(event(&mut stream).await, "one");
    let id = stream.id();
    cluster.restart(0);
    while !matches!(next(&mut stream).await, Item::SyncRequired { .. }) {}
    publish(&hub, &topic, "two").await;
    while !matches!(next(&mut stream).await, Item::Event { entry, .. } if &*entry.payload == b"two") {}
    let mut late = hub.subscribe(std::slice::from_ref(&topic), Start::after(&id)).unwrap();
    let reason = loop {
        match next(&mut late).await {
            Item::SyncRequired { reason, .. } => break reason,
            Item::Stale { .. } => {}
            other => panic!("expected a refusal, found {other:?}"),
        }
    };
    assert_eq!(reason, Reason::OtherIncarnation);
    publish(&hub, &other, "there").await;
    assert_eq!(event(&mut undisturbed).await, "there");
}

/// Comes back with a cursor until the cluster answers one way or the other.
async fn judged(hub: &HubHandle, topic: &TopicName, id: &str) -> Result<Subscription, Reason> {
    let begun = std::time::Instant::now();
    loop {
        let mut stream = hub.subscribe(std::slice::from_ref(topic), Start::after(id)).unwrap();
        let reason = loop {
            match next(&mut stream).await {
                Item::Opened(opened) if opened.resumed => return Ok(stream),
                Item::SyncRequired { reason, .. } => break reason,
                Item::Stale { .. } => {}
                other => panic!("expected a judgement, found {other:?}"),
            }
        };
        match reason {
            // Not a word about the cursor: the new master was not reached yet.
            Reason::NoCoverage | Reason::Unreachable | Reason::Behind | Reason::Disconnected => {}
            reason => return Err(reason),
        }
        assert!(begun.elapsed() < GIVE_UP, "{reason:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// An open stream is told that its coverage ended, and goes on with what is published next.
async fn told_and_goes_on(hub: &HubHandle, topic: &TopicName, stream: &mut Subscription, text: &str) {
    while !matches!(next(stream).await, Item::SyncRequired { .. }) {}
    publish(hub, topic, text).await;
    while !matches!(next(stream).await, Item::Event { entry, .. } if &*entry.payload == text.as_bytes()) {}
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_that_has_everything_goes_on_for_every_cursor() {
    let mut cluster = RedisCluster::start();
    let replica = cluster.replica_of(0);
    let hub = instance(&cluster, 1);
    let [topic, other, _] = topics(&cluster);
    let (mut stream, _) = opened(&hub, &topic, Start::now()).await;
    let (mut undisturbed, _) = opened(&hub, &other, Start::now()).await;
    publish(&hub, &topic, "one").await;
    assert_eq!(event(&mut stream).await, "one");
    let id = stream.id();
    publish(&hub, &topic, "two").await;
    assert_eq!(event(&mut stream).await, "two");
    cluster.replicated(&replica);
    cluster.fail_over(&replica);
    told_and_goes_on(&hub, &topic, &mut stream, "three").await;
    for instance in [&hub, &instance(&cluster, 2)] {
        let mut resumed = judged(instance, &topic, &id).await.expect("nothing was lost");
        assert_eq!((event(&mut resumed).await, event(&mut resumed).await), ("two".into(), "three".into()));
    }
    publish(&hub, &other, "there").await;
    assert_eq!(event(&mut undisturbed).await, "there", "the other masters' topics heard of nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_promoted_replica_lacks_is_never_taken_for_what_comes_now() {
    let mut cluster = RedisCluster::start();
    let replica = cluster.replica_of(0);
    let hub = instance(&cluster, 1);
    let [topic, ..] = topics(&cluster);
    let (mut stream, _) = opened(&hub, &topic, Start::now()).await;
    publish(&hub, &topic, "one").await;
    assert_eq!(event(&mut stream).await, "one");
    let kept = stream.id();
    cluster.replicated(&replica);
    cluster.cut_off(&replica);
    for text in ["two", "three"] {
        publish(&hub, &topic, text).await;
        assert_eq!(event(&mut stream).await, text);
    }
    let lost = stream.id();
    cluster.fail_over(&replica);
    // Their numbers are given out again.
    let publisher = instance(&cluster, 2);
    publish(&publisher, &topic, "two of now").await;
    told_and_goes_on(&publisher, &topic, &mut stream, "three of now").await;
    for instance in [&hub, &instance(&cluster, 3)] {
        assert_eq!(judged(instance, &topic, &lost).await.err(), Some(Reason::OtherIncarnation));
        let mut resumed = judged(instance, &topic, &kept).await.expect("what was carried over is known");
        let events = (event(&mut resumed).await, event(&mut resumed).await);
        assert_eq!(events, ("two of now".into(), "three of now".into()));
    }
}
