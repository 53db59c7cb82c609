//! Live topics in one process: fan-out beside tokio's broadcast channel, and a resume.

use crate::measure::{Better, Row, Scale, medians, ns_per_item, thousands};
use futures::StreamExt as _;
use futures::executor::block_on;
use std::cell::Cell;
use std::error::Error;
use std::hint::black_box;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;
use strandline_core::coverage::{Item, Outcome, Publish, TopicName};
use strandline_core::id::Run;
use strandline_hub::{HubHandle, Start, Subscription};
use tokio::runtime::Runtime;
use tokio::sync::broadcast;
use tokio::task::LocalSet;

const PAYLOAD: [u8; 100] = [b'x'; 100];

/// Events published before the subscribers take them: fewer than either queue holds.
const TOGETHER: usize = 32;

/// Events that a client missed.
const MISSED: usize = 1_000;

struct Live {
    hub: HubHandle,
    topic: TopicName,
}

impl Live {
    fn new() -> Result<Self, Box<dyn Error>> {
        let (hub, _driver) = HubHandle::in_process(Run(1), [1; 32]);
        Ok(Self { hub, topic: TopicName::parse("live")? })
    }

    fn publish(&self) {
        let outcome = block_on(self.hub.publish(&self.topic, Publish::new(&PAYLOAD)));
        assert!(matches!(outcome, Ok(Outcome::Accepted(_))), "a hub of this process takes it");
    }

    fn subscribe(&self, start: Start<'_>) -> Subscription {
        self.hub.subscribe(std::slice::from_ref(&self.topic), start).expect("below every limit")
    }
}

/// The events that wait.
fn taken(stream: &mut Subscription) -> usize {
    let mut events = 0;
    while let Some(delivery) = stream.try_next() {
        events += usize::from(matches!(delivery.item, Item::Event { .. }));
        black_box(delivery);
    }
    events
}

/// All rows of live topics.
pub(crate) fn rows(scale: &Scale, rows: &mut Vec<Row>) -> Result<(), Box<dyn Error>> {
    let subscribers = usize::try_from(1_000 / scale.divisor)?;
    rows.push(fan_out_taken(scale, subscribers)?);
    rows.push(fan_out_woken(scale, subscribers)?);
    rows.push(resume(scale)?);
    Ok(())
}

/// Subscribers that take what waits.
fn fan_out_taken(scale: &Scale, subscribers: usize) -> Result<Row, Box<dyn Error>> {
    let live = Live::new()?;
    let mut streams: Vec<_> = (0..subscribers).map(|_| live.subscribe(Start::now())).collect();
    let (sender, receiver) = broadcast::channel(2 * TOGETHER);
    let mut receivers: Vec<_> = (1..subscribers).map(|_| sender.subscribe()).collect();
    receivers.push(receiver);
    let items = TOGETHER * subscribers;
    let mut ours = || {
        ns_per_item(scale.compute_time, items, || {
            (0..TOGETHER).for_each(|_| live.publish());
            assert_eq!(streams.iter_mut().map(taken).sum::<usize>(), items);
        })
    };
    let mut theirs = || {
        ns_per_item(scale.compute_time, items, || {
            for _ in 0..TOGETHER {
                let sent = sender.send(Arc::<[u8]>::from(PAYLOAD));
                assert_eq!(sent.ok(), Some(subscribers));
            }
            let mut events = 0;
            for receiver in &mut receivers {
                while let Ok(event) = receiver.try_recv() {
                    black_box(event);
                    events += 1;
                }
            }
            assert_eq!(events, items);
        })
    };
    let [ours, theirs] = medians(scale.rounds, [&mut ours, &mut theirs]);
    let name = format!("an event to each of {} subscribers", thousands(subscribers as u64));
    Ok(Row { name, ours, theirs, unit: "ns", beside: "tokio broadcast, the same", better: Better::Lower })
}

/// Subscribers that each are a task, woken for every event.
fn fan_out_woken(scale: &Scale, subscribers: usize) -> Result<Row, Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let live = Live::new()?;
    let (ours_tasks, theirs_tasks) = (LocalSet::new(), LocalSet::new());
    let (given, received) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let (sender, _receiver) = broadcast::channel(2 * TOGETHER);
    for _ in 0..subscribers {
        let (mut stream, count) = (live.subscribe(Start::now()), given.clone());
        ours_tasks.spawn_local(async move {
            while let Some(delivery) = stream.next().await {
                count.set(count.get() + usize::from(matches!(delivery.item, Item::Event { .. })));
                black_box(delivery);
            }
        });
        let (mut receiver, count) = (sender.subscribe(), received.clone());
        theirs_tasks.spawn_local(async move {
            while let Ok(event) = receiver.recv().await {
                count.set(count.get() + 1);
                black_box::<Arc<[u8]>>(event);
            }
        });
    }
    let mut ours = || {
        ns_per_item(scale.compute_time, subscribers, || {
            live.publish();
            until(&runtime, &ours_tasks, &given, subscribers);
        })
    };
    let mut theirs = || {
        ns_per_item(scale.compute_time, subscribers, || {
            sender.send(Arc::from(PAYLOAD)).expect("a receiver is kept");
            until(&runtime, &theirs_tasks, &received, subscribers);
        })
    };
    let [ours, theirs] = medians(scale.rounds, [&mut ours, &mut theirs]);
    let name = format!("an event to each of {} tasks, woken", thousands(subscribers as u64));
    Ok(Row { name, ours, theirs, unit: "ns", beside: "tokio broadcast, the same", better: Better::Lower })
}

/// Runs the tasks until all of them have taken one event.
fn until(runtime: &Runtime, tasks: &LocalSet, count: &Cell<usize>, all: usize) {
    tasks.block_on(runtime, async {
        while count.get() < all {
            tokio::task::yield_now().await;
        }
    });
    count.set(0);
}

/// A client that comes back: its cursor is judged, and what it missed is handed out. Beside it a receiver
/// that was never gone and takes as many, which nobody had to judge.
fn resume(scale: &Scale) -> Result<Row, Box<dyn Error>> {
    let live = Live::new()?;
    let mut stream = live.subscribe(Start::now());
    live.publish();
    assert_eq!(taken(&mut stream), 1);
    let id = stream.id();
    drop(stream);
    (0..MISSED).for_each(|_| live.publish());
    let (sender, _receiver) = broadcast::channel(MISSED);
    let mut ours = || {
        ns_per_item(scale.compute_time, 1, || {
            let mut stream = live.subscribe(Start::after(&id));
            assert_eq!(taken(&mut stream), MISSED);
        }) / 1e3
    };
    let mut theirs = || behind(scale, &sender) / 1e3;
    let [ours, theirs] = medians(scale.rounds, [&mut ours, &mut theirs]);
    let name = format!("resume of {} events", thousands(MISSED as u64));
    let beside = "tokio broadcast, a receiver so far behind";
    Ok(Row { name, ours, theirs, unit: "us", beside, better: Better::Lower })
}

/// Nanoseconds a receiver takes for what it has not taken yet; what is sent to it is not counted.
fn behind(scale: &Scale, sender: &broadcast::Sender<Arc<[u8]>>) -> f64 {
    let (mut rounds, mut taken) = (0u32, 0.0);
    let start = Instant::now();
    while rounds == 0 || start.elapsed() < scale.compute_time {
        let mut receiver = sender.subscribe();
        for _ in 0..MISSED {
            sender.send(Arc::from(PAYLOAD)).expect("a receiver is kept");
        }
        let begin = Instant::now();
        let mut events = 0;
        while let Ok(event) = receiver.try_recv() {
            black_box(event);
            events += 1;
        }
        taken += begin.elapsed().as_secs_f64();
        assert_eq!(events, MISSED);
        rounds += 1;
    }
    taken * 1e9 / f64::from(rounds)
}
