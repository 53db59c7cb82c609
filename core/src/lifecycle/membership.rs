//! Who must have the records before compaction drops them from the journal.

use super::api::{MembersChange, RequestError};
pub use super::bound::compaction_bound;
use crate::id::Incarnation;
use crate::record::Version;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Most members.
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
    /// It fell too far behind: it does not count, and must be reseeded.
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
/// identity, at most [`MEMBERS_MAX`].
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
    configured: bool,
    list: Vec<Member>,
}

/// A sidecar that is not what was written.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("sidecar content: expected {expected}, found {found}")]
pub struct ContentError {
    /// What the format asks for.
    pub expected: &'static str,
    /// What is there, or what the decoder said.
    pub found: String,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Sidecar {
    members: Vec<SidecarMember>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct SidecarMember {
    identity: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    incarnation: Option<String>,
    state: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cut: Option<(u64, u64)>,
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
                    let state = MemberState::Joining { cut: None };
                    self.list.insert(at, Member { identity: name.clone(), incarnation: None, state });
                }
            },
            MembersChange::Remove(name) => match self.find(name) {
                Ok(at) => drop(self.list.remove(at)),
                Err(_) => return refuse(name, "it is no member".into()),
            },
            MembersChange::Clear => self.list.clear(),
        }
        self.configured = true;
        Ok(())
    }

    /// Notes which life of a member's data was authenticated. Another one than before starts over;
    /// a member that names none keeps what it has. Returns whether something changed.
    pub fn seen(&mut self, identity: &str, incarnation: Option<Incarnation>) -> bool {
        let (Ok(at), Some(now)) = (self.find(identity), incarnation) else {
            return false;
        };
        let member = &mut self.list[at];
        match member.incarnation.replace(now) {
            Some(before) if before == now => false,
            Some(_) => {
                member.state = step(member.state, MemberInput::OtherIncarnation);
                true
            }
            None => true,
        }
    }

    /// Moves a member on; an identity that is no member is ignored. Returns whether something
    /// changed.
    pub fn advance(&mut self, identity: &str, input: MemberInput) -> bool {
        let Ok(at) = self.find(identity) else {
            return false;
        };
        let before = self.list[at].state;
        self.list[at].state = step(before, input);
        self.list[at].state != before
    }

    /// Takes over what happened to a member since the list was copied to be changed.
    pub(super) fn carry_over(&mut self, member: &Member) {
        if let Ok(at) = self.find(&member.identity) {
            self.list[at] = member.clone();
        }
    }

    /// The content of the sidecar: JSON.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let members = self.list.iter().map(|member| SidecarMember {
            identity: member.identity.clone(),
            incarnation: member.incarnation.map(|incarnation| incarnation.to_string()),
            state: member.state.name().to_string(),
            cut: match member.state {
                MemberState::Joining { cut } => cut.map(|cut| (cut.epoch, cut.sequence)),
                MemberState::Active | MemberState::Lapsed => None,
            },
        });
        serde_json::to_vec(&Sidecar { members: members.collect() }).expect("strings and numbers are JSON")
    }

    /// Reads the content of a sidecar that is there. One that is missing is [`Members::default`].
    ///
    /// # Errors
    /// It is not what [`Members::encode`] writes; `{}` and `null` are no membership.
    pub fn decode(content: &[u8]) -> Result<Self, ContentError> {
        let wrong = |expected, found: &str| ContentError { expected, found: found.to_string() };
        let sidecar: Sidecar = serde_json::from_slice(content)
            .map_err(|error| wrong("an object with a list of members", &error.to_string()))?;
        if sidecar.members.len() > MEMBERS_MAX {
            return Err(wrong("at most 1024 members", &sidecar.members.len().to_string()));
        }
        let mut list: Vec<Member> = Vec::with_capacity(sidecar.members.len());
        for member in sidecar.members {
            if list.last().is_some_and(|last| last.identity >= member.identity) {
                return Err(wrong("members sorted by identity", &member.identity));
            }
            if let Some(found) = identity_fault(&member.identity) {
                return Err(wrong("identities of 1 to 128 printable bytes", &found));
            }
            let state = match (member.state.as_str(), member.cut) {
                ("joining", cut) => {
                    MemberState::Joining { cut: cut.map(|(epoch, sequence)| Version::new(epoch, sequence)) }
                }
                ("active", None) => MemberState::Active,
                ("lapsed", None) => MemberState::Lapsed,
                (found, _) => return Err(wrong("joining, or active or lapsed without a cut", found)),
            };
            let incarnation = match &member.incarnation {
                Some(text) => Some(
                    Incarnation::parse(text).ok_or_else(|| wrong("an incarnation of 24 hex digits", text))?,
                ),
                None => None,
            };
            list.push(Member { identity: member.identity, incarnation, state });
        }
        Ok(Self { configured: true, list })
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
        Members { configured: true, list }
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

    #[test]
    fn the_list_is_limited() {
        let mut members = Members::default();
        for i in 0..MEMBERS_MAX {
            members.change(&MembersChange::Add(format!("m{i}"))).expect("below the limit");
        }
        assert!(members.change(&MembersChange::Add("one-more".into())).is_err());
    }

    #[test]
    fn every_state_round_trips() {
        let mut members = members(&[
            MemberState::Joining { cut: None },
            MemberState::Joining { cut: Some(v(4)) },
            MemberState::Active,
            MemberState::Lapsed,
        ]);
        members.list[0].incarnation = None;
        assert_eq!(Members::decode(&members.encode()), Ok(members));
        let mut empty = Members::default();
        empty.change(&MembersChange::Clear).expect("always");
        assert_eq!(Members::decode(&empty.encode()), Ok(empty));
    }

    #[test]
    fn what_is_no_membership() {
        for content in [
            "",
            "{}",
            "null",
            r#"{"members":null}"#,
            r#"{"members":[],"more":1}"#,
            r#"{"members":[{"identity":"","state":"active"}]}"#,
            r#"{"members":[{"identity":"a","state":"gone"}]}"#,
            r#"{"members":[{"identity":"a","state":"active","cut":[1,2]}]}"#,
            r#"{"members":[{"identity":"a","state":"active","incarnation":"00"}]}"#,
            r#"{"members":[{"identity":"b","state":"active"},{"identity":"a","state":"active"}]}"#,
        ] {
            assert!(Members::decode(content.as_bytes()).is_err(), "{content}");
        }
    }
}
