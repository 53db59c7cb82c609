//! Putting a backup back.

use super::manifest::{Manifest, files, hashed};
use super::{BLOBS, BackupError, BlobCopies, LOG, blobs, copy, fault, inspect, make, read_file, sync, write};
use crate::fault::OrFault;
use crate::folder::sync_parent;
use crate::node::entropy;
use std::fs::File;
use std::path::Path;
use strandline_core::error::StorageAction;
use strandline_core::id::hex;
use strandline_core::journal::command::FileName;
use strandline_core::lifecycle::backup::restored_current;

/// Puts a backup back as the log's directory `target`, which is made. What comes back is the same
/// replica in another incarnation; one that wrote the log refuses writes until it is fenced. Every
/// byte of the backup is verified first.
///
/// # Errors
/// [`BackupError`]; a `target` without a file `current` is no log and can be removed.
pub fn restore(backup: &Path, target: &Path, copies: BlobCopies) -> Result<Manifest, BackupError> {
    let manifest = Manifest::read(backup)?;
    let log = backup.join(LOG);
    make(target)?;
    let (replica, _) = inspect::inspect(&log)?;
    let keys = inspect::present_blobs(&replica);
    let stored = blobs::copy(&backup.join(BLOBS), &target.join(BLOBS), &keys, copies)?;
    manifest.check(backup, &Manifest::new(&replica.status(), files(&log)?, stored))?;
    let current = FileName::Current.to_string();
    for file in manifest.files.iter().filter(|file| file.name != current) {
        let path = log.join(&file.name);
        let handle = File::open(&path).map_err(|error| fault(StorageAction::Read, &path, &error))?;
        let to = target.join(&file.name);
        copy(handle, None, &to)?;
        // It was read a second time: what is put back must be what was verified.
        if hex(&hashed(&to)?.1) != file.sha256 {
            let (expected, found) = (format!("SHA-256 {}", file.sha256), "another".to_owned());
            return Err(BackupError::NotWhole { path: to, expected, found });
        }
    }
    sync(target)?;
    // The commit point: until it is there, this is no log.
    let bytes = restored_current(&read_file(&log.join(&current))?, &entropy()?)?;
    write(&target.join(&current), &bytes)?;
    sync(target)?;
    sync_parent(target).or_fault(StorageAction::Sync, &target.display().to_string(), None)?;
    Ok(manifest)
}
