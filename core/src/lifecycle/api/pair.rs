//! The verdict over a pair of replicas.

use crate::record::Version;
use alloc::string::String;
use core::fmt;

/// How far a completeness between two peers was verified.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Verified {
    /// The digests of the common history agree.
    Digest,
    /// There was no common anchor: by version only.
    VersionOnly,
}

/// Why a pair of peers stands as it does. A closed set: it becomes a metric label.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum PairReason {
    /// The peer is below the floor: a snapshot is needed.
    BelowFloor,
    /// The peer has records above our tail and may not send them.
    AheadOfTail,
    /// Another history at the same version.
    OtherHistory,
    /// A version between floor and tail that our log does not have.
    ForeignVersion,
    /// Another life of the same name: it holds less than it acknowledged (wiped, or a copy put back),
    /// or records that we lack.
    OtherIncarnation,
    /// Records of an epoch that ended: another authority has begun a later one.
    FencedEpoch,
    /// The peer takes no snapshot of this size.
    SnapshotTooLarge,
    /// The peer takes no blob of this size.
    BlobTooLarge,
    /// A blob that the peer needs is not stored here.
    BlobMissing,
    /// The peer's acknowledgements bring repair no further.
    NoProgress,
}

impl PairReason {
    /// Every reason.
    pub const ALL: [Self; 10] = [
        Self::BelowFloor,
        Self::AheadOfTail,
        Self::OtherHistory,
        Self::ForeignVersion,
        Self::OtherIncarnation,
        Self::FencedEpoch,
        Self::SnapshotTooLarge,
        Self::BlobTooLarge,
        Self::BlobMissing,
        Self::NoProgress,
    ];

    /// The word for it, on the wire and in metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::BelowFloor => "below-floor",
            Self::AheadOfTail => "ahead-of-tail",
            Self::OtherHistory => "other-history",
            Self::ForeignVersion => "foreign-version",
            Self::OtherIncarnation => "other-incarnation",
            Self::FencedEpoch => "fenced-epoch",
            Self::SnapshotTooLarge => "snapshot-too-large",
            Self::BlobTooLarge => "blob-too-large",
            Self::BlobMissing => "blob-missing",
            Self::NoProgress => "no-progress",
        }
    }

    /// The reason of this name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.name() == name)
    }
}

impl fmt::Display for PairReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Where two histories part, as evidence.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Divergence {
    /// The version at which they are known to differ.
    pub at: Version,
    /// Our digest or version there.
    pub ours: String,
    /// The peer's.
    pub theirs: String,
    /// Which kind of difference.
    pub reason: PairReason,
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}: ours {}, theirs {}", self.reason, self.at, self.ours, self.theirs)
    }
}

/// The verdict over a pair of peers.
pub type PairVerdict = crate::verdict::Verdict<Version, Verified, PairReason, Divergence>;
