//! Keys of the key space, blobs and authorities.

use crate::id::hex;
use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::fmt;

/// A namespace and a logical key, in one allocation. Ordered by namespace, then by logical key,
/// both bytewise: the order of snapshots, checkpoints and scans.
#[derive(Clone, Eq, Hash, PartialEq)]
pub struct Key {
    bytes: Box<[u8]>,
    namespace_bytes: u16,
}

impl Key {
    /// Joins the two parts without judging them; `None` if the namespace is longer than 65,535 bytes.
    /// Use [`super::RecordLimits::key`] for input.
    #[must_use]
    pub fn from_parts(namespace: &[u8], logical_key: &[u8]) -> Option<Self> {
        let namespace_bytes = u16::try_from(namespace.len()).ok()?;
        let mut bytes = Vec::with_capacity(namespace.len() + logical_key.len());
        bytes.extend_from_slice(namespace);
        bytes.extend_from_slice(logical_key);
        Some(Self { bytes: bytes.into_boxed_slice(), namespace_bytes })
    }

    /// The namespace.
    #[must_use]
    pub fn namespace(&self) -> &[u8] {
        &self.bytes[..usize::from(self.namespace_bytes)]
    }

    /// The key within the namespace.
    #[must_use]
    pub fn logical_key(&self) -> &[u8] {
        &self.bytes[usize::from(self.namespace_bytes)..]
    }
}

impl Ord for Key {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.namespace(), self.logical_key()).cmp(&(other.namespace(), other.logical_key()))
    }
}

impl PartialOrd for Key {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace().escape_ascii(), self.logical_key().escape_ascii())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({self})")
    }
}

/// SHA-256 of a blob's bytes.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct BlobKey(pub [u8; 32]);

impl fmt::Display for BlobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for BlobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BlobKey({self})")
    }
}

/// Who gave a record its version. Cheap to clone: one text is shared by all its records.
#[derive(Clone, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct AuthorityId(Arc<str>);

impl AuthorityId {
    /// Wraps a text without judging it. Use [`super::RecordLimits::authority`] for input.
    #[must_use]
    pub fn from_text(text: &str) -> Self {
        Self(Arc::from(text))
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AuthorityId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for AuthorityId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AuthorityId({:?})", self.as_str())
    }
}
