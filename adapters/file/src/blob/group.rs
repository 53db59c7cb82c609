//! Many blobs, one round of syncs.

use super::fans::fan_of;
use super::store::{BlobStore, StoredBlob};
use super::upload::{PIECE_BYTES, TemporaryName, Upload, hash_bytes};
use crate::syncs::Syncs;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind, Read};
use std::sync::Arc;
use strandline_core::error::{StorageAction, StorageFault};
use strandline_core::lifecycle::command::Stored;
use strandline_core::record::BlobKey;

/// Why bytes could not be stored. Whose fault it is stays apart.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The caller's reader failed; nothing was stored.
    #[error("cannot read what is to be stored: {0}")]
    Source(#[source] io::Error),
    /// The store's disk failed.
    #[error(transparent)]
    Storage(#[from] StorageFault),
}

/// Blobs that become visible and durable together, with few syncs: the bytes of all are synced
/// while more are added, and each folder is synced once. Dropped without [`StoreGroup::commit`] it
/// stores nothing.
///
/// Every blob added costs a temporary file and about 150 bytes of memory until the commit; a few
/// thousand at a time is a good size.
///
/// ```
/// let parent = tempfile::tempdir()?;
/// let store = strandline_file::BlobStore::open(parent.path().join("blobs"))?;
/// let mut group = store.group();
/// let one = group.add(&b"one"[..])?;
/// let two = group.add(&b"two"[..])?;
/// assert_eq!(store.stat(one.key)?, None);
/// group.commit()?;
/// assert_eq!((store.stat(one.key)?, store.stat(two.key)?), (Some(3), Some(3)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct StoreGroup<'a> {
    store: &'a BlobStore,
    syncs: Syncs,
    pending: BTreeMap<BlobKey, (TemporaryName<'a>, u64)>,
    /// The folders of the keys whose entries must be durable before the commit is answered. Those
    /// of blobs that were stored before are among them: whoever stored them may not be done yet.
    touched: BTreeSet<u8>,
    piece: Vec<u8>,
}

impl<'a> StoreGroup<'a> {
    /// With no threads everything is synced by the caller.
    pub(super) fn new(store: &'a BlobStore, sync_threads: usize) -> Self {
        let (pending, touched) = Default::default();
        Self { store, syncs: Syncs::new(sync_threads), pending, touched, piece: Vec::new() }
    }

    /// Adds what the reader gives until it ends. It is stored when [`StoreGroup::commit`] succeeds.
    ///
    /// # Errors
    /// [`StoreError::Source`] if the reader fails, [`StoreError::Storage`] for what the system
    /// reports; this blob is not in the group then, the others are.
    pub fn add(&mut self, mut reader: impl Read) -> Result<StoredBlob, StoreError> {
        let mut piece = std::mem::take(&mut self.piece);
        piece.resize(PIECE_BYTES, 0);
        let added = self.add_pieces(&mut reader, &mut piece);
        self.piece = piece;
        added
    }

    /// Makes everything added visible and durable.
    ///
    /// # Errors
    /// The first fault the system reports. Any of the blobs may be stored then, or none.
    pub fn commit(mut self) -> Result<(), StorageFault> {
        self.syncs.finish()?;
        self.store.fans().ensure(self.store.root(), &self.touched)?;
        for (key, (temporary, bytes)) in std::mem::take(&mut self.pending) {
            temporary.publish(key, bytes)?;
        }
        for fan in std::mem::take(&mut self.touched) {
            let folder = self.store.fan_folder(fan, StorageAction::Sync)?;
            let fans = Arc::clone(self.store.fans());
            self.syncs.run(move || fans.sync(fan, &folder));
        }
        self.syncs.finish()
    }

    /// How many blobs the commit will make visible; those that were stored before are not counted.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.pending.len()
    }

    /// Adds bytes that should have this key.
    pub(super) fn add_keyed(&mut self, key: BlobKey, bytes: &[u8]) -> Result<Stored, StorageFault> {
        if hash_bytes(bytes) != key {
            return Ok(Stored::Mismatch);
        }
        self.add_bytes(key, bytes)?;
        Ok(Stored::Stored)
    }

    /// Adds an upload whose key was verified.
    pub(super) fn add_upload(&mut self, key: BlobKey, upload: Upload<'a>) -> Result<(), StorageFault> {
        self.touched.insert(fan_of(key));
        let bytes = upload.bytes();
        if !self.holds(key, bytes)? {
            let (temporary, file) = upload.into_parts();
            self.syncs.submit(file, temporary.as_str().to_owned());
            self.pending.insert(key, (temporary, bytes));
        }
        Ok(())
    }

    fn add_pieces(&mut self, reader: &mut impl Read, piece: &mut [u8]) -> Result<StoredBlob, StoreError> {
        let mut count = fill(reader, piece).map_err(StoreError::Source)?;
        if count < PIECE_BYTES {
            // All of it is in memory: one that is stored already costs no file.
            let key = hash_bytes(&piece[..count]);
            self.add_bytes(key, &piece[..count])?;
            return Ok(StoredBlob { key, bytes: count as u64 });
        }
        let mut upload = Upload::new(self.store)?;
        while count > 0 {
            upload.write(upload.bytes(), &piece[..count])?;
            count = fill(reader, piece).map_err(StoreError::Source)?;
        }
        let stored = StoredBlob { key: upload.key()?, bytes: upload.bytes() };
        self.add_upload(stored.key, upload)?;
        Ok(stored)
    }

    fn add_bytes(&mut self, key: BlobKey, bytes: &[u8]) -> Result<(), StorageFault> {
        if self.holds(key, bytes.len() as u64)? {
            self.touched.insert(fan_of(key));
            return Ok(());
        }
        let mut upload = Upload::new(self.store)?;
        upload.write(0, bytes)?;
        self.add_upload(key, upload)
    }

    /// Whether the blob is in the group or the store. One of another length was damaged later and
    /// does not count, so that storing it again repairs it. One that is there counts as stored now: it
    /// is not collected before whoever stores it had time to name it.
    fn holds(&self, key: BlobKey, bytes: u64) -> Result<bool, StorageFault> {
        Ok(self.pending.contains_key(&key) || self.store.touch(key, bytes)?)
    }
}

/// Reads until the buffer is full or the reader ends.
fn fill(reader: &mut impl Read, buf: &mut [u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        match reader.read(&mut buf[done..]) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn store() -> (tempfile::TempDir, BlobStore) {
        let root = tempfile::tempdir().unwrap();
        let store = BlobStore::open(root.path()).unwrap();
        (root, store)
    }

    fn uploads(root: &tempfile::TempDir) -> usize {
        std::fs::read_dir(root.path().join("uploads")).unwrap().count()
    }

    #[test]
    fn a_group_appears_at_its_commit() {
        let (root, store) = store();
        let mut group = store.group();
        let texts: Vec<_> = (0..300).map(|n| format!("blob {n}")).collect();
        let stored: Vec<_> = texts.iter().map(|text| group.add(text.as_bytes()).unwrap()).collect();
        assert_eq!((store.keys().count(), group.pending()), (0, 300));
        group.commit().unwrap();
        for (text, blob) in texts.iter().zip(stored) {
            assert_eq!(blob, StoredBlob { key: hash_bytes(text.as_bytes()), bytes: text.len() as u64 });
            assert_eq!(store.verify(blob.key).unwrap(), Some(blob.bytes));
        }
        assert_eq!(uploads(&root), 0);
    }

    #[test]
    fn a_group_without_commit_stores_nothing() {
        let (root, store) = store();
        let mut group = store.group();
        group.add(&b"small"[..]).unwrap();
        group.add(io::repeat(1).take(1 << 20)).unwrap();
        assert_eq!(uploads(&root), 2);
        drop(group);
        assert_eq!((uploads(&root), store.keys().count()), (0, 0));
    }

    #[test]
    fn what_is_stored_or_added_already_costs_nothing() {
        let (root, store) = store();
        let large = || io::repeat(1).take(1 << 20);
        let mut group = store.group();
        group.add(large()).unwrap();
        group.add(large()).unwrap();
        assert_eq!((group.pending(), uploads(&root)), (1, 1));
        group.commit().unwrap();
        let mut group = store.group();
        let again = group.add(large()).unwrap();
        assert_eq!((group.pending(), uploads(&root)), (0, 0));
        group.commit().unwrap();
        assert_eq!(store.verify(again.key).unwrap(), Some(1 << 20));
    }

    #[test]
    fn sizes_around_a_piece_are_stored_whole() {
        let (_root, store) = store();
        for bytes in [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 2 * PIECE_BYTES] {
            let content = vec![5; bytes];
            let stored = store.store_reader(&content[..]).unwrap();
            assert_eq!((stored.key, stored.bytes), (hash_bytes(&content), bytes as u64));
            assert_eq!(store.verify(stored.key).unwrap(), Some(bytes as u64));
        }
    }

    /// Gives short reads and interruptions, and remembers the largest buffer it was given.
    struct Stream<'a> {
        left: u64,
        reads: u64,
        largest: &'a Cell<usize>,
        fails_at_end: bool,
    }

    impl Read for Stream<'_> {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            self.largest.set(self.largest.get().max(buf.len()));
            self.reads += 1;
            if self.reads.is_multiple_of(5) {
                return Err(ErrorKind::Interrupted.into());
            }
            if self.left == 0 && self.fails_at_end {
                return Err(io::Error::other("the cable was cut"));
            }
            let count = buf.len().min(100_000).min(usize::try_from(self.left).unwrap_or(usize::MAX));
            buf[..count].fill(9);
            self.left -= count as u64;
            Ok(count)
        }
    }

    #[test]
    fn a_stream_of_300_mb_passes_through_one_piece_of_memory() {
        let (_root, store) = store();
        let largest = Cell::new(0);
        let total = 300_000_000;
        let stream = Stream { left: total, reads: 0, largest: &largest, fails_at_end: false };
        let mut group = store.group();
        let stored = group.add(stream).unwrap();
        assert!(largest.get() <= PIECE_BYTES && group.piece.capacity() == PIECE_BYTES);
        group.commit().unwrap();
        assert_eq!(store.verify(stored.key).unwrap(), Some(total));
    }

    #[test]
    fn a_failing_reader_is_the_callers_and_leaves_nothing() {
        let (root, store) = store();
        let largest = Cell::new(0);
        for left in [10, 1 << 20] {
            let stream = Stream { left, reads: 0, largest: &largest, fails_at_end: true };
            let error = store.store_reader(stream).unwrap_err();
            assert!(
                matches!(&error, StoreError::Source(e) if e.to_string() == "the cable was cut"),
                "{error}"
            );
            assert_eq!((uploads(&root), store.keys().count()), (0, 0));
        }
    }
}
