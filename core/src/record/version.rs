//! The total order of mutations.

use core::fmt;

/// Token given to a mutation by its authority: ordered by epoch, then by sequence.
/// (0,0) is "nothing yet".
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Version {
    /// Term of the authority.
    pub epoch: u64,
    /// Number within the term.
    pub sequence: u64,
}

impl Version {
    /// "Nothing yet": below every version a record can have.
    pub const ZERO: Self = Self { epoch: 0, sequence: 0 };

    /// A version from its two parts.
    #[must_use]
    pub const fn new(epoch: u64, sequence: u64) -> Self {
        Self { epoch, sequence }
    }

    /// Whether this is "nothing yet".
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.epoch == 0 && self.sequence == 0
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch, self.sequence)
    }
}
