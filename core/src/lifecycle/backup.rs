//! Backups: which bytes of a live log's directory are its durable state, and what a copy of them
//! becomes when it is put back.

use super::replica::Replica;
use super::shared::Shared;
use crate::error::StorageFault;
use crate::id::{Incarnation, LogId};
use crate::journal::command::FileName;
use crate::journal::current::Current;
use crate::record::Version;
use crate::seed::Seed;
use alloc::string::String;
use alloc::vec::Vec;

/// The durable state of a log at one moment, as files. A host that opens these files before it hands
/// the replica another input may copy them at leisure: a file that is removed meanwhile stays readable
/// while it is open, and what is appended lies behind the bytes named here.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BackupPlan {
    /// The log.
    pub log: LogId,
    /// The replica's name.
    pub identity: String,
    /// The life of its data.
    pub incarnation: Incarnation,
    /// What compaction kept.
    pub floor: Version,
    /// The durable tail.
    pub tail: Version,
    /// Digest of the history up to the tail.
    pub tail_digest: [u8; 32],
    /// The bytes of `current`, to be written last.
    pub current: Vec<u8>,
    /// The other files, and how many of their first bytes; the rest of a segment is zeros.
    pub files: Vec<BackupFile>,
}

/// A file of a [`BackupPlan`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BackupFile {
    /// Which.
    pub file: FileName,
    /// How many bytes of it, from its start; all of them if absent.
    pub bytes: Option<u64>,
    /// Whether it may be missing.
    pub optional: bool,
}

pub(super) fn plan(shared: &Shared) -> BackupPlan {
    let whole = |file| BackupFile { file, bytes: None, optional: false };
    let checkpoint =
        shared.current.checkpoint.map(|checkpoint| whole(FileName::Checkpoint(checkpoint.number)));
    let end = shared.journal.end();
    let segments = shared.journal.index().segments().map(|segment| {
        let file = FileName::Segment(segment.number());
        let bytes = end.filter(|end| end.segment == segment.number()).map(|end| end.offset);
        BackupFile { bytes, ..whole(file) }
    });
    // Members are what a person said, and hold for the copy. What peers acknowledged is asked anew, and
    // the authority's reservation would let two lives give out the same versions.
    let members = BackupFile { optional: true, ..whole(FileName::Members) };
    BackupPlan {
        log: shared.current.log,
        identity: shared.current.identity.clone(),
        incarnation: shared.current.incarnation,
        floor: shared.history.floor(),
        tail: shared.history.tail(),
        tail_digest: shared.history.tail_digest(),
        current: shared.current.encode(),
        files: checkpoint.into_iter().chain(segments).chain([members]).collect(),
    }
}

/// The bytes of `current` for a copy that is put back: another incarnation of the same replica.
/// `current` is the copy's; the seed's bytes make the new incarnation's nonce.
///
/// A replica that wrote the log comes back without its authority's reservation, so that it refuses
/// writes until it is fenced above all that its peers hold.
///
/// # Errors
/// The bytes are no `current`.
pub fn restored_current(current: &[u8], seed: &Seed) -> Result<Vec<u8>, StorageFault> {
    let mut current = Current::decode(current)?;
    current.incarnation = Incarnation {
        counter: current.incarnation.counter.saturating_add(1),
        nonce: seed.bytes("restored incarnation", 0),
    };
    Ok(current.encode())
}

impl Replica {
    /// What a backup of the durable state holds.
    #[must_use]
    pub fn backup_plan(&self) -> BackupPlan {
        plan(self.shared())
    }
}
