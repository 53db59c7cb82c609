//! The store: `a/<64 hex digits>` by key, `uploads/` for what is not a blob yet.

use super::fans::{FANS, Fans, fan_name, fan_of};
use super::group::{StoreError, StoreGroup};
use super::share::Keepers;
use super::upload::hash_file;
use crate::fault::{OrFault, refused};
use crate::folder::{Access, Folder, read_at_most, sync_parent};
use crate::lock::{Lock, OpenError, lock};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use strandline_core::error::{StorageAction, StorageCause, StorageFault};
use strandline_core::id::unhex;
use strandline_core::lifecycle::command::{BlobPiece, Stored};
use strandline_core::limits::FRAME_PAYLOAD_BYTES_MAX;
use strandline_core::record::BlobKey;

const UPLOADS: &str = "uploads";

/// Threads that sync for one [`StoreGroup`].
const GROUP_SYNC_THREADS: usize = 4;

/// A blob that is stored.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct StoredBlob {
    /// SHA-256 of its bytes.
    pub key: BlobKey,
    /// How many there are.
    pub bytes: u64,
}

/// A content-addressed store of blobs in a folder of its own. Several logs of one process may share one
/// store; each leaves its name there, and while there are several nothing is ever removed.
///
/// A blob appears whole, verified and durable, or not at all: it is written to a temporary file,
/// hashed on the way, synced, renamed, and the folder is synced. Before that [`BlobStore::stat`] does
/// not know of it. A sync of a folder that fails is final: what it was to make durable is gone, and
/// nothing more is stored in that folder until the store is opened again. At most 256 KiB of a blob
/// are in memory at once.
///
/// ```
/// use strandline_file::BlobStore;
///
/// let parent = tempfile::tempdir()?;
/// let store = BlobStore::open(parent.path().join("blobs"))?;
/// let stored = store.store_reader(&b"some bytes"[..])?;
/// assert_eq!(stored.bytes, 10);
/// assert_eq!(store.verify(stored.key)?, Some(10));
/// assert_eq!(store.read(stored.key, 5, 100)?.expect("stored").bytes, b"bytes");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct BlobStore {
    root: Folder,
    uploads: Folder,
    fans: Arc<Fans>,
    temporaries: AtomicU64,
    /// Held while a blob is found to be there and kept, or removed; and who needs them.
    keeping: Mutex<Keepers>,
    _lock: Lock,
}

impl BlobStore {
    /// Opens and locks the store in the folder `path`, creating it if it is missing, removes uploads
    /// that a killed process left, and makes durable which blobs there are.
    ///
    /// # Errors
    /// [`OpenError::InUse`] while it is open elsewhere; [`OpenError::Storage`] for what the system
    /// reports.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let root = Folder::create(path).or_fault(StorageAction::List, &name, None)?;
        let lock = lock(&root, path)?;
        let uploads = root.subfolder(UPLOADS).or_fault(StorageAction::Sync, UPLOADS, None)?;
        for upload in uploads.names().or_fault(StorageAction::List, UPLOADS, None)? {
            if unhex::<8>(&upload).is_some() {
                uploads.remove(&upload).or_fault(StorageAction::Remove, &upload, None)?;
            }
        }
        // A process killed before this sync may have left fan-out folders that are not durable.
        root.sync().or_fault(StorageAction::Sync, &name, None)?;
        match sync_parent(path) {
            // We may use a store in a folder that we may not read; then we did not create it either.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {}
            other => other.or_fault(StorageAction::Sync, &name, None)?,
        }
        let keepers = Keepers::load(&root)?;
        let fans = Arc::new(Fans::open(&root)?);
        Ok(Self {
            root,
            uploads,
            fans,
            temporaries: AtomicU64::new(0),
            keeping: Mutex::new(keepers),
            _lock: lock,
        })
    }

    /// The length of a blob; `None` if it is not stored, or not durably yet.
    ///
    /// # Errors
    /// What the system reports.
    pub fn stat(&self, key: BlobKey) -> Result<Option<u64>, StorageFault> {
        self.fans.find(key, || self.length(key))
    }

    /// A blob, open for reading; `None` if it is not stored. It stays readable if it is removed.
    ///
    /// # Errors
    /// What the system reports.
    pub fn file(&self, key: BlobKey) -> Result<Option<File>, StorageFault> {
        let Some(fan) = self.fan(key)? else { return Ok(None) };
        match fan.file(&key.to_string(), Access::Read) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            other => other.map(Some).or_fault(StorageAction::Read, &name(key), None),
        }
    }

    /// Reads `bytes_max` bytes of a blob at `offset`; fewer only where it ends. `None` if it is not
    /// stored.
    ///
    /// # Errors
    /// What the system reports, or more than 4 MiB asked for.
    pub fn read(&self, key: BlobKey, offset: u64, bytes_max: u32) -> Result<Option<BlobPiece>, StorageFault> {
        if bytes_max > FRAME_PAYLOAD_BYTES_MAX {
            let detail =
                format!("expected at most {FRAME_PAYLOAD_BYTES_MAX} bytes in one read, found {bytes_max}");
            return Err(refused(StorageAction::Read, &name(key), Some(offset), StorageCause::Failed, detail));
        }
        let Some(file) = self.file(key)? else { return Ok(None) };
        let read = read_at_most(&file, offset, bytes_max);
        let (total, bytes) = read.or_fault(StorageAction::Read, &name(key), Some(offset))?;
        Ok(Some(BlobPiece { total, bytes }))
    }

    /// Stores bytes that should have this key.
    ///
    /// # Errors
    /// What the system reports. Bytes with another key are no error, and nothing is kept of them.
    pub fn put(&self, key: BlobKey, bytes: &[u8]) -> Result<Stored, StorageFault> {
        let mut group = StoreGroup::new(self, 0);
        let stored = group.add_keyed(key, bytes)?;
        group.commit().map(|()| stored)
    }

    /// Stores what the reader gives until it ends.
    ///
    /// # Errors
    /// [`StoreError::Source`] if the reader fails, [`StoreError::Storage`] for what the system
    /// reports. Nothing is kept then.
    pub fn store_reader(&self, reader: impl Read) -> Result<StoredBlob, StoreError> {
        let mut group = StoreGroup::new(self, 0);
        let stored = group.add(reader)?;
        group.commit()?;
        Ok(stored)
    }

    /// Begins to store many blobs with one round of syncs.
    #[must_use]
    pub fn group(&self) -> StoreGroup<'_> {
        StoreGroup::new(self, GROUP_SYNC_THREADS)
    }

    /// The keys of all blobs, in order. At most the 16th part of them is in memory at once. Blobs
    /// stored meanwhile may be missed.
    ///
    /// # Errors
    /// An item is an error for what the system reports; the keys after it go on.
    pub fn keys(&self) -> impl Iterator<Item = Result<BlobKey, StorageFault>> + '_ {
        self.keys_of(0)
    }

    /// The keys of the blobs in this and later folders.
    pub(super) fn keys_of(&self, first: u8) -> impl Iterator<Item = Result<BlobKey, StorageFault>> + '_ {
        (first..FANS).flat_map(|fan| match self.fan_keys(fan) {
            Ok(keys) => keys.into_iter().map(Ok).collect::<Vec<_>>(),
            Err(fault) => vec![Err(fault)],
        })
    }

    /// Reads a blob through and compares it with its key. Gives its length; `None` if it is not
    /// stored.
    ///
    /// # Errors
    /// The cause `Damaged` if its bytes are not what was stored, or what the system reports.
    pub fn verify(&self, key: BlobKey) -> Result<Option<u64>, StorageFault> {
        let Some(file) = self.file(key)? else { return Ok(None) };
        let (found, bytes) = hash_file(&file, &name(key))?;
        if found == key {
            return Ok(Some(bytes));
        }
        let detail = format!("expected bytes with the SHA-256 {key}, found {bytes} bytes with {found}");
        Err(StorageFault::damaged(name(key), 0, detail))
    }

    /// Creates an empty temporary file.
    pub(super) fn temporary(&self) -> Result<(String, File), StorageFault> {
        let name = format!("{:016x}", self.temporaries.fetch_add(1, Ordering::Relaxed));
        let file = self.uploads.file(&name, Access::New).or_fault(StorageAction::Write, &name, None)?;
        Ok((name, file))
    }

    /// Removes a temporary file.
    pub(super) fn discard(&self, temporary: &str) {
        // What cannot be removed now is removed by the next open.
        let _ = self.uploads.remove(temporary);
    }

    /// Gives a synced temporary file of so many bytes its name as a blob, whose fan-out folder exists.
    /// False if that blob is there by now: the temporary file keeps its name then. In both cases the
    /// name is durable after the next sync of the folder.
    pub(super) fn publish(&self, temporary: &str, key: BlobKey, bytes: u64) -> Result<bool, StorageFault> {
        // A name that others may have made durable is never replaced: if our sync fails, it must stay.
        let keeping = self.keeping();
        let mut renamed = false;
        self.fans.add(key, || {
            if self.freshen(&keeping, key, bytes)? {
                return Ok(false);
            }
            let fan = self.fan_folder(fan_of(key), StorageAction::Write)?;
            let done = self.uploads.rename(temporary, &fan, &key.to_string());
            done.or_fault(StorageAction::Write, &name(key), None)?;
            renamed = true;
            Ok(true)
        })?;
        Ok(renamed)
    }

    /// A fan-out folder, which exists.
    pub(super) fn fan_folder(&self, fan: u8, action: StorageAction) -> Result<Folder, StorageFault> {
        let name = fan_name(fan);
        self.root.existing(&name).or_fault(action, &name, None)
    }

    pub(super) const fn fans(&self) -> &Arc<Fans> {
        &self.fans
    }

    /// The length of what has a blob's name, durable or not.
    pub(super) fn length(&self, key: BlobKey) -> Result<Option<u64>, StorageFault> {
        let Some(fan) = self.fan(key)? else { return Ok(None) };
        fan.length(&key.to_string()).or_fault(StorageAction::Read, &name(key), None)
    }

    pub(super) fn keeping(&self) -> std::sync::MutexGuard<'_, Keepers> {
        self.keeping.lock().expect("no holder panics")
    }

    pub(super) const fn root(&self) -> &Folder {
        &self.root
    }

    pub(super) fn fan(&self, key: BlobKey) -> Result<Option<Folder>, StorageFault> {
        match self.root.existing(&fan_name(fan_of(key))) {
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            other => other.map(Some).or_fault(StorageAction::Read, &name(key), None),
        }
    }

    fn fan_keys(&self, number: u8) -> Result<Vec<BlobKey>, StorageFault> {
        let mut key = BlobKey([0; 32]);
        key.0[0] = number << 4;
        let Some(fan) = self.fan(key)? else { return Ok(Vec::new()) };
        let names = fan.names().or_fault(StorageAction::List, &fan_name(number), None)?;
        let mut keys: Vec<_> = names.iter().filter_map(|name| unhex(name)).map(BlobKey).collect();
        keys.retain(|key| fan_of(*key) == number);
        keys.sort_unstable();
        Ok(keys)
    }
}

/// Where a blob is, below the store's folder.
pub(super) fn name(key: BlobKey) -> String {
    format!("{}/{key}", fan_name(fan_of(key)))
}

#[cfg(test)]
mod tests {
    use super::super::upload::hash_bytes;
    use super::*;
    use crate::folder::identity;
    use crate::folder::steps::{self, Step};
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn store() -> (tempfile::TempDir, BlobStore) {
        let root = tempfile::tempdir().unwrap();
        let store = BlobStore::open(root.path().join("blobs")).unwrap();
        (root, store)
    }

    fn path(root: &tempfile::TempDir, key: BlobKey) -> std::path::PathBuf {
        root.path().join("blobs").join(name(key))
    }

    fn uploads(root: &tempfile::TempDir) -> usize {
        std::fs::read_dir(root.path().join("blobs/uploads")).unwrap().count()
    }

    #[test]
    fn a_blob_is_found_by_its_key_and_private() {
        let (root, store) = store();
        let key = hash_bytes(b"bytes");
        assert_eq!(store.stat(key).unwrap(), None);
        assert_eq!(store.read(key, 0, 1).unwrap(), None);
        assert_eq!(store.verify(key).unwrap(), None);
        assert_eq!(store.put(key, b"bytes").unwrap(), Stored::Stored);
        assert_eq!(store.stat(key).unwrap(), Some(5));
        assert_eq!(store.read(key, 1, 3).unwrap().unwrap(), BlobPiece { total: 5, bytes: b"yte".to_vec() });
        assert_eq!(store.read(key, 9, 3).unwrap().unwrap(), BlobPiece { total: 5, bytes: Vec::new() });
        assert_eq!(store.verify(key).unwrap(), Some(5));
        let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
        let file = path(&root, key);
        assert_eq!((mode(&file), mode(file.parent().unwrap()), uploads(&root)), (0o600, 0o700, 0));
    }

    #[test]
    fn bytes_with_another_key_leave_nothing() {
        let (root, store) = store();
        let key = hash_bytes(b"bytes");
        assert_eq!(store.put(key, b"other").unwrap(), Stored::Mismatch);
        assert_eq!((store.stat(key).unwrap(), uploads(&root)), (None, 0));
        assert_eq!(store.keys().count(), 0);
    }

    #[test]
    fn a_blob_cut_short_is_stored_afresh() {
        let (root, store) = store();
        let key = hash_bytes(b"bytes");
        store.put(key, b"bytes").unwrap();
        std::fs::write(path(&root, key), b"byt").unwrap();
        assert_eq!(store.verify(key).unwrap_err().cause, StorageCause::Damaged);
        assert_eq!(store.put(key, b"bytes").unwrap(), Stored::Stored);
        assert_eq!(store.verify(key).unwrap(), Some(5));
    }

    #[test]
    fn keys_come_in_order_and_other_names_are_passed_over() {
        let (root, store) = store();
        let mut expected: Vec<_> = (0..40_u8).map(|n| store.store_reader(&[n; 3][..]).unwrap().key).collect();
        expected.sort_unstable();
        std::fs::write(path(&root, expected[0]).with_file_name("notes"), b"").unwrap();
        let keys: Result<Vec<_>, _> = store.keys().collect();
        assert_eq!(keys.unwrap(), expected);
    }

    #[test]
    fn uploads_of_a_killed_process_go_and_unknown_files_stay() {
        let (root, store) = store();
        assert!(matches!(BlobStore::open(root.path().join("blobs")), Err(OpenError::InUse(_))));
        drop(store);
        for name in ["0000000000000007", "notes"] {
            std::fs::write(root.path().join("blobs/uploads").join(name), b"").unwrap();
        }
        BlobStore::open(root.path().join("blobs")).unwrap();
        assert_eq!(uploads(&root), 1);
        assert!(root.path().join("blobs/uploads/notes").exists());
    }

    #[test]
    fn a_blob_is_known_once_its_folder_is_synced_and_a_start_syncs_what_it_finds() {
        let (root, store) = store();
        let key = hash_bytes(b"bytes");
        let fan = fan_of(key);
        store.fans().ensure(store.root(), &[fan].into()).unwrap();
        let (temporary, file) = store.temporary().unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, b"bytes", 0).unwrap();
        assert!(store.publish(&temporary, key, 5).unwrap());
        assert_eq!(store.stat(key).unwrap(), None, "its name may be lost");
        drop(store);
        let id = identity(&File::open(path(&root, key).parent().unwrap()).unwrap()).unwrap();
        steps::take();
        let store = BlobStore::open(root.path().join("blobs")).unwrap();
        assert!(steps::take().contains(&Step::Synced(id)));
        assert_eq!(store.stat(key).unwrap(), Some(5));
    }

    #[test]
    fn a_name_that_is_durable_is_not_replaced() {
        let (root, store) = store();
        let key = hash_bytes(b"bytes");
        let (mut first, mut second) = (store.group(), store.group());
        for group in [&mut first, &mut second] {
            group.add(&b"bytes"[..]).unwrap();
        }
        first.commit().unwrap();
        let before = identity(&File::open(path(&root, key)).unwrap()).unwrap();
        second.commit().unwrap();
        assert_eq!(identity(&File::open(path(&root, key)).unwrap()).unwrap(), before);
        assert_eq!((store.stat(key).unwrap(), uploads(&root)), (Some(5), 0));
    }

    #[test]
    fn a_symbolic_link_in_place_of_a_blob_is_not_followed() {
        let (root, store) = store();
        let key = hash_bytes(b"bytes");
        store.put(key, b"bytes").unwrap();
        let outside = root.path().join("outside");
        std::fs::write(&outside, b"bytes").unwrap();
        std::fs::remove_file(path(&root, key)).unwrap();
        symlink(&outside, path(&root, key)).unwrap();
        assert!(store.file(key).is_err());
        assert!(store.put(key, b"bytes").is_err());
        assert_eq!(std::fs::read(outside).unwrap(), b"bytes");
    }

    #[test]
    fn more_than_a_frame_is_refused() {
        let (_root, store) = store();
        let fault = store.read(BlobKey([0; 32]), 0, FRAME_PAYLOAD_BYTES_MAX + 1).unwrap_err();
        assert!(fault.detail.contains("4194304"), "{fault}");
    }
}
