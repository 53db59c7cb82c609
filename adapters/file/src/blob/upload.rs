//! Bytes on their way to becoming a blob.

use super::store::BlobStore;
use crate::fault::OrFault;
use crate::folder::read_full_at;
use sha2::{Digest, Sha256};
use std::fs::File;
use std::os::unix::fs::FileExt;
use strandline_core::error::{StorageAction, StorageFault};
use strandline_core::limits::PIECE_BYTES_MAX;
use strandline_core::record::BlobKey;

/// Bytes of a blob in memory at once.
pub(crate) const PIECE_BYTES: usize = PIECE_BYTES_MAX as usize;

/// The name of a temporary file of the store; the file is removed with it, unless it was renamed.
#[derive(Debug)]
pub(crate) struct TemporaryName<'a> {
    store: &'a BlobStore,
    name: String,
    renamed: bool,
}

impl TemporaryName<'_> {
    /// Gives the file, synced before and of so many bytes, its name as a blob, unless that blob is
    /// there by now.
    pub(crate) fn publish(mut self, key: BlobKey, bytes: u64) -> Result<(), StorageFault> {
        self.renamed = self.store.publish(&self.name, key, bytes)?;
        Ok(())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.name
    }
}

impl Drop for TemporaryName<'_> {
    fn drop(&mut self) {
        if !self.renamed {
            self.store.discard(&self.name);
        }
    }
}

/// A temporary file that is being filled, hashed as long as its pieces follow one another.
#[derive(Debug)]
pub(crate) struct Upload<'a> {
    name: TemporaryName<'a>,
    file: File,
    end: u64,
    /// `None` once a piece came that was not the next one: then the file is read again.
    hash: Option<Sha256>,
}

impl<'a> Upload<'a> {
    /// An empty one.
    pub(crate) fn new(store: &'a BlobStore) -> Result<Self, StorageFault> {
        let (name, file) = store.temporary()?;
        let name = TemporaryName { store, name, renamed: false };
        Ok(Self { name, file, end: 0, hash: Some(Sha256::new()) })
    }

    /// Writes a piece, without making it durable.
    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) -> Result<(), StorageFault> {
        let at = Some(offset);
        self.file.write_all_at(bytes, offset).or_fault(StorageAction::Write, self.name.as_str(), at)?;
        match &mut self.hash {
            Some(hash) if offset == self.end => hash.update(bytes),
            Some(_) | None => self.hash = None,
        }
        self.end = self.end.max(offset + bytes.len() as u64);
        Ok(())
    }

    /// How many bytes it holds.
    pub(crate) const fn bytes(&self) -> u64 {
        self.end
    }

    /// The key of what was written.
    pub(crate) fn key(&mut self) -> Result<BlobKey, StorageFault> {
        match self.hash.take() {
            Some(hash) => Ok(BlobKey(hash.finalize().into())),
            None => hash_file(&self.file, self.name.as_str()).map(|(key, _)| key),
        }
    }

    /// The file, to be synced, and the name it has until it is published.
    pub(crate) fn into_parts(self) -> (TemporaryName<'a>, File) {
        (self.name, self.file)
    }
}

/// Hashes a file piece by piece; also says how long it is.
pub(crate) fn hash_file(file: &File, name: &str) -> Result<(BlobKey, u64), StorageFault> {
    let mut hash = Sha256::new();
    let mut piece = vec![0; PIECE_BYTES];
    let mut at = 0;
    loop {
        let count = read_full_at(file, &mut piece, at).or_fault(StorageAction::Read, name, Some(at))?;
        hash.update(&piece[..count]);
        at += count as u64;
        if count < PIECE_BYTES {
            return Ok((BlobKey(hash.finalize().into()), at));
        }
    }
}

/// The key of bytes in memory.
pub(crate) fn hash_bytes(bytes: &[u8]) -> BlobKey {
    BlobKey(Sha256::digest(bytes).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_does_not_depend_on_how_the_pieces_came() {
        let root = tempfile::tempdir().unwrap();
        let store = BlobStore::open(root.path()).unwrap();
        let expected = hash_bytes(b"abcdef");
        let orders: [&[(u64, &str)]; 5] = [
            &[(0, "abc"), (3, "def")],
            &[(0, "abcdef")],
            &[(3, "def"), (0, "abc")],
            &[(0, "abcxyz"), (3, "def")],
            &[(0, "abc"), (0, "abc"), (3, "def")],
        ];
        for pieces in orders {
            let mut upload = Upload::new(&store).unwrap();
            for (offset, bytes) in pieces {
                upload.write(*offset, bytes.as_bytes()).unwrap();
            }
            assert_eq!((upload.key().unwrap(), upload.bytes()), (expected, 6), "{pieces:?}");
        }
        assert_eq!(std::fs::read_dir(root.path().join("uploads")).unwrap().count(), 0);
    }
}
