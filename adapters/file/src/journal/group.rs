//! Callers that wait for the same batch: one word to wait on, so that one call wakes them all.

use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

const WAIT: u32 = 0;
const LEAD: u32 = 1;
const DONE: u32 = 2;

/// What a caller was woken for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Woken {
    /// To execute the batch for all.
    Lead,
    /// The batch was answered.
    Done,
}

/// Callers of one batch. Joining and leaving happen under the lock of the journal's state.
#[derive(Debug, Default)]
pub(super) struct Group {
    word: AtomicU32,
    waiting: AtomicU32,
}

impl Group {
    pub(super) fn join(&self) {
        self.waiting.fetch_add(1, Relaxed);
    }

    pub(super) fn leave(&self) {
        self.waiting.fetch_sub(1, Relaxed);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.load(Relaxed) == 0
    }

    /// Waits for [`Group::hand_over`] or [`Group::done`].
    pub(super) fn wait(&self) -> Woken {
        loop {
            match self.word.load(Acquire) {
                DONE => return Woken::Done,
                LEAD if self.word.compare_exchange(LEAD, WAIT, AcqRel, Acquire).is_ok() => {
                    return Woken::Lead;
                }
                found => atomic_wait::wait(&self.word, found),
            }
        }
    }

    /// Lets one of those waiting lead.
    pub(super) fn hand_over(&self) {
        self.word.store(LEAD, Release);
        atomic_wait::wake_one(&raw const self.word);
    }

    /// The batch was answered: wakes everybody, now and later.
    pub(super) fn done(&self) {
        self.word.store(DONE, Release);
        if !self.is_empty() {
            atomic_wait::wake_all(&raw const self.word);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    #[test]
    fn one_leads_and_all_are_woken() {
        let (group, barrier) = (Group::default(), Barrier::new(5));
        let leads = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    group.join();
                    barrier.wait();
                    if group.wait() == Woken::Lead {
                        leads.fetch_add(1, Relaxed);
                        group.done();
                    }
                });
            }
            barrier.wait();
            assert!(!group.is_empty());
            group.hand_over();
        });
        assert_eq!((leads.load(Relaxed), group.wait()), (1, Woken::Done));
    }
}
