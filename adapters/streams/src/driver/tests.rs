//! What is left to callers when the driver ends, and what wakes it.

use super::*;
use crate::backend::Backend;
use crate::streams::Streams;
use std::future::ready;
use std::sync::atomic::{AtomicUsize, Ordering};
use strandline_core::stream::client::{Failure, LogPosition, Waited};
use strandline_core::stream::reply::Uncertain;
use strandline_core::stream::{Event, Layout, Outcome, StreamOp, Verb};
use strandline_core::time::Instant;
use tokio::time::timeout;

/// The longest a test waits for something that must come.
const GIVE_UP: Duration = Duration::from_secs(60);

/// Gives no answer to the first operations, and stands still on every later one.
#[derive(Clone, Default)]
struct Mute {
    unanswered: usize,
    asked: Arc<AtomicUsize>,
}

impl Mute {
    fn new(unanswered: usize) -> Self {
        Self { unanswered, asked: Arc::default() }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

impl Backend for Mute {
    fn layout(&self) -> Layout {
        Layout::Tagged
    }

    fn apply(&self, op: StreamOp) -> BoxFuture<'static, Outcome> {
        if self.asked.fetch_add(1, Ordering::SeqCst) < self.unanswered {
            ready(Outcome::Uncertain(Uncertain::new(op))).boxed()
        } else {
            pending().boxed()
        }
    }

    fn wait(&self, _logs: Vec<LogPosition>, _wait_ms: u64) -> BoxFuture<'static, Waited> {
        pending().boxed()
    }
}

fn uncertain<T>(result: &Result<T, Failure>) -> bool {
    matches!(result, Err(Failure::Uncertain(_)))
}

#[tokio::test]
async fn a_call_after_the_close_asks_nothing() {
    let mute = Mute::new(usize::MAX);
    let (streams, _driver) = Streams::new(mute.clone()).expect("streams");
    let orders = streams.stream("orders").handle().expect("a handle");
    streams.close();
    let event = Event::new("e", "payload").expect("an event");
    assert_eq!(orders.add(event).await, Err(Failure::Closed));
    assert_eq!(mute.asked(), 0);
}

#[tokio::test]
async fn a_call_that_waits_to_be_asked_again_ends_as_unknown_with_a_driver_that_never_ran() {
    let (streams, driver) = Streams::new(Mute::new(1)).expect("streams");
    let orders = streams.stream("orders").handle().expect("a handle");
    let mut call = pin!(orders.open());
    assert!((&mut call).now_or_never().is_none());
    drop(driver.run(tokio::time::sleep));
    assert!(uncertain(&timeout(GIVE_UP, call).await.expect("in time")));
}

#[tokio::test]
async fn what_a_dropped_driver_was_asking_ends_as_unknown() {
    let mute = Mute::new(1);
    let (streams, driver) = Streams::new(mute.clone()).expect("streams");
    let orders = streams.stream("orders").handle().expect("a handle");
    let running = tokio::spawn(driver.run(tokio::time::sleep));
    let (of, reader) = (orders.clone(), orders.reader());
    let call = tokio::spawn(async move { of.open().await });
    timeout(GIVE_UP, async {
        while mute.asked() < 2 {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("asked again by the driver");
    let reader = tokio::spawn(async move { reader.open().await.err() });
    running.abort();
    assert!(uncertain(&timeout(GIVE_UP, call).await.expect("in time").expect("no panic")));
    let ended = timeout(GIVE_UP, reader).await.expect("in time").expect("no panic");
    assert_eq!(ended, Some(Failure::Closed));
}

/// Until when the driver slept before says nothing of its next sleep.
#[tokio::test]
async fn a_deadline_that_comes_when_the_driver_has_looked_wakes_it() {
    let (streams, driver) = Streams::new(Mute::new(1)).expect("streams");
    let orders = streams.stream("orders").handle().expect("a handle");
    let alarm = &driver.shared.alarm;
    alarm.sleeps_until(Some(Instant(0)));
    assert_eq!(driver.shared.tick(), None);
    assert!(alarm.rung().now_or_never().is_none());
    let mut call = pin!(driver.shared.call(orders.id, Verb::Open));
    assert!((&mut call).now_or_never().is_none(), "it waits to be asked again");
    assert!(alarm.rung().now_or_never().is_some());
}
