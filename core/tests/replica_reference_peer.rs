//! Sessions with peers of the reference, which declare nothing of Strandline's: every frame of theirs
//! is written by hand, every answer is looked at.

mod common;

use common::cluster::{Cluster, blob_key, delete, put, small_config};
use common::handshake::reference;
use common::peer::{Peer, record};
use strandline_core::lifecycle::api::{
    Done, Event, LinkRole, MembersChange, PairReason, PeerFaultKind, Verified,
};
use strandline_core::lifecycle::config::ReplicaConfig;
use strandline_core::record::{BlobKey, State, Version};
use strandline_core::verdict::Verdict;
use strandline_core::wire::blob::{BlobMessage, PeerKey};
use strandline_core::wire::capability::{Capabilities, Capability};
use strandline_core::wire::message::Message;
use strandline_core::wire::repair::{Batch, Snapshot};

fn at(sequence: u64) -> Version {
    Version::new(1, sequence)
}

fn present(bytes: &[u8]) -> State {
    State::Present { blob: blob_key(bytes) }
}

fn blob_put(bytes: &[u8]) -> Message {
    Message::Blob(BlobMessage::Put { key: blob_key(bytes).into(), data: bytes.to_vec() })
}

fn blob_ack(bytes: &[u8]) -> Message {
    Message::Blob(BlobMessage::Ack { key: blob_key(bytes).into() })
}

fn ack(watermark: Version) -> Message {
    Message::Ack { watermark }
}

/// An authority with three records: two puts and a delete.
fn authority(config: ReplicaConfig) -> (Cluster, usize) {
    let mut cluster = Cluster::new(1);
    let a = cluster.add("a", true, config);
    cluster.put(a, "one", b"1");
    cluster.put(a, "two", b"");
    cluster.mutate(a, &[delete("one")]).expect("accepted");
    cluster.settle();
    (cluster, a)
}

fn follower() -> (Cluster, usize) {
    let mut cluster = Cluster::new(1);
    let b = cluster.add("b", false, small_config());
    (cluster, b)
}

fn source(cluster: &mut Cluster, a: usize) -> Peer {
    Peer::connect(cluster, a, "r", &reference(), LinkRole::Source)
}

#[test]
fn a_source_waits_for_the_startup_mark_sends_blobs_ahead_and_waits_for_their_acks() {
    let (mut cluster, a) = authority(small_config());
    let mut peer = source(&mut cluster, a);
    assert_eq!(peer.settled(&mut cluster), [], "it waits");
    peer.ack(&mut cluster, Version::ZERO);
    let blobs = peer.settled(&mut cluster);
    assert_eq!(blobs.len(), 2);
    assert!(blobs.contains(&blob_put(b"1")) && blobs.contains(&blob_put(b"")));
    peer.send(&mut cluster, &blob_ack(b"1"));
    assert_eq!(peer.settled(&mut cluster), [], "the other blob is not acknowledged");
    peer.send(&mut cluster, &blob_ack(b""));
    let sent = peer.settled(&mut cluster);
    let [Message::Batch(batch)] = &sent[..] else { panic!("{sent:?}") };
    assert_eq!((batch.from, batch.to, batch.more, batch.records.len()), (Version::ZERO, at(3), false, 3));
    assert_eq!(batch.records[0], record("one", present(b"1"), 1));
    peer.ack(&mut cluster, at(3));
    assert_eq!(peer.settled(&mut cluster), []);
    let status = peer.status(&mut cluster);
    let verdict = Verdict::Complete { through: at(3), verified: Verified::VersionOnly };
    assert_eq!((status.acked, status.verdict), (at(3), Some(verdict)));
    // Live: what comes later flows on.
    cluster.mutate(a, &[delete("two")]).expect("accepted");
    let sent = peer.settled(&mut cluster);
    assert!(matches!(&sent[..], [Message::Batch(b)] if (b.from, b.to) == (at(3), at(4))), "{sent:?}");
}

#[test]
fn a_source_without_reconcile_begins_at_the_book() {
    let (mut cluster, a) = authority(small_config());
    let plain = Capabilities::new([Capability::Lifecycle]).expect("one");
    let mut peer = Peer::connect(&mut cluster, a, "r", &plain, LinkRole::Source);
    assert_eq!(peer.settled(&mut cluster).len(), 2, "blobs of a batch from zero");
    for blob in [b"1".as_slice(), b""] {
        peer.send(&mut cluster, &blob_ack(blob));
    }
    assert_eq!(peer.settled(&mut cluster).len(), 1);
    peer.ack(&mut cluster, at(2));
    let sent = peer.settled(&mut cluster);
    assert!(matches!(&sent[..], [Message::Batch(b)] if b.from == at(2)), "{sent:?}");
    let now = cluster.now;
    cluster.replica(a).handle_link_down(now, peer.link);
    let mut again = Peer::connect(&mut cluster, a, "r", &plain, LinkRole::Source);
    let sent = again.settled(&mut cluster);
    assert!(matches!(&sent[..], [Message::Batch(b)] if b.from == at(2)), "{sent:?}");
    assert_eq!(again.fault(&mut cluster), None);
}

/// Compacts everything away; the floor is then the tail.
fn compacted(config: ReplicaConfig) -> (Cluster, usize) {
    let (mut cluster, a) = authority(config);
    let now = cluster.now;
    let request = cluster.replica(a).handle_members(now, MembersChange::Clear);
    assert_eq!(cluster.done(a, request), Done::Members);
    let request = cluster.replica(a).handle_compact(now, None);
    assert!(matches!(cluster.done(a, request), Done::Compacted(_)));
    cluster.put(a, "three", b"3");
    cluster.put(a, "four", b"4");
    cluster.settle();
    (cluster, a)
}

/// What a startup mark does over floor 1/3 and tail 1/5; then the same as a later one.
fn acked(watermark: Version, later: bool) -> (Cluster, Peer, Vec<Message>) {
    let (mut cluster, a) = compacted(small_config());
    let mut peer = source(&mut cluster, a);
    if later {
        peer.ack(&mut cluster, at(3));
        let _ = peer.settled(&mut cluster);
    }
    peer.ack(&mut cluster, watermark);
    let mut heard = peer.settled(&mut cluster);
    heard.retain(|message| !matches!(message, Message::Blob(BlobMessage::Has { .. })));
    (cluster, peer, heard)
}

#[test]
fn ack_below_the_floor_is_a_gap_and_gets_one_frame() {
    let (mut cluster, mut peer, heard) = acked(at(1), false);
    assert_eq!(heard, [blob_put(b"")]);
    let verdict = peer.status(&mut cluster).verdict;
    assert!(matches!(verdict, Some(Verdict::Gap { reason: PairReason::BelowFloor, .. })), "{verdict:?}");
    peer.send(&mut cluster, &blob_ack(b""));
    let heard = peer.settled(&mut cluster);
    let records = vec![record("two", present(b""), 2)];
    assert_eq!(heard, [Message::Snapshot(Snapshot { watermark: at(3), records })]);
    peer.ack(&mut cluster, at(3));
    assert_eq!(peer.settled(&mut cluster).len(), 2, "the blobs of what comes after");
}

#[test]
fn ack_at_the_floor_gets_the_journal() {
    let (_, _, heard) = acked(at(3), false);
    assert_eq!(heard.len(), 2, "two blobs: {heard:?}");
}

#[test]
fn ack_of_a_record_of_ours_goes_on_from_there() {
    let (_, _, heard) = acked(at(4), false);
    assert_eq!(heard, [blob_put(b"4")]);
}

#[test]
fn ack_above_the_tail_is_diverged() {
    for later in [false, true] {
        let (mut cluster, peer, _) = acked(at(6), later);
        let status = peer.status(&mut cluster);
        let reason = PairReason::AheadOfTail;
        assert!(matches!(&status.verdict, Some(Verdict::Diverged(d)) if d.reason == reason), "{status:?}");
        assert_eq!(status.state, "stopped");
    }
}

#[test]
fn ack_between_floor_and_tail_that_is_not_ours() {
    for later in [false, true] {
        let (mut cluster, a) = compacted(small_config());
        // Versions that were reserved and burned are nobody's.
        cluster.kill(a);
        cluster.restart(a);
        cluster.put(a, "five", b"5");
        cluster.settle();
        let mut peer = source(&mut cluster, a);
        if later {
            peer.ack(&mut cluster, at(3));
            let _ = peer.settled(&mut cluster);
        }
        peer.ack(&mut cluster, at(6));
        cluster.settle();
        if later {
            assert_eq!(peer.fault(&mut cluster), Some(PeerFaultKind::Acknowledgement));
        } else {
            let verdict = peer.status(&mut cluster).verdict;
            let reason = PairReason::ForeignVersion;
            assert!(matches!(&verdict, Some(Verdict::Diverged(d)) if d.reason == reason), "{verdict:?}");
        }
    }
}

#[test]
fn acks_while_a_snapshot_frame_is_read_read_it_once() {
    let (mut cluster, a) = compacted(small_config());
    let mut peer = source(&mut cluster, a);
    // Fewer than end repair for want of progress.
    for _ in 0..5 {
        peer.ack(&mut cluster, Version::ZERO);
    }
    cluster.drain(a);
    assert_eq!(cluster.nodes[a].host.commands.len(), 1, "one read of the checkpoint");
    assert_eq!(peer.settled(&mut cluster), [blob_put(b"")]);
}

#[test]
fn a_verdict_while_a_snapshot_frame_is_read_stays() {
    let (mut cluster, a) = compacted(small_config());
    let mut peer = source(&mut cluster, a);
    peer.ack(&mut cluster, Version::ZERO);
    peer.ack(&mut cluster, at(99));
    assert_eq!(peer.settled(&mut cluster), [], "nothing is sent after the verdict");
    assert_eq!(peer.status(&mut cluster).state, "stopped");
}

#[test]
fn blobs_that_cannot_be_sent_are_a_verdict() {
    for (missing, reason) in [(true, PairReason::BlobMissing), (false, PairReason::BlobTooLarge)] {
        let mut cluster = Cluster::new(1);
        let a = cluster.add("a", true, small_config());
        let bytes = vec![7; 4 << 20];
        if missing {
            cluster.mutate(a, &[put("k", BlobKey([3; 32]))]).expect("accepted");
        } else {
            cluster.put(a, "k", &bytes);
        }
        cluster.settle();
        let mut peer = source(&mut cluster, a);
        peer.ack(&mut cluster, Version::ZERO);
        assert_eq!(peer.settled(&mut cluster), []);
        assert_eq!(peer.status(&mut cluster).verdict, Some(Verdict::Unknown { reason }));
        // What it asks for itself is still answered.
        cluster.put(a, "small", b"s");
        peer.send(&mut cluster, &Message::Blob(BlobMessage::Get { key: blob_key(b"s").into() }));
        assert_eq!(peer.settled(&mut cluster), [blob_put(b"s")]);
    }
}

#[test]
fn a_snapshot_goes_when_none_of_its_blobs_is_missing_not_when_one_less_is() {
    let (first, second) = (BlobKey([3; 32]), BlobKey([4; 32]));
    for superseded in ["one", "two"] {
        let mut cluster = Cluster::new(1);
        let a = cluster.add("a", true, small_config());
        cluster.mutate(a, &[put("one", first), put("two", second)]).expect("accepted");
        cluster.settle();
        let now = cluster.now;
        let request = cluster.replica(a).handle_members(now, MembersChange::Clear);
        assert_eq!(cluster.done(a, request), Done::Members);
        let request = cluster.replica(a).handle_compact(now, None);
        assert!(matches!(cluster.done(a, request), Done::Compacted(_)));
        let mut peer = source(&mut cluster, a);
        peer.ack(&mut cluster, Version::ZERO);
        assert_eq!(peer.settled(&mut cluster), []);
        // Of the two that are missing one is needed no more.
        cluster.mutate(a, &[delete(superseded)]).expect("accepted");
        assert_eq!(peer.settled(&mut cluster), [], "{superseded}: the other record has no blob");
        let missing = Some(Verdict::Unknown { reason: PairReason::BlobMissing });
        assert_eq!(peer.status(&mut cluster).verdict, missing);
        let other = if superseded == "one" { "two" } else { "one" };
        cluster.mutate(a, &[delete(other)]).expect("accepted");
        let heard = peer.settled(&mut cluster);
        assert_eq!(heard, [Message::Snapshot(Snapshot { watermark: at(2), records: Vec::new() })]);
    }
}

#[test]
fn blobs_asked_for_are_put_and_foreign_keys_ignored() {
    let (mut cluster, a) = authority(small_config());
    let mut peer = source(&mut cluster, a);
    let foreign = PeerKey::from_bytes(b"not a digest");
    let keys = vec![blob_key(b"1").into(), foreign.clone(), BlobKey([9; 32]).into(), blob_key(b"").into()];
    peer.send(&mut cluster, &Message::Blob(BlobMessage::Missing { keys }));
    let heard = peer.settled(&mut cluster);
    assert_eq!(heard.len(), 2, "{heard:?}");
    assert!(heard.contains(&blob_put(b"1")) && heard.contains(&blob_put(b"")));
    peer.send(&mut cluster, &Message::Blob(BlobMessage::Put { key: foreign.clone(), data: vec![1] }));
    peer.send(&mut cluster, &Message::Blob(BlobMessage::Get { key: foreign.clone() }));
    peer.send(&mut cluster, &Message::Blob(BlobMessage::Ack { key: foreign }));
    assert_eq!(peer.settled(&mut cluster), []);
    assert_eq!(peer.fault(&mut cluster), None);
}

fn batch(from: u64, records: Vec<strandline_core::record::Record>) -> Message {
    let to = records.last().map_or(at(from), |record| record.version);
    let from = if from == 0 { Version::ZERO } else { at(from) };
    Message::Batch(Batch { from, to, more: false, records })
}

#[test]
fn a_receiver_says_its_mark_takes_blobs_ahead_and_acknowledges_what_is_durable() {
    let (mut cluster, b) = follower();
    let mut peer = Peer::connect(&mut cluster, b, "r", &reference(), LinkRole::Receiver);
    assert_eq!(peer.settled(&mut cluster), [ack(Version::ZERO)]);
    let has = Message::Blob(BlobMessage::Has { keys: vec![blob_key(b"x").into()] });
    peer.send(&mut cluster, &has);
    let missing = Message::Blob(BlobMessage::Missing { keys: vec![blob_key(b"x").into()] });
    assert_eq!(peer.settled(&mut cluster), [missing]);
    peer.send(&mut cluster, &blob_put(b"x"));
    assert_eq!(peer.settled(&mut cluster), [blob_ack(b"x")]);
    peer.send(&mut cluster, &has);
    assert_eq!(peer.settled(&mut cluster), [], "nothing is missing: silence");
    peer.send(&mut cluster, &batch(0, vec![record("k", present(b"x"), 1), record("l", State::Deleted, 4)]));
    assert_eq!(peer.heard(&mut cluster), [], "not durable yet");
    assert_eq!(peer.settled(&mut cluster), [ack(at(4))]);
    assert_eq!(cluster.contents(b).len(), 1);
    // A duplicate is acknowledged with our tail, as the reference does.
    peer.send(&mut cluster, &batch(0, vec![record("k", present(b"x"), 1)]));
    assert_eq!(peer.settled(&mut cluster), [ack(at(4))]);
    // A blob that did not come ahead is asked for.
    peer.send(&mut cluster, &batch(4, vec![record("m", present(b"y"), 5)]));
    let get = Message::Blob(BlobMessage::Get { key: blob_key(b"y").into() });
    assert_eq!(peer.settled(&mut cluster), [get]);
    peer.send(&mut cluster, &blob_put(b"y"));
    let heard = peer.settled(&mut cluster);
    assert_eq!(heard, [blob_ack(b"y"), ack(at(5))]);
    // A hole is the peer's fault.
    peer.send(&mut cluster, &batch(7, vec![record("n", State::Deleted, 8)]));
    assert_eq!(peer.fault(&mut cluster), Some(PeerFaultKind::Order));
}

#[test]
fn what_comes_twice_is_acknowledged_once_it_is_durable() {
    let (mut cluster, b) = follower();
    let one = Peer::connect(&mut cluster, b, "r", &reference(), LinkRole::Receiver);
    let mut two = Peer::connect(&mut cluster, b, "s", &reference(), LinkRole::Receiver);
    let _ = two.settled(&mut cluster);
    let same = batch(0, vec![record("k", State::Deleted, 1)]);
    one.send(&mut cluster, &same);
    two.send(&mut cluster, &same);
    assert_eq!(two.heard(&mut cluster), [], "submitted, not durable yet");
    assert_eq!(two.settled(&mut cluster), [ack(at(1))]);
}

#[test]
fn records_wait_for_their_blobs_whatever_else_becomes_durable() {
    let (mut cluster, b) = follower();
    let mut one = Peer::connect(&mut cluster, b, "r", &reference(), LinkRole::Receiver);
    let mut two = Peer::connect(&mut cluster, b, "s", &reference(), LinkRole::Receiver);
    let _ = (one.settled(&mut cluster), two.settled(&mut cluster));
    one.send(&mut cluster, &batch(0, vec![record("k", State::Deleted, 1)]));
    // Guessed, before anything is durable.
    two.send(&mut cluster, &batch(1, vec![record("l", present(b"never sent"), 2)]));
    cluster.run(b, |command| matches!(command, strandline_core::lifecycle::command::Command::Storage(_)));
    cluster.settle();
    assert_eq!(cluster.replica(b).status().submitted, at(1), "a record whose blob is missing waits");
}

#[test]
fn an_answer_about_the_blobs_of_one_batch_says_nothing_of_the_next() {
    use strandline_core::lifecycle::command::{BlobCommand, Command};
    let (mut cluster, b) = follower();
    let mut one = Peer::connect(&mut cluster, b, "r", &reference(), LinkRole::Receiver);
    let two = Peer::connect(&mut cluster, b, "s", &reference(), LinkRole::Receiver);
    one.send(&mut cluster, &blob_put(b"x"));
    let _ = one.settled(&mut cluster);
    let storage = |command: &Command| matches!(command, Command::Storage(_));
    // The look at x stays out while another link brings the same record.
    one.send(&mut cluster, &batch(0, vec![record("k", present(b"x"), 1)]));
    cluster.drain(b);
    let look = cluster.nodes[b]
        .host
        .commands
        .iter()
        .position(|c| matches!(c, Command::Blob(BlobCommand::Stat { .. })));
    let held = cluster.nodes[b].host.commands.remove(look.expect("a look"));
    two.send(&mut cluster, &batch(0, vec![record("k", present(b"x"), 1)]));
    cluster.run(b, |_| true);
    assert_eq!(cluster.replica(b).status().tail, at(1));
    one.send(&mut cluster, &batch(1, vec![record("l", present(b"never sent"), 2)]));
    cluster.drain(b);
    cluster.nodes[b].host.commands.insert(0, held);
    cluster.run(b, storage);
    cluster.settle();
    assert_eq!(cluster.replica(b).status().submitted, at(1));
}

#[test]
fn a_receiver_takes_a_snapshot_in_one_frame() {
    let (mut cluster, b) = follower();
    let mut peer = Peer::connect(&mut cluster, b, "r", &reference(), LinkRole::Receiver);
    peer.send(&mut cluster, &blob_put(b"x"));
    let _ = peer.settled(&mut cluster);
    let records = vec![record("k", present(b"x"), 2), record("l", State::Deleted, 3)];
    let snapshot = Message::Snapshot(Snapshot { watermark: at(5), records });
    peer.send(&mut cluster, &snapshot);
    assert_eq!(peer.settled(&mut cluster), [ack(at(5))]);
    assert!(cluster.nodes[b].host.events.contains(&Event::Installed { cut: at(5), records: 2 }));
    peer.send(&mut cluster, &snapshot);
    assert_eq!(peer.settled(&mut cluster), [ack(at(5))], "we have it already");
    peer.send(&mut cluster, &batch(5, vec![record("m", State::Deleted, 6)]));
    assert_eq!(peer.settled(&mut cluster), [ack(at(6))]);
    cluster.kill(b);
    cluster.restart(b);
    assert_eq!((cluster.replica(b).status().tail, cluster.contents(b).len()), (at(6), 1));
    // One below our tail, at a version that is not ours, would drop records: diverged.
    let mut other = Peer::connect(&mut cluster, b, "s", &reference(), LinkRole::Receiver);
    let _ = other.settled(&mut cluster);
    peer = other;
    peer.send(&mut cluster, &batch(6, vec![record("m", State::Deleted, 9)]));
    let _ = peer.settled(&mut cluster);
    peer.send(&mut cluster, &Message::Snapshot(Snapshot { watermark: at(8), records: Vec::new() }));
    cluster.settle();
    assert!(matches!(peer.status(&mut cluster).verdict, Some(Verdict::Diverged(_))));
}

#[test]
fn a_snapshot_below_what_is_submitted_waits_until_that_is_durable() {
    let (mut cluster, b) = follower();
    let one = Peer::connect(&mut cluster, b, "r", &reference(), LinkRole::Receiver);
    let mut two = Peer::connect(&mut cluster, b, "s", &reference(), LinkRole::Receiver);
    let _ = two.settled(&mut cluster);
    one.send(&mut cluster, &batch(0, vec![record("k", State::Deleted, 1), record("l", State::Deleted, 2)]));
    let records = vec![record("k", State::Deleted, 1)];
    two.send(&mut cluster, &Message::Snapshot(Snapshot { watermark: at(1), records }));
    assert_eq!(two.settled(&mut cluster), [ack(at(2))], "it is in our log: our tail, as the reference does");
}

#[test]
fn the_direction_a_role_does_not_have_is_refused() {
    let (mut cluster, a) = authority(small_config());
    let peer = source(&mut cluster, a);
    peer.send(&mut cluster, &batch(3, vec![record("k", State::Deleted, 9)]));
    cluster.settle();
    assert!(matches!(peer.status(&mut cluster).verdict, Some(Verdict::Diverged(_))));
    let (mut cluster, b) = follower();
    let peer = source(&mut cluster, b);
    peer.send(&mut cluster, &batch(0, vec![record("k", State::Deleted, 9)]));
    assert_eq!(peer.fault(&mut cluster), Some(PeerFaultKind::Sequence));
}

#[test]
fn a_startup_mark_on_a_link_that_only_receives_changes_nothing() {
    let (mut cluster, b) = follower();
    let mut peer = Peer::connect(&mut cluster, b, "r", &reference(), LinkRole::Receiver);
    peer.ack(&mut cluster, at(7));
    assert_eq!(peer.settled(&mut cluster), [ack(Version::ZERO)], "our own mark");
    peer.send(&mut cluster, &batch(0, vec![record("k", State::Deleted, 9)]));
    assert_eq!(peer.settled(&mut cluster), [ack(at(9))]);
    assert_eq!(peer.fault(&mut cluster), None);
}
