//! Verdicts between peers: two histories of one log never mix, both sides say where they part, a peer
//! that lost what it had acknowledged is told, and repair that gets nowhere ends.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a test names what it expects, and fails on the rest or passes over it"
)]

mod common;

use common::cluster::{Cluster, small_config};
use common::peer::{Peer, record};
use std::collections::BTreeSet;
use strandline_core::lifecycle::api::{Divergence, Event, PairReason, PairVerdict, PeerFaultKind, Verified};
use strandline_core::lifecycle::recovery::Init;
use strandline_core::record::{State, Version};
use strandline_core::verdict::Verdict;
use strandline_core::wire::message::Message;
use strandline_core::wire::own::{DigestAt, DigestGet, OwnMessage};

fn v(sequence: u64) -> Version {
    Version::new(1, sequence)
}

fn write(cluster: &mut Cluster, at: usize, text: &str, count: usize) {
    for i in 0..count {
        cluster.put(at, &format!("k{}", i % 7), format!("{text} {i}").as_bytes());
        cluster.settle();
    }
}

/// The divergence that a node shows on its one link.
fn divergence(cluster: &mut Cluster, at: usize) -> Divergence {
    let links = cluster.replica(at).status().links;
    match links.last().and_then(|link| link.verdict.clone()) {
        Some(Verdict::Diverged(found)) => found,
        other => panic!("node {at} says {other:?}"),
    }
}

fn verdicts(cluster: &Cluster, at: usize, name: &str) -> Vec<PairVerdict> {
    let of = |event: &Event| match event {
        Event::Verdict { identity, verdict, .. } if identity == name => Some(verdict.clone()),
        _ => None,
    };
    cluster.nodes[at].host.events.iter().filter_map(of).collect()
}

/// Writer `a` with a follower `b` that has everything; then an old copy of `a`'s directory is put
/// back, whose first `common` records are those of `b`.
fn copy_put_back(restart_before_the_rest: bool) -> (Cluster, usize, usize) {
    let mut cluster = Cluster::new(7);
    let a = cluster.add("a", true, small_config());
    let b = cluster.add("b", false, small_config());
    write(&mut cluster, a, "common", 20);
    let copy = cluster.nodes[a].host.disk.clone();
    if restart_before_the_rest {
        cluster.kill(a);
        cluster.restart(a);
    }
    write(&mut cluster, a, "first life", 20);
    cluster.connect(a, b).expect("connects");
    cluster.settle();
    cluster.kill(a);
    cluster.nodes[a].host.disk = copy;
    cluster.restart(a);
    (cluster, a, b)
}

/// Two histories of one authority that differ in every tenth record, which those after it hide.
#[test]
fn a_third_replica_never_takes_the_end_of_one_history_after_the_beginning_of_another() {
    for seed in 0..60 {
        let mut cluster = Cluster::new(seed);
        let a = cluster.add("a", true, small_config());
        let init = Init { identity: "b".into(), ..cluster.init("a", true) };
        let b = cluster.add_init(init, small_config());
        let c = cluster.add("c", false, small_config());
        let mut histories = BTreeSet::from([[0; 32]]);
        for i in 0..60 {
            for (at, text) in [(a, "of a"), (b, "of b")] {
                let text = if i % 10 == 0 { text } else { "of both" };
                cluster.put(at, &format!("k{}", i % 2), text.as_bytes());
                cluster.settle();
                histories.insert(cluster.replica(at).status().tail_digest);
            }
        }
        cluster.connect(c, a).expect("connects");
        cluster.connect(c, b).expect("connects");
        // Now the one is heard for a while, now the other.
        let (mut heard, mut left) = (a, 0);
        for _ in 0..3_000 {
            if left == 0 {
                (heard, left) = ([a, b][cluster.rng.below(2) as usize], 1 + cluster.rng.below(12));
            }
            left -= 1;
            cluster.step(heard);
            cluster.step(c);
            let digest = cluster.replica(c).status().tail_digest;
            assert!(histories.contains(&digest), "seed {seed}: c holds what nobody wrote");
        }
        cluster.settle();
        let status = cluster.replica(c).status();
        assert!(histories.contains(&status.tail_digest), "seed {seed}");
        let stopped = status.links.iter().filter(|link| link.state == "stopped").count();
        assert_eq!(stopped, 1, "seed {seed}: one of the two is another history: {:?}", status.links);
    }
}

#[test]
fn ahead_of_a_copy_put_back_is_told_on_both_sides() {
    let (mut cluster, a, b) = copy_put_back(false);
    cluster.connect(a, b).expect("connects");
    cluster.settle();
    let (of_a, of_b) = (divergence(&mut cluster, a), divergence(&mut cluster, b));
    assert_eq!((of_a.reason, of_a.at), (PairReason::AheadOfTail, v(20)));
    assert_eq!((of_b.reason, of_b.at), (PairReason::AheadOfTail, v(20)));
    assert_eq!(cluster.replica(b).status().tail, v(40), "nothing is lost");
}

#[test]
fn where_histories_part_is_found_and_shown_on_both_sides() {
    // Other versions in the second life, and the same ones.
    for same_versions in [false, true] {
        let (mut cluster, a, b) = copy_put_back(same_versions);
        write(&mut cluster, a, "second life", 5);
        cluster.connect(a, b).expect("connects");
        cluster.settle();
        let (of_a, of_b) = (divergence(&mut cluster, a), divergence(&mut cluster, b));
        assert_eq!(of_a.at, v(1025), "{of_a}");
        assert_eq!(of_b.at, v(1025), "{of_b}");
        let tails = [cluster.replica(a).status().tail, cluster.replica(b).status().tail];
        let of_first_life = if same_versions { v(1044) } else { v(40) };
        assert_eq!(tails, [v(1029), of_first_life], "nothing is lost on either side");
    }
}

#[test]
fn where_long_histories_part_is_found_with_few_questions() {
    let mut config = small_config();
    config.journal.pending_entries_max = 5_000;
    let mut cluster = Cluster::new(3);
    let (a, b) = (cluster.add("a", true, config.clone()), cluster.add("b", false, config.clone()));
    for _ in 0..30 {
        write(&mut cluster, a, "common", 100);
    }
    let copy = cluster.nodes[a].host.disk.clone();
    cluster.kill(a);
    cluster.restart(a);
    for _ in 0..20 {
        write(&mut cluster, a, "first life", 100);
    }
    cluster.connect(a, b).expect("connects");
    cluster.settle();
    cluster.kill(a);
    cluster.nodes[a].host.disk = copy;
    cluster.restart(a);
    let parted = cluster.put(a, "k", b"second life").version;
    for _ in 0..25 {
        write(&mut cluster, a, "second life", 100);
    }
    cluster.connect(a, b).expect("connects");
    cluster.settle();
    assert_eq!(divergence(&mut cluster, a).at, parted);
    assert_eq!(divergence(&mut cluster, b).at, parted);
}

#[test]
fn an_acknowledgement_of_what_was_not_sent_here_is_compared_first() {
    for (digest, agrees) in [(None, true), (Some([9; 32]), false)] {
        let mut cluster = Cluster::new(1);
        let a = cluster.add("a", true, small_config());
        let mut peer = Peer::native(&mut cluster, a, "p");
        peer.stand(&mut cluster, Version::ZERO, Version::ZERO);
        write(&mut cluster, a, "of a", 1);
        let _ = peer.settled(&mut cluster);
        write(&mut cluster, a, "of a", 2);
        peer.ack(&mut cluster, v(2));
        let heard = peer.settled(&mut cluster);
        let asked = Message::Own(OwnMessage::DigestGet(DigestGet { version: v(2) }));
        assert_eq!(heard, [asked], "nothing is sent before the answer");
        assert_eq!(peer.status(&mut cluster).acked, Version::ZERO);
        peer.send_own(&mut cluster, OwnMessage::Digest(DigestAt { version: v(2), digest, asks: false }));
        let heard = peer.settled(&mut cluster);
        let goes_on = heard.iter().any(|m| matches!(m, Message::Batch(batch) if batch.from == v(2)));
        assert_eq!(goes_on, agrees, "{heard:?}");
        assert_eq!(peer.status(&mut cluster).acked, if agrees { v(2) } else { Version::ZERO });
    }
}

#[test]
fn questions_for_digests_are_bounded() {
    let mut cluster = Cluster::new(1);
    let a = cluster.add("a", true, small_config());
    write(&mut cluster, a, "of a", 3);
    let mut peer = Peer::native(&mut cluster, a, "p");
    peer.stand(&mut cluster, Version::ZERO, Version::ZERO);
    let _ = peer.settled(&mut cluster);
    for _ in 0..64 {
        peer.send_own(&mut cluster, OwnMessage::DigestGet(DigestGet { version: v(2) }));
    }
    let heard = peer.settled(&mut cluster);
    let answers = heard.iter().filter(|m| matches!(m, Message::Own(OwnMessage::Digest(_)))).count();
    assert_eq!((answers, peer.fault(&mut cluster)), (64, None));
    peer.send_own(&mut cluster, OwnMessage::DigestGet(DigestGet { version: v(2) }));
    assert_eq!(peer.fault(&mut cluster), Some(PeerFaultKind::Limit));
}

#[test]
fn a_version_that_is_not_ours_has_no_digest() {
    let mut cluster = Cluster::new(1);
    let a = cluster.add("a", true, small_config());
    write(&mut cluster, a, "of a", 3);
    let mut peer = Peer::native(&mut cluster, a, "p");
    peer.stand(&mut cluster, Version::ZERO, Version::ZERO);
    let _ = peer.settled(&mut cluster);
    for version in [v(9), Version::new(7, 1)] {
        peer.send_own(&mut cluster, OwnMessage::DigestGet(DigestGet { version }));
        let answer = Message::Own(OwnMessage::Digest(DigestAt { version, digest: None, asks: false }));
        assert_eq!(peer.settled(&mut cluster), [answer]);
    }
}

#[test]
fn a_search_whose_peer_does_not_answer_ends_with_what_is_known() {
    let mut cluster = Cluster::new(1);
    let a = cluster.add("a", true, small_config());
    write(&mut cluster, a, "of a", 8);
    let peer = Peer::native(&mut cluster, a, "p");
    peer.stand(&mut cluster, Version::ZERO, Version::ZERO);
    cluster.settle();
    peer.send_own(
        &mut cluster,
        OwnMessage::Digest(DigestAt { version: v(8), digest: Some([9; 32]), asks: false }),
    );
    cluster.settle();
    assert_eq!(peer.status(&mut cluster).state, "stopped");
    let keepalive_ms = small_config().keepalive_ms;
    cluster.pass(keepalive_ms);
    cluster.pass(keepalive_ms);
    assert_eq!(divergence(&mut cluster, a).at, v(8));
}

#[test]
fn a_wiped_follower_is_told_as_another_life_and_repaired() {
    let mut cluster = Cluster::new(5);
    let a = cluster.add("a", true, small_config());
    let b = cluster.add("b", false, small_config());
    write(&mut cluster, a, "of a", 10);
    cluster.connect(a, b).expect("connects");
    cluster.settle();
    cluster.kill(b);
    cluster.nodes[b].host.disk = common::disk::Disk::default();
    let init = cluster.init("b", false);
    cluster.start(b, Some(init)).expect("made anew");
    cluster.nodes[a].host.events.clear();
    cluster.connect(a, b).expect("connects");
    cluster.settle();
    let lost = Verdict::Gap { from: Version::ZERO, to: v(10), reason: PairReason::OtherIncarnation };
    let told = verdicts(&cluster, a, "b");
    assert_eq!(told.first(), Some(&lost));
    assert!(told.last().is_some_and(Verdict::is_complete), "{told:?}");
    assert_eq!(cluster.replica(b).status().tail, v(10));
}

#[test]
fn a_follower_whose_old_copy_was_put_back_is_told_and_repaired() {
    let mut cluster = Cluster::new(5);
    let a = cluster.add("a", true, small_config());
    let b = cluster.add("b", false, small_config());
    write(&mut cluster, a, "of a", 4);
    cluster.connect(a, b).expect("connects");
    cluster.settle();
    let copy = cluster.nodes[b].host.disk.clone();
    write(&mut cluster, a, "of a", 6);
    cluster.kill(b);
    cluster.nodes[b].host.disk = copy;
    cluster.restart(b);
    cluster.nodes[a].host.events.clear();
    cluster.connect(a, b).expect("connects");
    cluster.settle();
    let lost = Verdict::Gap { from: v(4), to: v(10), reason: PairReason::OtherIncarnation };
    assert!(verdicts(&cluster, a, "b").contains(&lost));
    assert_eq!(cluster.replica(b).status().tail, v(10));
    let link = cluster.replica(a).status().links.pop().expect("a link");
    assert_eq!(link.verdict, Some(Verdict::Complete { through: v(10), verified: Verified::Digest }));
}

#[test]
fn another_life_that_cannot_be_compared_waits_for_a_person() {
    let mut cluster = Cluster::new(5);
    let a = cluster.add("a", true, small_config());
    write(&mut cluster, a, "of a", 10);
    let b = cluster.add("b", false, small_config());
    cluster.connect(a, b).expect("connects");
    cluster.settle();
    cluster.kill(b);
    // The peer's capabilities name another incarnation than that of `b`.
    let mut peer = Peer::native(&mut cluster, a, "b");
    peer.stand(&mut cluster, v(4), v(4));
    let heard = peer.settled(&mut cluster);
    assert!(!heard.iter().any(|m| matches!(m, Message::Batch(_))), "{heard:?}");
    let verdict = peer.status(&mut cluster).verdict;
    assert_eq!(verdict, Some(Verdict::Unknown { reason: PairReason::OtherIncarnation }));
}

#[test]
fn another_life_that_is_ahead_of_the_writer_is_named() {
    let (mut cluster, a, b) = copy_put_back(false);
    // The book in the copy knows another life of `b` than the one that has the records.
    let c = cluster.add("b", false, small_config());
    cluster.connect(a, c).expect("connects");
    cluster.settle();
    cluster.kill(c);
    cluster.connect(a, b).expect("connects");
    cluster.settle();
    let found = divergence(&mut cluster, a);
    assert_eq!((found.reason, found.at), (PairReason::OtherIncarnation, v(20)));
    assert_eq!(divergence(&mut cluster, b).reason, PairReason::OtherIncarnation);
}

#[test]
fn repair_that_gets_nowhere_rests_longer_each_time_and_ends() {
    let mut cluster = Cluster::new(1);
    let a = cluster.add("a", true, small_config());
    write(&mut cluster, a, "of a", 3);
    let mut peer = Peer::native(&mut cluster, a, "p");
    peer.stand(&mut cluster, Version::ZERO, Version::ZERO);
    let mut batches = 0;
    for _ in 0..100 {
        let heard = peer.settled(&mut cluster);
        let sent = heard.iter().filter(|m| matches!(m, Message::Batch(_))).count();
        batches += sent;
        if sent > 0 {
            peer.ack(&mut cluster, Version::ZERO);
            let at_once = peer.heard(&mut cluster);
            assert!(!at_once.iter().any(|m| matches!(m, Message::Batch(_))), "it rests first");
        }
        cluster.pass(200);
    }
    assert_eq!(batches, 8);
    let verdict = peer.status(&mut cluster).verdict;
    assert_eq!(verdict, Some(Verdict::Unknown { reason: PairReason::NoProgress }));
}

#[test]
fn a_batch_waits_while_what_the_peer_vouched_for_is_compared() {
    let mut cluster = Cluster::new(1);
    let b = cluster.add("b", false, small_config());
    let mut peer = Peer::native(&mut cluster, b, "p");
    peer.stand(&mut cluster, Version::ZERO, v(3));
    let batch = |from: u64, to: u64| {
        let records = (from + 1..=to).map(|i| record(&format!("k{i}"), State::Deleted, i)).collect();
        let from = if from == 0 { Version::ZERO } else { v(from) };
        Message::Batch(strandline_core::wire::repair::Batch { from, to: v(to), more: false, records })
    };
    peer.send(&mut cluster, &batch(0, 2));
    assert!(peer.settled(&mut cluster).contains(&Message::Ack { watermark: v(2) }));
    peer.send_own(
        &mut cluster,
        OwnMessage::Digest(DigestAt { version: v(1), digest: Some([9; 32]), asks: false }),
    );
    peer.send(&mut cluster, &batch(2, 3));
    cluster.settle();
    assert_eq!(cluster.replica(b).status().tail, v(2), "another history is not gone on with");
    assert_eq!(peer.status(&mut cluster).state, "stopped");
}

/// The digest of the first `records` deletions of `k`.
fn digest_of(records: u64) -> [u8; 32] {
    let mut cluster = Cluster::new(1);
    let b = cluster.add("b", false, small_config());
    let peer = Peer::native(&mut cluster, b, "p");
    peer.stand(&mut cluster, Version::ZERO, Version::ZERO);
    peer.send(&mut cluster, &deletions(records));
    cluster.settle();
    cluster.replica(b).status().tail_digest
}

fn deletions(count: u64) -> Message {
    let records = (1..=count).map(|i| record("k", State::Deleted, i)).collect();
    let (from, to) = (Version::ZERO, v(count));
    Message::Batch(strandline_core::wire::repair::Batch { from, to, more: false, records })
}

#[test]
fn an_acknowledgement_while_the_peer_is_judged_again_counts_afterwards() {
    use strandline_core::journal::command::StorageCommand;
    use strandline_core::lifecycle::command::Command;
    use strandline_core::wire::own::{Mark, Position};
    let mut cluster = Cluster::new(1);
    let b = cluster.add("b", false, small_config());
    let mut peer = Peer::native(&mut cluster, b, "p");
    let tail = Mark { version: v(2), digest: Some(digest_of(2)) };
    let position = Position { floor: Mark::default(), tail, epochs: Vec::new() };
    peer.send_own(&mut cluster, OwnMessage::Position(position));
    let _ = peer.settled(&mut cluster);
    let other = Peer::native(&mut cluster, b, "q");
    other.stand(&mut cluster, Version::ZERO, v(3));
    other.send(&mut cluster, &deletions(3));
    // Beyond where the peer stood: the digest there is being read.
    cluster.run(b, |c| !matches!(c, Command::Storage(StorageCommand::Read { .. })));
    assert_eq!(cluster.replica(b).status().tail, v(3));
    // It has taken the third from somewhere else.
    peer.ack(&mut cluster, v(3));
    assert_eq!(peer.fault(&mut cluster), None);
    let asked = Message::Own(OwnMessage::DigestGet(DigestGet { version: v(3) }));
    let heard = peer.settled(&mut cluster);
    assert!(heard.contains(&asked), "what was not sent here is compared: {heard:?}");
    let at = DigestAt { version: v(3), digest: Some(digest_of(3)), asks: false };
    peer.send_own(&mut cluster, OwnMessage::Digest(at));
    let _ = peer.settled(&mut cluster);
    assert_eq!((peer.status(&mut cluster).acked, peer.fault(&mut cluster)), (v(3), None));
}
