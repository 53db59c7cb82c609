//! What a replica runs on here: a disk and blobs in memory, and commands that wait until an operation
//! executes them.

use crate::blobs::Blobs;
use crate::disk::Disk;
use crate::input::Input;
use std::collections::{BTreeMap, BTreeSet};
use strandline_core::error::{StorageAction, StorageCause, StorageFault};
use strandline_core::id::LinkId;
use strandline_core::journal::command::StorageCommand;
use strandline_core::lifecycle::api::Event;
use strandline_core::lifecycle::command::{BlobCommand, Command, ReplicaCompletion};
use strandline_core::lifecycle::config::ReplicaConfig;
use strandline_core::machine::{Host, Machine, Sent};

/// Bounds that a few operations reach.
pub(crate) fn config() -> ReplicaConfig {
    let mut config = ReplicaConfig::default();
    config.journal.segment_bytes = 4224;
    config.journal.batch_bytes_max = 2048;
    config.journal.entry_bytes_max = 1024;
    config.journal.pending_bytes_max = 2048;
    config.journal.pending_entries_max = 8;
    config.journal.read_bytes_max = 4096;
    config.journal.journal_entries_max = 40;
    config.wire.repair.records_max = 3;
    config.wire.repair.key_bytes_max = 256;
    config.wire.repair.record_json_bytes_max = 2048;
    config.record.authority_bytes_max = 16;
    config.record.namespace_bytes_max = 32;
    config.record.logical_key_bytes_max = 64;
    config.record.record_bytes_max = 1024;
    (config.links_max, config.link_queue_bytes_max) = (3, 4096);
    (config.blob_requests_max, config.snapshot_requests_max) = (2, 1);
    config.compaction_keys_max = 2;
    (config.subscriptions_max, config.subscription_reads_max) = (3, 2);
    config
}

/// Most commands that may be out: each link asks for a bounded number of blobs and reads, each way; the
/// log itself has one append, one segment under preparation, one of each sidecar, what compaction and an
/// installation do, and what is being removed.
pub(crate) fn commands_max(config: &ReplicaConfig) -> usize {
    let per_link = 4 * config.blob_requests_max + config.snapshot_requests_max + 4;
    (config.links_max * per_link + config.subscription_reads_max + 16) as usize
}

#[derive(Default)]
pub(crate) struct Outside {
    pub(crate) disk: Disk,
    pub(crate) blobs: Blobs,
    pub(crate) commands: Vec<Command>,
    /// Commands of runs that ended; their answers may still come.
    pub(crate) late: Vec<Command>,
    pub(crate) events: Vec<Event>,
    pub(crate) frames: Vec<(LinkId, Vec<u8>)>,
    pub(crate) ready: BTreeSet<LinkId>,
    /// Links that take no frames at the moment.
    pub(crate) stalled: BTreeSet<LinkId>,
    /// Links that may hand in nothing at the moment.
    pub(crate) paused: BTreeSet<LinkId>,
    /// The last frame of each link, to be sent back altered.
    pub(crate) last: BTreeMap<LinkId, Vec<u8>>,
}

impl<M: Machine<Command = Command, Event = Event, Channel = LinkId>> Host<M> for Outside {
    fn execute(&mut self, command: Command) {
        self.commands.push(command);
    }

    fn notify(&mut self, event: Event) {
        if let Event::Frames { link } = &event {
            self.ready.insert(*link);
        }
        if let Event::Resume { link } = &event {
            self.paused.remove(link);
        }
        self.events.push(event);
    }

    fn ready(&mut self) -> Option<LinkId> {
        self.ready.iter().find(|link| !self.stalled.contains(link)).copied()
    }

    fn send(&mut self, link: LinkId, bytes: &[u8]) -> Sent {
        self.frames.push((link, bytes.to_vec()));
        self.last.insert(link, bytes.to_vec());
        Sent::More
    }

    fn done(&mut self, link: LinkId) {
        self.ready.remove(&link);
    }
}

/// Appends, cuts, writes and syncs keep their order; everything else may be answered in any.
fn ordered(command: &Command) -> bool {
    use StorageCommand as S;
    match command {
        Command::Storage(S::Append { .. } | S::Cut { .. } | S::Write { .. } | S::Sync { .. })
        | Command::Blob(
            BlobCommand::Write { .. } | BlobCommand::Commit { .. } | BlobCommand::Abandon { .. },
        ) => true,
        Command::Storage(
            S::List { .. } | S::Read { .. } | S::Prepare { .. } | S::Replace { .. } | S::Remove { .. },
        )
        | Command::Blob(
            BlobCommand::Stat { .. }
            | BlobCommand::Read { .. }
            | BlobCommand::Put { .. }
            | BlobCommand::List { .. }
            | BlobCommand::Remove { .. }
            | BlobCommand::Verify { .. },
        ) => false,
    }
}

fn fault(action: StorageAction) -> StorageFault {
    StorageFault {
        action,
        file: "disk".into(),
        offset: None,
        cause: StorageCause::Failed,
        detail: "injected".into(),
    }
}

impl Outside {
    /// Takes out one of the commands that may be executed next.
    pub(crate) fn pick(&mut self, input: &mut Input<'_>) -> Option<Command> {
        if self.commands.is_empty() {
            return None;
        }
        let at = input.below(self.commands.len());
        let first = self.commands.iter().position(ordered);
        let at = first.filter(|_| ordered(&self.commands[at])).unwrap_or(at);
        Some(self.commands.remove(at))
    }

    pub(crate) fn complete(&mut self, command: Command) -> ReplicaCompletion {
        match command {
            Command::Storage(command) => self.disk.execute(command).into(),
            Command::Blob(command) => self.blobs.execute(command),
        }
    }

    /// The command fails; what it writes to the disk may be there or not.
    pub(crate) fn fail(&mut self, command: Command, written: bool) -> ReplicaCompletion {
        match command {
            Command::Storage(command) => {
                let mut untouched = self.disk.clone();
                let disk = if written { &mut self.disk } else { &mut untouched };
                disk.failing = Some(action(&command));
                let completion = disk.execute(command);
                disk.failing = None;
                completion.into()
            }
            Command::Blob(command) => refuse(command),
        }
    }

    /// Answers a command of an earlier run: whatever it says, nothing may come of it.
    pub(crate) fn answer_late(&mut self, command: Command) -> ReplicaCompletion {
        let fails = fault(StorageAction::Write);
        match command {
            Command::Storage(StorageCommand::Append { ticket, .. }) => ticket.complete(Ok(())).into(),
            Command::Storage(StorageCommand::Replace { ticket, .. }) => ticket.complete(Err(fails)).into(),
            Command::Storage(StorageCommand::Write { ticket, .. }) => ticket.complete(Ok(())).into(),
            Command::Storage(StorageCommand::Sync { ticket, .. }) => ticket.complete(Ok(())).into(),
            Command::Storage(StorageCommand::Read { ticket, .. }) => ticket.complete(Ok(Vec::new())).into(),
            Command::Storage(StorageCommand::Remove { ticket, .. }) => ticket.complete(Ok(())).into(),
            Command::Storage(StorageCommand::Prepare { ticket, .. }) => ticket.complete(Err(fails)).into(),
            Command::Storage(StorageCommand::List { ticket }) => ticket.complete(Ok(Vec::new())).into(),
            Command::Storage(StorageCommand::Cut { ticket, .. }) => ticket.complete(Ok(0)).into(),
            Command::Blob(command) => refuse(command),
        }
    }
}

fn refuse(command: BlobCommand) -> ReplicaCompletion {
    let fault = fault(StorageAction::Read);
    match command {
        BlobCommand::Stat { ticket, .. } => ticket.complete(Err(fault)).into(),
        BlobCommand::Read { ticket, .. } => ticket.complete(Err(fault)).into(),
        BlobCommand::Put { ticket, .. } => ticket.complete(Err(fault)).into(),
        BlobCommand::Write { ticket, .. } => ticket.complete(Err(fault)).into(),
        BlobCommand::Commit { ticket, .. } => ticket.complete(Err(fault)).into(),
        BlobCommand::Abandon { ticket, .. } => ticket.complete(Err(fault)).into(),
        BlobCommand::List { ticket, .. } => ticket.complete(Err(fault)).into(),
        BlobCommand::Remove { ticket, .. } => ticket.complete(Err(fault)).into(),
        BlobCommand::Verify { ticket, .. } => ticket.complete(Err(fault)).into(),
    }
}

fn action(command: &StorageCommand) -> StorageAction {
    match command {
        StorageCommand::List { .. } => StorageAction::List,
        StorageCommand::Read { .. } => StorageAction::Read,
        StorageCommand::Prepare { .. } => StorageAction::Prepare,
        StorageCommand::Append { .. } | StorageCommand::Write { .. } => StorageAction::Write,
        StorageCommand::Cut { .. } => StorageAction::Cut,
        StorageCommand::Replace { .. } => StorageAction::Replace,
        StorageCommand::Sync { .. } => StorageAction::Sync,
        StorageCommand::Remove { .. } => StorageAction::Remove,
    }
}
