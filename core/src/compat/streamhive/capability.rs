//! What the capabilities a peer declared mean to the reference: exact names, nothing folded.

use super::ReferenceNames;
use crate::error::{Classified, Family};
use alloc::vec::Vec;

/// Lifecycle records and repair messages.
pub const LIFECYCLE: &str = "lifecycle.v1";
/// The first acknowledgement is the startup mark.
pub const RECONCILE: &str = "lifecycle.repair-reconcile.v1";

/// Whether a peer declared a capability.
#[must_use]
pub fn has(capabilities: &[impl AsRef<str>], capability: &str) -> bool {
    capabilities.iter().any(|declared| declared.as_ref() == capability)
}

/// What a peer can be used for, as the reference's status names it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Readiness {
    /// Lifecycle works.
    Ready,
    /// Only blobs pass, which is enough for who can do without.
    RawOnly,
    /// Lifecycle is required and missing.
    Unavailable,
}

impl Readiness {
    /// The table: whether the peer has lifecycle, whether we require it.
    #[must_use]
    pub const fn of(lifecycle: bool, required: bool) -> Self {
        match (lifecycle, required) {
            (true, true | false) => Self::Ready,
            (false, false) => Self::RawOnly,
            (false, true) => Self::Unavailable,
        }
    }

    /// The reference's word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ready => "ready",
            Self::RawOnly => "optional-raw-only",
            Self::Unavailable => "required-unavailable",
        }
    }
}

/// A lifecycle message from a peer that declared no lifecycle.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("message needs capability {LIFECYCLE}, which the peer did not declare")]
pub struct CapabilityRequired;

impl Classified for CapabilityRequired {
    const FAMILY: Family = Family::Peer;
}

impl ReferenceNames for CapabilityRequired {
    fn reference_names(&self) -> Vec<&'static str> {
        alloc::vec!["ErrLifecycleCapabilityRequired"]
    }
}

/// The gate before every lifecycle message; asked before the message is even decoded.
///
/// # Errors
/// The peer did not declare [`LIFECYCLE`].
pub fn gate(capabilities: &[impl AsRef<str>]) -> Result<(), CapabilityRequired> {
    if has(capabilities, LIFECYCLE) { Ok(()) } else { Err(CapabilityRequired) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_exact() {
        for other in ["LIFECYCLE.V1", "lifecycle.v1 ", "lifecycle", ""] {
            assert!(!has(&[other], LIFECYCLE), "{other:?}");
        }
        assert!(has(&["x", LIFECYCLE], LIFECYCLE));
    }

    #[test]
    fn ready_whether_required_or_not() {
        assert_eq!(
            (Readiness::of(true, true), Readiness::of(true, false)),
            (Readiness::Ready, Readiness::Ready)
        );
    }

    #[test]
    fn raw_only_when_optional() {
        assert_eq!(Readiness::of(false, false), Readiness::RawOnly);
    }

    #[test]
    fn unavailable_when_required() {
        assert_eq!(Readiness::of(false, true), Readiness::Unavailable);
    }

    #[test]
    fn the_gate_needs_lifecycle_itself() {
        assert_eq!(gate(&[RECONCILE]), Err(CapabilityRequired));
        assert_eq!(gate(&[LIFECYCLE]), Ok(()));
    }
}
