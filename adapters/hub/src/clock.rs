//! The two clocks of a process.

use std::time::{SystemTime, UNIX_EPOCH};
use strandline_core::time::{Instant, Now, WallTime};

/// Reads the clocks; its monotonic one counts from its making.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: std::time::Instant,
}

impl Clock {
    /// A clock that starts now.
    #[must_use]
    pub fn start() -> Self {
        Self { origin: std::time::Instant::now() }
    }

    /// Both clocks.
    #[must_use]
    pub fn now(&self) -> Now {
        let mono = u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
        Now { mono: Instant(mono), wall: WallTime(u64::try_from(wall).unwrap_or(u64::MAX)) }
    }
}
