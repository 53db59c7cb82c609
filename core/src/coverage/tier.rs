//! The tiers behind the buffer: events of a shared history, joined to what is held without a seam.

use super::api::Message;
use super::decide::Coverage;
use super::position::{Mark, Position};
use alloc::vec::Vec;

/// The lowest position from which the buffer goes on by itself.
pub(super) fn seam(coverage: &Coverage) -> Position {
    coverage.known_from.before().max(coverage.evicted_through)
}

/// Takes from `history` what lies between a client at `after` and the buffer. `None` unless every
/// single position up to the seam is there: a part of what is missing is no answer.
pub(super) fn splice(after: Mark, history: Vec<Message>, coverage: &Coverage) -> Option<Vec<Message>> {
    if after.incarnation != coverage.incarnation {
        return None;
    }
    let seam = seam(coverage);
    let mut at = after.position;
    let mut out = Vec::new();
    for message in history {
        if at >= seam {
            break;
        }
        let next = Mark { position: at.next(), ..after };
        if message.mark != next {
            return None;
        }
        at = next.position;
        out.push(message);
    }
    (at >= seam).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Incarnation;
    use crate::time::WallTime;

    const OURS: Incarnation = Incarnation { counter: 1, nonce: [0; 8] };

    fn mark(position: u64) -> Mark {
        Mark { incarnation: OURS, position: Position::sequence(position) }
    }

    fn messages(positions: &[u64]) -> Vec<Message> {
        let message = |position: &u64| Message {
            mark: mark(*position),
            at: WallTime(0),
            kind: "".into(),
            payload: [].into(),
        };
        positions.iter().map(message).collect()
    }

    fn coverage() -> Coverage {
        Coverage {
            incarnation: OURS,
            known_from: Position::sequence(3),
            head: Position::sequence(9),
            evicted_through: Position::sequence(5),
        }
    }

    fn taken(after: u64, positions: &[u64]) -> Option<usize> {
        splice(mark(after), messages(positions), &coverage()).map(|m| m.len())
    }

    #[test]
    fn what_reaches_the_seam_without_a_hole_is_taken() {
        assert_eq!(taken(2, &[3, 4, 5, 6, 7]), Some(3));
        assert_eq!(taken(5, &[]), Some(0));
    }

    #[test]
    fn a_part_is_no_answer() {
        assert_eq!(taken(2, &[3, 4]), None, "ends early");
        assert_eq!(taken(2, &[4, 5]), None, "begins late");
        assert_eq!(taken(2, &[3, 5, 6]), None, "has a hole");
        assert_eq!(taken(2, &[]), None, "holds nothing");
    }

    #[test]
    fn another_space_is_not_joined() {
        let other = Mark { incarnation: Incarnation { counter: 2, ..OURS }, ..mark(2) };
        assert_eq!(splice(other, messages(&[3, 4, 5]), &coverage()), None);
    }
}
