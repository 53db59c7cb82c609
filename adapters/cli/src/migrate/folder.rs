//! The files of a v1 directory.

use crate::content::{self, CopyError};
use crate::exit::Failure;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use strandline_core::compat::streamhive::migrate::{Exported, Files, History};
use strandline_core::record::BlobKey;

/// Longest file that is read: the reference's limit of a journal and of a checkpoint.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Deepest folder below the blobs' that is looked into.
const DEPTH_MAX: u32 = 8;

/// A directory of the reference, by the names that these files have here.
#[derive(Clone, Debug)]
pub(crate) struct Folder {
    pub(crate) path: PathBuf,
}

/// The bytes of its files.
#[derive(Debug)]
pub(crate) struct V1 {
    journal: Vec<u8>,
    checkpoint: Option<Vec<u8>>,
    authority: Option<Vec<u8>>,
    membership: Option<Vec<u8>>,
    watermarks: Option<Vec<u8>>,
}

impl V1 {
    /// What they hold, taken together.
    pub(crate) fn history(&self) -> Result<History, Failure> {
        let files = Files {
            journal: &self.journal,
            checkpoint: self.checkpoint.as_deref(),
            authority: self.authority.as_deref(),
            membership: self.membership.as_deref(),
            watermarks: self.watermarks.as_deref(),
        };
        History::read(&files).map_err(|error| {
            Failure::storage(error.to_string()).advise("nothing was changed; the directory is as it was")
        })
    }
}

impl Folder {
    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// The folder of the blobs.
    pub(crate) fn blobs(&self) -> PathBuf {
        self.path.join("blobs")
    }

    /// Reads the files. Nothing is opened for writing.
    pub(crate) fn read(&self) -> Result<V1, Failure> {
        let journal = self.read_file("journal")?.ok_or_else(|| {
            Failure::usage(format!("{} has no file `journal`", self.path.display()))
                .advise("copy the five files into one folder as journal, checkpoint, authority, membership, watermarks, and the blobs as blobs/")
        })?;
        Ok(V1 {
            journal,
            checkpoint: self.read_file("checkpoint")?,
            authority: self.read_file("authority")?,
            membership: self.read_file("membership")?,
            watermarks: self.read_file("watermarks")?,
        })
    }

    fn read_file(&self, name: &str) -> Result<Option<Vec<u8>>, Failure> {
        let path = self.file(name);
        let failed = |error: &io::Error| Failure::io("read", &path, error);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(&error)),
        };
        let mut bytes = Vec::new();
        file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| failed(&error))?;
        if bytes.len() as u64 > FILE_BYTES_MAX {
            let text =
                format!("{} has more than {FILE_BYTES_MAX} bytes, the most of a v1 file", path.display());
            return Err(Failure::storage(text));
        }
        Ok(Some(bytes))
    }

    /// Where the files are whose bytes are these blobs, whatever their names: every file below `blobs` is
    /// hashed.
    pub(crate) fn find_blobs(
        &self,
        wanted: &BTreeSet<BlobKey>,
    ) -> Result<BTreeMap<BlobKey, PathBuf>, Failure> {
        let mut found = BTreeMap::new();
        if !wanted.is_empty() {
            find(&self.blobs(), DEPTH_MAX, wanted, &mut found)?;
        }
        Ok(found)
    }

    /// Writes the files into the directory, which must be empty or missing, each durable on return.
    pub(crate) fn write(&self, files: &Exported) -> Result<(), Failure> {
        let failed = |path: &Path, error: &io::Error| Failure::io("write", path, error);
        fs::create_dir_all(self.blobs()).map_err(|error| failed(&self.path, &error))?;
        let named = [
            ("journal", Some(&files.journal)),
            ("checkpoint", Some(&files.checkpoint)),
            ("authority", files.authority.as_ref()),
            ("membership", files.membership.as_ref()),
            ("watermarks", Some(&files.watermarks)),
        ];
        for (name, bytes) in named {
            let Some(bytes) = bytes else { continue };
            let path = self.file(name);
            let mut file =
                OpenOptions::new().write(true).create_new(true).open(&path).map_err(|e| failed(&path, &e))?;
            file.write_all(bytes).and_then(|()| file.sync_all()).map_err(|error| failed(&path, &error))?;
        }
        self.sync()
    }

    /// Writes one blob, verified and durable on return but for its name.
    pub(crate) fn write_blob(&self, key: BlobKey, from: &mut impl Read) -> Result<u64, Failure> {
        let path = self.blobs().join(key.to_string());
        let mut file = OpenOptions::new().write(true).create_new(true).open(&path);
        let file = file.as_mut().map_err(|error| Failure::io("write", &path, error))?;
        let (found, bytes) = content::copy(from, file).map_err(|error| copy_failed(&path, &error))?;
        file.sync_all().map_err(|error| Failure::io("write", &path, &error))?;
        if found == key {
            return Ok(bytes);
        }
        Err(Failure::storage(format!("blob {key} is damaged: its bytes hash to {found}"))
            .advise("run `verify --blobs`, then export again"))
    }

    /// Makes the names durable.
    pub(crate) fn sync(&self) -> Result<(), Failure> {
        for path in [self.blobs(), self.path.clone()] {
            let synced = File::open(&path).and_then(|folder| folder.sync_all());
            synced.map_err(|error| Failure::io("sync", &path, &error))?;
        }
        Ok(())
    }
}

fn copy_failed(path: &Path, error: &CopyError) -> Failure {
    match error {
        CopyError::Source(error) => Failure::io("read", path, error),
        CopyError::Target(error) => Failure::io("write", path, error),
    }
}

fn find(
    folder: &Path,
    depth: u32,
    wanted: &BTreeSet<BlobKey>,
    found: &mut BTreeMap<BlobKey, PathBuf>,
) -> Result<(), Failure> {
    let failed = |path: &Path, error: &io::Error| Failure::io("read", path, error);
    let entries = fs::read_dir(folder).map_err(|error| failed(folder, &error))?;
    for entry in entries {
        let entry = entry.map_err(|error| failed(folder, &error))?;
        let path = entry.path();
        // A symbolic link is neither: what it points to is not part of the directory.
        let kind = entry.file_type().map_err(|error| failed(&path, &error))?;
        if kind.is_dir() && depth > 0 {
            find(&path, depth - 1, wanted, found)?;
        } else if kind.is_file() {
            let mut file = File::open(&path).map_err(|error| failed(&path, &error))?;
            let (key, _) =
                content::copy(&mut file, &mut io::sink()).map_err(|error| copy_failed(&path, &error))?;
            if wanted.contains(&key) {
                found.entry(key).or_insert(path);
            }
        }
    }
    Ok(())
}
