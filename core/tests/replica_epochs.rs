//! What the epochs of two histories tell where their records cannot any more: an epoch that nobody wrote
//! in, what an old writer alone has, and who hears of it when.

mod common;

use common::cluster::{Cluster, LOG, small_config};
use common::forks::{self, divergence, isolate, write};
use common::handshake::reference;
use common::peer::{Peer, record};
use sha2::{Digest, Sha256};
use strandline_core::lifecycle::api::{Done, Event, LinkRole, MembersChange, PairReason};
use strandline_core::lifecycle::checkpoint::{CheckpointHeader, CheckpointWriter};
use strandline_core::record::{AuthorityId, State, Version};
use strandline_core::verdict::Verdict;
use strandline_core::wire::message::Message;
use strandline_core::wire::own::{EpochMark, OwnMessage, SnapshotChunk, SnapshotOffer};
use strandline_core::wire::repair::Snapshot;

/// Writer `a` and followers, linked with it, who have its ten records.
fn cluster(nodes: usize) -> Cluster {
    let mut cluster = Cluster::new(3);
    for name in ["a", "b", "c"].iter().take(nodes) {
        cluster.add(name, *name == "a", small_config());
    }
    for at in 1..nodes {
        cluster.connect(0, at).expect("connects");
    }
    write(&mut cluster, 0, 10);
    cluster
}

fn fence(cluster: &mut Cluster, at: usize, epoch: u64) {
    let done = forks::fence(cluster, at, epoch);
    assert!(matches!(done, Done::Fenced(_)), "{done:?}");
    cluster.settle();
}

/// Drops everything below the tail: nothing but a snapshot brings anyone up.
fn compact(cluster: &mut Cluster, at: usize) {
    let now = cluster.now;
    let request = cluster.replica(at).handle_members(now, MembersChange::Clear);
    cluster.done(at, request);
    let request = cluster.replica(at).handle_compact(now, None);
    assert!(matches!(cluster.done(at, request), Done::Compacted(_)));
}

fn at(sequence: u64) -> Version {
    Version::new(1, sequence)
}

#[test]
fn an_epoch_that_nobody_wrote_in_holds_against_a_snapshot() {
    for restarted in [false, true] {
        let mut cluster = cluster(2);
        isolate(&mut cluster, 0);
        fence(&mut cluster, 1, 2);
        write(&mut cluster, 0, 1);
        fence(&mut cluster, 0, 3);
        write(&mut cluster, 0, 3);
        compact(&mut cluster, 0);
        if restarted {
            cluster.kill(1);
            cluster.restart(1);
        }
        cluster.connect(0, 1).expect("connects");
        cluster.settle();
        let status = cluster.replica(1).status();
        assert_eq!((status.tail, status.epoch), (at(10), 2), "1.11 was written after epoch 2 had begun");
        let found = divergence(&mut cluster, 1, "a");
        assert_eq!((found.reason, found.at), (PairReason::FencedEpoch, at(11)), "{found}");
        assert!(found.ours.starts_with("epoch 2 of b"), "{found}");
        assert_eq!(divergence(&mut cluster, 0, "b").reason, PairReason::FencedEpoch);
    }
}

#[test]
fn an_epoch_that_nobody_wrote_in_gives_way_to_one_that_goes_on_where_it_began() {
    let mut cluster = cluster(2);
    isolate(&mut cluster, 0);
    fence(&mut cluster, 1, 2);
    fence(&mut cluster, 0, 3);
    write(&mut cluster, 0, 3);
    compact(&mut cluster, 0);
    cluster.connect(0, 1).expect("connects");
    cluster.settle();
    assert_eq!(cluster.replica(1).status().tail, Version::new(3, 3), "nothing is lost by it");
}

#[test]
fn what_an_old_writer_alone_has_is_not_dropped_for_a_snapshot() {
    let mut cluster = cluster(2);
    isolate(&mut cluster, 0);
    write(&mut cluster, 0, 1);
    fence(&mut cluster, 1, 2);
    write(&mut cluster, 1, 2);
    compact(&mut cluster, 1);
    cluster.connect(0, 1).expect("connects");
    cluster.settle();
    assert_eq!(cluster.replica(0).status().tail, at(11));
    for (at_node, of) in [(0, "b"), (1, "a")] {
        let found = divergence(&mut cluster, at_node, of);
        assert_eq!((found.reason, found.at), (PairReason::FencedEpoch, at(11)), "{found}");
    }
}

/// Follower `c` knows of epoch 2, which begins after the ten records and has none.
fn knowing() -> Cluster {
    let mut cluster = cluster(3);
    isolate(&mut cluster, 0);
    cluster.connect(1, 2).expect("connects");
    fence(&mut cluster, 1, 2);
    isolate(&mut cluster, 1);
    assert_eq!(cluster.replica(2).status().epoch, 2);
    cluster
}

#[test]
fn a_snapshot_whose_epochs_are_not_ours_is_not_installed() {
    let mut cluster = knowing();
    let cut = Version::new(3, 2);
    let mark = |start: Version, previous_end| {
        let authority = AuthorityId::from_text("a");
        EpochMark { epoch: start.epoch, start, previous_end, authority }
    };
    let epochs = vec![mark(at(1), Version::ZERO), mark(Version::new(3, 1), at(11))];
    let mut writer = CheckpointWriter::new(&CheckpointHeader { log: LOG, cut, cut_digest: [5; 32], epochs });
    writer.push(&record("k", State::Deleted, 1)).expect("in order");
    let (_, data, written) = writer.finish();

    let peer = Peer::native(&mut cluster, 2, "p");
    // It says nothing of how its history came to be until the snapshot does.
    peer.stand(&mut cluster, cut, cut);
    let offer =
        SnapshotOffer { cut, cut_digest: None, bytes: written.bytes, sha256: written.sha256, records: 1 };
    assert_eq!(<[u8; 32]>::from(Sha256::digest(&data)), written.sha256);
    peer.send_own(&mut cluster, OwnMessage::SnapshotOffer(offer));
    cluster.settle();
    peer.send_own(&mut cluster, OwnMessage::SnapshotChunk(SnapshotChunk { offset: 0, data }));
    cluster.settle();
    assert_eq!(cluster.replica(2).status().tail, at(10));
    assert_eq!(divergence(&mut cluster, 2, "p").reason, PairReason::FencedEpoch);
}

#[test]
fn a_snapshot_in_one_frame_that_holds_a_record_of_an_epoch_that_is_over_is_refused() {
    let mut cluster = knowing();
    let peer = Peer::connect(&mut cluster, 2, "r", &reference(), LinkRole::Receiver);
    let records = vec![record("k", State::Deleted, 11)];
    peer.send(&mut cluster, &Message::Snapshot(Snapshot { watermark: Version::new(3, 2), records }));
    cluster.settle();
    assert_eq!(cluster.replica(2).status().tail, at(10));
    let found = divergence(&mut cluster, 2, "r");
    assert_eq!((found.reason, found.at), (PairReason::FencedEpoch, at(11)));
}

#[test]
fn an_epoch_of_a_log_without_records_is_known_before_its_first() {
    let mut cluster = Cluster::new(3);
    for name in ["a", "b", "c"] {
        cluster.add(name, name == "a", small_config());
    }
    fence(&mut cluster, 1, 2);
    cluster.connect(1, 2).expect("connects");
    cluster.settle();
    assert_eq!(cluster.replica(2).status().epoch, 2);
    cluster.connect(0, 2).expect("connects");
    cluster.settle();
    assert!(cluster.replica(0).status().fenced.is_some(), "the old writer has heard of it");
    write(&mut cluster, 1, 1);
    for node in 0..3 {
        assert_eq!(cluster.replica(node).status().tail, Version::new(2, 1), "{node}");
    }
}

#[test]
fn a_writer_hears_of_an_epoch_before_the_first_record_of_it_whoever_brings_that() {
    let mut cluster = cluster(3);
    isolate(&mut cluster, 1);
    fence(&mut cluster, 1, 2);
    write(&mut cluster, 1, 1);
    // The epoch is no news that `c` could take before the record: it comes with it.
    cluster.connect(1, 2).expect("connects");
    cluster.settle();
    let diverged = |event: &Event| matches!(event, Event::Verdict { verdict: Verdict::Diverged(_), .. });
    for node in 0..3 {
        assert_eq!(cluster.replica(node).status().tail, Version::new(2, 1), "{node}");
        assert!(!cluster.nodes[node].host.events.iter().any(diverged), "{node}");
    }
    assert!(cluster.replica(0).status().fenced.is_some());
}
