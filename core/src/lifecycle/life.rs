//! The life of a peer's data, held against what its name once acknowledged.

use super::api::{Divergence, Event, PairReason, Verified};
use super::judge::Standing;
use super::session::Session;
use super::shared::Shared;
use crate::record::Version;
use crate::verdict::Verdict;
use crate::wire::own::DigestAt;

/// How the life of a peer's data stands to what it once acknowledged.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Life {
    /// It holds what it acknowledged, or is another life that holds at least as much.
    Same,
    /// The same life says that it holds less. It may have said so before it acknowledged, over another
    /// link: it is asked.
    Doubtful,
    /// Another life that lost records which the one before had acknowledged. What is left is ours.
    Less,
    /// The same, and nothing says that what is left is ours.
    LessUnverified,
}

/// The rows of the table.
fn life(same: bool, acked: Version, holds: Version, verified: Verified) -> Life {
    match (holds >= acked, same, verified) {
        (true, true | false, Verified::Digest | Verified::VersionOnly) => Life::Same,
        (false, true, Verified::Digest | Verified::VersionOnly) => Life::Doubtful,
        (false, false, Verified::Digest) => Life::Less,
        (false, false, Verified::VersionOnly) => Life::LessUnverified,
    }
}

impl Session {
    /// Tells if the peer lost what it had acknowledged. `false` if repair must not go on for it.
    pub(super) fn told_life(&mut self, shared: &mut Shared, theirs: &Standing, verified: Verified) -> bool {
        let Some(mark) = shared.acked.get(&self.peer.identity) else { return true };
        let same = mark.incarnation == self.peer.incarnation;
        // What it brought over this link since it said where it stands it holds as well.
        let holds = theirs.tail.max(self.evidence.agreed);
        match life(same, mark.version, holds, verified) {
            Life::Same => {}
            Life::Doubtful => {
                if shared.opaque.chained && self.ask_digest(shared, mark.version) {
                    self.evidence.doubted = Some((holds, mark.version));
                }
            }
            Life::Less => self.tell_lost(shared, holds, mark.version),
            Life::LessUnverified => {
                self.stop(shared, Verdict::Unknown { reason: PairReason::OtherIncarnation });
                return false;
            }
        }
        true
    }

    /// The peer says what it has at a version. If that answers whether it still has what it acknowledged,
    /// a loss is told.
    pub(super) fn undoubted(&mut self, shared: &mut Shared, at: &DigestAt) {
        let Some((holds, acked)) = self.evidence.doubted.take_if(|(_, acked)| *acked == at.version) else {
            return;
        };
        if at.digest.is_none() && acked > self.evidence.peer_floor {
            self.tell_lost(shared, holds, acked);
        }
    }

    /// Told once; how repair stands is another matter, and goes on.
    fn tell_lost(&self, shared: &mut Shared, holds: Version, acked: Version) {
        let verdict = Verdict::Gap { from: holds, to: acked, reason: PairReason::OtherIncarnation };
        let identity = self.peer.identity.clone();
        shared.out.event(Event::Verdict { link: self.link, identity, verdict });
    }

    /// A peer that is ahead of its log's writer, and is another life than the one we knew, brought
    /// these records from its other life.
    pub(super) fn of_another_life(&self, shared: &Shared, found: Divergence) -> Divergence {
        let mark = shared.acked.get(&self.peer.identity);
        let other = mark.is_some_and(|mark| mark.incarnation != self.peer.incarnation);
        if other && found.reason == PairReason::AheadOfTail {
            return Divergence { reason: PairReason::OtherIncarnation, ..found };
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v(sequence: u64) -> Version {
        Version::new(1, sequence)
    }

    #[test]
    fn life_holds_what_it_acknowledged() {
        for same in [true, false] {
            for verified in [Verified::Digest, Verified::VersionOnly] {
                assert_eq!(life(same, v(5), v(5), verified), Life::Same);
                assert_eq!(life(same, v(5), v(9), verified), Life::Same);
            }
        }
    }

    #[test]
    fn life_lost_what_it_acknowledged() {
        assert_eq!(life(false, v(5), v(4), Verified::Digest), Life::Less);
    }

    #[test]
    fn life_says_less_than_it_acknowledged() {
        for verified in [Verified::Digest, Verified::VersionOnly] {
            assert_eq!(life(true, v(5), v(4), verified), Life::Doubtful);
        }
    }

    #[test]
    fn life_lost_and_cannot_be_compared() {
        assert_eq!(life(false, v(5), v(4), Verified::VersionOnly), Life::LessUnverified);
    }
}
