//! Writing files below a root so that no name ever shows half a file and everything is durable at
//! the end, with two syncs of the file system instead of one or two for each file.

use super::beneath::{Beneath, Missing};
use super::path::RelPath;
use crate::content::{CopyError, copy};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use strandline_core::record::BlobKey;

/// A file that is written and has no final name yet.
struct Staged {
    path: RelPath,
    temporary: Vec<u8>,
}

/// Files on their way to their names. Dropped before [`Placing::finish`], it removes what it wrote
/// under temporary names.
pub(crate) struct Placing {
    beneath: Beneath,
    staged: Vec<Staged>,
    nonce: String,
    /// One open directory of each file system written to.
    systems: Vec<(u64, OwnedFd)>,
}

/// How copying one file ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Copied {
    /// The bytes are what their name says; how many.
    Verified(u64),
    /// They hash to this instead; nothing is kept.
    Mismatch(BlobKey),
}

impl Placing {
    /// Starts below `root`, which must exist. `nonce` keeps temporary names apart from those of
    /// other runs.
    pub(crate) fn new(root: &Path, nonce: String) -> io::Result<Self> {
        let mut beneath = Beneath::open(root)?;
        let mut systems = Vec::new();
        remember_system(&mut systems, beneath.directory(&[], Missing::Fail)?)?;
        Ok(Self { beneath, staged: Vec::new(), nonce, systems })
    }

    /// Makes a directory and those on the way to it.
    pub(crate) fn directory(&mut self, path: &RelPath) -> io::Result<()> {
        let fd = self.beneath.directory(path.names(), Missing::Make)?;
        remember_system(&mut self.systems, fd)
    }

    /// Copies a file to a temporary name beside its own, hashing what it copies.
    pub(crate) fn file(
        &mut self,
        path: &RelPath,
        blob: BlobKey,
        from: &mut impl Read,
    ) -> Result<Copied, CopyError> {
        let temporary = format!(".strandline-{}-{}", self.nonce, self.staged.len()).into_bytes();
        let mut to = self.stage(path, temporary).map_err(CopyError::Target)?;
        let (found, bytes) = copy(from, &mut to)?;
        let kept = if found == blob { self.keep(&to) } else { self.discard() };
        kept.map_err(CopyError::Target)?;
        Ok(if found == blob { Copied::Verified(bytes) } else { Copied::Mismatch(found) })
    }

    fn stage(&mut self, path: &RelPath, temporary: Vec<u8>) -> io::Result<File> {
        let to = self.beneath.create(path.split().0, &temporary)?;
        self.staged.push(Staged { path: path.clone(), temporary });
        Ok(to)
    }

    fn discard(&mut self) -> io::Result<()> {
        let staged = self.staged.pop().expect("staged just now");
        self.beneath.remove(staged.path.split().0, &staged.temporary)
    }

    fn keep(&mut self, file: &File) -> io::Result<()> {
        sync_file(file)?;
        let parent = self.beneath.directory(staged_parent(&self.staged), Missing::Fail)?;
        remember_system(&mut self.systems, parent)
    }

    /// Makes the bytes durable, gives every file its name, makes the names durable.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.sync()?;
        for Staged { path, temporary } in &self.staged {
            let (parents, name) = path.split();
            self.beneath.rename(parents, temporary, name)?;
        }
        self.sync()?;
        self.staged.clear();
        Ok(())
    }

    #[cfg(target_os = "linux")]
    fn sync(&mut self) -> io::Result<()> {
        for (_, fd) in &self.systems {
            rustix::fs::syncfs(fd)?;
        }
        Ok(())
    }

    /// There is no sync of a file system here: files were synced one by one, directories are now.
    #[cfg(not(target_os = "linux"))]
    fn sync(&mut self) -> io::Result<()> {
        let mut last: Option<&[Vec<u8>]> = None;
        for Staged { path, .. } in &self.staged {
            let (parents, _) = path.split();
            if last != Some(parents) {
                rustix::fs::fsync(self.beneath.directory(parents, Missing::Fail)?)?;
                last = Some(parents);
            }
        }
        Ok(())
    }
}

impl Drop for Placing {
    fn drop(&mut self) {
        for Staged { path, temporary } in std::mem::take(&mut self.staged) {
            // Already renamed, or left for a person to remove: the command has failed loudly.
            let _ = self.beneath.remove(path.split().0, &temporary);
        }
    }
}

fn staged_parent(staged: &[Staged]) -> &[Vec<u8>] {
    staged.last().map_or(&[], |s| s.path.split().0)
}

#[cfg(target_os = "linux")]
fn sync_file(_: &File) -> io::Result<()> {
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn sync_file(file: &File) -> io::Result<()> {
    file.sync_all()
}

/// Remembers a directory of each file system: a mount point below the root needs its own sync.
fn remember_system(systems: &mut Vec<(u64, OwnedFd)>, dir: BorrowedFd<'_>) -> io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    let fd = dir.as_fd().try_clone_to_owned()?;
    let file = File::from(fd);
    let device = file.metadata()?.dev();
    if !systems.iter().any(|(known, _)| *known == device) {
        systems.push((device, file.into()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    fn key(bytes: &[u8]) -> BlobKey {
        copy(&mut &bytes[..], &mut io::sink()).expect("hashes").0
    }

    fn path(key: &str) -> RelPath {
        RelPath::parse(key.as_bytes()).expect("a path")
    }

    #[test]
    fn names_appear_together_at_the_end_and_nothing_else_stays() {
        let root = tempfile::tempdir().expect("a directory");
        let mut placing = Placing::new(root.path(), "n".into()).expect("starts");
        placing.directory(&path("d/empty/")).expect("makes");
        assert_eq!(
            placing.file(&path("d/f"), key(b"one"), &mut &b"one"[..]).expect("copies"),
            Copied::Verified(3)
        );
        assert!(!root.path().join("d/f").exists());
        placing.finish().expect("finishes");
        assert_eq!(fs::read(root.path().join("d/f")).expect("reads"), b"one");
        assert!(root.path().join("d/empty").is_dir());
        assert_eq!(fs::read_dir(root.path().join("d")).expect("lists").count(), 2);
    }

    #[test]
    fn bytes_that_are_not_what_their_name_says_are_not_kept() {
        let root = tempfile::tempdir().expect("a directory");
        let mut placing = Placing::new(root.path(), "n".into()).expect("starts");
        let found = placing.file(&path("f"), key(b"one"), &mut &b"two"[..]).expect("copies");
        assert_eq!(found, Copied::Mismatch(key(b"two")));
        placing.finish().expect("finishes");
        assert_eq!(fs::read_dir(root.path()).expect("lists").count(), 0);
    }

    #[test]
    fn an_unfinished_run_leaves_no_temporary_names() {
        let root = tempfile::tempdir().expect("a directory");
        let mut placing = Placing::new(root.path(), "n".into()).expect("starts");
        placing.file(&path("f"), key(b"one"), &mut &b"one"[..]).expect("copies");
        drop(placing);
        assert_eq!(fs::read_dir(root.path()).expect("lists").count(), 0);
    }

    #[test]
    fn nothing_is_written_through_a_symlink() {
        let root = tempfile::tempdir().expect("a directory");
        let outside = tempfile::tempdir().expect("a directory");
        symlink(outside.path(), root.path().join("out")).expect("links");
        let mut placing = Placing::new(root.path(), "n".into()).expect("starts");
        placing.file(&path("out/f"), key(b"x"), &mut &b"x"[..]).expect_err("refused");
        placing.directory(&path("out/d/")).expect_err("refused");
        drop(placing);
        assert_eq!(fs::read_dir(outside.path()).expect("lists").count(), 0);
    }
}
