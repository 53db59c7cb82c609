//! What a host executes for a replica: storage commands, and commands on the blob store.

use crate::error::StorageFault;
use crate::journal::command::{StorageCommand, StorageOutcome};
use crate::record::BlobKey;
use crate::ticket::{Completion, Operation, Ticket};
use alloc::vec::Vec;

/// An effect of a replica.
#[derive(Debug)]
#[must_use]
pub enum Command {
    /// On the files of the log's directory.
    Storage(StorageCommand),
    /// On the blob store.
    Blob(BlobCommand),
}

impl From<StorageCommand> for Command {
    fn from(command: StorageCommand) -> Self {
        Self::Storage(command)
    }
}

impl From<BlobCommand> for Command {
    fn from(command: BlobCommand) -> Self {
        Self::Blob(command)
    }
}

/// The answer to a [`Command`].
#[derive(Debug)]
pub enum Outcome {
    /// Of a [`StorageCommand`].
    Storage(StorageOutcome),
    /// Of a [`BlobCommand`].
    Blob(BlobOutcome),
}

/// The answer to a [`Command`], with its ticket used up.
pub type ReplicaCompletion = Completion<Outcome>;

impl From<Completion<StorageOutcome>> for Completion<Outcome> {
    fn from(completion: Completion<StorageOutcome>) -> Self {
        completion.map(Outcome::Storage)
    }
}

impl From<Completion<BlobOutcome>> for Completion<Outcome> {
    fn from(completion: Completion<BlobOutcome>) -> Self {
        completion.map(Outcome::Blob)
    }
}

/// An effect on the content-addressed blob store. A blob appears whole, verified and durable, or
/// not at all.
#[derive(Debug)]
#[must_use]
pub enum BlobCommand {
    /// Asks for the lengths of blobs.
    Stat {
        /// Answers in the order of `keys`: the length, or `None` where no such blob is stored.
        ticket: Ticket<blob_op::Stat>,
        /// At most 4,096.
        keys: Vec<BlobKey>,
    },
    /// Reads `bytes_max` bytes of a blob at `offset`; fewer only where it ends.
    Read {
        /// Answers `None` if no such blob is stored.
        ticket: Ticket<blob_op::Read>,
        /// Which blob.
        key: BlobKey,
        /// Where to start; at or beyond the end answers with no bytes.
        offset: u64,
        /// At most the frame's 4 MiB.
        bytes_max: u32,
    },
    /// Stores a small blob in one step.
    Put {
        /// Answers whether the bytes have this key.
        ticket: Ticket<blob_op::Put>,
        /// Its key.
        key: BlobKey,
        /// All its bytes, at most a frame's.
        bytes: Vec<u8>,
    },
    /// Writes a piece of a blob that arrives in pieces; nothing is visible before the commit.
    /// Offset 0 starts afresh.
    Write {
        /// `Ok` promises nothing about power loss.
        ticket: Ticket<blob_op::Write>,
        /// Which blob.
        key: BlobKey,
        /// The end of the pieces before.
        offset: u64,
        /// The piece.
        bytes: Vec<u8>,
    },
    /// Throws away the pieces written of a blob, if there are any.
    Abandon {
        /// Answers when no piece is left.
        ticket: Ticket<blob_op::Abandon>,
        /// Which blob.
        key: BlobKey,
    },
    /// A page of the blobs that are stored, in order of their keys. Pieces of uploads are none.
    List {
        /// Fewer than asked for only at the end.
        ticket: Ticket<blob_op::List>,
        /// The keys above this one; from the first if absent.
        after: Option<BlobKey>,
        /// How many at most.
        count_max: u32,
    },
    /// Removes blobs.
    Remove {
        /// Answers what was removed. One that is not stored is none.
        ticket: Ticket<blob_op::Remove>,
        /// Which.
        keys: Vec<BlobKey>,
        /// One that was stored, or stored again, less than this long ago stays.
        untouched_ms: u64,
    },
    /// Reads a blob through and compares it with its key. One that is damaged is set aside: it is not
    /// stored any more, and its bytes are kept for a person.
    Verify {
        /// Answers what it found.
        ticket: Ticket<blob_op::Verify>,
        /// Which blob.
        key: BlobKey,
    },
    /// Verifies the pieces written and makes the blob visible and durable.
    Commit {
        /// Answers whether the pieces have this key; if not they are thrown away.
        ticket: Ticket<blob_op::Commit>,
        /// Which blob.
        key: BlobKey,
        /// How many bytes it must have.
        total: u64,
    },
}

/// The operations of [`BlobCommand`].
pub mod blob_op {
    /// [`super::BlobCommand::Stat`]
    #[derive(Debug)]
    pub enum Stat {}
    /// [`super::BlobCommand::Read`]
    #[derive(Debug)]
    pub enum Read {}
    /// [`super::BlobCommand::Put`]
    #[derive(Debug)]
    pub enum Put {}
    /// [`super::BlobCommand::Write`]
    #[derive(Debug)]
    pub enum Write {}
    /// [`super::BlobCommand::Commit`]
    #[derive(Debug)]
    pub enum Commit {}
    /// [`super::BlobCommand::Abandon`]
    #[derive(Debug)]
    pub enum Abandon {}
    /// [`super::BlobCommand::List`]
    #[derive(Debug)]
    pub enum List {}
    /// [`super::BlobCommand::Remove`]
    #[derive(Debug)]
    pub enum Remove {}
    /// [`super::BlobCommand::Verify`]
    #[derive(Debug)]
    pub enum Verify {}
}

/// A piece of a blob.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BlobPiece {
    /// Length of the whole blob.
    pub total: u64,
    /// The bytes asked for.
    pub bytes: Vec<u8>,
}

impl BlobPiece {
    /// Whether it is all of the blob, if it begins where that does.
    pub(super) fn is_whole(&self) -> bool {
        self.bytes.len() as u64 == self.total
    }

    /// Whether its bytes have this key.
    pub(super) fn has(&self, key: BlobKey) -> bool {
        use sha2::{Digest as _, Sha256};
        key.0 == <[u8; 32]>::from(Sha256::digest(&self.bytes))
    }
}

/// Whether bytes became a blob.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Stored {
    /// Verified, visible and durable.
    Stored,
    /// Their SHA-256 or length is another one; nothing is kept.
    Mismatch,
}

/// A blob that is stored.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ListedBlob {
    /// Its key.
    pub key: BlobKey,
    /// Its length.
    pub bytes: u64,
    /// How long ago it was last stored, by any clock of the host that goes on over restarts.
    pub untouched_ms: u64,
}

/// What was removed.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct RemovedBlobs {
    /// How many blobs.
    pub blobs: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// What a blob turned out to be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Checked {
    /// Its bytes have its key.
    Sound {
        /// How many there are.
        bytes: u64,
    },
    /// It is not stored.
    Missing,
    /// Its bytes were others; they were set aside.
    Damaged,
}

/// How a [`BlobCommand`] ended.
#[derive(Debug)]
pub enum BlobOutcome {
    /// Of [`BlobCommand::Stat`].
    Stat(Result<Vec<Option<u64>>, StorageFault>),
    /// Of [`BlobCommand::Read`].
    Read(Result<Option<BlobPiece>, StorageFault>),
    /// Of [`BlobCommand::Put`].
    Put(Result<Stored, StorageFault>),
    /// Of [`BlobCommand::Write`].
    Write(Result<(), StorageFault>),
    /// Of [`BlobCommand::Commit`].
    Commit(Result<Stored, StorageFault>),
    /// Of [`BlobCommand::Abandon`].
    Abandon(Result<(), StorageFault>),
    /// Of [`BlobCommand::List`].
    List(Result<Vec<ListedBlob>, StorageFault>),
    /// Of [`BlobCommand::Remove`].
    Remove(Result<RemovedBlobs, StorageFault>),
    /// Of [`BlobCommand::Verify`].
    Verify(Result<Checked, StorageFault>),
}

macro_rules! operations {
    ($($name:ident -> $output:ty),* $(,)?) => {$(
        impl Operation for blob_op::$name {
            type Output = $output;
            type Outcome = BlobOutcome;
            fn outcome(result: Result<Self::Output, StorageFault>) -> BlobOutcome {
                BlobOutcome::$name(result)
            }
        }
    )*};
}

operations! {
    Stat -> Vec<Option<u64>>,
    Read -> Option<BlobPiece>,
    Put -> Stored,
    Write -> (),
    Commit -> Stored,
    Abandon -> (),
    List -> Vec<ListedBlob>,
    Remove -> RemovedBlobs,
    Verify -> Checked,
}
