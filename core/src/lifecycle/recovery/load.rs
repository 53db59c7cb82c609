//! Reading what a log's directory holds beside its journal: the sidecars and the checkpoint.

use super::{Purpose, Recovery, RecoveryError, Stage};
use crate::error::StorageFault;
use crate::journal::command::{FileName, StorageCommand};
use crate::journal::current::{self, Current};
use crate::lifecycle::acked::Acked;
use crate::lifecycle::api::Entry;
use crate::lifecycle::checkpoint_read::{CheckpointItem, CheckpointLimits, CheckpointReader};
use crate::lifecycle::history::History;
use crate::lifecycle::membership::Members;
use crate::lifecycle::opaque::{Opaque, floor_version};
use crate::lifecycle::sidecars::{ACKED, AUTHORITY, MEMBERS};
use alloc::boxed::Box;
use alloc::string::ToString;

/// How much of a checkpoint is read at once.
const CHECKPOINT_READ_BYTES: u32 = 1 << 20;

impl Recovery {
    pub(super) fn read_sidecars(&mut self) {
        let sidecars = [
            (FileName::Current, current::ENVELOPE.bytes_max()),
            (FileName::Authority, AUTHORITY.bytes_max()),
            (FileName::Members, MEMBERS.bytes_max()),
            (FileName::Acked, ACKED.bytes_max()),
        ];
        let mut out = 0;
        for (file, bytes_max) in sidecars {
            if self.found.listed.iter().any(|l| l.file == file) {
                out += 1;
                // One byte more than allowed tells that a file is too long.
                let bytes_max = u32::try_from(bytes_max + 1).unwrap_or(u32::MAX);
                self.out.command(Purpose::Sidecar(file), |ticket| StorageCommand::Read {
                    ticket,
                    file,
                    offset: 0,
                    bytes_max,
                });
            }
        }
        self.stage = Stage::Sidecars(out);
    }

    pub(super) fn sidecar(&mut self, file: FileName, bytes: &[u8]) -> Result<(), RecoveryError> {
        let content = |error: crate::lifecycle::membership::ContentError| {
            RecoveryError::Storage(StorageFault::damaged(file, 0, error.to_string()))
        };
        match file {
            FileName::Current => {
                let current = Current::decode(bytes).map_err(RecoveryError::Storage)?;
                self.found.opaque = Some(Opaque::decode(&current.opaque).map_err(RecoveryError::Storage)?);
                self.found.history = History::new(floor_version(current.floor), current.floor_digest);
                self.found.current = Some(current);
            }
            FileName::Authority => {
                self.found.authority =
                    Some(AUTHORITY.decode(bytes).map_err(RecoveryError::Storage)?.to_vec());
            }
            FileName::Members => {
                let payload = MEMBERS.decode(bytes).map_err(RecoveryError::Storage)?;
                self.found.members = Members::decode(payload).map_err(content)?;
            }
            FileName::Acked => {
                let payload = ACKED.decode(bytes).map_err(RecoveryError::Storage)?;
                self.found.acked = Acked::decode(payload).map_err(content)?;
            }
            FileName::Segment(_) | FileName::Checkpoint(_) => unreachable!("no sidecar"),
        }
        let Stage::Sidecars(out) = &mut self.stage else { unreachable!("sidecars are being read") };
        *out -= 1;
        if *out == 0 {
            return self.begin_checkpoint();
        }
        Ok(())
    }

    pub(super) fn begin_checkpoint(&mut self) -> Result<(), RecoveryError> {
        let current = self.found.current.as_ref().expect("current was listed and read");
        let Some(checkpoint) = current.checkpoint else {
            return self.begin_journal();
        };
        let file = FileName::Checkpoint(checkpoint.number);
        let listed = self.found.listed.iter().find(|l| l.file == file).map(|l| l.bytes);
        if listed != Some(checkpoint.bytes) {
            let found = listed.map_or("no such file".to_string(), |bytes| alloc::format!("{bytes} bytes"));
            let detail = alloc::format!("current names {} bytes, found {found}", checkpoint.bytes);
            return Err(RecoveryError::Storage(StorageFault::damaged(file, 0, detail)));
        }
        let reader = Box::new(CheckpointReader::new(CheckpointLimits::of(current.log)));
        self.stage = Stage::Checkpoint { reader, offset: 0 };
        self.read_checkpoint(file, 0);
        Ok(())
    }

    pub(super) fn read_checkpoint(&mut self, file: FileName, offset: u64) {
        self.out.command(Purpose::Checkpoint, |ticket| StorageCommand::Read {
            ticket,
            file,
            offset,
            bytes_max: CHECKPOINT_READ_BYTES,
        });
    }

    pub(super) fn checkpoint(&mut self, bytes: &[u8]) -> Result<(), RecoveryError> {
        let Some(checkpoint) = self.found.current.as_ref().and_then(|c| c.checkpoint) else {
            unreachable!("a checkpoint is being read");
        };
        let file = FileName::Checkpoint(checkpoint.number);
        let damaged = |error: crate::lifecycle::checkpoint::CheckpointError| {
            RecoveryError::Storage(error.into_fault(file))
        };
        let Stage::Checkpoint { reader, offset } = &mut self.stage else {
            unreachable!("a checkpoint is being read");
        };
        let (views, history) = (&mut self.found.views, &mut self.found.history);
        reader
            .push(bytes, &mut |item| {
                match item {
                    CheckpointItem::Header(header) => history.load_epochs(&header.epochs),
                    CheckpointItem::Record { view, .. } => {
                        let record = view.to_record();
                        let (state, version, authority) = (record.state, record.version, record.authority);
                        views.load(record.key, Entry { state, version, authority });
                    }
                }
                Ok(())
            })
            .map_err(damaged)?;
        *offset += bytes.len() as u64;
        if *offset < checkpoint.bytes && !bytes.is_empty() {
            let offset = *offset;
            self.read_checkpoint(file, offset);
            return Ok(());
        }
        let Stage::Checkpoint { reader, .. } = core::mem::replace(&mut self.stage, Stage::CheckpointSync)
        else {
            unreachable!("a checkpoint is being read");
        };
        let summary = reader.finish().map_err(damaged)?;
        if summary.sha256 != checkpoint.sha256 {
            let detail = "expected the SHA-256 that current names, found another one";
            return Err(RecoveryError::Storage(StorageFault::damaged(file, 0, detail)));
        }
        self.found.checkpoint_records = summary.records;
        // What was read may be in memory only: it is built on, so it must be on disk.
        self.out.command(Purpose::CheckpointSync, |ticket| StorageCommand::Sync { ticket, file });
        Ok(())
    }
}
