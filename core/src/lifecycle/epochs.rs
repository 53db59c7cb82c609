//! What the epochs of two histories say of each other, as one table. An epoch tells where the history
//! before it ended, so this needs no digest, and holds also where a compaction took what would tell.

use super::api::{Divergence, PairReason, PairVerdict};
use super::history::EpochMark;
use crate::record::Version;
use crate::verdict::Verdict;
use alloc::string::{String, ToString};

/// The end of a history, and its epochs, oldest first: all, or the last of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Side<'a> {
    pub(super) tail: Version,
    pub(super) epochs: &'a [EpochMark],
}

/// The rows of the table: how the epochs of two histories lie beside each other.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) enum Relation {
    /// One history may be the beginning of the other.
    Agree,
    /// An epoch has two authorities, or began at two places.
    Part {
        /// As it is here.
        ours: EpochMark,
        /// As it is there.
        theirs: EpochMark,
    },
    /// They hold records of an older epoch up to `upto`, and `by` had begun here before those.
    TheirsOver {
        /// The last version of them that is known.
        upto: Version,
        /// The epoch that ended theirs.
        by: EpochMark,
    },
    /// We hold records of an older epoch above `after`, and `by` had begun there before those.
    OursOver {
        /// Where ours had ended.
        after: Version,
        /// The epoch that ended ours.
        by: EpochMark,
    },
}

impl<'a> Side<'a> {
    /// The latest epoch that has begun; zero for none.
    fn latest(&self) -> u64 {
        self.epochs.last().map_or(self.tail.epoch, |mark| mark.epoch.max(self.tail.epoch))
    }

    /// The first of the epochs above `epoch`.
    fn first_above(&self, epoch: u64) -> Option<&'a EpochMark> {
        self.epochs.iter().find(|mark| mark.epoch > epoch)
    }

    /// The epoch that has begun here and that had ended those of records above our tail, up to `end`.
    fn ended(&self, end: Version) -> Option<&'a EpochMark> {
        self.epochs.last().filter(|mark| end > self.tail && end.epoch < mark.epoch)
    }
}

/// How the epochs of our history and of another one lie beside each other.
pub(super) fn relate(ours: &Side<'_>, theirs: &Side<'_>) -> Relation {
    for mark in ours.epochs {
        if let Some(other) = theirs.epochs.iter().find(|other| parts(mark, other)) {
            return Relation::Part { ours: mark.clone(), theirs: other.clone() };
        }
    }
    if let Some(later) = theirs.first_above(ours.latest()) {
        let end = later.previous_end;
        if end < ours.tail {
            return Relation::OursOver { after: end, by: later.clone() };
        }
        if let Some(by) = ours.ended(end) {
            return Relation::TheirsOver { upto: end, by: by.clone() };
        }
    }
    if let Some(later) = ours.first_above(theirs.latest()) {
        let end = later.previous_end;
        if end < theirs.tail {
            return Relation::TheirsOver { upto: theirs.tail, by: later.clone() };
        }
        if let Some(by) = theirs.ended(end) {
            return Relation::OursOver { after: theirs.tail, by: by.clone() };
        }
    }
    Relation::Agree
}

/// Whether two marks of one epoch contradict. One side may not have its first record yet, or may have
/// begun in the midst of it.
fn parts(ours: &EpochMark, theirs: &EpochMark) -> bool {
    let unbegun = ours.start.sequence == 0 || theirs.start.sequence == 0;
    let midst = |mark: &EpochMark| mark.previous_end.epoch == mark.epoch;
    let began_elsewhere =
        ours.previous_end != theirs.previous_end || (ours.start != theirs.start && !unbegun);
    let compared = !midst(ours) && !midst(theirs);
    ours.epoch == theirs.epoch && (ours.authority != theirs.authority || (began_elsewhere && compared))
}

impl Relation {
    /// The verdict over the pair; `None` if they agree. `next` is our first record above a version, if
    /// that is known.
    pub(super) fn verdict(self, next: impl Fn(Version) -> Option<Version>) -> Option<PairVerdict> {
        let found = match self {
            Self::Agree => return None,
            Self::Part { ours, theirs } => Divergence {
                at: ours.start.min(theirs.start),
                ours: text(&ours),
                theirs: text(&theirs),
                reason: PairReason::OtherHistory,
            },
            Self::TheirsOver { upto, by } => Divergence {
                at: upto,
                ours: text(&by),
                theirs: upto.to_string(),
                reason: PairReason::FencedEpoch,
            },
            Self::OursOver { after, by } => {
                let at = next(after).unwrap_or(after);
                Divergence { at, ours: at.to_string(), theirs: text(&by), reason: PairReason::FencedEpoch }
            }
        };
        Some(Verdict::Diverged(found))
    }
}

/// An epoch in words.
fn text(mark: &EpochMark) -> String {
    let EpochMark { epoch, start, previous_end, authority } = mark;
    match start.sequence {
        0 => alloc::format!("epoch {epoch} of {authority} after {previous_end}"),
        _ => alloc::format!("epoch {epoch} of {authority} from {start}, after {previous_end}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::AuthorityId;
    use alloc::vec::Vec;

    fn v(epoch: u64, sequence: u64) -> Version {
        Version::new(epoch, sequence)
    }

    fn mark(name: &str, start: Version, previous_end: Version) -> EpochMark {
        EpochMark { epoch: start.epoch, start, previous_end, authority: AuthorityId::from_text(name) }
    }

    fn first() -> EpochMark {
        mark("a", v(1, 1), Version::ZERO)
    }

    /// As seen from either side.
    fn both(ours: (Version, &[EpochMark]), theirs: (Version, &[EpochMark])) -> (Relation, Relation) {
        let side = |(tail, epochs)| Side { tail, epochs };
        (relate(&side(ours), &side(theirs)), relate(&side(theirs), &side(ours)))
    }

    #[test]
    fn agree() {
        let (empty, one): (&[EpochMark], _) = (&[], [first()]);
        let two = [first(), mark("b", v(2, 1), v(1, 5))];
        let three = [first(), mark("b", v(2, 1), v(1, 5)), mark("a", v(3, 1), v(2, 4))];
        let sides: [(Version, &[EpochMark]); 5] =
            [(Version::ZERO, empty), (v(1, 3), &one), (v(1, 5), &one), (v(2, 2), &two), (v(3, 1), &three)];
        for ours in sides {
            for theirs in sides {
                assert_eq!(both(ours, theirs), (Relation::Agree, Relation::Agree), "{ours:?} {theirs:?}");
            }
        }
    }

    #[test]
    fn agree_over_an_epoch_that_nobody_wrote_in() {
        let bare = [first(), mark("b", v(2, 0), v(1, 5))];
        let without = [first(), mark("a", v(3, 1), v(1, 5))];
        assert_eq!(both((v(1, 5), &bare), (v(3, 1), &without)), (Relation::Agree, Relation::Agree));
        // Whoever has the bare one is further behind than it was when the epoch after it began.
        let zero = [mark("b", v(2, 0), Version::ZERO)];
        let only = [mark("a", v(3, 1), Version::ZERO)];
        assert_eq!(both((Version::ZERO, &zero), (v(3, 7), &only)), (Relation::Agree, Relation::Agree));
    }

    #[test]
    fn agree_where_one_began_in_the_midst_of_an_epoch() {
        let whole = [first(), mark("b", v(2, 1), v(1, 5))];
        let midst = [mark("b", v(2, 7), v(2, 6))];
        assert_eq!(both((v(2, 9), &whole), (v(2, 8), &midst)), (Relation::Agree, Relation::Agree));
    }

    #[test]
    fn part_by_authority() {
        let (ours, theirs) = (first(), mark("z", v(1, 1), Version::ZERO));
        let found = both((v(1, 1), core::slice::from_ref(&ours)), (v(1, 9), core::slice::from_ref(&theirs)));
        assert_eq!(found.0, Relation::Part { ours: ours.clone(), theirs: theirs.clone() });
        assert_eq!(found.1, Relation::Part { ours: theirs, theirs: ours });
    }

    #[test]
    fn part_by_start() {
        let (ours, theirs) = (first(), mark("a", v(1, 1030), Version::ZERO));
        let found =
            both((v(1, 1), core::slice::from_ref(&ours)), (v(1, 1031), core::slice::from_ref(&theirs)));
        assert_eq!(found.0, Relation::Part { ours, theirs });
    }

    #[test]
    fn part_by_the_end_before() {
        let ours = [first(), mark("b", v(2, 0), v(1, 5))];
        let theirs = [first(), mark("b", v(2, 1), v(1, 6))];
        let found = both((v(1, 5), &ours), (v(2, 1), &theirs));
        assert_eq!(found.0, Relation::Part { ours: ours[1].clone(), theirs: theirs[1].clone() });
    }

    #[test]
    fn theirs_over_by_an_epoch_without_records() {
        let ours = [first(), mark("b", v(2, 0), v(1, 5))];
        let one = [first()];
        let (by, upto) = (ours[1].clone(), v(1, 6));
        let found = both((v(1, 5), &ours), (v(1, 6), &one));
        assert_eq!(found.0, Relation::TheirsOver { upto, by: by.clone() });
        assert_eq!(found.1, Relation::OursOver { after: v(1, 5), by });
    }

    #[test]
    fn theirs_over_under_a_later_epoch_of_theirs() {
        let ours = [first(), mark("b", v(2, 0), v(1, 5))];
        let theirs = [first(), mark("a", v(3, 1), v(1, 6))];
        let found = both((v(1, 5), &ours), (v(3, 1), &theirs));
        assert_eq!(found.0, Relation::TheirsOver { upto: v(1, 6), by: ours[1].clone() });
        assert_eq!(found.1, Relation::OursOver { after: v(1, 5), by: ours[1].clone() });
    }

    #[test]
    fn ours_over_by_an_epoch_with_records() {
        let ours = [first()];
        let theirs = [first(), mark("b", v(2, 1), v(1, 5))];
        let found = both((v(1, 7), &ours), (v(2, 9), &theirs));
        assert_eq!(found.0, Relation::OursOver { after: v(1, 5), by: theirs[1].clone() });
        assert_eq!(found.1, Relation::TheirsOver { upto: v(1, 7), by: theirs[1].clone() });
    }

    #[test]
    fn ours_over_where_they_do_not_know_our_epoch() {
        let ours = [first(), mark("b", v(2, 1), v(1, 5))];
        let theirs = [first(), mark("a", v(3, 1), v(1, 5))];
        let found = both((v(2, 1), &ours), (v(3, 1), &theirs));
        assert_eq!(found.0, Relation::OursOver { after: v(1, 5), by: theirs[1].clone() });
        assert_eq!(found.1, Relation::TheirsOver { upto: v(2, 1), by: theirs[1].clone() });
    }

    #[test]
    fn epochs_that_are_not_told_any_more_are_no_evidence() {
        let many: Vec<EpochMark> = (10..74).map(|epoch| mark("a", v(epoch, 1), v(epoch - 1, 1))).collect();
        let ours = [first(), mark("b", v(2, 0), v(1, 5))];
        let found = both((v(1, 5), &ours), (v(73, 1), &many));
        assert_eq!(found, (Relation::Agree, Relation::Agree));
    }

    #[test]
    fn a_verdict_names_our_first_record_that_is_over() {
        let by = mark("b", v(2, 1), v(1, 5));
        let next = |after: Version| Some(v(after.epoch, after.sequence + 1));
        let Some(Verdict::Diverged(found)) = (Relation::OursOver { after: v(1, 5), by }).verdict(next) else {
            panic!("it is one")
        };
        assert_eq!((found.at, found.reason), (v(1, 6), PairReason::FencedEpoch));
        assert_eq!((found.ours.as_str(), found.theirs.as_str()), ("1.6", "epoch 2 of b from 2.1, after 1.5"));
        assert_eq!(Relation::Agree.verdict(next), None);
    }
}
