//! Members and compaction: who holds it up is named, who is too far behind lapses, a policy compacts
//! by itself, and a full journal is never full for good.

#![expect(
    clippy::wildcard_enum_match_arm,
    reason = "a test names what it expects, and fails on the rest or passes over it"
)]

mod common;

use common::cluster::{Cluster, delete, small_config};
use common::peer::Peer;
use strandline_core::journal::command::StorageCommand;
use strandline_core::lifecycle::api::{Done, Event, MembersChange, MutationError};
use strandline_core::lifecycle::command::Command;
use strandline_core::lifecycle::config::ReplicaConfig;
use strandline_core::record::Version;
use strandline_core::wire::message::Message;
use strandline_core::wire::own::OwnMessage;

fn v(sequence: u64) -> Version {
    Version::new(1, sequence)
}

fn write(cluster: &mut Cluster, at: usize, count: usize) {
    for i in 0..count {
        cluster.put(at, &format!("k{}", i % 9), format!("{i}").as_bytes());
        cluster.settle();
    }
}

fn members(cluster: &mut Cluster, at: usize, change: MembersChange) {
    let now = cluster.now;
    let request = cluster.replica(at).handle_members(now, change);
    assert_eq!(cluster.done(at, request), Done::Members);
}

fn compact(cluster: &mut Cluster, at: usize) -> Done {
    // An earlier life of the node may have answered a request of the same number.
    cluster.nodes[at].host.events.clear();
    let now = cluster.now;
    let request = cluster.replica(at).handle_compact(now, None);
    cluster.done(at, request)
}

/// Writer `a` and its member `b`, which has ten records and sleeps.
fn asleep(config: ReplicaConfig) -> (Cluster, usize, usize) {
    let mut cluster = Cluster::new(5);
    let (a, b) = (cluster.add("a", true, config), cluster.add("b", false, small_config()));
    members(&mut cluster, a, MembersChange::Add("b".into()));
    let (link, _) = cluster.connect(a, b).expect("connects");
    write(&mut cluster, a, 10);
    cluster.pass(100);
    assert_eq!(state(&mut cluster, a), "active");
    cluster.cut(a, link);
    (cluster, a, b)
}

fn state(cluster: &mut Cluster, at: usize) -> &'static str {
    cluster.replica(at).status().members[0].state
}

fn lapsed(cluster: &Cluster, at: usize) -> Vec<(String, Version)> {
    let of = |event: &Event| match event {
        Event::MemberLapsed { identity, acked, .. } => Some((identity.clone(), *acked)),
        _ => None,
    };
    cluster.nodes[at].host.events.iter().filter_map(of).collect()
}

#[test]
fn nobody_lapses_by_default() {
    let (mut cluster, a, _) = asleep(small_config());
    write(&mut cluster, a, 200);
    cluster.pass(100_000_000);
    cluster.pass(100_000_000);
    assert_eq!(state(&mut cluster, a), "active");
    let status = cluster.replica(a).status();
    assert_eq!((status.compactable, status.blocked_by.as_deref()), (Some(v(10)), Some("b")));
    assert!(status.members[0].lag_bytes > 0 && status.members[0].lag_ms > 0);
    assert!(matches!(compact(&mut cluster, a), Done::Compacted(done) if done.floor == v(10)));
}

#[test]
fn a_member_too_many_bytes_behind_lapses_and_holds_compaction_up_no_more() {
    let (mut cluster, a, b) = asleep(ReplicaConfig { member_lag_bytes_max: Some(2_000), ..small_config() });
    write(&mut cluster, a, 200);
    assert_eq!(lapsed(&cluster, a), [("b".to_owned(), v(10))], "told once, with what it had");
    assert_eq!(state(&mut cluster, a), "lapsed");
    assert!(matches!(compact(&mut cluster, a), Done::Compacted(done) if done.floor == v(210)));
    // Below the floor it gets a snapshot, which reseeds it.
    cluster.connect(a, b).expect("connects");
    cluster.settle();
    write(&mut cluster, a, 1);
    assert_eq!(state(&mut cluster, a), "active");
    assert_eq!(cluster.replica(b).status().tail, v(211));
}

#[test]
fn a_member_too_long_behind_lapses() {
    let config = ReplicaConfig { member_lag_ms_max: Some(100_000), ..small_config() };
    let (mut cluster, a, _) = asleep(config.clone());
    cluster.pass(1_000_000);
    assert_eq!(state(&mut cluster, a), "active", "nothing is there that it has not acknowledged");
    write(&mut cluster, a, 1);
    cluster.pass(config.keepalive_ms);
    assert_eq!(state(&mut cluster, a), "active");
    cluster.pass(200_000);
    assert_eq!(state(&mut cluster, a), "lapsed");
    cluster.pass(100);
    cluster.kill(a);
    cluster.restart(a);
    assert_eq!(state(&mut cluster, a), "lapsed", "it is stored");
}

#[test]
fn a_clock_that_steps_backwards_takes_nothing_back() {
    let config = ReplicaConfig { member_lag_ms_max: Some(100_000), ..small_config() };
    let (mut cluster, a, b) = asleep(config.clone());
    write(&mut cluster, a, 1);
    cluster.pass(config.keepalive_ms);
    cluster.pass(60_000);
    let (late, lag_ms) = (cluster.now, cluster.replica(a).status().members[0].lag_ms);
    assert!(lag_ms > 0 && lag_ms < 100_000, "{lag_ms}");
    // Back to before the member fell asleep: time stands still until the clock has caught up.
    cluster.now.mono.0 /= 2;
    cluster.now.wall.0 /= 2;
    write(&mut cluster, a, 1);
    assert_eq!(cluster.replica(a).status().tail, v(12), "writes go on");
    assert_eq!(cluster.replica(a).status().members[0].lag_ms, lag_ms);
    cluster.connect(a, b).expect("connects");
    cluster.settle();
    assert_eq!(cluster.replica(b).status().tail, v(12), "repair, too");
    cluster.now = late;
    cluster.pass(1_000);
    assert_eq!(cluster.replica(a).status().members[0].lag_ms, 0);
    assert_eq!(state(&mut cluster, a), "active");
}

#[test]
fn a_lapsed_member_is_repaired_and_counts_again_only_once_it_is_another_life() {
    let (mut cluster, a, b) = asleep(ReplicaConfig { member_lag_bytes_max: Some(2_000), ..small_config() });
    write(&mut cluster, a, 200);
    cluster.connect(a, b).expect("connects");
    cluster.settle();
    assert_eq!(cluster.replica(b).status().tail, v(210), "it is not left behind");
    assert_eq!(state(&mut cluster, a), "lapsed", "and does not count");
    cluster.kill(b);
    cluster.nodes[b].host.disk = common::disk::Disk::default();
    let init = cluster.init("b", false);
    cluster.start(b, Some(init)).expect("made anew");
    cluster.connect(a, b).expect("connects");
    cluster.settle();
    assert_eq!(state(&mut cluster, a), "active");
}

#[test]
fn a_removed_member_that_is_added_again_takes_a_snapshot_before_it_counts() {
    let (mut cluster, a, b) = asleep(small_config());
    members(&mut cluster, a, MembersChange::Remove("b".into()));
    write(&mut cluster, a, 20);
    members(&mut cluster, a, MembersChange::Add("b".into()));
    assert_eq!(cluster.replica(a).status().members[0].counts_at, None);
    assert!(matches!(compact(&mut cluster, a), Done::Compacted(done) if done.floor == v(30)));
    cluster.connect(a, b).expect("connects");
    cluster.settle();
    assert_eq!(cluster.replica(b).status().tail, v(30));
    assert_eq!(state(&mut cluster, a), "active");
}

#[test]
fn a_removed_member_that_is_added_again_is_repaired_and_counts_only_once_it_is_another_life() {
    for restarted in [false, true] {
        let (mut cluster, a, b) = asleep(small_config());
        members(&mut cluster, a, MembersChange::Remove("b".into()));
        if restarted {
            cluster.kill(a);
            cluster.restart(a);
        }
        cluster.nodes[a].host.events.clear();
        members(&mut cluster, a, MembersChange::Add("b".into()));
        cluster.connect(a, b).expect("connects");
        write(&mut cluster, a, 5);
        cluster.pass(100);
        assert_eq!(cluster.replica(b).status().tail, cluster.replica(a).status().tail, "it is repaired");
        let member = cluster.replica(a).status().members.remove(0);
        assert_eq!((member.state, member.counts_at), ("lapsed", None));
        cluster.kill(b);
        cluster.nodes[b].host.disk = common::disk::Disk::default();
        let init = cluster.init("b", false);
        cluster.start(b, Some(init)).expect("made anew");
        cluster.connect(a, b).expect("connects");
        cluster.settle();
        assert_eq!(state(&mut cluster, a), "active");
    }
}

#[test]
fn a_removed_member_that_got_elsewhere_what_it_is_offered_has_it_and_counts() {
    let mut cluster = Cluster::new(5);
    let a = cluster.add("a", true, small_config());
    members(&mut cluster, a, MembersChange::Add("b".into()));
    write(&mut cluster, a, 10);
    let before = Peer::native(&mut cluster, a, "b");
    before.stand(&mut cluster, Version::ZERO, Version::ZERO);
    cluster.settle();
    before.ack(&mut cluster, v(10));
    assert_eq!(state(&mut cluster, a), "active");
    let now = cluster.now;
    cluster.replica(a).handle_link_down(now, before.link);
    members(&mut cluster, a, MembersChange::Remove("b".into()));
    write(&mut cluster, a, 20);
    members(&mut cluster, a, MembersChange::Add("b".into()));
    assert!(matches!(compact(&mut cluster, a), Done::Compacted(done) if done.floor == v(30)));
    let mut again = Peer::native(&mut cluster, a, "b");
    again.stand(&mut cluster, Version::ZERO, v(10));
    let offered = |message: &Message| matches!(message, Message::Own(OwnMessage::SnapshotOffer(_)));
    assert!(again.settled(&mut cluster).iter().any(offered));
    assert_eq!(state(&mut cluster, a), "joining");
    again.ack(&mut cluster, v(30));
    assert_eq!(again.fault(&mut cluster), None);
    assert_eq!(state(&mut cluster, a), "active", "it does not take what it has");
}

#[test]
fn a_journal_full_of_one_segment_is_freed_by_compaction() {
    for restarted in [false, true] {
        let mut config = small_config();
        config.journal.segment_bytes = 64 << 10;
        config.journal.journal_entries_max = 40;
        let mut cluster = Cluster::new(5);
        let a = cluster.add("a", true, config);
        members(&mut cluster, a, MembersChange::Clear);
        for round in 0..3 {
            let full = loop {
                match cluster.mutate(a, &[delete("k")]) {
                    Ok(_) => cluster.settle(),
                    Err(error) => break error,
                }
            };
            assert!(matches!(full, MutationError::JournalFull { .. }), "{round}: {full}");
            if restarted {
                cluster.kill(a);
                cluster.restart(a);
            }
            let done = compact(&mut cluster, a);
            assert!(matches!(done, Done::Compacted(_)), "{round}: {done:?}");
        }
        cluster.mutate(a, &[delete("k")]).expect("there is room");
    }
}

#[test]
fn a_member_in_the_middle_of_the_segment_holds_it_only_until_it_moves_on() {
    let mut config = small_config();
    config.journal.segment_bytes = 64 << 10;
    config.journal.journal_entries_max = 40;
    let (mut cluster, a, b) = asleep(config);
    while cluster.mutate(a, &[delete("k")]).is_ok() {
        cluster.settle();
    }
    assert!(matches!(compact(&mut cluster, a), Done::Compacted(done) if done.floor == v(10)));
    let Err(full) = cluster.mutate(a, &[delete("k")]) else { panic!("b needs what is there") };
    assert!(full.to_string().contains("blocked by b"), "{full}");
    cluster.connect(a, b).expect("connects");
    cluster.settle();
    cluster.pass(100);
    assert!(matches!(compact(&mut cluster, a), Done::Compacted(_)));
    cluster.mutate(a, &[delete("k")]).expect("there is room");
}

#[test]
fn a_policy_compacts_by_itself_and_keeps_the_journal_small() {
    let by_entries = ReplicaConfig { compact_after_entries: Some(20), ..small_config() };
    let by_bytes = ReplicaConfig { compact_after_bytes: Some(3_000), ..small_config() };
    for config in [by_entries, by_bytes] {
        let mut cluster = Cluster::new(5);
        let a = cluster.add("a", true, config);
        write(&mut cluster, a, 60);
        assert!(cluster.replica(a).status().floor.is_zero(), "nobody said who must have the records");
        members(&mut cluster, a, MembersChange::Clear);
        write(&mut cluster, a, 200);
        let status = cluster.replica(a).status();
        assert!(status.floor > v(200), "{}", status.floor);
        assert!(status.entries < 90, "{} entries", status.entries);
        let events = &cluster.nodes[a].host.events;
        assert!(events.iter().any(|event| matches!(event, Event::Compacted { .. })));
        cluster.kill(a);
        cluster.restart(a);
        assert_eq!(cluster.contents(a).len(), 9);
    }
}

#[test]
fn a_policy_waits_for_members_and_tries_again_when_they_have_moved_on() {
    let (mut cluster, a, b) = asleep(ReplicaConfig { compact_after_entries: Some(50), ..small_config() });
    write(&mut cluster, a, 200);
    assert!(cluster.replica(a).status().floor.is_zero(), "less than half may go");
    cluster.connect(a, b).expect("connects");
    cluster.settle();
    cluster.pass(1_000);
    assert!(cluster.replica(a).status().floor > v(100), "{}", cluster.replica(a).status().floor);
}

/// Nothing of a compaction stands between a mutation and its sync.
#[test]
fn writes_go_on_while_a_compaction_does_nothing_at_all() {
    let mut config = small_config();
    config.journal.journal_entries_max = 80;
    let mut cluster = Cluster::new(5);
    let a = cluster.add("a", true, config);
    members(&mut cluster, a, MembersChange::Clear);
    write(&mut cluster, a, 60);
    let now = cluster.now;
    cluster.replica(a).handle_compact(now, None);
    let of_the_log = |command: &Command| {
        matches!(command, Command::Storage(StorageCommand::Append { .. } | StorageCommand::Prepare { .. }))
    };
    for _ in 0..5 {
        let accepted = cluster.mutate(a, &[delete("k")]).expect("taken")[0];
        cluster.run(a, of_the_log);
        assert!(cluster.nodes[a].host.events.contains(&Event::Durable { upto: accepted.lsn }));
    }
    assert!(cluster.replica(a).status().compacting);
    cluster.settle();
    assert!(!cluster.replica(a).status().compacting);
}
