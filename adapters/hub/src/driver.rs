//! Keeps the time of a hub: its deadlines must be told to it.

use crate::handle::HubHandle;
use futures::future::{Either, select};
use futures::task::AtomicWaker;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;
use strandline_core::time::Instant;

/// Wakes the driver when a deadline came nearer.
#[derive(Default)]
pub(crate) struct Alarm {
    waker: AtomicWaker,
    next: AtomicU64,
    rung: AtomicBool,
}

impl Alarm {
    /// A shard's next deadline is this.
    pub(crate) fn deadline(&self, at: Option<Instant>) {
        if at.is_some_and(|at| at.0 < self.next.load(Ordering::Acquire)) {
            self.ring();
        }
    }

    pub(crate) fn ring(&self) {
        self.rung.store(true, Ordering::Release);
        self.waker.wake();
    }

    async fn rung(&self) {
        poll_fn(|cx| {
            self.waker.register(cx.waker());
            if self.rung.swap(false, Ordering::AcqRel) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

/// The part of a hub that must run for as long as the hub is used. Without it topics are never
/// forgotten, and over a server no heartbeat is sent and no lost connection is asked for again.
#[must_use = "a hub whose driver does not run keeps no time"]
pub struct Driver {
    pub(crate) handle: HubHandle,
}

impl Driver {
    /// Runs until the hub is closed. `sleep` gives a future that ends after a time.
    ///
    /// Dropping the future stops the hub's time and loses nothing else.
    pub async fn run<S, F>(self, sleep: S)
    where
        S: Fn(Duration) -> F,
        F: Future<Output = ()>,
    {
        let alarm = self.handle.alarm();
        while !self.handle.is_closed() {
            let next = self.handle.tick();
            alarm.next.store(next.map_or(u64::MAX, |at| at.0), Ordering::Release);
            let rung = pin!(alarm.rung());
            match next {
                None => rung.await,
                Some(at) => {
                    let wait = at.since(self.handle.now().mono);
                    match select(rung, pin!(sleep(wait))).await {
                        Either::Left(_) | Either::Right(_) => {}
                    }
                }
            }
        }
    }
}
