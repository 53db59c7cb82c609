//! Recovery of a replica's directory whose bytes were altered: a state that was, or a refusal.

use crate::blobs::{Blobs, blob_key};
use crate::disk::{Disk, File};
use crate::input::Input;
use crate::replica::host::{Outside, config};
use crate::replica::message::LOG;
use std::collections::BTreeMap;
use strandline_core::error::{StorageAction, StorageCause, StorageFault};
use strandline_core::journal::command::{FileName, StorageCommand};
use strandline_core::lifecycle::api::{Change, MembersChange, Mutation, Scan};
use strandline_core::lifecycle::command::{Command, ReplicaCompletion};
use strandline_core::lifecycle::recovery::{Init, NotRecovered, Recovery, RecoveryError};
use strandline_core::lifecycle::replica::Replica;
use strandline_core::machine::{Machine, drain};
use strandline_core::record::{AuthorityId, Key, RecordLimits, State, Version};
use strandline_core::seed::Seed;
use strandline_core::time::Now;

/// What a replica shows: its keys, and the digest of its history.
type Shown = (BTreeMap<Key, State>, [u8; 32]);

/// The bytes choose how a directory came to be, and how it is altered. Then recovery, which ends either
/// way, gives a state that the replica was in, and gives it again when it is asked again; or it refuses,
/// and refuses again. An unaltered directory gives the last state. Says whether it was recovered.
///
/// # Panics
/// If a promise is broken.
pub fn check(data: &[u8]) -> bool {
    let mut input = Input::new(data);
    let (mut disk, blobs, states) = built(&mut input);
    let before = disk.files.clone();
    for _ in 0..input.below(4) {
        alter(&mut disk, &mut input);
    }
    let altered =
        before.iter().any(|(name, file)| disk.files.get(name).map(|f| &f.cache) != Some(&file.cache));
    let mut outside = Outside { disk, blobs, ..Outside::default() };
    let first = recover(&mut outside, 10);
    assert!(altered || first.is_ok(), "an unaltered directory is refused");
    let shown = first.as_ref().ok().map(show);
    if let Some((tail, shown)) = &shown {
        let was = states.get(tail).unwrap_or_else(|| panic!("{tail} was never a tail"));
        assert_eq!(shown, was, "at {tail}");
        assert!(altered || states.keys().next_back() == Some(tail), "an unaltered directory gives {tail}");
    }
    outside.disk.power_cut();
    let second = recover(&mut outside, 11).ok().as_ref().map(show);
    assert_eq!(second, shown, "recovered twice");
    shown.is_some()
}

fn show(replica: &Replica) -> (Version, Shown) {
    let scan = Scan { namespace: None, prefix: Vec::new(), after: None, entries_max: 100, deleted: false };
    let page = replica.scan(&scan);
    let keys = page.entries.into_iter().map(|(key, entry)| (key, entry.state)).collect();
    (replica.status().tail, (keys, replica.status().tail_digest))
}

/// A directory, and every state its replica was durably in.
fn built(input: &mut Input<'_>) -> (Disk, Blobs, BTreeMap<Version, Shown>) {
    let init = Init {
        log: LOG,
        identity: "us".into(),
        namespaces: vec![b"files".to_vec()],
        authority: Some(AuthorityId::from_text("w")),
    };
    let mut outside = Outside::default();
    let recovery = Recovery::create(Now::default(), Seed::new([1; 32]), config(), init);
    let mut replica = finished(recovery, &mut outside).expect("a new directory");
    replica.handle_members(Now::default(), MembersChange::Clear);
    let mut states = BTreeMap::from([show(&replica)]);
    let steps = input.below(24);
    for _ in 0..steps {
        let choice = input.byte();
        let key = RecordLimits::default().key(b"files", &[b'a' + choice % 4]).expect("a short key");
        let bytes = [choice];
        let change = match choice / 4 % 4 {
            0 => Change::Delete,
            1..=2 => Change::Put { blob: blob_key(&bytes) },
            _ => {
                replica.handle_compact(Now::default(), None);
                settle(&mut replica, &mut outside);
                continue;
            }
        };
        outside.blobs.stored.insert(blob_key(&bytes), bytes.to_vec());
        let mutation = Mutation { key, change, if_version: None };
        // The journal may be full: then nothing is written.
        let _ = replica.handle_mutations(Now::default(), &[mutation]);
        settle(&mut replica, &mut outside);
        states.extend([show(&replica)]);
    }
    if input.below(2) == 0 {
        replica.handle_close(Now::default());
        settle(&mut replica, &mut outside);
    }
    (outside.disk, outside.blobs, states)
}

/// One alteration of one file, for good.
fn alter(disk: &mut Disk, input: &mut Input<'_>) {
    let names: Vec<FileName> = disk.files.keys().copied().collect();
    let name = input.of(&names);
    let bytes = &mut disk.files.get_mut(&name).expect("listed").cache;
    // Most of a segment is zeros: half of the places lie where something was written.
    let written = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    let length = if input.below(4) == 0 { bytes.len() } else { written };
    let at = (input.below(256) * 256 + input.below(256)) % length.max(1);
    let to = (at + 1 + input.below(64)).min(bytes.len());
    match input.below(7) {
        0 | 1 if at < bytes.len() => bytes[at] ^= 1 << (input.byte() % 8),
        2 => bytes[at.min(to)..to].fill(0),
        3 => bytes.truncate(at),
        4 => bytes[at.min(to)..].fill(0),
        5 => {
            let copy: Vec<u8> = bytes[..to - at.min(to)].to_vec();
            bytes[at.min(to)..to].copy_from_slice(&copy);
        }
        6 if input.below(4) == 0 => {
            disk.files.remove(&name);
            return;
        }
        _ => bytes.extend(core::iter::repeat_n(input.byte(), 8)),
    }
    let cache = bytes.clone();
    disk.files.insert(name, File { durable: Some(cache.clone()), cache });
}

fn recover(outside: &mut Outside, start: u8) -> Result<Replica, RecoveryError> {
    finished(Recovery::open(Now::default(), Seed::new([start; 32]), config()), outside)
}

fn finished(mut recovery: Recovery, outside: &mut Outside) -> Result<Replica, RecoveryError> {
    // Each command reads, or writes, what is there: far fewer than this.
    for _ in 0..10_000 {
        let _ = drain(&mut recovery, outside, &mut Vec::new(), u32::MAX);
        while !outside.commands.is_empty() {
            let completion = execute(outside);
            recovery.handle_completion(Now::default(), completion);
            let _ = drain(&mut recovery, outside, &mut Vec::new(), u32::MAX);
        }
        match recovery.finish() {
            Ok((mut replica, _)) => {
                settle(&mut replica, outside);
                return Ok(replica);
            }
            Err(NotRecovered::Working(back)) => recovery = *back,
            Err(NotRecovered::Failed(error)) => return Err(error),
        }
    }
    panic!("recovery goes on for ever")
}

fn settle(replica: &mut Replica, outside: &mut Outside) {
    loop {
        let _ = drain(replica, outside, &mut Vec::new(), u32::MAX);
        if outside.commands.is_empty() {
            return;
        }
        let completion = execute(outside);
        replica.handle_completion(Now::default(), completion);
    }
}

/// Executes the oldest command; a file that is gone cannot be read.
fn execute(outside: &mut Outside) -> ReplicaCompletion {
    let command = outside.commands.remove(0);
    match command {
        Command::Storage(StorageCommand::Read { ticket, file, .. })
            if !outside.disk.files.contains_key(&file) =>
        {
            let fault = StorageFault {
                action: StorageAction::Read,
                file: file.into(),
                offset: None,
                cause: StorageCause::Missing,
                detail: "it was removed".into(),
            };
            ticket.complete(Err(fault)).into()
        }
        command @ (Command::Storage(_) | Command::Blob(_)) => outside.complete(command),
    }
}
