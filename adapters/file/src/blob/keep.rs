//! Looking through the store: what is in it, what may go, and what is damaged.

use super::fans::fan_of;
use super::share::Keepers;
use super::store::{BlobStore, name};
use super::upload::hash_file;
use crate::fault::OrFault;
use crate::folder::{Access, identity};
use std::io::ErrorKind;
use std::sync::MutexGuard;
use std::time::{Duration, SystemTime};
use strandline_core::error::{StorageAction, StorageFault};
use strandline_core::lifecycle::command::{Checked, ListedBlob, RemovedBlobs};
use strandline_core::record::BlobKey;

/// Where damaged blobs are kept for a person.
const DAMAGED: &str = "damaged";

impl BlobStore {
    /// At most `count_max` blobs above `after`, in order of their keys; fewer only at the end. At most
    /// the 16th part of all keys is in memory at once.
    ///
    /// # Errors
    /// What the system reports.
    pub fn page(&self, after: Option<BlobKey>, count_max: u32) -> Result<Vec<ListedBlob>, StorageFault> {
        let mut page = Vec::new();
        for key in self.keys_from(after) {
            let key = key?;
            if after.is_some_and(|after| key <= after) {
                continue;
            }
            if page.len() == count_max as usize {
                break;
            }
            if let Some((bytes, untouched)) = self.age(key)? {
                let untouched_ms = u64::try_from(untouched.as_millis()).unwrap_or(u64::MAX);
                page.push(ListedBlob { key, bytes, untouched_ms });
            }
        }
        Ok(page)
    }

    /// Removes those of `keys` that were not stored, or stored again, within the last `untouched_ms`.
    /// None while [`BlobStore::may_remove`] says that somebody else may need them.
    ///
    /// # Errors
    /// What the system reports. Some may be removed then.
    pub fn remove(&self, keys: &[BlobKey], untouched_ms: u64) -> Result<RemovedBlobs, StorageFault> {
        let mut removed = RemovedBlobs::default();
        for key in keys {
            // Held so that storing it again comes before, and then it stays, or after.
            let keeping = self.keeping();
            if keeping.judge().is_err() {
                break;
            }
            let Some((bytes, untouched)) = self.age(*key)? else { continue };
            if untouched < Duration::from_millis(untouched_ms) {
                continue;
            }
            let Some(fan) = self.fan(*key)? else { continue };
            if fan.remove(&key.to_string()).or_fault(StorageAction::Remove, &name(*key), None)? {
                removed.blobs += 1;
                removed.bytes += bytes;
            }
        }
        Ok(removed)
    }

    /// Reads a blob through and compares it with its key. One that is damaged is moved to the folder
    /// `damaged`, durably, and is not stored any more.
    ///
    /// # Errors
    /// What the system reports; also of a blob that is missing from a folder whose sync has failed, since
    /// a power cut may bring it back.
    pub fn check(&self, key: BlobKey) -> Result<Checked, StorageFault> {
        let Some(file) = self.file(key)? else {
            self.fans().vouch(fan_of(key))?;
            return Ok(Checked::Missing);
        };
        let (found, bytes) = hash_file(&file, &name(key))?;
        if found == key {
            return Ok(Checked::Sound { bytes });
        }
        let read = identity(&file).or_fault(StorageAction::Read, &name(key), None)?;
        self.set_aside(key, read)
    }

    /// Moves what was read, and found to be damaged, out of the way.
    fn set_aside(&self, key: BlobKey, read: (u64, u64)) -> Result<Checked, StorageFault> {
        let keeping = self.keeping();
        let aside = self.root().subfolder(DAMAGED).or_fault(StorageAction::Write, DAMAGED, None)?;
        let Some(fan) = self.fan(key)? else { return Ok(Checked::Missing) };
        let file_name = key.to_string();
        match fan.identity(&file_name).or_fault(StorageAction::Read, &name(key), None)? {
            Some(now) if now == read => {}
            // Whoever stored it while it was read has verified what is there now.
            Some(_) => {
                let bytes = self.length(key)?.unwrap_or_default();
                return Ok(Checked::Sound { bytes });
            }
            None => return Ok(Checked::Missing),
        }
        fan.rename(&file_name, &aside, &file_name).or_fault(StorageAction::Write, &name(key), None)?;
        self.fans().took(fan_of(key));
        drop(keeping);
        // Whoever hears of it asks for it elsewhere: it must not lie here again after a power cut.
        aside.sync().or_fault(StorageAction::Sync, DAMAGED, None)?;
        self.fans().sync(fan_of(key), &fan)?;
        Ok(Checked::Damaged)
    }

    /// Marks a blob of this length, if it is there, as stored just now. Whether it is; only a sync of
    /// its folder says that it stays.
    pub(super) fn touch(&self, key: BlobKey, bytes: u64) -> Result<bool, StorageFault> {
        self.freshen(&self.keeping(), key, bytes)
    }

    /// As [`BlobStore::touch`], for whoever holds what keeps blobs from being removed meanwhile.
    pub(super) fn freshen(
        &self,
        _keeping: &MutexGuard<'_, Keepers>,
        key: BlobKey,
        bytes: u64,
    ) -> Result<bool, StorageFault> {
        if self.length(key)? != Some(bytes) {
            return Ok(false);
        }
        let Some(file) = self.file(key)? else { return Ok(false) };
        file.set_modified(SystemTime::now()).or_fault(StorageAction::Write, &name(key), None)?;
        Ok(true)
    }

    /// The length of a blob, and how long ago it was stored last. A clock that was set back makes it
    /// young.
    fn age(&self, key: BlobKey) -> Result<Option<(u64, Duration)>, StorageFault> {
        let Some(fan) = self.fan(key)? else { return Ok(None) };
        let file = match fan.file(&key.to_string(), Access::Read) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            other => other.or_fault(StorageAction::Read, &name(key), None)?,
        };
        let data = file.metadata().or_fault(StorageAction::Read, &name(key), None)?;
        let modified = data.modified().or_fault(StorageAction::Read, &name(key), None)?;
        let untouched = SystemTime::now().duration_since(modified).unwrap_or_default();
        Ok(Some((data.len(), untouched)))
    }

    fn keys_from(&self, after: Option<BlobKey>) -> impl Iterator<Item = Result<BlobKey, StorageFault>> + '_ {
        self.keys_of(after.map_or(0, fan_of))
    }
}

#[cfg(test)]
mod tests {
    use super::super::upload::hash_bytes;
    use super::*;
    use crate::folder::steps::{self, Step};
    use strandline_core::lifecycle::command::Stored;

    fn store() -> (tempfile::TempDir, BlobStore) {
        let root = tempfile::tempdir().unwrap();
        let store = BlobStore::open(root.path().join("blobs")).unwrap();
        (root, store)
    }

    fn age(root: &tempfile::TempDir, key: BlobKey) {
        let file = std::fs::File::open(root.path().join("blobs").join(name(key))).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(100)).unwrap();
    }

    #[test]
    fn pages_together_are_all_blobs_in_order() {
        let (_root, store) = store();
        let mut expected: Vec<_> = (0..40_u8).map(|n| store.store_reader(&[n; 3][..]).unwrap().key).collect();
        expected.sort_unstable();
        let (mut found, mut after) = (Vec::new(), None);
        loop {
            let page = store.page(after, 7).unwrap();
            found.extend(page.iter().map(|blob| blob.key));
            assert!(page.iter().all(|blob| blob.bytes == 3));
            match page.last().filter(|_| page.len() == 7) {
                Some(last) => after = Some(last.key),
                None => break,
            }
        }
        assert_eq!(found, expected);
    }

    #[test]
    fn what_was_stored_just_now_or_again_stays() {
        let (root, store) = store();
        let [old, again, new] = [&b"old"[..], b"again", b"new"].map(|bytes| {
            store.put(hash_bytes(bytes), bytes).unwrap();
            hash_bytes(bytes)
        });
        age(&root, old);
        age(&root, again);
        assert_eq!(store.put(again, b"again").unwrap(), Stored::Stored);
        let removed = store.remove(&[old, again, new, BlobKey([9; 32])], 50_000).unwrap();
        assert_eq!(removed, RemovedBlobs { blobs: 1, bytes: 3 });
        assert_eq!([old, again, new].map(|key| store.stat(key).unwrap().is_some()), [false, true, true]);
    }

    #[test]
    fn a_damaged_blob_is_set_aside_and_may_be_stored_again() {
        let (root, store) = store();
        let key = hash_bytes(b"bytes");
        assert_eq!(store.check(key).unwrap(), Checked::Missing);
        store.put(key, b"bytes").unwrap();
        assert_eq!(store.check(key).unwrap(), Checked::Sound { bytes: 5 });
        std::fs::write(root.path().join("blobs").join(name(key)), b"bytez").unwrap();
        assert_eq!(store.check(key).unwrap(), Checked::Damaged);
        assert_eq!(store.stat(key).unwrap(), None);
        let aside = root.path().join("blobs/damaged").join(key.to_string());
        assert_eq!(std::fs::read(aside).unwrap(), b"bytez");
        store.put(key, b"bytes").unwrap();
        assert_eq!(store.check(key).unwrap(), Checked::Sound { bytes: 5 });
        assert_eq!(store.keys().count(), 1);
    }

    #[test]
    fn a_damaged_blob_is_durably_gone_before_anybody_hears_of_it() {
        let (root, store) = store();
        let key = hash_bytes(b"bytes");
        store.put(key, b"bytes").unwrap();
        let blob = root.path().join("blobs").join(name(key));
        std::fs::write(&blob, b"bytez").unwrap();
        steps::take();
        assert_eq!(store.check(key).unwrap(), Checked::Damaged);
        let id = |path: &std::path::Path| identity(&std::fs::File::open(path).unwrap()).unwrap();
        let (aside, fan) = (id(&root.path().join("blobs/damaged")), id(blob.parent().unwrap()));
        let steps = steps::take();
        let renamed = steps.iter().position(|step| *step == Step::Renamed(aside, key.to_string())).unwrap();
        for folder in [aside, fan] {
            assert!(steps[renamed..].contains(&Step::Synced(folder)), "{steps:?}");
        }
    }

    #[test]
    fn a_blob_that_was_stored_anew_while_the_damaged_one_was_read_stays() {
        let (root, store) = store();
        let key = hash_bytes(b"bytes");
        store.put(key, b"bytes").unwrap();
        std::fs::write(root.path().join("blobs").join(name(key)), b"byt").unwrap();
        let damaged = store.file(key).unwrap().unwrap();
        assert_eq!(store.put(key, b"bytes").unwrap(), Stored::Stored);
        let found = store.set_aside(key, identity(&damaged).unwrap()).unwrap();
        assert_eq!((found, store.verify(key).unwrap()), (Checked::Sound { bytes: 5 }, Some(5)));
    }
}
