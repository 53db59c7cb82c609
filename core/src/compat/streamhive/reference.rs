//! The reference's names of errors, for comparing answers.
//!
//! Every error it names has a variant of ours, but for those that cannot happen here: a journal used
//! after it was closed (`ErrJournalClosed`; closing takes the value), and a missing part or path
//! (`ErrNilApply`, `ErrNilApplierState`, `ErrNilApplierJournal`, `ErrNilAuthorityPath`,
//! `ErrNilMembershipPath`, `ErrNilMembershipBook`, `ErrNilRepairJournal`, `ErrNilRepairSessionPeer`,
//! `ErrNilRepairSessionCoordinator`, `ErrNilRepairSessionApplier`, `ErrNilRepairWatermarks`,
//! `ErrNilWatermarkPath`, `ErrNilWatermarkBook`), which does not compile.

use super::{Improvement, Rule};
use crate::record::{RecordError, RecordLimits};
use crate::wire::error::{EncodeError, RepairFault, WireError};
use crate::wire::frame::{FrameError, HEADER_BYTES, MAGIC};
use crate::wire::json_read::{JsonFault, JsonFaultKind};
use crate::wire::limits::WireLimits;
use crate::wire::message::{Message, decode_repair_frame};
use alloc::format;
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

/// Reads one `lifecycle.repair.*` message as [`decode_repair_frame`] does, with the bound on nesting
/// that the reference's JSON reader has.
///
/// # Errors
/// Those of [`decode_repair_frame`]; a payload of another type that nests deeper than 10,000 levels
/// is malformed.
pub fn repair_frame(payload: &[u8], limits: &WireLimits) -> Result<Message, WireError> {
    decode_repair_frame(payload, limits).map_err(|error| {
        if !matches!(error, WireError::MessageType { .. }) || !nests_deeper(payload, GO_NESTING_MAX) {
            return error;
        }
        let detail = format!("nests deeper than {GO_NESTING_MAX} levels");
        let (refusal, kind) = (None, JsonFaultKind::Malformed);
        WireError::RepairMalformed(JsonFault { detail, refusal, kind })
    })
}

/// Deepest nesting the reference's JSON reader takes.
const GO_NESTING_MAX: u32 = 10_000;

/// Whether well-formed JSON nests deeper than `depth_max` arrays and objects.
fn nests_deeper(text: &[u8], depth_max: u32) -> bool {
    let (mut depth, mut in_string, mut escaped) = (0u32, false, false);
    text.iter().any(|&byte| {
        match (in_string, byte) {
            (true, _) if escaped => escaped = false,
            (true, b'\\') => escaped = true,
            (_, b'"') => in_string = !in_string,
            (false, b'[' | b'{') => depth += 1,
            (false, b']' | b'}') => depth = depth.saturating_sub(1),
            (true | false, _) => {}
        }
        depth > depth_max
    })
}

/// The rule under which the reference answers a refused message otherwise, if there is one.
#[must_use]
pub fn wire_rule(error: &WireError) -> Option<Rule> {
    let trailing = Rule::Improvement(Improvement::TrailingDataNamed);
    let is_trailing =
        matches!(error, WireError::RepairMalformed(fault) if fault.kind == JsonFaultKind::Trailing);
    if is_trailing { Some(trailing) } else { error.refusal().map(Rule::Refusal) }
}

/// The rule under which the reference answers a broken stream otherwise: it takes the end right after
/// a frame's magic, or right after its length, for the end of the stream, and does not look at a
/// magic before all of it is there.
#[must_use]
pub const fn frame_rule(error: &FrameError) -> Option<Rule> {
    const RULE: Option<Rule> = Some(Rule::Improvement(Improvement::CutFrame));
    match error {
        FrameError::Truncated { bytes, .. } if *bytes == MAGIC.len() || *bytes == HEADER_BYTES => RULE,
        FrameError::BadMagic { found: [_, _, _, 0] } => RULE,
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
    fn another_type_nested_too_deep_is_malformed() {
        let read = |depth: usize| {
            let (open, close) = ("[".repeat(depth), "]".repeat(depth));
            let payload = format!(r#"{{"type":"lifecycle.record","x":{open}{close}}}"#);
            repair_frame(payload.as_bytes(), &WireLimits::default()).unwrap_err()
        };
        assert!(matches!(read(9_999), WireError::MessageType { .. }));
        assert!(matches!(read(10_000), WireError::RepairMalformed(_)));
    }

    #[test]
    fn nesting_is_counted_outside_strings() {
        assert!(nests_deeper(br#"[[1],[{"a":1}]]"#, 2));
        assert!(!nests_deeper(br#"[[1],[{"a":1}]]"#, 3));
        assert!(!nests_deeper(br#"["[[[\"[["]"#, 1));
    }

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
