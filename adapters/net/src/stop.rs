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
    given_up: Shared<oneshot::Receiver<Infallible>>,
    _running: mpsc::Sender<Infallible>,
}

/// Stops the tasks that hold its [`Stop`]. Dropping it, or the future of [`Stopper::stop`] before its
/// end, gives up on all that still run.
pub(crate) struct Stopper {
    signal: oneshot::Sender<Infallible>,
    /// Dropped last: links that say their last words are not given up.
    patience: oneshot::Sender<Infallible>,
    running: mpsc::Receiver<Infallible>,
}

/// A stopper and the first of the stops it speaks to.
pub(crate) fn stopper() -> (Stopper, Stop) {
    let (signal, told) = oneshot::channel();
    let (patience, given_up) = oneshot::channel();
    let (running_tx, running) = mpsc::channel(0);
    let stop = Stop { signal: told.shared(), given_up: given_up.shared(), _running: running_tx };
    (Stopper { signal, patience, running }, stop)
}

impl Stop {
    /// What `work` gives, or `None` if the stop comes first; then it is dropped.
    pub(crate) async fn or<F: Future>(&self, work: F) -> Option<F::Output> {
        before(&self.signal, work).await
    }

    /// What `work` gives, which a stop lets come to its own end; `None` if it is given up before.
    pub(crate) async fn or_given_up<F: Future>(&self, work: F) -> Option<F::Output> {
        before(&self.given_up, work).await
    }
}

/// What `work` gives, or `None` if the signal comes first.
async fn before<F: Future>(signal: &Shared<oneshot::Receiver<Infallible>>, work: F) -> Option<F::Output> {
    match select(signal.clone(), pin!(work)).await {
        Either::Left(_) => None,
        Either::Right((output, _)) => Some(output),
    }
}

impl Stopper {
    /// Tells all tasks to stop. The future ends when the last of them has; dropped before, it gives
    /// up on those that are left.
    pub(crate) fn stop(self) -> impl Future<Output = ()> + Send {
        let Self { signal, patience, mut running } = self;
        drop(signal);
        async move {
            let ended = running.next().await;
            debug_assert!(ended.is_none(), "nothing can be sent");
            drop(patience);
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

    #[test]
    fn what_may_end_by_itself_is_given_up_with_the_stopper_or_its_stop() {
        let (dropped, stop) = stopper();
        assert_eq!(block_on(stop.or_given_up(async { 1 })), Some(1));
        drop(dropped);
        assert_eq!(block_on(stop.or_given_up(pending::<()>())), None);

        let (stopped, stop) = stopper();
        let stopping = stopped.stop();
        assert_eq!(block_on(stop.or(pending::<()>())), None);
        assert!(stop.or_given_up(pending::<()>()).now_or_never().is_none(), "it has time");
        drop(stopping);
        assert_eq!(block_on(stop.or_given_up(pending::<()>())), None);
    }
}
