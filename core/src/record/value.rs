//! A record: one mutation of one key.

use super::{AuthorityId, BlobKey, Key, Version};

/// What a key is at a version.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub enum State {
    /// The key names a blob.
    Present {
        /// SHA-256 of the blob.
        blob: BlobKey,
    },
    /// The key was deleted: a tombstone.
    Deleted,
}

impl State {
    /// The word that stands for the state on the wire and in canonical bytes.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Present { .. } => "present",
            Self::Deleted => "deleted",
        }
    }

    /// The blob a present key names.
    #[must_use]
    pub const fn blob(&self) -> Option<BlobKey> {
        match self {
            Self::Present { blob } => Some(*blob),
            Self::Deleted => None,
        }
    }

    /// The blob key's bytes; none when deleted.
    #[must_use]
    pub(crate) const fn blob_bytes(&self) -> &[u8] {
        match self {
            Self::Present { blob } => &blob.0,
            Self::Deleted => &[],
        }
    }
}

/// One mutation of one key. Made by [`super::RecordLimits::record`] (input) or by decoding.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Record {
    /// What was changed.
    pub key: Key,
    /// What it is now.
    pub state: State,
    /// Its place in the total order; never zero.
    pub version: Version,
    /// Who gave it the version.
    pub authority: AuthorityId,
}
