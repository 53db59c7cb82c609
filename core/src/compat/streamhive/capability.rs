//! What the capabilities a peer declared mean to the reference: exact names, nothing folded.

use super::ReferenceNames;
use crate::error::{Classified, Family};
use crate::wire::capability::Capability;
use alloc::vec::Vec;

/// Whether a peer declared a capability.
#[must_use]
pub fn has(declared: &[impl AsRef<str>], capability: Capability) -> bool {
    declared.iter().any(|declared| Capability::parse(declared.as_ref()) == Some(capability))
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
#[error("message needs capability {}, which the peer did not declare", Capability::Lifecycle)]
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
/// The peer did not declare [`Capability::Lifecycle`].
pub fn gate(declared: &[impl AsRef<str>]) -> Result<(), CapabilityRequired> {
    if has(declared, Capability::Lifecycle) { Ok(()) } else { Err(CapabilityRequired) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_exact() {
        for other in ["LIFECYCLE.V1", "lifecycle.v1 ", "lifecycle", ""] {
            assert!(!has(&[other], Capability::Lifecycle), "{other:?}");
        }
        assert!(has(&["x", "lifecycle.v1"], Capability::Lifecycle));
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
        assert_eq!(gate(&["lifecycle.repair-reconcile.v1"]), Err(CapabilityRequired));
        assert_eq!(gate(&["lifecycle.v1"]), Ok(()));
    }
}
