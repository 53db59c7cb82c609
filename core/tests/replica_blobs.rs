//! Blobs that do not come with their records, that come in part, that nobody needs any more, and that
//! are damaged.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a test names what it expects, and fails on the rest or passes over it"
)]

mod common;

use common::cluster::{Cluster, blob_key, delete, key, put, small_config};
use common::handshake::reference;
use common::peer::{Peer, record};
use strandline_core::journal::command::{FileName, SegmentNumber};
use strandline_core::lifecycle::api::{
    Collect, Done, Event, LinkRole, MembersChange, MutationError, PairReason, RequestError, Scrub,
};
use strandline_core::lifecycle::command::{BlobCommand, Command};
use strandline_core::limits::PIECE_BYTES_MAX;
use strandline_core::record::{BlobKey, State, Version};
use strandline_core::verdict::Verdict;
use strandline_core::wire::blob::BlobMessage;
use strandline_core::wire::message::Message;
use strandline_core::wire::repair::Batch;

fn at(sequence: u64) -> Version {
    Version::new(1, sequence)
}

/// Loses a blob; what bytes it had.
fn lose(cluster: &mut Cluster, node: usize, bytes: &[u8]) -> Vec<u8> {
    cluster.nodes[node].host.blobs.stored.remove(&blob_key(bytes)).expect("was stored")
}

fn find(cluster: &mut Cluster, node: usize, bytes: &[u8]) {
    cluster.nodes[node].host.blobs.stored.insert(blob_key(bytes), bytes.to_vec());
}

/// A writer whose second record of three lacks its blob, and a follower that took all three.
fn pair_with_a_gap() -> (Cluster, usize, usize) {
    let mut cluster = Cluster::new(3);
    let a = cluster.add("a", true, small_config());
    let b = cluster.add("b", false, small_config());
    for (name, bytes) in [("one", b"1"), ("two", b"2"), ("three", b"3")] {
        cluster.put(a, name, bytes);
    }
    cluster.settle();
    lose(&mut cluster, a, b"2");
    cluster.connect(a, b).expect("taken up");
    cluster.settle();
    (cluster, a, b)
}

fn synced(cluster: &Cluster, node: usize) -> Option<Version> {
    let events = cluster.nodes[node].host.events.iter().rev();
    events.clone().find_map(|event| match event {
        Event::Synced { tail, .. } => Some(*tail),
        _ => None,
    })
}

fn complete_of_b(cluster: &mut Cluster, node: usize) -> Version {
    let now = cluster.now;
    let _ = cluster.replica(node).handle_members(now, MembersChange::Add("b".into()));
    cluster.settle();
    let members = cluster.replica(node).status().members;
    members.iter().find(|member| member.identity == "b").expect("was added").complete
}

#[test]
fn a_record_whose_blob_is_gone_waits_in_place_and_holds_up_no_other() {
    let (mut cluster, a, b) = pair_with_a_gap();
    let status = cluster.replica(b).status();
    assert_eq!((status.tail, status.complete, status.blobs_wanted), (at(3), at(1), 1));
    assert!(cluster.replica(b).blob_pending(&key("two")));
    assert!(!cluster.replica(b).blob_pending(&key("one")) && !cluster.replica(b).blob_pending(&key("none")));
    assert_eq!(cluster.contents(b)[&b"three".to_vec()], Some(b"3".to_vec()));
    assert_eq!(synced(&cluster, a), None, "blobs belong to being in sync");
    assert_eq!(complete_of_b(&mut cluster, a), at(1));

    find(&mut cluster, a, b"2");
    cluster.pass(20_000);
    let status = cluster.replica(b).status();
    assert_eq!((status.complete, status.blobs_wanted), (at(3), 0));
    assert!(!cluster.replica(b).blob_pending(&key("two")));
    assert_eq!(cluster.contents(b)[&b"two".to_vec()], Some(b"2".to_vec()));
    assert_eq!((synced(&cluster, a), complete_of_b(&mut cluster, a)), (Some(at(3)), at(3)));
}

#[test]
fn a_later_record_of_the_key_settles_what_waits() {
    let (mut cluster, a, b) = pair_with_a_gap();
    cluster.mutate(a, &[delete("two")]).expect("accepted");
    cluster.settle();
    let status = cluster.replica(b).status();
    assert_eq!((status.complete, status.blobs_wanted), (at(4), 0));
    assert_eq!(synced(&cluster, a), Some(at(4)));
}

#[test]
fn what_waits_is_known_after_a_crash_and_below_the_floor() {
    for compacted in [false, true] {
        let (mut cluster, a, b) = pair_with_a_gap();
        if compacted {
            let now = cluster.now;
            let request = cluster.replica(b).handle_members(now, MembersChange::Clear);
            assert_eq!(cluster.done(b, request), Done::Members);
            let request = cluster.replica(b).handle_compact(now, None);
            assert!(matches!(cluster.done(b, request), Done::Compacted(_)));
        }
        cluster.kill(b);
        cluster.restart(b);
        cluster.settle();
        let status = cluster.replica(b).status();
        assert_eq!((status.tail, status.complete, status.blobs_wanted), (at(3), at(1), 1), "{compacted}");
        assert!(cluster.replica(b).blob_pending(&key("two")));
        // Whoever stores it: the next look finds it.
        find(&mut cluster, b, b"2");
        cluster.pass(20_000);
        assert_eq!(cluster.replica(b).status().complete, at(3), "{compacted}");
        let _ = a;
    }
}

#[test]
fn what_waits_goes_on_to_others_and_comes_from_whoever_has_it() {
    let (mut cluster, a, b) = pair_with_a_gap();
    let c = cluster.add("c", false, small_config());
    cluster.connect(b, c).expect("taken up");
    cluster.settle();
    assert_eq!(cluster.replica(c).status().blobs_wanted, 1);
    // The third one has it from elsewhere; b asks everyone.
    find(&mut cluster, c, b"2");
    cluster.pass(20_000);
    cluster.pass(20_000);
    for node in [b, c] {
        assert_eq!(cluster.replica(node).status().complete, at(3));
    }
    let _ = a;
}

#[test]
fn a_snapshot_is_installed_without_a_blob_that_nobody_has() {
    let mut cluster = Cluster::new(5);
    let a = cluster.add("a", true, small_config());
    for n in 0..40u8 {
        cluster.put(a, &format!("k{n}"), &[n]);
    }
    cluster.settle();
    let now = cluster.now;
    let request = cluster.replica(a).handle_members(now, MembersChange::Clear);
    assert_eq!(cluster.done(a, request), Done::Members);
    let request = cluster.replica(a).handle_compact(now, None);
    assert!(matches!(cluster.done(a, request), Done::Compacted(_)));
    lose(&mut cluster, a, &[7]);
    let b = cluster.add("b", false, small_config());
    cluster.connect(a, b).expect("taken up");
    cluster.settle();
    let status = cluster.replica(b).status();
    assert_eq!((status.tail, status.complete, status.blobs_wanted), (at(40), at(7), 1));
    assert!(cluster.replica(b).blob_pending(&key("k7")));
    cluster.kill(b);
    cluster.restart(b);
    cluster.settle();
    assert_eq!(cluster.replica(b).status().complete, at(7));
    find(&mut cluster, a, &[7]);
    cluster.connect(a, b).expect("taken up");
    cluster.settle();
    assert_eq!(cluster.replica(b).status().complete, at(40));
}

#[test]
fn records_that_wait_are_bounded_and_then_whole_batches_wait() {
    let mut config = small_config();
    config.blobs_wanted_max = 10;
    let mut cluster = Cluster::new(3);
    let a = cluster.add("a", true, small_config());
    let b = cluster.add("b", false, config);
    for n in 0..30u8 {
        cluster.put(a, &format!("k{n}"), &[n]);
    }
    cluster.settle();
    cluster.nodes[a].host.blobs.stored.clear();
    cluster.connect(a, b).expect("taken up");
    cluster.settle();
    let status = cluster.replica(b).status();
    assert!(status.blobs_wanted <= 10 && status.tail < at(30), "{status:?}");
    for _ in 0..4 {
        cluster.pass(20_000);
    }
    let verdict = cluster.replica(b).status().links[0].verdict.clone();
    assert_eq!(verdict, Some(Verdict::Unknown { reason: PairReason::BlobMissing }));
    for n in 0..30u8 {
        find(&mut cluster, a, &[n]);
    }
    for _ in 0..8 {
        cluster.pass(20_000);
    }
    let status = cluster.replica(b).status();
    assert_eq!((status.tail, status.complete), (at(30), at(30)));
    assert!(matches!(status.links[0].verdict, Some(Verdict::Complete { .. })), "{:?}", status.links[0]);
}

#[test]
fn a_blob_goes_on_over_the_next_link_where_the_last_one_ended() {
    let pieces = 12;
    let bytes: Vec<u8> = (0..pieces * PIECE_BYTES_MAX as usize + 7).map(|n| (n / 1000) as u8).collect();
    let mut cluster = Cluster::new(11);
    let mut config = small_config();
    config.blob_requests_max = 1;
    let a = cluster.add("a", true, config.clone());
    let b = cluster.add("b", false, config);
    cluster.put(a, "large", &bytes);
    cluster.settle();
    let mut cuts = 0;
    let mut link = cluster.connect(a, b).expect("taken up").1;
    for _ in 0..20_000 {
        if cluster.replica(b).status().tail == at(1) {
            break;
        }
        for node in [a, b] {
            cluster.step(node);
        }
        let part = cluster.nodes[b].host.blobs.parts.get(&blob_key(&bytes)).map_or(0, Vec::len);
        if cuts < 3 && part > (cuts + 1) * 3 * PIECE_BYTES_MAX as usize {
            cuts += 1;
            cluster.cut(b, link);
            link = cluster.connect(a, b).expect("taken up").1;
        }
        let reads = cluster.nodes[a].host.blobs.reads;
        assert!(reads <= pieces as u32 + 1 + 3 * 2, "{reads} pieces were read for {pieces}");
    }
    cluster.settle();
    assert_eq!((cuts, cluster.contents(b)[&b"large".to_vec()].as_deref()), (3, Some(&bytes[..])));
    assert_eq!(cluster.nodes[b].host.blobs.abandoned, 0);
}

#[test]
fn a_part_that_nobody_goes_on_with_is_abandoned() {
    let bytes = vec![7; 8 * PIECE_BYTES_MAX as usize];
    let mut cluster = Cluster::new(11);
    let a = cluster.add("a", true, small_config());
    let b = cluster.add("b", false, small_config());
    cluster.put(a, "large", &bytes);
    cluster.settle();
    let (_, link) = cluster.connect(a, b).expect("taken up");
    while cluster.nodes[b].host.blobs.parts.is_empty() {
        cluster.step(a);
        cluster.step(b);
    }
    cluster.cut(b, link);
    cluster.pass(20_000);
    assert_eq!(cluster.nodes[b].host.blobs.abandoned, 0);
    cluster.pass(600_000);
    assert_eq!((cluster.nodes[b].host.blobs.abandoned, cluster.nodes[b].host.blobs.parts.len()), (1, 0));
}

fn blob_put(bytes: &[u8]) -> Message {
    Message::Blob(BlobMessage::Put { key: blob_key(bytes).into(), data: bytes.to_vec() })
}

fn blob_ack(bytes: &[u8]) -> Message {
    Message::Blob(BlobMessage::Ack { key: blob_key(bytes).into() })
}

fn batch_of(messages: &[Message]) -> &Batch {
    let batches: Vec<&Batch> = messages
        .iter()
        .filter_map(|message| match message {
            Message::Batch(batch) => Some(batch),
            _ => None,
        })
        .collect();
    assert_eq!(batches.len(), 1, "{messages:?}");
    batches[0]
}

#[test]
fn to_the_reference_the_source_leaves_out_what_is_superseded_and_waits_at_what_is_not() {
    let mut cluster = Cluster::new(1);
    let a = cluster.add("a", true, small_config());
    for (name, bytes) in [("one", b"1"), ("two", b"2"), ("three", b"3"), ("four", b"4")] {
        cluster.put(a, name, bytes);
    }
    cluster.mutate(a, &[delete("two")]).expect("accepted");
    cluster.settle();
    lose(&mut cluster, a, b"2");
    lose(&mut cluster, a, b"3");
    let mut peer = Peer::connect(&mut cluster, a, "r", &reference(), LinkRole::Source);
    peer.ack(&mut cluster, Version::ZERO);
    for blob in [b"1".as_slice(), b"4"] {
        assert!(!peer.settled(&mut cluster).is_empty() || blob == b"4");
        peer.send(&mut cluster, &blob_ack(blob));
    }
    // What comes before the record that cannot be sent goes; the superseded one is left out.
    let heard = peer.settled(&mut cluster);
    let batch = batch_of(&heard);
    assert_eq!((batch.from, batch.to, batch.more), (Version::ZERO, at(1), true));
    peer.ack(&mut cluster, at(1));
    let heard = peer.settled(&mut cluster);
    assert!(heard.iter().all(|message| *message == blob_put(b"4")), "it waits at the third: {heard:?}");
    peer.send(&mut cluster, &blob_ack(b"4"));
    assert_eq!(peer.settled(&mut cluster), []);
    let missing = Verdict::Unknown { reason: PairReason::BlobMissing };
    assert_eq!(peer.status(&mut cluster).verdict, Some(missing));
    // A later record of its key is durable: the third is left out, the rest goes on.
    cluster.mutate(a, &[delete("three")]).expect("accepted");
    let heard = peer.settled(&mut cluster);
    let batch = batch_of(&heard);
    assert_eq!((batch.from, batch.to), (at(1), at(5)));
    let sent: Vec<u64> = batch.records.iter().map(|record| record.version.sequence).collect();
    assert_eq!(sent, [4, 5]);
    peer.ack(&mut cluster, at(5));
    let heard = peer.settled(&mut cluster);
    assert_eq!(batch_of(&heard).to, at(6));
    peer.ack(&mut cluster, at(6));
    cluster.settle();
    assert!(matches!(peer.status(&mut cluster).verdict, Some(Verdict::Complete { .. })));
}

#[test]
fn a_batch_of_which_nothing_is_left_is_passed_over() {
    let mut cluster = Cluster::new(1);
    let a = cluster.add("a", true, small_config());
    for n in 0..25u8 {
        cluster.put(a, "same", &[n]);
    }
    cluster.settle();
    for n in 0..24u8 {
        lose(&mut cluster, a, &[n]);
    }
    let mut peer = Peer::connect(&mut cluster, a, "r", &reference(), LinkRole::Source);
    peer.ack(&mut cluster, Version::ZERO);
    assert_eq!(peer.settled(&mut cluster), [blob_put(&[24])]);
    peer.send(&mut cluster, &blob_ack(&[24]));
    let heard = peer.settled(&mut cluster);
    let batch = batch_of(&heard);
    assert_eq!((batch.from, batch.to, batch.records.len()), (Version::ZERO, at(25), 1));
}

#[test]
fn a_blob_that_comes_back_goes_to_a_peer_of_the_reference() {
    let mut cluster = Cluster::new(1);
    let a = cluster.add("a", true, small_config());
    cluster.put(a, "one", b"1");
    cluster.settle();
    lose(&mut cluster, a, b"1");
    let mut peer = Peer::connect(&mut cluster, a, "r", &reference(), LinkRole::Source);
    peer.ack(&mut cluster, Version::ZERO);
    assert_eq!(peer.settled(&mut cluster), []);
    find(&mut cluster, a, b"1");
    cluster.pass(20_000);
    assert_eq!(peer.heard(&mut cluster), [blob_put(b"1")]);
    peer.send(&mut cluster, &blob_ack(b"1"));
    let heard = peer.settled(&mut cluster);
    assert_eq!(batch_of(&heard).to, at(1));
}

#[test]
fn a_peer_of_the_reference_is_told_which_blobs_are_here() {
    let mut cluster = Cluster::new(1);
    let a = cluster.add("a", true, small_config());
    for (name, bytes) in [("one", b"1"), ("two", b"2"), ("three", b"3")] {
        cluster.put(a, name, bytes);
    }
    cluster.settle();
    let mut peer = Peer::connect(&mut cluster, a, "r", &reference(), LinkRole::Source);
    peer.ack(&mut cluster, at(2));
    let heard = peer.settled(&mut cluster);
    let Message::Blob(BlobMessage::Has { keys }) = &heard[0] else { panic!("{heard:?}") };
    let mut expected = [blob_key(b"1"), blob_key(b"2")];
    expected.sort_unstable();
    assert_eq!(keys[..], expected.map(|key| key.into()), "of what it has, not of what is to come");
    // It lost one, and gets it again.
    peer.send(&mut cluster, &Message::Blob(BlobMessage::Missing { keys: vec![blob_key(b"1").into()] }));
    assert!(peer.settled(&mut cluster).contains(&blob_put(b"1")));
    cluster.pass(20_000);
    let heard = peer.heard(&mut cluster);
    assert!(matches!(&heard[..], [Message::Blob(BlobMessage::Has { keys })] if keys.len() == 2), "{heard:?}");
}

#[test]
fn one_request_for_whole_blobs_is_answered_with_64_mib_at_most() {
    let mut cluster = Cluster::new(1);
    let a = cluster.add("a", true, small_config());
    let keys: Vec<BlobKey> = (0..24u8)
        .map(|n| {
            let bytes = vec![n; 3_000_000];
            find(&mut cluster, a, &bytes);
            blob_key(&bytes)
        })
        .collect();
    let mut peer = Peer::connect(&mut cluster, a, "r", &reference(), LinkRole::Source);
    let keys: Vec<_> = keys.into_iter().map(Into::into).collect();
    let mut count = |cluster: &mut Cluster| {
        peer.send(cluster, &Message::Blob(BlobMessage::Missing { keys: keys.clone() }));
        let mut puts = 0;
        for _ in 0..60 {
            let heard = peer.settled(cluster);
            puts += heard.iter().filter(|m| matches!(m, Message::Blob(BlobMessage::Put { .. }))).count();
        }
        puts
    };
    assert_eq!(count(&mut cluster), 22, "22 times 3,000,000 bytes");
    assert_eq!(count(&mut cluster), 22, "the next request has its own bound");
}

#[test]
fn a_source_that_stays_silent_on_a_blob_is_reported_asked_again_and_goes_on() {
    let mut cluster = Cluster::new(1);
    let b = cluster.add("b", false, small_config());
    let mut peer = Peer::connect(&mut cluster, b, "r", &reference(), LinkRole::Receiver);
    let _ = peer.settled(&mut cluster);
    let state = State::Present { blob: blob_key(b"x") };
    let records = vec![record("k", state, 1)];
    peer.send(&mut cluster, &Message::Batch(Batch { from: Version::ZERO, to: at(1), more: false, records }));
    let get = Message::Blob(BlobMessage::Get { key: blob_key(b"x").into() });
    assert_eq!(peer.settled(&mut cluster), std::slice::from_ref(&get));
    cluster.pass(30_000);
    assert_eq!((peer.heard(&mut cluster), peer.status(&mut cluster).verdict), (Vec::new(), None));
    cluster.pass(45_000);
    assert_eq!(peer.heard(&mut cluster), [get]);
    let missing = Verdict::Unknown { reason: PairReason::BlobMissing };
    assert_eq!(peer.status(&mut cluster).verdict, Some(missing));
    peer.send(&mut cluster, &blob_put(b"x"));
    let heard = peer.settled(&mut cluster);
    assert_eq!(heard, [blob_ack(b"x"), Message::Ack { watermark: at(1) }]);
    assert_eq!(cluster.replica(b).status().tail, at(1));
}

const NOW: Collect = Collect { dry_run: false, untouched_ms: 1000 };

fn collect(cluster: &mut Cluster, node: usize, collect: Collect) -> Done {
    let now = cluster.now;
    let request = cluster.replica(node).handle_collect(now, collect);
    cluster.done(node, request)
}

/// A writer alone, without members, with a blob that only an older record of a key names.
fn superseded() -> (Cluster, usize) {
    let mut cluster = Cluster::new(3);
    let a = cluster.add("a", true, small_config());
    cluster.put(a, "one", b"old");
    cluster.put(a, "one", b"new");
    cluster.put(a, "two", b"2");
    cluster.settle();
    let now = cluster.now;
    let request = cluster.replica(a).handle_members(now, MembersChange::Clear);
    assert_eq!(cluster.done(a, request), Done::Members);
    (cluster, a)
}

fn stored(cluster: &Cluster, node: usize, bytes: &[u8]) -> bool {
    cluster.nodes[node].host.blobs.stored.contains_key(&blob_key(bytes))
}

#[test]
fn collects_what_nothing_names_and_a_dry_run_removes_nothing() {
    let (mut cluster, a) = superseded();
    for dry_run in [true, false] {
        let Done::Collected(found) = collect(&mut cluster, a, Collect { dry_run, ..NOW }) else {
            panic!("collected")
        };
        assert_eq!((found.looked, found.blobs, found.bytes), (3, 1, 3));
        assert_eq!(found.keys, [blob_key(b"old")]);
        assert_eq!(stored(&cluster, a, b"old"), dry_run);
    }
    assert!(stored(&cluster, a, b"new") && stored(&cluster, a, b"2"));
}

#[test]
fn what_was_stored_just_now_is_not_collected() {
    let (mut cluster, a) = superseded();
    cluster.nodes[a].host.blobs.touched.insert(blob_key(b"old"));
    let Done::Collected(found) = collect(&mut cluster, a, NOW) else { panic!("collected") };
    assert_eq!(found.blobs, 0);
    assert!(stored(&cluster, a, b"old"));
}

#[test]
fn what_a_mutation_names_that_is_not_durable_is_not_collected() {
    let (mut cluster, a) = superseded();
    let now = cluster.now;
    let request = cluster.replica(a).handle_collect(now, NOW);
    // The page is judged while the mutation waits for the disk.
    let blobs = |command: &Command| matches!(command, Command::Blob(_));
    cluster.mutate(a, &[put("three", blob_key(b"old"))]).expect("accepted");
    for _ in 0..9 {
        cluster.run(a, blobs);
        cluster.tick(1);
    }
    let done = cluster.done(a, request);
    assert!(matches!(&done, Done::Collected(found) if found.blobs == 0), "{done:?}");
    assert!(stored(&cluster, a, b"old"));
}

#[test]
fn a_mutation_that_names_what_is_being_removed_is_refused() {
    let (mut cluster, a) = superseded();
    let now = cluster.now;
    let request = cluster.replica(a).handle_collect(now, NOW);
    let remove = |command: &Command| matches!(command, Command::Blob(BlobCommand::Remove { .. }));
    for _ in 0..9 {
        cluster.run(a, |command| !remove(command));
        cluster.tick(1);
    }
    assert!(cluster.nodes[a].host.commands.iter().any(remove));
    let refused = cluster.mutate(a, &[put("three", blob_key(b"old"))]);
    assert_eq!(refused, Err(MutationError::Collecting { blob: blob_key(b"old") }));
    assert!(matches!(cluster.done(a, request), Done::Collected(_)));
    assert!(cluster.mutate(a, &[put("three", blob_key(b"2"))]).is_ok());
}

#[test]
fn what_a_batch_on_its_way_in_needs_is_not_collected() {
    let mut cluster = Cluster::new(3);
    let b = cluster.add("b", false, small_config());
    let now = cluster.now;
    let request = cluster.replica(b).handle_members(now, MembersChange::Clear);
    assert_eq!(cluster.done(b, request), Done::Members);
    let mut peer = Peer::connect(&mut cluster, b, "r", &reference(), LinkRole::Receiver);
    let _ = peer.settled(&mut cluster);
    peer.send(&mut cluster, &blob_put(b"x"));
    let _ = peer.settled(&mut cluster);
    let records = [(b"x", "k", 1), (b"y", "l", 2)];
    let records = records.map(|(blob, name, n)| record(name, State::Present { blob: blob_key(blob) }, n));
    let batch = Batch { from: Version::ZERO, to: at(2), more: false, records: records.to_vec() };
    peer.send(&mut cluster, &Message::Batch(batch));
    cluster.settle();
    let Done::Collected(found) = collect(&mut cluster, b, NOW) else { panic!("collected") };
    assert_eq!((found.looked, found.blobs), (1, 0));
}

#[test]
fn a_member_that_is_not_complete_holds_back_a_collection_and_is_named() {
    let (mut cluster, a) = superseded();
    let b = cluster.add("b", false, small_config());
    let now = cluster.now;
    let request = cluster.replica(a).handle_members(now, MembersChange::Add("b".into()));
    assert_eq!(cluster.done(a, request), Done::Members);
    lose(&mut cluster, a, b"2");
    cluster.connect(a, b).expect("taken up");
    cluster.pass(100);
    let request = cluster.replica(a).handle_collect(now, NOW);
    for _ in 0..10 {
        cluster.pass(10_000);
    }
    let done = cluster.done(a, request);
    let Done::Refused(RequestError::Behind { member, acked, .. }) = &done else { panic!("{done:?}") };
    assert_eq!((member.as_str(), *acked), ("b", at(2)));
    assert!(stored(&cluster, a, b"old"));
    find(&mut cluster, a, b"2");
    cluster.pass(20_000);
    cluster.pass(100);
    assert!(matches!(collect(&mut cluster, a, NOW), Done::Collected(found) if found.blobs == 1));
}

#[test]
fn without_a_membership_nothing_is_collected() {
    let mut cluster = Cluster::new(3);
    let a = cluster.add("a", true, small_config());
    let done = collect(&mut cluster, a, NOW);
    assert_eq!(done, Done::Refused(RequestError::MembershipMissing));
}

#[test]
fn a_scrub_finds_damage_and_a_peer_mends_it() {
    let mut cluster = Cluster::new(3);
    let a = cluster.add("a", true, small_config());
    let b = cluster.add("b", false, small_config());
    for n in 0..20u8 {
        cluster.put(a, &format!("k{n}"), &[n; 100]);
    }
    cluster.connect(a, b).expect("taken up");
    cluster.settle();
    // Whatever is lost is looked for as soon as the first is found bad; what is damaged is found by reading.
    cluster.nodes[a].host.blobs.stored.insert(blob_key(&[5; 100]), vec![9; 100]);
    lose(&mut cluster, a, &[3; 100]);
    let now = cluster.now;
    let request = cluster.replica(a).handle_scrub(now, Scrub { bytes_per_second: 1000 });
    cluster.settle();
    let answered = |cluster: &Cluster| {
        cluster.nodes[a].host.events.iter().any(|event| matches!(event, Event::Done { .. }))
    };
    let mut took_ms = 0;
    while !answered(&cluster) {
        cluster.pass(50);
        took_ms += 50;
        assert!(took_ms < 60_000, "it ends");
    }
    assert!(took_ms >= 1700, "18 sound blobs of 100 bytes at 1,000 bytes a second: {took_ms}");
    let Done::Scrubbed(found) = cluster.done(a, request) else { panic!("scrubbed") };
    assert_eq!((found.keys, found.bytes, found.bad), (20, 1800, 2));
    let mut bad: Vec<(BlobKey, bool)> = found.blobs.iter().map(|bad| (bad.blob, bad.damaged)).collect();
    bad.sort_unstable_by_key(|(_, damaged)| *damaged);
    assert_eq!(bad, [(blob_key(&[3; 100]), false), (blob_key(&[5; 100]), true)]);
    cluster.settle();
    let (contents, status) = (cluster.contents(a), cluster.replica(a).status());
    assert_eq!((status.blobs_wanted, status.complete), (0, at(20)));
    assert!(
        contents
            .values()
            .zip(0..)
            .all(|(blob, _): (_, u8)| blob.as_ref().is_some_and(|b| b[0] != 9 || b.len() == 100))
    );
    assert_eq!(contents[&b"k3".to_vec()], Some(vec![3; 100]));
    assert_eq!(contents[&b"k5".to_vec()], Some(vec![5; 100]));
}

#[test]
fn what_several_keys_name_is_wanted_for_all_of_them() {
    let mut cluster = Cluster::new(3);
    let a = cluster.add("a", true, small_config());
    for name in ["first", "second"] {
        cluster.put(a, name, b"the same");
    }
    cluster.settle();
    let now = cluster.now;
    cluster.replica(a).handle_scrub(now, Scrub { bytes_per_second: 1_000_000 });
    // The first key is read while the blob is sound, the second when it is not.
    let verifies = |command: &Command| matches!(command, Command::Blob(BlobCommand::Verify { .. }));
    let mut read = 0;
    while read == 0 {
        cluster.tick(1);
        cluster.drain(a);
        if cluster.nodes[a].host.commands.iter().any(verifies) {
            cluster.run(a, verifies);
            read += 1;
        } else {
            cluster.run(a, |command| !verifies(command));
        }
    }
    cluster.nodes[a].host.blobs.stored.insert(blob_key(b"the same"), b"rotten".to_vec());
    cluster.pass(100);
    for name in ["first", "second"] {
        assert!(cluster.replica(a).blob_pending(&key(name)), "{name} says that its blob is not here");
    }
    assert_eq!(cluster.replica(a).status().complete, at(0));
}

#[test]
fn a_record_that_a_cut_brought_back_says_that_its_blob_was_collected() {
    let mut cluster = Cluster::new(3);
    let a = cluster.add("a", true, small_config());
    cluster.put(a, "k", b"before");
    cluster.settle();
    let kept = cluster.nodes[a].host.disk.clone();
    cluster.put(a, "k", b"after");
    cluster.settle();
    lose(&mut cluster, a, b"before");
    cluster.kill(a);
    // The last batch is torn: only its first bytes are there.
    let whole = kept.files[&FileName::Segment(SegmentNumber(1))].cache.clone();
    cluster.nodes[a].host.disk.damage(1, |bytes| {
        let end = bytes.iter().zip(&whole).position(|(now, then)| now != then).expect("a batch more");
        bytes[end + 8..].fill(0);
    });
    cluster.restart(a);
    cluster.settle();
    cluster.pass(60_000);
    assert!(cluster.replica(a).blob_pending(&key("k")), "the older record is seen, and its blob is gone");
}

#[test]
fn a_record_that_a_lost_end_brought_back_says_that_its_blob_was_collected() {
    for compacted in [false, true] {
        let mut cluster = Cluster::new(3);
        let a = cluster.add("a", true, small_config());
        let first = cluster.put(a, "k", b"before").version;
        cluster.settle();
        let kept = cluster.nodes[a].host.disk.clone();
        cluster.put(a, "k", b"after");
        cluster.settle();
        let now = cluster.now;
        let request = cluster.replica(a).handle_members(now, MembersChange::Clear);
        assert_eq!(cluster.done(a, request), Done::Members);
        let done = collect(&mut cluster, a, NOW);
        assert!(matches!(&done, Done::Collected(found) if found.keys == [blob_key(b"before")]), "{done:?}");
        if compacted {
            let now = cluster.now;
            let request = cluster.replica(a).handle_compact(now, Some(first));
            let done = cluster.done(a, request);
            assert!(matches!(&done, Done::Compacted(done) if done.floor == first), "{done:?}");
        }
        cluster.kill(a);
        // Nothing of the last batch is there, as if it had never come: the journal ends well before it.
        let whole = kept.files[&FileName::Segment(SegmentNumber(1))].cache.clone();
        cluster.nodes[a].host.disk.damage(1, |bytes| {
            let end = bytes.iter().zip(&whole).position(|(now, then)| now != then).expect("a batch more");
            bytes[end..].fill(0);
        });
        cluster.restart(a);
        cluster.settle();
        cluster.pass(60_000);
        assert_eq!(cluster.replica(a).status().tail, first);
        assert!(cluster.replica(a).blob_pending(&key("k")), "compacted: {compacted}");
    }
}
