//! Peers that break rules, and links that come and go at the worst time: the link ends, nothing of ours
//! changes, nothing of ours waits for ever.

mod common;

use common::cluster::{Cluster, Rng, blob_key, small_config};
use common::handshake::reference;
use common::peer::{Peer, record, snapshot};
use sha2::{Digest as _, Sha256};
use strandline_core::journal::command::{FileName, StorageCommand};
use strandline_core::lifecycle::api::{
    Done, Event, Flow, LinkRole, MembersChange, PairReason, PeerFaultKind,
};
use strandline_core::lifecycle::command::{BlobCommand, Command};
use strandline_core::machine::Machine;
use strandline_core::record::{Record, State, Version};
use strandline_core::verdict::Verdict;
use strandline_core::wire::blob::BlobMessage;
use strandline_core::wire::message::Message;
use strandline_core::wire::own::{
    BlobRange, BlobRangeGet, DigestAt, DigestGet, Mark, OwnMessage, Position, SnapshotChunk, SnapshotGet,
    Stop, StopVerdict,
};
use strandline_core::wire::repair::{Batch, Snapshot};

const ZERO: Version = Version::ZERO;

fn at(sequence: u64) -> Version {
    Version::new(1, sequence)
}

fn present(bytes: &[u8]) -> State {
    State::Present { blob: blob_key(bytes) }
}

fn batch(from: Version, records: Vec<Record>) -> Message {
    let to = records.last().map_or(from, |record| record.version);
    Message::Batch(Batch { from, to, more: false, records })
}

fn chunk(offset: u64, data: &[u8]) -> OwnMessage {
    OwnMessage::SnapshotChunk(SnapshotChunk { offset, data: data.to_vec() })
}

fn storage(command: &Command) -> bool {
    matches!(command, Command::Storage(_))
}

/// A follower and a Strandline peer that stands above it, floor included.
fn behind(cut: Version) -> (Cluster, usize, Peer) {
    let mut cluster = Cluster::new(1);
    let b = cluster.add("b", false, small_config());
    let mut peer = Peer::native(&mut cluster, b, "p");
    peer.stand(&mut cluster, cut, cut);
    let _ = peer.settled(&mut cluster);
    (cluster, b, peer)
}

#[test]
fn nothing_comes_before_the_standing() {
    let (offer, _) = snapshot(at(9), &[]);
    for message in [
        batch(ZERO, vec![record("k", State::Deleted, 1)]),
        Message::Own(OwnMessage::SnapshotOffer(offer)),
        Message::Snapshot(Snapshot { watermark: at(9), records: Vec::new() }),
        Message::Ack { watermark: ZERO },
    ] {
        let mut cluster = Cluster::new(1);
        let b = cluster.add("b", false, small_config());
        let peer = Peer::native(&mut cluster, b, "p");
        peer.send(&mut cluster, &message);
        assert_eq!(peer.fault(&mut cluster), Some(PeerFaultKind::Sequence), "{message:?}");
        cluster.settle();
        assert_eq!(cluster.replica(b).status().submitted, ZERO);
    }
}

#[test]
fn a_piece_too_many_never_touches_an_installation_that_commits() {
    for executed in 0..6 {
        let (offer, bytes) = snapshot(at(9), &[record("k", State::Deleted, 1)]);
        let (mut cluster, b, peer) = behind(at(9));
        peer.send_own(&mut cluster, OwnMessage::SnapshotOffer(offer));
        peer.send_own(&mut cluster, chunk(0, &bytes));
        for _ in 0..executed {
            cluster.step(b);
        }
        peer.send_own(&mut cluster, chunk(0, b"x"));
        cluster.settle();
        cluster.kill(b);
        cluster.restart(b);
        let tail = cluster.replica(b).status().tail;
        assert!(tail == ZERO || tail == at(9), "{executed}: {tail}");
    }
}

#[test]
fn answers_to_an_abandoned_installation_say_nothing_of_the_next() {
    let records: Vec<Record> = (0..2_000)
        .map(|i| {
            record(&format!("a key with some bytes, so that there are pieces, {i:080}"), State::Deleted, 1)
        })
        .collect();
    let (offer, bytes) = snapshot(at(9), &records);
    let (first, rest) = bytes.split_at(256 << 10);
    let (mut cluster, b, peer) = behind(at(9));
    peer.send_own(&mut cluster, OwnMessage::SnapshotOffer(offer));
    peer.send_own(&mut cluster, chunk(0, first));
    peer.send_own(&mut cluster, chunk(first.len() as u64, &rest[1..]));
    assert_eq!(peer.fault(&mut cluster), Some(PeerFaultKind::Snapshot));
    let kept: Vec<Command> = cluster.nodes[b].host.commands.drain(..).collect();
    let mut other = Peer::native(&mut cluster, b, "q");
    other.stand(&mut cluster, at(9), at(9));
    other.send_own(&mut cluster, OwnMessage::SnapshotOffer(offer));
    cluster.nodes[b].host.commands.extend(kept);
    cluster.run(b, |_| true);
    other.send_own(&mut cluster, chunk(0, first));
    other.send_own(&mut cluster, chunk(first.len() as u64, rest));
    let heard = other.settled(&mut cluster);
    assert!(heard.contains(&Message::Ack { watermark: at(9) }), "{heard:?}");
    assert_eq!(cluster.replica(b).status().tail, at(9));
}

#[test]
fn a_snapshot_whose_link_went_away_holds_nobody_up() {
    let (offer, _) = snapshot(at(9), &[record("k", State::Deleted, 1)]);
    let (mut cluster, b, peer) = behind(at(9));
    peer.send_own(&mut cluster, OwnMessage::SnapshotOffer(offer));
    // Another peer has the journal from the beginning.
    let mut other = Peer::native(&mut cluster, b, "q");
    other.stand(&mut cluster, ZERO, at(9));
    other.send(
        &mut cluster,
        &batch(ZERO, vec![record("k", State::Deleted, 1), record("l", State::Deleted, 9)]),
    );
    let heard = other.settled(&mut cluster);
    assert!(!heard.iter().any(|m| matches!(m, Message::Ack { .. })), "it waits for the snapshot");
    let now = cluster.now;
    cluster.replica(b).handle_link_down(now, peer.link);
    assert_eq!(other.settled_but_position(&mut cluster), [Message::Ack { watermark: at(9) }]);
    assert!(!cluster.replica(b).status().installing);
    cluster.settle();
    let files = &cluster.nodes[b].host.disk.files;
    assert!(!files.keys().any(|f| matches!(f, FileName::Checkpoint(_))), "what was given up is removed");
}

#[test]
fn another_link_goes_on_with_a_snapshot_that_one_gives_up() {
    let (offer, bytes) = snapshot(at(9), &[record("k", present(b"blob"), 1)]);
    for by_verdict in [false, true] {
        let (mut cluster, b, mut peer) = behind(at(9));
        peer.send_own(&mut cluster, OwnMessage::SnapshotOffer(offer));
        peer.send_own(&mut cluster, chunk(0, &bytes));
        let asked = peer.settled(&mut cluster);
        assert!(asked.iter().any(|m| matches!(m, Message::Own(OwnMessage::BlobRangeGet(_)))), "{asked:?}");
        let mut other = Peer::native(&mut cluster, b, "q");
        other.stand(&mut cluster, at(9), at(9));
        other.send_own(&mut cluster, OwnMessage::SnapshotOffer(offer));
        let _ = other.settled(&mut cluster);
        if by_verdict {
            peer.send_own(&mut cluster, OwnMessage::BlobAbsent { key: blob_key(b"blob") });
            let reason = PairReason::BlobMissing;
            assert_eq!(peer.status(&mut cluster).verdict, Some(Verdict::Unknown { reason }));
        } else {
            let now = cluster.now;
            cluster.replica(b).handle_link_down(now, peer.link);
        }
        let asked = other.settled(&mut cluster);
        assert!(asked.iter().any(|m| matches!(m, Message::Own(OwnMessage::BlobRangeGet(_)))), "{asked:?}");
        let (key, data) = (blob_key(b"blob"), b"blob".to_vec());
        other.send_own(&mut cluster, OwnMessage::BlobRange(BlobRange { key, offset: 0, total: 4, data }));
        assert_eq!(other.settled_but_position(&mut cluster), [Message::Ack { watermark: at(9) }]);
    }
}

#[test]
fn an_offer_made_again_is_read_again() {
    let (offer, bytes) = snapshot(at(9), &[record("k", State::Deleted, 1)]);
    let (mut cluster, _, mut peer) = behind(at(9));
    for _ in 0..2 {
        peer.send_own(&mut cluster, OwnMessage::SnapshotOffer(offer));
        let get = SnapshotGet { sha256: offer.sha256, offset: 0 };
        assert_eq!(peer.settled(&mut cluster), [Message::Own(OwnMessage::SnapshotGet(get))]);
    }
    peer.send_own(&mut cluster, chunk(0, &bytes));
    assert_eq!(peer.settled_but_position(&mut cluster), [Message::Ack { watermark: at(9) }]);
}

#[test]
fn a_joiner_during_the_commit_of_a_compaction_is_offered_what_is_there() {
    let mut cluster = Cluster::new(1);
    let a = cluster.add("a", true, small_config());
    cluster.put(a, "k", b"1");
    cluster.settle();
    let now = cluster.now;
    let request = cluster.replica(a).handle_members(now, MembersChange::Clear);
    cluster.done(a, request);
    let request = cluster.replica(a).handle_compact(now, None);
    cluster.done(a, request);
    cluster.put(a, "l", b"2");
    cluster.settle();
    cluster.replica(a).handle_compact(now, None);
    cluster.run(a, |c| !matches!(c, Command::Storage(StorageCommand::Replace { .. })));
    let mut peer = Peer::native(&mut cluster, a, "p");
    peer.stand(&mut cluster, ZERO, ZERO);
    let heard = peer.heard(&mut cluster);
    let offer = heard.iter().find_map(|m| {
        let Message::Own(OwnMessage::SnapshotOffer(offer)) = m else { return None };
        Some(*offer)
    });
    let offer = offer.expect("an offer");
    assert_eq!((offer.cut, offer.records), (at(1), 1));
    peer.send_own(&mut cluster, OwnMessage::SnapshotGet(SnapshotGet { sha256: offer.sha256, offset: 0 }));
    let heard = peer.settled(&mut cluster);
    let whole = heard.iter().any(|m| {
        let Message::Own(OwnMessage::SnapshotChunk(c)) = m else { return false };
        Sha256::digest(&c.data)[..] == offer.sha256
    });
    assert!(whole, "{heard:?}");
}

#[test]
fn a_checkpoint_that_a_peer_reads_outlives_the_next_compaction() {
    let mut cluster = Cluster::new(1);
    let a = cluster.add("a", true, small_config());
    let now = cluster.now;
    let request = cluster.replica(a).handle_members(now, MembersChange::Clear);
    cluster.done(a, request);
    let compact = |cluster: &mut Cluster, key: &str| {
        cluster.put(a, key, b"1");
        cluster.settle();
        let now = cluster.now;
        let request = cluster.replica(a).handle_compact(now, None);
        assert!(matches!(cluster.done(a, request), Done::Compacted(_)));
    };
    compact(&mut cluster, "k");
    let mut peer = Peer::native(&mut cluster, a, "p");
    peer.stand(&mut cluster, ZERO, ZERO);
    let heard = peer.settled(&mut cluster);
    let offer = heard.iter().find_map(|m| {
        let Message::Own(OwnMessage::SnapshotOffer(offer)) = m else { return None };
        Some(*offer)
    });
    let sha256 = offer.expect("an offer").sha256;
    compact(&mut cluster, "l");
    peer.send_own(&mut cluster, OwnMessage::SnapshotGet(SnapshotGet { sha256, offset: 0 }));
    let heard = peer.settled(&mut cluster);
    let whole = heard.iter().any(|m| {
        let Message::Own(OwnMessage::SnapshotChunk(c)) = m else { return false };
        Sha256::digest(&c.data)[..] == sha256
    });
    assert!(whole, "{heard:?}");
}

#[test]
fn a_batch_of_other_records_below_our_tail_is_another_history() {
    let mut cluster = Cluster::new(1);
    let b = cluster.add("b", false, small_config());
    let mut peer = Peer::native(&mut cluster, b, "p");
    peer.stand(&mut cluster, ZERO, at(1));
    peer.send(&mut cluster, &batch(ZERO, vec![record("k", State::Deleted, 1)]));
    assert!(peer.settled(&mut cluster).contains(&Message::Ack { watermark: at(1) }));
    peer.send(&mut cluster, &batch(ZERO, vec![record("another", State::Deleted, 1)]));
    cluster.settle();
    let verdict = peer.status(&mut cluster).verdict;
    assert!(
        matches!(&verdict, Some(Verdict::Diverged(d)) if d.reason == PairReason::OtherHistory),
        "{verdict:?}"
    );
}

#[test]
fn a_piece_of_a_blob_that_came_otherwise_is_no_fault() {
    let mut cluster = Cluster::new(1);
    let b = cluster.add("b", false, small_config());
    let mut peer = Peer::native(&mut cluster, b, "p");
    peer.stand(&mut cluster, ZERO, at(1));
    peer.send(&mut cluster, &batch(ZERO, vec![record("k", present(b"x"), 1)]));
    let asked = peer.settled(&mut cluster);
    assert!(asked.iter().any(|m| matches!(m, Message::Own(OwnMessage::BlobRangeGet(_)))), "{asked:?}");
    let other = Peer::connect(&mut cluster, b, "r", &reference(), LinkRole::Receiver);
    let put = BlobMessage::Put { key: blob_key(b"x").into(), data: b"x".to_vec() };
    other.send(&mut cluster, &Message::Blob(put));
    assert_eq!(peer.settled_but_position(&mut cluster), [Message::Ack { watermark: at(1) }]);
    let piece = BlobRange { key: blob_key(b"x"), offset: 0, total: 1, data: b"x".to_vec() };
    peer.send_own(&mut cluster, OwnMessage::BlobRange(piece));
    assert_eq!(peer.fault(&mut cluster), None);
}

#[test]
fn a_peer_that_was_ahead_is_compared_once_we_are_there() {
    for reached in [2, 3] {
        let mut cluster = Cluster::new(1);
        let b = cluster.add("b", false, small_config());
        let mut peer = Peer::native(&mut cluster, b, "p");
        let tail = Mark { version: at(2), digest: Some([9; 32]) };
        let position = Position { floor: Mark::default(), tail, epochs: Vec::new() };
        peer.send_own(&mut cluster, OwnMessage::Position(position));
        let other = Peer::native(&mut cluster, b, "q");
        other.stand(&mut cluster, ZERO, at(reached));
        let records = (1..=reached).map(|i| record("k", State::Deleted, i)).collect();
        other.send(&mut cluster, &batch(ZERO, records));
        let heard = peer.settled(&mut cluster);
        assert!(!heard.iter().any(|m| matches!(m, Message::Batch(_))), "nothing goes onto another history");
        let asked = Message::Own(OwnMessage::DigestGet(DigestGet { version: at(1) }));
        assert!(heard.contains(&asked), "it is searched where they part: {heard:?}");
        peer.send_own(
            &mut cluster,
            OwnMessage::Digest(DigestAt { version: at(1), digest: Some([9; 32]), asks: false }),
        );
        peer.settled(&mut cluster);
        let verdict = peer.status(&mut cluster).verdict;
        let expected = (PairReason::OtherHistory, at(1));
        assert!(
            matches!(&verdict, Some(Verdict::Diverged(d)) if (d.reason, d.at) == expected),
            "{verdict:?}"
        );
    }
}

#[test]
fn a_snapshot_waits_for_a_compaction() {
    let mut cluster = Cluster::new(1);
    let b = cluster.add("b", false, small_config());
    let mut peer = Peer::native(&mut cluster, b, "p");
    peer.stand(&mut cluster, ZERO, at(2));
    peer.send(
        &mut cluster,
        &batch(ZERO, vec![record("k", State::Deleted, 1), record("l", State::Deleted, 2)]),
    );
    let _ = peer.settled(&mut cluster);
    let now = cluster.now;
    let request = cluster.replica(b).handle_members(now, MembersChange::Clear);
    cluster.done(b, request);
    let request = cluster.replica(b).handle_compact(now, None);
    let (offer, bytes) = snapshot(at(9), &[record("k", State::Deleted, 1)]);
    peer.send_own(&mut cluster, OwnMessage::SnapshotOffer(offer));
    assert!(matches!(cluster.done(b, request), Done::Compacted(_)));
    peer.send_own(&mut cluster, chunk(0, &bytes));
    let heard = peer.settled(&mut cluster);
    assert!(heard.contains(&Message::Ack { watermark: at(9) }), "{heard:?}");
    cluster.kill(b);
    cluster.restart(b);
    assert_eq!(cluster.replica(b).status().floor, at(9));
}

#[test]
fn a_follower_with_a_full_journal_goes_on_after_compaction() {
    let mut cluster = Cluster::new(1);
    let mut config = small_config();
    config.journal.journal_entries_max = 200;
    let b = cluster.add("b", false, config);
    let mut peer = Peer::native(&mut cluster, b, "p");
    peer.stand(&mut cluster, ZERO, at(1000));
    let mut from = ZERO;
    loop {
        let next = from.sequence + 1..from.sequence + 11;
        peer.send(&mut cluster, &batch(from, next.map(|i| record("k", State::Deleted, i)).collect()));
        if peer.settled(&mut cluster).is_empty() {
            break;
        }
        from = at(from.sequence + 10);
    }
    let now = cluster.now;
    let request = cluster.replica(b).handle_members(now, MembersChange::Clear);
    cluster.done(b, request);
    let request = cluster.replica(b).handle_compact(now, None);
    assert!(matches!(cluster.done(b, request), Done::Compacted(_)));
    assert!(peer.settled(&mut cluster).contains(&Message::Ack { watermark: at(from.sequence + 10) }));
}

#[test]
fn what_a_peer_makes_the_disk_do_is_bounded() {
    let flood = |message: &Message| {
        let mut cluster = Cluster::new(1);
        let b = cluster.add("b", false, small_config());
        let peer = Peer::native(&mut cluster, b, "p");
        peer.stand(&mut cluster, ZERO, ZERO);
        let mut paused = false;
        for _ in 0..100 {
            paused |= peer.send(&mut cluster, message) == Flow::Pause;
            cluster.drain(b);
        }
        assert!(paused, "{message:?}");
        let out = cluster.nodes[b].host.commands.iter().filter(|c| !storage(c)).count();
        assert!(out <= small_config().blob_requests_max as usize, "{out}");
        assert_eq!(peer.fault(&mut cluster), None, "asking for much is no fault");
        // All of it is done in the end, and the link takes bytes again.
        cluster.settle();
        let resumed = |e: &Event| matches!(e, Event::Resume { link } if *link == peer.link);
        assert!(cluster.nodes[b].host.events.iter().any(resumed));
    };
    flood(&Message::Blob(BlobMessage::Has { keys: vec![blob_key(b"x").into()] }));
    flood(&Message::Blob(BlobMessage::Put { key: blob_key(b"x").into(), data: b"x".to_vec() }));
    let get = BlobRangeGet { key: blob_key(b"x"), offset: 0, bytes: 1 };
    flood(&Message::Own(OwnMessage::BlobRangeGet(get)));
}

#[test]
fn a_link_that_paused_for_room_is_told_whoever_finds_the_room() {
    let mut config = small_config();
    config.link_queue_bytes_max = 100;
    let mut cluster = Cluster::new(1);
    let b = cluster.add("b", false, config);
    let mut peer = Peer::native(&mut cluster, b, "p");
    peer.stand(&mut cluster, ZERO, ZERO);
    let _ = peer.settled(&mut cluster);
    let has = Message::Blob(BlobMessage::Has { keys: vec![blob_key(b"x").into()] });
    let mut paused = false;
    while !paused {
        paused = peer.send(&mut cluster, &has) == Flow::Pause;
        // The disk answers, and nobody takes the frames that tell so.
        let now = cluster.now;
        let node = &mut cluster.nodes[b];
        let replica = node.replica.as_mut().expect("up");
        while let Some(command) = replica.poll_command() {
            node.host.commands.push(command);
        }
        while let Some(completion) = node.host.step(&mut cluster.rng) {
            replica.handle_completion(now, completion);
        }
    }
    let _ = peer.heard(&mut cluster);
    cluster.nodes[b].host.events.clear();
    assert_eq!(peer.send(&mut cluster, &has), Flow::More, "there is room again");
    cluster.drain(b);
    let resumed = |e: &Event| matches!(e, Event::Resume { link } if *link == peer.link);
    assert!(cluster.nodes[b].host.events.iter().any(resumed), "what was held back goes on");
}

#[test]
fn pieces_wait_for_the_disk() {
    let mut cluster = Cluster::new(1);
    let b = cluster.add("b", false, small_config());
    let mut peer = Peer::native(&mut cluster, b, "p");
    peer.stand(&mut cluster, ZERO, at(1));
    let blob = vec![7; 100 << 18];
    peer.send(&mut cluster, &batch(ZERO, vec![record("k", present(&blob), 1)]));
    cluster.run(b, |c| matches!(c, Command::Blob(BlobCommand::Stat { .. })));
    // The disk writes nothing while pieces come.
    for _ in 0..200 {
        for message in peer.heard(&mut cluster) {
            let Message::Own(OwnMessage::BlobRangeGet(get)) = message else { continue };
            let from = get.offset as usize;
            let data = blob[from..from + get.bytes as usize].to_vec();
            let piece = BlobRange { key: get.key, offset: get.offset, total: blob.len() as u64, data };
            peer.send_own(&mut cluster, OwnMessage::BlobRange(piece));
        }
    }
    let writes = cluster.nodes[b].host.commands.len();
    assert!(writes <= small_config().blob_requests_max as usize, "{writes} pieces in memory");
}

/// Every kind of message, some of them wrong in themselves.
fn messages(rng: &mut Rng) -> Message {
    let version = at(rng.below(12));
    let key = blob_key(&[rng.below(3) as u8]);
    let offset = rng.below(3) * 100;
    let (offer, bytes) = snapshot(at(9), &[record("k", State::Deleted, 1)]);
    match rng.below(16) {
        0 => Message::Record(record("k", State::Deleted, 3)),
        1 => batch(version, vec![record("k", State::Deleted, 13)]),
        2 => batch(ZERO, vec![record("k", present(&[rng.below(3) as u8]), 1 + rng.below(9))]),
        3 => Message::Snapshot(Snapshot { watermark: at(10), records: vec![record("k", State::Deleted, 9)] }),
        4 => Message::Ack { watermark: version },
        5 => Message::Blob(BlobMessage::Put { key: key.into(), data: vec![rng.below(3) as u8] }),
        6 => Message::Blob(BlobMessage::Has { keys: vec![key.into()] }),
        7 => Message::Blob(BlobMessage::Missing { keys: vec![key.into()] }),
        8 => Message::Blob(BlobMessage::Get { key: key.into() }),
        9 => Message::Blob(BlobMessage::Ack { key: key.into() }),
        10 => Message::Own(OwnMessage::SnapshotOffer(offer)),
        11 => Message::Own(OwnMessage::SnapshotGet(SnapshotGet { sha256: offer.sha256, offset })),
        12 => Message::Own(chunk(offset, if offset == 0 { &bytes } else { b"x" })),
        13 => Message::Own(OwnMessage::BlobRangeGet(BlobRangeGet { key, offset, bytes: 9 })),
        14 => {
            let data = vec![rng.below(3) as u8];
            Message::Own(OwnMessage::BlobRange(BlobRange { key, offset, total: offset + 1, data }))
        }
        _ => match rng.below(3) {
            0 => Message::Own(OwnMessage::BlobAbsent { key }),
            1 => {
                let (reason, detail) = ("unheard-of".into(), String::new());
                Message::Own(OwnMessage::Stop(Stop {
                    verdict: StopVerdict::Diverged,
                    reason,
                    at: None,
                    detail,
                }))
            }
            _ => batch(version, Vec::new()),
        },
    }
}

#[test]
fn any_message_at_any_time_leaves_what_is_durable() {
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let mut cluster = Cluster::new(seed);
        let writes = seed % 2 == 0;
        let a = cluster.add("a", writes, small_config());
        if writes {
            cluster.put(a, "mine", b"1");
            cluster.settle();
        }
        for round in 0..6 {
            let name = ["p", "q"][round % 2];
            let native = rng.below(3) > 0;
            let role = if rng.below(2) == 0 { LinkRole::Source } else { LinkRole::Receiver };
            let peer = if native {
                Peer::native(&mut cluster, a, name)
            } else {
                Peer::connect(&mut cluster, a, name, &reference(), role)
            };
            if native && rng.below(8) > 0 {
                let tail = at(rng.below(12));
                let floor = if rng.below(2) == 0 { ZERO } else { tail };
                peer.stand(&mut cluster, floor, tail);
            }
            for _ in 0..rng.below(12) {
                let before = cluster.replica(a).status().tail;
                let message = messages(&mut rng);
                if rng.below(40) == 0 {
                    peer.send_bytes(&mut cluster, b"SHV1\xff\xff\xff\xffgarbage");
                } else {
                    peer.send(&mut cluster, &message);
                }
                for _ in 0..rng.below(4) {
                    cluster.step(a);
                }
                assert!(cluster.replica(a).status().tail >= before, "{seed}");
            }
        }
        cluster.settle();
        if writes {
            assert_eq!(cluster.replica(a).status().tail, at(1), "{seed}: an authority takes no records");
            assert_eq!(cluster.contents(a).len(), 1);
        }
        let status = cluster.replica(a).status();
        cluster.kill(a);
        cluster.restart(a);
        let after = cluster.replica(a).status();
        assert_eq!(
            (status.tail, status.tail_digest, status.present),
            (after.tail, after.tail_digest, after.present)
        );
        assert!(cluster.contents(a).values().all(Option::is_some), "{seed}: a record without its blob");
    }
}

#[test]
fn digests_that_nobody_asked_for_are_computed_for_no_longer_than_a_bound() {
    let mut cluster = Cluster::new(3);
    let a = cluster.add("a", true, small_config());
    for n in 0..10 {
        cluster.put(a, &format!("k{n}"), b"v");
        cluster.settle();
    }
    let peer = Peer::native(&mut cluster, a, "p");
    peer.stand(&mut cluster, ZERO, ZERO);
    let digest =
        |n| OwnMessage::Digest(DigestAt { version: at(n % 9 + 1), digest: Some([7; 32]), asks: true });
    // Nothing is read meanwhile.
    let most = (0..1000_u64).take_while(|n| {
        peer.send_own(&mut cluster, digest(*n));
        peer.fault(&mut cluster).is_none()
    });
    assert!(most.count() < 200);
    assert_eq!(peer.fault(&mut cluster), Some(PeerFaultKind::Limit));
}
