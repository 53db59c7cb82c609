//! The one table that decides whether a cursor can be vouched for.

use super::position::{Mark, Position};
use crate::id::Incarnation;
use crate::verdict::Verdict;
use core::convert::Infallible;

/// Why a resume is refused. A closed set: it becomes a metric label.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Reason {
    /// The cursor cannot be read, or its tag is another topic's, tenant's or key's.
    Unreadable,
    /// Nothing of this topic is vouched for here yet.
    NoCoverage,
    /// The cursor comes from another ID space.
    OtherIncarnation,
    /// The cursor is above everything that was given out.
    AheadOfHead,
    /// What lies right after the cursor came before the coverage began.
    StartsAfterCursor,
    /// What lies right after the cursor has been pushed out of the buffer.
    Evicted,
    /// An event was published and never came here.
    Missed,
    /// The shared state gave out more than came here within `settle_ms`.
    Behind,
    /// The server cannot be asked.
    Unreachable,
    /// The server's state of this topic cannot be read.
    StateUnreadable,
    /// The connection to the server was lost, replaced or fell silent.
    Disconnected,
    /// A message came that cannot be decoded.
    Undecodable,
    /// The shared state went back behind what was seen of it.
    Rewound,
    /// Events of one ID space came in another order than their positions.
    OutOfOrder,
    /// What lies right after the cursor was compacted out of the log.
    BelowFloor,
    /// The log never gave out the position of the cursor.
    ForeignPosition,
    /// The log was replaced by a snapshot: what lies between is not held.
    Reset,
    /// The hub is closed.
    Closed,
}

impl Reason {
    /// Every reason, in the order of the type.
    pub const ALL: [Self; 18] = [
        Self::Unreadable,
        Self::NoCoverage,
        Self::OtherIncarnation,
        Self::AheadOfHead,
        Self::StartsAfterCursor,
        Self::Evicted,
        Self::Missed,
        Self::Behind,
        Self::Unreachable,
        Self::StateUnreadable,
        Self::Disconnected,
        Self::Undecodable,
        Self::Rewound,
        Self::OutOfOrder,
        Self::BelowFloor,
        Self::ForeignPosition,
        Self::Reset,
        Self::Closed,
    ];

    /// The metric label, and what the wire carries.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Unreadable => "unreadable_cursor",
            Self::NoCoverage => "no_coverage",
            Self::OtherIncarnation => "other_incarnation",
            Self::AheadOfHead => "ahead_of_head",
            Self::StartsAfterCursor => "starts_after_cursor",
            Self::Evicted => "evicted",
            Self::Missed => "missed",
            Self::Behind => "behind",
            Self::Unreachable => "unreachable",
            Self::StateUnreadable => "state_unreadable",
            Self::Disconnected => "disconnected",
            Self::Undecodable => "undecodable",
            Self::Rewound => "rewound",
            Self::OutOfOrder => "out_of_order",
            Self::BelowFloor => "below_floor",
            Self::ForeignPosition => "foreign_position",
            Self::Reset => "reset",
            Self::Closed => "closed",
        }
    }
}

/// What a client says about where it stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Claim {
    /// A cursor of ours.
    Cursor(Mark),
    /// A bare integer of an older system: it names no ID space, so nothing can catch a foreign one.
    Legacy(Position),
    /// Something that is no cursor.
    Unreadable,
}

/// What is vouched for of one topic: everything of `incarnation` from `known_from` up to `head` came
/// here, and what lies above `evicted_through` is still held.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Coverage {
    /// The ID space.
    pub incarnation: Incarnation,
    /// The first position from which nothing was missed. Never lowered, never raised by eviction.
    pub known_from: Position,
    /// The last position received, or known to have been given out when coverage began.
    pub head: Position,
    /// The highest position pushed out of the buffer; zero if none was.
    pub evicted_through: Position,
}

/// The answer to one cursor.
pub type CoverageVerdict = Verdict<Position, (), Reason, Infallible>;

/// Judges a claim against what is vouched for.
///
/// ```
/// use strandline_core::coverage::{Claim, Coverage, Mark, Position, decide};
/// use strandline_core::id::Incarnation;
/// let incarnation = Incarnation { counter: 1, nonce: [7; 8] };
/// let at = Position::sequence;
/// let held = Coverage { incarnation, known_from: at(5), head: at(9), evicted_through: at(0) };
/// let cursor = |position| Some(Claim::Cursor(Mark { incarnation, position: at(position) }));
/// assert!(decide(Some(&held), cursor(4).unwrap()).is_complete());
/// assert!(!decide(Some(&held), cursor(3).unwrap()).is_complete());
/// ```
pub fn decide(coverage: Option<&Coverage>, claim: Claim) -> CoverageVerdict {
    let unknown = |reason| Verdict::Unknown { reason };
    let Some(held) = coverage else {
        return unknown(match claim {
            Claim::Unreadable => Reason::Unreadable,
            Claim::Cursor(_) | Claim::Legacy(_) => Reason::NoCoverage,
        });
    };
    let cursor = match claim {
        Claim::Unreadable => return unknown(Reason::Unreadable),
        Claim::Cursor(mark) if mark.incarnation != held.incarnation => {
            return unknown(Reason::OtherIncarnation);
        }
        Claim::Cursor(Mark { position, .. }) | Claim::Legacy(position) => position,
    };
    let gap = |to, reason| Verdict::Gap { from: cursor, to, reason };
    match Place::of(held, cursor) {
        Place::AboveHead => unknown(Reason::AheadOfHead),
        Place::BelowKnown => gap(held.known_from.before(), Reason::StartsAfterCursor),
        Place::BelowEvicted => gap(held.evicted_through, Reason::Evicted),
        Place::Held => Verdict::Complete { through: held.head, verified: () },
    }
}

/// Where a cursor of the right ID space lies.
enum Place {
    AboveHead,
    BelowKnown,
    BelowEvicted,
    Held,
}

impl Place {
    /// A cursor adjacent to the first known position leaves no room for a missed event, and one equal
    /// to the highest evicted position misses none of the evicted ones.
    fn of(held: &Coverage, cursor: Position) -> Self {
        if cursor > held.head {
            Self::AboveHead
        } else if cursor < held.known_from.before() {
            Self::BelowKnown
        } else if cursor < held.evicted_through {
            Self::BelowEvicted
        } else {
            Self::Held
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: Incarnation = Incarnation { counter: 3, nonce: [1; 8] };

    fn at(value: u64) -> Position {
        Position::sequence(value)
    }

    fn held(known_from: u64, head: u64, evicted_through: u64) -> Coverage {
        Coverage {
            incarnation: OURS,
            known_from: at(known_from),
            head: at(head),
            evicted_through: at(evicted_through),
        }
    }

    fn cursor(position: u64) -> Claim {
        Claim::Cursor(Mark { incarnation: OURS, position: at(position) })
    }

    fn unknown(reason: Reason) -> CoverageVerdict {
        Verdict::Unknown { reason }
    }

    #[test]
    fn unreadable_cursor() {
        assert_eq!(decide(Some(&held(1, 9, 0)), Claim::Unreadable), unknown(Reason::Unreadable));
        assert_eq!(decide(None, Claim::Unreadable), unknown(Reason::Unreadable));
    }

    #[test]
    fn no_coverage() {
        assert_eq!(decide(None, cursor(1)), unknown(Reason::NoCoverage));
        assert_eq!(decide(None, Claim::Legacy(at(1))), unknown(Reason::NoCoverage));
    }

    #[test]
    fn another_incarnation_is_refused_the_adjacent_one_included() {
        for counter in [2, 3, 4] {
            let incarnation = Incarnation { counter, nonce: [9; 8] };
            let claim = Claim::Cursor(Mark { incarnation, position: at(9) });
            assert_eq!(decide(Some(&held(1, 9, 0)), claim), unknown(Reason::OtherIncarnation));
        }
    }

    #[test]
    fn above_the_head() {
        assert_eq!(decide(Some(&held(1, 9, 0)), cursor(10)), unknown(Reason::AheadOfHead));
    }

    #[test]
    fn below_the_first_known() {
        let gap = Verdict::Gap { from: at(3), to: at(4), reason: Reason::StartsAfterCursor };
        assert_eq!(decide(Some(&held(5, 9, 0)), cursor(3)), gap);
    }

    #[test]
    fn below_the_highest_evicted() {
        let gap = Verdict::Gap { from: at(1), to: at(2), reason: Reason::Evicted };
        assert_eq!(decide(Some(&held(1, 5, 2)), cursor(1)), gap);
    }

    #[test]
    fn complete_up_to_the_head() {
        let complete = Verdict::Complete { through: at(9), verified: () };
        for position in [4, 5, 9] {
            assert_eq!(decide(Some(&held(5, 9, 0)), cursor(position)), complete);
        }
        assert_eq!(decide(Some(&held(5, 9, 7)), cursor(7)), complete, "only what was evicted is behind it");
        assert_eq!(
            decide(Some(&held(1, 0, 0)), cursor(0)),
            Verdict::Complete { through: at(0), verified: () }
        );
    }

    #[test]
    fn a_legacy_cursor_is_judged_by_its_number_alone() {
        let complete = Verdict::Complete { through: at(9), verified: () };
        assert_eq!(decide(Some(&held(5, 9, 0)), Claim::Legacy(at(4))), complete);
        assert_eq!(decide(Some(&held(5, 9, 0)), Claim::Legacy(at(10))), unknown(Reason::AheadOfHead));
    }

    #[test]
    fn labels_differ() {
        let mut labels = Reason::ALL.map(Reason::label).to_vec();
        labels.sort_unstable();
        labels.dedup();
        assert_eq!(labels.len(), Reason::ALL.len());
    }
}
