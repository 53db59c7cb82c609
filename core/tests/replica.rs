//! A replica and its peers, end to end in memory.

mod common;

use common::cluster::{Cluster, LOG, blob_key, delete, key, put, small_config};
use strandline_core::id::LogId;
use strandline_core::lifecycle::api::{Done, Event, MembersChange, MutationError, PairReason, RequestError};
use strandline_core::record::Version;
use strandline_core::verdict::Verdict;

/// Two nodes hold the same; if not, what happened to them is shown.
fn assert_same(cluster: &mut Cluster, a: usize, b: usize) {
    if cluster.contents(a) != cluster.contents(b) {
        for at in [a, b] {
            let told = |e: &&Event| !matches!(e, Event::Durable { .. } | Event::Frames { .. });
            let events: Vec<&Event> = cluster.nodes[at].host.events.iter().filter(told).collect();
            eprintln!("node {at}: {events:#?}");
            let status = cluster.replica(at).status();
            eprintln!("{:?}\n{} of {}, floor {}", status.links, status.present, status.tail, status.floor);
        }
        panic!("{a} and {b} differ");
    }
}

#[test]
fn a_write_is_visible_when_durable_and_survives_a_kill() {
    for seed in 0..50 {
        let mut cluster = Cluster::new(seed);
        let a = cluster.add("a", true, small_config());
        let accepted = cluster.put(a, "one", b"1");
        assert_eq!(cluster.replica(a).get(&key("one")), None, "not durable yet");
        cluster.settle();
        assert_eq!(cluster.replica(a).get(&key("one")).expect("visible").version, accepted.version);
        let told = |e: &Event| matches!(e, Event::Durable { upto } if *upto >= accepted.lsn);
        assert!(cluster.nodes[a].host.events.iter().any(told), "who waits is told");
        cluster.put(a, "two", b"2");
        cluster.kill(a);
        cluster.restart(a);
        assert!(cluster.replica(a).get(&key("one")).is_some());
        assert!(cluster.replica(a).get(&key("two")).is_none(), "never acknowledged, never written");
        let next = cluster.put(a, "three", b"3");
        assert!(next.version > accepted.version);
        cluster.settle();
        assert_eq!(cluster.contents(a).len(), 2);
    }
}

#[test]
fn conditions_see_what_was_submitted() {
    let mut cluster = Cluster::new(1);
    let a = cluster.add("a", true, small_config());
    let first = cluster.put(a, "k", b"1");
    let mut conditional = put("k", blob_key(b"1"));
    conditional.if_version = Some(Version::ZERO);
    let refused = cluster.mutate(a, std::slice::from_ref(&conditional));
    assert!(matches!(refused, Err(MutationError::Precondition { found, .. }) if found == first.version));
    conditional.if_version = Some(first.version);
    assert!(cluster.mutate(a, &[conditional]).is_ok());
}

#[test]
fn a_follower_is_repaired_and_deletes_are_never_undone() {
    for seed in 0..30 {
        let mut cluster = Cluster::new(seed);
        let a = cluster.add("a", true, small_config());
        let b = cluster.add("b", false, small_config());
        for i in 0..300 {
            cluster.put(a, &format!("k{i:04}"), format!("blob {}", i % 7).as_bytes());
            if i % 16 == 0 {
                cluster.settle();
            }
        }
        cluster.settle();
        cluster.connect(a, b).expect("connects");
        cluster.settle();
        assert_same(&mut cluster, a, b);
        assert_eq!(cluster.contents(b).len(), 300);
        assert!(cluster.contents(b).values().all(Option::is_some), "blobs came first");
        // Live: records flow on as they arrive; a sleeper catches up.
        cluster.mutate(a, &[delete("k0001")]).expect("accepted");
        cluster.put(a, "k0002", &vec![9; 700_000]);
        cluster.settle();
        assert_same(&mut cluster, a, b);
        cluster.kill(b);
        cluster.mutate(a, &[delete("k0003")]).expect("accepted");
        cluster.settle();
        cluster.restart(b);
        cluster.connect(b, a).expect("connects");
        cluster.settle();
        assert_same(&mut cluster, a, b);
        assert!(!cluster.contents(b).contains_key(b"k0003".as_slice()));
        let (sa, sb) = (cluster.replica(a).status(), cluster.replica(b).status());
        assert_eq!((sa.tail, sa.tail_digest), (sb.tail, sb.tail_digest));
    }
}

#[test]
fn a_follower_takes_no_writes_and_says_who_does() {
    let mut cluster = Cluster::new(1);
    let a = cluster.add("a", true, small_config());
    let b = cluster.add("b", false, small_config());
    cluster.put(a, "k", b"1");
    cluster.settle();
    cluster.connect(a, b).expect("connects");
    cluster.settle();
    let refused = cluster.mutate(b, &[delete("k")]);
    assert_eq!(refused, Err(MutationError::NotAuthority { authority: "a".into() }));
}

#[test]
fn compaction_waits_for_members_and_a_late_replica_gets_a_snapshot() {
    for seed in 0..20 {
        let mut cluster = Cluster::new(seed);
        let a = cluster.add("a", true, small_config());
        let b = cluster.add("b", false, small_config());
        for i in 0..200 {
            cluster.put(a, &format!("k{:04}", i % 150), format!("v{i}").as_bytes());
            if i % 16 == 0 {
                cluster.settle();
            }
        }
        cluster.mutate(a, &[delete("k0000"), delete("k0001")]).expect("accepted");
        cluster.settle();
        let now = cluster.now;
        let request = cluster.replica(a).handle_compact(now, None);
        assert_eq!(cluster.done(a, request), Done::Refused(RequestError::MembershipMissing));
        let request = cluster.replica(a).handle_members(now, MembersChange::Add("b".into()));
        assert_eq!(cluster.done(a, request), Done::Members);
        cluster.connect(a, b).expect("connects");
        cluster.settle();
        cluster.pass(1000);
        let now = cluster.now;
        let request = cluster.replica(a).handle_compact(now, None);
        let Done::Compacted(compacted) = cluster.done(a, request) else { panic!("compacts") };
        assert_eq!((compacted.records, compacted.tombstones_dropped), (148, 2));
        assert_eq!(cluster.replica(a).status().floor, cluster.replica(a).status().tail);
        cluster.put(a, "after", b"x");
        cluster.settle();
        let c = cluster.add("c", false, small_config());
        cluster.connect(c, a).expect("connects");
        cluster.settle();
        assert_same(&mut cluster, a, c);
        assert!(cluster.nodes[c].host.events.iter().any(|e| matches!(e, Event::Installed { .. })));
        for at in [a, b, c] {
            cluster.kill(at);
            cluster.restart(at);
        }
        let (sa, sc) = (cluster.replica(a).status(), cluster.replica(c).status());
        assert_eq!((sa.tail, sa.tail_digest, sa.present), (sc.tail, sc.tail_digest, sc.present));
    }
}

#[test]
fn a_member_that_is_behind_holds_compaction_back() {
    let mut cluster = Cluster::new(1);
    let (a, b) = (cluster.add("a", true, small_config()), cluster.add("b", false, small_config()));
    let now = cluster.now;
    let request = cluster.replica(a).handle_members(now, MembersChange::Add("b".into()));
    assert_eq!(cluster.done(a, request), Done::Members);
    cluster.put(a, "k", b"1");
    cluster.settle();
    let (link, _) = cluster.connect(a, b).expect("connects");
    cluster.settle();
    cluster.pass(1000);
    let acked = cluster.replica(b).status().tail;
    cluster.cut(a, link);
    cluster.put(a, "l", b"2");
    cluster.settle();
    let now = cluster.now;
    let request = cluster.replica(a).handle_compact(now, None);
    let Done::Compacted(compacted) = cluster.done(a, request) else { panic!("compacts") };
    assert_eq!((compacted.floor, compacted.floor < cluster.replica(a).status().tail), (acked, true));
    let request = cluster.replica(a).handle_compact(now, None);
    let done = cluster.done(a, request);
    assert!(matches!(&done, Done::Refused(RequestError::Behind { member, .. }) if member == "b"), "{done:?}");
}

#[test]
fn a_snapshot_goes_on_over_another_link() {
    for seed in 0..20 {
        let mut cluster = Cluster::new(seed);
        let a = cluster.add("a", true, small_config());
        for i in 0..4000 {
            cluster.put(
                a,
                &format!("some longer key, so that there are pieces {i:06}"),
                format!("v{}", i % 50).as_bytes(),
            );
            if i % 16 == 0 {
                cluster.settle();
            }
        }
        cluster.settle();
        let now = cluster.now;
        let request = cluster.replica(a).handle_members(now, MembersChange::Clear);
        cluster.done(a, request);
        let request = cluster.replica(a).handle_compact(now, None);
        assert!(matches!(cluster.done(a, request), Done::Compacted(_)));
        let c = cluster.add("c", false, small_config());
        for round in 0..3 {
            let (link, _) = cluster.connect(c, a).expect("connects");
            for _ in 0..200 * (round + 1) {
                cluster.step(a);
                cluster.step(c);
            }
            cluster.cut(c, link);
        }
        cluster.connect(c, a).expect("connects");
        cluster.settle();
        assert_same(&mut cluster, a, c);
    }
}

#[test]
fn two_histories_of_one_log_diverge_on_both_sides_and_lose_nothing() {
    let mut cluster = Cluster::new(3);
    let a = cluster.add("a", true, small_config());
    let b = cluster.add("b", true, small_config());
    cluster.put(a, "k", b"of a");
    cluster.put(b, "k", b"of b");
    cluster.settle();
    cluster.connect(a, b).expect("connects");
    cluster.settle();
    for at in [a, b] {
        let links = cluster.replica(at).status().links;
        let verdict = links[0].verdict.clone();
        assert!(
            matches!(&verdict, Some(Verdict::Diverged(d)) if d.reason == PairReason::OtherHistory),
            "{verdict:?}"
        );
        assert_eq!(links[0].state, "stopped");
    }
    assert_eq!(cluster.contents(a).len(), 1);
    assert_ne!(cluster.contents(a), cluster.contents(b));
}

#[test]
fn another_log_is_refused() {
    let mut cluster = Cluster::new(3);
    let a = cluster.add_log("a", true, small_config(), LOG);
    let b = cluster.add_log("b", true, small_config(), LogId([8; 16]));
    assert!(cluster.connect(a, b).expect_err("refused").contains("serves log"));
}

#[test]
fn three_in_a_ring_converge() {
    for seed in 0..20 {
        let mut cluster = Cluster::new(seed);
        let a = cluster.add("a", true, small_config());
        let b = cluster.add("b", false, small_config());
        let c = cluster.add("c", false, small_config());
        for (x, y) in [(a, b), (b, c), (c, a)] {
            cluster.connect(x, y).expect("connects");
        }
        for i in 0..200 {
            cluster.put(a, &format!("k{:03}", i % 90), format!("v{i}").as_bytes());
            for at in [a, b, c] {
                cluster.step(at);
            }
        }
        cluster.settle();
        assert_same(&mut cluster, a, b);
        assert_same(&mut cluster, a, c);
        assert!(cluster.nodes.iter().all(|n| n.links.len() == 2), "no link was closed");
    }
}

#[test]
fn closing_seals_and_tells() {
    let mut cluster = Cluster::new(5);
    let a = cluster.add("a", true, small_config());
    cluster.put(a, "k", b"1");
    let now = cluster.now;
    cluster.replica(a).handle_close(now);
    cluster.settle();
    assert!(cluster.nodes[a].host.events.contains(&Event::Closed));
    assert_eq!(cluster.mutate(a, &[delete("k")]), Err(MutationError::Closing));
    cluster.kill(a);
    cluster.restart(a);
    assert_eq!(cluster.contents(a).len(), 1);
}

#[test]
fn one_compaction_goes_as_far_as_it_may_in_as_many_rounds_as_it_takes() {
    let mut config = small_config();
    config.compaction_keys_max = 7;
    let mut cluster = Cluster::new(11);
    let a = cluster.add("a", true, config);
    for i in 0..100 {
        cluster.put(a, &format!("k{i:03}"), b"v");
        cluster.settle();
    }
    cluster.mutate(a, &[delete("k000"), delete("k099")]).expect("accepted");
    cluster.settle();
    let now = cluster.now;
    let request = cluster.replica(a).handle_members(now, MembersChange::Clear);
    cluster.done(a, request);
    let request = cluster.replica(a).handle_compact(now, None);
    let Done::Compacted(compacted) = cluster.done(a, request) else { panic!("compacts") };
    let status = cluster.replica(a).status();
    assert_eq!(compacted.floor, status.tail);
    assert_eq!((compacted.records, compacted.entries_dropped, compacted.tombstones_dropped), (98, 102, 2));
    assert!(!status.compacting);
    let told = cluster.nodes[a].host.events.iter().filter(|e| matches!(e, Event::Done { .. })).count();
    assert_eq!(told, 2, "one answer for each request");
    cluster.kill(a);
    cluster.restart(a);
    assert_eq!(cluster.contents(a).len(), 98);
}
