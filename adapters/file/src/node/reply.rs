//! Answers that are owed: each is given exactly once, also if the owner of the root is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// An answer owed to a caller. Dropping it gives the answer of a lost owner.
pub(crate) struct Reply<T> {
    call: Option<Box<dyn FnOnce(T) + Send>>,
    lost: fn() -> T,
    permit: Option<Permit>,
}

impl<T> Reply<T> {
    /// Owes `call` an answer; `lost` makes the one it gets if nobody gives it another.
    pub(crate) fn new(call: impl FnOnce(T) + Send + 'static, lost: fn() -> T) -> Self {
        Self { call: Some(Box::new(call)), lost, permit: None }
    }

    /// Keeps `permit` until just before the answer.
    pub(crate) fn holding(mut self, permit: Permit) -> Self {
        self.permit = Some(permit);
        self
    }

    /// Changes what a loss means from here on.
    pub(crate) fn when_lost(&mut self, lost: fn() -> T) {
        self.lost = lost;
    }

    /// Gives the answer.
    pub(crate) fn give(mut self, value: T) {
        self.call_with(value);
    }

    fn call_with(&mut self, value: T) {
        self.permit = None;
        if let Some(call) = self.call.take() {
            call(value);
        }
    }
}

impl<T> Drop for Reply<T> {
    fn drop(&mut self) {
        if self.call.is_some() {
            self.call_with((self.lost)());
        }
    }
}

/// How much callers may have under way at once, over all handles of a node.
#[derive(Clone, Debug)]
pub(crate) struct Waiting {
    used: Arc<AtomicUsize>,
    max: usize,
}

impl Waiting {
    pub(crate) fn new(max: usize) -> Self {
        Self { used: Arc::new(AtomicUsize::new(0)), max }
    }

    /// The limit.
    pub(crate) const fn max(&self) -> usize {
        self.max
    }

    /// Takes `units`, or nothing: `Err` carries how many are taken.
    pub(crate) fn take(&self, units: usize) -> Result<Permit, usize> {
        self.used
            .try_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                used.checked_add(units).filter(|sum| *sum <= self.max)
            })
            .map(|_| Permit { used: Arc::clone(&self.used), units })
    }
}

/// Units of [`Waiting`], given back when dropped.
#[derive(Debug)]
pub(crate) struct Permit {
    used: Arc<AtomicUsize>,
    units: usize,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.used.fetch_sub(self.units, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[test]
    fn a_dropped_reply_says_that_its_owner_is_lost() {
        let (tx, rx) = mpsc::channel();
        let mut reply = Reply::new(move |v: u8| tx.send(v).expect("listening"), || 1);
        reply.when_lost(|| 2);
        drop(reply);
        assert_eq!(rx.try_iter().collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn a_given_reply_is_not_given_again() {
        let (tx, rx) = mpsc::channel();
        Reply::new(move |v: u8| tx.send(v).expect("listening"), || 1).give(7);
        assert_eq!(rx.try_iter().collect::<Vec<_>>(), [7]);
    }

    #[test]
    fn permits_are_bounded_and_come_back_before_the_answer() {
        let waiting = Waiting::new(3);
        let permit = waiting.take(2).expect("room for two");
        assert_eq!(waiting.take(2).expect_err("only one is left"), 2);
        assert!(waiting.take(usize::MAX).is_err());
        let seen = waiting.clone();
        let reply = Reply::new(move |()| drop(seen.take(3).expect("all came back")), || ()).holding(permit);
        reply.give(());
    }
}
