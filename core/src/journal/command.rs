//! What a host executes for a journal and the files beside it, as plain data.
//!
//! Appends and cuts are executed **strictly in order**, one after the other. Everything else may run
//! beside them and beside one another: a segment is prepared beside appends, so that it does not
//! delay them, and is used only after its completion. A completion may be handed in as soon as the
//! work is done, also before `execute` returns.

use crate::error::StorageFault;
use crate::ticket::{Completion, Operation, Ticket};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// Number of a journal segment; the first is 1, and none is used twice.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct SegmentNumber(pub u64);

impl SegmentNumber {
    /// The segment after this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

/// A file of a log's directory. Its `Display` is its name on disk.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum FileName {
    /// The commit point of compaction and snapshot installation.
    Current,
    /// The reserved bound of the authority.
    Authority,
    /// Who counts for compaction.
    Members,
    /// What peers acknowledged.
    Acked,
    /// A journal segment.
    Segment(SegmentNumber),
    /// A checkpoint; numbers are never used twice.
    Checkpoint(u64),
}

impl FileName {
    /// The inverse of `Display`; `None` for a name this format does not use.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let number = |digits: &str| {
            let lower = digits.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
            (digits.len() == 16 && lower).then(|| u64::from_str_radix(digits, 16).ok()).flatten()
        };
        match name {
            "current" => Some(Self::Current),
            "authority" => Some(Self::Authority),
            "members" => Some(Self::Members),
            "acked" => Some(Self::Acked),
            other => {
                if let Some(digits) = other.strip_prefix("segment-") {
                    number(digits).map(|n| Self::Segment(SegmentNumber(n)))
                } else {
                    other.strip_prefix("checkpoint-").and_then(number).map(Self::Checkpoint)
                }
            }
        }
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Current => f.write_str("current"),
            Self::Authority => f.write_str("authority"),
            Self::Members => f.write_str("members"),
            Self::Acked => f.write_str("acked"),
            Self::Segment(number) => write!(f, "segment-{:016x}", number.0),
            Self::Checkpoint(number) => write!(f, "checkpoint-{number:016x}"),
        }
    }
}

/// A file found in the directory.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Listed {
    /// Its name.
    pub file: FileName,
    /// Its length.
    pub bytes: u64,
}

/// An effect on the files of one log's directory.
#[derive(Debug)]
#[must_use]
pub enum StorageCommand {
    /// Lists the files whose names [`FileName::parse`] knows. Others are left alone.
    List {
        /// Answers with the files in any order.
        ticket: Ticket<op::List>,
    },
    /// Reads `bytes_max` bytes at `offset`; fewer only where the file ends.
    Read {
        /// Answers with the bytes. An error is an error, never an end of file.
        ticket: Ticket<op::Read>,
        /// Which file.
        file: FileName,
        /// Where to start.
        offset: u64,
        /// At most 1 GiB.
        bytes_max: u32,
    },
    /// Creates a segment of `bytes` written zeros (never a sparse file) in place of whatever has
    /// that name, and makes it and its directory entry durable.
    Prepare {
        /// `Ok` means durable.
        ticket: Ticket<op::Prepare>,
        /// The new segment.
        segment: SegmentNumber,
        /// Its length.
        bytes: u64,
    },
    /// Writes `bytes` at `offset` of a prepared segment (growing it if they reach beyond its end)
    /// and makes them durable.
    Append {
        /// `Ok` means that the bytes survive power loss.
        ticket: Ticket<op::Append>,
        /// Which segment.
        segment: SegmentNumber,
        /// Where.
        offset: u64,
        /// What.
        bytes: Vec<u8>,
    },
    /// Copies everything from `offset` to the end of the segment that is not trailing zeros into
    /// the folder `cut/`, makes the copy durable, then overwrites it with zeros and makes that
    /// durable. Doing it twice is harmless.
    Cut {
        /// Answers with how many bytes the copy holds.
        ticket: Ticket<op::Cut>,
        /// Which segment.
        segment: SegmentNumber,
        /// The first byte that goes.
        offset: u64,
    },
    /// Replaces a sidecar as one step: temporary file, sync, rename, sync of the directory.
    Replace {
        /// `Ok` means that only the new bytes can be found after a crash.
        ticket: Ticket<op::Replace>,
        /// Which sidecar.
        file: FileName,
        /// Its whole content.
        bytes: Vec<u8>,
    },
    /// Writes bytes of a file under construction, without making them durable. Offset 0 creates
    /// the file, or empties it. Writes of one file are executed in order.
    Write {
        /// `Ok` promises nothing about power loss.
        ticket: Ticket<op::Write>,
        /// Which file.
        file: FileName,
        /// Where; the end of what was written so far.
        offset: u64,
        /// What.
        bytes: Vec<u8>,
    },
    /// Makes a file and its directory entry durable, after all writes of it handed out before.
    Sync {
        /// `Ok` means that the file survives power loss as it is now.
        ticket: Ticket<op::Sync>,
        /// Which file.
        file: FileName,
    },
    /// Removes files and makes that durable. One that is missing is no error.
    Remove {
        /// `Ok` means gone.
        ticket: Ticket<op::Remove>,
        /// Which files.
        files: Vec<FileName>,
    },
}

/// The operations of [`StorageCommand`].
pub mod op {
    /// [`super::StorageCommand::List`]
    #[derive(Debug)]
    pub enum List {}
    /// [`super::StorageCommand::Read`]
    #[derive(Debug)]
    pub enum Read {}
    /// [`super::StorageCommand::Prepare`]
    #[derive(Debug)]
    pub enum Prepare {}
    /// [`super::StorageCommand::Append`]
    #[derive(Debug)]
    pub enum Append {}
    /// [`super::StorageCommand::Cut`]
    #[derive(Debug)]
    pub enum Cut {}
    /// [`super::StorageCommand::Replace`]
    #[derive(Debug)]
    pub enum Replace {}
    /// [`super::StorageCommand::Write`]
    #[derive(Debug)]
    pub enum Write {}
    /// [`super::StorageCommand::Sync`]
    #[derive(Debug)]
    pub enum Sync {}
    /// [`super::StorageCommand::Remove`]
    #[derive(Debug)]
    pub enum Remove {}
}

/// How a [`StorageCommand`] ended.
#[derive(Debug)]
pub enum StorageOutcome {
    /// Of [`StorageCommand::List`].
    List(Result<Vec<Listed>, StorageFault>),
    /// Of [`StorageCommand::Read`].
    Read(Result<Vec<u8>, StorageFault>),
    /// Of [`StorageCommand::Prepare`].
    Prepare(Result<(), StorageFault>),
    /// Of [`StorageCommand::Append`].
    Append(Result<(), StorageFault>),
    /// Of [`StorageCommand::Cut`].
    Cut(Result<u64, StorageFault>),
    /// Of [`StorageCommand::Replace`].
    Replace(Result<(), StorageFault>),
    /// Of [`StorageCommand::Write`].
    Write(Result<(), StorageFault>),
    /// Of [`StorageCommand::Sync`].
    Sync(Result<(), StorageFault>),
    /// Of [`StorageCommand::Remove`].
    Remove(Result<(), StorageFault>),
}

/// The answer to a [`StorageCommand`].
pub type StorageCompletion = Completion<StorageOutcome>;

macro_rules! operations {
    ($($name:ident -> $output:ty),* $(,)?) => {$(
        impl Operation for op::$name {
            type Output = $output;
            type Outcome = StorageOutcome;
            fn outcome(result: Result<Self::Output, StorageFault>) -> StorageOutcome {
                StorageOutcome::$name(result)
            }
        }
    )*};
}

operations! {
    List -> Vec<Listed>,
    Read -> Vec<u8>,
    Prepare -> (),
    Append -> (),
    Cut -> u64,
    Replace -> (),
    Write -> (),
    Sync -> (),
    Remove -> (),
}

/// The name of a file as an owned string, for errors.
impl From<FileName> for String {
    fn from(file: FileName) -> Self {
        alloc::format!("{file}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_round_trip() {
        for file in [
            FileName::Current,
            FileName::Authority,
            FileName::Members,
            FileName::Acked,
            FileName::Segment(SegmentNumber(0xab)),
            FileName::Checkpoint(u64::MAX),
        ] {
            assert_eq!(FileName::parse(&String::from(file)), Some(file));
        }
    }

    #[test]
    fn other_names_are_not_ours() {
        for name in
            ["", "segment-", "segment-1", "segment-00000000000000AB", "checkpoint-00000000000000011", "lock"]
        {
            assert_eq!(FileName::parse(name), None, "{name}");
        }
    }
}
