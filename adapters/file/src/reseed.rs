//! Throwing a log's local history away, after keeping a copy of it.

use crate::fault::OrFault;
use crate::folder::{Access, Folder};
use crate::{Directory, OpenError, OpenMode};
use std::path::{Path, PathBuf};
use strandline_core::error::{StorageAction, StorageFault};
use strandline_core::id::Incarnation;
use strandline_core::journal::command::FileName;
use strandline_core::journal::current::ENVELOPE;
use strandline_core::lifecycle::recovery::Reseeded;
use strandline_core::seed::Seed;

/// The folder for histories that were thrown away.
const KEPT: &str = "kept";

/// Why a directory was not reseeded. Nothing is lost: what was moved lies in the folder for it, and
/// doing it again goes on.
#[derive(Debug, thiserror::Error)]
pub enum ReseedError {
    /// The directory could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// Its files could not be moved, or its `current` says nothing.
    #[error(transparent)]
    Storage(#[from] StorageFault),
    /// The system gave no random bytes.
    #[error("expected 32 random bytes from the system, found: {0}")]
    Entropy(getrandom::Error),
}

/// What became of a directory.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Reseed {
    /// The replica's name, which stays.
    pub identity: String,
    /// The life that ended.
    pub before: Incarnation,
    /// The life that began.
    pub after: Incarnation,
    /// Where the copy of what was thrown away lies. A person removes it.
    pub kept: PathBuf,
}

/// Throws the history of the log at `path` away: everything but the blobs is moved to a folder below
/// `kept`, durably, and the directory becomes a follower that holds nothing, under the same name, in
/// another life. Works on a directory that recovery refuses, as long as its `current` can be read.
///
/// ```
/// use strandline_core::id::LogId;
/// use strandline_core::lifecycle::recovery::Init;
/// use strandline_core::record::AuthorityId;
/// use strandline_file::node::{Node, NodeConfig};
/// let folder = tempfile::tempdir()?;
/// let path = folder.path().join("log");
/// let init = Init {
///     log: LogId([7; 16]),
///     identity: "a".into(),
///     namespaces: vec![b"files".to_vec()],
///     authority: Some(AuthorityId::from_text("a")),
/// };
/// Node::create(&path, init, NodeConfig::default())?.0.close()?;
/// let reseeded = strandline_file::reseed(&path)?;
/// assert!(reseeded.kept.join("current").exists());
/// assert_ne!(reseeded.before, reseeded.after);
/// Node::open(&path, NodeConfig::default())?.0.close()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As [`ReseedError`] says; the directory is in use, among others.
pub fn reseed(path: impl AsRef<Path>) -> Result<Reseed, ReseedError> {
    let directory = Directory::open(path.as_ref(), OpenMode::Existing)?;
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(ReseedError::Entropy)?;
    let current = directory.read(FileName::Current, 0, current_bytes_max())?;
    let reseeded = Reseeded::of(&current, &Seed::new(seed))?;
    let name = format!("{}", reseeded.before);
    let kept = directory.set_aside(&name, &current)?;
    directory.replace(FileName::Current, &reseeded.current)?;
    let Reseeded { identity, before, after, .. } = reseeded;
    Ok(Reseed { identity, before, after, kept })
}

impl Directory {
    /// Moves every file of the log but `current`, of which a copy is left, to `kept/NAME`. What an
    /// earlier try moved there stays.
    fn set_aside(&self, name: &str, current: &[u8]) -> Result<PathBuf, StorageFault> {
        let (action, what) = (StorageAction::Replace, KEPT);
        let all = self.folder().subfolder(KEPT).or_fault(action, what, None)?;
        let kept = all.subfolder(name).or_fault(action, what, None)?;
        write_whole(&kept, &FileName::Current.to_string(), current).or_fault(action, "current", None)?;
        for listed in self.list()? {
            let file = listed.file.to_string();
            if listed.file != FileName::Current {
                self.folder().rename(&file, &kept, &file).or_fault(action, &file, None)?;
            }
        }
        kept.sync().or_fault(StorageAction::Sync, what, None)?;
        all.sync().or_fault(StorageAction::Sync, what, None)?;
        self.sync(StorageAction::Sync)?;
        Ok(self.path().join(KEPT).join(name))
    }
}

/// One byte more than the longest `current` there can be, so that a longer one is seen to be.
fn current_bytes_max() -> u32 {
    u32::try_from(ENVELOPE.bytes_max() + 1).expect("a few MiB")
}

fn write_whole(folder: &Folder, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    use std::os::unix::fs::FileExt;
    let file = folder.file(name, Access::Empty)?;
    file.write_all_at(bytes, 0)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::{Node, NodeConfig};
    use strandline_core::id::LogId;
    use strandline_core::journal::current::{Current, NAMESPACE_BYTES_MAX, NAMESPACES_MAX};
    use strandline_core::lifecycle::recovery::Init;
    use strandline_core::record::AuthorityId;

    fn made(path: &Path) {
        let init = Init {
            log: LogId([7; 16]),
            identity: "a".into(),
            namespaces: vec![b"files".to_vec()],
            authority: Some(AuthorityId::from_text("a")),
        };
        Node::create(path, init, NodeConfig::default()).expect("made").0.close().expect("closes");
    }

    #[test]
    fn a_directory_in_use_is_not_reseeded() {
        let folder = tempfile::tempdir().expect("a folder");
        made(folder.path());
        let (node, _) = Node::open(folder.path(), NodeConfig::default()).expect("opens");
        assert!(matches!(reseed(folder.path()), Err(ReseedError::Open(OpenError::InUse(_)))));
        node.close().expect("closes");
    }

    #[test]
    fn the_longest_current_is_read_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        made(folder.path());
        let directory = Directory::open(folder.path(), OpenMode::Existing).expect("opens");
        let bytes = directory.read(FileName::Current, 0, current_bytes_max()).expect("reads");
        let mut current = Current::decode(&bytes).expect("is one");
        let namespace = |n| format!("{n:0>width$}", width = NAMESPACE_BYTES_MAX).into_bytes();
        current.namespaces = (0..NAMESPACES_MAX).map(namespace).collect();
        let bytes = current.encode();
        assert!(bytes.len() > NAMESPACES_MAX * NAMESPACE_BYTES_MAX);
        directory.replace(FileName::Current, &bytes).expect("writes");
        drop(directory);
        reseed(folder.path()).expect("all of it was read");
    }

    #[test]
    fn a_try_that_ended_half_way_is_gone_on_with() {
        let folder = tempfile::tempdir().expect("a folder");
        made(folder.path());
        let directory = Directory::open(folder.path(), OpenMode::Existing).expect("opens");
        let current = directory.read(FileName::Current, 0, current_bytes_max()).expect("reads");
        let files = directory.list().expect("lists").len();
        directory.set_aside("half", &current).expect("moves");
        drop(directory);
        assert!(Node::open(folder.path(), NodeConfig::default()).is_err(), "its history is gone");
        let done = reseed(folder.path()).expect("goes on");
        Node::open(folder.path(), NodeConfig::default()).expect("opens").0.close().expect("closes");
        let kept = std::fs::read_dir(folder.path().join("kept/half")).expect("is there").count();
        assert_eq!(kept, files, "nothing is lost");
        assert!(done.kept.join("current").exists());
    }
}
