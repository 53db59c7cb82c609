//! The v1 membership file: one envelope around `{members:[…]}`, sorted; and what the reference asks
//! of it before a compaction.

use super::envelope::{self, ENVELOPE_BYTES, EnvelopeError};
use super::payload::{self, PayloadError};
use super::peer::{PeerName, PeerNameError};
use super::watermarks::Watermarks;
use super::{Improvement, ReferenceNames, Rule};
use crate::error::{Classified, Family};
use crate::record::Version;
use crate::wire::json_write::{write_list, write_string};
use alloc::boxed::Box;
use alloc::vec::Vec;

/// Bounds of a v1 membership file. The defaults are the reference's.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct MembershipLimits {
    /// Most members.
    pub members_max: u32,
    /// Longest name of a member.
    pub name_bytes_max: u32,
    /// Longest file.
    pub membership_file_bytes_max: u64,
}

impl Default for MembershipLimits {
    fn default() -> Self {
        Self { members_max: 1024, name_bytes_max: 128, membership_file_bytes_max: 1 << 20 }
    }
}

/// Why names are no membership.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum MembershipError {
    /// More members than the limit.
    #[error("membership has {members} members: expected at most {members_max}")]
    TooMany {
        /// What was found.
        members: usize,
        /// The limit.
        members_max: u32,
    },
    /// A member whose name is none.
    #[error("member {index}: {source}")]
    Name {
        /// Which one, from 0.
        index: usize,
        /// Why.
        source: PeerNameError,
    },
    /// One member twice.
    #[error("membership names {name} twice: expected each member once")]
    Duplicate {
        /// Which member.
        name: PeerName,
    },
    /// More bytes than the limit.
    #[error("membership file has {bytes} bytes: expected at most {bytes_max}")]
    TooLong {
        /// What was found, or would be written.
        bytes: u64,
        /// The limit.
        bytes_max: u64,
    },
}

impl Classified for MembershipError {
    const FAMILY: Family = Family::Caller;
}

impl ReferenceNames for MembershipError {
    fn reference_names(&self) -> Vec<&'static str> {
        alloc::vec![match self {
            Self::TooMany { .. } | Self::TooLong { .. } => "ErrMembershipLimit",
            Self::Name { .. } => "ErrMembershipPeerInvalid",
            Self::Duplicate { .. } => "ErrMembershipDuplicate",
        }]
    }
}

/// Why a membership file is refused.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum MembershipFileError {
    /// More bytes than the limit.
    #[error("membership file has {bytes} bytes: expected at most {bytes_max}")]
    TooLong {
        /// What was found.
        bytes: u64,
        /// The limit.
        bytes_max: u64,
    },
    /// Not one whole envelope.
    #[error("membership file: {0}")]
    Envelope(#[from] EnvelopeError),
    /// Not the JSON of a membership.
    #[error("membership file: {0}")]
    Payload(#[from] PayloadError),
    /// No set at all. The empty set opens the compaction fence, so it must be written out.
    #[error("membership file names no set of members: expected a list, `[]` if nobody counts")]
    NoSet,
    /// The members are no membership.
    #[error("membership file: {0}")]
    Members(#[from] MembershipError),
}

impl MembershipFileError {
    /// The rule under which the reference answers otherwise, if there is one.
    #[must_use]
    pub fn rule(&self) -> Option<Rule> {
        match self {
            Self::NoSet => Some(Rule::Improvement(Improvement::ExplicitMembership)),
            Self::Payload(payload) => payload.rule(),
            Self::TooLong { .. } | Self::Envelope(_) | Self::Members(_) => None,
        }
    }
}

impl Classified for MembershipFileError {
    const FAMILY: Family = Family::Storage;
}

impl ReferenceNames for MembershipFileError {
    fn reference_names(&self) -> Vec<&'static str> {
        let mut names = alloc::vec![match self {
            Self::TooLong { .. } => "ErrMembershipLimit",
            Self::Envelope(EnvelopeError::Checksum { .. }) => "ErrMembershipChecksum",
            Self::Envelope(_) | Self::Payload(_) | Self::NoSet | Self::Members(_) => "ErrMembershipCorrupt",
        }];
        if let Self::Members(error) = self {
            names.extend(error.reference_names());
        }
        names
    }
}

/// Who counts for compaction: written by a person, may be empty. That nobody wrote one is not this
/// type's value but `None` beside it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Membership {
    members: Vec<PeerName>,
}

impl Membership {
    /// Judges names in any order.
    ///
    /// # Errors
    /// In this order: too many; the first that is no name; one twice.
    pub fn new<N: AsRef<[u8]>>(names: &[N], limits: &MembershipLimits) -> Result<Self, MembershipError> {
        let members_max = limits.members_max;
        if u32::try_from(names.len()).map_or(true, |members| members > members_max) {
            return Err(MembershipError::TooMany { members: names.len(), members_max });
        }
        let mut members = Vec::with_capacity(names.len());
        for (index, name) in names.iter().enumerate() {
            let name = PeerName::parse(name.as_ref(), limits.name_bytes_max)
                .map_err(|source| MembershipError::Name { index, source })?;
            members.push(name);
        }
        members.sort();
        match members.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(MembershipError::Duplicate { name: pair[0].clone() }),
            None => Ok(Self { members }),
        }
    }

    /// The members, bytewise sorted, each once.
    #[must_use]
    pub fn members(&self) -> &[PeerName] {
        &self.members
    }

    /// Reads a whole file.
    ///
    /// # Errors
    /// It is too long, not one whole envelope, not strictly a membership, names no set, or its
    /// members are no membership. Members out of order are refused, where the reference sorts them.
    pub fn decode(file: &[u8], limits: &MembershipLimits) -> Result<Self, MembershipFileError> {
        let (bytes, bytes_max) = (file.len() as u64, limits.membership_file_bytes_max);
        if bytes > bytes_max {
            return Err(MembershipFileError::TooLong { bytes, bytes_max });
        }
        let text = envelope::whole(file, bytes_max)?;
        let names = payload::membership(text)?.ok_or(MembershipFileError::NoSet)?;
        let read = Self::new(&names.iter().map(|name| name.as_bytes()).collect::<Vec<_>>(), limits)?;
        if !names.is_sorted() {
            return Err(PayloadError::unsorted("members are not sorted bytewise").into());
        }
        Ok(read)
    }

    /// The file, as the reference writes it.
    ///
    /// # Errors
    /// It would be too long.
    pub fn encode(&self, limits: &MembershipLimits) -> Result<Vec<u8>, MembershipError> {
        let mut text = Vec::from(br#"{"members":"#);
        write_list(&self.members, &mut text, |name, out| write_string(name.as_str(), out));
        text.push(b'}');
        let (bytes, bytes_max) = ((text.len() + ENVELOPE_BYTES) as u64, limits.membership_file_bytes_max);
        if bytes > bytes_max {
            return Err(MembershipError::TooLong { bytes, bytes_max });
        }
        let mut file = Vec::with_capacity(text.len() + ENVELOPE_BYTES);
        envelope::put(&mut file, &text);
        Ok(file)
    }
}

/// How far the members have come, without their names.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Progress {
    /// Whether a membership was written.
    pub configured: bool,
    /// How many members count.
    pub members: usize,
    /// How many of them acknowledged the target; none if the target is zero.
    pub acknowledged: usize,
    /// The lowest mark of a member; zero if there is none.
    pub minimum: Version,
    /// What was asked about.
    pub target: Version,
}

/// How many members acknowledged `target`.
#[must_use]
pub fn progress(membership: Option<&Membership>, acked: &Watermarks, target: Version) -> Progress {
    let members = membership.map_or(&[][..], Membership::members);
    let marks = || members.iter().map(|member| acked.of(member));
    Progress {
        configured: membership.is_some(),
        members: members.len(),
        acknowledged: marks().filter(|mark| !target.is_zero() && *mark >= target).count(),
        minimum: marks().min().unwrap_or(Version::ZERO),
        target,
    }
}

/// Why the members do not allow a compaction.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum FenceError {
    /// Zero is no compaction target.
    #[error("compaction target is zero: expected a version")]
    TargetZero,
    /// Nobody wrote a membership: nothing may be compacted.
    #[error("no membership is configured: expected one, an empty list if nobody counts")]
    NotConfigured,
    /// A member has not come this far.
    #[error("member {name} acknowledged {acked}: expected at least {target}")]
    Behind {
        /// Which member.
        name: Box<PeerName>,
        /// How far it has come.
        acked: Version,
        /// What was asked for.
        target: Version,
    },
}

impl Classified for FenceError {
    const FAMILY: Family = Family::Caller;
}

impl ReferenceNames for FenceError {
    fn reference_names(&self) -> Vec<&'static str> {
        alloc::vec![match self {
            Self::TargetZero => "ErrMembershipWatermarkInvalid",
            Self::NotConfigured => "ErrMembershipNotConfigured",
            Self::Behind { .. } => "ErrMembershipBehind",
        }]
    }
}

/// Every member's mark, in the members' order, if all of them acknowledged `target`.
///
/// # Errors
/// In the order of [`FenceError`].
pub fn watermarks_at(
    membership: Option<&Membership>,
    acked: &Watermarks,
    target: Version,
) -> Result<Vec<Version>, FenceError> {
    if target.is_zero() {
        return Err(FenceError::TargetZero);
    }
    let members = membership.ok_or(FenceError::NotConfigured)?.members();
    let mark = |member: &PeerName| {
        let acked = acked.of(member);
        if acked < target {
            return Err(FenceError::Behind { name: Box::new(member.clone()), acked, target });
        }
        Ok(acked)
    };
    members.iter().map(mark).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new(names: &[&str]) -> Result<Membership, MembershipError> {
        Membership::new(names, &MembershipLimits { members_max: 3, ..MembershipLimits::default() })
    }

    #[test]
    fn too_many_comes_before_a_bad_name() {
        let refused = MembershipError::TooMany { members: 4, members_max: 3 };
        assert_eq!(new(&["", "", "", ""]), Err(refused));
    }

    #[test]
    fn name_comes_before_duplicate() {
        assert!(matches!(new(&["a", "a", ""]), Err(MembershipError::Name { index: 2, .. })));
    }

    #[test]
    fn duplicate() {
        assert!(matches!(new(&["a", "b", "a"]), Err(MembershipError::Duplicate { .. })));
    }

    #[test]
    fn members_are_sorted_and_come_back() {
        let limits = MembershipLimits::default();
        let made = new(&["b", "B", "\u{e9}"]).unwrap();
        let file = made.encode(&limits).unwrap();
        assert_eq!(&file[4..file.len() - 4], "{\"members\":[\"B\",\"b\",\"\u{e9}\"]}".as_bytes());
        assert_eq!(Membership::decode(&file, &limits), Ok(made));
    }

    #[test]
    fn finding_j10_only_a_list_is_a_set() {
        let limits = MembershipLimits::default();
        for text in ["{}", "null", "{\"members\":null}"] {
            let mut file = Vec::new();
            envelope::put(&mut file, text.as_bytes());
            assert_eq!(Membership::decode(&file, &limits), Err(MembershipFileError::NoSet), "{text}");
        }
        let mut file = Vec::new();
        envelope::put(&mut file, b"{\"members\":[]}");
        assert_eq!(Membership::decode(&file, &limits).unwrap().members(), []);
    }

    #[test]
    fn not_configured_is_not_empty() {
        let acked = Watermarks::default();
        let target = Version::new(1, 1);
        assert_eq!(watermarks_at(None, &acked, target), Err(FenceError::NotConfigured));
        let empty = new(&[]).unwrap();
        assert_eq!(watermarks_at(Some(&empty), &acked, target), Ok(Vec::new()));
        assert!(!progress(None, &acked, target).configured);
    }

    #[test]
    fn target_zero_comes_before_everything() {
        let acked = Watermarks::default();
        assert_eq!(watermarks_at(None, &acked, Version::ZERO), Err(FenceError::TargetZero));
    }

    #[test]
    fn behind_names_the_member() {
        let members = new(&["a"]).unwrap();
        let found = watermarks_at(Some(&members), &Watermarks::default(), Version::new(1, 1));
        assert!(matches!(found, Err(FenceError::Behind { name, .. }) if name.as_str() == "a"));
    }
}
