//! How a value is refused that should have been a record.

use crate::error::{Classified, Family};
use alloc::string::String;

/// Why a value is not a record. One variant for each record error the reference names; each says
/// what was expected, what was found, and the limit.
///
/// As an error of our caller it stands alone; what a peer sends wraps it in a
/// `WireError`, what a disk holds in a storage fault.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RecordError {
    /// The namespace has no bytes.
    #[error("namespace is empty: expected 1 to {bytes_max} bytes")]
    NamespaceEmpty {
        /// The limit.
        bytes_max: u32,
    },
    /// The namespace has too many bytes.
    #[error("namespace has {bytes} bytes: expected 1 to {bytes_max}")]
    NamespaceTooLarge {
        /// What was found.
        bytes: usize,
        /// The limit.
        bytes_max: u32,
    },
    /// The logical key has no bytes.
    #[error("logical key is empty: expected 1 to {bytes_max} bytes")]
    LogicalKeyEmpty {
        /// The limit.
        bytes_max: u32,
    },
    /// The logical key has too many bytes.
    #[error("logical key has {bytes} bytes: expected 1 to {bytes_max}")]
    LogicalKeyTooLarge {
        /// What was found.
        bytes: usize,
        /// The limit.
        bytes_max: u32,
    },
    /// The authority identity has no bytes.
    #[error("authority identity is empty: expected 1 to {bytes_max} bytes")]
    AuthorityEmpty {
        /// The limit.
        bytes_max: u32,
    },
    /// The authority identity has too many bytes.
    #[error("authority identity has {bytes} bytes of UTF-8: expected 1 to {bytes_max}")]
    AuthorityTooLarge {
        /// What was found.
        bytes: usize,
        /// The limit.
        bytes_max: u32,
    },
    /// The authority identity holds a character that does not print.
    #[error("authority identity holds {character:?} at byte {offset}: expected printable characters only")]
    AuthorityNotPrintable {
        /// The first such character.
        character: char,
        /// Where it starts, in bytes.
        offset: usize,
    },
    /// The state is neither of the two.
    #[error("state is {found:?}: expected \"present\" or \"deleted\"")]
    StateInvalid {
        /// The text found, at most 32 characters of it.
        found: String,
    },
    /// The blob key's length does not fit the state.
    #[error("blob key of a {state} record has {bytes} bytes: expected {bytes_expected}")]
    BlobKeyInvalid {
        /// The record's state.
        state: &'static str,
        /// What was found.
        bytes: usize,
        /// 32 for a present record, 0 for a deleted one.
        bytes_expected: usize,
    },
    /// A version of (0,0).
    #[error("version is zero, which means \"nothing yet\" and is no record's version")]
    VersionZero,
    /// The record, encoded as JSON, is too long.
    #[error("record has {bytes} bytes as JSON: expected at most {bytes_max}")]
    RecordTooLarge {
        /// What was found.
        bytes: usize,
        /// The limit.
        bytes_max: u32,
    },
}

impl Classified for RecordError {
    const FAMILY: Family = Family::Caller;
}
