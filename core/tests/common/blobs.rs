//! A blob store in memory: a blob is there whole, or not at all.

use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use strandline_core::lifecycle::command::{BlobCommand, BlobPiece, ReplicaCompletion, Stored};
use strandline_core::record::BlobKey;

#[derive(Clone, Debug, Default)]
pub(crate) struct Blobs {
    pub(crate) stored: BTreeMap<BlobKey, Vec<u8>>,
    pub(crate) parts: BTreeMap<BlobKey, Vec<u8>>,
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
                part.truncate(offset as usize);
                part.extend_from_slice(&bytes);
                ticket.complete(Ok(())).into()
            }
            BlobCommand::Commit { ticket, key, total } => {
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
