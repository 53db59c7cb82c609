//! Blobs that nothing needs, that are damaged, and that come after their records: nodes of the built
//! program, linked over TCP on loopback.

mod support;

use sha2::{Digest, Sha256};
use std::path::{Path, PathBuf};
use support::{Replica, wait_until};

const CALLED: &str = "[[peers]]\nidentity = \"b\"\ntoken = \"of b\"\n";

fn calls(address: &str) -> String {
    format!("token = \"of b\"\n[[peers]]\nidentity = \"a\"\naddress = \"{address}\"\n")
}

fn follower(of: &Replica) -> Replica {
    let log = of.status()["log"].as_str().expect("a log").to_owned();
    let replica = Replica::new();
    replica.done(["init", "--identity", "b", "--follow", "--log", &log]);
    replica
}

/// Where the store of a replica keeps these bytes.
fn blob_file(replica: &Replica, bytes: &[u8]) -> PathBuf {
    let key: String = Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    replica.dir().join("blobs").join(&key[..1]).join(key)
}

fn wait_until_complete(a: &Replica, b: &Replica) {
    let tail = a.status()["tail"].clone();
    wait_until("records and blobs", || b.status()["complete"] == tail);
}

#[test]
fn gc_says_what_it_would_remove_and_removes_what_nobody_needs() {
    let mut a = Replica::writer("a");
    a.put("k", b"old content");
    a.put("k", b"new content");
    a.put("other", b"another");
    assert_eq!(a.run(["gc"]).code, 1, "nobody said who the members are");
    a.done(["members", "add", "b"]);
    let address = a.serve(CALLED);
    let mut b = follower(&a);
    b.serve(&calls(&address));
    wait_until_complete(&a, &b);

    let gc = |more: &str| a.run(["gc", "--untouched", "0"].into_iter().chain(more.split_whitespace()));
    wait_until("the member's acknowledgement", || gc("--dry-run").code == 0);
    let dry = gc("--dry-run").last();
    assert_eq!((&dry["blobs"], &dry["looked"], &dry["bytes"]), (&1.into(), &3.into(), &11.into()));
    assert!(blob_file(&a, b"old content").exists(), "a dry run removes nothing");
    let kept = a.done(["gc"]).last();
    assert_eq!(kept["blobs"], 0, "it was stored within the last hour");
    let done = gc("").last();
    assert_eq!((&done["blobs"], &done["dry_run"]), (&1.into(), &false.into()));
    assert!(!blob_file(&a, b"old content").exists());
    assert_eq!(a.plain(["get", "k"]).stdout, b"new content");
    assert_eq!(a.done(["verify"]).last()["missing"], 0);
    assert_eq!(b.plain(["get", "k"]).stdout, b"new content");
    assert_eq!((a.stop(), b.stop()), (0, 0));
}

#[test]
fn a_damaged_and_a_lost_blob_come_back_from_the_peer_while_the_node_works() {
    let mut a = Replica::writer("a");
    for n in 0..20 {
        a.put(&format!("k{n}"), format!("content {n}").as_bytes());
    }
    let address = a.serve(CALLED);
    let mut b = follower(&a);
    b.serve(&calls(&address));
    wait_until_complete(&a, &b);
    std::fs::write(blob_file(&a, b"content 3"), b"content X").expect("damages");
    std::fs::remove_file(blob_file(&a, b"content 5")).expect("loses");

    let scrubbed = a.done(["verify", "--blobs", "--wait", "60"]).last();
    assert_eq!(
        (&scrubbed["keys"], &scrubbed["found"], &scrubbed["wanted"]),
        (&20.into(), &2.into(), &0.into())
    );
    for n in [3, 5] {
        assert_eq!(a.plain(["get", &format!("k{n}")]).stdout, format!("content {n}").into_bytes());
    }
    assert_eq!(a.done(["verify", "--blobs"]).last()["found"], 0);
    let aside = a.dir().join("blobs/damaged");
    assert_eq!(std::fs::read_dir(aside).expect("lists").count(), 1, "the bytes are kept for a person");
}

#[test]
fn a_key_whose_blob_nobody_has_holds_up_no_other_and_gets_it_later() {
    let mut a = Replica::writer("a");
    for (key, bytes) in [("one", b"first"), ("two", b"later"), ("six", b"third")] {
        a.put(key, bytes);
    }
    std::fs::remove_file(blob_file(&a, b"later")).expect("loses");
    let address = a.serve(CALLED);
    let mut b = follower(&a);
    b.serve(&calls(&address));
    let tail = a.status()["tail"].clone();
    wait_until("the records", || b.status()["tail"] == tail);
    assert_eq!(b.plain(["get", "six"]).stdout, b"third");
    let pending = b.plain(["get", "two"]);
    assert_eq!(pending.code, 1, "{}", pending.stderr);
    assert!(pending.stderr.contains("not here yet"), "{}", pending.stderr);
    assert_eq!(b.status()["blobs_wanted"], 1);

    a.put("again", b"later");
    wait_until("the blob", || b.status()["blobs_wanted"] == 0);
    assert_eq!(b.plain(["get", "two"]).stdout, b"later");
    wait_until_complete(&a, &b);
}

#[test]
fn a_damaged_large_blob_holds_up_no_other_record_and_is_wanted_by_its_source() {
    let mut a = Replica::writer("a");
    let large: Vec<u8> = (0..600_000u32).map(|n| (n % 251) as u8).collect();
    for (key, bytes) in [("one", &b"first"[..]), ("two", &large), ("six", b"third")] {
        a.put(key, bytes);
    }
    let file = blob_file(&a, &large);
    let mut damaged = large.clone();
    damaged[400_000] ^= 1;
    std::fs::write(&file, &damaged).expect("damages");
    let address = a.serve(CALLED);
    let mut b = follower(&a);
    b.serve(&calls(&address));
    let tail = a.status()["tail"].clone();
    wait_until("the records", || b.status()["tail"] == tail);
    assert_eq!(b.plain(["get", "six"]).stdout, b"third");
    wait_until("what the source wants", || a.status()["blobs_wanted"] == 1);
    let pending = a.plain(["get", "two"]);
    assert!(pending.stderr.contains("not here yet"), "{}", pending.stderr);
    assert_eq!(
        std::fs::read(a.dir().join("blobs/damaged").join(file.file_name().expect("a name"))).ok(),
        Some(damaged)
    );

    a.put("again", &large);
    for node in [&a, &b] {
        wait_until("the blob", || node.plain(["get", "two"]).stdout == large);
    }
    wait_until_complete(&a, &b);
    assert_eq!((a.stop(), b.stop()), (0, 0));
}

#[test]
fn a_collection_waits_for_a_backup_that_is_under_way() {
    let mut a = Replica::writer("a");
    a.done(["members", "clear"]);
    for n in 0..4u8 {
        let bytes: Vec<u8> =
            (0..(12 << 20)).map(|at: u32| at.wrapping_mul(2_654_435_761).to_be_bytes()[0] ^ n).collect();
        a.put(&format!("k{n}"), &bytes);
    }
    a.serve("");
    let (to, gc) = (a.path("backup"), ["gc", "--untouched", "0"]);
    let mut backup = a.begin([Path::new("backup"), &to]);
    let suspend = |signal| {
        let pid = rustix::process::Pid::from_child(&backup);
        rustix::process::kill_process(pid, signal).expect("signals");
    };
    wait_until("the log's files", || to.join("log/current").exists());
    suspend(rustix::process::Signal::STOP);
    assert!(!to.join("manifest.json").exists(), "it has not ended");
    // What the backup still has to copy is named by nothing any more.
    for n in 0..4 {
        a.put(&format!("k{n}"), b"another");
    }
    let refused = a.run(gc);
    assert_eq!(refused.code, 1, "{}", refused.stderr);
    assert!(refused.stderr.contains("backup"), "{}", refused.stderr);
    suspend(rustix::process::Signal::CONT);
    assert!(backup.wait().expect("ends").success());
    wait_until("the end of the hold", || a.run(gc).code == 0);
    assert_eq!(a.done(["gc"]).last()["looked"], 1, "the old ones went");
    assert_eq!(a.stop(), 0);
    let back = Replica::new();
    back.done([Path::new("restore"), &to]);
    assert_eq!(back.plain(["get", "k3"]).stdout.len(), 12 << 20);
}

#[test]
fn two_logs_over_one_blob_store_are_served_in_turn_and_nothing_of_it_is_collected() {
    let (mut a, mut b) = (Replica::writer("a"), Replica::writer("b"));
    for log in [&a, &b] {
        log.done(["members", "clear"]);
    }
    a.put("k", b"of the first log");
    std::fs::remove_dir_all(b.dir().join("blobs")).expect("removes");
    std::os::unix::fs::symlink(a.dir().join("blobs"), b.dir().join("blobs")).expect("links");
    a.serve("");
    let code = b.try_serve("").expect_err("the store is in use");
    assert!(code != 0 && b.said().contains("blobs is in use"), "{}", b.said());
    assert_eq!(a.stop(), 0);
    b.put("k", b"of the second log");
    // What each names the other does not: both say so, whichever is served.
    for log in [&a, &b] {
        let refused = log.run(["gc", "--untouched", "0"]);
        assert_eq!(refused.code, 1, "{}", refused.stderr);
        for name in [&a, &b].map(|log| log.status()["log"].as_str().expect("a log").to_owned()) {
            assert!(refused.stderr.contains(&name), "{}", refused.stderr);
        }
    }
    assert_eq!(a.plain(["get", "k"]).stdout, b"of the first log");
    assert_eq!(b.plain(["get", "k"]).stdout, b"of the second log");
}
