//! The rounds of a reader or a consumer: attach to each stream, pass over all of them, wait, and again.

use crate::stream::handle::Handle;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// What comes next.
#[derive(Debug)]
pub(super) enum Round {
    /// Attach to this stream.
    Attach(Handle),
    /// Say that everything is attached.
    Ready,
    /// Wait for news: the pass brought nothing.
    Wait,
    /// Nothing, until something is wanted.
    Rest,
    /// Pass over the streams.
    Pass,
}

/// A part: where the rounds are.
#[derive(Debug)]
pub(super) struct Rounds {
    unattached: VecDeque<Handle>,
    ready: bool,
    /// The host has room for more than it was given.
    wanted: bool,
    /// A pass is under way.
    passing: bool,
    /// The pass brought something.
    brought: bool,
}

impl Rounds {
    pub(super) fn new(streams: Vec<Handle>) -> Self {
        Self { unattached: streams.into(), ready: false, wanted: false, passing: false, brought: false }
    }

    /// Whether everything is attached.
    pub(super) const fn is_ready(&self) -> bool {
        self.ready
    }

    /// The host has room for more.
    pub(super) const fn want(&mut self) {
        self.wanted = true;
    }

    /// Something is handed out: more of it must be wanted anew. An answer that brings nothing leaves what
    /// is wanted as it is.
    pub(super) const fn brought(&mut self) {
        (self.brought, self.wanted) = (true, false);
    }

    /// What comes next. Called only while nothing of the last is outstanding.
    pub(super) fn next(&mut self) -> Round {
        if let Some(handle) = self.unattached.pop_front() {
            return Round::Attach(handle);
        }
        if !self.ready {
            self.ready = true;
            return Round::Ready;
        }
        if self.passing {
            self.passing = false;
            if !self.brought {
                return Round::Wait;
            }
        }
        if !self.wanted {
            return Round::Rest;
        }
        (self.passing, self.brought) = (true, false);
        Round::Pass
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::layout::Layout;
    use crate::stream::name::StreamName;
    use crate::stream::retention::Wanted;

    fn ready() -> Rounds {
        let handle = Handle::new(StreamName::new("s").unwrap(), Wanted::default(), Layout::Tagged).unwrap();
        let mut rounds = Rounds::new(alloc::vec![handle]);
        assert!(matches!(rounds.next(), Round::Attach(_)));
        assert!(!rounds.is_ready());
        assert!(matches!(rounds.next(), Round::Ready));
        assert!(rounds.is_ready());
        rounds
    }

    #[test]
    fn nothing_is_read_before_it_is_wanted() {
        let mut rounds = ready();
        assert!(matches!(rounds.next(), Round::Rest));
        rounds.want();
        assert!(matches!(rounds.next(), Round::Pass));
    }

    #[test]
    fn a_pass_that_brought_nothing_waits_and_goes_on() {
        let mut rounds = ready();
        rounds.want();
        assert!(matches!(rounds.next(), Round::Pass));
        assert!(matches!(rounds.next(), Round::Wait));
        assert!(matches!(rounds.next(), Round::Pass));
    }

    #[test]
    fn a_pass_that_brought_something_rests_until_more_is_wanted() {
        let mut rounds = ready();
        rounds.want();
        assert!(matches!(rounds.next(), Round::Pass));
        rounds.brought();
        assert!(matches!(rounds.next(), Round::Rest));
        rounds.want();
        assert!(matches!(rounds.next(), Round::Pass));
    }

    #[test]
    fn what_is_wanted_during_a_pass_is_not_forgotten() {
        let mut rounds = ready();
        rounds.want();
        assert!(matches!(rounds.next(), Round::Pass));
        rounds.brought();
        rounds.want();
        assert!(matches!(rounds.next(), Round::Pass));
    }
}
