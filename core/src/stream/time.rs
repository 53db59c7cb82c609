//! The server's clock, the only one that decides in protocol B.

use super::limits::TIME_MS_MAX;

/// What the server's clock said when it began a step: microseconds since 1970.
///
/// Every check, expiry and event ID of one step uses this one reading.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct ServerTime {
    us: u64,
}

impl ServerTime {
    /// A reading in microseconds; more than a script can count exactly is cut to that bound.
    #[must_use]
    pub const fn from_us(us: u64) -> Self {
        Self { us: if us > TIME_MS_MAX { TIME_MS_MAX } else { us } }
    }

    /// A reading in whole milliseconds.
    #[must_use]
    pub const fn from_ms(ms: u64) -> Self {
        Self::from_us(ms.saturating_mul(1000))
    }

    /// Microseconds since 1970.
    #[must_use]
    pub const fn us(self) -> u64 {
        self.us
    }

    /// Whole milliseconds since 1970, the rest cut off.
    #[must_use]
    pub const fn ms(self) -> u64 {
        self.us / 1000
    }

    /// A key with this expiry is dead: its instant lies before now.
    #[must_use]
    pub const fn is_past(self, expires_at_ms: u64) -> bool {
        self.ms() > expires_at_ms
    }

    /// A deadline has elapsed: now has reached it.
    #[must_use]
    pub const fn has_reached(self, deadline_ms: u64) -> bool {
        self.ms() >= deadline_ms
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_elapses_one_millisecond_before_a_key_with_that_instant_dies() {
        let at = ServerTime::from_ms(5);
        assert!(at.has_reached(5) && !at.is_past(5));
        assert!(ServerTime::from_ms(6).is_past(5));
        assert!(!ServerTime::from_us(4_999).has_reached(5));
    }
}
