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
