//! Mutations and what reads answer.

use crate::error::{Classified, Family, StorageFault};
use crate::id::Lsn;
use crate::record::{AuthorityId, BlobKey, Key, RecordError, State, Version};
use alloc::string::String;
use alloc::vec::Vec;

/// What a mutation makes of its key.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Change {
    /// The key names this blob. The caller promises that the blob is stored and durable.
    Put {
        /// SHA-256 of the blob.
        blob: BlobKey,
    },
    /// The key is deleted: a tombstone, also where there was nothing.
    Delete,
}

/// One change of one key, as the log's authority makes it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Mutation {
    /// Which key.
    pub key: Key,
    /// What it becomes.
    pub change: Change,
    /// If given, the mutation happens only while the key is at exactly this version
    /// ([`Version::ZERO`]: while the key has no record).
    pub if_version: Option<Version>,
}

/// A mutation that was submitted. It has happened when [`super::Event::Durable`] reaches `lsn`; if
/// [`super::Event::Halted`] comes first, whether it happened is uncertain until the log is recovered.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Accepted {
    /// Its place in the journal.
    pub lsn: Lsn,
    /// The version it was given.
    pub version: Version,
}

/// Why mutations were refused; none of them was submitted (family: caller).
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum MutationError {
    /// The blob is just being collected, since nothing named it: store it again, then try again.
    #[error("blob {blob} is being collected: expected it to be stored anew before it is named")]
    Collecting {
        /// Which blob.
        blob: BlobKey,
    },
    /// Too much waits for the disk: try again after the next [`super::Event::Durable`].
    #[error("write queue is full: {queued_bytes} of {bytes_max} bytes wait for the disk")]
    Full {
        /// What waits.
        queued_bytes: u64,
        /// The limit.
        bytes_max: u64,
    },
    /// More than one batch can hold, now and ever.
    #[error("batch of {found} {unit} is too large: at most {max}")]
    BatchTooLarge {
        /// What was given.
        found: u64,
        /// The limit.
        max: u64,
        /// Of what.
        unit: &'static str,
    },
    /// The retained journal is at its limit and cannot be compacted.
    #[error("journal is full: {found} of at most {max} {unit}; compaction is blocked by {blocked_by}")]
    JournalFull {
        /// What is retained.
        found: u64,
        /// The limit.
        max: u64,
        /// Of what.
        unit: &'static str,
        /// The member that has not acknowledged, or what is missing.
        blocked_by: String,
    },
    /// A condition did not hold.
    #[error("{key} is at version {found}, not at {expected} as the condition asks")]
    Precondition {
        /// Which key.
        key: Key,
        /// What `if_version` asked for.
        expected: Version,
        /// The submitted version; zero for none.
        found: Version,
    },
    /// Only the log's authority gives versions; this replica follows.
    #[error("this replica follows {authority} and takes no mutations of its own")]
    NotAuthority {
        /// Who writes this log, as far as is known.
        authority: String,
    },
    /// The authority's reservation is lost or fenced.
    #[error("the authority of this log must be fenced first: {reason}")]
    Fenced {
        /// What is wrong.
        reason: String,
    },
    /// The value is no record.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The log does not hold this namespace.
    #[error("namespace {found} is none of this log's {count}")]
    Namespace {
        /// What was given.
        found: String,
        /// How many the log holds.
        count: usize,
    },
    /// The replica installs a snapshot.
    #[error("a snapshot is being installed; nothing can be written until it is done")]
    Installing,
    /// The replica is closing.
    #[error("the replica is closing")]
    Closing,
    /// The journal stopped after a fault and must be recovered.
    #[error("the journal has stopped and must be recovered: {0}")]
    Halted(StorageFault),
}

impl Classified for MutationError {
    const FAMILY: Family = Family::Caller;
}

/// What a key is, durably.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Entry {
    /// Present or deleted.
    pub state: State,
    /// Since which version.
    pub version: Version,
    /// Who gave that version.
    pub authority: AuthorityId,
}

/// Which part of the key space a scan reads.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Scan {
    /// The namespace; all of them if absent.
    pub namespace: Option<Vec<u8>>,
    /// What the logical keys start with.
    pub prefix: Vec<u8>,
    /// Resume after this key: the `next` of the page before. It need not exist any more.
    pub after: Option<Key>,
    /// Longest page.
    pub entries_max: u32,
    /// Whether tombstones are part of the answer.
    pub deleted: bool,
}

/// One page of a scan: keys in order, each at its state when the page was read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct ScanPage {
    /// The keys.
    pub entries: Vec<(Key, Entry)>,
    /// Where the next page resumes; `None` at the end.
    pub next: Option<Key>,
    /// The durable tail this page shows.
    pub at: Version,
}
