//! Nodes of the built program, linked over TCP on loopback.

mod support;

use support::{Replica, sample, tree, wait_until};

const TOKEN: &str = "token = \"of b\"\n";

fn calls(address: &str) -> String {
    format!("{TOKEN}[[peers]]\nidentity = \"a\"\naddress = \"{address}\"\n")
}

const CALLED: &str = "[[peers]]\nidentity = \"b\"\ntoken = \"of b\"\n";

fn follower(of: &Replica) -> Replica {
    let log = of.status()["log"].as_str().expect("a log").to_owned();
    let replica = Replica::new();
    replica.done(["init", "--identity", "b", "--follow", "--log", &log]);
    replica
}

fn wait_until_same(a: &Replica, b: &Replica) {
    let tail = a.status();
    wait_until("the same tail", || b.status()["tail"] == tail["tail"]);
    assert_eq!(b.status()["tail_digest"], tail["tail_digest"]);
    wait_until("the blobs", || b.run(["verify"]).code == 0);
}

#[test]
fn a_tree_reaches_the_follower_and_a_delete_follows_it() {
    let mut a = Replica::writer("a");
    let (source, target) = (a.path("source"), a.path("target"));
    sample(&source);
    a.done(["import", source.to_str().expect("UTF-8")]);
    let address = a.serve(CALLED);
    let mut b = follower(&a);
    b.serve(&calls(&address));
    wait_until_same(&a, &b);
    a.done(["delete", "none"]);
    wait_until_same(&a, &b);
    assert_eq!(b.run(["get", "none"]).code, 1);
    b.done(["export", target.to_str().expect("UTF-8")]);
    let mut expected = tree(&source);
    expected.retain(|(path, _)| path.as_os_str() != "none");
    assert!(expected == tree(&target), "the trees differ");
    assert_eq!((a.stop(), b.stop()), (0, 0));
}

#[test]
fn a_follower_below_the_floor_gets_a_snapshot_and_no_deleted_key() {
    let mut a = Replica::writer("a");
    for n in 0..3 {
        a.put(&format!("k{n}"), b"content");
    }
    let address = a.serve(CALLED);
    let mut b = follower(&a);
    b.serve(&calls(&address));
    wait_until_same(&a, &b);
    assert_eq!(b.stop(), 0);
    a.done(["delete", "k1"]);
    a.done(["members", "clear"]);
    a.done(["compact"]);
    assert_eq!(b.run(["get", "k1"]).code, 0, "b slept through the deletion");
    b.serve(&calls(&address));
    wait_until_same(&a, &b);
    assert_eq!(b.run(["get", "k1"]).code, 1);
    assert_eq!(a.run(["get", "k1"]).code, 1);
    assert_eq!(b.status()["floor"], a.status()["floor"]);
}

#[test]
fn nobody_links_with_another_token() {
    let mut a = Replica::writer("a");
    a.put("k", b"secret");
    let address = a.serve("[[peers]]\nidentity = \"b\"\ntoken = \"another\"\n");
    let mut b = follower(&a);
    b.serve(&calls(&address));
    // A link would have been made long before this many exchanges with both nodes.
    for _ in 0..20 {
        assert_eq!(a.status()["links"].as_array().map(Vec::len), Some(0));
        assert_eq!(b.status()["present"], 0);
    }
}
