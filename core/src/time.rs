//! Time as the core sees it: two numbers the host hands in. The core reads no clock.

use core::fmt;
use core::time::Duration;

/// Monotonic nanoseconds since an origin the host picks once per run.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Instant(pub u64);

impl Instant {
    /// This instant moved later by `ms`; saturates at the end of time.
    #[must_use]
    pub const fn after_ms(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms.saturating_mul(1_000_000)))
    }

    /// How long ago `earlier` was; zero if it lies ahead.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// Wall clock in milliseconds since 1970. A label for people; never decides an order.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct WallTime(pub u64);

impl fmt::Display for WallTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}ms", self.0)
    }
}

/// Both clocks, read once by the host per turn and passed to every `handle_*`.
///
/// A `mono` lower than one seen before is safe: machines keep the highest they saw.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Now {
    /// The monotonic clock.
    pub mono: Instant,
    /// The wall clock.
    pub wall: WallTime,
}

impl Now {
    /// The later of the two by the monotonic clock: time never runs backwards inside the core.
    #[must_use]
    pub const fn latest(self, other: Self) -> Self {
        if other.mono.0 > self.mono.0 { other } else { self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_saturate() {
        assert_eq!(Instant(5).since(Instant(9)), Duration::ZERO);
        assert_eq!(Instant(u64::MAX).after_ms(1), Instant(u64::MAX));
    }

    #[test]
    fn backwards_time_is_ignored() {
        let late = Now { mono: Instant(7), wall: WallTime(1) };
        let early = Now { mono: Instant(6), wall: WallTime(99) };
        assert_eq!(late.latest(early), late);
    }
}
