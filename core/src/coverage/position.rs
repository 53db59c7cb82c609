//! Places in an ID space.

use crate::id::Incarnation;
use core::fmt;

/// A place in one ID space: a sequence number, or a log's version in 128 bits. Zero stands before the
/// first event.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub struct Position(u128);

impl Position {
    /// Before the first event.
    pub const ZERO: Self = Self(0);

    /// The place of a sequence number.
    #[must_use]
    pub const fn sequence(value: u64) -> Self {
        Self(value as u128)
    }

    /// The place of a log's version: its epoch decides before its sequence.
    #[must_use]
    pub const fn version(epoch: u64, sequence: u64) -> Self {
        Self((epoch as u128) << 64 | sequence as u128)
    }

    /// The number itself.
    #[must_use]
    pub const fn get(self) -> u128 {
        self.0
    }

    /// The sequence number; `None` for a place that only a version reaches.
    #[must_use]
    pub fn as_sequence(self) -> Option<u64> {
        u64::try_from(self.0).ok()
    }

    /// The next place; the last one stays.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The place before; zero stays.
    #[must_use]
    pub const fn before(self) -> Self {
        Self(self.0.saturating_sub(1))
    }

    pub(super) const fn from_bits(bits: u128) -> Self {
        Self(bits)
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A position with the ID space it belongs to. What a cursor says.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Mark {
    /// The ID space.
    pub incarnation: Incarnation,
    /// The place in it.
    pub position: Position,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_epoch_decides_before_a_sequence() {
        assert!(Position::version(2, 0) > Position::version(1, u64::MAX));
        assert_eq!(Position::version(0, 7), Position::sequence(7));
        assert_eq!(Position::version(1, 0).as_sequence(), None);
        assert_eq!((Position::ZERO.before(), Position::ZERO.next()), (Position::ZERO, Position::sequence(1)));
    }
}
