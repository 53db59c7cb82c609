//! A blob store in memory: a blob is there whole, or not at all.

use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use strandline_core::error::{StorageAction, StorageCause, StorageFault};
use strandline_core::lifecycle::command::{
    BlobCommand, BlobPiece, Checked, ListedBlob, RemovedBlobs, ReplicaCompletion, Stored,
};
use strandline_core::record::BlobKey;

#[derive(Clone, Debug, Default)]
pub(crate) struct Blobs {
    pub(crate) stored: BTreeMap<BlobKey, Vec<u8>>,
    pub(crate) parts: BTreeMap<BlobKey, Vec<u8>>,
    /// Those that a collection must leave alone: they were stored just now.
    pub(crate) touched: BTreeSet<BlobKey>,
    /// How many reads were answered.
    pub(crate) reads: u32,
    /// How often pieces were thrown away.
    pub(crate) abandoned: u32,
}

fn missing() -> StorageFault {
    let detail = "expected an upload begun at offset 0, found none".into();
    let (action, cause) = (StorageAction::Write, StorageCause::Missing);
    StorageFault { action, file: "blob".into(), offset: None, cause, detail }
}

pub(crate) fn blob_key(bytes: &[u8]) -> BlobKey {
    BlobKey(Sha256::digest(bytes).into())
}

impl Blobs {
    /// Executes a command whole.
    pub(crate) fn execute(&mut self, command: BlobCommand) -> ReplicaCompletion {
        match command {
            BlobCommand::Stat { ticket, keys } => {
                let lengths = keys.iter().map(|key| self.stored.get(key).map(|b| b.len() as u64)).collect();
                ticket.complete(Ok(lengths)).into()
            }
            BlobCommand::Read { ticket, key, offset, bytes_max } => {
                self.reads += 1;
                let piece = self.stored.get(&key).map(|bytes| {
                    let from = (offset as usize).min(bytes.len());
                    let bytes_out = bytes[from..].iter().copied().take(bytes_max as usize).collect();
                    BlobPiece { total: bytes.len() as u64, bytes: bytes_out }
                });
                ticket.complete(Ok(piece)).into()
            }
            BlobCommand::Put { ticket, key, bytes } => ticket.complete(Ok(self.store(key, bytes))).into(),
            BlobCommand::Write { ticket, key, offset, bytes } => {
                let part = self.parts.entry(key).or_default();
                if (part.len() as u64) < offset {
                    return ticket.complete(Err(missing())).into();
                }
                part.truncate(offset as usize);
                part.extend_from_slice(&bytes);
                ticket.complete(Ok(())).into()
            }
            BlobCommand::Abandon { ticket, key } => {
                self.parts.remove(&key);
                self.abandoned += 1;
                ticket.complete(Ok(())).into()
            }
            BlobCommand::List { ticket, after, count_max } => {
                let later = self.stored.iter().filter(|(key, _)| after.is_none_or(|after| **key > after));
                let listed = later.map(|(key, bytes)| ListedBlob {
                    key: *key,
                    bytes: bytes.len() as u64,
                    untouched_ms: if self.touched.contains(key) { 0 } else { 1_000_000 },
                });
                ticket.complete(Ok(listed.take(count_max as usize).collect())).into()
            }
            BlobCommand::Remove { ticket, keys, untouched_ms } => {
                let mut removed = RemovedBlobs::default();
                for key in keys.iter().filter(|key| untouched_ms == 0 || !self.touched.contains(key)) {
                    if let Some(bytes) = self.stored.remove(key) {
                        removed.blobs += 1;
                        removed.bytes += bytes.len() as u64;
                    }
                }
                ticket.complete(Ok(removed)).into()
            }
            BlobCommand::Verify { ticket, key } => {
                let checked = match self.stored.get(&key) {
                    None => Checked::Missing,
                    Some(bytes) if blob_key(bytes) == key => Checked::Sound { bytes: bytes.len() as u64 },
                    Some(_) => Checked::Damaged,
                };
                if checked == Checked::Damaged {
                    self.stored.remove(&key);
                }
                ticket.complete(Ok(checked)).into()
            }
            BlobCommand::Commit { ticket, key, total } => {
                if total > 0 && !self.parts.contains_key(&key) {
                    return ticket.complete(Err(missing())).into();
                }
                let bytes = self.parts.remove(&key).unwrap_or_default();
                let fits = bytes.len() as u64 == total;
                let stored = if fits { self.store(key, bytes) } else { Stored::Mismatch };
                ticket.complete(Ok(stored)).into()
            }
        }
    }

    fn store(&mut self, key: BlobKey, bytes: Vec<u8>) -> Stored {
        if blob_key(&bytes) != key {
            return Stored::Mismatch;
        }
        self.stored.insert(key, bytes);
        Stored::Stored
    }
}
