//! How long a dialer waits before it tries again.

use crate::config::NetConfig;
use std::time::Duration;
use strandline_core::seed::Seed;

/// How an attempt to hold a link with a peer ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum AttemptEnd {
    /// No connection, or none that got through the handshake.
    Unreachable,
    /// The peer, or we, refused who the other is.
    Rejected,
    /// Another link with the peer exists and stays.
    Duplicate,
    /// One side broke the protocol.
    Fault,
    /// The link was lost after it had stood for a while.
    LostSettled,
    /// The link was lost soon after it came up.
    LostEarly,
}

/// What an end means for the next delay.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Pace {
    /// The first delay, and the ones after it grow anew.
    StartOver,
    /// Twice the last delay.
    Grow,
    /// The longest delay: trying sooner changes nothing.
    Slow,
}

impl AttemptEnd {
    const fn pace(self) -> Pace {
        match self {
            Self::LostSettled => Pace::StartOver,
            Self::Unreachable | Self::LostEarly => Pace::Grow,
            Self::Rejected | Self::Duplicate | Self::Fault => Pace::Slow,
        }
    }
}

/// The delays of a dialer for one peer: how an attempt ended decides which comes next.
#[derive(Clone, Debug)]
pub(crate) struct Backoff(strandline_core::backoff::Backoff);

impl Backoff {
    /// Delays for one peer: another label gives other random numbers.
    pub(crate) fn new(config: &NetConfig, seed: Seed, label: String) -> Self {
        Self(strandline_core::backoff::Backoff::new(config.retry_ms, config.retry_ms_max, seed, label))
    }

    /// The delay after an attempt that ended so.
    pub(crate) fn after(&mut self, end: AttemptEnd) -> Duration {
        Duration::from_millis(match end.pace() {
            Pace::StartOver => self.0.first_ms(),
            Pace::Grow => self.0.grown_ms(),
            Pace::Slow => self.0.longest_ms(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backoff(label: &str) -> Backoff {
        let config = NetConfig { retry_ms: 100, retry_ms_max: 1_000, ..NetConfig::default() };
        Backoff::new(&config, Seed::new([3; 32]), label.into())
    }

    fn assert_between(delay: Duration, whole_ms: u64) {
        let ms = u64::try_from(delay.as_millis()).expect("a short delay");
        assert!((whole_ms / 2..=whole_ms).contains(&ms), "{ms} ms for {whole_ms} ms");
    }

    #[test]
    fn unreachable_and_lost_early_double_up_to_the_bound() {
        let mut b = backoff("p");
        for whole_ms in [100, 200, 400, 800, 1_000, 1_000] {
            assert_between(b.after(AttemptEnd::Unreachable), whole_ms);
        }
        let mut b = backoff("p");
        for whole_ms in [100, 200] {
            assert_between(b.after(AttemptEnd::LostEarly), whole_ms);
        }
    }

    #[test]
    fn lost_settled_starts_over() {
        let mut b = backoff("p");
        for _ in 0..5 {
            b.after(AttemptEnd::Unreachable);
        }
        assert_between(b.after(AttemptEnd::LostSettled), 100);
        assert_between(b.after(AttemptEnd::Unreachable), 200);
    }

    #[test]
    fn rejected_duplicate_and_fault_wait_longest() {
        for end in [AttemptEnd::Rejected, AttemptEnd::Duplicate, AttemptEnd::Fault] {
            assert_between(backoff("p").after(end), 1_000);
        }
    }

    #[test]
    fn peers_do_not_come_back_in_step() {
        let delays = |label| {
            let mut b = backoff(label);
            [0; 8].map(|_| b.after(AttemptEnd::Unreachable))
        };
        assert_ne!(delays("a"), delays("b"));
        assert_eq!(delays("a"), delays("a"), "the same seed gives the same delays");
    }
}
