//! A hub that many tasks share, from tokio and from the executor of `futures`.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a test names what it expects, and fails on the rest or passes over it"
)]

use futures::StreamExt as _;
use futures::executor::block_on;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use strandline_core::coverage::{
    BufferLimits, Counters, Event, From, How, HubConfig, HubLimits, Item, NotAdmitted, Outcome, Publish,
    PublishError, Reason, SubscribeError, TopicName,
};
use strandline_core::id::Run;
use strandline_hub::{Driver, HandleOptions, HubHandle, NoBackend, Start, Subscription};

fn topic(name: &str) -> TopicName {
    TopicName::parse(name).unwrap()
}

fn open(config: HubConfig, options: HandleOptions) -> (HubHandle, Driver) {
    HubHandle::new(config, options, NoBackend, Run(1), [7; 32])
}

fn hub() -> HubHandle {
    open(HubConfig::minted(), HandleOptions::default()).0
}

async fn publish(hub: &HubHandle, topic: &TopicName, payload: &[u8]) -> u64 {
    match hub.publish(topic, Publish::new(payload)).await.unwrap() {
        Outcome::Accepted(accepted) => accepted.mark.position.as_sequence().unwrap(),
        other => panic!("{other:?}"),
    }
}

/// The positions of the events that wait, with how each came, and the notices between.
fn taken(subscription: &mut Subscription) -> Vec<(String, u64)> {
    let mut out = Vec::new();
    while let Some(delivery) = subscription.try_next() {
        match delivery.item {
            Item::Event { entry, how } => {
                let how = match how {
                    How::Live => "live",
                    How::Replayed => "replayed",
                    How::Backfilled => "backfilled",
                };
                out.push((how.into(), entry.mark.position.as_sequence().unwrap()));
            }
            Item::Gap { through, .. } => out.push(("gap".into(), through.as_sequence().unwrap())),
            Item::SyncRequired { at, .. } => out.push(("sync".into(), at.position.as_sequence().unwrap())),
            Item::Stale { .. } => out.push(("stale".into(), 0)),
            Item::Opened(_) | Item::Closed => {}
        }
    }
    out
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_publishes_stay_dense_and_ordered() {
    let hub = hub();
    let t = topic("t");
    let tasks: Vec<_> = (0..200)
        .map(|_| {
            let (hub, t) = (hub.clone(), t.clone());
            tokio::spawn(async move { publish(&hub, &t, b"x").await })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let mut all = hub.subscribe(&[t], Start { fresh: From::Earliest, ..Start::now() }).unwrap();
    let expected: Vec<_> = (1..=200).map(|n| ("replayed".to_owned(), n)).collect();
    assert_eq!(taken(&mut all), expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_use() {
    for round in 0..30 {
        let hub = hub();
        let t = topic("t");
        let readers: Vec<_> = (0..50)
            .map(|_| {
                let mut subscription = hub.subscribe(std::slice::from_ref(&t), Start::now()).unwrap();
                tokio::spawn(async move {
                    let mut last = 0;
                    while let Some(delivery) = subscription.next().await {
                        if let Item::Event { entry, .. } = delivery.item {
                            let position = entry.mark.position.as_sequence().unwrap();
                            assert_eq!(position, last + 1 + (last == 0) as u64 * (position - 1));
                            last = position;
                        }
                        if round % 2 == 0 && last > 10 {
                            break;
                        }
                    }
                })
            })
            .collect();
        let writers: Vec<_> = (0..20)
            .map(|_| {
                let (hub, t) = (hub.clone(), t.clone());
                tokio::spawn(async move { hub.publish(&t, Publish::new(b"x")).await })
            })
            .collect();
        for writer in writers {
            writer.await.unwrap().unwrap();
        }
        hub.close();
        for reader in readers {
            reader.await.unwrap();
        }
        assert_eq!(hub.streams(), 0);
        assert_eq!(hub.publish(&t, Publish::new(b"x")).await, Err(PublishError::Closed));
        assert_eq!(hub.subscribe(&[t], Start::now()).unwrap_err(), SubscribeError::Closed);
    }
}

/// Runs a test that a deadlock would hang, and gives up on it after a while.
fn in_time(test: impl FnOnce() + Send + 'static) {
    let (done, over) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        test();
        done.send(()).expect("somebody waits");
    });
    over.recv_timeout(Duration::from_secs(60)).expect("an end, and a good one");
}

#[test]
fn reports_fire_outside_the_hub() {
    in_time(a_report_may_use_the_hub);
}

fn a_report_may_use_the_hub() {
    let seen = Arc::new(AtomicU64::new(0));
    let counted = seen.clone();
    let report = Box::new(move |hub: &HubHandle, event: &Event| {
        if matches!(event, Event::Refused { reason: Reason::Unreadable, .. }) {
            counted.fetch_add(1, Ordering::Relaxed);
            block_on(publish(hub, &topic("t"), b"from within"));
        }
    });
    let (hub, _driver) = open(HubConfig::minted(), HandleOptions { shards: 1, report });
    let mut subscription = hub.subscribe(&[topic("t")], Start::after("rubbish")).unwrap();
    assert_eq!(taken(&mut subscription), [("sync".into(), 0), ("live".into(), 1)]);
    assert_eq!(seen.load(Ordering::Relaxed), 1);
}

#[test]
fn a_buffer_of_no_size() {
    let none = BufferLimits { events_max: 0, ..HubLimits::default().buffer };
    let limits = HubLimits { buffer: none, ..HubLimits::default() };
    let (hub, _driver) = open(HubConfig { limits, ..HubConfig::minted() }, HandleOptions::default());
    let t = topic("t");
    let mut live = hub.subscribe(std::slice::from_ref(&t), Start::now()).unwrap();
    block_on(publish(&hub, &t, b"one"));
    assert_eq!(taken(&mut live), [("live".into(), 1)]);
    let id = live.id();
    drop(live);
    let mut caught_up = hub.subscribe(std::slice::from_ref(&t), Start::after(&id)).unwrap();
    assert_eq!(taken(&mut caught_up), []);
    block_on(publish(&hub, &t, b"two"));
    let mut behind = hub.subscribe(&[t], Start::after(&id)).unwrap();
    assert_eq!(taken(&mut behind), [("sync".into(), 2)]);
}

#[test]
fn a_stream_over_several_topics_comes_back_with_one_id() {
    let hub = hub();
    let topics = [topic("a"), topic("b"), topic("c")];
    let mut first = hub.subscribe(&topics, Start::now()).unwrap();
    for name in ["a", "b", "b"] {
        block_on(publish(&hub, &topic(name), b"x"));
    }
    assert_eq!(taken(&mut first).len(), 3);
    let id = first.id();
    drop(first);
    block_on(publish(&hub, &topic("b"), b"missed"));
    let mut second = hub.subscribe(&topics, Start::after(&id)).unwrap();
    assert_eq!(taken(&mut second), [("replayed".into(), 3)]);
    assert_eq!(hub.counters().resumed, 3);
}

#[test]
fn a_position_taken_first_misses_nothing() {
    let hub = hub();
    let topics = [topic("a"), topic("b")];
    let id = block_on(hub.position(&topics)).unwrap();
    block_on(publish(&hub, &topics[1], b"between the position and the stream"));
    let mut stream = hub.subscribe(&topics, Start::after(&id)).unwrap();
    assert_eq!(taken(&mut stream), [("replayed".into(), 1)]);
}

#[test]
fn an_executor_without_a_runtime_is_enough() {
    let (hub, driver) = HubHandle::in_process(Run(1), [1; 32]);
    let t = topic("t");
    let mut subscription = hub.subscribe(std::slice::from_ref(&t), Start::now()).unwrap();
    let timer = std::thread::spawn(|| {
        block_on(driver.run(|time| async move { std::thread::sleep(time.min(Duration::from_millis(5))) }));
    });
    let writer = std::thread::spawn(move || {
        block_on(publish(&hub, &t, b"one"));
        hub.close();
    });
    let items: Vec<Item> = block_on(async {
        let mut items = Vec::new();
        while let Some(delivery) = subscription.next().await {
            items.push(delivery.item);
        }
        items
    });
    assert!(matches!(&items[..], [Item::Opened(_), Item::Event { .. }, Item::Closed]), "{items:?}");
    writer.join().unwrap();
    timer.join().unwrap();
}

/// Publishes to one topic with readers that read at once and perhaps one that never does. Returns the
/// work that the readers cost.
fn work_of_readers(stalled: bool) -> (Counters, Vec<usize>) {
    let limits = HubLimits { queue_events_max: 8, ..HubLimits::default() };
    let (hub, _driver) = open(HubConfig { limits, ..HubConfig::minted() }, HandleOptions::default());
    let t = topic("t");
    let asleep = stalled.then(|| hub.subscribe(std::slice::from_ref(&t), Start::now()).unwrap());
    let mut readers: Vec<_> =
        (0..5).map(|_| hub.subscribe(std::slice::from_ref(&t), Start::now()).unwrap()).collect();
    let mut polls = vec![0; readers.len()];
    for _ in 0..100 {
        block_on(publish(&hub, &t, b"0123456789"));
        for (reader, polls) in readers.iter_mut().zip(&mut polls) {
            while reader.try_next().is_some() {
                *polls += 1;
            }
        }
    }
    drop(asleep);
    (hub.counters(), polls)
}

#[test]
fn a_stalled_subscriber_costs_the_others_nothing() {
    let (without, polls_without) = work_of_readers(false);
    let (with, polls_with) = work_of_readers(true);
    assert_eq!(polls_with, polls_without);
    assert_eq!(with.copied_bytes, without.copied_bytes);
    assert_eq!(with.polled, without.polled);
    assert_eq!(with.queued, without.queued + 8, "its own queue, and no more");
    assert_eq!(with.dropped, 92);
}

#[test]
fn a_slow_subscriber_is_told_and_backfilled() {
    let limits = HubLimits { queue_events_max: 2, ..HubLimits::default() };
    let (hub, _driver) = open(HubConfig { limits, ..HubConfig::minted() }, HandleOptions::default());
    let t = topic("t");
    let mut slow = hub.subscribe(std::slice::from_ref(&t), Start::now()).unwrap();
    for _ in 0..4 {
        block_on(publish(&hub, &t, b"x"));
    }
    let told = [("live", 1), ("live", 2), ("gap", 4), ("backfilled", 3), ("backfilled", 4)];
    assert_eq!(taken(&mut slow), told.map(|(how, n)| (how.to_owned(), n)));
}

/// Resident memory of this process, in bytes.
fn resident() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:"))?;
    line.split_whitespace().nth(1)?.parse::<u64>().ok().map(|kib| kib * 1024)
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_subscribers_over_two_hundred_topics() {
    let soak = std::env::var_os("STRANDLINE_SOAK").is_some();
    let (subscribers, rounds) = if soak { (10_000, 50) } else { (1_000, 5) };
    let hub = hub();
    let before = resident();
    let names: Vec<TopicName> = (0..200).map(|n| topic(&format!("topic {n}"))).collect();
    // Half of them on the hot one.
    let place = |n: usize| if n.is_multiple_of(2) { 0 } else { n % names.len() };
    let mut streams: Vec<_> = (0..subscribers)
        .map(|n| hub.subscribe(std::slice::from_ref(&names[place(n)]), Start::now()).unwrap())
        .collect();
    if let (Some(before), Some(after)) = (before, resident()) {
        println!(
            "{} bytes for each of {subscribers} subscribers",
            (after.saturating_sub(before)) / subscribers as u64
        );
    }
    for round in 0..rounds {
        for _ in 0..10 {
            publish(&hub, &names[0], b"hot").await;
        }
        publish(&hub, &names[1 + round % 199], b"cold").await;
        for stream in &mut streams {
            taken(stream);
        }
    }
    for (n, stream) in streams.iter_mut().enumerate() {
        assert_eq!(taken(stream), [], "subscriber {n}");
    }
    assert_eq!(hub.counters().dropped, 0);
    let hot = (subscribers / 2 * rounds * 10) as u64;
    assert!(hub.counters().queued >= hot, "{} of {hot}", hub.counters().queued);
}

#[test]
fn limits_hold_over_all_topics_of_an_instance_and_for_no_other_instance() {
    let limits =
        HubLimits { subscribers_max: Some(3), client_subscribers_max: Some(2), ..HubLimits::default() };
    let instance = || open(HubConfig { limits, ..HubConfig::minted() }, HandleOptions::default()).0;
    let (a, b) = (instance(), instance());
    // Spread over the locks, so that none of them sees more than a few.
    let topics: Vec<TopicName> = (0..4).map(|n| TopicName::parse(&format!("t{n}")).unwrap()).collect();
    let mut held = Vec::new();
    for hub in [&a, &b] {
        let subscribe = |topic: usize, client| {
            hub.subscribe(std::slice::from_ref(&topics[topic]), Start { client, ..Start::now() })
        };
        let first = subscribe(0, Some("ann")).expect("room");
        let second = subscribe(1, Some("ann")).expect("room");
        let refused = subscribe(2, Some("ann")).err();
        assert_eq!(refused, Some(SubscribeError::NotAdmitted(NotAdmitted::Client { max: 2 })));
        let third = subscribe(2, Some("bob")).expect("room");
        let refused = subscribe(3, None).err();
        assert_eq!(refused, Some(SubscribeError::NotAdmitted(NotAdmitted::Total { max: 3 })));
        drop(first);
        // All of them stay while the other instance is asked.
        held.extend([second, third, subscribe(3, None).expect("its place is free again")]);
    }
}
