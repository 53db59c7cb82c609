//! A folder held open: every file is reached from its descriptor by one name, so a moved folder
//! stays the same folder and no symbolic link is ever followed below it.

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};
use std::fs::{DirBuilder, File, TryLockError};
use std::io::{Error, ErrorKind, Result};
use std::os::unix::fs::{DirBuilderExt, FileExt, MetadataExt};
use std::path::Path;

/// Zeros are written from one buffer of this size.
const ZEROS: &[u8] = &[0; 1 << 20];

const FILE_MODE: Mode = Mode::RUSR.union(Mode::WUSR);
const FOLDER_MODE: Mode = Mode::RWXU;

/// How a file is opened.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Access {
    /// For reading; it must exist.
    Read,
    /// For reading and writing; it must exist.
    Change,
    /// For reading and writing; created if it is missing.
    Ensure,
    /// For reading and writing; created if it is missing, emptied if not.
    Empty,
    /// For reading and writing; it must not exist.
    New,
}

#[derive(Debug)]
pub(crate) struct Folder {
    file: File,
}

impl Folder {
    /// Opens `path`, which may lead through symbolic links: it is the user's own.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { file: retry_on_intr(|| fs::open(path, flags, Mode::empty()))?.into() })
    }

    /// Creates `path` and what is missing above it, and makes every entry on the way durable.
    pub(crate) fn create(path: &Path) -> Result<Self> {
        let mut missing = Vec::new();
        for ancestor in path.ancestors() {
            // The empty path is the current directory.
            if ancestor.as_os_str().is_empty() || ancestor.try_exists()? {
                break;
            }
            missing.push(ancestor);
        }
        for folder in missing.into_iter().rev() {
            match DirBuilder::new().mode(0o700).create(folder) {
                Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
                _ => sync_parent(folder)?,
            }
        }
        Self::open(path)
    }

    /// The folder `name`, created (and its entry made durable) if it is missing.
    pub(crate) fn subfolder(&self, name: &str) -> Result<Self> {
        if self.make(name)?
            && let Err(error) = self.sync()
        {
            // Whoever comes next must not find what may not be on the disk.
            let _ = self.remove_folder(name);
            return Err(error);
        }
        self.existing(name)
    }

    /// Creates the folder `name`, without making its entry durable. False if it was there.
    pub(crate) fn make(&self, name: &str) -> Result<bool> {
        match fs::mkdirat(&self.file, name, FOLDER_MODE) {
            Ok(()) => Ok(true),
            Err(Errno::EXIST) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// The folder `name`, which must exist.
    pub(crate) fn existing(&self, name: &str) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        Ok(Self { file: retry_on_intr(|| fs::openat(&self.file, name, flags, Mode::empty()))?.into() })
    }

    /// Opens the regular file `name`; anything else in its place is refused.
    pub(crate) fn file(&self, name: &str, access: Access) -> Result<File> {
        let special = match access {
            Access::Read => OFlags::RDONLY,
            Access::Change => OFlags::RDWR,
            Access::Ensure => OFlags::RDWR | OFlags::CREATE,
            Access::Empty => OFlags::RDWR | OFlags::CREATE | OFlags::TRUNC,
            Access::New => OFlags::RDWR | OFlags::CREATE | OFlags::EXCL,
        };
        // Without NONBLOCK the open of a pipe in the file's place would wait for ever.
        let flags = special | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match retry_on_intr(|| fs::openat(&self.file, name, flags, FILE_MODE)) {
            Ok(descriptor) => File::from(descriptor),
            Err(Errno::LOOP | Errno::MLINK) => return Err(not_regular(FileType::Symlink)),
            Err(error) => return Err(error.into()),
        };
        let found = FileType::from_raw_mode(fs::fstat(&file)?.st_mode);
        if found.is_file() { Ok(file) } else { Err(not_regular(found)) }
    }

    /// Device and inode of what `name` is now; `None` if it is missing.
    pub(crate) fn identity(&self, name: &str) -> Result<Option<(u64, u64)>> {
        match self.file(name, Access::Read) {
            Ok(file) => identity(&file).map(Some),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Length of the regular file `name`; `None` if it is missing.
    pub(crate) fn length(&self, name: &str) -> Result<Option<u64>> {
        let stat = match fs::statat(&self.file, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => stat,
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let found = FileType::from_raw_mode(stat.st_mode);
        if !found.is_file() {
            return Err(not_regular(found));
        }
        u64::try_from(stat.st_size).map(Some).map_err(Error::other)
    }

    /// The names in the folder that are UTF-8 (ours all are), in any order.
    pub(crate) fn names(&self) -> Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::Dir::read_from(&self.file)? {
            if let Ok(name) = entry?.file_name().to_str() {
                names.push(name.to_owned());
            }
        }
        Ok(names)
    }

    /// Renames within the folder or into another one, over whatever has the name there.
    pub(crate) fn rename(&self, from: &str, folder: &Self, to: &str) -> Result<()> {
        fs::renameat(&self.file, from, &folder.file, to)?;
        #[cfg(test)]
        steps::note(steps::Step::Renamed(identity(&folder.file)?, to.to_owned()));
        Ok(())
    }

    /// Removes a file. False if it was missing.
    pub(crate) fn remove(&self, name: &str) -> Result<bool> {
        match fs::unlinkat(&self.file, name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes an empty folder.
    pub(crate) fn remove_folder(&self, name: &str) -> Result<()> {
        Ok(fs::unlinkat(&self.file, name, AtFlags::REMOVEDIR)?)
    }

    /// Locks the folder until it is dropped.
    pub(crate) fn try_lock(&self) -> std::result::Result<(), TryLockError> {
        self.file.try_lock()
    }

    /// Another handle of the same opening: what locks or unlocks one does so for both.
    pub(crate) fn same(&self) -> Result<File> {
        self.file.try_clone()
    }

    /// Makes the folder's entries durable.
    pub(crate) fn sync(&self) -> Result<()> {
        #[cfg(test)]
        steps::note(steps::Step::Synced(identity(&self.file)?));
        self.file.sync_all()
    }
}

/// Makes the entry of `path` in the folder above it durable.
pub(crate) fn sync_parent(path: &Path) -> Result<()> {
    // Through the real path, so that `.` and `a/..` have the parent they mean.
    let path = path.canonicalize()?;
    match path.parent() {
        Some(parent) => Folder::open(parent)?.sync(),
        None => Ok(()),
    }
}

/// Device and inode of an open file.
pub(crate) fn identity(file: &File) -> Result<(u64, u64)> {
    let found = file.metadata()?;
    Ok((found.dev(), found.ino()))
}

/// Whether an open file still has a name.
///
/// Asks for nothing else: since Linux 6.13 a file whose times were looked at gets a new time with
/// every write, and then every sync writes its inode too, for as much again as the data costs.
#[cfg(target_os = "linux")]
pub(crate) fn linked(file: &File) -> Result<bool> {
    match fs::statx(file, "", AtFlags::EMPTY_PATH, fs::StatxFlags::NLINK) {
        Ok(found) => Ok(found.stx_nlink > 0),
        // Older than Linux 4.11, or forbidden in a container.
        Err(Errno::NOSYS | Errno::PERM) => Ok(file.metadata()?.nlink() > 0),
        Err(error) => Err(error.into()),
    }
}

/// Whether an open file still has a name.
#[cfg(not(target_os = "linux"))]
pub(crate) fn linked(file: &File) -> Result<bool> {
    Ok(file.metadata()?.nlink() > 0)
}

/// Writes `bytes` zeros at `offset`, in pieces of 1 MiB.
pub(crate) fn write_zeros_at(file: &File, offset: u64, bytes: u64) -> Result<()> {
    let mut done = 0;
    while done < bytes {
        let piece = usize::try_from(bytes - done).map_or(ZEROS.len(), |left| left.min(ZEROS.len()));
        file.write_all_at(&ZEROS[..piece], offset + done)?;
        done += piece as u64;
    }
    Ok(())
}

/// Reads at `offset` until `buf` is full or the file ends; says how many bytes were read.
pub(crate) fn read_full_at(file: &File, buf: &mut [u8], offset: u64) -> Result<usize> {
    let mut done = 0;
    while done < buf.len() {
        match file.read_at(&mut buf[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// Reads at most `bytes_max` bytes at `offset`, allocating no more than the file holds. Also says
/// how long the file is.
pub(crate) fn read_at_most(file: &File, offset: u64, bytes_max: u32) -> Result<(u64, Vec<u8>)> {
    let length = file.metadata()?.len();
    let bytes = length.saturating_sub(offset).min(u64::from(bytes_max));
    let mut buf = vec![0; usize::try_from(bytes).map_err(Error::other)?];
    let count = read_full_at(file, &mut buf, offset)?;
    buf.truncate(count);
    Ok((length, buf))
}

fn not_regular(found: FileType) -> Error {
    Error::other(format!("expected a regular file, found {found:?}"))
}

/// What was done to entries of folders, in order: no system call tells whether an entry is durable.
#[cfg(test)]
pub(crate) mod steps {
    use std::cell::RefCell;

    #[derive(Clone, Debug, Eq, PartialEq)]
    pub(crate) enum Step {
        /// The entries of the folder with this identity were made durable.
        Synced((u64, u64)),
        /// In the folder with this identity a file got this name.
        Renamed((u64, u64), String),
    }

    thread_local! {
        static STEPS: RefCell<Vec<Step>> = const { RefCell::new(Vec::new()) };
    }

    pub(super) fn note(step: Step) {
        STEPS.with_borrow_mut(|steps| steps.push(step));
    }

    /// What this thread did since the last time it was asked.
    pub(crate) fn take() -> Vec<Step> {
        STEPS.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn mode(path: &Path) -> u32 {
        path.metadata().unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn folders_are_0700_and_files_0600() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a/b");
        let folder = Folder::create(&path).unwrap();
        folder.subfolder("c").unwrap();
        folder.file("f", Access::New).unwrap();
        assert_eq!([mode(&root.path().join("a")), mode(&path), mode(&path.join("c"))], [0o700; 3]);
        assert_eq!(mode(&path.join("f")), 0o600);
    }

    #[test]
    fn what_is_not_a_regular_file_is_refused() {
        let root = tempfile::tempdir().unwrap();
        let folder = Folder::open(root.path()).unwrap();
        std::fs::write(root.path().join("target"), b"untouched").unwrap();
        symlink("target", root.path().join("link")).unwrap();
        folder.make("folder").unwrap();
        fs::mkfifoat(&folder.file, "pipe", FILE_MODE).unwrap();
        for access in [Access::Read, Access::Change, Access::Ensure, Access::Empty, Access::New] {
            for name in ["link", "folder", "pipe"] {
                assert!(folder.file(name, access).is_err(), "{name} {access:?}");
            }
        }
        assert!(folder.length("link").unwrap_err().to_string().contains("Symlink"));
        assert!(folder.existing("link").is_err());
        assert_eq!(std::fs::read(root.path().join("target")).unwrap(), b"untouched");
    }

    #[test]
    fn reads_stop_where_the_file_ends() {
        let root = tempfile::tempdir().unwrap();
        let file = Folder::open(root.path()).unwrap().file("f", Access::New).unwrap();
        file.write_all_at(b"12345", 0).unwrap();
        assert_eq!(read_at_most(&file, 1, 3).unwrap(), (5, b"234".to_vec()));
        assert_eq!(read_at_most(&file, 3, u32::MAX).unwrap(), (5, b"45".to_vec()));
        assert_eq!(read_at_most(&file, 9, 3).unwrap(), (5, Vec::new()));
    }
}
