//! How a message is refused.

use super::json_read::{JsonFault, Refusal};
use crate::error::{Classified, Family};
use crate::record::{Key, RecordError, Version};
use alloc::boxed::Box;
use alloc::string::String;

/// Why records do not make a batch or a snapshot. It is a peer's fault inside a [`WireError`] and our
/// caller's inside an [`EncodeError`].
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum RepairFault {
    /// More records than a message holds.
    #[error("{records} records or more, a message holds at most {records_max}")]
    TooManyRecords {
        /// How many were counted.
        records: usize,
        /// The limit.
        records_max: u32,
    },
    /// Namespaces and logical keys are too long together.
    #[error("keys have {bytes} bytes together, a message holds at most {bytes_max}")]
    KeysTooLarge {
        /// What was counted.
        bytes: u64,
        /// The limit.
        bytes_max: u32,
    },
    /// The records are too long together.
    #[error("records have {bytes} bytes as JSON together, a message holds at most {bytes_max}")]
    RecordsTooLarge {
        /// What was counted.
        bytes: u64,
        /// The limit.
        bytes_max: u32,
    },
    /// The payload is too long.
    #[error("repair payload has {bytes} bytes, expected at most {bytes_max}")]
    PayloadTooLarge {
        /// What was found.
        bytes: usize,
        /// The limit.
        bytes_max: u32,
    },
    /// A batch's versions do not ascend.
    #[error("record {version} follows {previous}, expected a higher version")]
    Order {
        /// The version before, at first the batch's `from`.
        previous: Version,
        /// The record's version.
        version: Version,
    },
    /// A batch does not end where it says.
    #[error("batch ends at {last}, its `to` is {to}, expected the same")]
    WatermarkMismatch {
        /// The last record's version, or `from` if there is none.
        last: Version,
        /// What the batch says.
        to: Version,
    },
    /// A snapshot at zero that holds records.
    #[error("snapshot of {records} records stands for version zero, expected the cut it was taken at")]
    WatermarkZero {
        /// How many records.
        records: usize,
    },
    /// A snapshot's record is above its watermark.
    #[error("snapshot at {watermark} holds a record of {version}, expected none above")]
    AboveWatermark {
        /// The record's version.
        version: Version,
        /// The snapshot's.
        watermark: Version,
    },
    /// A snapshot names one key twice.
    #[error("snapshot names key {key} twice, expected once")]
    DuplicateKey {
        /// The key.
        key: Box<Key>,
    },
    /// A snapshot's keys do not ascend.
    #[error("snapshot names key {key} after a higher one, expected ascending keys")]
    Unsorted {
        /// The key.
        key: Box<Key>,
    },
}

/// Why a blob message is none. It is a peer's fault inside a [`WireError`] and our caller's inside an
/// [`EncodeError`].
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum BlobFault {
    /// No key.
    #[error("blob key is empty, expected 1 to {bytes_max} bytes")]
    KeyEmpty {
        /// The limit.
        bytes_max: u32,
    },
    /// A key that is too long.
    #[error("blob key has {bytes} bytes, expected 1 to {bytes_max}")]
    KeyTooLarge {
        /// What was found.
        bytes: usize,
        /// The limit.
        bytes_max: u32,
    },
    /// No keys.
    #[error("list of blob keys is empty, expected 1 to {keys_max}")]
    KeysEmpty {
        /// The limit.
        keys_max: u32,
    },
    /// Too many keys.
    #[error("list holds {keys} blob keys or more, expected 1 to {keys_max}")]
    TooManyKeys {
        /// How many were counted.
        keys: usize,
        /// The limit.
        keys_max: u32,
    },
    /// A blob that is too long.
    #[error("blob has {bytes} bytes, expected at most {bytes_max}")]
    DataTooLarge {
        /// What was found.
        bytes: usize,
        /// The limit.
        bytes_max: u32,
    },
    /// The payload is too long for a frame.
    #[error("blob payload has {bytes} bytes, expected at most {bytes_max}")]
    PayloadTooLarge {
        /// What was found.
        bytes: usize,
        /// The limit.
        bytes_max: u32,
    },
}

/// Why a message of Strandline's own is none. It is a peer's fault inside a [`WireError`] and our
/// caller's inside an [`EncodeError`].
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OwnFault {
    /// The payload is too long.
    #[error("payload has {bytes} bytes, expected at most {bytes_max}")]
    PayloadTooLarge {
        /// What was found.
        bytes: usize,
        /// The limit.
        bytes_max: u32,
    },
    /// A digest is not 64 lower-case hexadecimal digits.
    #[error("{field} is not a digest: expected 64 lower-case hexadecimal digits")]
    Digest {
        /// Which field.
        field: &'static str,
    },
    /// A key is not a SHA-256.
    #[error("key has {bytes} bytes, expected the 32 of a SHA-256")]
    Key {
        /// What was found.
        bytes: usize,
    },
    /// A number is out of its range.
    #[error("{field} is {value}, expected {value_min} to {value_max}")]
    Number {
        /// Which field.
        field: &'static str,
        /// What was found.
        value: u64,
        /// The least allowed.
        value_min: u64,
        /// The most allowed.
        value_max: u64,
    },
    /// A list or a text is longer than it may be.
    #[error("{field} has a length of {length} or more, expected at most {length_max}")]
    TooLong {
        /// Which field.
        field: &'static str,
        /// What was found.
        length: usize,
        /// The limit.
        length_max: u32,
    },
    /// Blobs are said to be complete beyond the records.
    #[error("complete up to {complete}, expected at most the watermark {watermark}")]
    CompleteAboveWatermark {
        /// What came.
        complete: crate::record::Version,
        /// The highest it may be.
        watermark: crate::record::Version,
    },
    /// A piece goes beyond the end of what it is a piece of.
    #[error("piece of {bytes} bytes at {offset} goes beyond the total of {total}")]
    PieceBeyondTotal {
        /// Where it starts.
        offset: u64,
        /// Its length.
        bytes: u64,
        /// The end.
        total: u64,
    },
    /// Epochs do not ascend.
    #[error("epoch {epoch} follows epoch {previous}, expected a higher one")]
    EpochOrder {
        /// The epoch before.
        previous: u64,
        /// The epoch.
        epoch: u64,
    },
    /// An epoch that begins at or below the end of what came before it.
    #[error("an epoch starts at {start}, and what came before it ended at {previous_end}, expected below")]
    EpochEnd {
        /// The first version of the epoch.
        start: Version,
        /// The last version before it.
        previous_end: Version,
    },
    /// A floor above the tail.
    #[error("floor {floor} is above tail {tail}, expected at or below")]
    FloorAboveTail {
        /// The floor.
        floor: Version,
        /// The tail.
        tail: Version,
    },
    /// An authority that is none.
    #[error("epoch's authority: {0}")]
    Authority(RecordError),
    /// A word that stands for no verdict.
    #[error("verdict is {found:?}, expected \"gap\", \"unknown\", \"diverged\" or \"fault\"")]
    Verdict {
        /// The word, at most 32 characters of it.
        found: String,
    },
    /// A reason that is no label.
    #[error("reason is not of lower-case letters, digits and hyphens: it is a label of a closed set")]
    Reason,
}

/// Why a payload is no message of protocol A: the peer's fault. One variant for each error the
/// reference names, and those of Strandline's own messages.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// A `lifecycle.record` payload is too long to be looked at.
    #[error("record payload has {bytes} bytes, expected at most {bytes_max}")]
    PayloadTooLarge {
        /// What was found.
        bytes: usize,
        /// The limit.
        bytes_max: u32,
    },
    /// A payload is not the JSON of a record.
    #[error("malformed record envelope: {0}")]
    EnvelopeMalformed(JsonFault),
    /// Something follows a record.
    #[error("record envelope is followed by other data: {0}")]
    EnvelopeTrailing(JsonFault),
    /// A record envelope with values that are no record's.
    #[error("record envelope: {0}")]
    EnvelopeRecord(RecordError),
    /// A message of another type than the decoder's.
    #[error("message type is {found:?}, expected {expected}")]
    MessageType {
        /// What was expected.
        expected: &'static str,
        /// The type found, at most 64 characters of it.
        found: String,
    },
    /// The message needs a capability that the peer did not declare.
    #[error("message needs capability {capability}, which the peer did not declare")]
    CapabilityRequired {
        /// Which one.
        capability: &'static str,
    },
    /// A payload is not the JSON of a repair message.
    #[error("malformed repair envelope: {0}")]
    RepairMalformed(JsonFault),
    /// Records do not make a batch or a snapshot.
    #[error("repair message: {0}")]
    Repair(RepairFault),
    /// A repair message holds values that are no record's.
    #[error("repair message, record {index}: {fault}")]
    RepairRecord {
        /// Which record, from zero.
        index: usize,
        /// Why it is none.
        fault: RecordError,
    },
    /// A payload is not the JSON of a blob message.
    #[error("malformed blob message: {0}")]
    BlobMalformed(JsonFault),
    /// A blob message's values are out of bounds.
    #[error("blob message: {0}")]
    Blob(BlobFault),
    /// A payload is not the JSON of a message of Strandline's own.
    #[error("malformed {message}: {fault}")]
    OwnMalformed {
        /// The message's type.
        message: &'static str,
        /// Why.
        fault: JsonFault,
    },
    /// Values of a message of Strandline's own are out of bounds.
    #[error("{message}: {fault}")]
    Own {
        /// The message's type.
        message: &'static str,
        /// Why.
        fault: OwnFault,
    },
    /// A payload whose type cannot be found.
    #[error("malformed message: {0}")]
    Malformed(JsonFault),
    /// A payload of a type that is not ours.
    #[error("message type {found:?} is unknown")]
    UnknownMessageType {
        /// The type found, at most 64 characters of it.
        found: String,
    },
}

impl WireError {
    /// The leniency refused, if the reference may have accepted the payload.
    #[must_use]
    pub const fn refusal(&self) -> Option<Refusal> {
        match self {
            Self::EnvelopeMalformed(fault)
            | Self::EnvelopeTrailing(fault)
            | Self::RepairMalformed(fault)
            | Self::BlobMalformed(fault)
            | Self::OwnMalformed { fault, .. }
            | Self::Malformed(fault) => fault.refusal,
            Self::Repair(RepairFault::Unsorted { .. }) => Some(Refusal::Unsorted),
            Self::PayloadTooLarge { .. }
            | Self::EnvelopeRecord(_)
            | Self::MessageType { .. }
            | Self::CapabilityRequired { .. }
            | Self::Repair(_)
            | Self::RepairRecord { .. }
            | Self::Blob(_)
            | Self::Own { .. }
            | Self::UnknownMessageType { .. } => None,
        }
    }

    /// An unexpected or unknown type, cut to what an error may carry.
    pub(super) fn shown_type(found: &str) -> String {
        found.chars().take(64).collect()
    }
}

impl Classified for WireError {
    const FAMILY: Family = Family::Peer;
}

/// Why a message of ours cannot be sent: our caller's mistake, or a limit it configured.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum EncodeError {
    /// A `lifecycle.record` is too long.
    #[error("record payload has {bytes} bytes, expected at most {bytes_max}")]
    PayloadTooLarge {
        /// What was found.
        bytes: usize,
        /// The limit.
        bytes_max: u32,
    },
    /// Records do not make a batch or a snapshot.
    #[error("repair message: {0}")]
    Repair(#[from] RepairFault),
    /// A blob message's values are out of bounds.
    #[error("blob message: {0}")]
    Blob(#[from] BlobFault),
    /// Values of a message of Strandline's own are out of bounds.
    #[error("{message}: {fault}")]
    Own {
        /// The message's type.
        message: &'static str,
        /// Why.
        fault: OwnFault,
    },
}

impl Classified for EncodeError {
    const FAMILY: Family = Family::Caller;
}
