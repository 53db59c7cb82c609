//! Threads that take what they are sent, finish it, and are joined.

use crate::owed::Owed;
use crossbeam_channel::{Receiver, Sender, unbounded};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread::{Builder, JoinHandle, current, panicking};
use strandline_core::error::StorageFault;
use strandline_core::ticket::Operation;

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

impl<M: Send + 'static> Threads<M> {
    /// Starts one thread per body, like [`Threads::start`], for messages that hold what they owe as
    /// [`Owed`]. A body that panics ends its thread and nothing else: what it had, and what no
    /// other thread takes over, is answered with a fault.
    pub(crate) fn owing<B>(name: &str, bodies: impl IntoIterator<Item = B>) -> Self
    where
        B: FnOnce(Receiver<M>) + Send + 'static,
    {
        let bodies = bodies.into_iter().map(|body| {
            move |messages: Receiver<M>| {
                // The panic was reported as it happened. What the thread's state is now nobody
                // knows, so it ends with the thread.
                let _ = catch_unwind(AssertUnwindSafe(|| body(messages)));
            }
        });
        Self::start(name, unbounded(), bodies)
    }

    /// Queues a message that answers itself with a fault if every thread has panicked.
    pub(crate) fn hand(&self, message: M) {
        drop(self.sender.as_ref().expect("open until dropped").send(message));
    }
}

impl<S: Send + 'static> Threads<Job<S>> {
    /// Starts one thread per state; each runs jobs on its own.
    pub(crate) fn jobs(name: &str, states: impl IntoIterator<Item = S>) -> Self {
        let body = |mut state| move |jobs: Receiver<Job<S>>| jobs.iter().for_each(|job| job(&mut state));
        Self::owing(name, states.into_iter().map(body))
    }

    /// Queues work and what is owed for it; never waits.
    pub(crate) fn run<Op: Operation + 'static>(
        &self,
        owed: Owed<Op>,
        work: impl FnOnce(&mut S) -> Result<Op::Output, StorageFault> + Send + 'static,
    ) {
        self.hand(Box::new(move |state| owed.give(work(state))));
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
    use strandline_core::error::{StorageAction, StorageCause};
    use strandline_core::id::Run;
    use strandline_core::journal::command::{StorageOutcome, op};
    use strandline_core::ticket::Tickets;

    #[test]
    fn what_was_sent_is_finished_in_order_before_the_drop_returns() {
        let (done, results) = unbounded();
        let threads = Threads::jobs("test", [0_u32]);
        for _ in 0..100 {
            let done = done.clone();
            threads.hand(Box::new(move |count: &mut u32| {
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
        threads.hand(Box::new(move |()| {
            assert!(released.recv().is_err(), "nothing is sent");
            drop(owner);
            done.send(()).unwrap();
        }));
        drop(threads);
        drop(release);
        assert_eq!(results.recv(), Ok(()));
    }
    #[test]
    fn a_job_that_panics_is_answered_with_a_fault_and_so_is_what_is_behind_it() {
        let (tx, answers) = unbounded();
        let complete = Complete::new(move |answer| tx.send(answer).unwrap());
        let mut tickets = Tickets::new(Run(1));
        let threads = Threads::jobs("test", [()]);
        let (release, released) = unbounded::<()>();
        let append = |ticket| Owed::<op::Append>::new(&complete, ticket, StorageAction::Write, "segment");
        threads.run(append(tickets.mint("panics")), move |()| {
            assert!(released.recv().is_err(), "nothing is sent");
            panic!("on purpose");
        });
        threads.run(append(tickets.mint("waits")), |()| Ok(()));
        drop(release);
        for expected in ["panics", "waits"] {
            let (purpose, outcome) = tickets.settle(answers.recv().unwrap()).unwrap();
            let StorageOutcome::Append(Err(fault)) = outcome else { panic!("{outcome:?}") };
            assert_eq!((purpose, fault.cause), (expected, StorageCause::Failed));
            assert!(fault.detail.contains("panicked"), "{fault}");
        }
        threads.run(append(tickets.mint("late")), |()| Ok(()));
        let (purpose, outcome) = tickets.settle(answers.recv().unwrap()).unwrap();
        assert!(matches!((purpose, outcome), ("late", StorageOutcome::Append(Err(_)))));
        drop(threads);
    }
}
