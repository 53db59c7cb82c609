//! How a v1 journal is refused.

use super::super::envelope::EnvelopeError;
use super::super::payload::PayloadError;
use super::super::{Improvement, ReferenceNames, Rule};
use super::header::HeaderError;
use crate::error::{Classified, Family, StorageCause, StorageFault};
use crate::record::Version;
use crate::wire::error::RepairFault;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// Why a v1 journal, or an entry for it, is refused. Offsets count from the start of the file.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum JournalError {
    /// More bytes than the limit.
    #[error("journal has {bytes} bytes: expected at most {bytes_max}")]
    TooLong {
        /// What was found, or would be after an append.
        bytes: u64,
        /// The limit.
        bytes_max: u64,
    },
    /// More entries than the limit.
    #[error("journal has {entries} entries: expected at most {entries_max}")]
    TooMany {
        /// What was found, or would be after an append.
        entries: u64,
        /// The limit.
        entries_max: u32,
    },
    /// No bytes at all: neither a journal nor the sign that there never was one.
    #[error("journal file is empty: expected a header of 28 bytes")]
    Empty,
    /// The header is not one of this format.
    #[error("journal header: {0}")]
    Header(#[from] HeaderError),
    /// An entry's envelope is damaged.
    #[error("journal entry at offset {offset}: {source}")]
    Envelope {
        /// Where the entry starts.
        offset: u64,
        /// What is wrong with it.
        source: EnvelopeError,
    },
    /// An entry that looks torn and is not: what follows its length shows that more was written.
    #[error(
        "journal entry at offset {offset} claims {claimed} bytes, {left} are left, and a whole entry starts \
         at offset {proof}: its length is damaged, nothing was torn"
    )]
    Damaged {
        /// Where the damaged entry starts.
        offset: u64,
        /// Payload bytes it claims.
        claimed: u64,
        /// Bytes from its start to the end of the file.
        left: u64,
        /// Where the entry starts that proves it; the same offset if only the length is wrong.
        proof: u64,
    },
    /// An entry that looks torn, and looking for proof took more work than allowed.
    #[error(
        "journal entry at offset {offset} may be torn or damaged: gave up after {bytes_max} bytes of checks"
    )]
    Undecided {
        /// Where the entry starts.
        offset: u64,
        /// The limit.
        bytes_max: u64,
    },
    /// An entry whose payload is no record.
    #[error("journal entry at offset {offset}: {source}")]
    Payload {
        /// Where the entry starts.
        offset: u64,
        /// What is wrong with it.
        source: PayloadError,
    },
    /// Versions that do not strictly increase from the floor.
    #[error("journal entry at offset {offset} has version {found}: expected one above {previous}")]
    Order {
        /// Where the entry starts, or would.
        offset: u64,
        /// The version before it.
        previous: Version,
        /// Its version.
        found: Version,
    },
    /// A record that no repair message could carry.
    #[error("no repair message can carry the record: {0}")]
    Unsendable(RepairFault),
}

impl JournalError {
    /// Where in the file, if at one place.
    #[must_use]
    pub const fn offset(&self) -> Option<u64> {
        match self {
            Self::Envelope { offset, .. }
            | Self::Damaged { offset, .. }
            | Self::Undecided { offset, .. }
            | Self::Payload { offset, .. }
            | Self::Order { offset, .. } => Some(*offset),
            Self::Header(_) => Some(0),
            Self::TooLong { .. } | Self::TooMany { .. } | Self::Empty | Self::Unsendable(_) => None,
        }
    }

    /// The rule under which the reference answers otherwise, if there is one.
    #[must_use]
    pub fn rule(&self) -> Option<Rule> {
        match self {
            Self::Empty => Some(Rule::Improvement(Improvement::EmptyFile)),
            Self::Damaged { .. } | Self::Undecided { .. } => {
                Some(Rule::Improvement(Improvement::DamageNotTorn))
            }
            Self::Unsendable(_) => Some(Rule::Improvement(Improvement::Unsendable)),
            Self::Payload { source, .. } => source.rule(),
            Self::Header(header) => header.rule(),
            Self::TooLong { .. } | Self::TooMany { .. } | Self::Envelope { .. } | Self::Order { .. } => None,
        }
    }

    /// The same as a fault of the file called `file`.
    #[must_use]
    pub fn into_fault(self, file: impl Into<String>) -> StorageFault {
        let newer = matches!(self, Self::Header(HeaderError::Format { .. }));
        let mut fault = StorageFault::damaged(file, 0, self.to_string());
        fault.offset = self.offset();
        if newer {
            fault.cause = StorageCause::Newer;
        }
        fault
    }
}

impl Classified for JournalError {
    const FAMILY: Family = Family::Storage;
}

impl ReferenceNames for JournalError {
    fn reference_names(&self) -> Vec<&'static str> {
        alloc::vec![match self {
            Self::TooLong { .. } | Self::TooMany { .. } => "ErrJournalLimit",
            Self::Empty | Self::Damaged { .. } | Self::Undecided { .. } | Self::Payload { .. } => {
                "ErrJournalCorrupt"
            }
            Self::Header(header) => header.reference_name(),
            Self::Envelope { source, .. } => match source {
                EnvelopeError::Checksum { .. } => "ErrJournalChecksum",
                EnvelopeError::Cut { .. }
                | EnvelopeError::Empty { .. }
                | EnvelopeError::TooLong { .. }
                | EnvelopeError::Trailing { .. } => "ErrJournalCorrupt",
            },
            Self::Order { .. } => "ErrJournalVersionOrder",
            Self::Unsendable(_) => "ErrRepairLimit",
        }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_names_file_offset_and_a_newer_format() {
        let fault = JournalError::Header(HeaderError::Format { found: 2 }).into_fault("journal");
        assert_eq!((fault.cause, fault.offset), (StorageCause::Newer, Some(0)));
        let (offset, found) = (225, Version::new(1, 1));
        let fault = JournalError::Order { offset, previous: found, found }.into_fault("journal");
        assert_eq!((fault.cause, fault.offset), (StorageCause::Damaged, Some(225)));
        assert!(fault.to_string().contains("journal at offset 225"), "{fault}");
    }
}
