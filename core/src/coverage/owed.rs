//! What publishes of ours were answered, and has not come over the subscription yet.
//!
//! On a busy topic answers are ahead of messages at every moment. What came in time counts, so the clock is
//! that of one position, and starts anew for the newest one when that came.

use super::position::Position;

/// The positions owed by the subscription.
#[derive(Clone, Copy, Debug)]
pub(super) struct Owed {
    /// The one whose clock runs, and the highest.
    due: Option<(Position, Position)>,
}

/// What happens to the clock of what is owed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Clock {
    /// It stays as it is.
    Stays,
    /// It starts anew.
    Starts,
    /// It stops: nothing is owed.
    Stops,
}

impl Owed {
    pub(super) const fn new() -> Self {
        Self { due: None }
    }

    /// An answer gave out `position`, which has not come.
    pub(super) fn add(&mut self, position: Position) -> Clock {
        match &mut self.due {
            Some((_, newest)) => {
                *newest = position.max(*newest);
                Clock::Stays
            }
            None => {
                self.due = Some((position, position));
                Clock::Starts
            }
        }
    }

    /// Everything up to `head` came.
    pub(super) fn came(&mut self, head: Position) -> Clock {
        match self.due {
            None => Clock::Stays,
            Some((first, _)) if head < first => Clock::Stays,
            Some((_, newest)) if head < newest => {
                self.due = Some((newest, newest));
                Clock::Starts
            }
            Some(_) => {
                self.due = None;
                Clock::Stops
            }
        }
    }

    /// The clock ran out: up to here it did not come in time.
    pub(super) fn take(&mut self) -> Option<Position> {
        self.due.take().map(|(_, newest)| newest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(value: u64) -> Position {
        Position::sequence(value)
    }

    #[test]
    fn the_clock_runs_for_the_first_and_then_for_the_newest() {
        let mut owed = Owed::new();
        assert_eq!(owed.came(at(1)), Clock::Stays, "nothing is owed");
        assert_eq!(owed.add(at(2)), Clock::Starts);
        assert_eq!(owed.add(at(4)), Clock::Stays);
        assert_eq!(owed.add(at(3)), Clock::Stays, "answers come in any order");
        assert_eq!(owed.came(at(1)), Clock::Stays);
        assert_eq!(owed.came(at(2)), Clock::Starts);
        assert_eq!(owed.came(at(3)), Clock::Stays, "the clock is that of 4 now");
        assert_eq!(owed.came(at(4)), Clock::Stops);
        assert_eq!(owed.take(), None);
    }

    #[test]
    fn what_did_not_come_is_all_up_to_the_newest() {
        let mut owed = Owed::new();
        assert_eq!((owed.add(at(2)), owed.add(at(5))), (Clock::Starts, Clock::Stays));
        assert_eq!((owed.take(), owed.take()), (Some(at(5)), None));
    }
}
