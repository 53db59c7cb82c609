//! Who must have the records before compaction drops them from the journal.

use super::api::{MembersChange, RequestError};
pub use super::bound::compaction_bound;
pub use super::members_file::ContentError;
use crate::id::Incarnation;
use crate::record::Version;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// Most members, and most removed ones that are remembered.
pub const MEMBERS_MAX: usize = 1024;

/// Longest identity of a member or peer, in bytes of UTF-8.
pub const IDENTITY_BYTES_MAX: usize = 128;

/// How a member stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MemberState {
    /// It was named and has not caught up yet. It counts at the cut it reads; one that reads none
    /// pins nothing.
    Joining {
        /// The cut it reads.
        cut: Option<Version>,
    },
    /// It counts at what it durably acknowledged.
    Active,
    /// It fell too far behind, or was removed and added again: it does not count, and must be reseeded,
    /// or take a snapshot. One that is offered a snapshot and has all of it by then is as good.
    Lapsed,
}

impl MemberState {
    /// The word for people and for the sidecar.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Joining { .. } => "joining",
            Self::Active => "active",
            Self::Lapsed => "lapsed",
        }
    }
}

/// Something that happened to a member.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum MemberInput {
    /// It began to read a snapshot, or the journal from there on.
    Reads {
        /// The version it will have then.
        cut: Version,
    },
    /// It acknowledged.
    Acknowledged {
        /// Up to where.
        version: Version,
    },
    /// It is further behind than the limits allow.
    TooFarBehind,
    /// It came back as another life of its data.
    OtherIncarnation,
}

/// One replica that counts.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Member {
    /// Its name.
    pub identity: String,
    /// The life of its data that was seen last, if it names one.
    pub incarnation: Option<Incarnation>,
    /// How it stands.
    pub state: MemberState,
}

/// What being added makes of a replica. Nobody waited for one that was removed: what it then slept
/// through is gone here, so the life that was removed does not count any more.
fn added(removed: Option<Member>) -> (MemberState, Option<Incarnation>) {
    match removed {
        None => (MemberState::Joining { cut: None }, None),
        Some(Member { state, incarnation, .. }) => (state, incarnation),
    }
}

/// What an input makes of a member's state.
fn step(state: MemberState, input: MemberInput) -> MemberState {
    use MemberInput::{Acknowledged, OtherIncarnation, Reads, TooFarBehind};
    use MemberState::{Active, Joining, Lapsed};
    match (state, input) {
        (Joining { .. } | Lapsed, Reads { cut }) => Joining { cut: Some(cut) },
        // A member that asks for more of what it already follows is no new reader.
        (Active, Reads { .. }) => Active,
        (Joining { cut: Some(cut) }, Acknowledged { version }) if version >= cut => Active,
        (Joining { cut }, Acknowledged { .. }) => Joining { cut },
        (Active, Acknowledged { .. }) => Active,
        // What a lapsed member holds may already have lost its successors here.
        (Lapsed, Acknowledged { .. }) => Lapsed,
        (Joining { .. } | Active | Lapsed, TooFarBehind) => Lapsed,
        // Another life of a lapsed member was reseeded, or is as good as new.
        (Joining { .. } | Active | Lapsed, OtherIncarnation) => Joining { cut: None },
    }
}

/// The members of a log: never configured, or a list that may be explicitly empty. Sorted by
/// identity, at most [`MEMBERS_MAX`]. Who was removed is remembered, the last [`MEMBERS_MAX`] of them.
///
/// ```
/// use strandline_core::lifecycle::{api::MembersChange, membership::Members};
/// let mut members = Members::default();
/// assert!(!members.configured());
/// members.change(&MembersChange::Add("node-b".into()))?;
/// assert_eq!(Members::decode(&members.encode()), Ok(members));
/// # Ok::<(), strandline_core::lifecycle::api::RequestError>(())
/// ```
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Members {
    pub(super) configured: bool,
    pub(super) list: Vec<Member>,
    /// In the order of their removal; none of them is a member, or has what a new one needs.
    pub(super) removed: VecDeque<Member>,
}

/// Judges the name of a member or peer: what is wrong with it, if anything is.
#[must_use]
pub fn identity_fault(identity: &str) -> Option<String> {
    if identity.is_empty() || identity.len() > IDENTITY_BYTES_MAX {
        return Some(format!("expected 1 to {IDENTITY_BYTES_MAX} bytes, found {}", identity.len()));
    }
    let odd = identity.chars().find(|c| !crate::record::is_printable(*c))?;
    Some(format!("expected printable characters, found {odd:?}"))
}

impl Members {
    /// Whether a membership was ever stored. Without one nothing may be compacted.
    #[must_use]
    pub const fn configured(&self) -> bool {
        self.configured
    }

    /// The members, sorted by identity.
    #[must_use]
    pub fn list(&self) -> &[Member] {
        &self.list
    }

    /// One member.
    #[must_use]
    pub fn get(&self, identity: &str) -> Option<&Member> {
        self.find(identity).ok().map(|at| &self.list[at])
    }

    fn find(&self, identity: &str) -> Result<usize, usize> {
        self.list.binary_search_by(|member| member.identity.as_str().cmp(identity))
    }

    /// Changes who is a member. It counts only once [`Members::encode`] is stored.
    ///
    /// # Errors
    /// The name is none, is already a member or is not one, or the list is full. Nothing changed.
    pub fn change(&mut self, change: &MembersChange) -> Result<(), RequestError> {
        let refuse =
            |member: &String, reason: String| Err(RequestError::Member { member: member.clone(), reason });
        match change {
            MembersChange::Add(name) => match (self.find(name), identity_fault(name)) {
                (_, Some(reason)) => return refuse(name, reason),
                (Ok(_), None) => return refuse(name, "it is already a member".into()),
                (Err(_), None) if self.list.len() == MEMBERS_MAX => {
                    return refuse(name, format!("there are {MEMBERS_MAX} members, which is the limit"));
                }
                (Err(at), None) => {
                    let known = self.removed.iter().position(|removed| removed.identity == *name);
                    let (state, incarnation) = added(known.and_then(|at| self.removed.remove(at)));
                    self.list.insert(at, Member { identity: name.clone(), incarnation, state });
                }
            },
            MembersChange::Remove(name) => match self.find(name) {
                Ok(at) => {
                    let member = self.list.remove(at);
                    self.remember(member);
                }
                Err(_) => return refuse(name, "it is no member".into()),
            },
            MembersChange::Clear => {
                for member in core::mem::take(&mut self.list) {
                    self.remember(member);
                }
            }
        }
        self.configured = true;
        Ok(())
    }

    /// From now on it is lapsed. One that never had anything is as good as new.
    fn remember(&mut self, member: Member) {
        if member.state == (MemberState::Joining { cut: None }) && member.incarnation.is_none() {
            return;
        }
        if self.removed.len() == MEMBERS_MAX {
            self.removed.pop_front();
        }
        self.removed.push_back(Member { state: MemberState::Lapsed, ..member });
    }

    /// Whether a member, or one that was removed, is lapsed.
    pub(super) fn lapsed(&self, identity: &str) -> bool {
        let removed = || self.removed.iter().find(|member| member.identity == identity);
        self.get(identity).or_else(removed).is_some_and(|member| match member.state {
            MemberState::Lapsed => true,
            MemberState::Joining { .. } | MemberState::Active => false,
        })
    }

    fn find_mut(&mut self, identity: &str) -> Option<&mut Member> {
        match self.find(identity) {
            Ok(at) => Some(&mut self.list[at]),
            Err(_) => self.removed.iter_mut().find(|member| member.identity == identity),
        }
    }

    /// Forgets a removed one that was reseeded, or took a snapshot: it is as good as new.
    fn forget(&mut self) {
        self.removed.retain(|member| match member.state {
            MemberState::Lapsed | MemberState::Joining { cut: Some(_) } => true,
            MemberState::Joining { cut: None } | MemberState::Active => false,
        });
    }

    /// Notes which life of a member's data was authenticated. Another one than before starts over;
    /// a member that names none keeps what it has. Returns whether something changed.
    pub fn seen(&mut self, identity: &str, incarnation: Option<Incarnation>) -> bool {
        let (Some(member), Some(now)) = (self.find_mut(identity), incarnation) else {
            return false;
        };
        match member.incarnation.replace(now) {
            Some(before) if before == now => false,
            Some(_) => {
                member.state = step(member.state, MemberInput::OtherIncarnation);
                self.forget();
                true
            }
            None => true,
        }
    }

    /// Moves a member on, or one that was removed; another identity is ignored. Returns whether
    /// something changed.
    pub fn advance(&mut self, identity: &str, input: MemberInput) -> bool {
        let Some(member) = self.find_mut(identity) else {
            return false;
        };
        let before = member.state;
        member.state = step(before, input);
        let changed = member.state != before;
        if changed {
            self.forget();
        }
        changed
    }

    /// Takes over what happened to a member since the list was copied to be changed.
    pub(super) fn carry_over(&mut self, member: &Member) {
        if let Ok(at) = self.find(&member.identity) {
            self.list[at] = member.clone();
        } else if let Some(removed) = self.removed.iter_mut().find(|r| r.identity == member.identity) {
            // In whatever life: that is the one that was removed.
            removed.incarnation = member.incarnation;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFE: Incarnation = Incarnation { counter: 1, nonce: [1; 8] };
    const OTHER_LIFE: Incarnation = Incarnation { counter: 2, nonce: [2; 8] };

    fn v(sequence: u64) -> Version {
        Version::new(1, sequence)
    }

    fn members(states: &[MemberState]) -> Members {
        let list = states
            .iter()
            .enumerate()
            .map(|(i, state)| Member { identity: format!("m{i}"), incarnation: Some(LIFE), state: *state })
            .collect();
        Members { configured: true, list, removed: VecDeque::new() }
    }

    #[test]
    fn step_joining_reads_a_cut() {
        let reads = MemberInput::Reads { cut: v(5) };
        for state in [MemberState::Joining { cut: None }, MemberState::Joining { cut: Some(v(2)) }] {
            assert_eq!(step(state, reads), MemberState::Joining { cut: Some(v(5)) });
        }
    }

    #[test]
    fn step_joining_becomes_active_at_its_cut() {
        let joining = MemberState::Joining { cut: Some(v(5)) };
        assert_eq!(step(joining, MemberInput::Acknowledged { version: v(4) }), joining);
        assert_eq!(step(joining, MemberInput::Acknowledged { version: v(5) }), MemberState::Active);
    }

    #[test]
    fn step_joining_without_a_cut_stays() {
        let joining = MemberState::Joining { cut: None };
        assert_eq!(step(joining, MemberInput::Acknowledged { version: v(9) }), joining);
    }

    #[test]
    fn step_active_stays_active() {
        for input in [MemberInput::Reads { cut: v(1) }, MemberInput::Acknowledged { version: v(1) }] {
            assert_eq!(step(MemberState::Active, input), MemberState::Active);
        }
    }

    #[test]
    fn step_too_far_behind_lapses() {
        for state in [MemberState::Active, MemberState::Joining { cut: None }, MemberState::Lapsed] {
            assert_eq!(step(state, MemberInput::TooFarBehind), MemberState::Lapsed);
        }
    }

    #[test]
    fn step_lapsed_comes_back_only_by_a_cut() {
        let acknowledged = MemberInput::Acknowledged { version: v(90) };
        assert_eq!(step(MemberState::Lapsed, acknowledged), MemberState::Lapsed);
        let reads = MemberInput::Reads { cut: v(5) };
        assert_eq!(step(MemberState::Lapsed, reads), MemberState::Joining { cut: Some(v(5)) });
    }

    #[test]
    fn step_another_incarnation_starts_over() {
        for state in [MemberState::Active, MemberState::Joining { cut: Some(v(3)) }, MemberState::Lapsed] {
            assert_eq!(step(state, MemberInput::OtherIncarnation), MemberState::Joining { cut: None });
        }
    }

    #[test]
    fn another_life_is_noticed_once() {
        let mut members = members(&[MemberState::Active]);
        assert!(
            !members.seen("m0", Some(LIFE)) && !members.seen("m0", None) && !members.seen("x", Some(LIFE))
        );
        assert!(members.seen("m0", Some(OTHER_LIFE)) && !members.seen("m0", Some(OTHER_LIFE)));
        assert_eq!(members.list()[0].state, MemberState::Joining { cut: None });
    }

    #[test]
    fn changes_are_sorted_and_refused_by_name() {
        let mut members = Members::default();
        for name in ["c", "a", "b"] {
            members.change(&MembersChange::Add(name.into())).expect("new");
        }
        let names: Vec<&str> = members.list().iter().map(|member| member.identity.as_str()).collect();
        assert_eq!(names, ["a", "b", "c"]);
        let long = "x".repeat(129);
        for name in ["a", "", "line\nbreak", &long] {
            let refused = members.change(&MembersChange::Add(name.into()));
            assert!(matches!(refused, Err(RequestError::Member { .. })), "{name:?}");
        }
        assert!(members.change(&MembersChange::Remove("x".into())).is_err());
        members.change(&MembersChange::Remove("b".into())).expect("a member");
        assert_eq!(members.list().len(), 2);
    }

    fn again(members: &mut Members, name: &str) -> Member {
        members.change(&MembersChange::Remove(name.into())).expect("a member");
        members.change(&MembersChange::Add(name.into())).expect("no member");
        members.get(name).expect("a member").clone()
    }

    #[test]
    fn added_anew_joins() {
        let mut members = members(&[]);
        members.change(&MembersChange::Add("m".into())).expect("new");
        let state = MemberState::Joining { cut: None };
        let joins = Member { identity: "m".into(), incarnation: None, state };
        assert_eq!(members.get("m"), Some(&joins));
        assert_eq!(again(&mut members, "m"), joins, "it never had anything");
    }

    #[test]
    fn added_again_is_lapsed_in_the_life_that_was_removed() {
        let cut = Some(v(4));
        for state in [MemberState::Active, MemberState::Joining { cut }, MemberState::Lapsed] {
            let mut members = members(&[state]);
            assert_eq!(again(&mut members, "m0").state, MemberState::Lapsed);
            assert!(!members.seen("m0", Some(LIFE)));
            assert_eq!(again(&mut members, "m0").state, MemberState::Lapsed, "{state:?}");
            assert!(members.seen("m0", Some(OTHER_LIFE)));
            assert_eq!(members.list()[0].state, MemberState::Joining { cut: None }, "it was reseeded");
        }
    }

    #[test]
    fn added_again_without_a_life_is_lapsed() {
        let mut members = members(&[MemberState::Active]);
        members.list[0].incarnation = None;
        assert_eq!(again(&mut members, "m0").state, MemberState::Lapsed);
    }

    #[test]
    fn added_again_after_all_were_removed_and_stored() {
        let mut members = members(&[MemberState::Active, MemberState::Active]);
        members.change(&MembersChange::Clear).expect("always");
        let mut members = Members::decode(&members.encode()).expect("just written");
        members.change(&MembersChange::Add("m1".into())).expect("no member");
        assert_eq!(members.list()[0].state, MemberState::Lapsed);
        assert_eq!(Members::decode(&members.encode()), Ok(members));
    }

    #[test]
    fn added_again_after_it_was_reseeded_or_took_a_snapshot_joins() {
        let joins = MemberState::Joining { cut: None };
        for reseeded in [false, true] {
            let mut members = members(&[MemberState::Active]);
            members.change(&MembersChange::Remove("m0".into())).expect("a member");
            if reseeded {
                assert!(members.seen("m0", Some(OTHER_LIFE)));
            } else {
                assert!(members.advance("m0", MemberInput::Reads { cut: v(5) }));
                assert_eq!(again_state(members.clone()), MemberState::Joining { cut: Some(v(5)) });
                assert!(members.advance("m0", MemberInput::Acknowledged { version: v(5) }));
            }
            assert_eq!(again_state(members), joins, "{reseeded}");
        }
    }

    fn again_state(mut members: Members) -> MemberState {
        assert_eq!(Members::decode(&members.encode()), Ok(members.clone()));
        members.change(&MembersChange::Add("m0".into())).expect("no member");
        members.list()[0].state
    }

    #[test]
    fn another_life_that_came_while_a_removal_was_stored_is_the_removed_one() {
        let mut members = members(&[MemberState::Active]);
        let mut stored = members.clone();
        stored.change(&MembersChange::Remove("m0".into())).expect("a member");
        members.seen("m0", Some(OTHER_LIFE));
        stored.carry_over(&members.list()[0]);
        stored.change(&MembersChange::Add("m0".into())).expect("no member");
        assert!(!stored.seen("m0", Some(OTHER_LIFE)));
        assert_eq!(stored.list()[0].state, MemberState::Lapsed);
    }

    #[test]
    fn so_many_removed_ones_are_remembered() {
        let mut members = members(&[]);
        for i in 0..=MEMBERS_MAX {
            let name = format!("m{i}");
            members.change(&MembersChange::Add(name.clone())).expect("new");
            members.seen(&name, Some(LIFE));
            members.change(&MembersChange::Remove(name)).expect("a member");
        }
        assert_eq!(members.removed.len(), MEMBERS_MAX);
        assert!(members.removed.iter().all(|removed| removed.identity != "m0"));
        assert_eq!(Members::decode(&members.encode()), Ok(members));
    }

    #[test]
    fn the_list_is_limited() {
        let mut members = Members::default();
        for i in 0..MEMBERS_MAX {
            members.change(&MembersChange::Add(format!("m{i}"))).expect("below the limit");
        }
        assert!(members.change(&MembersChange::Add("one-more".into())).is_err());
    }
}
