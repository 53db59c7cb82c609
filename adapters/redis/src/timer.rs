//! Pauses and bounds in time, on the runtime that a call is made in.

use futures::future::{Either, select};
use std::pin::pin;
use std::time::{Duration, Instant};

#[cfg(not(any(feature = "tokio", feature = "smol")))]
compile_error!("expected a feature that names the runtime: `tokio`, or `smol` for smol and async-std");

/// Waits.
#[cfg(all(feature = "tokio", not(feature = "smol")))]
pub(crate) async fn sleep(time: Duration) {
    tokio::time::sleep(time).await;
}

/// Waits.
#[cfg(all(feature = "smol", not(feature = "tokio")))]
pub(crate) async fn sleep(time: Duration) {
    async_io::Timer::after(time).await;
}

/// Waits: on tokio where the call is made in it.
#[cfg(all(feature = "tokio", feature = "smol"))]
pub(crate) async fn sleep(time: Duration) {
    if tokio::runtime::Handle::try_current().is_ok() {
        tokio::time::sleep(time).await;
    } else {
        async_io::Timer::after(time).await;
    }
}

/// Runs `work` until it ends or the instant comes. Work that is not done then is dropped.
pub(crate) async fn until<T>(at: Instant, work: impl Future<Output = T>) -> Option<T> {
    let work = pin!(work);
    let bound = pin!(sleep(at.saturating_duration_since(Instant::now())));
    match select(work, bound).await {
        Either::Left((done, _)) => Some(done),
        Either::Right(((), _)) => None,
    }
}
