//! How far compaction may go.

use super::acked::Acked;
use super::api::RequestError;
use super::membership::{Member, MemberState, Members};
use crate::record::Version;

/// How far compaction may go: the lowest version that a member still needs the journal above, at
/// most `tail`. Only what members are *durably* known to have counts.
///
/// | case | counts |
/// |---|---|
/// | no membership stored | refused: `MembershipMissing` |
/// | explicitly empty | the tail |
/// | joining, reads no cut | not |
/// | joining, reads a cut | the cut |
/// | active, acknowledged in its present life | what it acknowledged |
/// | active, otherwise | zero |
/// | lapsed | not |
/// | lowest at or below the floor | refused: `Behind` |
/// | tail at the floor | refused: `NoProgress` |
///
/// # Errors
/// As the table says, with the member furthest behind.
pub fn compaction_bound(
    members: &Members,
    acked: &Acked,
    tail: Version,
    floor: Version,
) -> Result<Version, RequestError> {
    if !members.configured() {
        return Err(RequestError::MembershipMissing);
    }
    if tail <= floor {
        return Err(RequestError::NoProgress { floor });
    }
    match lowest(members, acked) {
        Some((member, acked)) if acked <= floor => {
            Err(RequestError::Behind { member: member.identity.clone(), acked, floor })
        }
        Some((_, acked)) => Ok(acked.min(tail)),
        None => Ok(tail),
    }
}

/// Where a member counts, if it does: the rows of the table above.
pub(super) fn counted(member: &Member, acked: &Acked) -> Option<Version> {
    match member.state {
        MemberState::Joining { cut } => cut,
        MemberState::Active => Some(acked.durable(&member.identity, member.incarnation)),
        MemberState::Lapsed => None,
    }
}

/// The member that compaction waits for, and where it counts: the one furthest behind.
pub(super) fn lowest<'a>(members: &'a Members, acked: &Acked) -> Option<(&'a Member, Version)> {
    let mut lowest: Option<(&Member, Version)> = None;
    for member in members.list() {
        if let Some(version) = counted(member, acked)
            && lowest.is_none_or(|(_, low)| version < low)
        {
            lowest = Some((member, version));
        }
    }
    lowest
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::Incarnation;
    use crate::lifecycle::api::MembersChange;
    use crate::lifecycle::membership::MemberInput;
    use alloc::format;

    const FLOOR: Version = Version::new(1, 10);
    const TAIL: Version = Version::new(1, 99);
    const LIFE: Incarnation = Incarnation { counter: 1, nonce: [1; 8] };
    const OTHER_LIFE: Incarnation = Incarnation { counter: 2, nonce: [2; 8] };

    fn v(sequence: u64) -> Version {
        Version::new(1, sequence)
    }

    /// Members `m0`, `m1`, ... in these states, reached as a replica reaches them.
    fn members(states: &[MemberState]) -> Members {
        let mut members = Members::default();
        for (i, state) in states.iter().enumerate() {
            let name = format!("m{i}");
            members.change(&MembersChange::Add(name.clone())).expect("new");
            members.seen(&name, Some(LIFE));
            let inputs: &[MemberInput] = match state {
                MemberState::Joining { cut: None } => &[],
                MemberState::Joining { cut: Some(cut) } => &[MemberInput::Reads { cut: *cut }],
                MemberState::Active => {
                    &[MemberInput::Reads { cut: Version::ZERO }, MemberInput::Acknowledged { version: TAIL }]
                }
                MemberState::Lapsed => &[MemberInput::TooFarBehind],
            };
            for input in inputs {
                members.advance(&name, *input);
            }
            assert_eq!(members.get(&name).map(|member| member.state), Some(*state));
        }
        members
    }

    fn acked(versions: &[u64]) -> Acked {
        let mut acked = Acked::default();
        for (i, sequence) in versions.iter().enumerate() {
            acked.reconcile(&format!("m{i}"), Some(LIFE), v(*sequence)).expect("within the limits");
        }
        let _ = acked.begin_save().expect("dirty");
        acked.saved(true);
        acked
    }

    fn bound(states: &[MemberState], versions: &[u64]) -> Result<Version, RequestError> {
        let book = if versions.is_empty() { Acked::default() } else { acked(versions) };
        compaction_bound(&members(states), &book, TAIL, FLOOR)
    }

    fn behind(member: &str, acked: Version) -> Result<Version, RequestError> {
        Err(RequestError::Behind { member: member.into(), acked, floor: FLOOR })
    }

    #[test]
    fn bound_membership_missing() {
        let missing = compaction_bound(&Members::default(), &Acked::default(), TAIL, FLOOR);
        assert_eq!(missing, Err(RequestError::MembershipMissing));
    }

    #[test]
    fn bound_explicitly_empty_is_the_tail() {
        let mut members = Members::default();
        members.change(&MembersChange::Clear).expect("always");
        assert_eq!(compaction_bound(&members, &Acked::default(), TAIL, FLOOR), Ok(TAIL));
    }

    #[test]
    fn bound_joining_without_a_cut_pins_nothing() {
        assert_eq!(bound(&[MemberState::Joining { cut: None }], &[]), Ok(TAIL));
    }

    #[test]
    fn bound_joining_counts_at_its_cut() {
        assert_eq!(bound(&[MemberState::Joining { cut: Some(v(40)) }], &[]), Ok(v(40)));
    }

    #[test]
    fn bound_active_counts_at_what_it_acknowledged() {
        assert_eq!(bound(&[MemberState::Active, MemberState::Active], &[50, 30]), Ok(v(30)));
    }

    #[test]
    fn bound_active_without_an_acknowledgement_is_zero() {
        assert_eq!(bound(&[MemberState::Active], &[]), behind("m0", Version::ZERO));
    }

    #[test]
    fn bound_active_in_another_life_is_zero() {
        let mut members = members(&[MemberState::Active]);
        members.seen("m0", Some(OTHER_LIFE));
        members.advance("m0", MemberInput::Reads { cut: Version::ZERO });
        members.advance("m0", MemberInput::Acknowledged { version: TAIL });
        assert_eq!(compaction_bound(&members, &acked(&[50]), TAIL, FLOOR), behind("m0", Version::ZERO));
    }

    #[test]
    fn bound_lapsed_is_not_counted() {
        assert_eq!(bound(&[MemberState::Lapsed, MemberState::Active], &[5, 60]), Ok(v(60)));
    }

    #[test]
    fn bound_names_the_one_furthest_behind() {
        assert_eq!(bound(&[MemberState::Active; 3], &[9, 7, 8]), behind("m1", v(7)));
    }

    #[test]
    fn bound_at_the_floor_is_behind() {
        assert_eq!(bound(&[MemberState::Active], &[10]), behind("m0", FLOOR));
    }

    #[test]
    fn bound_tail_at_the_floor_is_no_progress() {
        let none = compaction_bound(&members(&[MemberState::Active]), &acked(&[10]), FLOOR, FLOOR);
        assert_eq!(none, Err(RequestError::NoProgress { floor: FLOOR }));
    }

    #[test]
    fn bound_uses_only_what_is_durably_stored() {
        let mut book = acked(&[20]);
        book.acknowledge("m0", Some(LIFE), v(70)).expect("grows");
        let members = members(&[MemberState::Active]);
        assert_eq!(compaction_bound(&members, &book, TAIL, FLOOR), Ok(v(20)));
        let _ = book.begin_save().expect("dirty");
        assert_eq!(compaction_bound(&members, &book, TAIL, FLOOR), Ok(v(20)));
        book.saved(true);
        assert_eq!(compaction_bound(&members, &book, TAIL, FLOOR), Ok(v(70)));
    }
}
