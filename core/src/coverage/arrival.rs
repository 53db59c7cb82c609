//! What a message means for the coverage of its topic: one table.

use super::config::Sequencing;
use super::decide::Coverage;
use super::position::Mark;

/// What is held at the position of a message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Held {
    /// Nothing.
    Nothing,
    /// The same publication.
    Same,
    /// Another one.
    Other,
}

/// The meaning of one message.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Arrival {
    /// Coverage begins with it.
    First,
    /// It is the next one.
    Next,
    /// This many before it were published and never came.
    Hole { missed: u64 },
    /// It came before.
    Repeat,
    /// Another event stands at its position: the shared state went back.
    Conflict,
    /// It lies behind what came and is not held: a straggler, or the shared state went back.
    Late,
    /// It lies behind what came, where only order was promised.
    OutOfOrder,
    /// It belongs to another ID space.
    NewSpace,
}

pub(super) fn classify(
    coverage: Option<&Coverage>,
    sequencing: Sequencing,
    mark: Mark,
    held: Held,
) -> Arrival {
    let Some(coverage) = coverage else { return Arrival::First };
    if mark.incarnation != coverage.incarnation {
        return Arrival::NewSpace;
    }
    let ahead = mark.position > coverage.head;
    let missed = mark.position.get().saturating_sub(coverage.head.get()).saturating_sub(1);
    match (ahead, sequencing, held) {
        (true, Sequencing::Sparse, _) => Arrival::Next,
        (true, Sequencing::Contiguous, _) if missed == 0 => Arrival::Next,
        (true, Sequencing::Contiguous, _) => {
            Arrival::Hole { missed: u64::try_from(missed).unwrap_or(u64::MAX) }
        }
        (false, _, Held::Same) => Arrival::Repeat,
        (false, _, Held::Other) => Arrival::Conflict,
        (false, Sequencing::Contiguous, Held::Nothing) => Arrival::Late,
        (false, Sequencing::Sparse, Held::Nothing) => Arrival::OutOfOrder,
    }
}

#[cfg(test)]
mod tests {
    use super::super::position::Position;
    use super::*;
    use crate::id::Incarnation;
    use Sequencing::{Contiguous, Sparse};

    const OURS: Incarnation = Incarnation { counter: 1, nonce: [0; 8] };

    fn meaning(sequencing: Sequencing, position: u64, held: Held) -> Arrival {
        let at = Position::sequence;
        let coverage = Coverage { incarnation: OURS, known_from: at(5), head: at(9), evicted_through: at(0) };
        classify(Some(&coverage), sequencing, Mark { incarnation: OURS, position: at(position) }, held)
    }

    #[test]
    fn first() {
        let mark = Mark { incarnation: OURS, position: Position::sequence(3) };
        assert_eq!(classify(None, Contiguous, mark, Held::Nothing), Arrival::First);
    }

    #[test]
    fn next_in_order() {
        assert_eq!(meaning(Contiguous, 10, Held::Nothing), Arrival::Next);
        assert_eq!(meaning(Sparse, 12, Held::Nothing), Arrival::Next, "sparse positions leave no holes");
    }

    #[test]
    fn hole() {
        assert_eq!(meaning(Contiguous, 12, Held::Nothing), Arrival::Hole { missed: 2 });
    }

    #[test]
    fn repeat_of_what_is_held() {
        assert_eq!(meaning(Contiguous, 9, Held::Same), Arrival::Repeat);
        assert_eq!(meaning(Sparse, 9, Held::Same), Arrival::Repeat);
    }

    #[test]
    fn conflict() {
        assert_eq!(meaning(Contiguous, 9, Held::Other), Arrival::Conflict);
        assert_eq!(meaning(Sparse, 9, Held::Other), Arrival::Conflict);
    }

    #[test]
    fn late() {
        assert_eq!(meaning(Contiguous, 3, Held::Nothing), Arrival::Late);
    }

    #[test]
    fn out_of_order() {
        assert_eq!(meaning(Sparse, 8, Held::Nothing), Arrival::OutOfOrder);
    }

    #[test]
    fn new_space() {
        let coverage = Coverage {
            incarnation: OURS,
            known_from: Position::sequence(1),
            head: Position::sequence(9),
            evicted_through: Position::ZERO,
        };
        for counter in [0, 1, 2] {
            let incarnation = Incarnation { counter, nonce: [7; 8] };
            let mark = Mark { incarnation, position: Position::sequence(10) };
            assert_eq!(classify(Some(&coverage), Contiguous, mark, Held::Nothing), Arrival::NewSpace);
        }
    }
}
