//! Requests about the blob store: collecting what nothing names, and looking for damage.

use crate::record::{BlobKey, Key};
use alloc::vec::Vec;

/// Most keys that an answer names one by one.
pub const NAMED_KEYS_MAX: usize = 1024;

/// Removes the blobs that nothing needs: no durable record, no pending mutation, no batch or snapshot on
/// its way in, no record that waits for its blob, and no member that is not complete yet. An upload that
/// is not finished is no blob and is never touched.
///
/// The blob store must belong to this replica alone.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Collect {
    /// Say what would be removed, and remove nothing.
    pub dry_run: bool,
    /// Leave alone what was stored, or stored again, less than this long ago: a caller stores a blob
    /// before it names it.
    pub untouched_ms: u64,
}

/// What a collection did, or would do.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Collected {
    /// Blobs looked at.
    pub looked: u64,
    /// Blobs removed; in a dry run those that would be.
    pub blobs: u64,
    /// Their bytes.
    pub bytes: u64,
    /// The first of them, at most [`NAMED_KEYS_MAX`].
    pub keys: Vec<BlobKey>,
}

/// Reads every blob that a present key names, and compares it with its key. One that is damaged is set
/// aside; one that is damaged or missing is wanted from now on, so that a peer's copy takes its place.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Scrub {
    /// Most bytes read in a second, on average; at least 1.
    pub bytes_per_second: u64,
}

/// A blob that is not what its key needs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BadBlob {
    /// The key that names it.
    pub key: Key,
    /// The blob.
    pub blob: BlobKey,
    /// Whether bytes were there, but other ones; else there were none.
    pub damaged: bool,
}

/// What a scrub found.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Scrubbed {
    /// Present keys looked at.
    pub keys: u64,
    /// Bytes read of sound blobs.
    pub bytes: u64,
    /// Keys whose blob was missing or damaged.
    pub bad: u64,
    /// The first of them, at most [`NAMED_KEYS_MAX`].
    pub blobs: Vec<BadBlob>,
}
