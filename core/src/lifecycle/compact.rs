//! Compaction: the prefix of the journal becomes part of a new checkpoint.

use super::api::RequestError;
use super::checkpoint::CheckpointHeader;
use super::compact_merge::{BaseRef, Merge, Merged, Progress};
use super::compact_prefix::{LastWriters, PrefixEnd};
use super::history::EpochMark;
use crate::error::StorageFault;
use crate::id::{LogId, Lsn};
use crate::journal::command::{FileName, StorageCommand, StorageOutcome};
use crate::journal::current::CheckpointRef;
use crate::journal::index::Index;
use crate::journal::read::{EntryReader, ReadRequest};
use crate::limits::PIECE_BYTES_MAX;
use crate::machine::Out;
use crate::record::{Key, Version};
use alloc::boxed::Box;
use alloc::format;
use alloc::vec::Vec;
use core::ops::ControlFlow;

/// Most pieces of the new checkpoint that are being written at once.
pub const WRITES_IN_FLIGHT_MAX: u32 = 2;

/// What is to be compacted. The caller has judged that the target may go.
#[derive(Clone, Debug)]
pub struct CompactionPlan {
    /// The log.
    pub log: LogId,
    /// The version of a durable record above the floor; the new floor if one round reaches it.
    pub target: Version,
    /// The present floor.
    pub floor: Version,
    /// Digest of the history up to the floor.
    pub floor_digest: [u8; 32],
    /// The checkpoint the floor stands on, if there is one.
    pub base: Option<CheckpointRef>,
    /// The number of the new checkpoint, never used before.
    pub number: u64,
    /// The first entry above the floor.
    pub first: Lsn,
    /// The place of the target. Entries from `first` on must stay retained until the end.
    pub through: Lsn,
    /// The latest epochs of the log, as [`super::history::History::epochs`] gives them.
    pub epochs: Vec<EpochMark>,
    /// Most distinct keys of the prefix held in memory: a longer prefix is compacted to a lower
    /// target. At least 1.
    pub keys_per_round_max: u32,
}

/// What a command of a compaction was for. The number is the new checkpoint's: an answer to another
/// compaction is ignored.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CompactPurpose {
    /// Which compaction.
    pub number: u64,
    /// Which command.
    pub step: CompactStep,
}

/// A command of a compaction.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CompactStep {
    /// Reads the prefix of the journal.
    ReadPrefix,
    /// Reads the base checkpoint.
    ReadBase,
    /// Writes a piece of the new checkpoint.
    Write,
    /// Makes the new checkpoint durable.
    Sync,
}

/// A new checkpoint, durable and not named by `current` yet.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CompactionResult {
    /// The new checkpoint.
    pub checkpoint: CheckpointRef,
    /// What it stands for: the new floor, at most the target.
    pub floor: Version,
    /// Digest of the history up to the new floor.
    pub floor_digest: [u8; 32],
    /// The place of the new floor.
    pub floor_lsn: Lsn,
    /// How many records the checkpoint holds.
    pub records: u64,
    /// Keys whose tombstones are no longer kept.
    pub tombstones: Vec<Key>,
    /// The latest epochs that begin at or below the new floor.
    pub epochs: Vec<EpochMark>,
}

/// Compacts by reading the prefix, then merging its last writers with the sorted base into a new
/// checkpoint. What it holds is bounded by the keys of one round, not by the key space.
///
/// Call [`Compaction::step`] after the start and after every answer, until [`Compaction::result`]
/// gives something. Nothing counts before `current` names the new checkpoint; after an error its
/// file ([`Compaction::file`]) is to be removed.
#[derive(Debug)]
pub struct Compaction {
    plan: CompactionPlan,
    phase: Phase,
    writes: u32,
}

#[derive(Debug)]
enum Phase {
    Prefix {
        reader: EntryReader,
        writers: LastWriters,
        asked: Option<ReadRequest>,
    },
    Merge {
        merge: Box<Merge>,
        end: PrefixEnd,
        asked: bool,
    },
    Write {
        result: CompactionResult,
        syncing: bool,
    },
    Done(CompactionResult),
    Failed {
        fault: StorageFault,
        waits_for: u32,
    },
    /// The result was taken.
    Over,
}

impl Compaction {
    /// Begins; nothing happens before the first [`Compaction::step`].
    ///
    /// # Panics
    /// If the target is not above the floor.
    #[must_use]
    pub fn start(plan: CompactionPlan) -> Self {
        assert!(plan.target > plan.floor, "target {} is not above floor {}", plan.target, plan.floor);
        let reader = EntryReader::new(plan.first, plan.through);
        let writers = LastWriters::new(plan.floor, plan.floor_digest, plan.keys_per_round_max);
        Self { plan, phase: Phase::Prefix { reader, writers, asked: None }, writes: 0 }
    }

    /// The checkpoint under construction.
    #[must_use]
    pub const fn file(&self) -> FileName {
        FileName::Checkpoint(self.plan.number)
    }

    /// The first journal entry that must stay retained until the end.
    #[must_use]
    pub const fn first(&self) -> Lsn {
        self.plan.first
    }

    /// Hands out what can be done now. Never more than one read and
    /// [`WRITES_IN_FLIGHT_MAX`] writes are under way.
    ///
    /// # Panics
    /// If the prefix is not in the index: the caller keeps it.
    pub fn step<P, C, E>(&mut self, index: &Index, out: &mut Out<P, C, E>)
    where
        P: From<CompactPurpose>,
        C: From<StorageCommand>,
    {
        match &mut self.phase {
            Phase::Prefix { reader, asked, .. } => {
                if asked.is_none() {
                    let request = reader.request(index, PIECE_BYTES_MAX).expect("the prefix is retained");
                    let request = request.expect("the prefix is durable and was not read to its end");
                    *asked = Some(request);
                    let ReadRequest { file, offset, bytes, .. } = request;
                    self.read(out, CompactStep::ReadPrefix, file, offset, bytes);
                }
            }
            Phase::Merge { .. } => self.merge(out),
            Phase::Write { syncing, .. } => {
                if self.writes == 0 && !*syncing {
                    *syncing = true;
                    let file = self.file();
                    out.command(self.purpose(CompactStep::Sync), |ticket| StorageCommand::Sync {
                        ticket,
                        file,
                    });
                }
            }
            Phase::Done(_) | Phase::Failed { .. } | Phase::Over => {}
        }
    }

    fn merge<P, C, E>(&mut self, out: &mut Out<P, C, E>)
    where
        P: From<CompactPurpose>,
        C: From<StorageCommand>,
    {
        while self.writes < WRITES_IN_FLIGHT_MAX {
            let Phase::Merge { merge, asked: asked @ false, .. } = &mut self.phase else {
                return;
            };
            match merge.advance() {
                Ok(Progress::Wants { file, offset, bytes }) => {
                    *asked = true;
                    self.read(out, CompactStep::ReadBase, file, offset, bytes);
                }
                Ok(Progress::Piece { offset, bytes }) => self.write(out, offset, bytes),
                Ok(Progress::End) => {
                    let (offset, bytes) = self.end_merge();
                    self.write(out, offset, bytes);
                }
                Err(fault) => self.fail(fault),
            }
        }
    }

    /// The merge is over: what is left to write.
    fn end_merge(&mut self) -> (u64, Vec<u8>) {
        let Phase::Merge { merge, end, .. } = core::mem::replace(&mut self.phase, Phase::Over) else {
            unreachable!("only a merge ends");
        };
        let Merged { offset, bytes, written, tombstones } = merge.finish();
        let result = CompactionResult {
            checkpoint: CheckpointRef {
                number: self.plan.number,
                bytes: written.bytes,
                sha256: written.sha256,
            },
            floor: end.version,
            floor_digest: end.digest,
            floor_lsn: end.lsn.expect("at least one record was collected"),
            records: written.records,
            tombstones,
            epochs: self.epochs_upto(end.version),
        };
        self.phase = Phase::Write { result, syncing: false };
        (offset, bytes)
    }

    fn epochs_upto(&self, version: Version) -> Vec<EpochMark> {
        self.plan.epochs.iter().filter(|mark| mark.start <= version).cloned().collect()
    }

    const fn purpose(&self, step: CompactStep) -> CompactPurpose {
        CompactPurpose { number: self.plan.number, step }
    }

    fn read<P, C, E>(
        &self,
        out: &mut Out<P, C, E>,
        step: CompactStep,
        file: FileName,
        offset: u64,
        bytes_max: u32,
    ) where
        P: From<CompactPurpose>,
        C: From<StorageCommand>,
    {
        out.command(self.purpose(step), |ticket| StorageCommand::Read { ticket, file, offset, bytes_max });
    }

    fn write<P, C, E>(&mut self, out: &mut Out<P, C, E>, offset: u64, bytes: Vec<u8>)
    where
        P: From<CompactPurpose>,
        C: From<StorageCommand>,
    {
        self.writes += 1;
        let file = self.file();
        let purpose = self.purpose(CompactStep::Write);
        out.command(purpose, |ticket| StorageCommand::Write { ticket, file, offset, bytes });
    }

    /// Takes the answer to a command; [`Compaction::step`] goes on from there. One for another
    /// compaction is ignored.
    ///
    /// # Panics
    /// If the outcome is not one of the command: tickets rule that out.
    pub fn handle(&mut self, purpose: CompactPurpose, outcome: StorageOutcome) {
        if purpose.number != self.plan.number {
            return;
        }
        let result = match (purpose.step, outcome) {
            (CompactStep::ReadPrefix | CompactStep::ReadBase, StorageOutcome::Read(read)) => {
                self.take_read(read)
            }
            (CompactStep::Write, StorageOutcome::Write(written)) => {
                self.writes -= 1;
                written
            }
            (CompactStep::Sync, StorageOutcome::Sync(synced)) => synced.map(|()| self.synced()),
            (step, outcome) => panic!("{step:?} was answered by {outcome:?}"),
        };
        if let Phase::Failed { waits_for, .. } = &mut self.phase {
            *waits_for -= 1;
        } else if let Err(fault) = result {
            self.fail(fault);
        }
    }

    fn take_read(&mut self, read: Result<Vec<u8>, StorageFault>) -> Result<(), StorageFault> {
        match &mut self.phase {
            Phase::Prefix { reader, writers, asked } => {
                let request = asked.take().expect("a read was asked for");
                let mut refused = None;
                reader.accept(
                    &request,
                    &read?,
                    &mut |lsn, kind, entry| match writers.take(lsn, kind, entry) {
                        Ok(flow) => flow,
                        Err(detail) => {
                            refused = Some(format!("entry {lsn}: {detail}"));
                            ControlFlow::Break(())
                        }
                    },
                )?;
                if let Some(detail) = refused {
                    return Err(StorageFault::damaged(request.file, request.offset, detail));
                }
                if writers.stopped() || reader.finished() {
                    self.end_prefix(&request)?;
                }
                Ok(())
            }
            Phase::Merge { merge, asked, .. } => {
                *asked = false;
                merge.take_base(&read?)
            }
            Phase::Write { .. } | Phase::Done(_) | Phase::Failed { .. } | Phase::Over => Ok(()),
        }
    }

    fn end_prefix(&mut self, request: &ReadRequest) -> Result<(), StorageFault> {
        let Phase::Prefix { writers, .. } = core::mem::replace(&mut self.phase, Phase::Over) else {
            unreachable!("only a prefix ends");
        };
        let end = writers.end();
        if !writers.stopped() && (end.version, end.lsn) != (self.plan.target, Some(self.plan.through)) {
            let detail = format!(
                "expected the record {} as entry {}, found {} there",
                self.plan.target, self.plan.through, end.version
            );
            return Err(StorageFault::damaged(request.file, request.offset, detail));
        }
        let plan = &self.plan;
        let header = CheckpointHeader {
            log: plan.log,
            cut: end.version,
            cut_digest: end.digest,
            epochs: self.epochs_upto(end.version),
        };
        let base = plan.base.map(|named| BaseRef { named, cut: plan.floor, cut_digest: plan.floor_digest });
        let merge = Box::new(Merge::new(self.file(), &header, writers.into_entries(), base));
        self.phase = Phase::Merge { merge, end, asked: false };
        Ok(())
    }

    fn synced(&mut self) {
        match core::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Write { result, .. } => self.phase = Phase::Done(result),
            phase @ (Phase::Prefix { .. }
            | Phase::Merge { .. }
            | Phase::Done(_)
            | Phase::Failed { .. }
            | Phase::Over) => self.phase = phase,
        }
    }

    /// Ends with a fault, once everything under way is answered: a write must not come after the
    /// file's removal.
    fn fail(&mut self, fault: StorageFault) {
        let reads = match &self.phase {
            Phase::Prefix { asked, .. } => u32::from(asked.is_some()),
            Phase::Merge { asked, .. } => u32::from(*asked),
            Phase::Write { .. } | Phase::Done(_) | Phase::Failed { .. } | Phase::Over => 0,
        };
        self.phase = Phase::Failed { fault, waits_for: reads + self.writes };
    }

    /// How it ended, once; `None` while it goes on.
    pub fn result(&mut self) -> Option<Result<CompactionResult, RequestError>> {
        match core::mem::replace(&mut self.phase, Phase::Over) {
            Phase::Done(result) => Some(Ok(result)),
            Phase::Failed { fault, waits_for: 0 } => Some(Err(RequestError::Storage(fault))),
            phase @ (Phase::Prefix { .. }
            | Phase::Merge { .. }
            | Phase::Write { .. }
            | Phase::Failed { .. }
            | Phase::Over) => {
                self.phase = phase;
                None
            }
        }
    }
}

#[cfg(test)]
mod tests;
