//! Threads that take what they are sent, finish it, and are joined.

use crossbeam_channel::{Receiver, Sender, unbounded};
use std::fmt;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread::{Builder, JoinHandle, current, panicking};

/// Work for a thread that owns an `S`.
pub(crate) type Job<S> = Box<dyn FnOnce(&mut S) + Send>;

/// Threads over one queue of messages. Dropping it lets them finish what was sent, and joins them.
pub(crate) struct Threads<M> {
    sender: Option<Sender<M>>,
    handles: Vec<JoinHandle<()>>,
}

impl<M: Send + 'static> Threads<M> {
    /// Starts one thread per body. A body returns when the queue is closed and empty.
    ///
    /// # Panics
    /// If the system gives us no thread.
    pub(crate) fn start<B>(
        name: &str,
        (sender, receiver): (Sender<M>, Receiver<M>),
        bodies: impl IntoIterator<Item = B>,
    ) -> Self
    where
        B: FnOnce(Receiver<M>) + Send + 'static,
    {
        let handles = bodies.into_iter().map(|body| {
            let receiver = receiver.clone();
            let thread = Builder::new().name(name.to_owned());
            thread.spawn(move || body(receiver)).expect("the system gives us a thread")
        });
        Self { handles: handles.collect(), sender: Some(sender) }
    }

    /// Queues a message; waits only if the queue is bounded and full.
    ///
    /// # Panics
    /// If every thread has panicked.
    pub(crate) fn send(&self, message: M) {
        let sender = self.sender.as_ref().expect("open until dropped");
        assert!(sender.send(message).is_ok(), "a thread of the file adapter panicked");
    }
}

impl<S: Send + 'static> Threads<Job<S>> {
    /// Starts one thread per state; each runs jobs on its own.
    pub(crate) fn jobs(name: &str, states: impl IntoIterator<Item = S>) -> Self {
        Self::start(
            name,
            unbounded(),
            states
                .into_iter()
                .map(|mut state| move |jobs: Receiver<Job<S>>| jobs.iter().for_each(|job| job(&mut state))),
        )
    }

    /// Queues work whose answer goes to `complete`; never waits.
    pub(crate) fn run<C: 'static>(
        &self,
        complete: &Complete<C>,
        work: impl FnOnce(&mut S) -> C + Send + 'static,
    ) {
        let complete = complete.clone();
        self.send(Box::new(move |state| complete.call(work(state))));
    }
}

/// Where answers go.
pub(crate) struct Complete<C>(Arc<dyn Fn(C) + Send + Sync>);

impl<C> Complete<C> {
    pub(crate) fn new(call: impl Fn(C) + Send + Sync + 'static) -> Self {
        Self(Arc::new(call))
    }

    pub(crate) fn call(&self, answer: C) {
        (self.0)(answer);
    }
}

impl<C> Clone for Complete<C> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<C> fmt::Debug for Complete<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Complete")
    }
}

impl<M> fmt::Debug for Threads<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Threads").field("handles", &self.handles).finish_non_exhaustive()
    }
}

impl<M> Drop for Threads<M> {
    fn drop(&mut self) {
        self.sender = None;
        for handle in self.handles.drain(..) {
            // The last owner may be one of the threads: it cannot wait for itself.
            if handle.thread().id() == current().id() {
                continue;
            }
            if let Err(panic) = handle.join()
                && !panicking()
            {
                resume_unwind(panic);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_is_finished_in_order_before_the_drop_returns() {
        let (done, results) = unbounded();
        let threads = Threads::jobs("test", [0_u32]);
        for _ in 0..100 {
            let done = done.clone();
            threads.send(Box::new(move |count: &mut u32| {
                *count += 1;
                done.send(*count).unwrap();
            }));
        }
        drop(threads);
        assert!(results.try_iter().eq(1..=100));
    }

    #[test]
    fn the_last_owner_may_be_one_of_the_threads() {
        let (done, results) = unbounded();
        let threads = Arc::new(Threads::jobs("test", [()]));
        let owner = Arc::clone(&threads);
        let (release, released) = unbounded::<()>();
        threads.send(Box::new(move |()| {
            assert!(released.recv().is_err(), "nothing is sent");
            drop(owner);
            done.send(()).unwrap();
        }));
        drop(threads);
        drop(release);
        assert_eq!(results.recv(), Ok(()));
    }
}
