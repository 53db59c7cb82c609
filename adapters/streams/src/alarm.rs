//! Wakes the driver when there is work, or when a deadline came nearer.

use futures::task::AtomicWaker;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use strandline_core::time::Instant;

/// The bell of a driver. One waits; anybody rings.
///
/// Until when the driver sleeps is told and compared only under the lock of the machine whose deadlines
/// these are: otherwise one that comes between could be missed by both.
pub(crate) struct Alarm {
    waker: AtomicWaker,
    next: AtomicU64,
    rung: AtomicBool,
}

impl Default for Alarm {
    fn default() -> Self {
        Self { waker: AtomicWaker::new(), next: AtomicU64::new(u64::MAX), rung: AtomicBool::new(false) }
    }
}

impl Alarm {
    /// The driver sleeps until then.
    pub(crate) fn sleeps_until(&self, at: Option<Instant>) {
        self.next.store(at.map_or(u64::MAX, |at| at.0), Ordering::Release);
    }

    /// Whether a driver that sleeps would sleep past this deadline of the machine.
    pub(crate) fn sleeps_past(&self, at: Option<Instant>) -> bool {
        at.is_some_and(|at| at.0 < self.next.load(Ordering::Acquire))
    }

    pub(crate) fn ring(&self) {
        self.rung.store(true, Ordering::Release);
        self.waker.wake();
    }

    pub(crate) async fn rung(&self) {
        poll_fn(|cx: &mut Context<'_>| {
            self.waker.register(cx.waker());
            if self.rung.swap(false, Ordering::AcqRel) { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}
