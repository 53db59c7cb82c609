//! What a position of a log is worth: whether everything after it can still be had.

use super::event::EventId;
use crate::verdict::Verdict;
use core::convert::Infallible;

/// Why not everything after a position can be had.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PositionReason {
    /// Entries after it were trimmed or removed.
    NotRetained,
    /// It is beyond the last position given out: it belongs to another log.
    Ahead,
}

/// What a log says of itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct LogEdges {
    /// The oldest entry that is kept.
    pub first: Option<EventId>,
    /// The last position given out.
    pub last: EventId,
    /// How many entries were ever published.
    pub added: u64,
    /// How many are kept.
    pub kept: u64,
}

/// Judges a position. An entry that somebody removed from between others leaves no trace: only what is
/// missing at the old end is seen.
pub fn judge(after: EventId, log: &LogEdges) -> Verdict<EventId, (), PositionReason, Infallible> {
    if after > log.last {
        return Verdict::Unknown { reason: PositionReason::Ahead };
    }
    let whole = log.added == log.kept || after == log.last;
    if whole || log.first.is_some_and(|first| after >= first) {
        return Verdict::Complete { through: log.last, verified: () };
    }
    let to = log.first.unwrap_or(log.last);
    Verdict::Gap { from: after, to, reason: PositionReason::NotRetained }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn id(ms: u64) -> EventId {
        EventId { ms, seq: 0 }
    }

    const LOG: LogEdges = LogEdges { first: Some(id(5)), last: id(9), added: 7, kept: 3 };

    #[test]
    fn ahead_of_the_last_position_is_unknown() {
        assert_eq!(judge(id(10), &LOG), Verdict::Unknown { reason: PositionReason::Ahead });
    }

    #[test]
    fn at_or_behind_the_oldest_entry_is_complete() {
        for after in [id(5), id(7), id(9)] {
            assert_eq!(judge(after, &LOG), Verdict::Complete { through: id(9), verified: () });
        }
    }

    #[test]
    fn before_the_oldest_entry_is_a_gap_where_something_went() {
        let gap = |from, to| Verdict::Gap { from, to, reason: PositionReason::NotRetained };
        assert_eq!(judge(id(4), &LOG), gap(id(4), id(5)));
        let empty = LogEdges { first: None, kept: 0, ..LOG };
        assert_eq!(judge(id(4), &empty), gap(id(4), id(9)));
        assert!(judge(id(9), &empty).is_complete());
    }

    #[test]
    fn before_the_oldest_entry_is_complete_where_nothing_went() {
        assert!(judge(EventId::ZERO, &LogEdges { added: 3, ..LOG }).is_complete());
    }
}
