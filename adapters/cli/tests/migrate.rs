//! A directory of StreamHive v1 taken over by the built program, and given back.

mod support;

use sha2::{Digest, Sha256};
use std::path::Path;
use strandline_core::compat::streamhive::authority::{Authority, AuthorityLimits};
use strandline_core::compat::streamhive::checkpoint::{Checkpoint, CheckpointLimits};
use strandline_core::compat::streamhive::journal::{Journal, JournalLimits, Writer};
use strandline_core::compat::streamhive::membership::{Membership, MembershipLimits};
use strandline_core::compat::streamhive::watermarks::{WatermarkLimits, Watermarks};
use strandline_core::record::{BlobKey, Record, RecordLimits, State, Version};
use support::{Replica, tree, wait_until};

fn content(n: u64) -> Vec<u8> {
    format!("content {n}").into_bytes()
}

fn record(key: u64, sequence: u64, present: bool) -> Record {
    let of = RecordLimits::default();
    let blob = BlobKey(Sha256::digest(content(sequence)).into());
    let state = if present { State::Present { blob } } else { State::Deleted };
    let key = of.key(b"documents", format!("key {key:04}").as_bytes()).expect("a key");
    of.record(key, state, Version::new(3, sequence), of.authority("writer").expect("a name"))
        .expect("a record")
}

/// A v1 directory: 300 keys in the checkpoint, which no frame of the reference could carry, and 250
/// records after it; blobs under names of another kind, one that nothing needs among them.
fn v1(path: &Path) {
    std::fs::create_dir_all(path.join("blobs/aa/bb")).expect("creates");
    let before: Vec<Record> = (1..=300).map(|n| record(n, n, n % 7 != 0)).collect();
    let after: Vec<Record> = (301..=550).map(|n| record(n - 250, n, n % 3 != 0)).collect();
    let checkpoint = Checkpoint::new(Version::new(3, 300), before.iter().cloned().map(Ok)).expect("sorted");
    let mut journal = Writer::new(Version::new(3, 300), JournalLimits::default()).expect("room");
    for record in &after {
        journal.append(record).expect("in order");
    }
    let mut journal = journal.into_bytes();
    journal.extend_from_slice(&[0, 0, 1]);
    let authority = Authority::new(before[0].authority.clone(), Version::new(3, 560)).expect("an epoch");
    let (members, marks) = (MembershipLimits::default(), WatermarkLimits::default());
    let mut acked = Watermarks::default();
    let peer = marks.peer(b"peer-1").expect("a name");
    let _ = acked.acknowledge(&peer, Version::new(3, 400), &marks).expect("room");
    let files = [
        ("journal", journal),
        ("checkpoint", checkpoint.encode(&CheckpointLimits::default()).expect("short")),
        ("authority", authority.encode(&AuthorityLimits::default()).expect("short")),
        (
            "membership",
            Membership::new(&[b"peer-1"], &members).expect("a name").encode(&members).expect("short"),
        ),
        ("watermarks", acked.encode(&marks).expect("short")),
    ];
    for (name, bytes) in files {
        std::fs::write(path.join(name), bytes).expect("writes");
    }
    for record in before.iter().chain(&after) {
        let sequence = record.version.sequence;
        let folder = if sequence % 2 == 0 { "blobs" } else { "blobs/aa/bb" };
        std::fs::write(path.join(folder).join(format!("{sequence}.bin")), content(sequence)).expect("writes");
    }
    // Key 60 was written again as record 310: what its first record named is gone.
    std::fs::remove_file(path.join("blobs/60.bin")).expect("removes");
    std::fs::write(path.join("blobs/of no use"), b"nobody names it").expect("writes");
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

#[test]
fn a_v1_directory_is_taken_over_and_stays_as_it_was() {
    let replica = Replica::new();
    let old = replica.path("v1");
    v1(&old);
    let before = tree(&old);
    let report = replica.done(["migrate", "--from-streamhive", text(&old), "--identity", "new"]).last();
    assert!(before == tree(&old), "the original is not touched");
    assert_eq!((&report["tail"], &report["floor"]), (&"3.550".into(), &"3.300".into()));
    assert_eq!((&report["keys"], &report["torn_bytes"]), (&300.into(), &3.into()));
    assert_eq!(report["authority"], "writer at 3.560");

    let status = replica.status();
    assert_eq!((&status["tail"], &status["floor"]), (&"3.550".into(), &"3.300".into()));
    assert_eq!((&status["identity"], &status["authority"]), (&"new".into(), &serde_json::Value::Null));
    assert_eq!(status["members"][0]["identity"], "peer-1");
    let get = |key: &str| replica.plain(["get", "--namespace", "documents", key]);
    assert_eq!(get("key 0001").stdout, content(1));
    // Key 299 was written last as record 549, which is a delete; key 298 as 548.
    assert_eq!((get("key 0299").code, get("key 0298").stdout), (1, content(548)));
    assert_eq!(get("key 0007").code, 1, "it was deleted");
    assert_eq!(replica.done(["verify"]).last()["missing"], 0);

    // And back: the same state, which the reference's own reading shows.
    let given = replica.path("back");
    let back = replica.done(["migrate", "--to-streamhive", text(&given)]).last();
    assert_eq!(back["state_digest"], report["state_digest"]);
    let journal = std::fs::read(given.join("journal")).expect("is there");
    assert_eq!(
        Journal::decode(&journal, &JournalLimits::default()).expect("reads").floor,
        Version::new(3, 550)
    );
    // A second migration of what was given back is the same again.
    let again = Replica::new();
    let second = again.done(["migrate", "--from-streamhive", text(&given), "--identity", "again"]).last();
    assert_eq!(second["state_digest"], report["state_digest"]);
    assert_eq!(second["tail"], report["tail"]);
}

#[test]
fn what_cannot_be_taken_over_whole_is_not_taken_over() {
    let replica = Replica::new();
    let old = replica.path("v1");
    v1(&old);
    let migrate = || replica.run(["migrate", "--from-streamhive", text(&old), "--identity", "new"]);
    let blob = old.join("blobs/502.bin");
    std::fs::rename(&blob, replica.path("aside")).expect("moves");
    let ended = migrate();
    assert_eq!((ended.code, replica.dir().exists()), (3, false), "{}", ended.stderr);
    std::fs::rename(replica.path("aside"), &blob).expect("moves back");
    std::fs::rename(old.join("checkpoint"), replica.path("aside")).expect("moves");
    let ended = migrate();
    assert_eq!((ended.code, replica.dir().exists()), (3, false), "{}", ended.stderr);
    assert_eq!(replica.run(["migrate", "--identity", "new"]).code, 2, "neither way is named");
}

#[test]
fn what_was_taken_over_is_served_replicated_written_and_given_back_by_either_node() {
    let mut a = Replica::new();
    let old = a.path("v1");
    v1(&old);
    let report = a.done(["migrate", "--from-streamhive", text(&old), "--identity", "a"]).last();
    let log = a.status()["log"].as_str().expect("a log").to_owned();
    let mut b = Replica::new();
    b.done(["init", "--identity", "b", "--follow", "--log", &log, "--namespace", "documents"]);
    let address = a.serve("[[peers]]\nidentity = \"b\"\ntoken = \"of b\"\n");
    b.serve(&format!("token = \"of b\"\n[[peers]]\nidentity = \"a\"\naddress = \"{address}\"\n"));
    let same = |a: &Replica, b: &Replica| {
        let tail = a.status()["tail"].clone();
        wait_until("records and blobs", || b.status()["complete"] == tail);
        assert_eq!(a.status()["present"], b.status()["present"]);
    };
    same(&a, &b);
    let get = |node: &Replica, key: &str| node.plain(["get", "--namespace", "documents", key]);
    assert_eq!(get(&b, "key 0298").stdout, content(548));
    assert_eq!(get(&b, "key 0007").code, 1, "it was deleted");
    // Its writer may be alive somewhere: nothing is written before somebody says so.
    let delete = || a.run(["delete", "--namespace", "documents", "key 0298"]);
    assert_eq!(delete().code, 1);
    a.done(["fence", "--epoch", "4"]);
    assert_eq!(delete().code, 0);
    same(&a, &b);
    assert_eq!(get(&b, "key 0298").code, 1, "the delete came over");
    let back = |node: &Replica| node.done(["migrate", "--to-streamhive", text(&node.path("back"))]).last();
    assert_eq!((a.stop(), b.stop()), (0, 0));
    let (of_a, of_b) = (back(&a), back(&b));
    assert_eq!(of_a["state_digest"], of_b["state_digest"]);
    assert_ne!(of_a["state_digest"], report["state_digest"], "one key less");
    let again = Replica::new();
    let given = b.path("back");
    let again = again.done(["migrate", "--from-streamhive", text(&given), "--identity", "again"]).last();
    assert_eq!((&again["state_digest"], &again["tail"]), (&of_a["state_digest"], &of_a["tail"]));
}
