//! Snapshots at size, in small: pinned cuts, their deadline, and nothing cut that counts as whole.

mod common;

use common::cluster::{Cluster, blob_key, put, small_config};
use common::peer::{Peer, record, snapshot, snapshot_with};
use strandline_core::journal::command::FileName;
use strandline_core::lifecycle::api::{
    Collect, Done, Event, MembersChange, PeerFaultKind, RequestError, RequestId,
};
use strandline_core::lifecycle::command::{BlobCommand, Command};
use strandline_core::lifecycle::config::ReplicaConfig;
use strandline_core::record::{AuthorityId, Record, State, Version};
use strandline_core::wire::message::Message;
use strandline_core::wire::own::{BlobRange, EpochMark, OwnMessage, SnapshotChunk, SnapshotOffer};

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
    let now = cluster.now;
    let request = cluster.replica(a).handle_compact(now, None);
    alone(&mut cluster, a);
    let done = |cluster: &Cluster| {
        let events = &cluster.nodes[a].host.events;
        events.iter().any(|e| matches!(e, Event::Done { request: found, .. } if *found == request))
    };
    assert!(done(&cluster));
    assert_eq!(checkpoints(&cluster, a), 2, "what is being read stays");
    cluster.tick(pin_ms + keepalive_ms + 1);
    alone(&mut cluster, a);
    assert_eq!(checkpoints(&cluster, a), 1, "until its time is over");
    assert_eq!(cluster.replica(a).status().links.len(), 1, "its link stays");
    // Whatever became of the link: the follower gets all of it.
    cluster.settle();
    for link in cluster.nodes[c].links.keys().copied().collect::<Vec<_>>() {
        cluster.cut(c, link);
    }
    cluster.connect(c, a).expect("connects");
    cluster.settle();
    let (sa, sc) = (cluster.replica(a).status(), cluster.replica(c).status());
    assert_eq!((sa.tail, sa.tail_digest, sa.present), (sc.tail, sc.tail_digest, sc.present));
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
