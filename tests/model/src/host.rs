//! One node: a real replica over a disk and a blob store in memory.
//!
//! What makes something durable that peers may be told of, an append or a new `current`, is held until
//! an action lets it happen; all other effects happen at once.

use crate::blobs::Blobs;
use crate::bounds::Disks;
use crate::disk::Disk;
use std::collections::{BTreeSet, VecDeque};
use strandline_core::id::{LinkId, LogId};
use strandline_core::journal::command::{FileName, StorageCommand};
use strandline_core::lifecycle::api::{Event, MembersChange};
use strandline_core::lifecycle::command::{Command, ReplicaCompletion};
use strandline_core::lifecycle::config::ReplicaConfig;
use strandline_core::lifecycle::recovery::{Init, NotRecovered, Recovery};
use strandline_core::lifecycle::replica::Replica;
use strandline_core::machine::{Host, Machine, Sent, drain};
use strandline_core::record::AuthorityId;
use strandline_core::seed::Seed;
use strandline_core::time::Now;

/// The log of the pair.
const LOG: LogId = LogId([7; 16]);

/// An effect that has not happened yet.
pub(crate) enum Held {
    /// Executed, and answered, when an action says so.
    Waiting(StorageCommand),
    /// Answered already, though only an action makes it durable: the fault of
    /// [`Disks::AnswerEarly`]. The disk is what it was before.
    Believed(Disk),
}

/// What a node has outside its replica.
#[derive(Default)]
pub(crate) struct Outside {
    pub(crate) disk: Disk,
    pub(crate) blobs: Blobs,
    pub(crate) held: VecDeque<Held>,
    commands: VecDeque<Command>,
    events: Vec<Event>,
    frames: Vec<(LinkId, Vec<u8>)>,
    ready: BTreeSet<LinkId>,
}

impl<M: Machine<Command = Command, Event = Event, Channel = LinkId>> Host<M> for Outside {
    fn execute(&mut self, command: Command) {
        self.commands.push_back(command);
    }

    fn notify(&mut self, event: Event) {
        if let Event::Frames { link } = &event {
            self.ready.insert(*link);
        }
        self.events.push(event);
    }

    fn ready(&mut self) -> Option<LinkId> {
        self.ready.first().copied()
    }

    fn send(&mut self, link: LinkId, bytes: &[u8]) -> Sent {
        self.frames.push((link, bytes.to_vec()));
        Sent::More
    }

    fn done(&mut self, link: LinkId) {
        self.ready.remove(&link);
    }
}

impl Outside {
    fn at_once(&mut self, command: Command) -> ReplicaCompletion {
        match command {
            Command::Storage(command) => self.disk.execute(command).into(),
            Command::Blob(command) => self.blobs.execute(command),
        }
    }
}

fn waits(command: &Command) -> bool {
    matches!(
        command,
        Command::Storage(
            StorageCommand::Append { .. } | StorageCommand::Replace { file: FileName::Current, .. }
        )
    )
}

/// One node.
pub(crate) struct Node {
    pub(crate) replica: Replica,
    pub(crate) outside: Outside,
    pub(crate) starts: u8,
    disks: Disks,
    number: u8,
}

/// What a node said since it was last asked.
pub(crate) struct Said {
    pub(crate) frames: Vec<(LinkId, Vec<u8>)>,
    pub(crate) events: Vec<Event>,
}

/// Bounds so small that a segment is written in no time.
fn config() -> ReplicaConfig {
    let mut config = ReplicaConfig::default();
    config.journal.segment_bytes = 4224;
    config.journal.batch_bytes_max = 2048;
    config.journal.entry_bytes_max = 1024;
    config.journal.pending_bytes_max = 8192;
    config.journal.read_bytes_max = 4096;
    config.wire.repair.records_max = 1;
    config.wire.repair.key_bytes_max = 256;
    config.wire.repair.record_json_bytes_max = 2048;
    config.record.authority_bytes_max = 16;
    config.record.namespace_bytes_max = 32;
    config.record.logical_key_bytes_max = 64;
    config.record.record_bytes_max = 1024;
    config
}

impl Node {
    /// A node with an empty log, which it writes itself or follows.
    pub(crate) fn new(number: u8, writes: bool, disks: Disks) -> Self {
        let identity = ["a", "b"][usize::from(number)];
        let init = Init {
            log: LOG,
            identity: identity.into(),
            namespaces: vec![b"files".to_vec()],
            authority: writes.then(|| AuthorityId::from_text(identity)),
        };
        let recovery = Recovery::create(Now::default(), seed(number, 0), config(), init);
        let mut outside = Outside::default();
        let replica = recovered(recovery, &mut outside);
        let mut node = Self { replica, outside, starts: 0, disks, number };
        // Nobody is waited for, so that a compaction may leave the other node behind.
        node.replica.handle_members(Now::default(), MembersChange::Clear);
        let _ = node.run(Now::default());
        while node.release(Now::default()) {
            let _ = node.run(Now::default());
        }
        node
    }

    /// Takes what the replica has to say, until it waits for an input or for something that is held.
    pub(crate) fn run(&mut self, now: Now) -> Said {
        let mut buf = Vec::new();
        loop {
            let _ = drain(&mut self.replica, &mut self.outside, &mut buf, u32::MAX);
            let Some(command) = self.outside.commands.pop_front() else { break };
            if waits(&command) {
                self.hold(now, command);
            } else {
                let completion = self.outside.at_once(command);
                self.replica.handle_completion(now, completion);
            }
        }
        Said {
            frames: core::mem::take(&mut self.outside.frames),
            events: core::mem::take(&mut self.outside.events),
        }
    }

    fn hold(&mut self, now: Now, command: Command) {
        let Command::Storage(command) = command else { unreachable!("only files are held") };
        match self.disks {
            Disks::Honest => self.outside.held.push_back(Held::Waiting(command)),
            Disks::AnswerEarly => {
                self.outside.held.push_back(Held::Believed(self.outside.disk.clone()));
                let completion = self.outside.disk.execute(command).into();
                self.replica.handle_completion(now, completion);
            }
        }
    }

    /// Lets the oldest effect that is held happen, and answers it. False if nothing is held.
    pub(crate) fn release(&mut self, now: Now) -> bool {
        match self.outside.held.pop_front() {
            Some(Held::Waiting(command)) => {
                let completion = self.outside.disk.execute(command).into();
                self.replica.handle_completion(now, completion);
                true
            }
            Some(Held::Believed(_)) => true,
            None => false,
        }
    }

    /// Cuts the power when the first `landed` of the held effects had happened, and recovers.
    pub(crate) fn crash(&mut self, now: Now, landed: u8) {
        let mut held = core::mem::take(&mut self.outside.held).into_iter();
        for effect in held.by_ref().take(usize::from(landed)) {
            match effect {
                Held::Waiting(command) => drop(self.outside.disk.execute(command)),
                Held::Believed(_) => {}
            }
        }
        if let Some(Held::Believed(before)) = held.next() {
            self.outside.disk = before;
        }
        let (mut disk, stored) =
            (core::mem::take(&mut self.outside.disk), core::mem::take(&mut self.outside.blobs.stored));
        disk.power_cut();
        self.outside = Outside { disk, blobs: Blobs { stored, ..Blobs::default() }, ..Outside::default() };
        self.starts += 1;
        let recovery = Recovery::open(now, seed(self.number, self.starts), config());
        self.replica = recovered(recovery, &mut self.outside);
    }
}

fn seed(node: u8, start: u8) -> Seed {
    let mut bytes = [0x5d; 32];
    (bytes[0], bytes[1]) = (node, start);
    Seed::new(bytes)
}

/// Runs a recovery to its end; everything happens at once.
fn recovered(mut recovery: Recovery, outside: &mut Outside) -> Replica {
    loop {
        let _ = drain(&mut recovery, outside, &mut Vec::new(), u32::MAX);
        while let Some(command) = outside.commands.pop_front() {
            let completion = outside.at_once(command);
            recovery.handle_completion(Now::default(), completion);
            let _ = drain(&mut recovery, outside, &mut Vec::new(), u32::MAX);
        }
        match recovery.finish() {
            Ok((replica, _)) => return replica,
            Err(NotRecovered::Working(back)) => recovery = *back,
            Err(NotRecovered::Failed(error)) => panic!("a disk that keeps what it synced: {error}"),
        }
    }
}
