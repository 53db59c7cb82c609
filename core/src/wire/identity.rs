//! Who a peer is.

use super::capability::is_label;
use crate::error::{Classified, Family};
use alloc::string::String;
use alloc::sync::Arc;
use core::fmt;

/// Longest identity. From the reference.
pub const IDENTITY_BYTES_MAX: usize = 128;

/// The name of a replica: 1 to 128 bytes of printable ASCII without space. Cheap to clone.
///
/// ```
/// use strandline_core::wire::identity::PeerIdentity;
/// assert!(PeerIdentity::parse("node-a").is_ok());
/// assert!(PeerIdentity::parse("node a").is_err());
/// ```
#[derive(Clone, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct PeerIdentity(Arc<str>);

/// Why a text is no identity.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "identity {found:?} of {bytes} bytes is invalid, expected 1 to {IDENTITY_BYTES_MAX} bytes of printable ASCII without space"
)]
pub struct IdentityError {
    /// The text, at most 128 characters of it.
    pub found: String,
    /// Its length.
    pub bytes: usize,
}

impl Classified for IdentityError {
    const FAMILY: Family = Family::Caller;
}

impl PeerIdentity {
    /// Judges a text.
    ///
    /// # Errors
    /// It is no identity.
    pub fn parse(text: &str) -> Result<Self, IdentityError> {
        if text.len() > IDENTITY_BYTES_MAX || !is_label(text) {
            let found = text.chars().take(IDENTITY_BYTES_MAX).collect();
            return Err(IdentityError { found, bytes: text.len() });
        }
        Ok(Self(Arc::from(text)))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PeerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for PeerIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PeerIdentity({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_and_characters() {
        let longest = "i".repeat(128);
        for text in ["a", "node-a.example:7000", "~!", &longest] {
            assert_eq!(PeerIdentity::parse(text).expect(text).as_str(), text);
        }
        let too_long = "i".repeat(129);
        for text in ["", "node a", "nod\u{e9}", "a\n", "\u{7f}", &too_long] {
            assert_eq!(PeerIdentity::parse(text).expect_err(text).bytes, text.len());
        }
    }
}
