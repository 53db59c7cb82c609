//! Subscriptions to a replica: each change once, honest gaps, resets, and nobody is waited for.

mod common;

use common::cluster::{Cluster, LOG, Rng, blob_key, delete, put, small_config};
use common::subscriber::Subscriber;
use std::collections::{BTreeMap, BTreeSet};
use strandline_core::error::StorageAction;
use strandline_core::journal::command::FileName;
use strandline_core::lifecycle::api::{
    Cursor, CursorReason, Done, MembersChange, RequestError, Served, SubscribeRefused, SubscriptionEnd,
    Verified,
};
use strandline_core::lifecycle::config::ReplicaConfig;
use strandline_core::record::{BlobKey, Key, State, Version};
use strandline_core::verdict::Verdict;

/// Pages of a few changes, and memory for a few more.
fn config() -> ReplicaConfig {
    let mut config = small_config();
    config.page_bytes_max = 1024;
    config.recent_bytes_max = 2048;
    config
}

fn start() -> Cursor {
    Cursor::new(LOG, Version::ZERO)
}

/// A log of `count` changes over 40 keys, some deletes among them, and their versions.
fn written(cluster: &mut Cluster, at: usize, count: u64) -> BTreeSet<Version> {
    (0..count).map(|i| write(cluster, at, i)).collect()
}

fn write(cluster: &mut Cluster, at: usize, i: u64) -> Version {
    let name = format!("k{:02}", i % 40);
    let accepted = if i % 7 == 3 {
        cluster.mutate(at, &[delete(&name)]).expect("accepted")[0]
    } else {
        cluster.put(at, &name, format!("v{i}").as_bytes())
    };
    if i.is_multiple_of(5) {
        cluster.settle();
    }
    accepted.version
}

fn present(cluster: &mut Cluster, at: usize) -> BTreeMap<Key, BlobKey> {
    let scan = strandline_core::lifecycle::api::Scan {
        namespace: None,
        prefix: Vec::new(),
        after: None,
        entries_max: 4096,
        deleted: false,
    };
    let page = cluster.replica(at).scan(&scan);
    assert!(page.next.is_none());
    let blob = |state| match state {
        State::Present { blob } => blob,
        State::Deleted => unreachable!("not asked for"),
    };
    page.entries.into_iter().map(|(key, entry)| (key, blob(entry.state))).collect()
}

fn no_members(cluster: &mut Cluster, at: usize) {
    let now = cluster.now;
    let request = cluster.replica(at).handle_members(now, MembersChange::Clear);
    assert_eq!(cluster.done(at, request), Done::Members);
}

fn compact(cluster: &mut Cluster, at: usize) -> Done {
    cluster.settle();
    let now = cluster.now;
    let request = cluster.replica(at).handle_compact(now, None);
    cluster.done(at, request)
}

fn checkpoints(cluster: &Cluster, at: usize) -> usize {
    let files = cluster.nodes[at].host.disk.files.keys();
    files.filter(|file| matches!(file, FileName::Checkpoint(_))).count()
}

#[test]
fn the_journal_first_then_memory_then_live_and_each_change_once() {
    for seed in 0..20 {
        let mut cluster = Cluster::new(seed);
        let a = cluster.add("a", true, config());
        let mut accepted = written(&mut cluster, a, 200);
        cluster.settle();
        let (mut subscriber, verdict) = Subscriber::open(&mut cluster, a, start());
        let through = cluster.replica(a).status().tail;
        assert_eq!(verdict, Verdict::Complete { through, verified: Verified::Digest });
        subscriber.catch_up(&mut cluster, a);
        assert_eq!(
            (subscriber.served[0], subscriber.served.last()),
            (Served::Journal, Some(&Served::Memory))
        );
        assert_eq!(subscriber.behind, 0);
        // It asked and waits: what becomes durable comes at once, from memory.
        for i in 200..230 {
            accepted.insert(write(&mut cluster, a, i));
            cluster.settle();
            assert_eq!(subscriber.take(&mut cluster, a), 1);
            assert_eq!(subscriber.served.last(), Some(&Served::Memory));
            subscriber.ask(&mut cluster, a);
        }
        subscriber.assert_given(&accepted);
        assert_eq!(subscriber.given.len(), 230);
        assert_eq!(subscriber.state, present(&mut cluster, a));
        assert_eq!(cluster.replica(a).status().subscriptions[0].state, "live");
    }
}

#[test]
fn what_is_not_durable_is_not_shown() {
    let mut cluster = Cluster::new(1);
    let a = cluster.add("a", true, config());
    cluster.settle();
    let (mut subscriber, _) = Subscriber::open(&mut cluster, a, start());
    subscriber.ask(&mut cluster, a);
    let accepted = cluster.put(a, "k", b"1");
    assert_eq!(subscriber.take(&mut cluster, a), 0, "submitted only");
    cluster.settle();
    assert_eq!(subscriber.take(&mut cluster, a), 1);
    assert_eq!(subscriber.given, [accepted.version]);
}

#[test]
fn one_page_for_each_time_it_asks_and_who_does_not_ask_is_never_waited_for() {
    let mut cluster = Cluster::new(2);
    let a = cluster.add("a", true, config());
    let (mut slow, _) = Subscriber::open(&mut cluster, a, start());
    slow.ask(&mut cluster, a);
    slow.ask(&mut cluster, a);
    let accepted = written(&mut cluster, a, 300);
    cluster.settle();
    assert_eq!(slow.take(&mut cluster, a), 1, "asked twice before it came");
    assert_eq!(slow.served, [Served::Memory]);
    assert_eq!(cluster.replica(a).status().tail, *accepted.last().expect("some"), "nobody waited");
    slow.ask(&mut cluster, a);
    cluster.settle();
    slow.take(&mut cluster, a);
    assert_eq!(slow.served.last(), Some(&Served::Journal), "told that it does not keep up");
    assert!(slow.behind > 200, "{}", slow.behind);
    slow.catch_up(&mut cluster, a);
    slow.assert_given(&accepted);
}

#[test]
fn a_cursor_is_good_after_a_restart() {
    for seed in 0..10 {
        let mut cluster = Cluster::new(seed);
        let a = cluster.add("a", true, config());
        let mut accepted = written(&mut cluster, a, 60);
        cluster.settle();
        let (mut before, _) = Subscriber::open(&mut cluster, a, start());
        before.ask(&mut cluster, a);
        cluster.settle();
        before.take(&mut cluster, a);
        cluster.kill(a);
        cluster.restart(a);
        accepted.insert(write(&mut cluster, a, 61));
        cluster.settle();
        let cursor = Cursor::new(LOG, before.at);
        let (mut after, verdict) = Subscriber::open(&mut cluster, a, cursor);
        assert!(verdict.is_complete());
        after.catch_up(&mut cluster, a);
        after.assert_given(&accepted);
        before.assert_given(&accepted);
    }
}

#[test]
fn a_cursor_ahead_or_of_no_record_or_of_another_log_is_told_so() {
    let mut cluster = Cluster::new(3);
    let a = cluster.add("a", true, config());
    written(&mut cluster, a, 20);
    cluster.kill(a);
    cluster.restart(a);
    written(&mut cluster, a, 20);
    cluster.settle();
    let tail = cluster.replica(a).status().tail;
    let ahead = Version::new(tail.epoch, tail.sequence + 1);
    let (mut lost, verdict) = Subscriber::open(&mut cluster, a, Cursor::new(LOG, ahead));
    assert!(
        matches!(verdict, Verdict::Diverged(d) if d.reason == CursorReason::AheadOfTail && d.ours == tail)
    );
    // A restart burns what was reserved: versions between were never given out.
    let burned = Version::new(tail.epoch, tail.sequence - 20);
    let (_, verdict) = Subscriber::open(&mut cluster, a, Cursor::new(LOG, burned));
    assert!(matches!(verdict, Verdict::Diverged(d) if d.reason == CursorReason::ForeignVersion));
    let other = Cursor::new(strandline_core::id::LogId([8; 16]), tail);
    let (_, verdict) = Subscriber::open(&mut cluster, a, other);
    assert_eq!(verdict, Verdict::Unknown { reason: CursorReason::OtherLog });
    // Nothing comes unless it asks for a reset; then all of it does.
    lost.catch_up(&mut cluster, a);
    assert!(lost.given.is_empty());
    lost.reset(&mut cluster, a);
    lost.catch_up(&mut cluster, a);
    assert_eq!((lost.resets, &lost.state), (1, &present(&mut cluster, a)));
}

#[test]
fn below_the_floor_is_a_gap_and_a_reset_is_the_state_and_every_change_after_it() {
    for seed in 0..10 {
        let mut cluster = Cluster::new(seed);
        let a = cluster.add("a", true, config());
        let old = written(&mut cluster, a, 150);
        no_members(&mut cluster, a);
        assert!(matches!(compact(&mut cluster, a), Done::Compacted(_)));
        let floor = cluster.replica(a).status().floor;
        let accepted: BTreeSet<Version> = (150..190).map(|i| write(&mut cluster, a, i)).collect();
        cluster.settle();
        let from = *old.first().expect("some");
        let (mut subscriber, verdict) = Subscriber::open(&mut cluster, a, Cursor::new(LOG, from));
        assert_eq!(verdict, Verdict::Gap { from, to: floor, reason: CursorReason::BelowFloor });
        subscriber.reset(&mut cluster, a);
        subscriber.catch_up(&mut cluster, a);
        assert_eq!(subscriber.resets, 1);
        subscriber.assert_given(&accepted);
        assert_eq!(subscriber.state, present(&mut cluster, a));
        // Exactly at the floor nothing is missing.
        let (mut at_floor, verdict) = Subscriber::open(&mut cluster, a, Cursor::new(LOG, floor));
        assert!(verdict.is_complete());
        at_floor.catch_up(&mut cluster, a);
        at_floor.assert_given(&accepted);
    }
}

#[test]
fn a_reset_of_a_log_without_a_checkpoint_is_empty_and_everything_follows() {
    let mut cluster = Cluster::new(4);
    let a = cluster.add("a", true, config());
    let accepted = written(&mut cluster, a, 30);
    cluster.settle();
    let (mut subscriber, _) = Subscriber::open(&mut cluster, a, start());
    subscriber.reset(&mut cluster, a);
    subscriber.catch_up(&mut cluster, a);
    assert_eq!(subscriber.resets, 1);
    subscriber.assert_given(&accepted);
}

#[test]
fn who_falls_below_the_floor_while_it_is_subscribed_is_told_when_it_asks() {
    let mut cluster = Cluster::new(5);
    let a = cluster.add("a", true, config());
    written(&mut cluster, a, 50);
    cluster.settle();
    let (mut slow, _) = Subscriber::open(&mut cluster, a, start());
    slow.ask(&mut cluster, a);
    cluster.settle();
    slow.take(&mut cluster, a);
    no_members(&mut cluster, a);
    assert!(matches!(compact(&mut cluster, a), Done::Compacted(_)), "a subscriber holds nothing back");
    let (from, to) = (slow.at, cluster.replica(a).status().floor);
    slow.ask(&mut cluster, a);
    cluster.settle();
    slow.take(&mut cluster, a);
    assert_eq!(slow.lost, Some(Verdict::Gap { from, to, reason: CursorReason::BelowFloor }));
    slow.reset(&mut cluster, a);
    slow.catch_up(&mut cluster, a);
    assert_eq!(slow.state, present(&mut cluster, a));
}

/// A log with a checkpoint of several pieces, and a subscriber that has read the first of them.
fn in_the_middle_of_a_reset(cluster: &mut Cluster) -> (usize, Subscriber) {
    let a = cluster.add("a", true, config());
    let blob = blob_key(b"v");
    for i in 0..3000_u32 {
        let name = format!("{i:05} {}", "x".repeat(200));
        cluster.mutate(a, &[put(&name, blob)]).expect("accepted");
        if i.is_multiple_of(8) {
            cluster.settle();
        }
    }
    no_members(cluster, a);
    assert!(matches!(compact(cluster, a), Done::Compacted(_)));
    write(cluster, a, 1);
    let (mut subscriber, _) = Subscriber::open(cluster, a, start());
    subscriber.reset(cluster, a);
    for _ in 0..2 {
        subscriber.ask(cluster, a);
        cluster.settle();
        assert_eq!(subscriber.take(cluster, a), 1);
    }
    assert_eq!(subscriber.resets, 0, "not done yet");
    (a, subscriber)
}

#[test]
fn what_comes_after_a_reset_is_held_for_it_until_a_deadline() {
    let mut cluster = Cluster::new(6);
    let (a, mut subscriber) = in_the_middle_of_a_reset(&mut cluster);
    let refused = compact(&mut cluster, a);
    let named = |member: &str| member.contains("reset of subscription");
    assert!(
        matches!(&refused, Done::Refused(RequestError::Behind { member, .. }) if named(member)),
        "{refused:?}"
    );
    // In time it goes on, and what it holds back follows it.
    subscriber.catch_up(&mut cluster, a);
    assert_eq!((subscriber.resets, &subscriber.state), (1, &present(&mut cluster, a)));
    assert!(matches!(compact(&mut cluster, a), Done::Compacted(_)), "it has all there is");
}

#[test]
fn after_its_deadline_a_reset_ends_whole_and_the_gap_behind_it_is_told() {
    let mut cluster = Cluster::new(7);
    let (a, mut subscriber) = in_the_middle_of_a_reset(&mut cluster);
    let cut = subscriber.at;
    let hold_ms = cluster.nodes[a].config.reset_hold_ms;
    cluster.pass(hold_ms);
    assert!(matches!(compact(&mut cluster, a), Done::Compacted(_)), "it is held no longer");
    assert_eq!(checkpoints(&cluster, a), 2, "what is being read stays");
    while subscriber.lost.is_none() {
        subscriber.ask(&mut cluster, a);
        cluster.settle();
        assert_eq!(subscriber.take(&mut cluster, a), 1);
    }
    let to = cluster.replica(a).status().floor;
    assert_eq!(subscriber.resets, 1, "the state at the cut was whole");
    assert_eq!(subscriber.lost, Some(Verdict::Gap { from: cut, to, reason: CursorReason::BelowFloor }));
    assert_eq!(checkpoints(&cluster, a), 1, "and goes when it was read");
    subscriber.reset(&mut cluster, a);
    subscriber.catch_up(&mut cluster, a);
    assert_eq!((subscriber.resets, &subscriber.state), (2, &present(&mut cluster, a)));
}

#[test]
fn a_reset_that_is_left_unread_lets_go_of_its_checkpoint() {
    let mut cluster = Cluster::new(8);
    let (a, mut subscriber) = in_the_middle_of_a_reset(&mut cluster);
    let pin_ms = cluster.nodes[a].config.snapshot_pin_ms;
    cluster.pass(pin_ms + 1);
    assert!(matches!(compact(&mut cluster, a), Done::Compacted(_)));
    assert_eq!(checkpoints(&cluster, a), 1);
    subscriber.ask(&mut cluster, a);
    cluster.settle();
    subscriber.take(&mut cluster, a);
    let told = matches!(subscriber.lost, Some(Verdict::Gap { reason: CursorReason::ResetExpired, .. }));
    assert!(told, "{:?}", subscriber.lost);
    subscriber.reset(&mut cluster, a);
    subscriber.catch_up(&mut cluster, a);
    assert_eq!(subscriber.state, present(&mut cluster, a));
}

#[test]
fn an_answer_to_a_read_made_before_a_reset_is_not_for_it() {
    for seed in 0..10 {
        let mut cluster = Cluster::new(seed);
        let (a, mut subscriber) = in_the_middle_of_a_reset(&mut cluster);
        subscriber.ask(&mut cluster, a);
        cluster.drain(a);
        assert_eq!(cluster.nodes[a].host.commands.len(), 1, "a read of the second piece");
        subscriber.reset(&mut cluster, a);
        assert_eq!(subscriber.take(&mut cluster, a), 1, "it begins anew");
        subscriber.ask(&mut cluster, a);
        subscriber.catch_up(&mut cluster, a);
        assert_eq!((subscriber.ended.clone(), subscriber.resets), (None, 1));
        assert_eq!(subscriber.state, present(&mut cluster, a));
    }
}

#[test]
fn a_reset_that_is_given_up_lets_go_of_its_checkpoint() {
    let mut cluster = Cluster::new(9);
    let (a, subscriber) = in_the_middle_of_a_reset(&mut cluster);
    subscriber.ask(&mut cluster, a);
    let now = cluster.now;
    cluster.replica(a).handle_unsubscribe(now, subscriber.id);
    cluster.replica(a).handle_unsubscribe(now, subscriber.id);
    assert!(matches!(compact(&mut cluster, a), Done::Compacted(_)));
    assert_eq!(checkpoints(&cluster, a), 1);
    assert!(cluster.replica(a).status().subscriptions.is_empty());
}

#[test]
fn a_disk_that_fails_under_a_subscription_ends_it_and_nothing_else() {
    let mut cluster = Cluster::new(10);
    let (a, mut subscriber) = in_the_middle_of_a_reset(&mut cluster);
    let (mut other, _) = Subscriber::open(&mut cluster, a, Cursor::new(LOG, subscriber.at));
    cluster.nodes[a].host.disk.failing = Some(StorageAction::Read);
    subscriber.ask(&mut cluster, a);
    cluster.settle();
    subscriber.take(&mut cluster, a);
    assert!(matches!(subscriber.ended, Some(SubscriptionEnd::Storage(_))), "{:?}", subscriber.ended);
    cluster.nodes[a].host.disk.failing = None;
    other.catch_up(&mut cluster, a);
    assert_eq!(other.at, cluster.replica(a).status().tail);
    assert!(matches!(compact(&mut cluster, a), Done::Compacted(_)));
    assert_eq!(checkpoints(&cluster, a), 1, "its pin is gone");
}

#[test]
fn subscriptions_are_bounded_and_end_with_the_replica() {
    let mut cluster = Cluster::new(11);
    let a = cluster.add("a", true, ReplicaConfig { subscriptions_max: 1, ..config() });
    let (mut only, _) = Subscriber::open(&mut cluster, a, start());
    let now = cluster.now;
    let refused = cluster.replica(a).handle_subscribe(now, start());
    assert_eq!(refused, Err(SubscribeRefused::Full { subscriptions_max: 1 }));
    cluster.replica(a).handle_close(now);
    cluster.settle();
    only.take(&mut cluster, a);
    assert_eq!(only.ended, Some(SubscriptionEnd::Closing));
    assert_eq!(cluster.replica(a).handle_subscribe(now, start()), Err(SubscribeRefused::Closing));
}

#[test]
fn a_halt_ends_every_subscription() {
    let mut cluster = Cluster::new(12);
    let a = cluster.add("a", true, config());
    cluster.settle();
    let (mut subscriber, _) = Subscriber::open(&mut cluster, a, start());
    subscriber.ask(&mut cluster, a);
    cluster.nodes[a].host.disk.failing = Some(StorageAction::Write);
    cluster.put(a, "k", b"1");
    cluster.settle();
    subscriber.take(&mut cluster, a);
    assert!(subscriber.given.is_empty());
    assert_eq!(subscriber.ended, Some(SubscriptionEnd::Closing));
}

#[test]
fn reads_for_subscriptions_are_bounded_and_everyone_gets_a_turn() {
    let mut cluster = Cluster::new(13);
    let a = cluster.add("a", true, ReplicaConfig { subscription_reads_max: 2, ..config() });
    let accepted = written(&mut cluster, a, 120);
    cluster.settle();
    let mut all: Vec<Subscriber> = (0..10).map(|_| Subscriber::open(&mut cluster, a, start()).0).collect();
    let mut most = 0;
    while all.iter().any(|s| s.at < *accepted.last().expect("some")) {
        all.iter().for_each(|s| s.ask(&mut cluster, a));
        let mut moved = true;
        while moved {
            cluster.drain(a);
            most = most.max(cluster.nodes[a].host.commands.len());
            moved = cluster.execute_next(a);
        }
        for subscriber in &mut all {
            assert_eq!(subscriber.take(&mut cluster, a), 1, "each got its page");
        }
    }
    assert_eq!(most, 2);
    all.iter().for_each(|s| s.assert_given(&accepted));
}

#[test]
fn a_followers_subscriber_that_a_snapshot_passed_is_told() {
    let mut cluster = Cluster::new(14);
    let (a, b) = (cluster.add("a", true, config()), cluster.add("b", false, config()));
    written(&mut cluster, a, 20);
    cluster.settle();
    let (link, _) = cluster.connect(a, b).expect("connects");
    cluster.settle();
    let (mut subscriber, _) = Subscriber::open(&mut cluster, b, start());
    subscriber.catch_up(&mut cluster, b);
    let seen = subscriber.at;
    cluster.cut(a, link);
    written(&mut cluster, a, 60);
    no_members(&mut cluster, a);
    assert!(matches!(compact(&mut cluster, a), Done::Compacted(_)));
    let accepted = BTreeSet::from([write(&mut cluster, a, 1)]);
    cluster.connect(a, b).expect("connects");
    cluster.settle();
    subscriber.take(&mut cluster, b);
    let to = cluster.replica(b).status().floor;
    assert_eq!(subscriber.lost, Some(Verdict::Gap { from: seen, to, reason: CursorReason::BelowFloor }));
    subscriber.reset(&mut cluster, b);
    subscriber.catch_up(&mut cluster, b);
    subscriber.assert_given(&accepted);
    assert_eq!(subscriber.state, present(&mut cluster, a));
}

#[test]
fn whatever_happens_each_change_comes_once_or_a_gap_is_told() {
    let (mut resets, mut restarts) = (0, 0);
    for seed in 0..60 {
        let mut cluster = Cluster::new(seed);
        let a = cluster.add("a", true, ReplicaConfig { compaction_keys_max: 9, ..config() });
        let mut rng = Rng::new(seed ^ 0xABCD);
        no_members(&mut cluster, a);
        let mut accepted = BTreeSet::new();
        let (mut subscriber, _) = Subscriber::open(&mut cluster, a, start());
        for _ in 0..400 {
            match rng.below(12) {
                0..=3 => {
                    let name = format!("k{}", rng.below(30));
                    let written = cluster.mutate(a, &[put(&name, blob_key(b"v"))]).expect("accepted");
                    accepted.insert(written[0].version);
                }
                4 => {
                    let name = format!("k{}", rng.below(30));
                    let written = cluster.mutate(a, &[delete(&name)]).expect("accepted");
                    accepted.insert(written[0].version);
                }
                5 | 6 => subscriber.ask(&mut cluster, a),
                7 if rng.below(8) == 0 => {
                    let now = cluster.now;
                    cluster.replica(a).handle_compact(now, None);
                }
                8 if rng.below(10) == 0 => subscriber.reset(&mut cluster, a),
                9 if rng.below(30) == 0 => cluster.tick(70_000),
                10 if rng.below(20) == 0 => {
                    restarts += 1;
                    subscriber = restarted(&mut cluster, a, subscriber, &mut accepted);
                }
                _ => drop(cluster.execute_next(a)),
            }
            subscriber.take(&mut cluster, a);
            if subscriber.lost.is_some() {
                subscriber.reset(&mut cluster, a);
            }
        }
        subscriber.catch_up(&mut cluster, a);
        while subscriber.lost.is_some() {
            subscriber.reset(&mut cluster, a);
            subscriber.catch_up(&mut cluster, a);
        }
        assert_eq!(subscriber.at, cluster.replica(a).status().tail, "seed {seed}");
        subscriber.assert_given(&accepted);
        assert_eq!(subscriber.state, present(&mut cluster, a), "seed {seed}");
        resets += subscriber.resets;
    }
    assert!(resets > 20 && restarts > 20, "{resets} resets, {restarts} restarts");
}

/// The replica dies and starts anew; its subscriber goes on with what it holds.
fn restarted(
    cluster: &mut Cluster,
    at: usize,
    before: Subscriber,
    accepted: &mut BTreeSet<Version>,
) -> Subscriber {
    cluster.kill(at);
    cluster.restart(at);
    let tail = cluster.replica(at).status().tail;
    accepted.retain(|version| *version <= tail);
    let (mut after, verdict) = Subscriber::open(cluster, at, Cursor::new(LOG, before.at));
    // Who was in the middle of a reset holds nothing whole, whatever the cursor is.
    if !verdict.is_complete() || before.is_resetting() {
        after.reset(cluster, at);
    }
    after.state = before.state;
    after
}
