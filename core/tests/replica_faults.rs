//! Faults of the disk under a replica with work under way: said once, and nothing is written after.

mod common;

use common::cluster::{Cluster, blob_key, delete, put, small_config};
use strandline_core::error::StorageAction;
use strandline_core::journal::command::{FileName, StorageCommand};
use strandline_core::lifecycle::api::{Done, Event, MembersChange, MutationError, RequestError};
use strandline_core::lifecycle::command::Command;
use strandline_core::machine::Machine as _;
use strandline_core::record::Version;

fn halts(cluster: &Cluster, at: usize) -> usize {
    cluster.nodes[at].host.events.iter().filter(|e| matches!(e, Event::Halted { .. })).count()
}

/// Whether a command changes what is on disk.
fn writes(command: &Command) -> bool {
    match command {
        Command::Storage(StorageCommand::List { .. } | StorageCommand::Read { .. }) | Command::Blob(_) => {
            false
        }
        Command::Storage(
            StorageCommand::Prepare { .. }
            | StorageCommand::Append { .. }
            | StorageCommand::Cut { .. }
            | StorageCommand::Replace { .. }
            | StorageCommand::Write { .. }
            | StorageCommand::Sync { .. }
            | StorageCommand::Remove { .. },
        ) => true,
    }
}

#[test]
fn durable_is_told_for_every_mutation() {
    let mut cluster = Cluster::new(1);
    let a = cluster.add("a", true, small_config());
    let accepted = cluster.put(a, "k", b"1");
    cluster.settle();
    let told = |e: &Event| matches!(e, Event::Durable { upto } if *upto >= accepted.lsn);
    assert!(cluster.nodes[a].host.events.iter().any(told));
}

/// A replica with mutations on their way and a compaction that reads.
fn busy(seed: u64) -> (Cluster, usize) {
    let mut cluster = Cluster::new(seed);
    let a = cluster.add("a", true, small_config());
    for i in 0..60 {
        cluster.put(a, &format!("k{i:02}"), format!("v{i}").as_bytes());
        if i % 16 == 15 {
            cluster.settle();
        }
    }
    cluster.settle();
    let now = cluster.now;
    let request = cluster.replica(a).handle_members(now, MembersChange::Clear);
    assert_eq!(cluster.done(a, request), Done::Members);
    cluster.replica(a).handle_compact(now, None);
    cluster.put(a, "late", b"x");
    (cluster, a)
}

#[test]
fn a_version_waits_for_its_reservation() {
    let mut cluster = Cluster::new(1);
    let a = cluster.add("a", true, small_config());
    cluster.put(a, "k", b"1");
    let reserves = |command: &Command| {
        matches!(command, Command::Storage(StorageCommand::Replace { file: FileName::Authority, .. }))
    };
    cluster.run(a, |command| !reserves(command));
    assert!(cluster.replica(a).status().tail.is_zero(), "a crash would let the version be given out again");
    cluster.run(a, |_| true);
    assert_eq!(cluster.replica(a).status().tail, Version::new(1, 1));
}

#[test]
fn a_fault_halts_once_and_nothing_is_written_after_it() {
    for failing in [StorageAction::Write, StorageAction::Replace, StorageAction::Sync] {
        for seed in 0..30 {
            let (mut cluster, a) = busy(seed);
            for _ in 0..seed {
                cluster.step(a);
            }
            cluster.nodes[a].host.disk.failing = Some(failing);
            for _ in 0..2_000 {
                cluster.step(a);
                if halts(&cluster, a) > 0 {
                    break;
                }
            }
            if halts(&cluster, a) == 0 {
                continue;
            }
            cluster.nodes[a].host.disk.failing = None;
            // What was handed out before may still be executed; nothing more may come.
            let out = cluster.nodes[a].host.commands.iter().filter(|c| writes(c)).count();
            let tail = cluster.replica(a).status().tail;
            let refused = cluster.mutate(a, &[delete("k01")]);
            assert!(matches!(refused, Err(MutationError::Halted(_))), "{refused:?}");
            let now = cluster.now;
            let request = cluster.replica(a).handle_members(now, MembersChange::Add("b".into()));
            cluster.drain(a);
            for _ in 0..200 {
                let now = cluster.now;
                cluster.drain(a);
                let waiting = cluster.nodes[a].host.commands.iter().filter(|c| writes(c)).count();
                assert!(waiting <= out, "{failing:?} {seed}: {:?}", cluster.nodes[a].host.commands);
                cluster.step(a);
                cluster.replica(a).handle_timeout(now);
            }
            let answer = cluster.done(a, request);
            assert!(matches!(answer, Done::Refused(RequestError::Storage(_))), "{answer:?}");
            assert_eq!(halts(&cluster, a), 1);
            assert_eq!(cluster.replica(a).status().tail, tail, "nothing becomes durable after a fault");
            cluster.kill(a);
            cluster.restart(a);
            assert!(cluster.contents(a).len() >= 60);
        }
    }
}

#[test]
fn a_book_that_cannot_be_stored_stops_no_mutation() {
    let mut cluster = Cluster::new(3);
    let a = cluster.add("a", true, small_config());
    let b = cluster.add("b", false, small_config());
    cluster.put(a, "k", b"1");
    cluster.settle();
    cluster.connect(a, b).expect("connects");
    cluster.settle();
    cluster.nodes[a].host.disk.failing = Some(StorageAction::Replace);
    cluster.pass(1000);
    assert_eq!(halts(&cluster, a), 0, "only what compaction may use is held back");
    cluster.nodes[a].host.disk.failing = None;
    for i in 0..2_000 {
        cluster.mutate(a, &[put(&format!("k{}", i % 40), blob_key(b"1"))]).expect("accepted");
        cluster.run(a, |_| true);
    }
    let status = cluster.replica(a).status();
    assert_eq!(status.submitted, status.tail);
}

#[test]
fn closing_after_a_fault_ends() {
    let (mut cluster, a) = busy(4);
    cluster.nodes[a].host.disk.failing = Some(StorageAction::Write);
    cluster.settle();
    assert_eq!(halts(&cluster, a), 1);
    let now = cluster.now;
    cluster.replica(a).handle_close(now);
    cluster.pass(1000);
    assert!(cluster.nodes[a].host.events.contains(&Event::Closed));
}

#[test]
fn closing_with_work_under_way_ends_when_it_is_done() {
    for seed in 0..20 {
        let (mut cluster, a) = busy(seed);
        let now = cluster.now;
        cluster.replica(a).handle_close(now);
        cluster.pass(1000);
        assert!(cluster.nodes[a].host.events.contains(&Event::Closed), "{seed}");
        cluster.kill(a);
        cluster.restart(a);
        assert_eq!(cluster.contents(a).len(), 61);
    }
}
