//! The three error families. They are never merged: what our caller did wrong, what a peer did
//! wrong, and what the disk (or a server) did wrong ask for different answers.

use alloc::string::String;
use core::fmt;

/// Whose fault an error is.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Family {
    /// Our caller's mistake, or a limit it configured: change the call.
    Caller,
    /// The peer's fault: its session ends, nothing of ours changed.
    Peer,
    /// The disk's or a server's fault: recover from what is stored.
    Storage,
}

/// An error that knows its family.
pub trait Classified {
    /// Whose fault this is. A constant of the type: no type spans two families.
    const FAMILY: Family;
}

/// What the host was doing when storage failed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StorageAction {
    /// Listing the directory.
    List,
    /// Reading bytes.
    Read,
    /// Preparing a segment of zeros.
    Prepare,
    /// Writing bytes.
    Write,
    /// Making bytes or a directory entry durable.
    Sync,
    /// Replacing a sidecar.
    Replace,
    /// Cutting a torn tail.
    Cut,
    /// Removing files.
    Remove,
    /// Interpreting what was read.
    Decode,
}

impl fmt::Display for StorageAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::List => "list",
            Self::Read => "read",
            Self::Prepare => "prepare",
            Self::Write => "write",
            Self::Sync => "sync",
            Self::Replace => "replace",
            Self::Cut => "cut",
            Self::Remove => "remove",
            Self::Decode => "decode",
        })
    }
}

/// Why storage failed, as far as a machine must tell causes apart.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum StorageCause {
    /// The file does not exist.
    Missing,
    /// No space, quota or file-size limit left.
    Full,
    /// Not permitted, or a read-only file system.
    Denied,
    /// The bytes are there and are not what was written.
    Damaged,
    /// A newer format than this program knows.
    Newer,
    /// Anything else the system reported.
    Failed,
}

impl fmt::Display for StorageCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "missing",
            Self::Full => "no space left",
            Self::Denied => "denied",
            Self::Damaged => "damaged",
            Self::Newer => "format too new",
            Self::Failed => "failed",
        })
    }
}

/// The disk's fault (family three).
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("cannot {action} {file}{at}: {cause}: {detail}", at = At(*.offset))]
pub struct StorageFault {
    /// What was being done.
    pub action: StorageAction,
    /// The file, as the directory names it.
    pub file: String,
    /// Where in the file, if that is known.
    pub offset: Option<u64>,
    /// Why, as a closed set.
    pub cause: StorageCause,
    /// What was expected and what was found, or the system's own words.
    pub detail: String,
}

impl StorageFault {
    /// A fault of bytes that are not what was written: `detail` says what was expected and found.
    #[must_use]
    pub fn damaged(file: impl Into<String>, offset: u64, detail: impl Into<String>) -> Self {
        Self {
            action: StorageAction::Decode,
            file: file.into(),
            offset: Some(offset),
            cause: StorageCause::Damaged,
            detail: detail.into(),
        }
    }
}

impl Classified for StorageFault {
    const FAMILY: Family = Family::Storage;
}

struct At(Option<u64>);

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(offset) => write!(f, " at offset {offset}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn a_fault_names_file_offset_and_cause() {
        let fault = StorageFault::damaged("seg-0000000000000001", 48, "expected CRC 1, found 2");
        assert_eq!(
            fault.to_string(),
            "cannot decode seg-0000000000000001 at offset 48: damaged: expected CRC 1, found 2"
        );
    }
}
