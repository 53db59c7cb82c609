//! When the tail moved, so that what is missing can be told as a time.

use crate::record::Version;
use crate::time::Instant;
use alloc::collections::VecDeque;

/// Most moments that are remembered.
const MARKS_MAX: usize = 256;

/// The finest time between two of them.
const SPACING_MS: u64 = 100;

/// A moment, and the last version that became durable before the next one.
#[derive(Clone, Copy, Debug)]
struct Mark {
    at: Instant,
    last: Version,
}

/// When the latest versions became durable, coarser the further it reaches back.
#[derive(Debug)]
pub(super) struct Ages {
    marks: VecDeque<Mark>,
    spacing_ms: u64,
}

impl Default for Ages {
    fn default() -> Self {
        Self { marks: VecDeque::new(), spacing_ms: SPACING_MS }
    }
}

impl Ages {
    /// The tail moved to `last`.
    pub(super) fn push(&mut self, now: Instant, last: Version) {
        if let Some(mark) = self.marks.back_mut()
            && mark.at.after_ms(self.spacing_ms) > now
        {
            mark.last = last;
            return;
        }
        if self.marks.len() == MARKS_MAX {
            self.spacing_ms *= 2;
            // Of two neighbours the earlier moment and the later version: an age is never told too low.
            let pairs: VecDeque<Mark> = self
                .marks
                .make_contiguous()
                .chunks(2)
                .map(|pair| Mark { at: pair[0].at, last: pair[pair.len() - 1].last })
                .collect();
            self.marks = pairs;
        }
        self.marks.push_back(Mark { at: now, last });
    }

    /// For how long something above `version` has been durable; as far back as this run remembers.
    /// `None` if nothing that this run saw is above it.
    pub(super) fn age_ms(&self, now: Instant, version: Version) -> Option<u64> {
        let first = self.marks.partition_point(|mark| mark.last <= version);
        let mark = self.marks.get(first)?;
        u64::try_from(now.since(mark.at).as_millis()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v(sequence: u64) -> Version {
        Version::new(1, sequence)
    }

    fn at(ms: u64) -> Instant {
        Instant(0).after_ms(ms)
    }

    #[test]
    fn an_age_is_that_of_the_first_change_that_is_missing() {
        let mut ages = Ages::default();
        assert_eq!(ages.age_ms(at(5), v(0)), None);
        for (ms, sequence) in [(1000, 1), (2000, 2), (3000, 3)] {
            ages.push(at(ms), v(sequence));
        }
        let age = |sequence| ages.age_ms(at(10_000), v(sequence));
        assert_eq!((age(0), age(1), age(2), age(3)), (Some(9000), Some(8000), Some(7000), None));
    }

    #[test]
    fn what_it_remembers_is_bounded_and_never_too_young() {
        let mut ages = Ages::default();
        for n in 1..=10_000 {
            ages.push(at(n * 200), v(n));
        }
        assert!(ages.marks.len() <= MARKS_MAX);
        let now = at(10_000 * 200);
        for n in [0, 1, 77, 5_000, 9_998, 9_999] {
            let true_age = (10_000 - (n + 1)) * 200;
            let told = ages.age_ms(now, v(n)).expect("remembered");
            assert!(told >= true_age && told <= true_age + 2 * ages.spacing_ms, "{n}: {told}, is {true_age}");
        }
    }
}
