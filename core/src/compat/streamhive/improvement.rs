//! The table of findings: where the reference's answer was measured to be wrong, and ours.
//!
//! Each row is recognised by a rule on the bytes, never by the name of a file, so that bytes nobody
//! has seen yet are judged by kind.

/// A finding about the reference and our other answer to it. One difference falls under exactly
/// one row; leniencies of the reference's JSON decoder are no findings but refusals
/// ([`crate::wire::json_read::Refusal`]).
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Improvement {
    /// (a) A journal entry whose length reaches beyond the file, with proof that more was written.
    DamageNotTorn,
    /// (i) A record inside the record limits that no repair message can carry.
    Unsendable,
    /// (j2) A journal file of no bytes.
    EmptyFile,
    /// (j3) A journal whose last whole entry is followed by zeros only.
    ZeroTail,
    /// (j10) A membership payload that names no set.
    ExplicitMembership,
    /// (j11) A journal with a torn tail that is over a limit.
    FailedOpenUntouched,
    /// (j14) A repair message followed by more JSON.
    TrailingDataNamed,
    /// (d, j5, j8) Records, or a snapshot, of a history that our log, which reaches as far, does not hold.
    ForeignHistory,
    /// (j7) An acknowledgement of what is no record of our log.
    ForeignAcknowledgement,
    /// (j6) Records whose blob is not stored.
    BlobsFirst,
    /// A stream of frames that ends right after a frame's magic or length, or inside a wrong magic.
    CutFrame,
}

impl Improvement {
    /// Every row, in the order of the table.
    pub const ALL: [Self; 11] = [
        Self::DamageNotTorn,
        Self::Unsendable,
        Self::EmptyFile,
        Self::ZeroTail,
        Self::ExplicitMembership,
        Self::FailedOpenUntouched,
        Self::TrailingDataNamed,
        Self::ForeignHistory,
        Self::ForeignAcknowledgement,
        Self::BlobsFirst,
        Self::CutFrame,
    ];

    /// The row's name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DamageNotTorn => "damage-not-torn",
            Self::Unsendable => "unsendable",
            Self::EmptyFile => "empty-file",
            Self::ZeroTail => "zero-tail",
            Self::ExplicitMembership => "explicit-membership",
            Self::FailedOpenUntouched => "failed-open-untouched",
            Self::TrailingDataNamed => "trailing-data-named",
            Self::ForeignHistory => "foreign-history",
            Self::ForeignAcknowledgement => "foreign-acknowledgement",
            Self::BlobsFirst => "blobs-first",
            Self::CutFrame => "cut-frame",
        }
    }

    /// The letter the finding is cited by; `None` for what only the vectors show.
    #[must_use]
    pub const fn finding(self) -> Option<&'static str> {
        match self {
            Self::DamageNotTorn => Some("a"),
            Self::Unsendable => Some("i"),
            Self::EmptyFile => Some("j2"),
            Self::ZeroTail => Some("j3"),
            Self::ExplicitMembership => Some("j10"),
            Self::FailedOpenUntouched => Some("j11"),
            Self::TrailingDataNamed => Some("j14"),
            Self::ForeignHistory => Some("d"),
            Self::ForeignAcknowledgement => Some("j7"),
            Self::BlobsFirst => Some("j6"),
            Self::CutFrame => None,
        }
    }

    /// When the row applies: a rule on the bytes and the reference's answer.
    #[must_use]
    pub const fn rule(self) -> &'static str {
        match self {
            Self::DamageNotTorn => {
                "an entry's length claims more bytes than the file holds, and the bytes behind the length \
                 start with a whole entry of another length or contain a whole later entry (or deciding \
                 takes more than 64 MiB of checksums)"
            }
            Self::Unsendable => "an appended record by itself exceeds a bound of the repair batch",
            Self::EmptyFile => "the journal file has no bytes",
            Self::ZeroTail => "the four or more bytes after the last whole entry are all zero",
            Self::ExplicitMembership => {
                "the membership payload is null, or an object whose `members` is absent or null"
            }
            Self::FailedOpenUntouched => "opening fails on a limit after a torn tail was found",
            Self::TrailingDataNamed => {
                "another JSON value follows the message, and the decoder was called for one message type"
            }
            Self::ForeignHistory => {
                "a batch or snapshot ends at or below our tail, and our log does not hold what it says"
            }
            Self::ForeignAcknowledgement => {
                "the acknowledged version lies above the floor and is no durable record of our log"
            }
            Self::BlobsFirst => "a record of the batch or snapshot names a blob that is not stored",
            Self::CutFrame => {
                "the stream ends right after a frame's magic, right after its non-zero length, or inside a \
                 magic that is wrong already"
            }
        }
    }

    /// What the reference does.
    #[must_use]
    pub const fn reference(self) -> &'static str {
        match self {
            Self::DamageNotTorn => "cuts the file at the entry; acknowledged records are gone",
            Self::Unsendable => "accepts the record; every later record is stuck behind it",
            Self::EmptyFile => "writes a new header and says nothing",
            Self::ZeroTail => "ErrJournalCorrupt for ever",
            Self::ExplicitMembership => "takes it for the explicit empty set: the compaction fence opens",
            Self::FailedOpenUntouched => "has cut the file before it fails",
            Self::TrailingDataNamed => "adds ErrRepairWatermarkMismatch, which it is not",
            Self::ForeignHistory => {
                "an order error, ErrSnapshotStale, or its own mark as if it had applied them"
            }
            Self::ForeignAcknowledgement => {
                "accepts what is at or below its tail; else ErrRepairAcknowledgement or ErrWatermarkRegression"
            }
            Self::BlobsFirst => "applies the records before it, then ErrLifecycleBlobMissing",
            Self::CutFrame => "io.EOF, as at a clean end; io.ErrUnexpectedEOF whatever the magic",
        }
    }

    /// What we do instead.
    #[must_use]
    pub const fn answer(self) -> &'static str {
        match self {
            Self::DamageNotTorn => "damage, with both offsets; nothing is read past it or changed",
            Self::Unsendable => "refused at append, naming the bound",
            Self::EmptyFile => {
                "an error that says the file is empty; a new journal is made only when asked for"
            }
            Self::ZeroTail => "a torn tail: the entries are read, the zeros are reported",
            Self::ExplicitMembership => "refused: an empty set is written as an empty list, by a person",
            Self::FailedOpenUntouched => "the same error; a v1 file is never written in place",
            Self::TrailingDataNamed => "malformed, and nothing else",
            Self::ForeignHistory => "diverged, on both sides; nothing is changed, nothing more is sent",
            Self::ForeignAcknowledgement => "diverged as a first word, the peer's fault later; no mark moves",
            Self::BlobsFirst => {
                "nothing is applied before its blobs; they are asked for, and a verdict says so if they do not come"
            }
            Self::CutFrame => "the error of a cut frame; a wrong magic as soon as it is",
        }
    }
}

impl core::fmt::Display for Improvement {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.name())
    }
}
