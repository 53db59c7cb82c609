//! Several batches on their way at once, and reads of the journal that serve all who need them.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a test names what it expects, and fails on the rest or passes over it"
)]

mod common;

use common::cluster::{Cluster, blob_key, delete, small_config};
use common::peer::{Peer, record};
use strandline_core::lifecycle::api::{Done, Flow, PeerFaultKind, Scrub};
use strandline_core::limits::PIECE_BYTES_MAX;
use strandline_core::record::{State, Version};
use strandline_core::wire::capability::Capability;
use strandline_core::wire::message::Message;
use strandline_core::wire::own::{Acknowledgement, BlobRangeGet, DigestAt, OwnMessage};
use strandline_core::wire::repair::Batch;

fn at(sequence: u64) -> Version {
    Version::new(1, sequence)
}

/// A writer with so many records, and no blobs.
fn writer(records: u64) -> (Cluster, usize) {
    let mut cluster = Cluster::new(7);
    let a = cluster.add("a", true, small_config());
    for n in 0..records {
        cluster.mutate(a, &[delete(&format!("k{n}"))]).expect("accepted");
        if n % 20 == 0 {
            cluster.settle();
        }
    }
    cluster.settle();
    (cluster, a)
}

fn batches(messages: &[Message]) -> Vec<(Version, Version)> {
    let batch = |message: &Message| match message {
        Message::Batch(batch) => Some((batch.from, batch.to)),
        _ => None,
    };
    messages.iter().filter_map(batch).collect()
}

#[test]
fn eight_batches_are_out_and_each_acknowledgement_lets_more_go() {
    let (mut cluster, a) = writer(200);
    let mut peer = Peer::without(&mut cluster, a, "b", &[]);
    peer.stand(&mut cluster, Version::ZERO, Version::ZERO);
    let out = batches(&peer.settled(&mut cluster));
    let expected: Vec<_> =
        (0..8).map(|n| (if n == 0 { Version::ZERO } else { at(n * 10) }, at(n * 10 + 10))).collect();
    assert_eq!(out, expected);
    let ack = |to| OwnMessage::Ack(Acknowledgement { watermark: at(to), complete: at(to) });
    peer.send_own(&mut cluster, ack(30));
    assert_eq!(batches(&peer.settled(&mut cluster)).len(), 3, "three were answered by one");
    peer.send_own(&mut cluster, ack(30));
    assert_eq!(batches(&peer.settled(&mut cluster)), [], "the same says nothing new");
    peer.send_own(&mut cluster, ack(110));
    assert_eq!(batches(&peer.settled(&mut cluster)).len(), 8);
    peer.send_own(&mut cluster, ack(190));
    assert_eq!(batches(&peer.settled(&mut cluster)), [(at(190), at(200))]);
    peer.send_own(&mut cluster, ack(200));
    assert_eq!(batches(&peer.settled(&mut cluster)), []);
    assert_eq!((peer.fault(&mut cluster), peer.status(&mut cluster).acked), (None, at(200)));
}

#[test]
fn without_the_window_one_batch_is_out() {
    let (mut cluster, a) = writer(60);
    let mut peer = Peer::without(&mut cluster, a, "b", &[Capability::Window]);
    peer.stand(&mut cluster, Version::ZERO, Version::ZERO);
    assert_eq!(batches(&peer.settled(&mut cluster)), [(Version::ZERO, at(10))]);
    peer.ack(&mut cluster, at(10));
    assert_eq!(batches(&peer.settled(&mut cluster)), [(at(10), at(20))]);
}

fn batch(from: u64, to: u64) -> Message {
    let records = (from + 1..=to).map(|n| record(&format!("k{n}"), State::Deleted, n)).collect();
    let from = if from == 0 { Version::ZERO } else { at(from) };
    Message::Batch(Batch { from, to: at(to), more: false, records })
}

fn follower() -> (Cluster, usize, Peer) {
    let mut cluster = Cluster::new(7);
    let b = cluster.add("b", false, small_config());
    let mut peer = Peer::without(&mut cluster, b, "a", &[]);
    peer.stand(&mut cluster, Version::ZERO, Version::ZERO);
    let _ = peer.settled(&mut cluster);
    (cluster, b, peer)
}

fn acks(messages: &[Message]) -> Vec<Version> {
    let ack = |message: &Message| match message {
        Message::Own(OwnMessage::Ack(ack)) => Some(ack.watermark),
        _ => None,
    };
    messages.iter().filter_map(ack).collect()
}

#[test]
fn a_receiver_takes_eight_and_acknowledges_what_is_durable() {
    let (mut cluster, b, mut peer) = follower();
    for n in 0..8 {
        peer.send(&mut cluster, &batch(n, n + 1));
    }
    assert_eq!(acks(&peer.heard(&mut cluster)), [], "nothing is durable");
    let heard = acks(&peer.settled(&mut cluster));
    assert_eq!((heard.last(), heard.is_sorted()), (Some(&at(8)), true));
    assert_eq!(cluster.replica(b).status().tail, at(8));
    for n in 8..17 {
        peer.send(&mut cluster, &batch(n, n + 1));
    }
    assert_eq!(peer.fault(&mut cluster), Some(PeerFaultKind::Sequence), "nine are too many");
}

#[test]
fn batches_become_durable_together() {
    let (mut cluster, b, peer) = follower();
    let appends = |cluster: &Cluster| cluster.nodes[b].host.disk.appends;
    let before = appends(&cluster);
    for n in 0..8 {
        peer.send(&mut cluster, &batch(n, n + 1));
    }
    cluster.settle();
    assert_eq!(cluster.replica(b).status().tail, at(8));
    assert!(appends(&cluster) - before <= 3, "one is out, the rest follows in the next");
}

#[test]
fn what_another_link_brought_is_left_out_of_a_batch() {
    let (mut cluster, b, mut peer) = follower();
    let other = Peer::without(&mut cluster, b, "c", &[]);
    other.stand(&mut cluster, Version::ZERO, Version::ZERO);
    cluster.settle();
    other.send(&mut cluster, &batch(0, 3));
    peer.send(&mut cluster, &batch(0, 5));
    peer.send(&mut cluster, &batch(5, 7));
    let heard = peer.settled(&mut cluster);
    let vouched = heard.iter().find_map(|message| match message {
        Message::Own(OwnMessage::Digest(at)) => Some(*at),
        _ => None,
    });
    let vouched = vouched.expect("what another link brought is vouched for");
    assert_eq!((vouched.version, cluster.replica(b).status().tail), (at(3), at(3)), "the rest waits");
    assert!(vouched.asks, "it waits for our word");
    peer.send_own(&mut cluster, OwnMessage::Digest(DigestAt { asks: false, ..vouched }));
    let heard = acks(&peer.settled(&mut cluster));
    assert_eq!((heard.last(), peer.fault(&mut cluster)), (Some(&at(7)), None));
    assert_eq!(cluster.replica(b).status().tail, at(7));
}

#[test]
fn batches_that_an_acknowledgement_covers_do_not_count_as_out() {
    use strandline_core::journal::command::StorageCommand;
    use strandline_core::lifecycle::command::Command;
    use strandline_core::wire::own::{Mark, Position};
    let mut cluster = Cluster::new(7);
    let b = cluster.add("b", false, small_config());
    let mut peer = Peer::without(&mut cluster, b, "a", &[]);
    peer.stand(&mut cluster, Version::ZERO, at(20));
    let other = Peer::without(&mut cluster, b, "c", &[]);
    other.stand(&mut cluster, Version::ZERO, at(20));
    cluster.settle();
    other.send(&mut cluster, &batch(0, 5));
    for n in 0..8 {
        peer.send(&mut cluster, &batch(n, n + 1));
    }
    // The first is a duplicate, whose digest is being read: the rest waits for it.
    cluster.run(b, |c| !matches!(c, Command::Storage(StorageCommand::Read { .. })));
    assert_eq!(acks(&peer.heard(&mut cluster)), []);
    // Where we stand is acknowledged to a peer that says again where it stands.
    let mark = |version| Mark { version, digest: None };
    let position = Position { floor: mark(Version::ZERO), tail: mark(at(20)), epochs: Vec::new() };
    peer.send_own(&mut cluster, OwnMessage::Position(position));
    assert_eq!(acks(&peer.heard(&mut cluster)), [at(5)]);
    for n in 8..13 {
        peer.send(&mut cluster, &batch(n, n + 1));
    }
    assert_eq!(peer.fault(&mut cluster), None, "eight are out beyond what was acknowledged");
    for _ in 0..20 {
        let asking = peer.settled(&mut cluster).into_iter().find_map(|message| match message {
            Message::Own(OwnMessage::Digest(at)) => Some(at),
            _ => None,
        });
        let Some(asking) = asking else { break };
        peer.send_own(&mut cluster, OwnMessage::Digest(DigestAt { asks: false, ..asking }));
    }
    assert_eq!((cluster.replica(b).status().tail, peer.fault(&mut cluster)), (at(13), None));
    for n in 13..22 {
        peer.send(&mut cluster, &batch(n, n + 1));
    }
    assert_eq!(peer.fault(&mut cluster), Some(PeerFaultKind::Sequence), "nine are too many");
}

#[test]
fn only_a_digest_that_asks_is_answered_and_no_answer_asks() {
    let (mut cluster, a) = writer(3);
    let mut peer = Peer::without(&mut cluster, a, "p", &[]);
    peer.stand(&mut cluster, Version::ZERO, Version::ZERO);
    let _ = peer.settled(&mut cluster);
    let status = cluster.replica(a).status();
    for digest in [None, Some(status.tail_digest)] {
        let told = DigestAt { version: status.tail, digest, asks: false };
        peer.send_own(&mut cluster, OwnMessage::Digest(told));
        assert_eq!(peer.settled(&mut cluster), [], "to {told:?}");
        let asking = DigestAt { asks: true, ..told };
        peer.send_own(&mut cluster, OwnMessage::Digest(asking));
        let answer = Message::Own(OwnMessage::Digest(told));
        assert_eq!(peer.settled(&mut cluster), [answer], "to {asking:?}");
    }
}

#[test]
fn another_history_in_a_batch_that_overlaps_is_told_apart() {
    let (mut cluster, b, mut peer) = follower();
    let other = Peer::without(&mut cluster, b, "c", &[]);
    other.stand(&mut cluster, Version::ZERO, Version::ZERO);
    cluster.settle();
    other.send(&mut cluster, &batch(0, 3));
    // It has nothing at 3.
    let records = vec![
        record("k1", State::Deleted, 1),
        record("k2", State::Deleted, 2),
        record("x", State::Deleted, 9),
    ];
    peer.send(&mut cluster, &Message::Batch(Batch { from: Version::ZERO, to: at(9), more: false, records }));
    let heard = peer.settled(&mut cluster);
    let vouched = heard.iter().find_map(|message| match message {
        Message::Own(OwnMessage::Digest(at)) => Some(at.version),
        _ => None,
    });
    assert_eq!(vouched, Some(at(3)));
    peer.send_own(&mut cluster, OwnMessage::Digest(DigestAt { version: at(3), digest: None, asks: false }));
    let _ = peer.settled(&mut cluster);
    assert_eq!(peer.status(&mut cluster).state, "stopped");
}

/// Repairs so many peers at once; how many reads of segments that took.
fn reads_for(peers: usize) -> u32 {
    let (mut cluster, a) = writer(600);
    let before = cluster.nodes[a].host.segment_reads;
    let nodes: Vec<usize> =
        (0..peers).map(|n| cluster.add(&format!("p{n}"), false, small_config())).collect();
    for node in &nodes {
        cluster.connect(a, *node).expect("taken up");
    }
    cluster.settle();
    for node in nodes {
        assert_eq!(cluster.replica(node).status().tail, at(600));
    }
    cluster.nodes[a].host.segment_reads - before
}

#[test]
fn ten_peers_cost_the_reads_of_one() {
    let (one, ten) = (reads_for(1), reads_for(10));
    assert!(one >= 5, "the journal is longer than one read: {one}");
    // Each peer tells where it stands once it knows of the epoch, and is judged by one digest of its own.
    assert!(ten <= one + 10, "{ten} reads for ten peers, {one} for one");
}

#[test]
fn reads_for_planning_are_bounded() {
    let mut config = small_config();
    config.plan_reads_max = 1;
    config.plan_kept_bytes_max = 1;
    let mut cluster = Cluster::new(7);
    let a = cluster.add("a", true, config);
    for n in 0..200 {
        cluster.mutate(a, &[delete(&format!("k{n}"))]).expect("accepted");
        cluster.settle();
    }
    let mut peers = Vec::new();
    for n in 0..5 {
        let peer = Peer::without(&mut cluster, a, &format!("p{n}"), &[]);
        let tail = if n == 0 { Version::ZERO } else { at(n * 35) };
        peer.stand(&mut cluster, Version::ZERO, tail);
        peers.push(peer);
    }
    let reads = |cluster: &Cluster| {
        use strandline_core::journal::command::StorageCommand;
        use strandline_core::lifecycle::command::Command;
        let read = |c: &&Command| matches!(c, Command::Storage(StorageCommand::Read { .. }));
        cluster.nodes[a].host.commands.iter().filter(read).count()
    };
    cluster.drain(a);
    assert_eq!(reads(&cluster), 1);
    for peer in &mut peers {
        assert!(!batches(&peer.settled(&mut cluster)).is_empty(), "all get their turn");
    }
}

#[test]
fn two_nodes_that_fetch_large_blobs_from_each_other_over_a_narrow_link_both_get_them() {
    let (x, y) = (vec![1; 16 << 20], vec![2; 16 << 20]);
    let mut cluster = Cluster::new(7);
    let (a, b) = (cluster.add("a", true, small_config()), cluster.add("b", false, small_config()));
    cluster.put(a, "x", &x);
    cluster.put(a, "y", &y);
    cluster.settle();
    // The writer has lost one of its blobs, and the follower happens to have it.
    let lost = cluster.nodes[a].host.blobs.stored.remove(&blob_key(&y)).expect("stored");
    cluster.nodes[b].host.blobs.stored.insert(blob_key(&y), lost);
    let now = cluster.now;
    let request = cluster.replica(a).handle_scrub(now, Scrub { bytes_per_second: 1 << 40 });
    assert!(matches!(cluster.done(a, request), Done::Scrubbed(found) if found.blobs.len() == 1));
    for node in [a, b] {
        cluster.nodes[node].host.wires.bytes_max = Some(64 << 10);
    }
    cluster.connect(a, b).expect("connects");
    cluster.settle();
    for node in [a, b] {
        assert_eq!(cluster.nodes[node].host.blobs.stored.len(), 2, "{node}");
        assert_eq!(cluster.replica(node).status().complete, at(2));
    }
}

#[test]
fn what_a_peer_asks_for_and_does_not_take_is_not_read_and_it_is_heard_meanwhile() {
    let bytes = vec![3; 64 * PIECE_BYTES_MAX as usize];
    let mut config = small_config();
    config.link_queue_bytes_max = 1 << 20;
    let mut cluster = Cluster::new(7);
    let a = cluster.add("a", true, config);
    cluster.nodes[a].host.blobs.stored.insert(blob_key(&bytes), bytes.clone());
    let mut peer = Peer::native(&mut cluster, a, "p");
    peer.stand(&mut cluster, Version::ZERO, Version::ZERO);
    let _ = peer.settled(&mut cluster);
    cluster.nodes[a].host.wires.bytes_max = Some(0);
    let piece = u64::from(PIECE_BYTES_MAX);
    for n in 0..64 {
        let get = BlobRangeGet { key: blob_key(&bytes), offset: n * piece, bytes: piece };
        assert_eq!(peer.send_own(&mut cluster, OwnMessage::BlobRangeGet(get)), Flow::More, "{n}");
        cluster.run(a, |_| true);
    }
    let reads = cluster.nodes[a].host.blobs.reads;
    assert!(reads < 8, "{reads}");
    cluster.nodes[a].host.wires.bytes_max = None;
    let heard = peer.settled_but_position(&mut cluster);
    let offsets: Vec<u64> = heard
        .iter()
        .map(|message| match message {
            Message::Own(OwnMessage::BlobRange(found)) => found.offset / piece,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(offsets, (0..64).collect::<Vec<u64>>());
}
