//! Snapshots at size, in small: pinned cuts, their deadline, and nothing cut that counts as whole.

mod common;

use common::cluster::{Cluster, blob_key, put, small_config};
use common::forks::fence;
use common::peer::{Peer, record, snapshot, snapshot_with};
use strandline_core::journal::command::FileName;
use strandline_core::lifecycle::api::{
    Collect, Done, Event, MembersChange, Page, PeerFaultKind, RequestError, RequestId,
};
use strandline_core::lifecycle::command::{BlobCommand, Command};
use strandline_core::lifecycle::config::ReplicaConfig;
use strandline_core::record::{AuthorityId, Record, State, Version};
use strandline_core::wire::message::Message;
use strandline_core::wire::own::{
    BlobRange, BlobRangeGet, EpochMark, OwnMessage, SnapshotChunk, SnapshotGet, SnapshotOffer,
};

/// A writer whose history was compacted to a checkpoint of several pieces.
fn writer(cluster: &mut Cluster, config: ReplicaConfig) -> usize {
    let a = cluster.add("a", true, config);
    write(cluster, a, 0..4000);
    let now = cluster.now;
    let request = cluster.replica(a).handle_members(now, MembersChange::Clear);
    assert_eq!(cluster.done(a, request), Done::Members);
    compact(cluster, a);
    a
}

fn write(cluster: &mut Cluster, at: usize, range: std::ops::Range<u32>) {
    let blob = blob_key(b"v");
    cluster.nodes[at].host.blobs.stored.insert(blob, b"v".to_vec());
    for i in range {
        let name = format!("some longer key, so that there are pieces {i:06} {}", "x".repeat(100));
        cluster.mutate(at, &[put(&name, blob)]).expect("accepted");
        if i % 8 == 0 {
            cluster.settle();
        }
    }
    cluster.settle();
}

fn compact(cluster: &mut Cluster, at: usize) {
    let now = cluster.now;
    let request = cluster.replica(at).handle_compact(now, None);
    let done = cluster.done(at, request);
    assert!(matches!(done, Done::Compacted(_)), "{done:?}");
}

fn checkpoints(cluster: &Cluster, at: usize) -> usize {
    let files = cluster.nodes[at].host.disk.files.keys();
    files.filter(|file| matches!(file, FileName::Checkpoint(_))).count()
}

fn installed(cluster: &Cluster, at: usize) -> Vec<Version> {
    let cut = |event: &Event| if let Event::Installed { cut, .. } = event { Some(*cut) } else { None };
    cluster.nodes[at].host.events.iter().filter_map(cut).collect()
}

/// Steps until the follower has taken up a part of the snapshot.
fn in_the_middle(cluster: &mut Cluster, a: usize, c: usize) {
    for _ in 0..100_000 {
        if cluster.replica(c).status().installing && checkpoints(cluster, c) == 1 {
            return;
        }
        cluster.step(a);
        cluster.step(c);
    }
    panic!("no snapshot was begun");
}

#[test]
fn a_pinned_cut_is_whole_though_a_compaction_passes_it() {
    for seed in 0..6 {
        let mut cluster = Cluster::new(seed);
        let a = writer(&mut cluster, small_config());
        let cut = cluster.replica(a).status().floor;
        let c = cluster.add("c", false, small_config());
        cluster.connect(c, a).expect("connects");
        in_the_middle(&mut cluster, a, c);
        let now = cluster.now;
        let blob = blob_key(b"v");
        cluster.mutate(a, &[put("more", blob)]).expect("accepted");
        while cluster.replica(a).status().tail == cut {
            cluster.step(a);
        }
        let request = cluster.replica(a).handle_compact(now, None);
        assert!(matches!(cluster.done(a, request), Done::Compacted(_)));
        let (sa, sc) = (cluster.replica(a).status(), cluster.replica(c).status());
        assert_eq!((sa.tail, sa.tail_digest, sa.present), (sc.tail, sc.tail_digest, sc.present));
        let cuts = installed(&cluster, c);
        assert_eq!(cuts.first(), Some(&cut), "the cut that was begun is the one that was installed");
        assert_eq!(checkpoints(&cluster, a), 1, "and let go of afterwards");
    }
}

#[test]
fn a_pin_that_ran_out_restarts_with_a_newer_cut_and_nothing_cut_counts() {
    for seed in 0..6 {
        let mut cluster = Cluster::new(seed);
        let a = writer(&mut cluster, small_config());
        let old = cluster.replica(a).status().floor;
        let c = cluster.add("c", false, small_config());
        let (link, _) = cluster.connect(c, a).expect("connects");
        in_the_middle(&mut cluster, a, c);
        // The follower loses its connection and comes back when its cut is long gone.
        cluster.cut(c, link);
        write(&mut cluster, a, 4000..4400);
        compact(&mut cluster, a);
        assert_eq!(checkpoints(&cluster, a), 1, "a link that is gone pins nothing");
        assert_eq!(cluster.replica(c).status().present, 0, "nothing of a part is shown");
        cluster.connect(c, a).expect("connects");
        cluster.settle();
        let newer = cluster.replica(a).status().floor;
        assert!(newer > old);
        assert_eq!(installed(&cluster, c), [newer], "begun anew, and only that one");
        let (sa, sc) = (cluster.replica(a).status(), cluster.replica(c).status());
        assert_eq!((sa.tail, sa.tail_digest, sa.present), (sc.tail, sc.tail_digest, sc.present));
    }
}

#[test]
fn a_silent_peer_pins_a_cut_no_longer_than_its_deadline() {
    for compacts in [true, false] {
        let mut cluster = Cluster::new(3);
        // Shorter than it takes to give up a link that says nothing.
        let config = ReplicaConfig { snapshot_pin_ms: 20_000, ..small_config() };
        let a = writer(&mut cluster, config);
        let c = cluster.add("c", false, small_config());
        cluster.connect(c, a).expect("connects");
        in_the_middle(&mut cluster, a, c);
        // Its connection stays, and nothing comes over it any more.
        write_alone(&mut cluster, a);
        let pin_ms = cluster.nodes[a].config.snapshot_pin_ms;
        let keepalive_ms = cluster.nodes[a].config.keepalive_ms;
        if compacts {
            let now = cluster.now;
            let request = cluster.replica(a).handle_compact(now, None);
            alone(&mut cluster, a);
            let events = &cluster.nodes[a].host.events;
            assert!(
                events.iter().any(|e| matches!(e, Event::Done { request: found, .. } if *found == request))
            );
            assert_eq!(checkpoints(&cluster, a), 2, "what is being read stays");
        }
        cluster.tick(pin_ms + keepalive_ms + 1);
        alone(&mut cluster, a);
        assert_eq!(checkpoints(&cluster, a), 1, "until its time is over");
        assert_eq!(cluster.replica(a).status().links.len(), 1, "its link stays");
        // Its questions were on their way all the time, and nobody is to blame.
        cluster.settle();
        for node in &cluster.nodes {
            let closed = |event: &&Event| matches!(event, Event::CloseLink { .. });
            assert_eq!(node.host.events.iter().find(closed), None, "{compacts}");
        }
        let (sa, sc) = (cluster.replica(a).status(), cluster.replica(c).status());
        assert_eq!((sa.tail, sa.tail_digest, sa.present), (sc.tail, sc.tail_digest, sc.present));
        assert_eq!(installed(&cluster, c).last(), Some(&sa.floor), "{compacts}");
    }
}

/// A writer with a checkpoint of several pieces, and a peer without records that was offered it.
fn reading(pin_ms: u64) -> (Cluster, usize, Peer, SnapshotOffer) {
    let mut cluster = Cluster::new(3);
    let config = ReplicaConfig { snapshot_pin_ms: pin_ms, ..small_config() };
    let a = writer(&mut cluster, config);
    let mut peer = Peer::native(&mut cluster, a, "p");
    peer.stand(&mut cluster, Version::ZERO, Version::ZERO);
    let heard = peer.settled(&mut cluster);
    let offer = heard.iter().find_map(|message| {
        if let Message::Own(OwnMessage::SnapshotOffer(offer)) = message { Some(*offer) } else { None }
    });
    let offer = offer.expect("an offer");
    assert!(offer.bytes > 3 * PIECE, "{}", offer.bytes);
    (cluster, a, peer, offer)
}

const PIECE: u64 = strandline_core::limits::PIECE_BYTES_MAX as u64;

fn ask(cluster: &mut Cluster, peer: &Peer, offer: &SnapshotOffer, piece: u64) {
    let get = SnapshotGet { sha256: offer.sha256, offset: piece * PIECE };
    peer.send_own(cluster, OwnMessage::SnapshotGet(get));
}

/// Where the pieces begin that came, and whether another offer did.
fn came(heard: &[Message]) -> (Vec<u64>, bool) {
    let pieces = heard.iter().filter_map(|message| {
        let Message::Own(OwnMessage::SnapshotChunk(chunk)) = message else { return None };
        Some(chunk.offset / PIECE)
    });
    let offered = heard.iter().any(|m| matches!(m, Message::Own(OwnMessage::SnapshotOffer(_))));
    (pieces.collect(), offered)
}

#[test]
fn a_peer_that_asks_on_after_its_pin_ran_out_is_answered() {
    let (mut cluster, a, mut peer, offer) = reading(20_000);
    ask(&mut cluster, &peer, &offer, 0);
    assert_eq!(came(&peer.settled(&mut cluster)), (vec![0], false));
    let keepalive_ms = cluster.nodes[a].config.keepalive_ms;
    cluster.tick(20_000 + keepalive_ms + 1);
    let _ = peer.heard(&mut cluster);
    for piece in 1..4 {
        ask(&mut cluster, &peer, &offer, piece);
    }
    assert_eq!(came(&peer.settled(&mut cluster)), (vec![1, 2, 3], false), "no offer comes between");
    assert_eq!(peer.fault(&mut cluster), None);
}

#[test]
fn questions_of_a_snapshot_that_cross_the_offer_of_the_next_are_passed_over() {
    let (mut cluster, a, mut peer, offer) = reading(20_000);
    let keepalive_ms = cluster.nodes[a].config.keepalive_ms;
    write(&mut cluster, a, 4000..4001);
    compact(&mut cluster, a);
    cluster.tick(20_000 + keepalive_ms + 1);
    let _ = peer.settled(&mut cluster);
    assert_eq!(checkpoints(&cluster, a), 1, "its pin ran out");
    for piece in 0..4 {
        ask(&mut cluster, &peer, &offer, piece);
    }
    assert_eq!(came(&peer.settled(&mut cluster)).0, Vec::<u64>::new(), "of the one before");
    assert_eq!(peer.fault(&mut cluster), None);
}

#[test]
fn a_peer_that_fetches_blobs_keeps_its_pin() {
    let (mut cluster, a, mut peer, _) = reading(20_000);
    write(&mut cluster, a, 4000..4001);
    compact(&mut cluster, a);
    for _ in 0..10 {
        cluster.tick(10_000);
        let get = BlobRangeGet { key: blob_key(b"v"), offset: 0, bytes: PIECE };
        peer.send_own(&mut cluster, OwnMessage::BlobRangeGet(get));
        let _ = peer.settled(&mut cluster);
    }
    assert_eq!(checkpoints(&cluster, a), 2);
}

/// One more change, while no byte moves.
fn write_alone(cluster: &mut Cluster, at: usize) {
    cluster.mutate(at, &[put("alone", blob_key(b"v"))]).expect("accepted");
    alone(cluster, at);
}

/// Everything that a node's disk has to do, and nothing on its links.
fn alone(cluster: &mut Cluster, at: usize) {
    cluster.drain(at);
    while cluster.execute_next(at) {
        cluster.drain(at);
    }
}

/// What a follower without records does with a snapshot that an authenticated peer offers.
fn offered((offer, data): (SnapshotOffer, Vec<u8>)) -> (Cluster, usize, Option<PeerFaultKind>) {
    let mut cluster = Cluster::new(5);
    let b = cluster.add("b", false, small_config());
    let peer = Peer::native(&mut cluster, b, "p");
    peer.stand(&mut cluster, offer.cut, offer.cut);
    peer.send_own(&mut cluster, OwnMessage::SnapshotOffer(offer));
    cluster.settle();
    peer.send_own(&mut cluster, OwnMessage::SnapshotChunk(SnapshotChunk { offset: 0, data }));
    cluster.settle();
    let fault = peer.fault(&mut cluster);
    (cluster, b, fault)
}

fn epoch(epoch: u64, previous_end: Version, authority: &str) -> EpochMark {
    let authority = AuthorityId::from_text(authority);
    EpochMark { epoch, start: Version::new(epoch, 1), previous_end, authority }
}

#[test]
fn a_snapshot_whose_epochs_cannot_be_told_on_is_refused() {
    let cut = Version::new(2, 9);
    let gone = [record("k", State::Deleted, 1)];
    let first = || epoch(1, Version::ZERO, "a");
    let (_, _, fault) = offered(snapshot_with(cut, vec![first(), epoch(2, Version::new(1, 1), "a")], &gone));
    assert_eq!(fault, None, "that is how they may be");
    let mut elsewhere = epoch(2, Version::new(1, 1), "a");
    elsewhere.start = Version::new(2, 10);
    for second in [
        epoch(2, Version::new(2, 5), "a"),
        epoch(1, Version::ZERO, "a"),
        epoch(2, Version::new(1, 1), &"a".repeat(129)),
        epoch(2, Version::new(1, 1), ""),
        elsewhere,
    ] {
        let (mut cluster, b, fault) = offered(snapshot_with(cut, vec![first(), second.clone()], &gone));
        assert_eq!(fault, Some(PeerFaultKind::Snapshot), "{second:?}");
        assert_eq!(cluster.replica(b).status().floor, Version::ZERO, "{second:?}");
        assert_eq!(checkpoints(&cluster, b), 0, "{second:?}");
    }
}

#[test]
fn a_record_of_a_snapshot_is_held_to_our_limits_as_one_of_a_batch_is() {
    let long = AuthorityId::from_text(&"a".repeat(129));
    let gone = Record { authority: long, ..record("k", State::Deleted, 1) };
    let (mut cluster, b, fault) = offered(snapshot(Version::new(1, 9), &[gone]));
    assert_eq!(fault, Some(PeerFaultKind::Limit));
    assert_eq!(cluster.replica(b).status().floor, Version::ZERO);
}

const BLOB: &[u8] = b"only the snapshot names it";

/// A follower that stores a blob which nothing names, is asked to collect, and reads a peer that has a
/// snapshot.
fn collecting() -> (Cluster, usize, Peer, RequestId, (SnapshotOffer, Vec<u8>)) {
    let mut cluster = Cluster::new(5);
    let b = cluster.add("b", false, small_config());
    let now = cluster.now;
    let request = cluster.replica(b).handle_members(now, MembersChange::Clear);
    assert_eq!(cluster.done(b, request), Done::Members);
    cluster.nodes[b].host.blobs.stored.insert(blob_key(BLOB), BLOB.to_vec());
    let named = record("k", State::Present { blob: blob_key(BLOB) }, 1);
    let (offer, data) = snapshot(Version::new(1, 9), &[named]);
    let mut peer = Peer::native(&mut cluster, b, "p");
    peer.stand(&mut cluster, offer.cut, offer.cut);
    let _ = peer.settled(&mut cluster);
    let now = cluster.now;
    let request = cluster.replica(b).handle_collect(now, Collect { dry_run: false, untouched_ms: 1000 });
    (cluster, b, peer, request, (offer, data))
}

fn asks(message: &Message) -> bool {
    matches!(message, Message::Own(OwnMessage::SnapshotGet(_)))
}

/// Every present key has its blob, or the node says that it has not.
fn has_what_it_says(cluster: &mut Cluster, b: usize, cut: Version) {
    let status = cluster.replica(b).status();
    assert_eq!((status.tail, status.present), (cut, 1));
    assert!(cluster.nodes[b].host.blobs.stored.contains_key(&blob_key(BLOB)), "{status:?}");
}

#[test]
fn a_snapshot_ends_the_collection_that_knows_nothing_of_it() {
    let (mut cluster, b, mut peer, request, (offer, data)) = collecting();
    peer.send_own(&mut cluster, OwnMessage::SnapshotOffer(offer));
    let heard = peer.settled(&mut cluster);
    assert!(heard.iter().any(asks), "{heard:?}");
    peer.send_own(&mut cluster, OwnMessage::SnapshotChunk(SnapshotChunk { offset: 0, data }));
    cluster.settle();
    let done = cluster.done(b, request);
    assert!(matches!(done, Done::Refused(RequestError::Busy { .. })), "{done:?}");
    has_what_it_says(&mut cluster, b, offer.cut);
}

#[test]
fn a_snapshot_waits_for_the_blobs_that_are_being_removed() {
    let (mut cluster, b, mut peer, request, (offer, data)) = collecting();
    let remove = |command: &Command| matches!(command, Command::Blob(BlobCommand::Remove { .. }));
    for _ in 0..9 {
        cluster.run(b, |command| !remove(command));
        cluster.tick(1);
    }
    assert!(cluster.nodes[b].host.commands.iter().any(remove));
    peer.send_own(&mut cluster, OwnMessage::SnapshotOffer(offer));
    cluster.run(b, |command| !remove(command));
    let heard = peer.heard(&mut cluster);
    assert!(!heard.iter().any(asks), "{heard:?}");
    let heard = peer.settled(&mut cluster);
    assert!(heard.iter().any(asks), "{heard:?}");
    assert!(matches!(cluster.done(b, request), Done::Collected(found) if found.blobs == 1));
    peer.send_own(&mut cluster, OwnMessage::SnapshotChunk(SnapshotChunk { offset: 0, data }));
    let heard = peer.settled(&mut cluster);
    let wants = |message: &Message| matches!(message, Message::Own(OwnMessage::BlobRangeGet(get)) if get.key == blob_key(BLOB));
    assert!(heard.iter().any(wants), "{heard:?}");
    let piece = BlobRange { key: blob_key(BLOB), offset: 0, total: BLOB.len() as u64, data: BLOB.to_vec() };
    peer.send_own(&mut cluster, OwnMessage::BlobRange(piece));
    cluster.settle();
    has_what_it_says(&mut cluster, b, offer.cut);
}

#[test]
fn a_list_for_a_collection_that_ended_is_no_page_of_the_next() {
    let (mut cluster, b, peer, first, (offer, data)) = collecting();
    let list = |command: &Command| matches!(command, Command::Blob(BlobCommand::List { .. }));
    peer.send_own(&mut cluster, OwnMessage::SnapshotOffer(offer));
    cluster.run(b, |command| !list(command));
    peer.send_own(&mut cluster, OwnMessage::SnapshotChunk(SnapshotChunk { offset: 0, data }));
    cluster.run(b, |command| !list(command));
    let now = cluster.now;
    let second = cluster.replica(b).handle_collect(now, Collect { dry_run: false, untouched_ms: 1000 });
    cluster.drain(b);
    assert_eq!(cluster.nodes[b].host.commands.iter().filter(|c| list(c)).count(), 2);
    assert!(matches!(cluster.done(b, first), Done::Refused(RequestError::Busy { .. })));
    let Done::Collected(found) = cluster.done(b, second) else { panic!("collected") };
    assert_eq!((found.looked, found.blobs), (1, 0));
    has_what_it_says(&mut cluster, b, offer.cut);
}

/// A follower whose only source is cut off in the middle of a snapshot.
fn cut_off() -> (Cluster, usize) {
    let mut cluster = Cluster::new(3);
    let a = writer(&mut cluster, small_config());
    let c = cluster.add("c", false, small_config());
    let (link, _) = cluster.connect(c, a).expect("connects");
    in_the_middle(&mut cluster, a, c);
    cluster.cut(c, link);
    cluster.settle();
    assert!(cluster.replica(c).status().installing, "it may go on with that");
    (cluster, c)
}

#[test]
fn a_snapshot_that_nobody_brings_holds_up_no_fence() {
    let (mut cluster, c) = cut_off();
    let done = fence(&mut cluster, c, 9);
    assert!(matches!(done, Done::Fenced(_)), "{done:?}");
    cluster.settle();
    assert!(!cluster.replica(c).status().installing);
    assert_eq!(checkpoints(&cluster, c), 0);
    cluster.put(c, "k", b"written");
}

#[test]
fn a_snapshot_that_nobody_brings_holds_up_no_reset_and_no_collection() {
    let (mut cluster, c) = cut_off();
    let now = cluster.now;
    let cursor = cluster.replica(c).cursor();
    let (id, _) = cluster.replica(c).handle_subscribe(now, cursor).expect("subscribes");
    cluster.replica(c).handle_reset(now, id);
    cluster.replica(c).handle_page_wanted(now, id);
    cluster.drain(c);
    let begun = |event: &Event| matches!(event, Event::Page { page: Page::ResetBegin { .. }, .. });
    assert!(cluster.nodes[c].host.events.iter().any(begun), "{:?}", cluster.nodes[c].host.events);
    let request = cluster.replica(c).handle_members(now, MembersChange::Clear);
    assert_eq!(cluster.done(c, request), Done::Members);
    let request = cluster.replica(c).handle_collect(now, Collect { dry_run: true, untouched_ms: 1000 });
    let done = cluster.done(c, request);
    assert!(matches!(done, Done::Collected(_)), "{done:?}");
}

#[test]
fn pieces_that_were_asked_for_twice_since_an_offer_crossed_the_questions_may_come_twice() {
    // The source got the questions before its offer, or let go of them.
    for twice in [true, false] {
        let mut cluster = Cluster::new(5);
        let b = cluster.add("b", false, small_config());
        let mut peer = Peer::native(&mut cluster, b, "p");
        let key = |n| format!("{n} {}", "x".repeat(200));
        let gone: Vec<_> = (1000..3000).map(|n| record(&key(n), State::Deleted, n)).collect();
        let (offer, data) = snapshot(Version::new(1, 3000), &gone);
        let pieces: Vec<&[u8]> = data.chunks(PIECE as usize).collect();
        assert!(pieces.len() > 1);
        peer.stand(&mut cluster, offer.cut, offer.cut);
        for _ in 0..2 {
            peer.send_own(&mut cluster, OwnMessage::SnapshotOffer(offer));
            let asked = peer.settled(&mut cluster).iter().filter(|message| asks(message)).count();
            assert_eq!(asked, pieces.len());
        }
        for _ in 0..if twice { 2 } else { 1 } {
            for (n, piece) in pieces.iter().enumerate() {
                let chunk = SnapshotChunk { offset: n as u64 * PIECE, data: piece.to_vec() };
                peer.send_own(&mut cluster, OwnMessage::SnapshotChunk(chunk));
            }
        }
        cluster.settle();
        assert_eq!(peer.fault(&mut cluster), None);
        assert_eq!(cluster.replica(b).status().tail, offer.cut);
    }
}
