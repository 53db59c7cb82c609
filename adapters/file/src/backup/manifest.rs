//! What a backup holds, with the digests of all of it.

use super::{BackupError, MANIFEST, fault};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;
use strandline_core::error::{StorageAction, StorageFault};
use strandline_core::id::hex;
use strandline_core::lifecycle::api::Status;
use strandline_core::limits::PIECE_BYTES_MAX;
use strandline_core::record::BlobKey;

/// The format that is written, and the only one that is read.
const FORMAT: u32 = 1;

/// The manifest of a backup. Digests and IDs are lower-case hexadecimal, versions `EPOCH.SEQUENCE`.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Version of this format.
    pub format: u32,
    /// The log.
    pub log: String,
    /// The replica's name.
    pub identity: String,
    /// The life of its data that was backed up; a restore is another one.
    pub incarnation: String,
    /// What compaction had kept.
    pub floor: String,
    /// The durable tail that the backup stands for.
    pub tail: String,
    /// Digest of the history up to it.
    pub tail_digest: String,
    /// Keys that are present.
    pub present: u64,
    /// The log's files, by name.
    pub files: Vec<ManifestFile>,
    /// The blobs.
    pub blobs: ManifestBlobs,
}

/// One file of the log.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ManifestFile {
    /// Its name.
    pub name: String,
    /// Its length.
    pub bytes: u64,
    /// Its SHA-256.
    pub sha256: String,
}

/// All blobs together.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ManifestBlobs {
    /// How many.
    pub count: u64,
    /// Their lengths together.
    pub bytes: u64,
    /// SHA-256 of their keys, 32 bytes each, in ascending order.
    pub sha256: String,
}

impl Manifest {
    pub(super) fn new(status: &Status, files: Vec<ManifestFile>, blobs: ManifestBlobs) -> Self {
        Self {
            format: FORMAT,
            log: status.log.to_string(),
            identity: status.identity.clone(),
            incarnation: status.incarnation.to_string(),
            floor: status.floor.to_string(),
            tail: status.tail.to_string(),
            tail_digest: hex(&status.tail_digest),
            present: status.present,
            files,
            blobs,
        }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut text = serde_json::to_vec_pretty(self).expect("strings and numbers only");
        text.push(b'\n');
        text
    }

    /// Reads the manifest of a backup.
    ///
    /// # Errors
    /// There is none, or it is none of this format.
    pub fn read(backup: &Path) -> Result<Self, BackupError> {
        let path = backup.join(MANIFEST);
        let not_whole = |found: String| BackupError::NotWhole {
            path: path.clone(),
            expected: format!("a manifest of format {FORMAT}"),
            found,
        };
        let text = fs::read(&path).map_err(|error| not_whole(error.to_string()))?;
        let manifest: Self = serde_json::from_slice(&text).map_err(|error| not_whole(error.to_string()))?;
        if manifest.format == FORMAT {
            Ok(manifest)
        } else {
            Err(not_whole(format!("format {}", manifest.format)))
        }
    }

    /// Compares with what is there.
    pub(super) fn check(&self, backup: &Path, found: &Self) -> Result<(), BackupError> {
        let parts = [
            ("log", &self.log, &found.log),
            ("identity", &self.identity, &found.identity),
            ("incarnation", &self.incarnation, &found.incarnation),
            ("floor", &self.floor, &found.floor),
            ("tail", &self.tail, &found.tail),
            ("digest of the tail", &self.tail_digest, &found.tail_digest),
            ("digest of the blobs", &self.blobs.sha256, &found.blobs.sha256),
        ];
        let differs = |(what, expected, found): (&str, &String, &String)| {
            (expected != found).then(|| (format!("{what} {expected}"), found.clone()))
        };
        let file = || {
            let expected = self.files.iter().find(|file| !found.files.contains(file))?;
            Some((format!("file {} with SHA-256 {}", expected.name, expected.sha256), "another".to_owned()))
        };
        let counts = || {
            let same = self == found;
            (!same).then(|| ("what the manifest counts".to_owned(), "other counts".to_owned()))
        };
        match parts.into_iter().find_map(differs).or_else(file).or_else(counts) {
            None => Ok(()),
            Some((expected, found)) => {
                Err(BackupError::NotWhole { path: backup.to_owned(), expected, found })
            }
        }
    }
}

/// The files of a backed-up log, by name.
pub(super) fn files(log: &Path) -> Result<Vec<ManifestFile>, StorageFault> {
    let failed = |error: io::Error| fault(StorageAction::List, log, &error);
    let mut files = Vec::new();
    for entry in fs::read_dir(log).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let (bytes, sha256) = hashed(&entry.path())?;
        files.push(ManifestFile { name, bytes, sha256: hex(&sha256) });
    }
    files.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(files)
}

/// Length and SHA-256 of a file.
pub(super) fn hashed(path: &Path) -> Result<(u64, [u8; 32]), StorageFault> {
    let failed = |error: io::Error| fault(StorageAction::Read, path, &error);
    let mut file = File::open(path).map_err(failed)?;
    let (mut hash, mut piece, mut bytes) = (Sha256::new(), vec![0; PIECE_BYTES_MAX as usize], 0);
    loop {
        match file.read(&mut piece) {
            Ok(0) => return Ok((bytes, hash.finalize().into())),
            Ok(read) => {
                hash.update(&piece[..read]);
                bytes += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failed(error)),
        }
    }
}

/// What a manifest says of blobs of these keys.
pub(super) fn blobs(keys: &BTreeSet<BlobKey>, bytes: u64) -> ManifestBlobs {
    let mut hash = Sha256::new();
    for key in keys {
        hash.update(key.0);
    }
    let sha256: [u8; 32] = hash.finalize().into();
    ManifestBlobs { count: keys.len() as u64, bytes, sha256: hex(&sha256) }
}
