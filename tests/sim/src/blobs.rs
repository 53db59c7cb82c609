//! The contents that simulated keys name, and a blob store that keeps them.

use crate::fault::{Counts, Fault};
use crate::rng::Choose;
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use strandline_core::error::{StorageAction, StorageCause, StorageFault};
use strandline_core::lifecycle::command::{
    BlobCommand, BlobPiece, Checked, ListedBlob, RemovedBlobs, ReplicaCompletion, Stored,
};
use strandline_core::record::BlobKey;

/// How many small contents there are.
pub const SMALL: usize = 24;

/// Lengths of the contents that need more than one piece, or just one.
const LARGE: [usize; 4] = [262_144, 262_145, 300_000, 700_000];

/// A content and its key.
#[derive(Clone, Debug)]
pub struct Content {
    /// SHA-256 of the bytes.
    pub key: BlobKey,
    /// The bytes.
    pub bytes: Arc<Vec<u8>>,
}

/// All contents: [`SMALL`] small ones, an empty one among them, then the large ones.
#[must_use]
pub fn contents() -> &'static [Content] {
    static CONTENTS: OnceLock<Vec<Content>> = OnceLock::new();
    CONTENTS.get_or_init(|| {
        let lengths = (0..SMALL).map(|i| i * 7).chain(LARGE);
        lengths
            .enumerate()
            .map(|(i, length)| {
                let bytes: Vec<u8> = (0..length).map(|at| (at * 31 + i * 17 + at / 251) as u8).collect();
                Content { key: key_of(&bytes), bytes: Arc::new(bytes) }
            })
            .collect()
    })
}

fn key_of(bytes: &[u8]) -> BlobKey {
    BlobKey(Sha256::digest(bytes).into())
}

/// A store: blobs appear whole, verified and durable, or not at all.
#[derive(Clone, Debug, Default)]
pub struct BlobStore {
    stored: BTreeMap<BlobKey, Arc<Vec<u8>>>,
    /// On the way to being stored.
    staged: BTreeMap<BlobKey, Arc<Vec<u8>>>,
    parts: BTreeMap<BlobKey, Vec<u8>>,
}

/// A blob command being executed.
#[derive(Debug)]
pub struct BlobJob {
    command: BlobCommand,
    staged: Option<Stored>,
}

impl BlobJob {
    /// Starts a command.
    #[must_use]
    pub const fn new(command: BlobCommand) -> Self {
        Self { command, staged: None }
    }

    /// Whether it must keep its place among the others of its kind.
    #[must_use]
    pub const fn ordered(&self) -> bool {
        match self.command {
            BlobCommand::Write { .. } | BlobCommand::Commit { .. } | BlobCommand::Abandon { .. } => true,
            BlobCommand::Stat { .. }
            | BlobCommand::Read { .. }
            | BlobCommand::Put { .. }
            | BlobCommand::List { .. }
            | BlobCommand::Remove { .. }
            | BlobCommand::Verify { .. } => false,
        }
    }

    /// The command.
    pub const fn command(&self) -> &BlobCommand {
        &self.command
    }

    /// Executes one effect: true when only the answer is left.
    pub fn advance(&mut self, store: &mut BlobStore) -> bool {
        if self.staged.is_some() {
            return true;
        }
        let (key, bytes) = match &mut self.command {
            BlobCommand::Put { key, bytes, .. } => (*key, std::mem::take(bytes)),
            BlobCommand::Commit { key, total, .. } => {
                let bytes = store.parts.remove(key).unwrap_or_default();
                if bytes.len() as u64 != *total {
                    self.staged = Some(Stored::Mismatch);
                    return true;
                }
                (*key, bytes)
            }
            BlobCommand::Stat { .. }
            | BlobCommand::Read { .. }
            | BlobCommand::Write { .. }
            | BlobCommand::Abandon { .. }
            | BlobCommand::List { .. }
            | BlobCommand::Remove { .. }
            | BlobCommand::Verify { .. } => return true,
        };
        let fits = key_of(&bytes) == key;
        if fits {
            store.staged.insert(key, Arc::new(bytes));
        }
        self.staged = Some(if fits { Stored::Stored } else { Stored::Mismatch });
        !fits
    }

    /// Answers the command; `fails` says that it fails instead.
    #[must_use]
    pub fn complete(self, store: &mut BlobStore, fails: bool) -> ReplicaCompletion {
        let stored = self.staged.unwrap_or(Stored::Mismatch);
        match self.command {
            BlobCommand::Stat { ticket, .. } if fails => ticket.complete(fault(StorageAction::Read)).into(),
            BlobCommand::Read { ticket, .. } if fails => ticket.complete(fault(StorageAction::Read)).into(),
            BlobCommand::Put { ticket, .. } if fails => ticket.complete(fault(StorageAction::Write)).into(),
            BlobCommand::Write { ticket, .. } if fails => ticket.complete(fault(StorageAction::Write)).into(),
            BlobCommand::Commit { ticket, .. } if fails => ticket.complete(fault(StorageAction::Sync)).into(),
            BlobCommand::Abandon { ticket, .. } if fails => {
                ticket.complete(fault(StorageAction::Remove)).into()
            }
            BlobCommand::List { ticket, .. } if fails => ticket.complete(fault(StorageAction::List)).into(),
            BlobCommand::Remove { ticket, .. } if fails => {
                ticket.complete(fault(StorageAction::Remove)).into()
            }
            BlobCommand::Verify { ticket, .. } if fails => ticket.complete(fault(StorageAction::Read)).into(),
            BlobCommand::Abandon { ticket, key } => {
                store.parts.remove(&key);
                ticket.complete(Ok(())).into()
            }
            BlobCommand::List { ticket, after, count_max } => {
                let later = store.stored.iter().filter(|(key, _)| after.is_none_or(|after| **key > after));
                let page = later.take(count_max as usize).map(|(key, bytes)| ListedBlob {
                    key: *key,
                    bytes: bytes.len() as u64,
                    untouched_ms: 0,
                });
                ticket.complete(Ok(page.collect())).into()
            }
            BlobCommand::Remove { ticket, keys, .. } => {
                let mut removed = RemovedBlobs::default();
                for key in keys {
                    if let Some(bytes) = store.stored.remove(&key) {
                        removed.blobs += 1;
                        removed.bytes += bytes.len() as u64;
                    }
                }
                ticket.complete(Ok(removed)).into()
            }
            BlobCommand::Verify { ticket, key } => {
                let checked = match store.stored.get(&key) {
                    None => Checked::Missing,
                    Some(bytes) if key_of(bytes) == key => Checked::Sound { bytes: bytes.len() as u64 },
                    Some(_) => Checked::Damaged,
                };
                if checked == Checked::Damaged {
                    store.stored.remove(&key);
                }
                ticket.complete(Ok(checked)).into()
            }
            BlobCommand::Stat { ticket, keys } => {
                let lengths = keys.iter().map(|key| store.stored.get(key).map(|bytes| bytes.len() as u64));
                ticket.complete(Ok(lengths.collect())).into()
            }
            BlobCommand::Read { ticket, key, offset, bytes_max } => {
                let piece = store.stored.get(&key).map(|bytes| {
                    let from = usize::try_from(offset).expect("small").min(bytes.len());
                    let to = (from + bytes_max as usize).min(bytes.len());
                    BlobPiece { total: bytes.len() as u64, bytes: bytes[from..to].to_vec() }
                });
                ticket.complete(Ok(piece)).into()
            }
            BlobCommand::Put { ticket, key, .. } => {
                store.settle(key);
                ticket.complete(Ok(stored)).into()
            }
            BlobCommand::Commit { ticket, key, .. } => {
                store.settle(key);
                ticket.complete(Ok(stored)).into()
            }
            BlobCommand::Write { ticket, key, offset, bytes } => {
                let part = store.parts.entry(key).or_default();
                part.truncate(usize::try_from(offset).expect("small"));
                let written = if part.len() as u64 == offset {
                    part.extend_from_slice(&bytes);
                    Ok(())
                } else {
                    Err(StorageFault { cause: StorageCause::Missing, ..failed(StorageAction::Write) })
                };
                ticket.complete(written).into()
            }
        }
    }
}

fn fault<T>(action: StorageAction) -> Result<T, StorageFault> {
    Err(failed(action))
}

fn failed(action: StorageAction) -> StorageFault {
    let (file, detail) = ("blob".into(), "injected".into());
    StorageFault { action, file, offset: None, cause: StorageCause::Failed, detail }
}

impl BlobStore {
    fn settle(&mut self, key: BlobKey) {
        if let Some(bytes) = self.staged.remove(&key) {
            self.stored.insert(key, bytes);
        }
    }

    /// Stores bytes durably.
    pub fn store_bytes(&mut self, bytes: &[u8]) {
        self.stored.insert(key_of(bytes), Arc::new(bytes.to_vec()));
    }

    /// Stores a content durably, as a caller does before it names it.
    pub fn store(&mut self, content: &Content) {
        self.stored.insert(content.key, Arc::clone(&content.bytes));
    }

    /// Whether a blob is stored, durably and whole.
    #[must_use]
    pub fn holds(&self, key: &BlobKey) -> bool {
        self.stored.get(key).is_some_and(|bytes| key_of(bytes) == *key)
    }

    /// Damages, or loses, one of the blobs. Which one, if there is any.
    pub fn rot(&mut self, choose: &mut dyn Choose) -> Option<BlobKey> {
        if self.stored.is_empty() {
            return None;
        }
        let at = choose.below(self.stored.len() as u64);
        let key = *self.stored.keys().nth(usize::try_from(at).expect("small")).expect("one of them");
        if choose.once_in(2) {
            self.stored.remove(&key);
        } else {
            self.stored.insert(key, Arc::new(b"rotten".to_vec()));
        }
        Some(key)
    }

    /// The process, or the machine, ended: what was on its way is stored or lost.
    pub fn crash(&mut self, choose: &mut dyn Choose, counts: &mut Counts) {
        self.parts.clear();
        for (key, bytes) in std::mem::take(&mut self.staged) {
            if choose.once_in(2) {
                self.stored.insert(key, bytes);
            } else {
                counts.add(Fault::BlobLost);
            }
        }
    }
}
