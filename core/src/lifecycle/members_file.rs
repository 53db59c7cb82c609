//! The sidecar `members`: who counts, and who did.

use super::membership::{MEMBERS_MAX, Member, MemberState, Members, identity_fault};
use crate::id::Incarnation;
use crate::record::Version;
use alloc::collections::VecDeque;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

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
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    removed: Vec<SidecarMember>,
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

impl Members {
    /// The content of the sidecar: JSON.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let members = self.list.iter().map(SidecarMember::of).collect();
        let removed = self.removed.iter().map(SidecarMember::of).collect();
        serde_json::to_vec(&Sidecar { members, removed }).expect("strings and numbers are JSON")
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
            list.push(member.parsed()?);
        }
        let mut members = Self { configured: true, list, removed: VecDeque::new() };
        if sidecar.removed.len() > MEMBERS_MAX {
            return Err(wrong("at most 1024 removed members", &sidecar.removed.len().to_string()));
        }
        for member in sidecar.removed {
            let removed = member.parsed()?;
            let twice = members.removed.iter().any(|other| other.identity == removed.identity);
            if twice || members.get(&removed.identity).is_some() {
                return Err(wrong("removed members once, and none that is a member", &removed.identity));
            }
            if matches!(removed.state, MemberState::Active | MemberState::Joining { cut: None }) {
                return Err(wrong("removed members that lack something", &removed.identity));
            }
            members.removed.push_back(removed);
        }
        Ok(members)
    }
}

impl SidecarMember {
    fn of(member: &Member) -> Self {
        Self {
            identity: member.identity.clone(),
            incarnation: member.incarnation.map(|incarnation| incarnation.to_string()),
            state: member.state.name().to_string(),
            cut: match member.state {
                MemberState::Joining { cut } => cut.map(|cut| (cut.epoch, cut.sequence)),
                MemberState::Active | MemberState::Lapsed => None,
            },
        }
    }

    fn parsed(self) -> Result<Member, ContentError> {
        let wrong = |expected, found: &str| ContentError { expected, found: found.to_string() };
        let Self { identity, incarnation, state, cut } = self;
        if let Some(found) = identity_fault(&identity) {
            return Err(wrong("identities of 1 to 128 printable bytes", &found));
        }
        let state = match (state.as_str(), cut) {
            ("joining", cut) => {
                MemberState::Joining { cut: cut.map(|(epoch, sequence)| Version::new(epoch, sequence)) }
            }
            ("active", None) => MemberState::Active,
            ("lapsed", None) => MemberState::Lapsed,
            (found, _) => return Err(wrong("joining, or active or lapsed without a cut", found)),
        };
        let life = |text: &String| {
            Incarnation::parse(text).ok_or_else(|| wrong("an incarnation of 24 hex digits", text))
        };
        let incarnation = incarnation.as_ref().map(life).transpose()?;
        Ok(Member { identity, incarnation, state })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::api::MembersChange;
    use alloc::format;

    const LIFE: Incarnation = Incarnation { counter: 1, nonce: [1; 8] };

    #[test]
    fn every_state_round_trips() {
        let cut = Some(Version::new(1, 4));
        let states = [
            MemberState::Joining { cut: None },
            MemberState::Joining { cut },
            MemberState::Active,
            MemberState::Lapsed,
        ];
        let list = states.into_iter().enumerate().map(|(i, state)| {
            let incarnation = (i > 0).then_some(LIFE);
            Member { identity: format!("m{i}"), incarnation, state }
        });
        let removed = [("x", MemberState::Lapsed), ("r", MemberState::Joining { cut })];
        let removed =
            removed.map(|(name, state)| Member { identity: name.into(), incarnation: Some(LIFE), state });
        let members = Members { configured: true, list: list.collect(), removed: removed.into() };
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
            r#"{"members":[{"identity":"b","state":"active"}],"removed":[{"identity":"b","state":"lapsed"}]}"#,
            r#"{"members":[],"removed":[{"identity":"b","state":"lapsed"},{"identity":"b","state":"lapsed"}]}"#,
            r#"{"members":[],"removed":[{"identity":"","state":"lapsed"}]}"#,
            r#"{"members":[],"removed":[{"identity":"b","state":"active"}]}"#,
            r#"{"members":[],"removed":[{"identity":"b","incarnation":"00","state":"lapsed"}]}"#,
        ] {
            assert!(Members::decode(content.as_bytes()).is_err(), "{content}");
        }
    }
}
