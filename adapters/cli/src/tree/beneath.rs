//! Opening, creating and replacing what lies below a root directory, one name at a time and never
//! through a symlink: what another process puts in the way is refused, not followed.

use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, openat, renameat, unlinkat};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
const FILE: OFlags = OFlags::NOFOLLOW.union(OFlags::CLOEXEC);

/// Whether a missing directory on the way is made.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Missing {
    /// It is an error.
    Fail,
    /// It is made.
    Make,
}

/// A root directory and the chain of directories below it that was entered last: paths in order
/// share most of their way.
pub(crate) struct Beneath {
    root: OwnedFd,
    entered: Vec<(Vec<u8>, OwnedFd)>,
}

impl Beneath {
    /// Opens the root. The way to it is the caller's own and may lead through symlinks.
    pub(crate) fn open(root: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(root, flags, Mode::empty())?;
        Ok(Self { root, entered: Vec::new() })
    }

    /// The directory with these names from the root; the root for none.
    pub(crate) fn directory(&mut self, names: &[Vec<u8>], missing: Missing) -> io::Result<BorrowedFd<'_>> {
        let shared = self.entered.iter().zip(names).take_while(|((have, _), want)| have == *want).count();
        self.entered.truncate(shared);
        for name in &names[shared..] {
            let at = self.entered.last().map_or(self.root.as_fd(), |(_, fd)| fd.as_fd());
            let fd = match openat(at, name.as_slice(), DIRECTORY, Mode::empty()) {
                Err(Errno::NOENT) if missing == Missing::Make => {
                    mkdirat(at, name.as_slice(), Mode::from_raw_mode(0o777))?;
                    openat(at, name.as_slice(), DIRECTORY, Mode::empty())
                }
                other => other,
            };
            self.entered.push((name.clone(), fd.map_err(through_symlink)?));
        }
        Ok(self.entered.last().map_or(self.root.as_fd(), |(_, fd)| fd.as_fd()))
    }

    /// Opens a file for reading. What is no regular file when it is opened is refused.
    pub(crate) fn read(&mut self, parents: &[Vec<u8>], name: &[u8]) -> io::Result<File> {
        let at = self.directory(parents, Missing::Fail)?;
        // Non-blocking, so that a pipe put in the file's place cannot hold the program.
        let flags = FILE | OFlags::RDONLY | OFlags::NONBLOCK;
        let file = File::from(openat(at, name, flags, Mode::empty()).map_err(through_symlink)?);
        if file.metadata()?.is_file() {
            Ok(file)
        } else {
            Err(io::Error::other("expected a regular file, found something else"))
        }
    }

    /// Creates a file that must not exist, making the directories on the way.
    pub(crate) fn create(&mut self, parents: &[Vec<u8>], name: &[u8]) -> io::Result<File> {
        let at = self.directory(parents, Missing::Make)?;
        let flags = FILE | OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        Ok(File::from(openat(at, name, flags, Mode::from_raw_mode(0o666))?))
    }

    /// Gives a file its final name in the same directory. A symlink of that name is replaced, not
    /// followed; a directory of that name is an error.
    pub(crate) fn rename(&mut self, parents: &[Vec<u8>], from: &[u8], to: &[u8]) -> io::Result<()> {
        let at = self.directory(parents, Missing::Fail)?;
        Ok(renameat(at, from, at, to)?)
    }

    /// Removes a file.
    pub(crate) fn remove(&mut self, parents: &[Vec<u8>], name: &[u8]) -> io::Result<()> {
        let at = self.directory(parents, Missing::Fail)?;
        Ok(unlinkat(at, name, AtFlags::empty())?)
    }
}

/// The system reports a symlink in the place of a directory or file in several ways.
fn through_symlink(error: Errno) -> io::Error {
    match error {
        Errno::LOOP => io::Error::other("a symlink is in the way, and symlinks are not followed"),
        Errno::NOTDIR => {
            io::Error::new(io::ErrorKind::NotADirectory, "a file or symlink is where a directory is expected")
        }
        other => other.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn names(path: &str) -> Vec<Vec<u8>> {
        path.split('/').filter(|n| !n.is_empty()).map(|n| n.as_bytes().to_vec()).collect()
    }

    #[test]
    fn a_symlink_on_the_way_is_never_followed() {
        let root = tempfile::tempdir().expect("a directory");
        let outside = tempfile::tempdir().expect("a directory");
        symlink(outside.path(), root.path().join("out")).expect("links");
        let mut beneath = Beneath::open(root.path()).expect("opens");
        assert!(beneath.create(&names("out"), b"x").is_err());
        assert!(beneath.create(&names("out/deeper"), b"x").is_err());
        assert!(beneath.read(&names("out"), b"x").is_err());
        assert_eq!(fs::read_dir(outside.path()).expect("lists").count(), 0);
    }

    #[test]
    fn a_symlink_as_the_last_name_is_refused_for_reading_and_replaced_by_a_rename() {
        let root = tempfile::tempdir().expect("a directory");
        let outside = tempfile::NamedTempFile::new().expect("a file");
        symlink(outside.path(), root.path().join("f")).expect("links");
        let mut beneath = Beneath::open(root.path()).expect("opens");
        assert!(beneath.read(&[], b"f").is_err());
        assert!(beneath.create(&[], b"f").is_err());
        std::io::Write::write_all(&mut beneath.create(&[], b"t").expect("creates"), b"new").expect("writes");
        beneath.rename(&[], b"t", b"f").expect("renames");
        assert_eq!(fs::read(root.path().join("f")).expect("reads"), b"new");
        assert!(fs::symlink_metadata(root.path().join("f")).expect("is there").is_file());
        assert_eq!(fs::read(outside.path()).expect("reads"), b"");
    }

    #[test]
    fn directories_are_made_on_the_way_and_reused() {
        let root = tempfile::tempdir().expect("a directory");
        let mut beneath = Beneath::open(root.path()).expect("opens");
        for path in ["a/b", "a/c", "", "a/b/d"] {
            beneath.create(&names(path), b"f").expect("creates");
            assert!(root.path().join(path).join("f").is_file(), "{path}");
        }
    }
}
