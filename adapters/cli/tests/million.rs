//! A new peer takes up a large state from a node of the built program, over a connection that is cut again
//! and again, while the node is written to and compacted; then it catches up with a history, and both are
//! compacted. 1,000,000 records with `STRANDLINE_SOAK=1`, else 20,000. What each process needed is printed,
//! and bounded for the million: time is never asserted.

#[path = "faults/proxy.rs"]
#[allow(dead_code, reason = "a proxy that can do more than is asked of it here")]
mod proxy;
mod support;

use proxy::Proxy;
use serde_json::Value;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use strandline_core::id::LogId;
use strandline_core::lifecycle::api::{Change, Mutation};
use strandline_core::lifecycle::recovery::Init;
use strandline_core::record::{AuthorityId, Key};
use strandline_file::blocking::BlockingReplica;
use strandline_file::node::NodeConfig;
use support::{Replica, wait_until_within};

const CALLED: &str = "[[peers]]\nidentity = \"b\"\ntoken = \"of b\"\n";

const BATCH: u64 = 1000;

/// Connections that are cut amid the snapshot.
const CUTS: u64 = 5;

/// What a process may need for a million records.
const PEAK_BYTES_MAX: u64 = 400_000_000;

/// Longest wait for one step; only one that hangs reaches it.
const WAIT: Duration = Duration::from_secs(1200);

fn soak() -> bool {
    std::env::var_os("STRANDLINE_SOAK").is_some()
}

fn records() -> u64 {
    if soak() { 1_000_000 } else { 20_000 }
}

/// Writes these keys, all with one blob, to the stopped writer.
fn fill(replica: &BlockingReplica, keys: std::ops::Range<u64>) {
    let blob = replica.blobs().store_reader(&b"the same for all"[..]).expect("stores").key;
    for first in keys.clone().step_by(BATCH as usize) {
        let put = |n: u64| {
            let name = format!("a folder/with some depth/key-{n:09}");
            let key = Key::from_parts(b"files", name.as_bytes()).expect("short");
            Mutation { key, change: Change::Put { blob }, if_version: None }
        };
        replica.write_batch((first..keys.end.min(first + BATCH)).map(put).collect()).expect("writes");
    }
}

fn version(of: &Value) -> (u64, u64) {
    let text = of.as_str().expect("a version");
    let (epoch, sequence) = text.split_once('.').expect("two numbers");
    (epoch.parse().expect("a number"), sequence.parse().expect("a number"))
}

/// The most memory that the node ever had, where the system tells.
fn told(what: &str, node: &Replica, since: Instant) {
    match node.peak_bytes() {
        Some(peak) => {
            println!("{what}: {:.2?}, peak memory {} MB", since.elapsed(), peak / 1_000_000);
            assert!(!soak() || peak < PEAK_BYTES_MAX, "{what}: {peak} bytes, at most {PEAK_BYTES_MAX}");
        }
        None => println!("{what}: {:.2?}, peak memory unknown", since.elapsed()),
    }
}

fn wait_until_same(a: &Replica, b: &Replica) {
    wait_until_within(WAIT, "the same history", || {
        let (ours, theirs) = (a.status(), b.status());
        (&ours["tail"], &ours["tail_digest"]) == (&theirs["tail"], &theirs["tail_digest"])
    });
}

/// Checkpoints that lie in a node's directory.
fn checkpoints(node: &Replica) -> usize {
    let names = std::fs::read_dir(node.dir()).expect("lists").map(|entry| entry.expect("reads").file_name());
    names.filter(|name| name.to_string_lossy().starts_with("checkpoint-")).count()
}

/// Cuts the connection again and again, compacts the source while the snapshot is on its way, and writes to
/// it all the time, until `b` has the snapshot. How much was written.
fn bootstrap(a: &Replica, b: &Replica, proxy: &Proxy, cut_bytes: u32, floor: (u64, u64)) -> u64 {
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let present = || {
        let present = b.status()["present"].as_u64().expect("a count");
        assert!(present == 0 || present >= records(), "a part of a snapshot is shown: {present} keys");
        present
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                a.put(&format!("meanwhile/{}", written.load(Ordering::Relaxed)), b"written meanwhile");
                written.fetch_add(1, Ordering::Relaxed);
            }
        });
        // Ends the writer also where something below fails.
        let _stopping = Stopping(&stop);
        for cut in 1..=CUTS {
            wait_until_within(WAIT, "a cut", || proxy.cuts() >= cut);
            assert_eq!(present(), 0, "the snapshot was cut {cut} times");
            if cut < CUTS {
                proxy.cut_after(cut_bytes);
            }
        }
        // In the middle of what is left the source is compacted: the cut that is being read is pinned.
        proxy.delay(50);
        wait_until_within(WAIT, "the link", || a.status()["links"].as_array().is_some_and(|l| !l.is_empty()));
        wait_until_within(WAIT, "a compaction while the snapshot is on its way", || {
            proxy.still(1, true);
            assert!(version(&a.done(["compact"]).last()["floor"]) > floor, "something was written");
            // The one that is read, and the new one; unless the link had not come to the offer yet.
            let both = checkpoints(a) == 2;
            proxy.still(1, both);
            both
        });
        assert_eq!(present(), 0, "the rest is on its way");
        proxy.heal();
        wait_until_within(WAIT, "the snapshot", || present() > 0);
    });
    written.into_inner()
}

/// Sets it when it goes.
struct Stopping<'a>(&'a AtomicBool);

impl Drop for Stopping<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_million_records_are_taken_up_caught_up_with_and_compacted_in_bounded_memory() {
    let (mut a, mut b) = (Replica::new(), Replica::new());
    let log = LogId([9; 16]);
    let authority = Some(AuthorityId::from_text("a"));
    let init = Init { log, identity: "a".into(), namespaces: vec![b"files".to_vec()], authority };
    let (writer, _) = BlockingReplica::create(a.dir(), init, NodeConfig::default()).expect("creates");
    fill(&writer, 0..records());
    writer.close().expect("closes");
    b.done(["init", "--identity", "b", "--follow", "--log", &log.to_string()]);

    let begun = Instant::now();
    let proxy = Proxy::start();
    proxy.lead_to(&a.serve(CALLED));
    let call = format!("token = \"of b\"\n[[peers]]\nidentity = \"a\"\naddress = \"{}\"\n", proxy.address);
    a.done(["members", "clear"]);
    let compacted = a.done(["compact"]).last();
    assert_eq!(compacted["records"].as_u64(), Some(records()));
    told("source, opened and compacted", &a, begun);

    let begun = Instant::now();
    let state_bytes = compacted["checkpoint_bytes"].as_u64().expect("a length");
    let cut_bytes = u32::try_from(state_bytes / (CUTS + 2)).expect("a piece of it");
    proxy.cut_after(cut_bytes);
    b.serve(&call);
    let written = bootstrap(&a, &b, &proxy, cut_bytes, version(&compacted["floor"]));
    wait_until_same(&a, &b);
    assert_eq!(b.status()["present"].as_u64(), Some(records() + written));
    assert_eq!((checkpoints(&a), checkpoints(&b)), (1, 1), "no pin is left");
    println!("{} records, {state_bytes} bytes of state, {} cuts, {written} writes", records(), proxy.cuts());
    told("source, after a bootstrap through it", &a, begun);
    told("peer, after its bootstrap", &b, begun);

    // A history that it was not there for: changed keys, and new ones.
    assert_eq!((a.stop(), b.stop()), (0, 0));
    let (writer, _) = BlockingReplica::open(a.dir(), NodeConfig::default()).expect("opens");
    let changed = records() / 10;
    fill(&writer, records() - changed..records() + changed / 10);
    writer.close().expect("closes");
    let begun = Instant::now();
    proxy.lead_to(&a.serve(CALLED));
    b.serve(&call);
    wait_until_same(&a, &b);
    told("source, after a catch-up", &a, begun);
    told("peer, after its catch-up", &b, begun);

    let begun = Instant::now();
    b.done(["members", "clear"]);
    let (ours, theirs) = (a.done(["compact"]).last(), b.done(["compact"]).last());
    assert_eq!((&ours["floor"], &ours["records"]), (&theirs["floor"], &theirs["records"]));
    assert_eq!(a.status()["tail_digest"], b.status()["tail_digest"]);
    told("source, after a compaction", &a, begun);
    told("peer, after a compaction", &b, begun);
    assert_eq!((a.stop(), b.stop()), (0, 0));
}
