//! The blobs of a backup: copied, or linked where both folders lie on one file system.

use super::manifest::{self, ManifestBlobs, hashed};
use super::{BackupError, fault, make, sync};
use crate::BlobStore;
use crate::blob::blob_path;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::Path;
use strandline_core::error::StorageAction;
use strandline_core::id::hex;
use strandline_core::record::BlobKey;

/// Blobs that become durable together.
const GROUP: usize = 1000;

/// How blobs come into a backup, and back.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum BlobCopies {
    /// Each is copied: the backup stands for itself.
    #[default]
    Copy,
    /// Each is a hard link: quick, and no protection against a disk that damages the one file both
    /// name. Blobs are never written in place, so neither side can change the other.
    Link,
}

/// Brings blobs from one store's folder to another, which is made, and verifies all of them.
pub(super) fn copy(
    source: &Path,
    target: &Path,
    keys: &BTreeSet<BlobKey>,
    copies: BlobCopies,
) -> Result<ManifestBlobs, BackupError> {
    make(target)?;
    let bytes = match copies {
        BlobCopies::Copy => copy_all(source, target, keys)?,
        BlobCopies::Link => link_all(source, target, keys)?,
    };
    Ok(manifest::blobs(keys, bytes))
}

fn copy_all(source: &Path, target: &Path, keys: &BTreeSet<BlobKey>) -> Result<u64, BackupError> {
    let store = BlobStore::open(target)?;
    let (mut bytes, mut group, mut held) = (0, store.group(), 0);
    for key in keys {
        let stored = group.add(open(source, *key)?)?;
        if stored.key != *key {
            return Err(BackupError::Blob { blob: *key, found: format!("bytes of {}", stored.key) });
        }
        bytes += stored.bytes;
        held += 1;
        if held == GROUP {
            group.commit()?;
            (group, held) = (store.group(), 0);
        }
    }
    group.commit()?;
    Ok(bytes)
}

fn link_all(source: &Path, target: &Path, keys: &BTreeSet<BlobKey>) -> Result<u64, BackupError> {
    let mut bytes = 0;
    let mut folders = BTreeSet::new();
    for key in keys {
        drop(open(source, *key)?);
        let (from, to) = (source.join(blob_path(*key)), target.join(blob_path(*key)));
        let folder = to.parent().expect("a blob lies in a folder").to_owned();
        if folders.insert(folder.clone()) {
            make(&folder)?;
        }
        fs::hard_link(&from, &to).map_err(|error| fault(StorageAction::Write, &to, &error))?;
        let (length, sha256) = hashed(&to)?;
        if sha256 != key.0 {
            return Err(BackupError::Blob { blob: *key, found: format!("bytes of {}", hex(&sha256)) });
        }
        bytes += length;
    }
    folders.iter().try_for_each(|folder| sync(folder))?;
    sync(target)?;
    Ok(bytes)
}

fn open(source: &Path, key: BlobKey) -> Result<File, BackupError> {
    let path = source.join(blob_path(key));
    match File::open(&path) {
        Ok(file) => Ok(file),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(BackupError::Blob { blob: key, found: "no file".into() })
        }
        Err(error) => Err(fault(StorageAction::Read, &path, &error).into()),
    }
}
