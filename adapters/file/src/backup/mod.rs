//! Backups of a running node, and putting them back.
//!
//! A backup is a folder: `log/` holds the files of the log's durable state at one moment, `blobs/`
//! every blob that a present key of it names, and `manifest.json`, written last, the digests of all
//! of it. A folder without a manifest is no backup.
//!
//! Taking one has two steps, so that the node does only what it alone can: [`begin`] copies the log's
//! files within the node's process, [`finish`] adds the blobs and the manifest from anywhere.

mod blobs;
mod inspect;
mod manifest;
mod restore;

pub use blobs::BlobCopies;
pub use inspect::inspect;
pub use manifest::{Manifest, ManifestBlobs, ManifestFile};
pub use restore::restore;

use crate::fault::OrFault;
use crate::folder::{Folder, sync_parent};
use crate::node::{NodeHandle, StartError, Unavailable};
use crate::{BlobHold, OpenError, StoreError};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use strandline_core::error::{StorageAction, StorageFault};
use strandline_core::journal::command::FileName;
use strandline_core::lifecycle::backup::BackupPlan;
use strandline_core::record::{BlobKey, Version};

/// The log's files in a backup.
const LOG: &str = "log";
/// Its blobs.
const BLOBS: &str = "blobs";
/// What says that it is whole.
const MANIFEST: &str = "manifest.json";

/// Why a backup was not taken, or not put back.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The folder that is to be made is there already.
    #[error("{path} exists: expected a folder that is still to be made")]
    Exists {
        /// Which.
        path: PathBuf,
    },
    /// What is to be put back is no backup, or not what was backed up.
    #[error("{path} is no whole backup: expected {expected}, found {found}")]
    NotWhole {
        /// Which file or folder.
        path: PathBuf,
        /// What should be there.
        expected: String,
        /// What is.
        found: String,
    },
    /// A blob that a present key names is not stored, or its bytes are others.
    #[error("blob {blob} of the backup: expected bytes with this SHA-256, found {found}")]
    Blob {
        /// Which.
        blob: BlobKey,
        /// What is there instead.
        found: String,
    },
    /// The node could not be asked.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
    /// The copy does not recover.
    #[error(transparent)]
    Recovery(#[from] StartError),
    /// A disk failed.
    #[error(transparent)]
    Storage(#[from] StorageFault),
}

impl From<StoreError> for BackupError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Storage(fault) => Self::Storage(fault),
            StoreError::Source(error) => Self::Storage(fault(StorageAction::Read, Path::new(BLOBS), &error)),
        }
    }
}

impl From<OpenError> for BackupError {
    fn from(error: OpenError) -> Self {
        Self::Recovery(error.into())
    }
}

/// The moment that a backup stands for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BackedUp {
    /// The durable tail.
    pub tail: Version,
    /// Digest of the history up to it.
    pub tail_digest: [u8; 32],
}

/// Copies the files of a running node's durable state to `target/log`, which is made. Blocks, but
/// not the node: it goes on writing and compacting meanwhile. Only blobs are not collected as long as
/// the hold lives: keep it until [`finish`] has ended.
///
/// # Errors
/// [`BackupError`]; what was copied by then is no backup and can be removed.
///
/// # Panics
/// If the node's thread has panicked.
pub fn begin(node: &NodeHandle, target: &Path) -> Result<(BackedUp, BlobHold), BackupError> {
    let hold = node.blobs().hold();
    make(target)?;
    let log = target.join(LOG);
    make(&log)?;
    let source = node.directory().to_owned();
    let (tx, rx) = channel();
    // On the node's own thread, between two inputs: what is open now is not lost to a removal.
    node.read(move |replica| {
        let plan = replica.map(|replica| replica.backup_plan());
        let opened = plan.map(|plan| open_all(&source, &plan).map(|files| (plan, files)));
        drop(tx.send(opened));
    });
    let (plan, files) = rx.recv().expect("the node answers every call")??;
    for (file, handle, bytes) in files {
        copy(handle, bytes, &log.join(file.to_string()))?;
    }
    write(&log.join(FileName::Current.to_string()), &plan.current)?;
    sync(&log)?;
    Ok((BackedUp { tail: plan.tail, tail_digest: plan.tail_digest }, hold))
}

type Opened = Vec<(FileName, File, Option<u64>)>;

fn open_all(source: &Path, plan: &BackupPlan) -> Result<Opened, StorageFault> {
    let mut opened = Vec::with_capacity(plan.files.len());
    for wanted in &plan.files {
        let path = source.join(wanted.file.to_string());
        match File::open(&path) {
            Ok(handle) => opened.push((wanted.file, handle, wanted.bytes)),
            Err(error) if wanted.optional && error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(fault(StorageAction::Read, &path, &error)),
        }
    }
    Ok(opened)
}

/// Adds the blobs to what [`begin`] copied, checks that the copy recovers to the same history, and
/// writes the manifest. `source` is the blob store's folder; the node may run meanwhile, also in another
/// process. Holds the whole key space in memory.
///
/// # Errors
/// [`BackupError`]; without a manifest the folder is no backup and can be removed.
pub fn finish(
    source: &Path,
    target: &Path,
    expected: BackedUp,
    copies: BlobCopies,
) -> Result<Manifest, BackupError> {
    let log = target.join(LOG);
    let (replica, _) = inspect(&log)?;
    let status = replica.status();
    if (status.tail, status.tail_digest) != (expected.tail, expected.tail_digest) {
        return Err(BackupError::NotWhole {
            path: log,
            expected: format!("a log up to {}", expected.tail),
            found: format!("one up to {}, or another history", status.tail),
        });
    }
    let keys = inspect::present_blobs(&replica);
    let blobs = blobs::copy(source, &target.join(BLOBS), &keys, copies)?;
    let manifest = Manifest::new(&status, manifest::files(&log)?, blobs);
    write(&target.join(MANIFEST), &manifest.encode())?;
    sync(target)?;
    sync_parent(target).or_fault(StorageAction::Sync, &target.display().to_string(), None)?;
    Ok(manifest)
}

/// Copies the first `bytes` of a file, or all of it; what lies behind them is zeros, as many as there
/// were. Durable on return, the file's entry aside.
fn copy(mut from: File, bytes: Option<u64>, to: &Path) -> Result<(), StorageFault> {
    let read = |error: &io::Error| fault(StorageAction::Read, to, error);
    let whole = from.metadata().map_err(|e| read(&e))?.len();
    let mut out = new(to)?;
    let wrote = |error: io::Error| fault(StorageAction::Write, to, &error);
    let copied = io::copy(&mut Read::by_ref(&mut from).take(bytes.unwrap_or(u64::MAX)), &mut out);
    copied.map_err(wrote)?;
    out.set_len(whole).map_err(wrote)?;
    out.sync_all().map_err(|error| fault(StorageAction::Sync, to, &error))
}

fn write(to: &Path, bytes: &[u8]) -> Result<(), StorageFault> {
    let mut out = new(to)?;
    io::copy(&mut &bytes[..], &mut out).map_err(|error| fault(StorageAction::Write, to, &error))?;
    out.sync_all().map_err(|error| fault(StorageAction::Sync, to, &error))
}

fn new(path: &Path) -> Result<File, StorageFault> {
    let mut options = OpenOptions::new();
    let opened = options.write(true).create_new(true).mode(0o600).open(path);
    opened.map_err(|error| fault(StorageAction::Write, path, &error))
}

/// Makes a folder that is not there yet, and what is missing above it.
fn make(path: &Path) -> Result<(), BackupError> {
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        Folder::create(parent).or_fault(StorageAction::Write, &parent.display().to_string(), None)?;
    }
    match DirBuilder::new().mode(0o700).create(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            Err(BackupError::Exists { path: path.to_owned() })
        }
        Err(error) => Err(fault(StorageAction::Write, path, &error).into()),
    }
}

fn sync(folder: &Path) -> Result<(), StorageFault> {
    let name = folder.display().to_string();
    Folder::open(folder).and_then(|folder| folder.sync()).or_fault(StorageAction::Sync, &name, None)
}

fn read_file(path: &Path) -> Result<Vec<u8>, StorageFault> {
    fs::read(path).map_err(|error| fault(StorageAction::Read, path, &error))
}

fn fault(action: StorageAction, path: &Path, error: &io::Error) -> StorageFault {
    let again = io::Error::new(error.kind(), error.to_string());
    Err::<(), _>(again).or_fault(action, &path.display().to_string(), None).expect_err("it is one")
}
