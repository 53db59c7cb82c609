//! A checkpoint: what the entries so far came to, as one file, so that their segments can go.

use super::{JournalLog, LogEvent, Purpose};
use crate::error::StorageFault;
use crate::id::Lsn;
use crate::journal::command::{FileName, StorageCommand};
use crate::journal::current::{CheckpointRef, Current};
use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;
use sha2::{Digest, Sha256};

/// Longest checkpoint: recovery holds it in memory.
pub const CHECKPOINT_BYTES_MAX: u64 = 1 << 31;

/// Longest piece that is written or read at once.
pub(super) const PIECE_BYTES_MAX: u32 = 1 << 20;

/// Why no checkpoint was begun (the caller's mistake). Nothing was changed.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum CheckpointError {
    /// It is longer than recovery takes.
    #[error("the checkpoint has {bytes} bytes: expected {CHECKPOINT_BYTES_MAX} at most")]
    TooLarge {
        /// Its length.
        bytes: u64,
    },
    /// There is no entry that is not in a checkpoint already.
    #[error("there is nothing to put into a checkpoint: expected an entry since the last one")]
    Nothing,
    /// The last one is not done.
    #[error("a checkpoint is under way: expected the last one to be done")]
    Busy,
    /// A write or a sync failed before; recover from storage.
    #[error("the journal is halted: expected a restart that recovers from storage")]
    Halted,
}

/// A checkpoint on its way to the disk.
#[derive(Debug)]
pub(super) struct Making {
    number: u64,
    bytes: Vec<u8>,
    written: usize,
    /// The last entry that is in it.
    through: Lsn,
    /// The file is durable.
    synced: bool,
    /// The segments up to `through` end there.
    switched: bool,
    committing: bool,
}

/// What a command of a checkpoint was for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum CheckpointPurpose {
    /// The next piece.
    Write,
    /// The whole file.
    Sync,
}

/// The last entry that the checkpoint of `current` holds; `None` if there is no checkpoint.
pub(super) fn floor(current: &Current) -> Option<Lsn> {
    current.checkpoint?;
    let [high @ .., _, _, _, _, _, _, _, _] = current.floor;
    Lsn::new(u64::from_be_bytes(high))
}

fn floor_bytes(through: Lsn) -> [u8; 16] {
    let mut floor = [0; 16];
    floor[..8].copy_from_slice(&through.get().to_be_bytes());
    floor
}

impl JournalLog {
    /// Begins a checkpoint: `bytes` is what all entries appended so far came to. Once it is durable,
    /// and they are, recovery begins with it, the segments before it are gone, and
    /// [`LogEvent::Checkpointed`] says so. Until then, and if it cannot be written, all stays as it is.
    ///
    /// # Errors
    /// [`CheckpointError`]; nothing was begun.
    pub fn checkpoint(&mut self, bytes: Vec<u8>) -> Result<(), CheckpointError> {
        let through = self.journal.submitted_next_lsn().before();
        let through =
            through.filter(|lsn| Some(*lsn) > floor(&self.current)).ok_or(CheckpointError::Nothing)?;
        if self.halted {
            return Err(CheckpointError::Halted);
        }
        if self.making.is_some() {
            return Err(CheckpointError::Busy);
        }
        if bytes.len() as u64 > CHECKPOINT_BYTES_MAX {
            return Err(CheckpointError::TooLarge { bytes: bytes.len() as u64 });
        }
        let number = self.current.next_checkpoint;
        self.making = Some(Making {
            number,
            bytes,
            written: 0,
            through,
            synced: false,
            switched: false,
            committing: false,
        });
        self.write_piece();
        self.switch_segment();
        Ok(())
    }

    /// Whether a checkpoint is under way.
    #[must_use]
    pub const fn is_checkpointing(&self) -> bool {
        self.making.is_some()
    }

    /// The last entry that lies in a checkpoint, not in a segment.
    #[must_use]
    pub fn checkpointed(&self) -> Option<Lsn> {
        floor(&self.current)
    }

    fn write_piece(&mut self) {
        let Some(making) = &mut self.making else { return };
        let (from, file) = (making.written, FileName::Checkpoint(making.number));
        let to = making.bytes.len().min(from + PIECE_BYTES_MAX as usize);
        let (offset, bytes) = (from as u64, making.bytes[from..to].to_vec());
        making.written = to;
        self.out.command(Purpose::Checkpoint(CheckpointPurpose::Write), |ticket| StorageCommand::Write {
            ticket,
            file,
            offset,
            bytes,
        });
    }

    /// Takes the answer to a write or a sync of the checkpoint.
    pub(super) fn checkpoint_done(&mut self, purpose: CheckpointPurpose, result: Result<(), StorageFault>) {
        let Some(making) = &mut self.making else { return };
        if let Err(fault) = result {
            let files = vec![FileName::Checkpoint(making.number)];
            self.making = None;
            // The number stays used: what the file holds is unknown.
            self.current.next_checkpoint += 1;
            if !self.halted {
                self.out.event(LogEvent::NotCheckpointed(fault));
                self.out.command(Purpose::Discard, |ticket| StorageCommand::Remove { ticket, files });
            }
            return;
        }
        // After a fault elsewhere nothing more is written; the next open removes what is left.
        if self.halted {
            self.making = None;
            return;
        }
        match purpose {
            CheckpointPurpose::Write if making.written < making.bytes.len() => self.write_piece(),
            CheckpointPurpose::Write => {
                let file = FileName::Checkpoint(making.number);
                self.out.command(Purpose::Checkpoint(CheckpointPurpose::Sync), |ticket| {
                    StorageCommand::Sync { ticket, file }
                });
            }
            CheckpointPurpose::Sync => {
                making.synced = true;
                self.commit();
            }
        }
    }

    /// Notes that everything below `first_lsn` lies in segments that take no more.
    pub(super) fn checkpoint_switched(&mut self, first_lsn: Lsn) {
        if let Some(making) = &mut self.making {
            making.switched |= first_lsn > making.through;
        }
        self.commit();
    }

    /// What `current` should say, once the checkpoint and all that is in it are durable.
    pub(super) fn checkpoint_wanted(&mut self, mut next: Current) -> Current {
        let durable = self.journal.durable();
        let Some(making) = &mut self.making else { return next };
        if making.committing || !making.synced || !making.switched || durable < Some(making.through) {
            return next;
        }
        making.committing = true;
        next.first_segment = next.first_segment.max(self.journal.removable_before(Some(making.through)));
        next.next_checkpoint = making.number + 1;
        next.checkpoint = Some(CheckpointRef {
            number: making.number,
            bytes: making.bytes.len() as u64,
            sha256: Sha256::digest(&making.bytes).into(),
        });
        next.floor = floor_bytes(making.through);
        next
    }

    /// `current` is `next` from now on.
    pub(super) fn checkpoint_committed(&mut self, next: Box<Current>) {
        let old = self.current.checkpoint;
        self.current = *next;
        if self.current.checkpoint == old {
            return;
        }
        if let Some(made) = self.making.take() {
            self.out.event(LogEvent::Checkpointed { through: made.through, bytes: made.bytes.len() as u64 });
        }
        self.leaving_checkpoint = old.map(|old| old.number);
    }
}
