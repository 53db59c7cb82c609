//! Runs what nobody's own call runs: readers, consumers, repetitions, time.

use crate::backend::executed;
use crate::shared::{Asking, Closes, Shared};
use futures::future::{BoxFuture, FutureExt as _, pending, select};
use futures::stream::{FuturesUnordered, StreamExt as _};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use strandline_core::stream::client::Command;

/// The part of [`crate::Streams`] that must run for as long as it is used, as a task of any runtime.
/// Without it readers and consumers stand still and no call is asked again; a call's first asking is
/// done by its caller.
#[must_use = "streams whose driver does not run keep no time"]
pub struct Driver {
    pub(crate) shared: Arc<Shared>,
}

impl Driver {
    /// Runs until the last [`crate::Streams`], handle, reader and consumer is dropped, or
    /// [`crate::Streams::close`]. `sleep` gives a future that ends after a time.
    ///
    /// Dropping the future, begun or not, closes the streams as [`crate::Streams::close`] does: a call that
    /// it was asking ends as unknown, and nobody waits for ever.
    pub fn run<S, F>(self, sleep: S) -> impl Future<Output = ()> + use<S, F>
    where
        S: Fn(Duration) -> F,
        F: Future<Output = ()>,
    {
        let closes = Closes(self.shared);
        async move {
            let shared = &closes.0;
            let mut running: FuturesUnordered<BoxFuture<'static, ()>> = FuturesUnordered::new();
            while !shared.is_closed() {
                let next = shared.tick();
                while let Some(job) = shared.next_job() {
                    running.push(execute(shared, job));
                }
                let rung = pin!(shared.alarm.rung());
                let slept = pin!(async {
                    match next {
                        Some(at) => sleep(at.since(shared.now().mono)).await,
                        None => pending().await,
                    }
                });
                let idle = pin!(select(rung, slept).map(|_| ()));
                if running.is_empty() {
                    idle.await;
                } else {
                    select(running.next(), idle).await;
                }
            }
        }
    }
}

fn execute(shared: &Arc<Shared>, job: Command) -> BoxFuture<'static, ()> {
    match job {
        Command::Execute { ticket, op, noted, .. } => {
            let (asking, executed) = (Asking::new(shared, ticket), executed(&*shared.backend, op, noted));
            async move { asking.complete(executed.await) }.boxed()
        }
        Command::Wait { ticket, logs, wait_ms, .. } => {
            let (shared, waited) = (shared.clone(), shared.backend.wait(logs, wait_ms));
            async move { shared.complete(ticket.complete(Ok(waited.await))) }.boxed()
        }
    }
}

#[cfg(test)]
mod tests;
