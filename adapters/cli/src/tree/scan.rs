//! What lies in a directory tree: regular files and directories, and what is skipped and why.

use crate::exit::Failure;
use crate::text::shown;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, openat, statat};
use rustix::io::Errno;
use std::ffi::CStr;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;

/// A regular file or a directory.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Found {
    /// Its path from the root as a key; a directory's ends in `/`.
    pub(crate) key: Vec<u8>,
    /// Length of a file when it was seen; 0 for a directory.
    pub(crate) bytes: u64,
}

impl Found {
    /// Whether it is a directory.
    pub(crate) fn is_directory(&self) -> bool {
        self.key.ends_with(b"/")
    }
}

/// Something that becomes no key.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Skipped {
    /// Its path from the root.
    pub(crate) path: Vec<u8>,
    /// Why.
    pub(crate) why: Why,
}

/// Why something becomes no key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Why {
    /// A symlink; it is not followed.
    Symlink,
    /// A pipe, socket or device.
    Special,
    /// The replica's own directory.
    Replica,
    /// The path is longer than a key may be; nothing below it was looked at.
    KeyTooLong {
        /// The limit.
        bytes_max: u32,
    },
}

impl Why {
    /// Whether the tree is not fully represented without it. Symlinks, special files and the
    /// replica itself are left out by rule; a path that does not fit is a loss.
    pub(crate) const fn is_loss(self) -> bool {
        match self {
            Self::Symlink | Self::Special | Self::Replica => false,
            Self::KeyTooLong { .. } => true,
        }
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Symlink => f.write_str("symlink"),
            Self::Special => f.write_str("special file"),
            Self::Replica => f.write_str("the replica's own directory"),
            Self::KeyTooLong { bytes_max } => write!(f, "path longer than a key's {bytes_max} bytes"),
        }
    }
}

/// A tree, both lists in the order of keys.
#[derive(Debug, Default)]
pub(crate) struct Scanned {
    pub(crate) found: Vec<Found>,
    pub(crate) skipped: Vec<Skipped>,
}

/// Walks the tree below `root` without entering `own` (the replica's directory) or any symlink. A
/// directory that cannot be read is an error: its files must not be taken for vanished.
pub(crate) fn scan(root: &Path, own: Option<&Stat>, key_bytes_max: u32) -> Result<Scanned, Failure> {
    let failed = |path: &[u8], error: io::Error| {
        Failure::storage(format!("cannot read {}/{}: {error}", root.display(), shown(path)))
            .advise("nothing was written; make the directory readable and import again")
    };
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let fd = rustix::fs::open(root, flags, Mode::empty()).map_err(|e| {
        Failure::usage(format!("cannot read the directory {}: {}", root.display(), io::Error::from(e)))
    })?;
    let mut walk = Walk { own, key_bytes_max, scanned: Scanned::default() };
    walk.enter(fd.as_fd(), b"").map_err(|(path, error)| failed(&path, error))?;
    let mut scanned = walk.scanned;
    scanned.found.sort_unstable_by(|a, b| a.key.cmp(&b.key));
    scanned.skipped.sort_unstable_by(|a, b| a.path.cmp(&b.path));
    Ok(scanned)
}

struct Walk<'a> {
    own: Option<&'a Stat>,
    key_bytes_max: u32,
    scanned: Scanned,
}

type WalkError = (Vec<u8>, io::Error);

impl Walk<'_> {
    /// Recursion is bounded by the length of a key: a level costs at least two of its bytes.
    fn enter(&mut self, dir: BorrowedFd<'_>, prefix: &[u8]) -> Result<(), WalkError> {
        let at_dir = |error: Errno| (prefix.to_vec(), io::Error::from(error));
        let mut below = Vec::new();
        for entry in Dir::read_from(dir).map_err(at_dir)? {
            let name = entry.map_err(at_dir)?.file_name().to_owned();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            let path = [prefix, name.to_bytes()].concat();
            match statat(dir, &name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) => {
                    if self.take(&path, &stat) {
                        below.push((name, path));
                    }
                }
                // Vanished since the directory was read.
                Err(Errno::NOENT) => {}
                Err(error) => return Err((path, error.into())),
            }
        }
        for (name, path) in below {
            self.descend(dir, &name, &path)?;
        }
        Ok(())
    }

    /// Enters a directory that was listed. One that vanished since is no part of the tree, no more
    /// than a file that did.
    fn descend(&mut self, dir: BorrowedFd<'_>, name: &CStr, path: &[u8]) -> Result<(), WalkError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let prefix = [path, b"/"].concat();
        let entered = match openat(dir, name, flags, Mode::empty()) {
            Ok(fd) => self.enter(fd.as_fd(), &prefix),
            Err(error) => Err((path.to_vec(), error.into())),
        };
        let vanished = |error: &io::Error| {
            error.kind() == io::ErrorKind::NotFound
                && statat(dir, name, AtFlags::SYMLINK_NOFOLLOW).is_err_and(|error| error == Errno::NOENT)
        };
        match entered {
            Err((_, error)) if vanished(&error) => {
                self.scanned.found.retain(|found| !found.key.starts_with(&prefix));
                self.scanned.skipped.retain(|skipped| !skipped.path.starts_with(&prefix));
                Ok(())
            }
            other => other,
        }
    }

    /// Lists one entry; whether it is a directory to enter.
    fn take(&mut self, path: &[u8], stat: &Stat) -> bool {
        let kind = FileType::from_raw_mode(stat.st_mode);
        let is_own = |own: &Stat| own.st_dev == stat.st_dev && own.st_ino == stat.st_ino;
        if kind == FileType::Symlink {
            return self.skip(path, Why::Symlink);
        }
        if kind != FileType::RegularFile && kind != FileType::Directory {
            return self.skip(path, Why::Special);
        }
        if self.own.is_some_and(is_own) {
            return self.skip(path, Why::Replica);
        }
        let directory = kind == FileType::Directory;
        let key = if directory { [path, b"/"].concat() } else { path.to_vec() };
        if key.len() > self.key_bytes_max as usize {
            return self.skip(path, Why::KeyTooLong { bytes_max: self.key_bytes_max });
        }
        let bytes = if directory { 0 } else { u64::try_from(stat.st_size).unwrap_or(0) };
        self.scanned.found.push(Found { key, bytes });
        directory
    }

    fn skip(&mut self, path: &[u8], why: Why) -> bool {
        self.scanned.skipped.push(Skipped { path: path.to_vec(), why });
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn keys(scanned: &Scanned) -> Vec<String> {
        scanned.found.iter().map(|f| shown(&f.key)).collect()
    }

    #[test]
    fn files_and_directories_are_found_in_key_order_and_the_rest_is_named() {
        let root = tempfile::tempdir().expect("a directory");
        let at = |path: &str| root.path().join(path);
        fs::create_dir_all(at("a/empty")).expect("creates");
        fs::write(at("a/f"), b"123").expect("writes");
        fs::write(at("a.b"), b"").expect("writes");
        symlink("/etc", at("link")).expect("links");
        let _socket = std::os::unix::net::UnixListener::bind(at("sock")).expect("binds");
        let scanned = scan(root.path(), None, 1024).expect("scans");
        assert_eq!(keys(&scanned), ["a.b", "a/", "a/empty/", "a/f"]);
        assert_eq!(scanned.found[3].bytes, 3);
        let skipped: Vec<_> = scanned.skipped.iter().map(|s| (shown(&s.path), s.why)).collect();
        assert_eq!(skipped, [("link".into(), Why::Symlink), ("sock".into(), Why::Special)]);
    }

    #[test]
    fn a_path_over_the_key_limit_is_reported_and_not_entered() {
        let root = tempfile::tempdir().expect("a directory");
        fs::create_dir_all(root.path().join("long-name/below")).expect("creates");
        fs::write(root.path().join("short"), b"").expect("writes");
        let scanned = scan(root.path(), None, 9).expect("scans");
        assert_eq!(keys(&scanned), ["short"]);
        assert_eq!(scanned.skipped.len(), 1);
        assert!(scanned.skipped[0].why.is_loss());
    }

    #[test]
    fn a_directory_that_vanishes_while_the_tree_is_read_is_no_part_of_it() {
        let root = tempfile::tempdir().expect("a directory");
        let fd = fs::File::open(root.path()).expect("opens");
        let mut walk = Walk { own: None, key_bytes_max: 99, scanned: Scanned::default() };
        fs::create_dir(root.path().join("gone")).expect("creates");
        let stat = statat(&fd, "gone", AtFlags::empty()).expect("is there");
        assert!(walk.take(b"gone", &stat), "it is listed");
        fs::remove_dir(root.path().join("gone")).expect("removes");
        walk.descend(fd.as_fd(), c"gone", b"gone").expect("no error");
        assert!(walk.scanned.found.is_empty());
    }

    #[test]
    fn the_replicas_own_directory_is_left_out() {
        let root = tempfile::tempdir().expect("a directory");
        fs::create_dir_all(root.path().join("replica/blobs")).expect("creates");
        let own = rustix::fs::stat(root.path().join("replica")).expect("is there");
        let scanned = scan(root.path(), Some(&own), 1024).expect("scans");
        assert!(scanned.found.is_empty());
        assert_eq!(scanned.skipped[0].why, Why::Replica);
    }

    #[test]
    fn what_is_no_directory_is_a_usage_error() {
        let file = tempfile::NamedTempFile::new().expect("a file");
        assert_eq!(scan(file.path(), None, 9).expect_err("no directory").exit, crate::exit::Exit::Usage);
    }
}
