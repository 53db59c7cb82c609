//! The tiers behind the buffer: events of a shared history, joined to what is held without a seam.

use super::api::{History, Message};
use super::decide::{Coverage, Reason};
use super::position::{Mark, Position};
use alloc::vec::Vec;

/// The lowest position from which the buffer goes on by itself.
pub(super) fn seam(coverage: &Coverage) -> Position {
    coverage.known_from.before().max(coverage.evicted_through)
}

/// Takes from `history` what lies between a client at `after` and the buffer. Refused, with the history's
/// reason if it has one, unless everything up to the seam is there: a part of what is missing is no
/// answer.
pub(super) fn splice(
    after: Mark,
    history: History,
    coverage: &Coverage,
) -> Result<Vec<Message>, Option<Reason>> {
    if after.incarnation != coverage.incarnation {
        return Err(None);
    }
    let seam = seam(coverage);
    match history {
        History::Refused(reason) => Err(Some(reason)),
        History::Run(events) => run(after, events, seam).ok_or(None),
        History::Through { events, through } if through >= seam => all(after, events, seam).ok_or(None),
        History::Through { .. } => Err(None),
    }
}

/// Every single position up to the seam.
fn run(after: Mark, events: Vec<Message>, seam: Position) -> Option<Vec<Message>> {
    let mut at = after.position;
    let mut out = Vec::new();
    for message in events {
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

/// What was given as everything: in order, of one space.
fn all(after: Mark, mut events: Vec<Message>, seam: Position) -> Option<Vec<Message>> {
    let mut at = after;
    for message in &events {
        if message.mark.incarnation != at.incarnation || message.mark.position <= at.position {
            return None;
        }
        at = message.mark;
    }
    events.retain(|message| message.mark.position <= seam);
    Some(events)
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
        splice(mark(after), History::Run(messages(positions)), &coverage()).ok().map(|m| m.len())
    }

    fn taken_of_a_log(after: u64, positions: &[u64], through: u64) -> Result<usize, Option<Reason>> {
        let (events, through) = (messages(positions), Position::sequence(through));
        splice(mark(after), History::Through { events, through }, &coverage()).map(|m| m.len())
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
        assert_eq!(splice(other, History::Run(messages(&[3, 4, 5])), &coverage()), Err(None));
    }

    #[test]
    fn a_log_vouches_across_holes_up_to_where_it_says() {
        assert_eq!(taken_of_a_log(1, &[3, 5, 8], 9), Ok(2), "what lies above the seam is in the buffer");
        assert_eq!(taken_of_a_log(1, &[], 5), Ok(0));
        assert_eq!(taken_of_a_log(1, &[3], 4), Err(None), "ends early");
    }

    #[test]
    fn a_log_in_disorder_is_not_believed() {
        assert_eq!(taken_of_a_log(1, &[4, 3], 9), Err(None));
        assert_eq!(taken_of_a_log(3, &[3, 4], 9), Err(None), "the client has it");
    }

    #[test]
    fn a_refusal_says_why() {
        let refused = splice(mark(1), History::Refused(Reason::BelowFloor), &coverage());
        assert_eq!(refused, Err(Some(Reason::BelowFloor)));
    }
}
