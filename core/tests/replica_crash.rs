//! A power cut after every command of a creation, a compaction, and the installation of a snapshot:
//! recovery finds the state before or the state after, never a third one.

mod common;

use common::cluster::{Cluster, Node, small_config};
use std::collections::{BTreeMap, BTreeSet};
use strandline_core::journal::command::FileName;
use strandline_core::lifecycle::api::{Done, MembersChange};
use strandline_core::machine::Machine as _;
use strandline_core::record::Version;

type Contents = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// Steps `at` until `count` of its commands were executed; whether it had that many.
fn execute(cluster: &mut Cluster, at: usize, count: usize, mut feed: impl FnMut(&mut Cluster)) -> bool {
    let mut executed = 0;
    for _ in 0..200_000 {
        if executed == count {
            return true;
        }
        cluster.drain(at);
        if cluster.execute_next(at) {
            executed += 1;
        } else {
            feed(cluster);
            cluster.drain(at);
            if cluster.nodes[at].host.commands.is_empty() && quiet(&cluster.nodes) {
                return false;
            }
        }
    }
    panic!("it does not end");
}

fn quiet(nodes: &[Node]) -> bool {
    nodes.iter().all(|n| {
        n.host.commands.is_empty()
            && n.host.wires.out.values().all(std::collections::VecDeque::is_empty)
            && n.replica.as_ref().is_none_or(|r| !r.pending().commands)
    })
}

/// Only files that `current` names are left after a recovery, or segments of the journal.
fn checkpoints(cluster: &Cluster, at: usize) -> usize {
    let files = &cluster.nodes[at].host.disk.files;
    files.keys().filter(|f| matches!(f, FileName::Checkpoint(_))).count()
}

fn state(cluster: &mut Cluster, at: usize) -> (Version, Version, [u8; 32], Contents) {
    let status = cluster.replica(at).status();
    (status.floor, status.tail, status.tail_digest, cluster.contents(at))
}

fn written(seed: u64) -> (Cluster, usize) {
    let mut cluster = Cluster::new(seed);
    let a = cluster.add("a", true, small_config());
    for i in 0..120 {
        cluster.put(a, &format!("k{:02}", i % 70), format!("v{i}").as_bytes());
        if i % 16 == 15 {
            cluster.settle();
        }
    }
    cluster.settle();
    let now = cluster.now;
    let request = cluster.replica(a).handle_members(now, MembersChange::Clear);
    assert_eq!(cluster.done(a, request), Done::Members);
    (cluster, a)
}

#[test]
fn a_compaction_is_before_or_after() {
    for seed in 0..4 {
        let mut floors = BTreeSet::new();
        for count in 0.. {
            let (mut cluster, a) = written(seed);
            let before = state(&mut cluster, a);
            let now = cluster.now;
            cluster.replica(a).handle_compact(now, None);
            let more = execute(&mut cluster, a, count, |_| {});
            cluster.kill(a);
            cluster.restart(a);
            let after = state(&mut cluster, a);
            assert_eq!((before.1, before.2, &before.3), (after.1, after.2, &after.3), "{seed} {count}");
            assert!(after.0.is_zero() || after.0 == after.1, "{seed} {count}");
            assert_eq!(checkpoints(&cluster, a), usize::from(!after.0.is_zero()), "{seed} {count}");
            floors.insert(after.0);
            // Work goes on either way.
            cluster.put(a, "next", b"n");
            cluster.settle();
            assert!(cluster.replica(a).status().tail > after.1);
            if !more {
                break;
            }
        }
        assert_eq!(floors.len(), 2, "both states were seen");
    }
}

#[test]
fn an_installation_is_before_or_after() {
    for seed in 0..4 {
        let mut tails = BTreeSet::new();
        for count in 0.. {
            let (mut cluster, a) = written(seed);
            let b = cluster.add("b", false, small_config());
            cluster.connect(a, b).expect("connects");
            cluster.settle();
            let old = state(&mut cluster, b);
            let (link, _) = cluster.nodes[b].links.iter().next().map(|(l, p)| (*l, *p)).expect("linked");
            cluster.cut(b, link);
            cluster.put(a, "k00", b"newer");
            cluster.settle();
            let now = cluster.now;
            let request = cluster.replica(a).handle_compact(now, None);
            assert!(matches!(cluster.done(a, request), Done::Compacted(_)));
            let new = state(&mut cluster, a);
            cluster.connect(b, a).expect("connects");
            let more = execute(&mut cluster, b, count, |cluster| {
                for at in [a, b] {
                    cluster.step_links(at);
                }
                cluster.run(a, |_| true);
            });
            cluster.kill(b);
            cluster.restart(b);
            let found = state(&mut cluster, b);
            assert!(found == old || found == new, "{seed} {count}: {} {}", found.0, found.1);
            assert_eq!(checkpoints(&cluster, b), usize::from(!found.0.is_zero()), "{seed} {count}");
            tails.insert(found.1);
            cluster.connect(b, a).expect("connects");
            cluster.settle();
            assert_eq!(state(&mut cluster, b), new, "{seed} {count}");
            if !more {
                break;
            }
        }
        assert_eq!(tails.len(), 2, "both states were seen");
    }
}

#[test]
fn a_creation_is_nothing_or_a_log() {
    for writes in [true, false] {
        for count in 0..20 {
            let mut cluster = Cluster::new(count);
            let at = cluster.add_crashed("a", writes, small_config(), count as usize);
            if cluster.start(at, None).is_err() {
                let init = cluster.init("a", writes);
                cluster.start(at, Some(init)).expect("what is left stands in nobody's way");
            }
            if writes {
                cluster.put(at, "k", b"1");
                cluster.settle();
                cluster.kill(at);
                cluster.restart(at);
                assert_eq!(cluster.contents(at).len(), 1, "{count}");
            }
        }
    }
}

#[test]
fn a_recovery_that_is_cut_short_recovers_to_the_same() {
    for count in 0..24 {
        let (mut cluster, a) = written(3);
        let now = cluster.now;
        cluster.replica(a).handle_compact(now, None);
        // Somewhere in the compaction, with a write on its way.
        cluster.put(a, "late", b"l");
        execute(&mut cluster, a, 4, |_| {});
        cluster.kill(a);
        let mut whole = cluster.nodes[a].host.disk.clone();
        cluster.restart(a);
        let expected = state(&mut cluster, a);
        cluster.kill(a);
        std::mem::swap(&mut cluster.nodes[a].host.disk, &mut whole);
        cluster.start_crashed(a, count);
        cluster.restart(a);
        assert_eq!(state(&mut cluster, a), expected, "{count}");
    }
}
