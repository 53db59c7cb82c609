//! Telling tasks to stop, and waiting until they have.

use futures::channel::{mpsc, oneshot};
use futures::future::{Either, FutureExt, Shared, select};
use futures::stream::StreamExt;
use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;

/// Held by every task: learns of the stop, and is waited for until it is dropped.
#[derive(Clone)]
pub(crate) struct Stop {
    signal: Shared<oneshot::Receiver<Infallible>>,
    _running: mpsc::Sender<Infallible>,
}

/// Stops the tasks that hold its [`Stop`].
pub(crate) struct Stopper {
    signal: oneshot::Sender<Infallible>,
    running: mpsc::Receiver<Infallible>,
}

/// A stopper and the first of the stops it speaks to.
pub(crate) fn stopper() -> (Stopper, Stop) {
    let (signal, told) = oneshot::channel();
    let (running_tx, running) = mpsc::channel(0);
    (Stopper { signal, running }, Stop { signal: told.shared(), _running: running_tx })
}

impl Stop {
    /// What `work` gives, or `None` if the stop comes first; then it is dropped.
    pub(crate) async fn or<F: Future>(&self, work: F) -> Option<F::Output> {
        match select(self.signal.clone(), pin!(work)).await {
            Either::Left(_) => None,
            Either::Right((output, _)) => Some(output),
        }
    }
}

impl Stopper {
    /// Tells all tasks to stop. The future ends when the last of them has.
    pub(crate) fn stop(self) -> impl Future<Output = ()> + Send {
        let Self { signal, mut running } = self;
        drop(signal);
        async move {
            let ended = running.next().await;
            debug_assert!(ended.is_none(), "nothing can be sent");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::executor::block_on;
    use futures::future::pending;

    #[test]
    fn a_stop_ends_work_and_is_waited_for() {
        let (stopper, stop) = stopper();
        assert_eq!(block_on(stop.or(async { 1 })), Some(1));
        let mut ended = pin!(stopper.stop());
        assert_eq!(block_on(stop.or(pending::<()>())), None);
        assert!(ended.as_mut().now_or_never().is_none(), "a task still runs");
        drop(stop);
        block_on(ended);
    }
}
