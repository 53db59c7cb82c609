//! The one table that decides how a journal ends.

use super::super::command::FileName;
use super::super::segment::Position;
use crate::error::{Classified, Family, StorageAction, StorageCause, StorageFault};
use alloc::format;
use alloc::string::String;

/// What recovery can find where the valid batches stop, or instead of a segment.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum EndCase {
    /// The last batch ends where the file ends.
    CleanEnd,
    /// Only zeros follow the last batch: prepared space.
    ZeroTail,
    /// The newest segment was entered and holds no batch yet.
    EmptyNewest,
    /// The newest segment is all zeros: prepared, never entered.
    Unentered,
    /// A header of the newest segment does not verify and only zeros follow it: the crash came
    /// while the segment was entered.
    HeaderCut,
    /// A batch header that does not verify, and nothing behind it proves that it was durable:
    /// torn, or bytes under another salt, segment or offset.
    TornHeader,
    /// A batch header that verifies over a payload that does not, and nothing behind it proves
    /// that it was durable.
    TornPayload,
    /// Zeros where a header would be, then other bytes that prove nothing: sectors of the last
    /// append that landed out of order, a cut that was interrupted, or an earlier life.
    StaleBytes,
    /// A batch does not verify, and an intact header behind it says that it was durable.
    DamageBeforeIntact,
    /// A batch does not verify, and the header of the next segment says that it was durable.
    DamageBeforeNextSegment,
    /// A batch or a segment verifies but has another LSN than comes next.
    WrongSequence,
    /// A batch verifies but its payload is not entries.
    Malformed,
    /// The visitor refused an entry.
    EntryRefused,
    /// A segment names another number than its file does.
    WrongSegment,
    /// A segment belongs to another log.
    OtherLog,
    /// A segment in the middle, or the first one, is not there.
    MissingSegment,
    /// A file is shorter than it was prepared.
    ShortSegment,
    /// A bad header in a segment with a newer one behind it.
    BadHeaderNotNewest,
    /// A bad header in the newest segment, with other bytes than zeros behind it.
    BadHeaderThenBytes,
    /// The first segment, which `current` names and which was entered before it was named, has no
    /// valid header.
    FirstNotEntered,
    /// A segment of a newer format.
    NewerFormat,
    /// More than the limits allow.
    LimitExceeded,
    /// A read failed, or gave fewer bytes than the file was listed with.
    ReadError,
}

/// What recovery does in an [`EndCase`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Decision {
    /// The journal ends here and goes on here.
    Keep,
    /// Nothing from here on was acknowledged: keep a copy, cut it off, go on here.
    Cut,
    /// The segment holds nothing: go on in the one before, prepare this one again.
    Prepare,
    /// Open nothing, change nothing, say what to do.
    Refuse {
        /// The cause reported.
        cause: StorageCause,
        /// What a person can do.
        advice: &'static str,
    },
}

const fn refuse(cause: StorageCause, advice: &'static str) -> Decision {
    Decision::Refuse { cause, advice }
}

const RESTORE: &str = "restore the file from a copy, or reseed this replica from a peer";

impl EndCase {
    /// The table.
    #[must_use]
    pub const fn decision(self) -> Decision {
        use StorageCause::{Damaged, Failed, Missing, Newer};
        match self {
            Self::CleanEnd | Self::ZeroTail | Self::EmptyNewest | Self::Unentered => Decision::Keep,
            Self::HeaderCut => Decision::Prepare,
            Self::TornHeader | Self::TornPayload | Self::StaleBytes => Decision::Cut,
            Self::DamageBeforeIntact
            | Self::DamageBeforeNextSegment
            | Self::WrongSequence
            | Self::Malformed
            | Self::WrongSegment
            | Self::ShortSegment
            | Self::BadHeaderNotNewest
            | Self::BadHeaderThenBytes
            | Self::FirstNotEntered => refuse(Damaged, RESTORE),
            Self::EntryRefused => {
                refuse(Damaged, "restore the file, or open it with the program that wrote it")
            }
            Self::OtherLog => refuse(Damaged, "move the file to the directory of its own log"),
            Self::MissingSegment => refuse(Missing, RESTORE),
            Self::NewerFormat => refuse(Newer, "open the directory with a newer program"),
            Self::LimitExceeded => refuse(Failed, "raise the limit to what it was when this was written"),
            Self::ReadError => {
                refuse(Failed, "repair the disk, or restore the file from a copy, then start again")
            }
        }
    }
}

/// Why recovery stopped. Nothing was changed before a refusal.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RecoveryFault {
    /// What is stored must not be opened.
    #[error("{fault}")]
    Refused {
        /// The row of the table.
        case: EndCase,
        /// File, offset, what was expected and found, and what to do.
        fault: StorageFault,
    },
    /// A cut or a sync failed. Start again: both are harmless to repeat.
    #[error("{0}")]
    Failed(StorageFault),
}

impl RecoveryFault {
    /// The fault itself.
    #[must_use]
    pub const fn fault(&self) -> &StorageFault {
        match self {
            Self::Refused { fault, .. } | Self::Failed(fault) => fault,
        }
    }

    /// Refuses with the cause and advice of the table.
    ///
    /// # Panics
    /// If the table does not refuse `case`: a broken invariant.
    pub(super) fn refused(case: EndCase, at: Position, detail: impl Into<String>) -> Self {
        let Decision::Refuse { cause, advice } = case.decision() else { panic!("{case:?} is no refusal") };
        let detail = format!("{}; {advice}", detail.into());
        let fault = StorageFault {
            action: StorageAction::Decode,
            file: FileName::Segment(at.segment).into(),
            offset: Some(at.offset),
            cause,
            detail,
        };
        Self::Refused { case, fault }
    }

    /// A read that failed: never the end of the log.
    pub(super) const fn read(fault: StorageFault) -> Self {
        Self::Refused { case: EndCase::ReadError, fault }
    }
}

impl Classified for RecoveryFault {
    const FAMILY: Family = Family::Storage;
}
