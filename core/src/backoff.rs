//! How long to wait before trying again: delays that double up to a bound, each shortened at random.

use crate::seed::Seed;
use alloc::string::String;

/// Delays in milliseconds. Each is shortened by up to a half at random, so that many who lost the same
/// partner do not all come back at once. The random part comes from the host's seed.
///
/// ```
/// use strandline_core::{backoff::Backoff, seed::Seed};
/// let mut backoff = Backoff::new(100, 1_000, Seed::new([7; 32]), "node-2");
/// assert!((50..=100).contains(&backoff.grown_ms()));
/// assert!((100..=200).contains(&backoff.grown_ms()));
/// assert!((50..=100).contains(&backoff.first_ms()));
/// ```
#[derive(Clone, Debug)]
pub struct Backoff {
    seed: Seed,
    label: String,
    attempts: u64,
    next_ms: u64,
    first_ms: u64,
    max_ms: u64,
}

impl Backoff {
    /// Delays between `first_ms` and `max_ms`; each bound is raised to what makes sense (1, and the
    /// first). Another label gives other random numbers.
    #[must_use]
    pub fn new(first_ms: u64, max_ms: u64, seed: Seed, label: impl Into<String>) -> Self {
        let first_ms = first_ms.max(1);
        let max_ms = max_ms.max(first_ms);
        Self { seed, label: label.into(), attempts: 0, next_ms: first_ms, first_ms, max_ms }
    }

    /// The first delay; those after it grow anew.
    pub fn first_ms(&mut self) -> u64 {
        self.shortened(self.first_ms)
    }

    /// Twice the last delay, up to the bound.
    pub fn grown_ms(&mut self) -> u64 {
        self.shortened(self.next_ms)
    }

    /// The longest delay: trying sooner changes nothing.
    pub fn longest_ms(&mut self) -> u64 {
        self.shortened(self.max_ms)
    }

    /// The next delay is the first again.
    pub const fn start_over(&mut self) {
        self.next_ms = self.first_ms;
    }

    fn shortened(&mut self, whole_ms: u64) -> u64 {
        self.next_ms = whole_ms.saturating_mul(2).min(self.max_ms);
        self.attempts += 1;
        whole_ms - self.seed.number(&self.label, self.attempts) % (whole_ms / 2 + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backoff(label: &str) -> Backoff {
        Backoff::new(100, 1_000, Seed::new([3; 32]), label)
    }

    #[test]
    fn delays_double_up_to_the_bound_and_start_over() {
        let mut b = backoff("p");
        for whole_ms in [100, 200, 400, 800, 1_000, 1_000] {
            assert!((whole_ms / 2..=whole_ms).contains(&b.grown_ms()));
        }
        b.start_over();
        assert!((50..=100).contains(&b.grown_ms()));
        assert!((500..=1_000).contains(&b.longest_ms()));
        assert!((50..=100).contains(&b.first_ms()));
        assert!((100..=200).contains(&b.grown_ms()));
    }

    #[test]
    fn bounds_that_make_no_sense_are_raised() {
        let mut b = Backoff::new(0, 0, Seed::new([3; 32]), "p");
        assert_eq!(b.grown_ms(), 1);
        assert_eq!(b.grown_ms(), 1);
    }

    #[test]
    fn another_label_gives_other_delays_and_the_same_seed_the_same() {
        let delays = |label| {
            let mut b = backoff(label);
            [0; 8].map(|_| b.grown_ms())
        };
        assert_ne!(delays("a"), delays("b"));
        assert_eq!(delays("a"), delays("a"));
    }
}
