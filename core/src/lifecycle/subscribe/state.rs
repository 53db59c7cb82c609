//! The state of a reset: the records of a pinned checkpoint, as they are read.

use crate::error::StorageFault;
use crate::id::LogId;
use crate::journal::command::FileName;
use crate::journal::current::CheckpointRef;
use crate::lifecycle::checkpoint_read::{CheckpointItem, CheckpointLimits, CheckpointReader};
use crate::record::{AuthorityId, Record, State, Version};
use crate::time::Instant;
use alloc::string::ToString;
use alloc::vec::Vec;

/// Reads the state at a cut, piece by piece. Holds at most one block of the checkpoint.
#[derive(Debug)]
pub(super) struct StateReader {
    pub(super) cut: Version,
    pub(super) keys: u64,
    /// How long the checkpoint stays for a subscriber that asks for nothing.
    pub(super) until: Instant,
    from: Option<From>,
}

/// A checkpoint that is not read to its end.
#[derive(Debug)]
struct From {
    checkpoint: CheckpointRef,
    offset: u64,
    reader: CheckpointReader,
    authority: AuthorityId,
}

impl StateReader {
    /// The state at the floor `cut`; without a checkpoint it is empty.
    pub(super) fn new(log: LogId, cut: Version, checkpoint: Option<CheckpointRef>, until: Instant) -> Self {
        let from = checkpoint.map(|checkpoint| From {
            checkpoint,
            offset: 0,
            reader: CheckpointReader::new(CheckpointLimits::of(log)),
            authority: AuthorityId::from_text(""),
        });
        Self { cut, keys: 0, until, from }
    }

    /// The checkpoint that must stay.
    pub(super) fn pinned(&self) -> Option<u64> {
        self.from.as_ref().map(|from| from.checkpoint.number)
    }

    /// Where to read on; `None` at the end.
    pub(super) fn wants(&self) -> Option<(FileName, u64)> {
        self.from.as_ref().map(|from| (FileName::Checkpoint(from.checkpoint.number), from.offset))
    }

    /// Takes the bytes at the offset that was asked for. The present records they complete, and the
    /// checkpoint that may be let go once it was read to its end.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<(Vec<Record>, Option<u64>), StorageFault> {
        let Some(mut from) = self.from.take() else { unreachable!("nothing is read behind the end") };
        let file = FileName::Checkpoint(from.checkpoint.number);
        let mut records = Vec::new();
        let From { reader, authority, .. } = &mut from;
        reader
            .push(bytes, &mut |item| {
                if let CheckpointItem::Record { view, .. } = item
                    && matches!(view.state, State::Present { .. })
                {
                    let record = view.to_record_sharing(authority);
                    *authority = record.authority.clone();
                    records.push(record);
                }
                Ok(())
            })
            .map_err(|error| error.into_fault(file))?;
        from.offset += bytes.len() as u64;
        self.keys += records.len() as u64;
        let CheckpointRef { number, bytes: expected, sha256 } = from.checkpoint;
        if from.offset < expected && !bytes.is_empty() {
            self.from = Some(from);
            return Ok((records, None));
        }
        let summary = from.reader.finish().map_err(|error| error.into_fault(file))?;
        if summary.sha256 != sha256 || summary.header.cut != self.cut {
            let detail = alloc::format!(
                "expected the state at {} with the SHA-256 that current names, found {} with another",
                self.cut,
                summary.header.cut
            );
            return Err(StorageFault::damaged(file, 0, detail.to_string()));
        }
        Ok((records, Some(number)))
    }
}
