//! What an embedded keyspace reads back: entries of its journal, and checkpoints.

use crate::disk::Disk;
use sha2::{Digest, Sha256};
use strandline_core::id::{Incarnation, LogId, Run};
use strandline_core::journal::command::{FileName, SegmentNumber};
use strandline_core::journal::current::{CheckpointRef, Current};
use strandline_core::machine::Machine;
use strandline_core::seed::Seed;
use strandline_core::stream::embedded::{Embedded, EmbeddedLimits, NotRecovered, StreamRecovery, entry};
use strandline_core::stream::op::Nonce;
use strandline_core::stream::retention::Wanted;
use strandline_core::stream::{Handle, Layout, StreamName, Verb};
use strandline_core::time::{Now, WallTime};

/// The first byte chooses what the rest is: an entry, or a checkpoint. What is read is written back to
/// the same bytes; a checkpoint that opens is a keyspace that goes on, and opens again. Says whether it
/// was read.
///
/// # Panics
/// If a promise is broken.
pub fn check(data: &[u8]) -> bool {
    match data.split_first() {
        None => false,
        Some((choice, rest)) if choice % 2 == 0 => an_entry(rest),
        Some((_, rest)) => a_checkpoint(rest),
    }
}

fn an_entry(payload: &[u8]) -> bool {
    match entry::decode(entry::OPERATION, payload) {
        Ok((at, op)) => {
            assert_eq!(entry::encode(at, &op).as_deref(), Some(payload), "{op:?}");
            true
        }
        Err(_) => false,
    }
}

fn limits() -> EmbeddedLimits {
    let mut limits = EmbeddedLimits::default();
    limits.journal.segment_bytes = 8192;
    limits.journal.batch_bytes_max = 4096;
    limits.journal.pending_bytes_max = 4096;
    limits.journal.entry_bytes_max = 2048;
    limits
}

/// A directory whose `current` names these bytes as the state of the first entry.
fn directory(bytes: &[u8]) -> Disk {
    let mut disk = Disk::default();
    let mut floor = [0; 16];
    floor[7] = 1;
    let current = Current {
        log: LogId([1; 16]),
        incarnation: Incarnation { counter: 1, nonce: [2; 8] },
        identity: String::new(),
        namespaces: Vec::new(),
        run: Run(1),
        first_segment: SegmentNumber(1),
        next_checkpoint: 2,
        checkpoint: Some(CheckpointRef {
            number: 1,
            bytes: bytes.len() as u64,
            sha256: Sha256::digest(bytes).into(),
        }),
        floor,
        floor_digest: [0; 32],
        opaque: b"SLST\0".to_vec(),
    };
    for (file, bytes) in [(FileName::Current, current.encode()), (FileName::Checkpoint(1), bytes.to_vec())] {
        disk.files.entry(file).or_default().cache = bytes;
        disk.sync(file);
    }
    disk
}

fn open(disk: &mut Disk, start: u8) -> Option<Embedded> {
    let mut recovery = StreamRecovery::open(limits(), Seed::new([start; 32]));
    loop {
        while let Some(command) = recovery.poll_command() {
            let completion = disk.execute(command);
            recovery.handle_completion(Now::default(), completion);
        }
        match recovery.finish() {
            Ok((embedded, _)) => return Some(embedded),
            Err(NotRecovered::Working(working)) => recovery = *working,
            Err(NotRecovered::Failed(_)) => return None,
        }
    }
}

fn settle(embedded: &mut Embedded, disk: &mut Disk) {
    while let Some(command) = embedded.poll_command() {
        let completion = disk.execute(command);
        embedded.handle_completion(Now::default(), completion);
    }
    while embedded.poll_event().is_some() {}
}

fn a_checkpoint(bytes: &[u8]) -> bool {
    let mut disk = directory(bytes);
    let Some(mut embedded) = open(&mut disk, 1) else { return false };
    let handle = Handle::new(StreamName::new("s").expect("a name"), Wanted::default(), Layout::Tagged);
    let op = handle.expect("a name").op(Verb::Open, Nonce([3; 16]));
    let now = Now { wall: WallTime(embedded.clock().ms()), ..Now::default() };
    let asked = embedded.handle_ask(now, op);
    asked.expect("an empty journal has room");
    settle(&mut embedded, &mut disk);
    embedded.handle_checkpoint();
    settle(&mut embedded, &mut disk);
    let keyspace = embedded.keyspace().clone();
    disk.power_cut();
    let again = open(&mut disk, 2).expect("what was acknowledged opens");
    assert_eq!(again.keyspace(), &keyspace);
    true
}
