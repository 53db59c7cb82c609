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
const GIVE_UP: Duration = Duration::from_secs(120);

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
    let options = RedisOptions { answer_ms: 20_000, ..RedisOptions::new(names()) };
    let backend = RedisBackend::cluster(&cluster.urls(), &options).unwrap();
    // What is told here is seen on the connection, not by silence.
    let times =
        HubTimes { heartbeat_ms: 60_000, resubscribe_ms: 50, settle_ms: 20_000, ..HubTimes::default() };
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

/// A stream of what comes from now on.
async fn opened(hub: &HubHandle, topic: &TopicName) -> Subscription {
    let mut stream = hub.subscribe(std::slice::from_ref(topic), Start::now()).unwrap();
    loop {
        match next(&mut stream).await {
            Item::Opened(_) => return stream,
            // It may be told to wait before the cluster has answered.
            Item::Stale { .. } | Item::SyncRequired { .. } => {
                if stream.is_positioned() {
                    return stream;
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
        let mut stream = opened(&b, topic).await;
        publish(&a, topic, "one").await;
        publish(&b, topic, "two").await;
        assert_eq!((event(&mut stream).await, event(&mut stream).await), ("one".into(), "two".into()));
        let id = stream.id();
        publish(&a, topic, "three").await;
        let mut stream = judged(&b, topic, &id).await.expect("it listened all the time");
        assert_eq!(event(&mut stream).await, "three");
        // Of another instance the history answers, on the master of the topic.
        let cold = instance(&cluster, 3);
        let mut stream = judged(&cold, topic, &id).await.expect("the history has it");
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
    let mut stream = opened(&hub, &topic).await;
    let mut undisturbed = opened(&hub, &other).await;
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
    while !matches!(next(&mut stream).await, Item::Event { entry, .. } if &*entry.payload == b"two") {}
    // The state went along, but its new master cannot know that nothing was lost with the move.
    assert_eq!(judged(&hub, &topic, &id).await.err(), Some(Reason::OtherIncarnation));
    let id = stream.id();
    publish(&hub, &topic, "three").await;
    let mut resumed = judged(&hub, &topic, &id).await.expect("of the master of now");
    assert_eq!(event(&mut resumed).await, "three");
    publish(&hub, &other, "there").await;
    assert_eq!(event(&mut undisturbed).await, "there", "the other masters' topics heard of nothing");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_master_that_lost_everything_costs_its_own_topics_only() {
    let mut cluster = RedisCluster::start();
    let hub = instance(&cluster, 1);
    let [topic, other, _] = topics(&cluster);
    let mut stream = opened(&hub, &topic).await;
    let mut undisturbed = opened(&hub, &other).await;
    publish(&hub, &topic, "one").await;
    assert_eq!(event(&mut stream).await, "one");
    let id = stream.id();
    cluster.restart(0);
    while !matches!(next(&mut stream).await, Item::SyncRequired { .. }) {}
    publish(&hub, &topic, "two").await;
    while !matches!(next(&mut stream).await, Item::Event { entry, .. } if &*entry.payload == b"two") {}
    assert_eq!(judged(&hub, &topic, &id).await.err(), Some(Reason::OtherIncarnation));
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
async fn a_replica_that_is_promoted_begins_anew_though_it_has_everything() {
    let mut cluster = RedisCluster::start();
    let replica = cluster.replica_of(0);
    let hub = instance(&cluster, 1);
    let [topic, other, _] = topics(&cluster);
    let mut stream = opened(&hub, &topic).await;
    let mut undisturbed = opened(&hub, &other).await;
    publish(&hub, &topic, "one").await;
    assert_eq!(event(&mut stream).await, "one");
    let id = stream.id();
    publish(&hub, &topic, "two").await;
    assert_eq!(event(&mut stream).await, "two");
    cluster.replicated(&replica);
    cluster.fail_over(&replica);
    told_and_goes_on(&hub, &topic, &mut stream, "three").await;
    let renewed = stream.id();
    publish(&hub, &topic, "four").await;
    for instance in [&hub, &instance(&cluster, 2)] {
        let refused = judged(instance, &topic, &id).await.err();
        assert_eq!(refused, Some(Reason::OtherIncarnation), "the replica cannot know that it has everything");
        let mut resumed = judged(instance, &topic, &renewed).await.expect("of the master of now");
        assert_eq!(event(&mut resumed).await, "four");
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
    let mut stream = opened(&hub, &topic).await;
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
        for id in [&lost, &kept] {
            let refused = judged(instance, &topic, id).await.err();
            assert_eq!(refused, Some(Reason::OtherIncarnation), "what was lost after it, nobody knows");
        }
    }
}
