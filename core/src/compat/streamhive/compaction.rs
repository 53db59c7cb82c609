//! The reference's compaction and snapshot installation as pure functions: its checks in its order,
//! and the values it leaves behind. Our own compaction is a streaming merge and shares none of this;
//! these are for import and for comparing answers.

use super::ReferenceNames;
use super::checkpoint::{Checkpoint, CheckpointError, CheckpointLimits};
use super::journal::{End, Journal, JournalError, JournalLimits};
use crate::error::{Classified, Family};
use crate::lifecycle::apply::{Application, classify};
use crate::record::{Key, Record, RecordError, Version};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// What the host found out about the path a checkpoint is to be written to. It compares files, not
/// texts: a link to the journal is the journal (finding j12).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CheckpointPath {
    /// No path was given.
    Missing,
    /// It is the journal's.
    Journal,
    /// It is another file's.
    Other,
}

/// A checkpoint as handed in: a record that failed to be one stands in its place.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Draft {
    /// The version it stands for.
    pub watermark: Version,
    /// Its records, in any order.
    pub records: Vec<Result<Record, RecordError>>,
}

/// What a compaction is asked to do.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Request {
    /// Where the checkpoint goes.
    pub path: CheckpointPath,
    /// The new floor and the state at it.
    pub draft: Draft,
    /// The checkpoint of the journal's floor; may be left out at floor zero.
    pub base: Option<Draft>,
    /// What every member acknowledged.
    pub peers: Vec<Version>,
}

/// Why a compaction or an installation is refused; nothing has changed.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum CompactionError {
    /// No path.
    #[error("checkpoint path is empty: expected one")]
    PathMissing,
    /// The checkpoint would overwrite the journal.
    #[error("checkpoint path is the journal's: expected another file")]
    PathIsJournal,
    /// The watermark compacts nothing.
    #[error("compaction at {watermark} drops no entry: expected a version at or above the first entry")]
    NoProgress {
        /// What was asked for.
        watermark: Version,
    },
    /// The watermark lies beyond the journal.
    #[error("compaction at {watermark}: expected at most the last version {last}")]
    BeyondLast {
        /// What was asked for.
        watermark: Version,
        /// The journal's last version.
        last: Version,
    },
    /// A member would lose entries it has not acknowledged.
    #[error("a peer acknowledged {acked}: expected at least {watermark}")]
    PeerBehind {
        /// What it acknowledged.
        acked: Version,
        /// What was asked for.
        watermark: Version,
    },
    /// The base is not the checkpoint of the journal's floor.
    #[error("base checkpoint is at {}: expected the floor {floor}", Shown(*.found))]
    BaseMismatch {
        /// Its watermark; `None` if none was given.
        found: Option<Version>,
        /// The journal's floor.
        floor: Version,
    },
    /// Base and entries replayed are not the records handed in.
    #[error("base and entries up to {watermark} give {expected} records that are not the {found} handed in")]
    NotTheState {
        /// What was asked for.
        watermark: Version,
        /// How many the replay gives.
        expected: usize,
        /// How many were handed in.
        found: usize,
    },
    /// Base and entries contradict each other.
    #[error("two records of key {key} have one version and differ")]
    Conflict {
        /// Which key.
        key: Box<Key>,
    },
    /// A checkpoint handed in is none.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The snapshot is older than what the journal holds.
    #[error("snapshot is at {watermark}: expected at least the last version {last}")]
    Stale {
        /// The snapshot's.
        watermark: Version,
        /// The journal's last version.
        last: Version,
    },
    /// The journal that would be left is none.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

struct Shown(Option<Version>);

impl core::fmt::Display for Shown {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.0 {
            Some(version) => version.fmt(f),
            None => f.write_str("none"),
        }
    }
}

impl Classified for CompactionError {
    const FAMILY: Family = Family::Caller;
}

impl ReferenceNames for CompactionError {
    fn reference_names(&self) -> Vec<&'static str> {
        alloc::vec![match self {
            Self::PathMissing => "ErrNilCheckpointPath",
            Self::PathIsJournal | Self::NotTheState { .. } | Self::Conflict { .. } => "ErrCompactionUnsafe",
            Self::NoProgress { .. } => "ErrCompactionNoProgress",
            Self::BeyondLast { .. } => "ErrCompactionWatermark",
            Self::PeerBehind { .. } => "ErrPeerBehindWatermark",
            Self::BaseMismatch { .. } => "ErrCompactionBaseMismatch",
            Self::Stale { .. } => "ErrSnapshotStale",
            Self::Checkpoint(error) => return error.reference_names(),
            Self::Journal(error) => return error.reference_names(),
        }]
    }
}

/// What is written: first the checkpoint, then the journal.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Written {
    /// The checkpoint's file.
    pub checkpoint: Vec<u8>,
    /// The journal's file.
    pub journal: Vec<u8>,
}

/// Compacts `journal`: checks in the reference's order, then the files it would write.
///
/// # Errors
/// In this order: no path, the journal's own path, no progress over the floor, beyond the last
/// version, a peer behind, the base is none or another floor's, the records are no checkpoint, no
/// entry at or below the watermark, the records are not the replayed state, a file over its limit.
pub fn compact(
    journal: &Journal,
    request: Request,
    checkpoint_limits: &CheckpointLimits,
    journal_limits: &JournalLimits,
) -> Result<Written, CompactionError> {
    let watermark = request.draft.watermark;
    check_path(request.path)?;
    if watermark <= journal.floor {
        return Err(CompactionError::NoProgress { watermark });
    }
    if watermark > journal.last() {
        return Err(CompactionError::BeyondLast { watermark, last: journal.last() });
    }
    if let Some(&acked) = request.peers.iter().find(|acked| **acked < watermark) {
        return Err(CompactionError::PeerBehind { acked, watermark });
    }
    let base = check_base(request.base, journal.floor)?;
    let checkpoint = Checkpoint::new(watermark, request.draft.records)?;
    let kept_from = journal.records.partition_point(|record| record.version <= watermark);
    let (prefix, kept) = journal.records.split_at(kept_from);
    if prefix.is_empty() {
        return Err(CompactionError::NoProgress { watermark });
    }
    let state = replay(base.iter().chain(prefix))?;
    if !state.values().copied().eq(checkpoint.records()) {
        let (expected, found) = (state.len(), checkpoint.records().len());
        return Err(CompactionError::NotTheState { watermark, expected, found });
    }
    write(&checkpoint, kept.to_vec(), checkpoint_limits, journal_limits)
}

/// Installs a snapshot over `journal`: every entry goes, whatever it held (finding j8; our own
/// installation refuses to drop what the snapshot does not have).
///
/// # Errors
/// In this order: no path, the journal's own path, the draft is no checkpoint, it is older than the
/// last version, a file over its limit.
pub fn install_snapshot(
    journal: &Journal,
    path: CheckpointPath,
    draft: Draft,
    checkpoint_limits: &CheckpointLimits,
    journal_limits: &JournalLimits,
) -> Result<Written, CompactionError> {
    check_path(path)?;
    let checkpoint = Checkpoint::new(draft.watermark, draft.records)?;
    let (watermark, last) = (checkpoint.watermark(), journal.last());
    if watermark < last {
        return Err(CompactionError::Stale { watermark, last });
    }
    write(&checkpoint, Vec::new(), checkpoint_limits, journal_limits)
}

const fn check_path(path: CheckpointPath) -> Result<(), CompactionError> {
    match path {
        CheckpointPath::Missing => Err(CompactionError::PathMissing),
        CheckpointPath::Journal => Err(CompactionError::PathIsJournal),
        CheckpointPath::Other => Ok(()),
    }
}

fn check_base(base: Option<Draft>, floor: Version) -> Result<Vec<Record>, CompactionError> {
    let Some(base) = base else {
        return if floor.is_zero() {
            Ok(Vec::new())
        } else {
            Err(CompactionError::BaseMismatch { found: None, floor })
        };
    };
    let base = Checkpoint::new(base.watermark, base.records)?;
    if base.watermark() != floor {
        return Err(CompactionError::BaseMismatch { found: Some(base.watermark()), floor });
    }
    Ok(base.records().to_vec())
}

fn replay<'a>(
    records: impl Iterator<Item = &'a Record>,
) -> Result<BTreeMap<&'a Key, &'a Record>, CompactionError> {
    let mut state = BTreeMap::<&Key, &Record>::new();
    for record in records {
        match classify(state.get(&record.key).copied(), record) {
            Application::Applied => {
                state.insert(&record.key, record);
            }
            Application::Stale { .. } | Application::Duplicate => {}
            Application::Conflict => {
                return Err(CompactionError::Conflict { key: Box::new(record.key.clone()) });
            }
        }
    }
    Ok(state)
}

fn write(
    checkpoint: &Checkpoint,
    kept: Vec<Record>,
    checkpoint_limits: &CheckpointLimits,
    journal_limits: &JournalLimits,
) -> Result<Written, CompactionError> {
    let journal = Journal { floor: checkpoint.watermark(), records: kept, end: End::Clean };
    Ok(Written {
        checkpoint: checkpoint.encode(checkpoint_limits)?,
        journal: journal.encode(journal_limits)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{RecordLimits, State};

    fn record(key: &str, sequence: u64) -> Record {
        let limits = RecordLimits::default();
        let key = limits.key(b"documents", key.as_bytes()).unwrap();
        let authority = limits.authority("node-a").unwrap();
        limits.record(key, State::Deleted, Version::new(1, sequence), authority).unwrap()
    }

    fn journal() -> Journal {
        let records = [record("a", 1), record("b", 2), record("a", 3), record("c", 5)].to_vec();
        Journal { floor: Version::ZERO, records, end: End::Clean }
    }

    fn request(watermark: u64, records: &[Record]) -> Request {
        let records = records.iter().cloned().map(Ok).collect();
        let draft = Draft { watermark: Version::new(1, watermark), records };
        Request { path: CheckpointPath::Other, draft, base: None, peers: Vec::new() }
    }

    fn run(request: Request) -> Result<Written, CompactionError> {
        compact(&journal(), request, &CheckpointLimits::default(), &JournalLimits::default())
    }

    #[test]
    fn path_missing_and_path_is_journal_come_first() {
        let mut asked = request(0, &[]);
        asked.path = CheckpointPath::Missing;
        assert_eq!(run(asked.clone()), Err(CompactionError::PathMissing));
        asked.path = CheckpointPath::Journal;
        assert_eq!(run(asked), Err(CompactionError::PathIsJournal));
    }

    #[test]
    fn no_progress_at_the_floor_and_before_the_first_entry() {
        let mut asked = request(0, &[]);
        asked.draft.watermark = Version::ZERO;
        assert!(matches!(run(asked), Err(CompactionError::NoProgress { .. })));
        let mut asked = request(0, &[]);
        asked.draft.watermark = Version::new(0, 9);
        assert!(matches!(run(asked), Err(CompactionError::NoProgress { .. })));
    }

    #[test]
    fn beyond_last_comes_before_peer_behind() {
        let mut asked = request(6, &[]);
        asked.peers = [Version::ZERO].to_vec();
        assert!(matches!(run(asked), Err(CompactionError::BeyondLast { .. })));
    }

    #[test]
    fn peer_behind_comes_before_base_mismatch() {
        let mut asked = request(3, &[]);
        asked.base = Some(Draft { watermark: Version::new(1, 1), records: Vec::new() });
        asked.peers = [Version::new(1, 2)].to_vec();
        assert!(matches!(run(asked.clone()), Err(CompactionError::PeerBehind { .. })));
        asked.peers.clear();
        assert!(matches!(run(asked), Err(CompactionError::BaseMismatch { .. })));
    }

    #[test]
    fn not_the_state() {
        let refused = run(request(3, &[record("a", 3)]));
        assert!(matches!(refused, Err(CompactionError::NotTheState { expected: 2, found: 1, .. })));
        let refused = run(request(3, &[record("a", 1), record("b", 2)]));
        assert!(matches!(refused, Err(CompactionError::NotTheState { .. })));
    }

    #[test]
    fn what_is_written_reads_back_and_holds_the_rest() {
        let written = run(request(4, &[record("b", 2), record("a", 3)])).unwrap();
        let left = Journal::decode(&written.journal, &JournalLimits::default()).unwrap();
        assert_eq!((left.floor, left.records.len()), (Version::new(1, 4), 1));
        let state = Checkpoint::decode(&written.checkpoint, &CheckpointLimits::default()).unwrap();
        assert_eq!(state.records(), [record("a", 3), record("b", 2)]);
    }

    #[test]
    fn stale_snapshot() {
        let draft = Draft { watermark: Version::new(1, 4), records: Vec::new() };
        let (checkpoint, limits) = (CheckpointLimits::default(), JournalLimits::default());
        let refused = install_snapshot(&journal(), CheckpointPath::Other, draft, &checkpoint, &limits);
        assert!(matches!(refused, Err(CompactionError::Stale { .. })));
    }
}
