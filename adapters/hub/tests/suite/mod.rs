//! The tests of every runtime: written once over [`Runtime`], run on each through
//! [`tests!`](crate::suite::tests).

use futures::StreamExt as _;
use futures::channel::oneshot;
use futures::future::{Either, join_all, select};
use std::future::Future;
use std::pin::pin;
use std::time::Duration;
use strandline_core::coverage::{
    From, How, HubConfig, HubLimits, HubTimes, Item, Outcome, Publish, Reason, TopicName,
};
use strandline_core::id::Run;
use strandline_hub::{Delivery, HandleOptions, HubHandle, NoBackend, Start, Subscription};

/// Longest wait for anything; only what hangs reaches it.
const WAIT: Duration = Duration::from_secs(60);

/// What a runtime gives to a hub and its users.
pub(crate) trait Runtime: Copy + Send + Sync + 'static {
    fn spawn(self, task: impl Future<Output = ()> + Send + 'static);
    fn sleep(self, time: Duration) -> impl Future<Output = ()> + Send + 'static;
}

/// Makes a test of each function of the suite; `$run` gives it the runtime.
macro_rules! tests {
    ($run:ident) => {
        $crate::suite::tests! { $run:
            tasks_share_a_hub,
            who_comes_back_misses_nothing,
            a_slow_task_is_told_and_the_others_are_not,
            the_driver_keeps_the_time,
        }
    };
    ($run:ident: $($name:ident),* $(,)?) => {
        $(#[test]
        fn $name() {
            $run(|runtime| suite::$name(runtime));
        })*
    };
}
pub(crate) use tests;

fn open(runtime: impl Runtime, config: HubConfig) -> HubHandle {
    let (hub, driver) = HubHandle::new(config, HandleOptions::default(), NoBackend, Run(1), [7; 32]);
    runtime.spawn(driver.run(move |time| runtime.sleep(time)));
    hub
}

fn topic(name: &str) -> TopicName {
    TopicName::parse(name).unwrap()
}

/// Waits for something, and not for ever.
async fn in_time<T>(runtime: impl Runtime, what: impl Future<Output = T>) -> T {
    match select(pin!(what), pin!(runtime.sleep(WAIT))).await {
        Either::Left((value, _)) => value,
        Either::Right(_) => panic!("waited in vain"),
    }
}

/// Runs a task, whose value comes back.
fn spawn<T: Send + 'static>(
    runtime: impl Runtime,
    task: impl Future<Output = T> + Send + 'static,
) -> oneshot::Receiver<T> {
    let (sender, receiver) = oneshot::channel();
    runtime.spawn(async move { drop(sender.send(task.await)) });
    receiver
}

async fn publish(hub: &HubHandle, topic: &TopicName, payload: &[u8]) {
    let outcome = hub.publish(topic, Publish::new(payload)).await.unwrap();
    assert!(matches!(outcome, Outcome::Accepted(_)), "{outcome:?}");
}

async fn next(runtime: impl Runtime, stream: &mut Subscription) -> Delivery {
    in_time(runtime, stream.next()).await.expect("an open stream")
}

/// The positions of events up to the end of the stream.
async fn all(mut stream: Subscription) -> Vec<u64> {
    let mut positions = Vec::new();
    while let Some(delivery) = stream.next().await {
        if let Item::Event { entry, .. } = delivery.item {
            positions.push(entry.mark.position.as_sequence().unwrap());
        }
    }
    positions
}

pub(crate) async fn tasks_share_a_hub(runtime: impl Runtime) {
    let hub = open(runtime, HubConfig::minted());
    let t = topic("t");
    let streams: Vec<_> =
        (0..20).map(|_| hub.subscribe(std::slice::from_ref(&t), Start::now()).unwrap()).collect();
    let readers: Vec<_> = streams.into_iter().map(|stream| spawn(runtime, all(stream))).collect();
    let writers: Vec<_> = (0..10)
        .map(|_| {
            let (hub, t) = (hub.clone(), t.clone());
            spawn(runtime, async move {
                for _ in 0..5 {
                    publish(&hub, &t, b"x").await;
                }
            })
        })
        .collect();
    in_time(runtime, join_all(writers)).await.into_iter().for_each(|done| done.unwrap());
    hub.close();
    for positions in in_time(runtime, join_all(readers)).await {
        assert_eq!(positions.unwrap(), (1..=50).collect::<Vec<_>>());
    }
    assert_eq!(hub.streams(), 0);
}

pub(crate) async fn who_comes_back_misses_nothing(runtime: impl Runtime) {
    let hub = open(runtime, HubConfig::minted());
    let topics = [topic("a"), topic("b")];
    let mut stream = hub.subscribe(&topics, Start::now()).unwrap();
    publish(&hub, &topics[0], b"one").await;
    while !matches!(next(runtime, &mut stream).await.item, Item::Event { .. }) {}
    while !stream.is_positioned() {
        next(runtime, &mut stream).await;
    }
    let id = stream.id();
    drop(stream);
    publish(&hub, &topics[1], b"two").await;
    publish(&hub, &topics[0], b"three").await;
    let mut stream = hub.subscribe(&topics, Start::after(&id)).unwrap();
    let mut missed = Vec::new();
    while missed.len() < 2 {
        if let Item::Event { entry, how } = next(runtime, &mut stream).await.item {
            assert_eq!(how, How::Replayed);
            missed.push(entry.payload.to_vec());
        }
    }
    missed.sort();
    assert_eq!(missed, [b"three".to_vec(), b"two".to_vec()]);
}

pub(crate) async fn a_slow_task_is_told_and_the_others_are_not(runtime: impl Runtime) {
    let limits = HubLimits { queue_events_max: 2, ..HubLimits::default() };
    let hub = open(runtime, HubConfig { limits, ..HubConfig::minted() });
    let t = topic("t");
    let mut slow = hub.subscribe(std::slice::from_ref(&t), Start::now()).unwrap();
    let mut quick = hub.subscribe(std::slice::from_ref(&t), Start::now()).unwrap();
    for n in 1..=4 {
        publish(&hub, &t, b"x").await;
        loop {
            match next(runtime, &mut quick).await.item {
                Item::Event { entry, how: How::Live } => {
                    assert_eq!(entry.mark.position.as_sequence(), Some(n));
                    break;
                }
                Item::Opened(_) => {}
                other @ (Item::Event { .. } | Item::Gap { .. } | Item::Stale { .. }) => {
                    panic!("the quick one is told {other:?}")
                }
                other @ (Item::SyncRequired { .. } | Item::Closed) => {
                    panic!("the quick one is told {other:?}")
                }
            }
        }
    }
    let (mut gaps, mut last) = (0, 0);
    while last < 4 {
        match next(runtime, &mut slow).await.item {
            Item::Event { entry, .. } => {
                let position = entry.mark.position.as_sequence().unwrap();
                assert_eq!(position, last + 1);
                last = position;
            }
            Item::Gap { .. } => gaps += 1,
            Item::Opened(_) => {}
            other @ (Item::Stale { .. } | Item::SyncRequired { .. } | Item::Closed) => {
                panic!("the slow one is told {other:?}")
            }
        }
    }
    assert_eq!(gaps, 1);
}

pub(crate) async fn the_driver_keeps_the_time(runtime: impl Runtime) {
    let times = HubTimes { topic_idle_ms: 50, ..HubTimes::default() };
    let hub = open(runtime, HubConfig { times, ..HubConfig::minted() });
    let t = topic("t");
    let id = in_time(runtime, hub.position(std::slice::from_ref(&t))).await.unwrap();
    in_time(runtime, async {
        while !hub.topics().is_empty() {
            runtime.sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    let start = Start { fresh: From::Now, ..Start::after(&id) };
    let mut stream = hub.subscribe(std::slice::from_ref(&t), start).unwrap();
    let told = next(runtime, &mut stream).await.item;
    assert!(
        matches!(told, Item::SyncRequired { reason: Reason::OtherIncarnation, .. }),
        "a topic that was forgotten is another space: {told:?}"
    );
}
