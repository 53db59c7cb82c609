//! Recovering a log only to look at it: nothing of its directory changes.

use super::{fault, read_file};
use crate::node::StartError;
use crate::node::entropy;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use strandline_core::error::{StorageAction, StorageFault};
use strandline_core::id::LinkId;
use strandline_core::journal::command::{FileName, Listed, StorageCommand, StorageCompletion};
use strandline_core::journal::limits::JournalLimits;
use strandline_core::lifecycle::api::Event;
use strandline_core::lifecycle::command::{Command, ReplicaCompletion};
use strandline_core::lifecycle::config::ReplicaConfig;
use strandline_core::lifecycle::recovery::{NotRecovered, Recovery, RecoveryReport};
use strandline_core::lifecycle::replica::Replica;
use strandline_core::machine::{Host, Sent, drain};
use strandline_core::record::{BlobKey, State};
use strandline_core::time::{Instant, Now, WallTime};

/// Recovers the log in a folder that nobody changes meanwhile, without changing it: the replica is for
/// reading only, and what recovery would write is left unwritten. Its limits are the widest there are, so
/// that it reads what any configuration wrote.
///
/// # Errors
/// The folder cannot be read, holds no log, or the log is damaged; also if it holds bytes that were
/// not durable, which recovery would have to cut.
pub fn inspect(log: &Path) -> Result<(Replica, RecoveryReport), StartError> {
    let now = Now { mono: Instant(0), wall: WallTime(0) };
    let config = ReplicaConfig { journal: JournalLimits::widest(), ..ReplicaConfig::default() };
    let mut recovery = Recovery::open(now, entropy()?, config);
    let mut host = Looking { log: log.to_owned(), answers: Vec::new() };
    loop {
        let _ = drain(&mut recovery, &mut host, &mut Vec::new(), 1024);
        for answer in std::mem::take(&mut host.answers) {
            strandline_core::machine::Machine::handle_completion(&mut recovery, now, answer);
        }
        recovery = match recovery.finish() {
            Ok(recovered) => return Ok(recovered),
            Err(NotRecovered::Working(recovery)) => *recovery,
            Err(NotRecovered::Failed(error)) => return Err(error.into()),
        };
    }
}

/// The blobs that the present keys name.
pub(super) fn present_blobs(replica: &Replica) -> BTreeSet<BlobKey> {
    let mut scan = strandline_core::lifecycle::api::Scan {
        namespace: None,
        prefix: Vec::new(),
        after: None,
        entries_max: 4096,
        deleted: false,
    };
    let mut blobs = BTreeSet::new();
    loop {
        let page = replica.scan(&scan);
        let named = page.entries.iter().filter_map(|(_, entry)| match entry.state {
            State::Present { blob } => Some(blob),
            State::Deleted => None,
        });
        blobs.extend(named);
        match page.next {
            Some(next) => scan.after = Some(next),
            None => return blobs,
        }
    }
}

struct Looking {
    log: PathBuf,
    answers: Vec<ReplicaCompletion>,
}

impl Looking {
    fn list(&self) -> Result<Vec<Listed>, StorageFault> {
        let failed = |error: std::io::Error| fault(StorageAction::List, &self.log, &error);
        let mut listed = Vec::new();
        for entry in fs::read_dir(&self.log).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if let Some(file) = entry.file_name().to_str().and_then(FileName::parse) {
                listed.push(Listed { file, bytes: entry.metadata().map_err(failed)?.len() });
            }
        }
        Ok(listed)
    }

    fn read(&self, file: FileName, offset: u64, bytes_max: u32) -> Result<Vec<u8>, StorageFault> {
        use std::os::unix::fs::FileExt;
        let path = self.log.join(file.to_string());
        let failed = |error: std::io::Error| fault(StorageAction::Read, &path, &error);
        let handle = fs::File::open(&path).map_err(failed)?;
        let left = handle.metadata().map_err(failed)?.len().saturating_sub(offset);
        let mut bytes = vec![0; usize::try_from(left.min(u64::from(bytes_max))).expect("at most 4 GiB")];
        handle.read_exact_at(&mut bytes, offset).map_err(failed)?;
        Ok(bytes)
    }

    /// How many bytes recovery would have to cut: none, where nothing but zeros is.
    fn cut(&self, file: FileName, offset: u64) -> Result<u64, StorageFault> {
        let bytes = read_file(&self.log.join(file.to_string()))?;
        let rest = bytes.get(usize::try_from(offset).unwrap_or(usize::MAX)..).unwrap_or_default();
        match rest.iter().rposition(|byte| *byte != 0) {
            None => Ok(0),
            Some(last) => Err(StorageFault::damaged(
                file,
                offset,
                format!(
                    "expected zeros behind the last batch, found {} bytes that were not durable",
                    last + 1
                ),
            )),
        }
    }

    fn answer(&self, command: StorageCommand) -> StorageCompletion {
        match command {
            StorageCommand::List { ticket } => ticket.complete(self.list()),
            StorageCommand::Read { ticket, file, offset, bytes_max } => {
                ticket.complete(self.read(file, offset, bytes_max))
            }
            StorageCommand::Cut { ticket, segment, offset } => {
                ticket.complete(self.cut(FileName::Segment(segment), offset))
            }
            StorageCommand::Prepare { ticket, .. } => ticket.complete(Ok(())),
            StorageCommand::Append { ticket, .. } => ticket.complete(Ok(())),
            StorageCommand::Replace { ticket, .. } => ticket.complete(Ok(())),
            StorageCommand::Write { ticket, .. } => ticket.complete(Ok(())),
            StorageCommand::Sync { ticket, .. } => ticket.complete(Ok(())),
            StorageCommand::Remove { ticket, .. } => ticket.complete(Ok(())),
        }
    }
}

impl Host<Recovery> for Looking {
    fn execute(&mut self, command: Command) {
        match command {
            Command::Storage(command) => {
                let answer = self.answer(command);
                self.answers.push(answer.into());
            }
            Command::Blob(command) => unreachable!("recovery asks for no blobs, found {command:?}"),
        }
    }
    fn notify(&mut self, _event: Event) {}
    fn ready(&mut self) -> Option<LinkId> {
        None
    }
    fn send(&mut self, _channel: LinkId, _bytes: &[u8]) -> Sent {
        Sent::Enough
    }
    fn done(&mut self, _channel: LinkId) {}
}
