//! The directory of one log: who has it open, and what is done to its files one step at a time.

use crate::fault::{OrFault, refused};
use crate::folder::{Access, Folder, read_at_most, sync_parent, write_zeros_at};
use crate::lock::{Lock, OpenError, lock};
use crate::reads::ReadHandles;
use std::fs::File;
use std::io::ErrorKind;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use strandline_core::error::{StorageAction, StorageCause, StorageFault};
use strandline_core::journal::command::{FileName, Listed, SegmentNumber};

/// The folder for what recovery cut off.
pub(crate) const CUT: &str = "cut";

/// Most bytes of one [`Directory::read`].
const READ_BYTES_MAX: u32 = 1 << 30;

/// Whether [`Directory::open`] may create the directory.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum OpenMode {
    /// Create it, and what is missing above it, with mode 0700.
    Create,
    /// It must exist.
    Existing,
}

/// The directory of one log, open and locked. No other process, and no other `Directory` in this
/// one, can open it until this one is dropped.
///
/// ```
/// use strandline_file::{Directory, OpenError, OpenMode};
///
/// let parent = tempfile::tempdir()?;
/// let path = parent.path().join("log");
/// let directory = Directory::open(&path, OpenMode::Create)?;
/// assert!(matches!(Directory::open(&path, OpenMode::Existing), Err(OpenError::InUse(_))));
/// drop(directory);
/// Directory::open(&path, OpenMode::Existing)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Directory {
    path: PathBuf,
    folder: Folder,
    cut: Folder,
    reads: ReadHandles,
    temporaries: AtomicU64,
    _lock: Lock,
}

impl Directory {
    /// Opens and locks a log's directory, removes what a killed process left half-done, and makes
    /// durable which files there are. Files with names that are not ours are left alone.
    ///
    /// # Errors
    /// [`OpenError::InUse`] while it is open elsewhere; [`OpenError::Storage`] with the cause
    /// `Missing` if it does not exist in [`OpenMode::Existing`], or whatever else the system reports.
    pub fn open(path: impl AsRef<Path>, mode: OpenMode) -> Result<Self, OpenError> {
        let path = path.as_ref();
        let name = path.display().to_string();
        let folder = match mode {
            OpenMode::Create => Folder::create(path),
            OpenMode::Existing => Folder::open(path),
        };
        let folder = folder.or_fault(StorageAction::List, &name, None)?;
        let lock = lock(&folder, path)?;
        clean(&folder)?;
        let cut = folder.subfolder(CUT).or_fault(StorageAction::Sync, CUT, None)?;
        clean(&cut)?;
        // A process killed between a rename and its sync leaves entries that are not durable yet.
        folder.sync().or_fault(StorageAction::Sync, &name, None)?;
        match sync_parent(path) {
            // We may use a directory whose parent we may not read; then we did not create it either.
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {}
            other => other.or_fault(StorageAction::Sync, &name, None)?,
        }
        let path = path.to_owned();
        let temporaries = AtomicU64::new(0);
        Ok(Self { path, folder, cut, reads: ReadHandles::default(), temporaries, _lock: lock })
    }

    /// Where the directory was when it was opened.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The files whose names the format uses, in any order.
    ///
    /// # Errors
    /// What the system reports; a name of ours on anything but a regular file.
    pub fn list(&self) -> Result<Vec<Listed>, StorageFault> {
        let mut listed = Vec::new();
        for name in self.folder.names().or_fault(StorageAction::List, ".", None)? {
            let Some(file) = FileName::parse(&name) else { continue };
            if let Some(bytes) = self.folder.length(&name).or_fault(StorageAction::List, &name, None)? {
                listed.push(Listed { file, bytes });
            }
        }
        Ok(listed)
    }

    /// Reads `bytes_max` bytes at `offset`; fewer only where the file ends.
    ///
    /// # Errors
    /// What the system reports, or more than 1 GiB asked for.
    pub fn read(&self, file: FileName, offset: u64, bytes_max: u32) -> Result<Vec<u8>, StorageFault> {
        let name = file.to_string();
        if bytes_max > READ_BYTES_MAX {
            let detail = format!("expected at most {READ_BYTES_MAX} bytes in one read, found {bytes_max}");
            return Err(refused(StorageAction::Read, &name, Some(offset), StorageCause::Failed, detail));
        }
        let open = || self.folder.file(&name, Access::Read);
        let handle = self.reads.get(file, open).or_fault(StorageAction::Read, &name, None)?;
        let read = read_at_most(&handle, offset, bytes_max);
        read.map(|(_, bytes)| bytes).or_fault(StorageAction::Read, &name, Some(offset))
    }

    /// Creates a segment of written zeros in place of whatever has its name, durably.
    pub(crate) fn prepare(&self, segment: SegmentNumber, bytes: u64) -> Result<(), StorageFault> {
        let file = FileName::Segment(segment);
        self.install(file, StorageAction::Prepare, |handle| write_zeros_at(handle, 0, bytes))
    }

    /// Replaces a sidecar as one step.
    pub(crate) fn replace(&self, file: FileName, bytes: &[u8]) -> Result<(), StorageFault> {
        self.install(file, StorageAction::Replace, |handle| handle.write_all_at(bytes, 0))
    }

    /// Removes files, durably. One that is missing is no error.
    pub(crate) fn remove(&self, files: &[FileName]) -> Result<(), StorageFault> {
        for file in files {
            let name = file.to_string();
            self.folder.remove(&name).or_fault(StorageAction::Remove, &name, None)?;
            self.reads.forget(*file);
        }
        self.sync(StorageAction::Remove)
    }

    /// Opens a file of the log for a worker.
    pub(crate) fn file(
        &self,
        file: FileName,
        access: Access,
        action: StorageAction,
    ) -> Result<File, StorageFault> {
        let name = file.to_string();
        self.folder.file(&name, access).or_fault(action, &name, None)
    }

    /// Makes the directory's entries durable.
    pub(crate) fn sync(&self, action: StorageAction) -> Result<(), StorageFault> {
        self.folder.sync().or_fault(action, ".", None)
    }

    /// The directory itself.
    pub(crate) const fn folder(&self) -> &Folder {
        &self.folder
    }

    /// The folder for what recovery cut off.
    pub(crate) const fn cut(&self) -> &Folder {
        &self.cut
    }

    /// A name for a temporary file that will become `target`; a later open removes it.
    pub(crate) fn temporary(&self, target: &str) -> String {
        format!("{TEMPORARY}{:016x}-{target}", self.temporaries.fetch_add(1, Ordering::Relaxed))
    }

    /// Temporary file, sync, rename, sync of the directory. If it fails before the rename, the old
    /// file stays and the temporary one goes.
    fn install(
        &self,
        file: FileName,
        action: StorageAction,
        fill: impl FnOnce(&File) -> std::io::Result<()>,
    ) -> Result<(), StorageFault> {
        let name = file.to_string();
        let temporary = self.temporary(&name);
        let handle = self.folder.file(&temporary, Access::New).or_fault(action, &temporary, None)?;
        let filled = fill(&handle).or_fault(action, &name, None);
        let filled = filled.and_then(|()| handle.sync_all().or_fault(StorageAction::Sync, &name, None));
        let renamed = filled
            .and_then(|()| self.folder.rename(&temporary, &self.folder, &name).or_fault(action, &name, None));
        if let Err(fault) = renamed {
            // The first fault is the one to tell; a leftover is removed by the next open.
            let _ = self.folder.remove(&temporary);
            return Err(fault);
        }
        self.reads.forget(file);
        self.sync(StorageAction::Sync)
    }
}

const TEMPORARY: &str = "tmp-";

/// Whether a name was given out by [`Directory::temporary`], for any target of ours.
fn is_temporary(name: &str) -> bool {
    let Some((number, target)) = name.strip_prefix(TEMPORARY).and_then(|rest| rest.split_once('-')) else {
        return false;
    };
    let hex = number.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    // A copy of a cut tail is named after its segment, with more behind it.
    let segment = target.get(.."segment-0123456789abcdef".len()).unwrap_or(target);
    number.len() == 16 && hex && (FileName::parse(target).or_else(|| FileName::parse(segment))).is_some()
}

/// Removes the temporary files of a killed process. Only the holder of the lock may call this.
fn clean(folder: &Folder) -> Result<(), StorageFault> {
    for name in folder.names().or_fault(StorageAction::List, ".", None)? {
        if is_temporary(&name) {
            folder.remove(&name).or_fault(StorageAction::Remove, &name, None)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::identity;
    use crate::folder::steps::{self, Step};
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn open(path: &Path) -> Directory {
        Directory::open(path, OpenMode::Existing).unwrap()
    }

    fn names(path: &Path) -> Vec<String> {
        let mut names: Vec<String> =
            std::fs::read_dir(path).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_missing_directory_is_created_only_on_request() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a/b");
        let Err(OpenError::Storage(fault)) = Directory::open(&path, OpenMode::Existing) else { panic!() };
        assert_eq!(fault.cause, StorageCause::Missing);
        Directory::open(&path, OpenMode::Create).unwrap();
        assert_eq!(names(&path), ["cut", "lock"]);
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn leftovers_go_and_unknown_files_stay() {
        let root = tempfile::tempdir().unwrap();
        let leftover = open(root.path()).temporary("current");
        let stay = ["control.sock", "current", "notes.txt", "tmp-1-current", "tmp-00000000000000ff-notes"];
        std::fs::create_dir(root.path().join("tmp-folder")).unwrap();
        for name in stay.into_iter().chain([leftover.as_str()]) {
            std::fs::write(root.path().join(name), b"x").unwrap();
        }
        let copy = "tmp-0000000000000001-segment-0000000000000001-0000000000000040-0123456789abcdef";
        std::fs::write(root.path().join("cut").join(copy), b"x").unwrap();
        let directory = open(root.path());
        let mut expected = vec!["cut", "lock", "tmp-folder"];
        expected.extend(stay);
        expected.sort_unstable();
        assert_eq!(names(root.path()), expected);
        assert!(names(&root.path().join("cut")).is_empty());
        assert_eq!(directory.list().unwrap(), [Listed { file: FileName::Current, bytes: 1 }]);
    }

    #[test]
    fn leftovers_of_a_running_process_stay() {
        let root = tempfile::tempdir().unwrap();
        let directory = open(root.path());
        let temporary = directory.temporary("acked");
        std::fs::write(root.path().join(&temporary), b"x").unwrap();
        assert!(Directory::open(root.path(), OpenMode::Existing).is_err());
        assert!(root.path().join(&temporary).exists());
    }

    #[test]
    fn a_replaced_file_is_whole_private_and_read_afresh() {
        let root = tempfile::tempdir().unwrap();
        let directory = open(root.path());
        let read = || directory.read(FileName::Acked, 0, 100);
        assert_eq!(read().unwrap_err().cause, StorageCause::Missing);
        directory.replace(FileName::Acked, b"first, and longer").unwrap();
        assert_eq!(read().unwrap(), b"first, and longer");
        directory.replace(FileName::Acked, b"second").unwrap();
        assert_eq!(read().unwrap(), b"second");
        assert_eq!(names(root.path()), ["acked", "cut", "lock"]);
        let mode = root.path().join("acked").metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_failed_replace_leaves_the_old_file_and_no_temporary() {
        let root = tempfile::tempdir().unwrap();
        let directory = open(root.path());
        directory.replace(FileName::Acked, b"old").unwrap();
        let fault = directory
            .install(FileName::Acked, StorageAction::Replace, |_| Err(ErrorKind::StorageFull.into()))
            .unwrap_err();
        assert_eq!((fault.action, fault.cause), (StorageAction::Replace, StorageCause::Full));
        assert_eq!(directory.read(FileName::Acked, 0, 100).unwrap(), b"old");
        assert_eq!(names(root.path()), ["acked", "cut", "lock"]);
    }

    #[test]
    fn a_prepared_segment_is_written_zeros() {
        let root = tempfile::tempdir().unwrap();
        let directory = open(root.path());
        let segment = SegmentNumber(1);
        let bytes = (3 << 20) + 5;
        std::fs::write(root.path().join(FileName::Segment(segment).to_string()), b"stale").unwrap();
        directory.prepare(segment, bytes).unwrap();
        let read = directory.read(FileName::Segment(segment), 0, 1 << 30).unwrap();
        assert_eq!(read.len() as u64, bytes);
        assert!(read.iter().all(|b| *b == 0));
        let stored = root.path().join(FileName::Segment(segment).to_string()).metadata().unwrap();
        assert!(std::os::unix::fs::MetadataExt::blocks(&stored) * 512 >= bytes, "the segment is sparse");
    }

    #[test]
    fn removing_is_idempotent_and_reaches_open_handles() {
        let root = tempfile::tempdir().unwrap();
        let directory = open(root.path());
        directory.replace(FileName::Members, b"m").unwrap();
        directory.read(FileName::Members, 0, 1).unwrap();
        for _ in 0..2 {
            directory.remove(&[FileName::Members, FileName::Checkpoint(1)]).unwrap();
        }
        assert_eq!(directory.read(FileName::Members, 0, 1).unwrap_err().cause, StorageCause::Missing);
    }

    /// The reference never syncs the entry of a new journal.
    #[test]
    fn finding_f_the_entry_of_every_new_file_is_synced_in_its_own_folder() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a/log");
        let id = |path: &Path| identity(&File::open(path).unwrap()).unwrap();
        steps::take();
        let directory = Directory::open(&path, OpenMode::Create).unwrap();
        let opened = steps::take();
        for folder in [root.path(), &root.path().join("a"), &path] {
            assert!(opened.contains(&Step::Synced(id(folder))), "{}: {opened:?}", folder.display());
        }
        let segment = SegmentNumber(1);
        let current = FileName::Current;
        let steps_of = |work: &dyn Fn() -> Result<(), StorageFault>| {
            work().unwrap();
            steps::take()
        };
        let renamed =
            |file: FileName| vec![Step::Renamed(id(&path), file.to_string()), Step::Synced(id(&path))];
        assert_eq!(steps_of(&|| directory.prepare(segment, 64)), renamed(FileName::Segment(segment)));
        assert_eq!(steps_of(&|| directory.replace(current, b"c")), renamed(current));
        assert_eq!(steps_of(&|| directory.remove(&[current])), [Step::Synced(id(&path))]);
    }

    #[test]
    fn a_symbolic_link_is_replaced_and_never_followed() {
        let root = tempfile::tempdir().unwrap();
        let outside = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(outside.path(), b"outside").unwrap();
        let directory = open(root.path());
        symlink(outside.path(), root.path().join("acked")).unwrap();
        assert!(directory.read(FileName::Acked, 0, 100).is_err());
        assert!(directory.list().is_err());
        directory.replace(FileName::Acked, b"ours").unwrap();
        assert_eq!(directory.read(FileName::Acked, 0, 100).unwrap(), b"ours");
        assert_eq!(std::fs::read(outside.path()).unwrap(), b"outside");
    }

    #[test]
    fn more_than_the_limit_is_refused_before_anything_is_allocated() {
        let root = tempfile::tempdir().unwrap();
        let fault = open(root.path()).read(FileName::Current, 0, READ_BYTES_MAX + 1).unwrap_err();
        assert!(fault.detail.contains("1073741824"), "{fault}");
    }
}
