//! The reference's names of errors, for comparing answers.

use super::{Improvement, Rule};
use crate::record::{RecordError, RecordLimits};
use crate::wire::error::{EncodeError, RepairFault, WireError};
use crate::wire::frame::{FrameError, HEADER_BYTES, MAGIC};
use crate::wire::json_read::JsonFaultKind;
use alloc::vec::Vec;

/// An error of ours that stands where the reference has one or several of its own. Ours says more;
/// this says which it is.
pub trait ReferenceNames {
    /// The reference's names of this error, each once, in no meaningful order. Several mean that
    /// the reference joins them.
    fn reference_names(&self) -> Vec<&'static str>;
}

impl ReferenceNames for RecordError {
    fn reference_names(&self) -> Vec<&'static str> {
        alloc::vec![match self {
            Self::NamespaceEmpty { .. } => "ErrNamespaceEmpty",
            Self::NamespaceTooLarge { .. } => "ErrNamespaceTooLarge",
            Self::LogicalKeyEmpty { .. } => "ErrLogicalKeyEmpty",
            Self::LogicalKeyTooLarge { .. } => "ErrLogicalKeyTooLarge",
            Self::AuthorityEmpty { .. } => "ErrAuthorityEmpty",
            Self::AuthorityTooLarge { .. } => "ErrAuthorityTooLarge",
            Self::AuthorityNotPrintable { .. } => "ErrAuthorityNotPrintable",
            Self::StateInvalid { .. } => "ErrInvalidState",
            Self::BlobKeyInvalid { .. } => "ErrInvalidBlobKey",
            Self::VersionZero => "ErrZeroVersion",
            Self::RecordTooLarge { .. } => "ErrRecordTooLarge",
        }]
    }
}

impl ReferenceNames for RepairFault {
    fn reference_names(&self) -> Vec<&'static str> {
        alloc::vec![match self {
            Self::TooManyRecords { .. } | Self::KeysTooLarge { .. } | Self::RecordsTooLarge { .. } => {
                "ErrRepairLimit"
            }
            Self::PayloadTooLarge { .. } => "ErrRepairFrameTooLarge",
            Self::Order { .. } => "ErrRepairOrder",
            Self::WatermarkMismatch { .. } => "ErrRepairWatermarkMismatch",
            Self::WatermarkZero { .. } => "ErrZeroVersion",
            Self::AboveWatermark { .. } => "ErrConflict",
            Self::DuplicateKey { .. } => "ErrDuplicateLogicalKey",
            Self::Unsorted { .. } => "ErrRepairMalformed",
        }]
    }
}

impl ReferenceNames for WireError {
    fn reference_names(&self) -> Vec<&'static str> {
        alloc::vec![match self {
            Self::PayloadTooLarge { .. } => "ErrLifecyclePayloadTooLarge",
            Self::EnvelopeMalformed(_) => "ErrLifecycleEnvelopeMalformed",
            Self::EnvelopeTrailing(_) => {
                return alloc::vec!["ErrLifecycleEnvelopeMalformed", "ErrLifecycleEnvelopeTrailingData"];
            }
            Self::EnvelopeRecord(error) => {
                let mut names = error.reference_names();
                names.push("ErrLifecycleEnvelopeMalformed");
                return names;
            }
            Self::MessageType { expected: "lifecycle.record", .. } => "ErrLifecycleMessageType",
            Self::MessageType { .. } | Self::UnknownMessageType { .. } => "ErrRepairMessageType",
            Self::CapabilityRequired { .. } => "ErrLifecycleCapabilityRequired",
            Self::RepairMalformed(_) | Self::Malformed(_) => "ErrRepairMalformed",
            Self::Repair(fault) => return fault.reference_names(),
            Self::RepairRecord { fault, .. } => return fault.reference_names(),
            // Messages the reference's lifecycle does not have, or keeps in another package.
            Self::BlobMalformed(_) | Self::Blob(_) | Self::OwnMalformed { .. } | Self::Own { .. } => {
                return Vec::new();
            }
        }]
    }
}

impl ReferenceNames for EncodeError {
    fn reference_names(&self) -> Vec<&'static str> {
        match self {
            Self::PayloadTooLarge { .. } => alloc::vec!["ErrLifecyclePayloadTooLarge"],
            Self::Repair(fault) => fault.reference_names(),
            Self::Blob(_) | Self::Own { .. } => Vec::new(),
        }
    }
}

impl ReferenceNames for FrameError {
    fn reference_names(&self) -> Vec<&'static str> {
        alloc::vec![match self {
            Self::BadMagic { .. } => "p2p.ErrBadMagic",
            Self::TooLarge { .. } => "p2p.ErrFrameTooLarge",
            Self::Truncated { .. } => "io.ErrUnexpectedEOF",
        }]
    }
}

/// The rule under which the reference answers a refused message otherwise, if there is one.
#[must_use]
pub fn wire_rule(error: &WireError) -> Option<Rule> {
    match error {
        WireError::RepairMalformed(fault) if fault.kind == JsonFaultKind::Trailing => {
            Some(Rule::Improvement(Improvement::TrailingDataNamed))
        }
        other => other.refusal().map(Rule::Refusal),
    }
}

/// The rule under which the reference answers a broken stream otherwise: it takes the end right after
/// a frame's magic, or right after its length, for the end of the stream.
#[must_use]
pub const fn frame_rule(error: &FrameError) -> Option<Rule> {
    match error {
        FrameError::Truncated { bytes, .. } if *bytes == MAGIC.len() || *bytes == HEADER_BYTES => {
            Some(Rule::Improvement(Improvement::CutFrame))
        }
        FrameError::Truncated { .. } | FrameError::BadMagic { .. } | FrameError::TooLarge { .. } => None,
    }
}

/// The text of an authority identity that came as bytes, which may not be UTF-8. Its length is judged
/// first, as the reference does; whether it prints is left to [`RecordLimits::authority`].
///
/// # Errors
/// It is empty, too long, or not UTF-8 (which is not printable), in this order.
pub fn authority_text<'a>(bytes: &'a [u8], limits: &RecordLimits) -> Result<&'a str, RecordError> {
    let bytes_max = limits.authority_bytes_max;
    if bytes.is_empty() {
        return Err(RecordError::AuthorityEmpty { bytes_max });
    }
    if u32::try_from(bytes.len()).map_or(true, |found| found > bytes_max) {
        return Err(RecordError::AuthorityTooLarge { bytes: bytes.len(), bytes_max });
    }
    core::str::from_utf8(bytes).map_err(|error| RecordError::AuthorityNotPrintable {
        character: char::REPLACEMENT_CHARACTER,
        offset: error.valid_up_to(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_is_measured_before_it_is_read() {
        let limits = RecordLimits::default();
        let judged = |bytes: &[u8]| authority_text(bytes, &limits).map(str::len);
        assert_eq!(judged(b""), Err(RecordError::AuthorityEmpty { bytes_max: 128 }));
        assert_eq!(judged(&[0xff; 129]), Err(RecordError::AuthorityTooLarge { bytes: 129, bytes_max: 128 }));
        assert!(matches!(judged(b"a\xff"), Err(RecordError::AuthorityNotPrintable { offset: 1, .. })));
        assert_eq!(judged(b"node-a"), Ok(6));
    }
}
