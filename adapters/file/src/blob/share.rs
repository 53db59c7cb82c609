//! Who else needs the blobs of a store: logs that share it, and backups that copy from it. While anybody
//! does, nothing is removed: a log knows only what it names itself.

use super::store::BlobStore;
use crate::fault::OrFault;
use crate::folder::{Access, Folder};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::sync::Arc;
use strandline_core::error::{StorageAction, StorageFault};
use strandline_core::id::{LogId, hex};

/// Folder of the store in which each log that ever used it has an empty file.
pub(super) const LOGS: &str = "logs";

/// Why a blob store gives up nothing now (family: caller). Nothing was removed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum BlobsKept {
    /// Blobs that one of the logs does not name may be what another one needs.
    #[error(
        "expected a blob store of one log, found that {} use it: {}; remove the file of that name in its \
         folder `{LOGS}` for each that does so no more",
        .logs.len(), .logs.join(", ")
    )]
    Shared {
        /// The logs: each with the name of its replica.
        logs: Vec<String>,
    },
    /// A backup copies what keys named when it began.
    #[error("expected no backup under way, found {backups}: try again when they have ended")]
    BackedUp {
        /// How many.
        backups: usize,
    },
}

/// What keeps the blobs of a store.
#[derive(Debug, Default)]
pub(super) struct Keepers {
    logs: BTreeSet<String>,
    backups: usize,
}

impl Keepers {
    /// Whose store this is, as its folder says.
    pub(super) fn load(root: &Folder) -> Result<Self, StorageFault> {
        let logs = match root.existing(LOGS) {
            Err(error) if error.kind() == ErrorKind::NotFound => BTreeSet::new(),
            other => {
                let logs = other.or_fault(StorageAction::List, LOGS, None)?;
                // A process that ended between a claim and its sync left a name that may not stay.
                logs.sync().or_fault(StorageAction::Sync, LOGS, None)?;
                let names = logs.names().or_fault(StorageAction::List, LOGS, None)?;
                names.into_iter().filter(|name| is_of_a_log(name)).collect()
            }
        };
        Ok(Self { logs, backups: 0 })
    }

    /// Whether blobs may be removed.
    pub(super) fn judge(&self) -> Result<(), BlobsKept> {
        if self.logs.len() > 1 {
            return Err(BlobsKept::Shared { logs: self.logs.iter().cloned().collect() });
        }
        match self.backups {
            0 => Ok(()),
            backups => Err(BlobsKept::BackedUp { backups }),
        }
    }
}

/// Keeps every blob of a store from being removed until it is dropped.
#[derive(Debug)]
#[must_use = "blobs are kept only as long as this lives"]
pub struct BlobHold(Arc<BlobStore>);

impl Drop for BlobHold {
    fn drop(&mut self) {
        self.0.keeping().backups -= 1;
    }
}

impl BlobStore {
    /// Keeps every blob that is stored now, and later, until the answer is dropped.
    pub fn hold(self: &Arc<Self>) -> BlobHold {
        self.keeping().backups += 1;
        BlobHold(Arc::clone(self))
    }

    /// Whether blobs may be removed on the word of one log.
    ///
    /// # Errors
    /// [`BlobsKept`] says who needs them.
    pub fn may_remove(&self) -> Result<(), BlobsKept> {
        self.keeping().judge()
    }

    /// Notes, durably, that the replica `identity` of `log` uses this store.
    pub(crate) fn claim(&self, log: LogId, identity: &str) -> Result<(), StorageFault> {
        let name = name_of(log, identity);
        let mut keepers = self.keeping();
        if keepers.logs.contains(&name) {
            return Ok(());
        }
        let logs = self.root().subfolder(LOGS).or_fault(StorageAction::Write, LOGS, None)?;
        let file = logs.file(&name, Access::Ensure).or_fault(StorageAction::Write, &name, None)?;
        let synced = file.sync_all().or_fault(StorageAction::Sync, &name, None);
        if let Err(fault) = synced.and_then(|()| logs.sync().or_fault(StorageAction::Sync, LOGS, None)) {
            // No later sync would vouch for it, and whoever finds it would believe it.
            let _ = logs.remove(&name);
            return Err(fault);
        }
        keepers.logs.insert(name);
        Ok(())
    }
}

/// Whether a file in the folder is one of ours.
fn is_of_a_log(name: &str) -> bool {
    name.split_once('.').is_some_and(|(log, _)| LogId::parse(log).is_some())
}

/// What the file of a log's replica is called. A name that no file can have is told apart by its digest.
fn name_of(log: LogId, identity: &str) -> String {
    if !identity.contains('/') {
        return format!("{log}.{identity}");
    }
    let digest: [u8; 32] = Sha256::digest(identity.as_bytes()).into();
    format!("{log}.{}.{}", identity.replace('/', "_"), hex(&digest[..8]))
}

#[cfg(test)]
mod tests {
    use super::super::upload::hash_bytes;
    use super::*;
    use crate::folder::identity;
    use crate::folder::steps::{self, Step};

    fn store(root: &tempfile::TempDir) -> Arc<BlobStore> {
        Arc::new(BlobStore::open(root.path().join("blobs")).unwrap())
    }

    #[test]
    fn a_store_of_two_logs_gives_up_nothing_also_when_only_one_is_open() {
        let root = tempfile::tempdir().unwrap();
        let first = store(&root);
        first.put(hash_bytes(b"of the second"), b"of the second").unwrap();
        first.claim(LogId([1; 16]), "a").unwrap();
        first.claim(LogId([1; 16]), "a").unwrap();
        assert_eq!(first.may_remove(), Ok(()));
        first.claim(LogId([2; 16]), "a").unwrap();
        drop(first);
        let second = store(&root);
        second.claim(LogId([1; 16]), "a").unwrap();
        let Err(BlobsKept::Shared { logs }) = second.may_remove() else { panic!("two logs use it") };
        assert_eq!(logs, [format!("{}.a", LogId([1; 16])), format!("{}.a", LogId([2; 16]))]);
        let removed = second.remove(&[hash_bytes(b"of the second")], 0).unwrap();
        assert_eq!((removed.blobs, second.keys().count()), (0, 1));
        drop(second);
        std::fs::write(root.path().join("blobs/logs/notes.txt"), "of a person").unwrap();
        std::fs::remove_file(root.path().join("blobs/logs").join(&logs[1])).unwrap();
        assert_eq!(store(&root).may_remove(), Ok(()));
    }

    #[test]
    fn a_claim_that_a_start_finds_is_durable_before_it_counts() {
        let root = tempfile::tempdir().unwrap();
        store(&root).claim(LogId([1; 16]), "a").unwrap();
        let logs = identity(&std::fs::File::open(root.path().join("blobs/logs")).unwrap()).unwrap();
        steps::take();
        store(&root).claim(LogId([1; 16]), "a").unwrap();
        assert!(steps::take().contains(&Step::Synced(logs)));
    }

    #[test]
    fn what_is_held_stays_until_the_last_hold_is_dropped() {
        let root = tempfile::tempdir().unwrap();
        let store = store(&root);
        let key = hash_bytes(b"bytes");
        store.put(key, b"bytes").unwrap();
        let holds = [store.hold(), store.hold()];
        assert_eq!(store.may_remove(), Err(BlobsKept::BackedUp { backups: 2 }));
        assert_eq!(store.remove(&[key], 0).unwrap().blobs, 0);
        drop(holds);
        assert_eq!(store.may_remove(), Ok(()));
        assert_eq!(store.remove(&[key], 0).unwrap().blobs, 1);
    }

    #[test]
    fn names_of_replicas_become_names_of_files() {
        let log = LogId([3; 16]);
        assert_eq!(name_of(log, "a"), format!("{log}.a"));
        let (one, other) = (name_of(log, "a/b"), name_of(log, "a_b"));
        assert!(!one.contains('/') && one != other && one != name_of(log, "a/b/"));
    }
}
