//! Three nodes of the built program in a ring and in a star: one asleep, one restored from an old
//! copy, one wiped, one fenced. They converge, or say exactly why not.

mod support;

use serde_json::Value;
use std::path::Path;
use support::{Replica, wait_until};

const NAMES: [&str; 3] = ["a", "b", "c"];

/// Who calls whom, by number.
#[derive(Clone, Copy)]
struct Shape(&'static [(usize, usize)]);

/// Each calls the next.
const RING: Shape = Shape(&[(0, 1), (1, 2), (2, 0)]);
/// The others call the first.
const STAR: Shape = Shape(&[(1, 0), (2, 0)]);

struct Three {
    nodes: Vec<Replica>,
    addresses: Vec<Option<String>>,
    shape: Shape,
}

impl Three {
    /// `a` writes, `b` and `c` follow.
    fn new(shape: Shape) -> Self {
        let writer = Replica::writer("a");
        let log = writer.status()["log"].as_str().expect("a log").to_owned();
        let follower = |name: &str| {
            let replica = Replica::new();
            replica.done(["init", "--identity", name, "--follow", "--log", &log]);
            replica
        };
        let nodes = vec![writer, follower("b"), follower("c")];
        Self { nodes, addresses: vec![None; 3], shape }
    }

    /// The peers of a node: whom it calls and whose address is known, and who may call it.
    fn peers(&self, at: usize) -> String {
        let mut file = format!("token = \"of {}\"\n", NAMES[at]);
        for other in (0..3).filter(|other| *other != at) {
            file += &format!("[[peers]]\nidentity = \"{0}\"\ntoken = \"of {0}\"\n", NAMES[other]);
            if let Some(address) = self.addresses[other].as_ref().filter(|_| self.calls(at, other)) {
                file += &format!("address = \"{address}\"\n");
            }
        }
        file
    }

    fn calls(&self, from: usize, to: usize) -> bool {
        self.shape.0.contains(&(from, to))
    }

    /// Starts a node; those that call it are told its address.
    fn start(&mut self, at: usize) {
        let peers = self.peers(at);
        self.addresses[at] = Some(self.nodes[at].serve(&peers));
        for other in (0..3).filter(|other| self.calls(*other, at) && self.addresses[*other].is_some()) {
            let peers = self.peers(other);
            std::fs::write(self.nodes[other].path("peers.toml"), peers).expect("writes");
            self.nodes[other].done(["reload"]);
        }
    }

    fn start_all(&mut self) {
        for at in 0..3 {
            self.start(at);
        }
    }

    fn stop(&mut self, at: usize) {
        assert_eq!(self.nodes[at].stop(), 0);
        self.addresses[at] = None;
    }

    fn write(&self, at: usize, text: &str, count: usize) {
        for i in 0..count {
            self.nodes[at].put(&format!("k{i}"), text.as_bytes());
        }
    }

    fn wait_until_same(&self, which: &[usize]) {
        wait_until("the same history", || {
            let digests: Vec<Value> =
                which.iter().map(|at| self.nodes[*at].status()["tail_digest"].clone()).collect();
            digests.windows(2).all(|pair| pair[0] == pair[1])
        });
    }

    /// The peers file with which `at` is reseeded from another node, which serves.
    fn reseed_peers(&self, at: usize, from: usize) -> String {
        let address = self.addresses[from].as_ref().expect("serves");
        let token = format!("token = \"of {}\"\n", NAMES[at]);
        let peer = format!("[[peers]]\nidentity = \"{}\"\naddress = \"{address}\"\n", NAMES[from]);
        let file = self.nodes[at].path("reseed.toml");
        std::fs::write(&file, token + &peer).expect("writes");
        file.to_str().expect("UTF-8").to_owned()
    }

    /// The verdict that a node shows on the peer of this name, once it has one that ended repair.
    fn stopped(&self, at: usize, of: &str) -> String {
        let mut verdict = String::new();
        wait_until("a verdict that ends repair", || {
            let status = self.nodes[at].status();
            let links = status["links"].as_array().expect("links");
            let found = links.iter().find(|link| link["identity"] == of && link["stopped"] == true);
            let Some(found) = found else { return false };
            verdict = found["verdict"].as_str().expect("a verdict").to_owned();
            true
        });
        verdict
    }
}

/// Copies a directory, as a person does who keeps one aside.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("makes a folder");
    for entry in std::fs::read_dir(from).expect("lists") {
        let entry = entry.expect("reads");
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        let kind = entry.file_type().expect("is there");
        if kind.is_dir() {
            copy(&path, &target);
        } else if kind.is_file() {
            std::fs::copy(&path, &target).expect("copies");
        }
    }
}

fn put_back(replica: &Replica, kept: &Path) {
    std::fs::remove_dir_all(replica.dir()).expect("removes what is there");
    copy(kept, &replica.dir());
}

fn for_each_shape(run: impl Fn(Three)) {
    for shape in [RING, STAR] {
        run(Three::new(shape));
    }
}

#[test]
fn a_member_that_slept_through_a_compaction_catches_up() {
    for_each_shape(|mut three| {
        three.start_all();
        for name in ["b", "c"] {
            three.nodes[0].done(["members", "add", name]);
        }
        three.write(0, "one", 5);
        three.wait_until_same(&[0, 1, 2]);
        three.stop(2);
        three.nodes[0].done(["delete", "k0"]);
        three.write(0, "two", 3);
        three.nodes[0].done(["delete", "k4"]);
        three.wait_until_same(&[0, 1]);
        // A member counts from where its acknowledgement is durable here, which may follow the
        // records by a moment: until then both members count at the same version.
        wait_until("the sleeping member to be the blocker", || {
            let explained = three.nodes[0].done(["compact", "--explain"]).last();
            explained["blocked_by"] == "c" && explained["members"][1]["counts_at"].is_string()
        });
        three.nodes[0].done(["members", "remove", "c"]);
        wait_until("a compaction", || three.nodes[0].run(["compact"]).code == 0);
        three.start(2);
        three.wait_until_same(&[0, 1, 2]);
        assert_eq!(three.nodes[2].run(["get", "k4"]).code, 1, "no delete is undone");
    });
}

#[test]
fn a_member_that_was_removed_and_added_again_is_reseeded_before_it_counts() {
    for_each_shape(|mut three| {
        three.start_all();
        for name in ["b", "c"] {
            three.nodes[0].done(["members", "add", name]);
        }
        three.write(0, "one", 5);
        three.wait_until_same(&[0, 1, 2]);
        let counts = |three: &Three, state: &str| {
            let member = three.nodes[0].status()["members"][1].clone();
            assert_eq!(member["identity"], "c");
            member["state"] == state && member["counts_at"].is_string() == (state == "active")
        };
        wait_until("c to count", || counts(&three, "active"));
        three.nodes[0].done(["members", "remove", "c"]);
        let added = three.nodes[0].plain(["members", "add", "c"]);
        assert!(added.stderr.contains("c was removed before"), "{}", added.stderr);
        three.write(0, "two", 3);
        three.wait_until_same(&[0, 1, 2]);
        assert!(counts(&three, "lapsed"), "it is repaired, and nobody waits for it");
        three.stop(2);
        let file = three.reseed_peers(2, 0);
        three.nodes[2].done(["reseed", "--from", "a", "--peers", &file, "--yes"]);
        three.start(2);
        three.write(0, "three", 3);
        three.wait_until_same(&[0, 1, 2]);
        wait_until("c to count", || counts(&three, "active"));
    });
}

#[test]
fn a_follower_restored_from_an_old_copy_or_wiped_converges() {
    for_each_shape(|mut three| {
        three.start_all();
        three.write(0, "one", 3);
        three.wait_until_same(&[0, 1, 2]);
        three.stop(1);
        let kept = three.nodes[1].path("kept-aside");
        copy(&three.nodes[1].dir(), &kept);
        three.start(1);
        three.write(0, "two", 4);
        three.wait_until_same(&[0, 1, 2]);
        three.stop(1);
        put_back(&three.nodes[1], &kept);
        three.start(1);
        three.wait_until_same(&[0, 1, 2]);
        three.stop(2);
        let log = three.nodes[0].status()["log"].as_str().expect("a log").to_owned();
        std::fs::remove_dir_all(three.nodes[2].dir()).expect("wiped");
        three.nodes[2].done(["init", "--identity", "c", "--follow", "--log", &log]);
        three.start(2);
        three.wait_until_same(&[0, 1, 2]);
    });
}

#[test]
fn a_writer_restored_from_an_old_copy_is_told_on_both_sides_and_reseeded() {
    for_each_shape(|mut three| {
        three.write(0, "common", 3);
        let kept = three.nodes[0].path("kept-aside");
        copy(&three.nodes[0].dir(), &kept);
        three.start_all();
        three.write(0, "lost by the copy", 3);
        three.wait_until_same(&[0, 1, 2]);
        let of_followers = three.nodes[1].status()["tail_digest"].clone();
        three.stop(0);
        put_back(&three.nodes[0], &kept);
        three.start(0);
        three.write(0, "another history", 1);
        let (of_a, of_b) = (three.stopped(0, "b"), three.stopped(1, "a"));
        assert!(of_a.starts_with("diverged: "), "{of_a}");
        assert!(of_b.starts_with("diverged: "), "{of_b}");
        assert_eq!(three.nodes[1].status()["tail_digest"], of_followers, "nothing is lost");
        // The person decides for what the followers have: b writes from now on, a begins anew.
        three.stop(0);
        three.nodes[1].done(["fence", "--epoch", "2"]);
        three.write(1, "after the move", 2);
        let file = three.reseed_peers(0, 1);
        let unconfirmed = three.nodes[0].run(["reseed", "--from", "b", "--peers", &file]);
        assert_eq!(unconfirmed.code, 1, "{}", unconfirmed.stderr);
        let done = three.nodes[0].done(["reseed", "--from", "b", "--peers", &file, "--yes"]).last();
        assert_eq!(done["tail_digest"], three.nodes[1].status()["tail_digest"]);
        let kept = done["kept"].as_str().expect("a path");
        assert!(Path::new(kept).join("current").exists(), "a copy is kept");
        three.start(0);
        three.write(1, "and on", 1);
        three.wait_until_same(&[0, 1, 2]);
    });
}

#[test]
fn a_fenced_writer_follows_and_what_it_wrote_alone_is_told() {
    for_each_shape(|mut three| {
        three.start_all();
        three.write(0, "one", 3);
        three.wait_until_same(&[0, 1, 2]);
        let fenced = three.nodes[1].done(["fence", "--epoch", "2"]).last();
        assert_eq!((&fenced["epoch"], &fenced["authority"]), (&2.into(), &"b".into()));
        wait_until("everyone knows", || three.nodes.iter().all(|node| node.status()["epoch"] == 2));
        let refused = three.nodes[0].plain(["delete", "k0"]);
        assert_eq!(refused.code, 1, "{}", refused.stderr);
        assert!(refused.stderr.contains("fenced by epoch 2 of b"), "{}", refused.stderr);
        three.write(1, "two", 2);
        three.wait_until_same(&[0, 1, 2]);
        assert_eq!(three.nodes[1].run(["fence", "--epoch", "2"]).code, 1, "not above what is known");
        // The writer goes on alone, and a later epoch begins without it.
        three.stop(1);
        three.nodes[1].put("alone", b"written by b alone");
        three.nodes[2].done(["fence", "--epoch", "3"]);
        three.write(2, "three", 1);
        three.start(1);
        let (of_b, of_other) = match three.shape.0.len() {
            // In the star b reaches the others through a.
            2 => (three.stopped(1, "a"), three.stopped(0, "b")),
            _ => (three.stopped(1, "c"), three.stopped(2, "b")),
        };
        for verdict in [of_b, of_other] {
            assert!(verdict.starts_with("diverged: "), "{verdict}");
        }
        assert_eq!(three.nodes[1].plain(["delete", "k0"]).code, 1, "it heard that its epoch is over");
        three.wait_until_same(&[0, 2]);
    });
}
