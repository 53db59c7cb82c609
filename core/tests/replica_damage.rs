//! Blobs whose bytes are not what was stored, as who asks for them finds out.

mod common;

use common::cluster::{Cluster, blob_key, key, small_config};
use common::handshake::reference;
use common::peer::Peer;
use strandline_core::lifecycle::api::{CloseReason, Event, LinkRole, PairReason};
use strandline_core::limits::PIECE_BYTES_MAX;
use strandline_core::record::Version;
use strandline_core::verdict::Verdict;
use strandline_core::wire::blob::BlobMessage;
use strandline_core::wire::message::Message;

fn at(sequence: u64) -> Version {
    Version::new(1, sequence)
}

/// What passes in three pieces.
fn large() -> Vec<u8> {
    (0..PIECE_BYTES_MAX * 2 + 1000).map(|n| (n % 251) as u8).collect()
}

/// Changes one bit in the middle of a stored blob.
fn damage(cluster: &mut Cluster, node: usize, bytes: &[u8]) {
    let stored = cluster.nodes[node].host.blobs.stored.get_mut(&blob_key(bytes)).expect("is stored");
    let middle = stored.len() / 2;
    stored[middle] ^= 1;
}

fn stores(cluster: &Cluster, node: usize, bytes: &[u8]) -> bool {
    cluster.nodes[node].host.blobs.stored.contains_key(&blob_key(bytes))
}

fn faults(cluster: &Cluster, node: usize) -> usize {
    let fault = |event: &&Event| matches!(event, Event::CloseLink { reason: CloseReason::Fault(_), .. });
    cluster.nodes[node].host.events.iter().filter(fault).count()
}

/// A writer with three keys, the second of which names a damaged blob, and a follower that took them.
fn pair(second: &[u8]) -> (Cluster, usize, usize) {
    let mut cluster = Cluster::new(3);
    let a = cluster.add("a", true, small_config());
    let b = cluster.add("b", false, small_config());
    for (name, bytes) in [("one", &b"1"[..]), ("two", second), ("three", b"3")] {
        cluster.put(a, name, bytes);
    }
    cluster.settle();
    damage(&mut cluster, a, second);
    cluster.connect(a, b).expect("taken up");
    cluster.settle();
    (cluster, a, b)
}

#[test]
fn a_damaged_blob_of_many_pieces_holds_up_no_other_record_and_is_wanted_where_it_lies() {
    let (mut cluster, a, b) = pair(&large());
    assert_eq!((faults(&cluster, a), faults(&cluster, b)), (0, 0), "nobody broke a rule");
    assert_eq!(cluster.replica(b).status().tail, at(3));
    let contents = cluster.contents(b);
    assert_eq!(contents[&b"one".to_vec()], Some(b"1".to_vec()));
    assert_eq!(contents[&b"three".to_vec()], Some(b"3".to_vec()));
    for node in [a, b] {
        assert!(cluster.replica(node).blob_pending(&key("two")), "{node} says that it waits for it");
        assert_eq!(
            (cluster.replica(node).status().blobs_wanted, stores(&cluster, node, &large())),
            (1, false)
        );
    }
    // A crash does not forget it.
    cluster.kill(a);
    cluster.restart(a);
    cluster.settle();
    cluster.pass(60_000);
    assert!(cluster.replica(a).blob_pending(&key("two")));
    // Whoever gets it first, the other has it from there.
    cluster.nodes[b].host.blobs.stored.insert(blob_key(&large()), large());
    cluster.connect(a, b).expect("taken up");
    cluster.settle();
    cluster.pass(60_000);
    for node in [a, b] {
        assert_eq!(cluster.replica(node).status().complete, at(3));
        assert_eq!(cluster.contents(node)[&b"two".to_vec()], Some(large()));
    }
}

#[test]
fn a_damaged_blob_of_one_piece_is_not_sent_and_is_wanted_where_it_lies() {
    let (mut cluster, a, b) = pair(b"small");
    assert_eq!((faults(&cluster, a), faults(&cluster, b)), (0, 0));
    assert_eq!(cluster.replica(b).status().tail, at(3));
    for node in [a, b] {
        assert!(cluster.replica(node).blob_pending(&key("two")));
    }
    assert!(!stores(&cluster, a, b"small"), "it is set aside");
}

#[test]
fn a_sound_blob_that_is_asked_for_again_is_sent_again() {
    let mut cluster = Cluster::new(3);
    let a = cluster.add("a", true, small_config());
    let b = cluster.add("b", false, small_config());
    cluster.put(a, "two", &large());
    cluster.connect(a, b).expect("taken up");
    cluster.settle();
    assert!(stores(&cluster, b, &large()));
    // The receiver loses its own, and asks on the same link.
    cluster.nodes[b].host.blobs.stored.remove(&blob_key(&large()));
    let now = cluster.now;
    let scrub = strandline_core::lifecycle::api::Scrub { bytes_per_second: u64::MAX };
    let _ = cluster.replica(b).handle_scrub(now, scrub);
    cluster.settle();
    cluster.pass(60_000);
    assert!(stores(&cluster, b, &large()) && stores(&cluster, a, &large()));
    assert_eq!((faults(&cluster, a), faults(&cluster, b)), (0, 0));
}

#[test]
fn a_damaged_blob_is_not_sent_to_a_peer_of_the_reference() {
    let mut cluster = Cluster::new(3);
    let a = cluster.add("a", true, small_config());
    cluster.put(a, "one", b"damaged");
    cluster.settle();
    damage(&mut cluster, a, b"damaged");
    let mut peer = Peer::connect(&mut cluster, a, "r", &reference(), LinkRole::Source);
    peer.ack(&mut cluster, Version::ZERO);
    let heard = peer.settled(&mut cluster);
    let puts = heard.iter().filter(|m| matches!(m, Message::Blob(BlobMessage::Put { .. }))).count();
    assert_eq!(puts, 0, "{heard:?}");
    let verdict = peer.status(&mut cluster).verdict;
    assert!(
        matches!(verdict, Some(Verdict::Unknown { reason: PairReason::BlobMissing })),
        "found {verdict:?}"
    );
    assert!(cluster.replica(a).blob_pending(&key("one")));
}
