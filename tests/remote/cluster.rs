//! Streams on three masters: each on its own, slots that move, waits on several at once.

use crate::support::{
    PATIENT, SHORT, add, add_once, ask, handle, op, payloads, remote_by, runtime, stream, tagged, wait_async,
};
use std::collections::BTreeSet;
use strandline_core::stream::client::{LogPosition, Waited};
use strandline_core::stream::contract::GroupContract;
use strandline_core::stream::error::{CallerError, Setting};
use strandline_core::stream::failover::{Doubt, Survival};
use strandline_core::stream::filter::Filter;
use strandline_core::stream::reply::{Told, Uncertain};
use strandline_core::stream::unready::Unready;
use strandline_core::stream::{
    ConsumerName, EventId, GroupName, Ids, Layout, Outcome, ServerFault, StreamError, Verb,
};
use strandline_redis::{Address, Bell, Bounds, Names, Redis, Remote};
use strandline_streams::{Consumer, Item, Start, Stream, Streams};
use strandline_tests::redis_cluster::RedisCluster;
use strandline_tests::streams::every::every_operation;
use strandline_tests::streams::monitor::{Watch, declared};

fn address(cluster: &RedisCluster) -> Address {
    let urls = cluster.urls();
    Address::cluster(urls.iter().map(String::as_str)).expect("addresses")
}

fn reach(cluster: &RedisCluster, bounds: Bounds) -> Remote {
    remote_by(address(cluster), tagged(), bounds)
}

fn life(name: &str) -> String {
    tagged().tagged(&stream(name)).life()
}

/// One stream for each master.
fn homes(cluster: &RedisCluster) -> [String; 3] {
    [0, 1, 2].map(|master| {
        let mut names = (0..).map(|i| format!("s{i}"));
        names.find(|name| cluster.master_of(&life(name)) == master).expect("a name for each master")
    })
}

fn log(name: &str) -> LogPosition {
    LogPosition { stream: stream(name), generation: 1, after: EventId::ZERO }
}

fn keys(cluster: &RedisCluster, master: usize) -> BTreeSet<String> {
    redis::cmd("KEYS").arg("*").query(&mut cluster.connection(master)).expect("keys")
}

/// On each master; there, an undeclared key of another one fails, and one of the same is seen.
#[test]
fn every_operation_runs_on_each_of_three_masters_with_declared_keys_only() {
    let cluster = RedisCluster::start();
    let names = homes(&cluster);
    let watches: Vec<Watch> = cluster.ports().into_iter().map(Watch::begin).collect();
    let (runtime, remote) = (runtime(), reach(&cluster, PATIENT));
    for name in &names {
        every_operation(name, Layout::Tagged, &mut |op| runtime.block_on(remote.apply(op)));
    }
    for (master, watch) in watches.into_iter().enumerate() {
        let seen = declared(&watch.end(&mut cluster.connection(master)));
        assert_eq!(seen.tags, BTreeSet::from([names[master].clone()]), "only its own stream");
        assert!(seen.scripts.len() >= 23 && seen.touches > 60, "{seen:?}");
        // What is left of a destroyed generation, and nothing of the others.
        assert_eq!(keys(&cluster, master), BTreeSet::from([life(&names[master])]));
    }
}

#[test]
fn the_pulse_layout_is_refused_before_anything_is_asked() {
    let nodes = Address::cluster(["redis://127.0.0.1:1/"]).expect("an address");
    let refused = CallerError::InvalidOption { setting: Setting::PulseInCluster };
    let seed = strandline_core::seed::Seed::new([1; 32]);
    let remote = Remote::new(nodes.clone(), Names::Pulse, PATIENT, seed);
    assert_eq!(remote.err(), Some(refused.clone()));
    assert_eq!(Bell::new(nodes, Names::Pulse, 10).err(), Some(refused.into()));
}

#[test]
fn a_slot_moves_amid_the_work_and_each_event_is_there_once() {
    let cluster = RedisCluster::start();
    runtime().block_on(async {
        let remote = reach(&cluster, PATIENT);
        let [_, name, _] = homes(&cluster);
        let mut moving = handle(&name);
        for i in 0..20 {
            ask(&remote, &mut moving, add_once(&format!("k{i}"))).await;
        }
        let all = keys(&cluster, 1);
        let (last, first): (Vec<&str>, Vec<&str>) =
            all.iter().map(String::as_str).partition(|key| key.ends_with(":log"));
        assert!(!first.is_empty() && !last.is_empty(), "{all:?}");

        cluster.begin_move(&life(&name), 2);
        cluster.carry(&life(&name), &first, 2);
        // Half of its keys are there: nobody can do a step, and nobody does half of one.
        let hurried = reach(&cluster, SHORT);
        let outcome = hurried.apply(&op(&moving, add_once("k20"))).await;
        let Outcome::Answered { result: Err(StreamError::Server(fault)), .. } = outcome else {
            panic!("{outcome:?}")
        };
        assert!(matches!(fault, ServerFault::Unready { why: Unready::SlotMoving, .. }), "{fault:?}");
        // Who has time waits until it has moved.
        let patient = async {
            let mut waiting = moving.clone();
            ask(&remote, &mut waiting, add_once("k20")).await
        };
        let mover = async {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            cluster.carry(&life(&name), &last, 2);
            cluster.end_move(&life(&name), 2);
        };
        tokio::join!(patient, mover);
        for i in 15..25 {
            ask(&remote, &mut moving, add_once(&format!("k{i}"))).await;
        }
        let expected: Vec<String> = (0..25).map(|i| format!("k{i}")).collect();
        assert_eq!(payloads(&remote, &mut moving).await, expected);
        assert_eq!(keys(&cluster, 1), BTreeSet::new(), "nothing was left behind, nothing made anew");
        ask(&remote, &mut moving, Verb::Destroy).await;
    });
}

/// All its keys are there already, and the cluster does not know yet: its old master sends whoever asks there.
#[test]
fn what_is_noted_beside_an_answer_follows_a_slot_that_moves_too() {
    let cluster = RedisCluster::start();
    runtime().block_on(async {
        let remote = reach(&cluster, PATIENT);
        let [_, name, _] = homes(&cluster);
        let mut moving = handle(&name);
        // Every key that a step declares is there: it waits for one that is not.
        let Told::AddedOnce { id, .. } = ask(&remote, &mut moving, add_once("k0")).await else {
            panic!("added")
        };
        let (group, consumer) =
            (GroupName::new("g").expect("a name"), ConsumerName::new("c").expect("a name"));
        let contract =
            GroupContract { filter: Filter::All, start: Start::Oldest, no_ack: false, grace_ms: 10 };
        for verb in [
            Verb::GroupOpen { group: group.clone(), contract, settled: None },
            Verb::GroupRead { group: group.clone(), consumer: consumer.clone(), events_max: 5 },
            Verb::GroupBury { group, consumer, ids: Ids::new([id]).expect("one") },
        ] {
            ask(&remote, &mut moving, verb).await;
        }
        let all = keys(&cluster, 1);
        assert_eq!(all.len(), 6, "{all:?}");
        cluster.begin_move(&life(&name), 2);
        cluster.carry(&life(&name), &all.iter().map(String::as_str).collect::<Vec<_>>(), 2);
        for key in ["k0", "k1"] {
            let (outcome, vouched) = remote.apply_vouched(&op(&moving, add_once(key))).await;
            assert!(matches!(outcome, Outcome::Answered { result: Ok(_), .. }), "{key}: {outcome:?}");
            assert!(vouched.is_some(), "by the one that did it");
        }
        assert_eq!(payloads(&remote, &mut moving).await, ["k0", "k1"]);
        cluster.end_move(&life(&name), 2);
    });
}

/// The client that we build on would send it again by itself: a second copy might follow.
#[test]
fn a_connection_that_ends_leaves_what_was_sent_uncertain_in_a_cluster_too() {
    let cluster = RedisCluster::start();
    let [name, ..] = homes(&cluster);
    let mut admin = cluster.connection(0);
    runtime().block_on(async {
        let remote = reach(&cluster, PATIENT);
        let mut first = handle(&name);
        ask(&remote, &mut first, add("a")).await;
        crate::support::must::<()>(&mut admin, &["CLIENT", "PAUSE", "60000", "WRITE"]);
        let op = op(&first, add("b"));
        let cut = async {
            wait_async("a step that waits", || {
                let info: String = crate::support::must(&mut admin, &["INFO", "clients"]);
                info.contains("blocked_clients:1")
            })
            .await;
            crate::support::must::<i64>(&mut admin, &["CLIENT", "KILL", "TYPE", "normal"]);
            crate::support::must::<()>(&mut admin, &["CLIENT", "UNPAUSE"]);
        };
        let (outcome, ()) = tokio::join!(remote.apply(&op), cut);
        assert_eq!(outcome, Outcome::Uncertain(Uncertain::new(op.clone())));
        assert_eq!(payloads(&remote, &mut first).await, ["a"], "and the next one finds its way");
    });
}

/// One blocking read may name the keys of one slot only.
#[test]
fn a_bell_rings_for_streams_on_different_masters_and_follows_a_slot() {
    let cluster = RedisCluster::start();
    runtime().block_on(async {
        let remote = reach(&cluster, PATIENT);
        let names = homes(&cluster);
        let mut handles = names.clone().map(|name| handle(&name));
        for handle in &mut handles {
            ask(&remote, handle, Verb::Open).await;
        }
        let mut logs = names.clone().map(|name| log(&name));
        let mut quick = Bell::new(address(&cluster), tagged(), 50).expect("a bell");
        assert_eq!(quick.wait(&logs).await, Waited::TimeOut);
        let mut bell = Bell::new(address(&cluster), tagged(), 60_000).expect("a bell");
        for (handle, at) in handles.iter_mut().zip(0..) {
            let publish = async {
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
                ask(&remote, handle, add("x")).await
            };
            let (waited, told) = tokio::join!(bell.wait(&logs), publish);
            assert_eq!(waited, Waited::Rung);
            let strandline_core::stream::reply::Told::Added { id: Some(id) } = told else {
                panic!("{told:?}")
            };
            logs[at].after = id;
        }
        // A wait that was dropped goes on: what comes meanwhile is not missed.
        let dropped = tokio::time::timeout(std::time::Duration::from_millis(20), bell.wait(&logs)).await;
        assert!(dropped.is_err(), "nothing to tell");
        ask(&remote, &mut handles[0], add("y")).await;
        assert_eq!(bell.wait(&logs).await, Waited::Rung);

        let all: Vec<String> = keys(&cluster, 1).into_iter().collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        cluster.begin_move(&life(&names[1]), 2);
        cluster.carry(&life(&names[1]), &all, 2);
        let there = [log(&names[1])];
        assert_eq!(quick.wait(&there).await, Waited::Rung, "it asks where the slot is on its way to");
        cluster.end_move(&life(&names[1]), 2);
        assert_eq!(quick.wait(&there).await, Waited::Rung, "it asks where the slot is");
        // So does a step that notes where its server stands: it is the other master that vouches.
        let (outcome, noted) = remote.apply_vouched(&op(&handles[1], Verb::Snapshot)).await;
        crate::support::told(&mut handles[1], &Verb::Snapshot, outcome);
        let there = remote.standing(&stream(&names[2])).await.expect("a master says where it stands");
        assert_eq!(noted.map(|noted| noted.id), Some(there.id));
    });
}

/// How many clients wait at each master.
fn waiting(cluster: &RedisCluster) -> [String; 3] {
    [0, 1, 2].map(|master| {
        let info: String = crate::support::must(&mut cluster.connection(master), &["INFO", "clients"]);
        let count = info.lines().find_map(|line| line.strip_prefix("blocked_clients:"));
        count.expect("the number of those who wait").to_string()
    })
}

async fn publish(streams: &[Stream], consumer: &mut Consumer) {
    for stream in streams {
        let id = stream.add(crate::support::event("x")).await.expect("published");
        let next = futures::StreamExt::next(consumer);
        let next = tokio::time::timeout(crate::support::GIVE_UP, next).await.expect("an item in time");
        let Some(Ok(Item::Event(delivery))) = next else { panic!("expected an event, found {next:?}") };
        assert_eq!((delivery.id, Some(&delivery.stream)), (id, stream.state().as_ref().map(|h| h.stream())));
        // Whether it was this time or one without an answer before.
        consumer.ack(&delivery).await.expect("settled");
    }
}

/// Streams of one slot share a wait, streams of several masters do not; a master that does not answer
/// holds up only its own.
#[test]
fn a_group_waits_once_for_each_slot_and_goes_on_while_a_master_does_not() {
    let cluster = RedisCluster::start();
    runtime().block_on(async {
        let [first, second, third] = homes(&cluster);
        let slot = |name: &str| redis::cluster_routing::Slot::for_key(life(name));
        let beside = (0..).map(|n| format!("n{n}")).find(|name| slot(name) == slot(&first)).expect("a name");
        let names = [first, beside, second, third];
        // Who publishes waits for the master; who consumes soon knows that it does not answer.
        let hurried = Bounds { answer_ms_max: 5_000, ..PATIENT };
        let [patient, hurried] = [PATIENT, hurried].map(|bounds| {
            let redis = Redis::at(address(&cluster), tagged(), bounds).expect("entropy");
            let (streams, driver) = Streams::new(redis).expect("entropy");
            tokio::spawn(driver.run(tokio::time::sleep));
            streams
        });
        let handle =
            |streams: &Streams, name: &String| streams.stream(name.as_str()).handle().expect("a handle");
        let published = names.each_ref().map(|name| handle(&patient, name));
        let [one, two, three, four] = names.each_ref().map(|name| handle(&hurried, name));
        let group = one.group("mail").and(&two).and(&three).and(&four).start(Start::Oldest);
        let block = std::time::Duration::from_secs(2);
        let mut consumer = group.block(block).consumer("w").await.expect("joined");
        publish(&published, &mut consumer).await;
        let once = || waiting(&cluster) == ["1", "1", "1"].map(String::from);
        let asked = async { _ = futures::StreamExt::next(&mut consumer).await };
        tokio::select! {
            () = asked => panic!("expected nothing to come"),
            () = wait_async("one who waits at each master", once) => {}
        }

        crate::support::must::<()>(&mut cluster.connection(0), &["CLIENT", "PAUSE", "600000", "WRITE"]);
        publish(&published[2..], &mut consumer).await;
        crate::support::must::<()>(&mut cluster.connection(0), &["CLIENT", "UNPAUSE"]);
        publish(&published, &mut consumer).await;
    });
}

/// A master that lost everything costs its own streams only, and says so.
#[test]
fn a_master_that_comes_back_empty_lost_its_streams_and_no_others() {
    let mut cluster = RedisCluster::start();
    let names = homes(&cluster);
    let runtime = runtime();
    let remote = reach(&cluster, PATIENT);
    let mut handles = names.clone().map(|name| handle(&name));
    let noted = runtime.block_on(async {
        let mut noted = Vec::new();
        for handle in &mut handles {
            let (outcome, vouched) = remote.apply_vouched(&op(handle, add("a"))).await;
            crate::support::told(handle, &add("a"), outcome);
            noted.push(vouched.expect("a master says where it stands"));
        }
        noted
    });
    cluster.restart(0);
    runtime.block_on(async {
        let outcome = loop {
            // What was on its way over the connection that ended is uncertain.
            match remote.apply(&op(&handles[0], Verb::Snapshot)).await {
                Outcome::Uncertain(_) => {}
                answered @ Outcome::Answered { .. } => break answered,
            }
        };
        let lost = StreamError::from(CallerError::StreamLost { current: None });
        assert!(matches!(&outcome, Outcome::Answered { result: Err(e), .. } if *e == lost), "{outcome:?}");
        let other = Survival::Unknown { reason: Doubt::OtherHistory };
        assert_eq!(remote.survival(&stream(&names[0]), Some(&noted[0])).await, other);
        for at in [1, 2] {
            assert_eq!(payloads(&remote, &mut handles[at]).await, ["a"]);
            let survival = remote.survival(&stream(&names[at]), Some(&noted[at])).await;
            assert_eq!(survival, Survival::Kept);
        }
    });
}
