//! The verdict over a pair of replicas, from what both say of their histories, as one table.

use super::api::{Divergence, PairReason, PairVerdict, Verified};
use crate::id::hex;
use crate::record::Version;
use crate::verdict::Verdict;
use alloc::string::String;
use alloc::string::ToString;

/// Where a history stands: what a position message says, and what we say of ourselves.
///
/// Digests are absent where the chain has no anchor shared by every replica of the log (after a
/// snapshot from a peer that carries none).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Standing {
    /// What compaction kept.
    pub(super) floor: Version,
    /// Digest of the history up to the floor.
    pub(super) floor_digest: Option<[u8; 32]>,
    /// The durable tail.
    pub(super) tail: Version,
    /// Digest of the history up to the tail.
    pub(super) tail_digest: Option<[u8; 32]>,
}

/// What our log knows about one version of the peer's.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Known {
    /// Not in our log, though between our floor and our tail.
    Foreign,
    /// In our log, or its floor; the digest of our history there, if there is one.
    Ours(Option<[u8; 32]>),
}

/// The rows of the table: how the peer's history lies beside ours.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Relation {
    /// Both end at the same version.
    SameTail,
    /// The peer ends below our floor.
    BelowFloor,
    /// The peer ends within our log, or at its floor.
    Within,
    /// The peer ends between our floor and our tail at a version that is not ours.
    Between,
    /// The peer ends above our tail and may send us what we lack.
    AheadMaySend,
    /// The peer ends above our tail, and this link or this replica takes no records.
    AheadMayNot,
}

/// What the judgement of a peer's standing asks for next.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Judgement {
    /// The verdict over the peer is known.
    Given(PairVerdict),
    /// The peer is ahead: it judges us, and sends what we lack. Common history was verified so far.
    Behind(Verified),
}

/// Whether and how this replica may take records from the peer.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Takes {
    /// It follows the log, and the link allows it.
    Records,
    /// It writes the log, or the link is for sending only.
    Nothing,
}

/// How `theirs` lies beside our log. `known` must be our log's knowledge of `theirs.tail`; it is
/// only looked at between our floor and our tail.
#[must_use]
pub(super) fn relation(ours: &Standing, theirs: &Standing, known: Known, takes: Takes) -> Relation {
    if theirs.tail > ours.tail {
        return match takes {
            Takes::Records => Relation::AheadMaySend,
            Takes::Nothing => Relation::AheadMayNot,
        };
    }
    if theirs.tail == ours.tail {
        return Relation::SameTail;
    }
    if theirs.tail < ours.floor {
        return Relation::BelowFloor;
    }
    match known {
        Known::Foreign => Relation::Between,
        Known::Ours(_) => Relation::Within,
    }
}

/// The table: what each relation means.
///
/// `known_tail` is our log's knowledge of the peer's tail, `known_floor` of the peer's floor (an
/// anchor to compare where the peer is ahead).
pub(super) fn judge(
    ours: &Standing,
    theirs: &Standing,
    known_tail: Known,
    known_floor: Known,
    takes: Takes,
) -> Judgement {
    match relation(ours, theirs, known_tail, takes) {
        Relation::SameTail => compared(theirs.tail, ours.tail, ours.tail_digest, theirs.tail_digest),
        Relation::BelowFloor => Judgement::Given(Verdict::Gap {
            from: theirs.tail,
            to: ours.floor,
            reason: PairReason::BelowFloor,
        }),
        Relation::Within => match known_tail {
            Known::Ours(digest) => compared(theirs.tail, ours.tail, digest, theirs.tail_digest),
            Known::Foreign => foreign(ours, theirs),
        },
        Relation::Between => foreign(ours, theirs),
        Relation::AheadMaySend => match known_floor {
            Known::Ours(digest) => match compared(theirs.floor, ours.tail, digest, theirs.floor_digest) {
                Judgement::Given(Verdict::Complete { verified, .. }) => Judgement::Behind(verified),
                other @ (Judgement::Given(_) | Judgement::Behind(_)) => other,
            },
            Known::Foreign => Judgement::Behind(Verified::VersionOnly),
        },
        Relation::AheadMayNot => Judgement::Given(Verdict::Diverged(Divergence {
            at: ours.tail,
            ours: ours.tail.to_string(),
            theirs: theirs.tail.to_string(),
            reason: PairReason::AheadOfTail,
        })),
    }
}

/// Compares two digests of the history up to `at`. "Nothing yet" needs no digest: there is only one
/// empty history.
fn compared(at: Version, through: Version, ours: Option<[u8; 32]>, theirs: Option<[u8; 32]>) -> Judgement {
    let complete = |verified| Judgement::Given(Verdict::Complete { through, verified });
    if at.is_zero() {
        return complete(Verified::Digest);
    }
    match (ours, theirs) {
        (Some(a), Some(b)) if a == b => complete(Verified::Digest),
        (Some(a), Some(b)) => Judgement::Given(Verdict::Diverged(Divergence {
            at,
            ours: short(&a),
            theirs: short(&b),
            reason: PairReason::OtherHistory,
        })),
        (None, _) | (_, None) => complete(Verified::VersionOnly),
    }
}

fn foreign(ours: &Standing, theirs: &Standing) -> Judgement {
    Judgement::Given(Verdict::Diverged(Divergence {
        at: theirs.tail,
        ours: alloc::format!("no such version between {} and {}", ours.floor, ours.tail),
        theirs: theirs.tail.to_string(),
        reason: PairReason::ForeignVersion,
    }))
}

/// The beginning of a digest, for people.
pub(super) fn short(digest: &[u8; 32]) -> String {
    hex(&digest[..8])
}

/// What an acknowledgement says, as a table of its own: it carries a version and no digest.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum AckCase {
    /// Below the floor, zero included: the peer needs a snapshot.
    BelowFloor,
    /// Exactly the floor, or exactly a durable record of ours.
    Ours,
    /// Above our durable tail.
    AboveTail,
    /// Between floor and tail, but not in our log.
    Foreign,
}

/// Which row an acknowledgement falls under; `contains` says whether our durable log holds it.
#[must_use]
pub(super) fn ack_case(floor: Version, tail: Version, acked: Version, contains: bool) -> AckCase {
    if acked == floor || (acked > floor && acked <= tail && contains) {
        AckCase::Ours
    } else if acked < floor {
        AckCase::BelowFloor
    } else if acked > tail {
        AckCase::AboveTail
    } else {
        AckCase::Foreign
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: Option<[u8; 32]> = Some([1; 32]);
    const B: Option<[u8; 32]> = Some([2; 32]);

    fn v(sequence: u64) -> Version {
        if sequence == 0 { Version::ZERO } else { Version::new(1, sequence) }
    }

    fn at(floor: u64, tail: u64, digest: Option<[u8; 32]>) -> Standing {
        Standing { floor: v(floor), floor_digest: digest, tail: v(tail), tail_digest: digest }
    }

    fn complete(tail: u64, verified: Verified) -> Judgement {
        Judgement::Given(Verdict::Complete { through: v(tail), verified })
    }

    fn reason(judgement: &Judgement) -> Option<PairReason> {
        match judgement {
            Judgement::Given(Verdict::Diverged(d)) => Some(d.reason),
            Judgement::Given(_) | Judgement::Behind(_) => None,
        }
    }

    fn judged(ours: Standing, theirs: Standing, known: Known) -> Judgement {
        judge(&ours, &theirs, known, Known::Foreign, Takes::Records)
    }

    #[test]
    fn same_tail() {
        assert_eq!(judged(at(0, 5, A), at(0, 5, A), Known::Ours(A)), complete(5, Verified::Digest));
        assert_eq!(judged(at(0, 5, A), at(0, 5, None), Known::Ours(A)), complete(5, Verified::VersionOnly));
        let other = judged(at(0, 5, A), at(0, 5, B), Known::Ours(A));
        assert_eq!(reason(&other), Some(PairReason::OtherHistory));
        assert_eq!(judged(at(0, 0, A), at(0, 0, B), Known::Foreign), complete(0, Verified::Digest));
    }

    #[test]
    fn below_floor() {
        let gap = Verdict::Gap { from: v(2), to: v(3), reason: PairReason::BelowFloor };
        assert_eq!(judged(at(3, 5, A), at(0, 2, A), Known::Foreign), Judgement::Given(gap));
    }

    #[test]
    fn within() {
        assert_eq!(judged(at(3, 5, A), at(0, 3, B), Known::Ours(B)), complete(5, Verified::Digest));
        let other = judged(at(3, 5, A), at(0, 4, B), Known::Ours(A));
        assert_eq!(reason(&other), Some(PairReason::OtherHistory));
    }

    #[test]
    fn between() {
        let foreign = judged(at(3, 5, A), at(0, 4, A), Known::Foreign);
        assert_eq!(reason(&foreign), Some(PairReason::ForeignVersion));
    }

    #[test]
    fn ahead_may_send() {
        let judgement = judge(&at(0, 5, A), &at(3, 9, B), Known::Foreign, Known::Ours(B), Takes::Records);
        assert_eq!(judgement, Judgement::Behind(Verified::Digest));
        let unknown = judge(&at(0, 5, A), &at(7, 9, B), Known::Foreign, Known::Foreign, Takes::Records);
        assert_eq!(unknown, Judgement::Behind(Verified::VersionOnly));
        let other = judge(&at(0, 5, A), &at(3, 9, B), Known::Foreign, Known::Ours(A), Takes::Records);
        assert_eq!(reason(&other), Some(PairReason::OtherHistory));
    }

    #[test]
    fn ahead_may_not() {
        let judgement = judge(&at(0, 5, A), &at(0, 9, A), Known::Foreign, Known::Foreign, Takes::Nothing);
        assert_eq!(reason(&judgement), Some(PairReason::AheadOfTail));
    }

    #[test]
    fn ack_rows() {
        let case = |acked, contains| ack_case(v(3), v(6), v(acked), contains);
        assert_eq!(case(0, false), AckCase::BelowFloor);
        assert_eq!(case(2, false), AckCase::BelowFloor);
        assert_eq!(case(3, false), AckCase::Ours);
        assert_eq!(case(5, true), AckCase::Ours);
        assert_eq!(case(5, false), AckCase::Foreign);
        assert_eq!(case(7, false), AckCase::AboveTail);
    }
}
