//! Findings about sessions of the reference, each with our better answer.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a test names what it expects, and fails on the rest or passes over it"
)]

mod common;

use common::cluster::{Cluster, blob_key, delete, put, small_config};
use common::handshake::reference;
use common::peer::{Peer, record};
use strandline_core::id::LogId;
use strandline_core::journal::command::FileName;
use strandline_core::lifecycle::api::{Compacted, Done, LinkRole, MembersChange, PeerFaultKind};
use strandline_core::record::{State, Version};
use strandline_core::verdict::Verdict;
use strandline_core::wire::blob::BlobMessage;
use strandline_core::wire::capability::{Capabilities, Capability};
use strandline_core::wire::message::Message;
use strandline_core::wire::repair::{Batch, Snapshot};

fn at(sequence: u64) -> Version {
    if sequence == 0 { Version::ZERO } else { Version::new(1, sequence) }
}

fn batch(from: u64, keys: &[(&str, u64)]) -> Message {
    let records: Vec<_> = keys.iter().map(|(key, n)| record(key, State::Deleted, *n)).collect();
    let to = records.last().map_or(at(from), |record| record.version);
    Message::Batch(Batch { from: at(from), to, more: false, records })
}

fn follower() -> (Cluster, usize, Peer) {
    let mut cluster = Cluster::new(5);
    let b = cluster.add("b", false, small_config());
    let mut peer = Peer::connect(&mut cluster, b, "r", &reference(), LinkRole::Receiver);
    let _ = peer.settled(&mut cluster);
    (cluster, b, peer)
}

fn compact(cluster: &mut Cluster, node: usize) -> Compacted {
    let now = cluster.now;
    let request = cluster.replica(node).handle_compact(now, None);
    match cluster.done(node, request) {
        Done::Compacted(compacted) => compacted,
        other => panic!("{other:?}"),
    }
}

/// The reference keeps them for ever, until its checkpoint is too large and nothing can be written.
#[test]
fn finding_j4_tombstones_leave_at_compaction() {
    let mut cluster = Cluster::new(5);
    let a = cluster.add("a", true, small_config());
    let now = cluster.now;
    let request = cluster.replica(a).handle_members(now, MembersChange::Clear);
    assert_eq!(cluster.done(a, request), Done::Members);
    for round in 0..3 {
        for n in 0..20 {
            cluster.mutate(a, &[delete(&format!("key {round} {n}"))]).expect("accepted");
        }
        cluster.settle();
        let compacted = compact(&mut cluster, a);
        assert_eq!((compacted.records, compacted.tombstones_dropped), (0, 20), "{round}");
    }
    assert_eq!(cluster.replica(a).status().tombstones, 0);
}

/// The reference refuses every frame for ever once its file of marks is lost.
#[test]
fn finding_j5_a_receiver_needs_no_file_of_marks() {
    let (mut cluster, b, mut peer) = follower();
    peer.send(&mut cluster, &batch(0, &[("k", 1), ("l", 2)]));
    let _ = peer.settled(&mut cluster);
    cluster.kill(b);
    cluster.nodes[b].host.disk.files.remove(&FileName::Acked);
    cluster.restart(b);
    let plain = Capabilities::new([Capability::Lifecycle]).expect("one");
    let mut peer = Peer::connect(&mut cluster, b, "r", &plain, LinkRole::Receiver);
    peer.send(&mut cluster, &batch(2, &[("m", 3)]));
    assert_eq!(peer.settled(&mut cluster), [Message::Ack { watermark: at(3) }]);
    assert_eq!(peer.fault(&mut cluster), None);
}

/// The reference stops for ever, also when the next record of the same batch deletes the key.
#[test]
fn finding_j6_a_record_whose_blob_is_gone_stops_no_peer_when_its_delete_follows() {
    let mut cluster = Cluster::new(5);
    let a = cluster.add("a", true, small_config());
    cluster.mutate(a, &[put("k", blob_key(b"gone")), delete("k"), delete("l")]).expect("accepted");
    cluster.settle();
    let mut peer = Peer::connect(&mut cluster, a, "r", &reference(), LinkRole::Source);
    peer.ack(&mut cluster, Version::ZERO);
    let heard = peer.settled(&mut cluster);
    let [Message::Batch(batch)] = &heard[..] else { panic!("{heard:?}") };
    let sent: Vec<u64> = batch.records.iter().map(|record| record.version.sequence).collect();
    assert_eq!((batch.from, batch.to, sent), (at(0), at(3), vec![2, 3]));
    peer.ack(&mut cluster, at(3));
    cluster.settle();
    assert!(matches!(peer.status(&mut cluster).verdict, Some(Verdict::Complete { .. })));
    // A receiver asks for the blob, and takes nothing before it is there.
    let (mut cluster, b, mut peer) = follower();
    let records = vec![record("k", State::Present { blob: blob_key(b"gone") }, 1)];
    peer.send(&mut cluster, &Message::Batch(Batch { from: at(0), to: at(1), more: true, records }));
    let get = Message::Blob(BlobMessage::Get { key: blob_key(b"gone").into() });
    assert_eq!(peer.settled(&mut cluster), [get]);
    assert_eq!(cluster.replica(b).status().tail, at(0));
}

/// The reference moves its mark, and counts it for compaction.
#[test]
fn finding_j7_an_acknowledgement_of_what_was_never_written_moves_no_mark() {
    let mut cluster = Cluster::new(5);
    let a = cluster.add("a", true, small_config());
    cluster.mutate(a, &[delete("k")]).expect("accepted");
    cluster.settle();
    // Versions that are reserved and burned are nobody's.
    cluster.kill(a);
    cluster.restart(a);
    cluster.mutate(a, &[delete("l")]).expect("accepted");
    cluster.settle();
    let now = cluster.now;
    let request = cluster.replica(a).handle_members(now, MembersChange::Add("r".into()));
    assert_eq!(cluster.done(a, request), Done::Members);
    let mut peer = Peer::connect(&mut cluster, a, "r", &reference(), LinkRole::Source);
    peer.ack(&mut cluster, at(1));
    let _ = peer.settled(&mut cluster);
    peer.ack(&mut cluster, at(7));
    cluster.pass(100);
    assert_eq!(peer.fault(&mut cluster), Some(PeerFaultKind::Acknowledgement));
    let members = cluster.replica(a).status().members;
    assert_eq!((members[0].acked, members[0].complete), (at(1), at(1)));
}

/// In the reference local records that a snapshot does not contain vanish without an error.
#[test]
fn finding_j8_a_snapshot_below_our_tail_drops_nothing() {
    let (mut cluster, b, mut peer) = follower();
    peer.send(&mut cluster, &batch(0, &[("local", 9)]));
    let _ = peer.settled(&mut cluster);
    let records = vec![record("other", State::Deleted, 1)];
    peer.send(&mut cluster, &Message::Snapshot(Snapshot { watermark: at(5), records }));
    cluster.settle();
    assert!(matches!(peer.status(&mut cluster).verdict, Some(Verdict::Diverged(_))));
    let status = cluster.replica(b).status();
    assert_eq!((status.tail, status.floor, status.tombstones), (at(9), at(0), 1));
}

/// The reference acknowledges it unseen, with its own mark.
#[test]
fn finding_j9_a_batch_below_our_tail_is_looked_at() {
    let (mut cluster, b, mut peer) = follower();
    peer.send(&mut cluster, &batch(0, &[("k", 1), ("l", 9)]));
    let _ = peer.settled(&mut cluster);
    peer.send(&mut cluster, &batch(0, &[("k", 1)]));
    assert_eq!(peer.settled(&mut cluster), [Message::Ack { watermark: at(9) }], "the same again");
    peer.send(&mut cluster, &batch(0, &[("another", 1)]));
    assert_eq!(peer.settled(&mut cluster), [], "other records");
    assert!(matches!(peer.status(&mut cluster).verdict, Some(Verdict::Diverged(_))));
    assert_eq!(cluster.replica(b).status().tail, at(9));
}

/// In the reference concurrent writers can reach the journal in another order than they got versions.
#[test]
fn finding_j17_a_version_and_its_place_are_given_in_one_step() {
    let mut cluster = Cluster::new(5);
    let a = cluster.add("a", true, small_config());
    let mut last = None;
    for n in 0..200 {
        let group: Vec<_> = (0..1 + n % 3).map(|i| delete(&format!("k{n} {i}"))).collect();
        for accepted in cluster.mutate(a, &group).expect("accepted") {
            let place = (accepted.lsn, accepted.version);
            assert!(last.is_none_or(|(lsn, version)| lsn < place.0 && version < place.1), "{place:?}");
            last = Some(place);
        }
        if n % 7 == 0 {
            cluster.settle();
        }
    }
}

/// The session of the reference ends at the tail, and fails for ever when a compaction comes between.
#[test]
fn finding_j19_a_session_goes_on_across_compactions_and_as_records_arrive() {
    let mut cluster = Cluster::new(5);
    let a = cluster.add("a", true, small_config());
    let b = cluster.add("b", false, small_config());
    let now = cluster.now;
    let request = cluster.replica(a).handle_members(now, MembersChange::Clear);
    assert_eq!(cluster.done(a, request), Done::Members);
    cluster.connect(a, b).expect("taken up");
    for round in 0..6 {
        for n in 0..30 {
            cluster.mutate(a, &[delete(&format!("key {n}"))]).expect("accepted");
        }
        // The compaction and the batches for b are under way at once.
        for _ in 0..20 {
            cluster.step(a);
            cluster.step(b);
        }
        let _ = cluster.replica(a).handle_compact(now, None);
        cluster.settle();
        let (of_a, of_b) = (cluster.replica(a).status(), cluster.replica(b).status());
        assert_eq!((of_a.tail_digest, of_b.links.len()), (of_b.tail_digest, 1), "{round}");
    }
}

/// What either replica of a node stored is there for both: the node has one blob store.
fn share_blobs(cluster: &mut Cluster, replicas: [usize; 2]) {
    let [one, other] = replicas.map(|at| cluster.nodes[at].host.blobs.stored.clone());
    for at in replicas {
        let stored = &mut cluster.nodes[at].host.blobs.stored;
        stored.extend(one.iter().chain(&other).map(|(key, bytes)| (*key, bytes.clone())));
    }
}

/// The reference keeps one mark a peer for both directions: what B wrote never reaches A.
#[test]
fn finding_d_two_logs_for_two_writers_over_one_blob_store_both_converge_and_lose_nothing() {
    const OF_A: LogId = LogId([1; 16]);
    const OF_B: LogId = LogId([2; 16]);
    let mut cluster = Cluster::new(5);
    // Each node: a replica of the log of A, and one of the log of B.
    let a =
        [(true, OF_A), (false, OF_B)].map(|(writes, log)| cluster.add_log("a", writes, small_config(), log));
    let b =
        [(false, OF_A), (true, OF_B)].map(|(writes, log)| cluster.add_log("b", writes, small_config(), log));
    let (of_a, of_b) = ([a[0], b[0]], [a[1], b[1]]);
    for round in 0..3 {
        // Both logs use the same versions, which in one log would hide the records of one side.
        for n in 0..2 {
            let written = cluster.put(a[0], &format!("a {round} {n}"), b"in both stores");
            assert_eq!(written.version, at(2 * round + n + 1));
        }
        cluster.put(b[1], &format!("b {round}"), b"in both stores");
        cluster.put(b[1], &format!("b {round}, too"), format!("only b has {round}").as_bytes());
        for node in [a, b] {
            share_blobs(&mut cluster, node);
        }
        let links = [of_a, of_b].map(|[one, other]| cluster.connect(one, other).expect("taken up").0);
        cluster.settle();
        for node in [a, b] {
            share_blobs(&mut cluster, node);
        }
        let keys: Vec<usize> = [of_a, of_b]
            .map(|[one, other]| {
                let (written, followed) = (cluster.contents(one), cluster.contents(other));
                assert_eq!(written, followed, "{round}");
                assert!(written.values().all(Option::is_some), "{round}: a blob is lost");
                written.len()
            })
            .to_vec();
        assert_eq!(keys, [2 * (round as usize + 1); 2], "{round}");
        for replica in [a, b].concat() {
            let status = cluster.replica(replica).status();
            assert_eq!(status.tail, at(2 * round + 2), "{round}");
        }
        cluster.cut(a[0], links[0]);
        cluster.cut(a[1], links[1]);
    }
    // A blob that the node had from its other log was not sent again.
    assert_eq!(cluster.nodes[a[0]].host.blobs.reads, 0);
    assert_eq!(cluster.nodes[b[1]].host.blobs.reads, 3);
}
