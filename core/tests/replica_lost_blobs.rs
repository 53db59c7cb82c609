//! A blob that is found lost or damaged while records that name it are on their way: wherever they are,
//! they say in the end that their blob is not here.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a test names what it expects, and fails on the rest or passes over it"
)]

mod common;

use common::cluster::{Cluster, blob_key, key, put, small_config};
use common::peer::{Peer, record, snapshot};
use strandline_core::journal::command::StorageCommand;
use strandline_core::lifecycle::api::{Done, Event, Scrub};
use strandline_core::lifecycle::command::Command;
use strandline_core::record::{State, Version};
use strandline_core::wire::message::Message;
use strandline_core::wire::own::{BlobRange, BlobRangeGet, OwnMessage, SnapshotChunk, SnapshotOffer};
use strandline_core::wire::repair::Batch;

fn at(sequence: u64) -> Version {
    Version::new(1, sequence)
}

fn present(bytes: &[u8]) -> State {
    State::Present { blob: blob_key(bytes) }
}

fn store(cluster: &mut Cluster, node: usize, bytes: &[u8]) {
    cluster.nodes[node].host.blobs.stored.insert(blob_key(bytes), bytes.to_vec());
}

/// The blob rots, and a scrub finds it. Nothing becomes durable meanwhile.
fn rots_and_is_found(cluster: &mut Cluster, node: usize, bytes: &[u8]) {
    cluster.nodes[node].host.blobs.stored.insert(blob_key(bytes), b"rotten".to_vec());
    let now = cluster.now;
    let request = cluster.replica(node).handle_scrub(now, Scrub { bytes_per_second: 1_000_000 });
    for _ in 0..100 {
        cluster.tick(1);
        cluster.run(node, |c| !matches!(c, Command::Storage(StorageCommand::Append { .. })));
        let done = cluster.nodes[node].host.events.iter().find_map(|event| match event {
            Event::Done { request: of, done: Done::Scrubbed(found) } if *of == request => Some(found.bad),
            _ => None,
        });
        if let Some(bad) = done {
            assert_eq!(bad, 1);
            return;
        }
    }
    panic!("the scrub does not end");
}

/// A follower that shows `k1` with the blob `lost`, and what it takes from.
fn follower() -> (Cluster, usize, Peer) {
    let mut cluster = Cluster::new(7);
    let b = cluster.add("b", false, small_config());
    store(&mut cluster, b, b"lost");
    let mut peer = Peer::without(&mut cluster, b, "a", &[]);
    peer.stand(&mut cluster, Version::ZERO, Version::ZERO);
    batch(&mut cluster, &peer, Version::ZERO, vec![record("k1", present(b"lost"), 1)]);
    let _ = peer.settled(&mut cluster);
    assert!(!cluster.replica(b).blob_pending(&key("k1")));
    (cluster, b, peer)
}

fn batch(cluster: &mut Cluster, peer: &Peer, from: Version, records: Vec<strandline_core::record::Record>) {
    let to = records.last().expect("not empty").version;
    peer.send(cluster, &Message::Batch(Batch { from, to, more: false, records }));
}

/// Answers every question for a blob, `there` being all that the peer has, until there are none.
fn serve(cluster: &mut Cluster, peer: &mut Peer, there: &[u8]) {
    for _ in 0..20 {
        let asked = peer.settled(cluster).into_iter().find_map(|message| match message {
            Message::Own(OwnMessage::BlobRangeGet(get)) => Some(get.key),
            _ => None,
        });
        let Some(asked) = asked else { return };
        let answer = if asked == blob_key(there) {
            let (total, data) = (there.len() as u64, there.to_vec());
            OwnMessage::BlobRange(BlobRange { key: asked, offset: 0, total, data })
        } else {
            OwnMessage::BlobAbsent { key: asked }
        };
        peer.send_own(cluster, answer);
    }
    panic!("it asks on and on");
}

#[test]
fn a_batch_that_waits_for_another_blob_is_looked_at_anew() {
    let (mut cluster, b, mut peer) = follower();
    let records = vec![record("k2", present(b"lost"), 2), record("k3", present(b"late"), 3)];
    batch(&mut cluster, &peer, at(1), records);
    cluster.settle();
    rots_and_is_found(&mut cluster, b, b"lost");
    serve(&mut cluster, &mut peer, b"late");
    assert_eq!((cluster.replica(b).status().tail, peer.fault(&mut cluster)), (at(3), None));
    let pending = ["k1", "k2", "k3"].map(|name| cluster.replica(b).blob_pending(&key(name)));
    assert_eq!(pending, [true, true, false]);
}

#[test]
fn what_is_submitted_waits_for_the_blob_when_it_is_seen() {
    let mut cluster = Cluster::new(7);
    let a = cluster.add("a", true, small_config());
    cluster.put(a, "k1", b"lost");
    cluster.settle();
    cluster.mutate(a, &[put("k2", blob_key(b"lost"))]).expect("accepted");
    rots_and_is_found(&mut cluster, a, b"lost");
    cluster.settle();
    let pending = ["k1", "k2"].map(|name| cluster.replica(a).blob_pending(&key(name)));
    assert_eq!((cluster.replica(a).status().tail, pending), (at(2), [true, true]));
}

/// Who finds the damage makes no difference: here it is a peer that asks for the blob.
#[test]
fn what_is_submitted_waits_for_a_blob_that_is_damaged_where_a_peer_asks_for_it() {
    let mut cluster = Cluster::new(7);
    let a = cluster.add("a", true, small_config());
    cluster.put(a, "k1", b"lost");
    let mut peer = Peer::without(&mut cluster, a, "b", &[]);
    peer.stand(&mut cluster, Version::ZERO, Version::ZERO);
    let _ = peer.settled(&mut cluster);
    cluster.nodes[a].host.blobs.stored.insert(blob_key(b"lost"), b"rotten".to_vec());
    cluster.mutate(a, &[put("k2", blob_key(b"lost"))]).expect("accepted");
    let get = BlobRangeGet { key: blob_key(b"lost"), offset: 0, bytes: 100 };
    peer.send_own(&mut cluster, OwnMessage::BlobRangeGet(get));
    // Nothing becomes durable before the damage is found.
    cluster.run(a, |c| !matches!(c, Command::Storage(StorageCommand::Append { .. })));
    let heard = peer.settled(&mut cluster);
    assert!(heard.iter().any(|m| matches!(m, Message::Own(OwnMessage::BlobAbsent { .. }))), "{heard:?}");
    let pending = ["k1", "k2"].map(|name| cluster.replica(a).blob_pending(&key(name)));
    assert_eq!((cluster.replica(a).status().tail, pending), (at(2), [true, true]));
}

#[test]
fn what_is_written_with_a_blob_known_to_be_lost_waits_for_it_unless_it_was_stored_anew() {
    for (stored, pending) in [(false, true), (true, false)] {
        let mut cluster = Cluster::new(7);
        let a = cluster.add("a", true, small_config());
        cluster.put(a, "k1", b"lost");
        cluster.settle();
        rots_and_is_found(&mut cluster, a, b"lost");
        if stored {
            store(&mut cluster, a, b"lost");
        }
        cluster.mutate(a, &[put("k2", blob_key(b"lost"))]).expect("accepted");
        cluster.settle();
        assert_eq!(cluster.replica(a).blob_pending(&key("k2")), pending);
    }
}

#[test]
fn a_snapshot_that_waits_for_another_blob_is_looked_at_anew() {
    let (mut cluster, b, _) = follower();
    let mut peer = Peer::without(&mut cluster, b, "c", &[]);
    peer.stand(&mut cluster, at(9), at(9));
    let records = [
        record("k1", present(b"lost"), 1),
        record("k2", present(b"lost"), 8),
        record("k3", present(b"late"), 9),
    ];
    let (offer, bytes) = snapshot(at(9), &records);
    peer.send_own(
        &mut cluster,
        OwnMessage::SnapshotOffer(SnapshotOffer { cut_digest: Some([5; 32]), ..offer }),
    );
    let heard = peer.settled(&mut cluster);
    let asked = |m: &Message| matches!(m, Message::Own(OwnMessage::SnapshotGet(_)));
    assert!(heard.iter().any(asked), "{heard:?}");
    peer.send_own(&mut cluster, OwnMessage::SnapshotChunk(SnapshotChunk { offset: 0, data: bytes }));
    cluster.settle();
    rots_and_is_found(&mut cluster, b, b"lost");
    serve(&mut cluster, &mut peer, b"late");
    assert_eq!((cluster.replica(b).status().floor, peer.fault(&mut cluster)), (at(9), None));
    cluster.settle();
    let pending = ["k1", "k2", "k3"].map(|name| cluster.replica(b).blob_pending(&key(name)));
    assert_eq!(pending, [true, true, false]);
}
