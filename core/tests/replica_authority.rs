//! The right to write a log: it moves by an epoch that is durable before its first write, and an
//! epoch that is over is refused everywhere.

mod common;

use common::cluster::{Cluster, delete, small_config};
use common::forks::{divergence, fence, isolate, write};
use common::peer::{Peer, record, snapshot};
use strandline_core::journal::command::{FileName, StorageCommand};
use strandline_core::lifecycle::api::{
    CloseReason, Done, Event, Fenced, MembersChange, MutationError, PairReason, RequestError, RequestId,
};
use strandline_core::lifecycle::authority::FenceRefusal;
use strandline_core::lifecycle::command::Command;
use strandline_core::record::{AuthorityId, State, Version};
use strandline_core::wire::message::Message;
use strandline_core::wire::own::{EpochMark, Mark, OwnMessage, Position};

const NODES: [&str; 3] = ["a", "b", "c"];

/// Writer `a`, followers `b` and `c`, all linked; ten records everywhere.
fn three() -> Cluster {
    let mut cluster = Cluster::new(3);
    for name in NODES {
        cluster.add(name, name == "a", small_config());
    }
    for (x, y) in [(0, 1), (1, 2), (2, 0)] {
        cluster.connect(x, y).expect("connects");
    }
    write(&mut cluster, 0, 10);
    cluster
}

fn fenced(cluster: &mut Cluster, at: usize) -> bool {
    matches!(cluster.mutate(at, &[delete("k")]), Err(MutationError::Fenced { .. }))
}

#[test]
fn the_authority_moves_and_every_replica_knows_before_the_first_write() {
    let mut cluster = three();
    let end = cluster.replica(0).status().tail;
    let done = fence(&mut cluster, 1, 2);
    let authority = AuthorityId::from_text("b");
    assert_eq!(done, Done::Fenced(Fenced { epoch: 2, authority: authority.clone(), previous_end: end }));
    let started = Event::EpochStarted { epoch: 2, authority, previous_end: end };
    for at in 0..3 {
        assert_eq!(cluster.replica(at).status().epoch, 2, "{at} knows");
        assert!(cluster.nodes[at].host.events.contains(&started), "{at} tells");
    }
    assert!(fenced(&mut cluster, 0), "the old writer writes no more");
    assert!(
        matches!(cluster.mutate(2, &[delete("k")]), Err(MutationError::NotAuthority { authority }) if authority == "b")
    );
    write(&mut cluster, 1, 5);
    let tails = [0, 1, 2].map(|at| cluster.replica(at).status().tail_digest);
    assert_eq!((tails[0], tails[2]), (tails[1], tails[1]), "all follow, the old writer too");
    assert_eq!(cluster.replica(1).status().tail, Version::new(2, 5));
}

#[test]
fn the_authority_moves_back() {
    let mut cluster = three();
    fence(&mut cluster, 1, 2);
    write(&mut cluster, 1, 2);
    assert!(matches!(fence(&mut cluster, 0, 3), Done::Fenced(_)));
    write(&mut cluster, 0, 2);
    assert!(fenced(&mut cluster, 1));
    for at in 0..3 {
        cluster.kill(at);
        cluster.restart(at);
        assert_eq!(cluster.replica(at).status().epoch, 3);
    }
    cluster.put(0, "k", b"after a restart");
    cluster.settle();
}

#[test]
fn a_record_of_an_epoch_that_is_over_is_refused_by_whoever_knows() {
    for restarted in [false, true] {
        let mut cluster = three();
        isolate(&mut cluster, 0);
        let end = cluster.replica(0).status().tail;
        fence(&mut cluster, 1, 2);
        write(&mut cluster, 0, 3);
        if restarted {
            cluster.kill(2);
            cluster.restart(2);
        }
        cluster.connect(0, 2).expect("connects");
        cluster.settle();
        assert_eq!(cluster.replica(2).status().tail, end, "nothing of it is appended");
        for (at, of) in [(2, "a"), (0, "c")] {
            let found = divergence(&mut cluster, at, of);
            assert_eq!(found.reason, PairReason::FencedEpoch, "{found}");
        }
        assert!(fenced(&mut cluster, 0), "it heard that its epoch is over");
        cluster.kill(0);
        cluster.restart(0);
        assert!(fenced(&mut cluster, 0), "and knows it after a restart");
    }
}

#[test]
fn an_epoch_below_what_peers_know_is_refused() {
    let mut cluster = three();
    isolate(&mut cluster, 2);
    fence(&mut cluster, 1, 5);
    cluster.connect(2, 1).expect("connects");
    cluster.settle();
    let refused = Done::Refused(RequestError::Fence(FenceRefusal { known: 5, found: 5 }));
    assert_eq!(fence(&mut cluster, 2, 5), refused);
    assert!(matches!(fence(&mut cluster, 2, 6), Done::Fenced(_)));
}

#[test]
fn a_replica_that_is_still_taking_records_does_not_begin_an_epoch() {
    let mut cluster = Cluster::new(3);
    let (a, b) = (cluster.add("a", true, small_config()), cluster.add("b", false, small_config()));
    write(&mut cluster, a, 50);
    cluster.connect(a, b).expect("connects");
    while cluster.replica(b).status().submitted.is_zero() {
        cluster.step(a);
        cluster.step(b);
    }
    let now = cluster.now;
    let request = cluster.replica(b).handle_fence(now, 2);
    let done = cluster.done(b, request);
    assert!(matches!(&done, Done::Refused(RequestError::PeerAhead { peer, .. }) if peer == "a"), "{done:?}");
    assert!(matches!(fence(&mut cluster, b, 2), Done::Fenced(_)), "it has them by now");
}

#[test]
fn a_lost_sidecar_refuses_writes_until_fenced_above_all_that_is_known() {
    let mut cluster = three();
    cluster.kill(0);
    cluster.nodes[0].host.disk.files.remove(&FileName::Authority);
    cluster.restart(0);
    for at in [1, 2] {
        cluster.connect(0, at).expect("connects");
    }
    write_refused(&mut cluster, 0);
    let refused = Done::Refused(RequestError::Fence(FenceRefusal { known: 1, found: 1 }));
    assert_eq!(fence(&mut cluster, 0, 1), refused);
    assert!(matches!(fence(&mut cluster, 0, 2), Done::Fenced(_)));
    write(&mut cluster, 0, 1);
    assert_eq!(cluster.replica(2).status().tail, Version::new(2, 1));
}

fn write_refused(cluster: &mut Cluster, at: usize) {
    cluster.settle();
    assert!(fenced(cluster, at));
    assert!(cluster.replica(at).status().fenced.is_some());
}

#[test]
fn a_move_is_done_or_not_wherever_the_power_goes() {
    let (mut moved, mut stayed) = (0, 0);
    for executed in 0..12 {
        let mut cluster = three();
        isolate(&mut cluster, 1);
        let end = cluster.replica(1).status().tail;
        let now = cluster.now;
        cluster.replica(1).handle_fence(now, 2);
        for _ in 0..executed {
            cluster.drain(1);
            cluster.execute_next(1);
        }
        cluster.kill(1);
        cluster.restart(1);
        cluster.settle();
        let status = cluster.replica(1).status();
        assert_eq!(status.tail, end, "{executed}");
        match status.authority {
            Some(_) => {
                moved += 1;
                assert_eq!(status.epoch, 2, "{executed}: it has begun before anything is written");
                write(&mut cluster, 1, 1);
            }
            None => {
                stayed += 1;
                assert!(matches!(fence(&mut cluster, 1, 3), Done::Fenced(_)), "{executed}");
            }
        }
    }
    assert!(moved > 0 && stayed > 0, "{moved} {stayed}");
}

#[test]
fn nothing_is_written_while_the_epoch_begins() {
    let mut cluster = three();
    let now = cluster.now;
    cluster.put(0, "k", b"under way");
    let request = cluster.replica(0).handle_fence(now, 2);
    assert!(fenced(&mut cluster, 0));
    let Done::Fenced(done) = cluster.done(0, request) else { panic!("it moves onto itself") };
    assert_eq!(done.previous_end, Version::new(1, 11), "what was under way belongs to the old epoch");
    write(&mut cluster, 0, 1);
    assert_eq!(cluster.replica(2).status().tail, Version::new(2, 1));
}

#[test]
fn one_move_at_a_time() {
    let mut cluster = three();
    let now = cluster.now;
    let first = cluster.replica(0).handle_fence(now, 2);
    let second = cluster.replica(0).handle_fence(now, 3);
    assert!(matches!(cluster.done(0, second), Done::Refused(RequestError::Busy { .. })));
    assert!(matches!(cluster.done(0, first), Done::Fenced(_)));
}

#[test]
fn an_epoch_without_records_outlives_a_compaction() {
    let mut cluster = three();
    fence(&mut cluster, 1, 2);
    for at in [1, 2] {
        let now = cluster.now;
        let request = cluster.replica(at).handle_members(now, MembersChange::Clear);
        cluster.done(at, request);
        let request = cluster.replica(at).handle_compact(now, None);
        assert!(matches!(cluster.done(at, request), Done::Compacted(_)));
        cluster.kill(at);
        cluster.restart(at);
        assert_eq!(cluster.replica(at).status().epoch, 2);
    }
}

#[test]
fn no_link_is_closed_for_a_move() {
    let mut cluster = three();
    fence(&mut cluster, 1, 2);
    write(&mut cluster, 1, 5);
    let closed = |event: &Event| matches!(event, Event::CloseLink { reason: CloseReason::Fault(_), .. });
    for node in &cluster.nodes {
        assert!(!node.host.events.iter().any(closed));
        assert_eq!(node.links.len(), 2);
    }
}

fn at(sequence: u64) -> Version {
    Version::new(1, sequence)
}

/// A follower without records that is asked to begin epoch 2, and a peer it knows; nothing is done yet.
fn beginning() -> (Cluster, usize, RequestId) {
    let mut cluster = Cluster::new(5);
    cluster.add("a", true, small_config());
    let b = cluster.add("b", false, small_config());
    let now = cluster.now;
    let request = cluster.replica(b).handle_fence(now, 2);
    (cluster, b, request)
}

#[test]
fn a_snapshot_that_waited_while_an_epoch_began_does_not_take_its_place() {
    let (mut cluster, b, request) = beginning();
    let mut peer = Peer::native(&mut cluster, b, "a");
    peer.stand(&mut cluster, at(9), at(9));
    let (offer, _) = snapshot(at(9), &[record("k", State::Deleted, 9)]);
    peer.send_own(&mut cluster, OwnMessage::SnapshotOffer(offer));
    let heard = peer.settled(&mut cluster);
    let asks = |message: &Message| matches!(message, Message::Own(OwnMessage::SnapshotGet(_)));
    assert!(!heard.iter().any(asks), "{heard:?}");
    assert!(matches!(cluster.done(b, request), Done::Fenced(_)));
    assert_eq!(divergence(&mut cluster, b, "a").reason, PairReason::FencedEpoch);
}

#[test]
fn a_history_with_records_of_an_epoch_that_was_over_is_no_part_of_ours() {
    let (mut cluster, b, request) = beginning();
    assert!(matches!(cluster.done(b, request), Done::Fenced(_)));
    let peer = Peer::native(&mut cluster, b, "a");
    let (first, last) = (at(1), Version::new(3, 1));
    let authority = || AuthorityId::from_text("a");
    let mark = |epoch, start, previous_end| EpochMark { epoch, start, previous_end, authority: authority() };
    let here = Mark { version: last, digest: None };
    let epochs = vec![mark(1, first, Version::ZERO), mark(3, last, first)];
    peer.send_own(&mut cluster, OwnMessage::Position(Position { floor: here, tail: here, epochs }));
    cluster.settle();
    let found = divergence(&mut cluster, b, "a");
    assert_eq!((found.reason, found.at), (PairReason::FencedEpoch, first));
}

#[test]
fn an_epoch_without_records_before_ours_is_no_fault() {
    let (mut cluster, b, request) = beginning();
    cluster.done(b, request);
    assert!(matches!(fence(&mut cluster, b, 3), Done::Fenced(_)));
    let peer = Peer::native(&mut cluster, b, "a");
    let mark = |epoch, name| EpochMark {
        epoch,
        start: Version::new(epoch, 0),
        previous_end: Version::ZERO,
        authority: AuthorityId::from_text(name),
    };
    let here = Mark { version: Version::ZERO, digest: None };
    let epochs = vec![mark(2, "b")];
    peer.send_own(&mut cluster, OwnMessage::Position(Position { floor: here, tail: here, epochs }));
    cluster.settle();
    let link = cluster.replica(b).status().links.pop().expect("a link");
    assert!(link.verdict.is_some_and(|verdict| verdict.is_complete()), "{:?}", cluster.nodes[b].host.events);
}

/// Where a peer without records stands that has heard of `epoch`.
fn tells(peer: &Peer, cluster: &mut Cluster, epoch: u64, here: Version) {
    let authority = AuthorityId::from_text("w");
    let mark = EpochMark { epoch, start: Version::new(epoch, 0), previous_end: here, authority };
    let here = Mark { version: here, digest: None };
    peer.send_own(cluster, OwnMessage::Position(Position { floor: here, tail: here, epochs: vec![mark] }));
}

#[test]
fn a_higher_epoch_that_is_heard_while_one_is_taken_ends_the_move() {
    // The sidecar is being written, then `current`.
    for current in [false, true] {
        let (mut cluster, b, request) = beginning();
        let naming = |command: &Command| {
            let file = FileName::Current;
            matches!(command, Command::Storage(StorageCommand::Replace { file: found, .. }) if *found == file)
        };
        cluster.drain(b);
        if current {
            cluster.run(b, |command| !naming(command));
        }
        assert_eq!(cluster.nodes[b].host.commands.iter().any(naming), current);
        let peer = Peer::native(&mut cluster, b, "w");
        tells(&peer, &mut cluster, 3, Version::ZERO);
        let refused = Done::Refused(RequestError::Fence(FenceRefusal { known: 3, found: 2 }));
        assert_eq!(cluster.done(b, request), refused, "{current}");
        assert!(fenced(&mut cluster, b));
        cluster.settle();
        cluster.kill(b);
        cluster.restart(b);
        assert!(cluster.replica(b).status().authority.is_none(), "{current}: nor after a restart");
        // Requests are counted afresh.
        cluster.nodes[b].host.events.clear();
        assert!(matches!(fence(&mut cluster, b, 4), Done::Fenced(_)));
    }
}

/// What else a peer says of where it stands waits for the next time it does.
#[test]
fn a_higher_epoch_is_heard_while_an_earlier_position_is_judged() {
    let mut cluster = Cluster::new(5);
    let a = cluster.add("a", true, small_config());
    write(&mut cluster, a, 9);
    let tail = cluster.replica(a).status().tail;
    let peer = Peer::native(&mut cluster, a, "w");
    cluster.settle();
    // The digest there is read, which takes its time.
    let floor = Mark { version: Version::ZERO, digest: None };
    let here = Mark { version: at(tail.sequence - 1), digest: Some([7; 32]) };
    peer.send_own(&mut cluster, OwnMessage::Position(Position { floor, tail: here, epochs: Vec::new() }));
    cluster.drain(a);
    assert!(!cluster.nodes[a].host.commands.is_empty(), "it is being judged");
    assert!(peer.status(&mut cluster).verdict.is_none());
    tells(&peer, &mut cluster, 3, Version::ZERO);
    assert!(fenced(&mut cluster, a));
}

#[test]
fn a_higher_epoch_that_is_heard_before_anything_is_stored_ends_both() {
    for (taken, wins) in [(5, false), (7, true)] {
        let mut cluster = Cluster::new(3);
        let a = cluster.add("a", true, small_config());
        cluster.settle();
        cluster.put(a, "k", b"under way");
        let now = cluster.now;
        let request = cluster.replica(a).handle_fence(now, taken);
        let peer = Peer::native(&mut cluster, a, "w");
        tells(&peer, &mut cluster, 6, Version::ZERO);
        assert!(fenced(&mut cluster, a));
        let done = cluster.done(a, request);
        assert_eq!(matches!(done, Done::Fenced(_)), wins, "{done:?}");
        cluster.settle();
        cluster.kill(a);
        cluster.restart(a);
        assert_eq!(cluster.replica(a).status().authority.is_some(), wins, "as after a restart");
    }
}
