//! Who waits for the disk: submissions in the order of their LSNs, and submissions that found the
//! write queue full.

use super::api::{SubmitReply, WriteError};
use std::collections::VecDeque;
use strandline_core::error::StorageFault;
use strandline_core::id::Lsn;
use strandline_core::lifecycle::api::{Accepted, Mutation, MutationError};

/// Submissions that have a place in the journal and are not durable.
#[derive(Default)]
pub(crate) struct Waiters {
    queue: VecDeque<Waiter>,
}

struct Waiter {
    last: Lsn,
    accepted: Vec<Accepted>,
    reply: SubmitReply,
}

impl Waiters {
    /// Answers once the last of `accepted` is durable; at once if there is none.
    pub(crate) fn wait(&mut self, accepted: Vec<Accepted>, reply: SubmitReply) {
        match accepted.last().map(|a| a.lsn) {
            Some(last) => self.queue.push_back(Waiter { last, accepted, reply }),
            None => reply.give(Ok(accepted)),
        }
    }

    /// Answers everyone up to and with `upto`.
    pub(crate) fn durable(&mut self, upto: Lsn) {
        while self.queue.front().is_some_and(|w| w.last <= upto) {
            if let Some(waiter) = self.queue.pop_front() {
                waiter.reply.give(Ok(waiter.accepted));
            }
        }
    }

    /// Answers everyone that the outcome is uncertain.
    pub(crate) fn halted(&mut self, fault: &StorageFault) {
        for waiter in self.queue.drain(..) {
            waiter.reply.give(Err(WriteError::Uncertain(fault.clone())));
        }
    }
}

/// Submissions that found the write queue full, first come first served. Bounded by the permits
/// their replies hold.
#[derive(Default)]
pub(crate) struct Parked {
    queue: VecDeque<Submission>,
    full: Option<MutationError>,
}

/// Mutations and who wants to know how they end.
pub(crate) struct Submission {
    pub(crate) mutations: Vec<Mutation>,
    pub(crate) reply: SubmitReply,
}

impl Parked {
    /// Why a newcomer must stand behind those already parked; `None` if nobody is.
    pub(crate) fn blocked(&self) -> Option<&MutationError> {
        if self.queue.is_empty() { None } else { self.full.as_ref() }
    }

    /// Puts a submission at the end, because of `full`.
    pub(crate) fn park(&mut self, submission: Submission, full: MutationError) {
        self.queue.push_back(submission);
        self.full = Some(full);
    }

    /// Puts the first one back where it was.
    pub(crate) fn unpop(&mut self, submission: Submission, full: MutationError) {
        self.queue.push_front(submission);
        self.full = Some(full);
    }

    pub(crate) fn pop(&mut self) -> Option<Submission> {
        self.queue.pop_front()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::api::Unavailable;
    use crate::node::reply::Reply;
    use std::sync::mpsc;
    use strandline_core::error::{StorageAction, StorageCause};
    use strandline_core::record::Version;

    fn accepted(lsns: std::ops::Range<u64>) -> Vec<Accepted> {
        lsns.map(|n| Accepted { lsn: Lsn::new(n).expect("not zero"), version: Version::new(1, n) }).collect()
    }

    fn waiter(
        waiters: &mut Waiters,
        lsns: std::ops::Range<u64>,
    ) -> mpsc::Receiver<Result<Vec<Accepted>, WriteError>> {
        let (tx, rx) = mpsc::channel();
        let reply = Reply::new(move |r| drop(tx.send(r)), || Err(Unavailable::Closed.into()));
        waiters.wait(accepted(lsns), reply);
        rx
    }

    #[test]
    fn a_batch_is_answered_when_its_last_entry_is_durable() {
        let mut waiters = Waiters::default();
        let first = waiter(&mut waiters, 1..4);
        let second = waiter(&mut waiters, 4..5);
        waiters.durable(Lsn::FIRST.plus(1));
        assert!(first.try_recv().is_err(), "entry 3 is not durable");
        waiters.durable(Lsn::FIRST.plus(2));
        assert_eq!(first.try_recv(), Ok(Ok(accepted(1..4))));
        assert!(second.try_recv().is_err(), "entry 4 is not durable");
        waiters.durable(Lsn::FIRST.plus(9));
        assert_eq!(second.try_recv(), Ok(Ok(accepted(4..5))));
    }

    #[test]
    fn an_empty_submission_waits_for_nothing() {
        let mut waiters = Waiters::default();
        assert_eq!(waiter(&mut waiters, 1..1).try_recv(), Ok(Ok(Vec::new())));
    }

    #[test]
    fn a_fault_makes_those_who_wait_uncertain() {
        let mut waiters = Waiters::default();
        let durable = waiter(&mut waiters, 1..2);
        let waiting = waiter(&mut waiters, 2..3);
        waiters.durable(Lsn::FIRST);
        let fault = StorageFault {
            action: StorageAction::Sync,
            file: "segment".into(),
            offset: None,
            cause: StorageCause::Failed,
            detail: "test".into(),
        };
        waiters.halted(&fault);
        assert_eq!(durable.try_recv(), Ok(Ok(accepted(1..2))));
        assert_eq!(waiting.try_recv(), Ok(Err(WriteError::Uncertain(fault))));
    }
}
