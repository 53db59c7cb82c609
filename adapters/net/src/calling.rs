//! Whom a task is calling, so that other rules begin no second one.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The peers that are being called.
#[derive(Clone, Debug, Default)]
pub(crate) struct Callings(Arc<Mutex<BTreeSet<String>>>);

impl Callings {
    /// Begins to call a peer; `None` if a task does so already.
    pub(crate) fn begin(&self, identity: &str) -> Option<Calling> {
        let began = self.lock().insert(identity.to_owned());
        began.then(|| Calling { all: self.clone(), identity: Some(identity.to_owned()) })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One peer that is being called, until this is dropped.
#[derive(Debug)]
pub(crate) struct Calling {
    all: Callings,
    /// Absent once it has ended, when another task may call the peer already.
    identity: Option<String>,
}

impl Calling {
    /// Goes on if it must, else ends the calling. What is asked is asked with the list locked: whoever
    /// changes the rules and then begins to call either finds this one ended, or is seen.
    pub(crate) fn go_on_if(mut self, must_go_on: impl FnOnce() -> bool) -> Option<Self> {
        let all = self.all.clone();
        let mut called = all.lock();
        if must_go_on() {
            return Some(self);
        }
        if let Some(identity) = self.identity.take() {
            called.remove(&identity);
        }
        None
    }
}

impl Drop for Calling {
    fn drop(&mut self) {
        if let Some(identity) = self.identity.take() {
            self.all.lock().remove(&identity);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_called_twice_at_once() {
        let callings = Callings::default();
        let calling = callings.begin("b").expect("the first");
        assert!(callings.begin("b").is_none());
        assert!(callings.begin("c").is_some());
        let calling = calling.go_on_if(|| true).expect("it must");
        assert!(callings.begin("b").is_none());
        drop(calling);
        let calling = callings.begin("b").expect("the first has ended");
        assert!(calling.go_on_if(|| false).is_none());
        let _next = callings.begin("b").expect("the second has ended");
        assert!(callings.begin("b").is_none());
    }
}
