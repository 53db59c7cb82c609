//! One opener at a time.

use crate::fault::{OrFault, refused};
use crate::folder::{Access, Folder, identity};
use std::fs::{File, TryLockError};
use std::path::{Path, PathBuf};
use strandline_core::error::{Classified, Family, StorageAction, StorageCause, StorageFault};

/// Name of the lock file, in a log's directory and in a blob store.
pub(crate) const LOCK: &str = "lock";

/// How often a lock file may be replaced under our hands before we give up.
const TRIES_MAX: u32 = 100;

/// Someone else has the directory open: another process, or another handle in this one.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "{} is in use: expected to be its only opener, found its lock held; send the command to the node \
     that runs it, through its control.sock, or stop that node first", .directory.display()
)]
pub struct InUse {
    /// The directory that was to be opened.
    pub directory: PathBuf,
}

impl Classified for InUse {
    const FAMILY: Family = Family::Caller;
}

/// Why a directory could not be opened. The two families stay apart: each has its own variant.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum OpenError {
    /// Family one: it is open already.
    #[error(transparent)]
    InUse(#[from] InUse),
    /// Family three: the disk's fault.
    #[error(transparent)]
    Storage(#[from] StorageFault),
}

impl OpenError {
    /// Whose fault it is.
    #[must_use]
    pub const fn family(&self) -> Family {
        match self {
            Self::InUse(_) => InUse::FAMILY,
            Self::Storage(_) => StorageFault::FAMILY,
        }
    }
}

/// Keeps all other openers out until it is dropped.
#[derive(Debug)]
pub(crate) struct Lock {
    folder: File,
    file: File,
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Closing is not enough: a process that another thread is starting has copies of our
        // descriptors, and would keep the lock, until it executes its program.
        for held in [&self.file, &self.folder] {
            let _ = held.unlock();
        }
    }
}

/// Locks `folder` (which is at `path`) until the lock is dropped.
pub(crate) fn lock(folder: &Folder, path: &Path) -> Result<Lock, OpenError> {
    // The folder itself is locked too, so that deleting the lock file lets nobody else in. Some
    // network file systems cannot lock a folder; there the file has to do.
    if matches!(folder.try_lock(), Err(TryLockError::WouldBlock)) {
        return Err(InUse { directory: path.to_owned() }.into());
    }
    let file = lock_file(folder, path)?;
    let folder = folder.same().or_fault(StorageAction::Read, ".", None)?;
    Ok(Lock { folder, file })
}

fn lock_file(folder: &Folder, path: &Path) -> Result<File, OpenError> {
    for _ in 0..TRIES_MAX {
        let file = folder.file(LOCK, Access::Ensure).or_fault(StorageAction::Write, LOCK, None)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(InUse { directory: path.to_owned() }.into()),
            Err(TryLockError::Error(error)) => Err(error).or_fault(StorageAction::Write, LOCK, None)?,
        }
        // A lock on a file that has lost its name keeps nobody out.
        let ours = identity(&file).or_fault(StorageAction::Read, LOCK, None)?;
        if folder.identity(LOCK).or_fault(StorageAction::Read, LOCK, None)? == Some(ours) {
            return Ok(file);
        }
    }
    let detail = format!("expected the lock file to stay in place, found it replaced {TRIES_MAX} times");
    Err(refused(StorageAction::Write, LOCK, None, StorageCause::Failed, detail).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_opener_is_refused_until_the_first_lets_go() {
        let root = tempfile::tempdir().unwrap();
        let folder = || Folder::open(root.path()).unwrap();
        let held = folder();
        let first = lock(&held, root.path()).unwrap();
        let refusal = lock(&folder(), root.path()).unwrap_err();
        assert_eq!(refusal.family(), Family::Caller);
        assert!(refusal.to_string().contains("control.sock"), "{refusal}");
        drop((first, held));
        lock(&folder(), root.path()).unwrap();
    }

    #[test]
    fn a_process_being_started_does_not_keep_the_lock() {
        let root = tempfile::tempdir().unwrap();
        let held = Folder::open(root.path()).unwrap();
        let lock_of_ours = lock(&held, root.path()).unwrap();
        // What it has between being forked and executing its program.
        let copies = (lock_of_ours.folder.try_clone().unwrap(), lock_of_ours.file.try_clone().unwrap());
        drop((lock_of_ours, held));
        lock(&Folder::open(root.path()).unwrap(), root.path()).unwrap();
        drop(copies);
    }

    #[test]
    fn deleting_the_lock_file_lets_nobody_in() {
        let root = tempfile::tempdir().unwrap();
        let held = Folder::open(root.path()).unwrap();
        let _first = lock(&held, root.path()).unwrap();
        held.remove(LOCK).unwrap();
        let second = Folder::open(root.path()).unwrap();
        assert!(matches!(lock(&second, root.path()), Err(OpenError::InUse(_))));
    }

    #[test]
    fn the_lock_is_held_on_the_file_that_has_the_name() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::open(root.path()).unwrap();
        let _first = lock_file(&folder, root.path()).unwrap();
        folder.remove(LOCK).unwrap();
        let second = lock_file(&folder, root.path()).unwrap();
        assert_eq!(folder.identity(LOCK).unwrap(), Some(identity(&second).unwrap()));
        assert!(matches!(lock_file(&folder, root.path()), Err(OpenError::InUse(_))));
    }
}
