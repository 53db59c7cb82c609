//! What a repair batch is to its receiver: the delivery table.

use crate::record::Version;

/// What a batch is to a receiver whose log ends at `expected`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use]
pub enum Delivery {
    /// It ends at or below the receiver's tail: acknowledge with that tail, look at nothing.
    Duplicate,
    /// It does not start at the receiver's tail: what lies between is missing, apply nothing.
    Gap,
    /// It starts where the receiver's log ends: apply all of it, make it durable, acknowledge `to`.
    Ready,
}

/// The delivery table. `expected` is the receiver's durable tail, `from` and `to` are the batch's.
///
/// ```
/// use strandline_core::lifecycle::delivery::{Delivery, delivery};
/// use strandline_core::record::Version;
///
/// let v = |sequence| Version::new(1, sequence);
/// assert_eq!(delivery(v(4), v(2), v(4)), Delivery::Duplicate);
/// assert_eq!(delivery(v(1), v(2), v(4)), Delivery::Gap);
/// assert_eq!(delivery(v(2), v(2), v(4)), Delivery::Ready);
/// ```
pub fn delivery(expected: Version, from: Version, to: Version) -> Delivery {
    let (ends_within, starts_at_tail) = (to <= expected, from == expected);
    match (ends_within, starts_at_tail) {
        (true, true | false) => Delivery::Duplicate,
        (false, false) => Delivery::Gap,
        (false, true) => Delivery::Ready,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn v(epoch: u64, sequence: u64) -> Version {
        Version::new(epoch, sequence)
    }

    #[test]
    fn duplicate_ends_at_or_below_the_tail() {
        for expected in [v(1, 4), v(1, 5), v(2, 0)] {
            assert_eq!(delivery(expected, v(1, 2), v(1, 4)), Delivery::Duplicate);
        }
        assert_eq!(delivery(v(1, 2), v(1, 2), v(1, 2)), Delivery::Duplicate, "empty, at the tail");
    }

    #[test]
    fn gap_starts_below_or_above_the_tail() {
        assert_eq!(delivery(v(1, 1), v(1, 2), v(1, 4)), Delivery::Gap);
        assert_eq!(delivery(v(1, 3), v(1, 2), v(1, 4)), Delivery::Gap);
        assert_eq!(delivery(v(0, 9), v(1, 2), v(1, 2)), Delivery::Gap, "empty, above the tail");
    }

    #[test]
    fn ready_starts_at_the_tail() {
        assert_eq!(delivery(Version::ZERO, Version::ZERO, v(1, 4)), Delivery::Ready);
        assert_eq!(delivery(v(1, 2), v(1, 2), v(1, 4)), Delivery::Ready);
    }
}
