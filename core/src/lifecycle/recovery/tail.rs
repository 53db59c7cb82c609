//! Recovering the journal, and what follows: entering the first segment, removing what nothing
//! names, taking a run of our own.

use super::{Purpose, Recovery, RecoveryError, Stage};
use crate::id::Run;
use crate::journal::command::{FileName, StorageCommand, StorageOutcome};
use crate::journal::recovery::{JournalRecovery, Origin, RecoveryFault, RecoveryPurpose, RecoveryStep};
use crate::journal::writer::JournalPurpose;
use crate::lifecycle::api::Entry;
use crate::lifecycle::entry::{ENTRY_RECORD_WANTED, JournalEntry};
use crate::lifecycle::fencing::bare;
use crate::record::State;
use alloc::boxed::Box;
use alloc::string::{String, ToString};

impl Recovery {
    pub(super) fn begin_journal(&mut self) -> Result<(), RecoveryError> {
        let (Some(current), Some(opaque)) = (&self.found.current, &self.found.opaque) else {
            unreachable!("current was read");
        };
        let origin = if opaque.entered { Origin::Existing } else { Origin::New };
        let mut journal = JournalRecovery::new(
            self.config.journal,
            current.log,
            current.first_segment,
            origin,
            self.seed.clone(),
        );
        let step = journal.start(&self.found.listed, &mut self.out).map_err(refused)?;
        self.stage = Stage::Journal(Box::new(journal));
        self.journal_step(step)
    }

    pub(super) fn journal(
        &mut self,
        purpose: RecoveryPurpose,
        outcome: StorageOutcome,
    ) -> Result<(), RecoveryError> {
        let Stage::Journal(journal) = &mut self.stage else { unreachable!("the journal is being read") };
        let super::Found { views, history, wanted, .. } = &mut self.found;
        let mut visit = |lsn, kind, bytes: &[u8]| -> Result<(), String> {
            match JournalEntry::parse(kind, bytes).map_err(|error| error.to_string())? {
                JournalEntry::EpochStart(start) => {
                    // One that a checkpoint or a record told already stands for itself.
                    if start.epoch > history.epoch() {
                        if start.previous_end != history.tail() {
                            let (found, tail) = (start.previous_end, history.tail());
                            return Err(alloc::format!("expected an epoch after {tail}, found {found}"));
                        }
                        history.begin_epoch(bare(&start));
                    }
                }
                JournalEntry::Record(view) => {
                    if view.version <= history.floor() {
                        return Ok(());
                    }
                    if view.version <= history.tail() {
                        let (found, tail) = (view.version, history.tail());
                        return Err(alloc::format!("expected a version above {tail}, found {found}"));
                    }
                    let record = view.to_record();
                    history.push(lsn, record.version, &record.authority, bytes);
                    let (state, version, authority) = (record.state, record.version, record.authority);
                    wanted.settle(&record.key, version);
                    if kind == ENTRY_RECORD_WANTED
                        && let State::Present { blob } = state
                    {
                        wanted.want(record.key.clone(), version, blob);
                    }
                    views.load(record.key, Entry { state, version, authority });
                }
            }
            Ok(())
        };
        let step = journal.handle(purpose, outcome, &mut visit, &mut self.out).map_err(refused)?;
        self.journal_step(step)
    }

    pub(super) fn journal_step(&mut self, step: RecoveryStep) -> Result<(), RecoveryError> {
        match step {
            RecoveryStep::Working => Ok(()),
            RecoveryStep::Done(recovered) => {
                self.stage = Stage::Entering(recovered);
                self.enter()
            }
        }
    }

    /// A new log's first segment is entered before anything may be submitted to it.
    pub(super) fn enter(&mut self) -> Result<(), RecoveryError> {
        let Stage::Entering(recovered) = &mut self.stage else { unreachable!("a segment is entered") };
        if recovered.journal.segment().is_none() {
            recovered.journal.submit(None, &mut self.out);
            return Ok(());
        }
        let _ = recovered.journal.take_switched();
        self.remove()
    }

    pub(super) fn entering(
        &mut self,
        purpose: JournalPurpose,
        outcome: StorageOutcome,
    ) -> Result<(), RecoveryError> {
        let recovered = match &mut self.stage {
            Stage::Entering(recovered) | Stage::Removing(recovered) | Stage::Committing(recovered) => {
                recovered
            }
            Stage::Listing
            | Stage::Creating
            | Stage::Sidecars(_)
            | Stage::Checkpoint { .. }
            | Stage::CheckpointSync
            | Stage::Journal(_)
            | Stage::Done(_)
            | Stage::Failed(_) => unreachable!("only entering sends commands of the live journal"),
        };
        let handled = match outcome {
            StorageOutcome::Append(result) => recovered.journal.handle_append(purpose, result).map(|_| ()),
            StorageOutcome::Prepare(result) => recovered.journal.handle_prepare(purpose, result),
            outcome @ (StorageOutcome::List(_)
            | StorageOutcome::Read(_)
            | StorageOutcome::Cut(_)
            | StorageOutcome::Replace(_)
            | StorageOutcome::Write(_)
            | StorageOutcome::Sync(_)
            | StorageOutcome::Remove(_)) => unreachable!("{outcome:?} answers no append or prepare"),
        };
        handled.map_err(|halted| RecoveryError::Storage(halted.0))?;
        if matches!(self.stage, Stage::Entering(_)) { self.enter() } else { Ok(()) }
    }

    /// Removes what `current` does not name.
    pub(super) fn remove(&mut self) -> Result<(), RecoveryError> {
        let stage = core::mem::replace(&mut self.stage, Stage::Listing);
        let Stage::Entering(recovered) = stage else { unreachable!("the journal is live") };
        let named = self.found.current.as_ref().and_then(|c| c.checkpoint).map(|c| c.number);
        let mut files = recovered.remove.clone();
        files.extend(self.found.listed.iter().map(|l| l.file).filter(|file| match file {
            FileName::Checkpoint(number) => named != Some(*number),
            FileName::Current
            | FileName::Authority
            | FileName::Members
            | FileName::Acked
            | FileName::Segment(_) => false,
        }));
        self.stage = Stage::Removing(recovered);
        if files.is_empty() {
            return self.commit();
        }
        self.removed.clone_from(&files);
        self.out.command(Purpose::Remove, |ticket| StorageCommand::Remove { ticket, files });
        Ok(())
    }

    /// Takes a run of its own: no ticket of an earlier one can be mistaken for one of this.
    pub(super) fn commit(&mut self) -> Result<(), RecoveryError> {
        let stage = core::mem::replace(&mut self.stage, Stage::Listing);
        let Stage::Removing(recovered) = stage else { unreachable!("files were removed") };
        self.stage = Stage::Committing(recovered);
        let (Some(current), Some(opaque)) = (&mut self.found.current, &mut self.found.opaque) else {
            unreachable!("current was read");
        };
        current.run = Run(current.run.0 + 1);
        opaque.entered = true;
        current.opaque = opaque.encode();
        let (file, bytes) = (FileName::Current, current.encode());
        self.out.command(Purpose::Current, |ticket| StorageCommand::Replace { ticket, file, bytes });
        Ok(())
    }
}

fn refused(fault: RecoveryFault) -> RecoveryError {
    RecoveryError::Storage(fault.fault().clone())
}
