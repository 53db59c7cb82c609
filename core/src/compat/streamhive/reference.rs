//! The reference's names of errors, for comparing answers.

use crate::record::RecordError;
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
