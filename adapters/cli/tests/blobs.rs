//! Blobs that nothing needs, that are damaged, and that come after their records: nodes of the built
//! program, linked over TCP on loopback.

mod support;

use sha2::{Digest, Sha256};
use std::path::PathBuf;
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
