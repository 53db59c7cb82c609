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
    /// Tells the hub until when the driver sleeps: until `told`, or a deadline that came since that was read.
    /// One that comes from now on rings; what came before was compared with the sleep before this one.
    fn sleeps_until(&self, told: Option<Instant>) -> Option<Instant> {
        let store = |at: Option<Instant>| {
            let next = at.map_or(u64::MAX, |at| at.0);
            self.handle.alarm().next.store(next, Ordering::Release);
            next
        };
        let known = store(told);
        let since = self.handle.deadline();
        if since.is_some_and(|at| at.0 < known) {
            store(since);
            return since;
        }
        told
    }

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
            self.handle.tick();
            let next = self.sleeps_until(self.handle.deadline());
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::handle::{HandleOptions, NoBackend};
    use futures::FutureExt as _;
    use strandline_core::coverage::{HubConfig, Publish, TopicName};
    use strandline_core::id::Run;

    /// Until when the driver slept before says nothing of its next sleep.
    #[test]
    fn a_deadline_that_comes_when_the_driver_has_looked_is_not_slept_past() {
        let (hub, driver) =
            HubHandle::new(HubConfig::minted(), HandleOptions::default(), NoBackend, Run(1), [7; 32]);
        hub.alarm().next.store(0, Ordering::Release);
        hub.tick();
        let told = hub.deadline();
        assert_eq!(told, None);
        // A topic of our own is forgotten some day.
        let topic = TopicName::parse("orders").expect("a name");
        let _ = hub.publish(&topic, Publish::new(b"x")).now_or_never().expect("done at once");
        assert!(hub.alarm().rung().now_or_never().is_none(), "compared with the sleep before");
        let next = driver.sleeps_until(told);
        assert!(next.is_some() && next == hub.deadline());
        assert_eq!(hub.alarm().next.load(Ordering::Acquire), next.map_or(0, |at| at.0));
    }
}
