//! Telling tasks to stop, and waiting until they have.

use futures::channel::{mpsc, oneshot};
use futures::future::{Either, FutureExt, Shared, select};
use futures::stream::StreamExt;
use std::convert::Infallible;
use std::future::Future;
use std::pin::pin;

type Signal = Shared<oneshot::Receiver<Infallible>>;

/// Held by every task: learns of the stop, and is waited for until it is dropped.
///
/// There are two signals. The stop ends what takes up new work; links go on, to say their last words.
/// The cut ends those too.
#[derive(Clone)]
pub(crate) struct Stop {
    stop: Signal,
    cut: Signal,
    _running: mpsc::Sender<Infallible>,
}

/// Stops the tasks that hold its [`Stop`]. Dropping it stops and cuts.
pub(crate) struct Stopper {
    stop: oneshot::Sender<Infallible>,
    stopping: Stopping,
}

/// Tasks that were told to stop. Dropping it cuts those that still run.
pub(crate) struct Stopping {
    cut: Option<oneshot::Sender<Infallible>>,
    running: mpsc::Receiver<Infallible>,
}

/// A stopper and the first of the stops it speaks to.
pub(crate) fn stopper() -> (Stopper, Stop) {
    let (stop_tx, stop) = oneshot::channel();
    let (cut_tx, cut) = oneshot::channel();
    let (running_tx, running) = mpsc::channel(0);
    let stopper = Stopper { stop: stop_tx, stopping: Stopping { cut: Some(cut_tx), running } };
    (stopper, Stop { stop: stop.shared(), cut: cut.shared(), _running: running_tx })
}

impl Stop {
    /// What `work` gives, or `None` if the stop comes first; then it is dropped.
    pub(crate) async fn or<F: Future>(&self, work: F) -> Option<F::Output> {
        first(&self.stop, work).await
    }

    /// What `work` gives, or `None` if the cut comes first; then it is dropped.
    pub(crate) async fn or_cut<F: Future>(&self, work: F) -> Option<F::Output> {
        first(&self.cut, work).await
    }
}

async fn first<F: Future>(signal: &Signal, work: F) -> Option<F::Output> {
    match select(signal.clone(), pin!(work)).await {
        Either::Left(_) => None,
        Either::Right((output, _)) => Some(output),
    }
}

impl Stopper {
    /// Tells all tasks to stop.
    pub(crate) fn stop(self) -> Stopping {
        let Self { stop, stopping } = self;
        drop(stop);
        stopping
    }

    /// Ends when the last task has, of itself.
    #[cfg(test)]
    pub(crate) async fn ended(mut self) {
        self.stopping.ended().await;
    }
}

impl Stopping {
    /// Ends when the last task has. Losing the future loses nothing.
    pub(crate) async fn ended(&mut self) {
        let ended = self.running.next().await;
        debug_assert!(ended.is_none(), "nothing can be sent");
    }

    /// Ends what is left.
    pub(crate) fn cut(&mut self) {
        self.cut = None;
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
        let mut stopping = stopper.stop();
        assert_eq!(block_on(stop.or(pending::<()>())), None);
        assert!(stopping.ended().now_or_never().is_none(), "a task still runs");
        drop(stop);
        block_on(stopping.ended());
    }

    #[test]
    fn a_stop_leaves_links_and_a_cut_ends_them() {
        let (stopper, stop) = stopper();
        let mut stopping = stopper.stop();
        assert_eq!(stop.or_cut(pending::<()>()).now_or_never(), None, "it goes on");
        stopping.cut();
        assert_eq!(block_on(stop.or_cut(pending::<()>())), None);
    }

    #[test]
    fn a_stopper_that_is_dropped_cuts() {
        let (stopper, stop) = stopper();
        drop(stopper);
        assert_eq!(block_on(stop.or_cut(pending::<()>())), None);
        assert_eq!(block_on(stop.or(pending::<()>())), None);
    }
}
