//! Streams of a pass that are left out for a while, because their server gives no answer.
//!
//! The streams of one reader or consumer may lie on several servers. One that is gone must not hold up
//! the others: after a failed read the pass goes on behind it.

use super::name::StreamName;
use alloc::collections::{BTreeMap, BTreeSet};

/// A part: which streams are left out, and how often in a row each has failed.
#[derive(Clone, Debug, Default)]
pub(super) struct Resting {
    asleep: BTreeSet<StreamName>,
    failures: BTreeMap<StreamName, u32>,
}

impl Resting {
    /// Leaves a stream out from now on; how often it has failed in a row.
    pub(super) fn rest(&mut self, stream: &StreamName) -> u32 {
        self.asleep.insert(stream.clone());
        let failures = self.failures.entry(stream.clone()).or_default();
        *failures = failures.saturating_add(1);
        *failures
    }

    /// Lets all be asked again.
    pub(super) fn rouse(&mut self) {
        self.asleep.clear();
    }

    /// A stream has answered.
    pub(super) fn answered(&mut self, stream: &StreamName) {
        self.failures.remove(stream);
    }

    pub(super) fn is_asleep(&self, stream: &StreamName) -> bool {
        self.asleep.contains(stream)
    }

    /// The first place from `at` on whose stream is not left out.
    pub(super) fn next<'a>(&self, at: usize, streams: impl Iterator<Item = &'a StreamName>) -> usize {
        at + streams.skip(at).take_while(|stream| self.is_asleep(stream)).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> StreamName {
        StreamName::new(text).unwrap()
    }

    #[test]
    fn a_stream_that_rests_is_passed_over_until_it_is_roused() {
        let (mut resting, all) = (Resting::default(), ["a", "b", "c"].map(name));
        assert_eq!(resting.rest(&all[0]), 1);
        assert_eq!(resting.rest(&all[1]), 1);
        assert_eq!([0, 1, 2, 3].map(|at| resting.next(at, all.iter())), [2, 2, 2, 3]);
        resting.rouse();
        assert_eq!(resting.next(0, all.iter()), 0);
    }

    #[test]
    fn failures_in_a_row_are_counted_for_each_stream() {
        let mut resting = Resting::default();
        assert_eq!((resting.rest(&name("a")), resting.rest(&name("b"))), (1, 1));
        resting.rouse();
        assert_eq!(resting.rest(&name("a")), 2);
        resting.answered(&name("a"));
        assert_eq!(resting.rest(&name("a")), 1);
    }
}
