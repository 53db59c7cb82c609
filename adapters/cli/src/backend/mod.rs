//! Where a command finds the replica: in the directory, or in the node that serves it.

#[cfg(test)]
pub(crate) mod fake;
pub(crate) mod node;
mod opened;
pub(crate) mod remote;
mod remote_watch;
mod watching;

pub(crate) use node::{NodeBackend, create as create_node};
pub(crate) use opened::{create, once_free, open, open_here};

use crate::access::ReloadReport;
use crate::exit::Failure;
use crate::report::{FencedReport, StatusReport};
use crate::watch::{CursorReport, CursorText, Watch};
use std::io::{self, Read};
use std::path::Path;
use strandline_core::lifecycle::api::{
    Collect, Collected, Compacted, Entry, MembersChange, Mutation, Scan, ScanPage, Scrub, Scrubbed,
};
use strandline_core::record::{BlobKey, Key, Version};
use strandline_file::backup::BackedUp;

/// A replica that commands work on. Every answer shows durable state only.
pub(crate) trait Backend {
    /// How it stands.
    fn status(&mut self) -> Result<StatusReport, Failure>;
    /// What a key is; `None` where it has no record.
    fn get(&mut self, key: &Key) -> Result<Option<Entry>, Failure>;
    /// One page of keys.
    fn scan(&mut self, scan: &Scan) -> Result<ScanPage, Failure>;
    /// Makes all of the mutations or none, and returns when they are durable: one version for
    /// each, in their order.
    fn batch(&mut self, mutations: &[Mutation]) -> Result<Vec<Version>, Failure>;
    /// Compacts to the highest version allowed, or to `upto`.
    fn compact(&mut self, upto: Option<Version>) -> Result<Compacted, Failure>;
    /// Changes who counts for compaction.
    fn members(&mut self, change: &MembersChange) -> Result<(), Failure>;
    /// Takes the right to write the log.
    fn fence(&mut self, epoch: u64) -> Result<FencedReport, Failure>;

    /// What can be vouched for to who has everything up to a cursor.
    fn judge(&mut self, cursor: CursorText) -> Result<CursorReport, Failure>;
    /// Follows the changes after a cursor; after the tail if none is given.
    fn watch(&mut self, cursor: Option<CursorText>) -> Result<Box<dyn Watch + '_>, Failure>;
    /// Copies the log's files of one moment to a folder that is made. Blobs are not collected as long as
    /// this lives.
    fn begin_backup(&mut self, to: &Path) -> Result<BackedUp, Failure>;
    /// Whether a key is present and its blob is not here yet.
    fn pending(&mut self, key: &Key) -> Result<bool, Failure>;
    /// Removes the blobs that nothing needs, or says which they are.
    fn collect(&mut self, collect: Collect) -> Result<Collected, Failure>;
    /// Reads every blob that a key names, and lets peers mend what is bad.
    fn scrub(&mut self, scrub: Scrub) -> Result<Scrubbed, Failure>;

    /// Begins to store blobs that become durable together.
    fn group(&mut self) -> Result<Box<dyn Group + '_>, Failure>;
    /// Opens a blob for reading; `None` if it is not stored. Nothing says yet that its bytes are
    /// those of its key.
    fn blob(&mut self, key: BlobKey) -> Result<Option<Box<dyn Read + '_>>, Failure>;
    /// Reads a blob through; its length if its bytes are those of its key, `None` if it is not stored.
    fn verify(&mut self, key: BlobKey) -> Result<Option<u64>, Failure>;
    /// Lets the running node read its peers file and certificates anew.
    fn reload(&mut self) -> Result<ReloadReport, Failure>;
    /// How many blobs are stored, whether a key names them or not.
    fn blob_count(&mut self) -> Result<u64, Failure>;
}

/// Blobs on their way into the store. Without [`Group::commit`] nothing of it is stored.
pub(crate) trait Group {
    /// Adds what the reader gives until it ends: its key and how many bytes it had.
    fn add(&mut self, from: &mut dyn Read) -> Result<(BlobKey, u64), AddError>;
    /// Makes everything added durable.
    fn commit(self: Box<Self>) -> Result<(), Failure>;
}

/// Why bytes were not added to a group; what was added before is still in it.
#[derive(Debug)]
pub(crate) enum AddError {
    /// Their reader failed.
    Source(io::Error),
    /// The store failed, or the way to it.
    Store(Failure),
}

impl AddError {
    /// The failure of a command that cannot go on without these bytes, named `source`.
    pub(crate) fn fatal(self, source: &Path) -> Failure {
        match self {
            Self::Source(error) => Failure::io("read", source, &error),
            Self::Store(failure) => failure,
        }
    }
}

/// Longest page that commands ask for.
pub(crate) const PAGE_ENTRIES_MAX: u32 = 1_000;

/// Reads every key under a prefix, a page at a time, in order. Each page is the state of its
/// moment.
pub(crate) fn scan_all(
    backend: &mut dyn Backend,
    mut scan: Scan,
    mut each: impl FnMut(&Key, &Entry) -> Result<(), Failure>,
) -> Result<(), Failure> {
    loop {
        let page = backend.scan(&scan)?;
        for (key, entry) in &page.entries {
            each(key, entry)?;
        }
        match page.next {
            Some(next) => scan.after = Some(next),
            None => return Ok(()),
        }
    }
}

/// The scan of one namespace from the start of a prefix.
pub(crate) fn whole(namespace: &[u8], prefix: &[u8], deleted: bool) -> Scan {
    Scan {
        namespace: Some(namespace.to_vec()),
        prefix: prefix.to_vec(),
        after: None,
        entries_max: PAGE_ENTRIES_MAX,
        deleted,
    }
}
