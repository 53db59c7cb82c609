//! What the simulator found in long runs, each as small as it can be. The third of them, a batch that
//! repeats other records than are held, stands in `replica_hostile`.
#![cfg(feature = "lifecycle")]

mod common;

use common::cluster::{Cluster, small_config};
use common::peer::{Peer, record, snapshot};
use strandline_core::journal::command::StorageCommand;
use strandline_core::lifecycle::api::PairReason;
use strandline_core::lifecycle::command::Command;
use strandline_core::record::{AuthorityId, State, Version};
use strandline_core::verdict::Verdict;
use strandline_core::wire::message::Message;
use strandline_core::wire::own::{EpochMark, Mark, OwnMessage, Position, SnapshotChunk, SnapshotGet};
use strandline_core::wire::repair::Batch;

fn at(sequence: u64) -> Version {
    Version::new(1, sequence)
}

/// A follower and a peer that stands at `tail`, with a history nobody can check.
fn follower(floor: Version, tail: Version) -> (Cluster, usize, Peer) {
    let mut cluster = Cluster::new(1);
    let b = cluster.add("b", false, small_config());
    let mut peer = Peer::native(&mut cluster, b, "p");
    peer.stand(&mut cluster, floor, tail);
    let _ = peer.settled(&mut cluster);
    (cluster, b, peer)
}

/// A source may let go of a snapshot whose pieces were all read and offer another, while its receiver
/// still makes the first one durable: that was called the peer's fault.
#[test]
fn an_offer_during_the_sync_of_the_last_snapshot_waits_for_it() {
    let (mut cluster, b, mut peer) = follower(at(9), at(9));
    let (first, bytes) = snapshot(at(9), &[record("k", State::Deleted, 1)]);
    let (second, _) = snapshot(at(12), &[record("k", State::Deleted, 11)]);
    peer.send_own(&mut cluster, OwnMessage::SnapshotOffer(first));
    peer.send_own(&mut cluster, OwnMessage::SnapshotChunk(SnapshotChunk { offset: 0, data: bytes }));
    let sync = |command: &Command| matches!(command, Command::Storage(StorageCommand::Sync { .. }));
    cluster.run(b, |command| !sync(command));
    assert!(cluster.nodes[b].host.commands.iter().any(sync), "the first one is being made durable");

    peer.send_own(&mut cluster, OwnMessage::SnapshotOffer(second));
    let heard = peer.settled(&mut cluster);
    assert_eq!(peer.fault(&mut cluster), None);
    assert_eq!(cluster.replica(b).status().tail, at(9));
    let get = OwnMessage::SnapshotGet(SnapshotGet { sha256: second.sha256, offset: 0 });
    assert!(heard.contains(&Message::Own(get)), "the second one is asked for: {heard:?}");
}

/// A follower below the floor of another writer of its log has no digest to compare: how the epochs
/// began tells the two histories apart, and nobody looked at it.
#[test]
fn epochs_that_began_otherwise_are_another_history() {
    let (mut cluster, b, mut peer) = follower(Version::ZERO, at(1));
    let records = vec![record("k", State::Deleted, 1)];
    let batch = Batch { from: Version::ZERO, to: at(1), more: false, records };
    peer.send(&mut cluster, &Message::Batch(batch));
    assert!(peer.settled(&mut cluster).contains(&Message::Ack { watermark: at(1) }));

    let stranger = Peer::native(&mut cluster, b, "q");
    let mark = Mark { version: at(9), digest: Some([5; 32]) };
    let authority = AuthorityId::from_text("q");
    let epochs = vec![EpochMark { epoch: 1, start: at(2), previous_end: Version::ZERO, authority }];
    stranger.send_own(&mut cluster, OwnMessage::Position(Position { floor: mark, tail: mark, epochs }));
    cluster.settle();
    let verdict = stranger.status(&mut cluster).verdict;
    assert!(
        matches!(&verdict, Some(Verdict::Diverged(d)) if d.reason == PairReason::OtherHistory),
        "{verdict:?}"
    );
    assert_eq!(cluster.replica(b).status().tail, at(1));
}
