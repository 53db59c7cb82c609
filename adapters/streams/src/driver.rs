//! Runs what nobody's own call runs: readers, consumers, repetitions, time.

use crate::backend::executed;
use crate::shared::Shared;
use futures::future::{BoxFuture, Either, FutureExt as _, pending, select};
use futures::stream::{FuturesUnordered, StreamExt as _};
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use strandline_core::stream::client::{ClientCompletion, Command};

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
    /// Dropping the future is safe: what it was asking ends as an unknown outcome.
    pub async fn run<S, F>(self, sleep: S)
    where
        S: Fn(Duration) -> F,
        F: Future<Output = ()>,
    {
        let shared = self.shared;
        let mut running: FuturesUnordered<BoxFuture<'static, ClientCompletion>> = FuturesUnordered::new();
        while !shared.is_closed() {
            let next = shared.tick();
            shared.alarm.sleeps_until(next);
            while let Some(job) = shared.next_job() {
                running.push(execute(&shared, job));
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
            } else if let Either::Left((Some(completion), _)) = select(running.next(), idle).await {
                shared.complete(completion);
            }
        }
    }
}

fn execute(shared: &Arc<Shared>, job: Command) -> BoxFuture<'static, ClientCompletion> {
    match job {
        Command::Execute { ticket, op, noted, .. } => {
            let executed = executed(&*shared.backend, op, noted);
            async move { ticket.complete(Ok(executed.await)) }.boxed()
        }
        Command::Wait { ticket, logs, wait_ms, .. } => {
            let waited = shared.backend.wait(logs, wait_ms);
            async move { ticket.complete(Ok(waited.await)) }.boxed()
        }
    }
}
