//! What the reference sends next to a peer: a bounded batch of the journal, or the checkpoint at its
//! floor.

use super::ReferenceNames;
use super::checkpoint::{Checkpoint, CheckpointError};
use super::compaction::Draft;
use super::journal::Journal;
use crate::error::{Classified, Family};
use crate::record::Version;
use crate::wire::batch_builder::BatchBuilder;
use crate::wire::error::{EncodeError, RepairFault};
use crate::wire::limits::WireLimits;
use crate::wire::repair::Snapshot;
use alloc::vec::Vec;

/// Which kind of message is planned.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum PlanMode {
    /// A batch of the journal.
    Journal,
    /// The whole state at the floor.
    Snapshot,
}

impl PlanMode {
    /// The reference's word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Journal => "journal",
            Self::Snapshot => "snapshot",
        }
    }
}

/// The next message to a peer.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Plan {
    /// Its kind.
    pub mode: PlanMode,
    /// Where the peer is.
    pub from: Version,
    /// Where it will be.
    pub to: Version,
    /// Whether the journal goes on after `to`; false for a snapshot.
    pub more: bool,
    /// How many records it carries.
    pub records: usize,
    /// The message.
    pub payload: Vec<u8>,
}

/// Why nothing can be planned.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// The peer is below the floor and there is no snapshot.
    #[error("peer is at {from}, below the floor {floor}: expected a snapshot to send")]
    SnapshotRequired {
        /// Where the peer is.
        from: Version,
        /// The journal's floor.
        floor: Version,
    },
    /// The snapshot is not the one of the floor.
    #[error("snapshot is at {found}: expected the floor {floor}")]
    SnapshotWatermark {
        /// The snapshot's.
        found: Version,
        /// The journal's floor.
        floor: Version,
    },
    /// The snapshot is none.
    #[error(transparent)]
    Snapshot(#[from] CheckpointError),
    /// The first record after `from` fits no message: it and all behind it can never be sent.
    #[error("record {version} fits no message: {fault}")]
    Stuck {
        /// Which record.
        version: Version,
        /// Why.
        fault: RepairFault,
    },
    /// The message exceeds a limit.
    #[error(transparent)]
    Encode(#[from] EncodeError),
}

impl Classified for PlanError {
    const FAMILY: Family = Family::Caller;
}

impl ReferenceNames for PlanError {
    fn reference_names(&self) -> Vec<&'static str> {
        match self {
            Self::SnapshotRequired { .. } => alloc::vec!["ErrRepairSnapshotRequired"],
            Self::SnapshotWatermark { .. } => alloc::vec!["ErrRepairSnapshotWatermark"],
            Self::Snapshot(error) => error.reference_names(),
            Self::Stuck { fault, .. } => fault.reference_names(),
            Self::Encode(error) => error.reference_names(),
        }
    }
}

/// Plans the next message to a peer at `from`: below the floor the snapshot, else as many records
/// after `from` as fit. Linear in the records it takes.
///
/// # Errors
/// In this order: no snapshot, another floor's, none at all; a message over a limit.
pub fn plan(
    journal: &Journal,
    from: Version,
    snapshot: Option<Draft>,
    limits: &WireLimits,
) -> Result<Plan, PlanError> {
    if from < journal.floor {
        plan_snapshot(journal.floor, from, snapshot, limits)
    } else {
        plan_batch(journal, from, limits)
    }
}

fn plan_snapshot(
    floor: Version,
    from: Version,
    snapshot: Option<Draft>,
    limits: &WireLimits,
) -> Result<Plan, PlanError> {
    let draft = snapshot.ok_or(PlanError::SnapshotRequired { from, floor })?;
    if draft.watermark != floor {
        return Err(PlanError::SnapshotWatermark { found: draft.watermark, floor });
    }
    let checkpoint = Checkpoint::new(draft.watermark, draft.records)?;
    let records = checkpoint.records().len();
    let snapshot = Snapshot { watermark: floor, records: checkpoint.records().to_vec() };
    let mut payload = Vec::new();
    snapshot.encode(&limits.repair, &mut payload)?;
    Ok(Plan { mode: PlanMode::Snapshot, from, to: floor, more: false, records, payload })
}

fn plan_batch(journal: &Journal, from: Version, limits: &WireLimits) -> Result<Plan, PlanError> {
    let after = journal.records.partition_point(|record| record.version <= from);
    let remaining = &journal.records[after..];
    let mut batch = BatchBuilder::new(from, limits.repair);
    for (index, record) in remaining.iter().enumerate() {
        match batch.push(record, index + 1 < remaining.len()) {
            Ok(()) => {}
            Err(fault) if index == 0 => return Err(PlanError::Stuck { version: record.version, fault }),
            Err(_) => break,
        }
    }
    let records = batch.records();
    let more = records < remaining.len();
    let mut payload = Vec::new();
    let to = batch.finish(more, &mut payload)?;
    Ok(Plan { mode: PlanMode::Journal, from, to, more, records, payload })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compat::streamhive::journal::End;
    use crate::record::{Record, RecordLimits, State};
    use crate::wire::limits::RepairLimits;

    fn journal(floor: u64, count: u64) -> Journal {
        let limits = RecordLimits::default();
        let record = |sequence: u64| -> Record {
            let key = limits.key(b"documents", &sequence.to_be_bytes()).unwrap();
            let authority = limits.authority("node-a").unwrap();
            limits.record(key, State::Deleted, Version::new(1, sequence), authority).unwrap()
        };
        let records = (floor + 1..=floor + count).map(record).collect();
        Journal { floor: Version::new(u64::from(floor > 0), floor), records, end: End::Clean }
    }

    fn planned(journal: &Journal, from: u64, snapshot: Option<u64>) -> Result<Plan, PlanError> {
        let snapshot =
            snapshot.map(|watermark| Draft { watermark: Version::new(1, watermark), records: Vec::new() });
        let repair = RepairLimits { records_max: 2, ..RepairLimits::default() };
        plan(journal, Version::new(1, from), snapshot, &WireLimits { repair, ..WireLimits::default() })
    }

    #[test]
    fn at_the_floor_the_journal_goes_on() {
        let plan = planned(&journal(5, 3), 5, None).unwrap();
        assert_eq!((plan.mode, plan.records, plan.more), (PlanMode::Journal, 2, true));
        assert_eq!(plan.to, Version::new(1, 7));
    }

    #[test]
    fn at_the_tail_and_ahead_an_empty_batch() {
        let plan = planned(&journal(5, 3), 9, None).unwrap();
        assert_eq!((plan.records, plan.more, plan.to), (0, false, Version::new(1, 9)));
    }

    #[test]
    fn below_the_floor_its_snapshot() {
        let journal = journal(5, 3);
        assert_eq!(planned(&journal, 4, Some(5)).unwrap().mode, PlanMode::Snapshot);
        assert!(matches!(planned(&journal, 4, None), Err(PlanError::SnapshotRequired { .. })));
        assert!(matches!(planned(&journal, 4, Some(4)), Err(PlanError::SnapshotWatermark { .. })));
    }

    #[test]
    fn stuck_names_the_record() {
        let repair = RepairLimits { key_bytes_max: 3, ..RepairLimits::default() };
        let limits = WireLimits { repair, ..WireLimits::default() };
        let found = plan(&journal(0, 2), Version::ZERO, None, &limits);
        assert!(matches!(found, Err(PlanError::Stuck { version, .. }) if version == Version::new(1, 1)));
    }
}
