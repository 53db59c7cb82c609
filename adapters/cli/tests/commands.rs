//! The commands, each on the directory itself and through the node that serves it.

mod support;

use std::fs;
use support::{Replica, sample, tree};

const NOBODY: &str = "";

/// Runs a check on a replica that nobody serves, and on one that is served.
fn both(check: impl Fn(&Replica)) {
    check(&Replica::writer("a"));
    let mut served = Replica::writer("a");
    served.serve(NOBODY);
    check(&served);
    assert_eq!(served.stop(), 0);
    assert!(!served.dir().join("control.sock").exists());
}

#[test]
fn what_is_put_is_got_listed_and_deleted() {
    both(|replica| {
        let put = replica.put("k/1", b"one");
        assert_eq!((&put["key"], &put["bytes"]), (&"k/1".into(), &3.into()));
        replica.put("k/2", b"");
        assert_eq!(replica.plain(["get", "k/1"]).stdout, b"one");
        assert_eq!(replica.plain(["list", "k/"]).stdout, b"k/1\nk/2\n");
        assert_eq!(replica.run(["delete", "k/1"]).code, 0);
        let gone = replica.run(["get", "k/1"]);
        assert_eq!((gone.code, gone.stdout.as_slice()), (1, &b""[..]));
        assert!(gone.stderr.contains("deleted"), "{}", gone.stderr);
        assert_eq!(replica.run(["delete", "k/1"]).code, 1);
        assert_eq!(replica.run(["get", "never"]).code, 1);
        assert_eq!(replica.done(["list", "--deleted"]).lines().len(), 2);
        let status = replica.status();
        assert_eq!((&status["present"], &status["tombstones"]), (&1.into(), &1.into()));
    });
}

#[test]
fn a_condition_holds_or_nothing_happens() {
    both(|replica| {
        let version = replica.put("k", b"one")["version"].as_str().expect("a version").to_owned();
        let file = replica.path("two");
        fs::write(&file, b"two").expect("writes");
        let file = file.to_str().expect("UTF-8");
        assert_eq!(replica.run(["put", "k", file, "--if-version", "0.0"]).code, 1);
        assert_eq!(replica.run(["put", "k", file, "--if-version", &version]).code, 0);
        assert_eq!(replica.run(["delete", "k", "--if-version", &version]).code, 1);
        assert_eq!(replica.plain(["get", "k"]).stdout, b"two");
    });
}

#[test]
fn a_tree_is_imported_again_and_again_and_exported_the_same() {
    both(|replica| {
        let (source, target) = (replica.path("source"), replica.path("target"));
        sample(&source);
        let import = |more: &[&str]| {
            let mut args = vec!["import", source.to_str().expect("UTF-8")];
            args.extend(more);
            replica.run(args)
        };
        let first = import(&["--acks"]);
        assert_eq!(first.code, 0, "{}", first.stderr);
        let acks = first.lines().iter().filter(|line| line["ack"] == "put").count();
        assert_eq!((acks, &first.last()["added"]), (305, &305.into()));
        assert!(first.lines().iter().any(|line| line["path"] == "link"), "the symlink is named");
        let tail = replica.status()["tail"].clone();
        assert_eq!(import(&[]).last()["unchanged"], 305);
        assert_eq!(replica.status()["tail"], tail, "nothing was written");

        fs::remove_file(source.join("none")).expect("removes");
        fs::write(source.join("d/000"), b"changed").expect("writes");
        let again = import(&[]).last();
        assert_eq!((&again["changed"], &again["deleted"]), (&1.into(), &1.into()));

        replica.done(["export", target.to_str().expect("UTF-8")]);
        assert!(tree(&source) == tree(&target), "the trees differ");
        assert_eq!(replica.run(["export", target.to_str().expect("UTF-8")]).code, 1, "it is not empty");
        assert_eq!(replica.run(["verify"]).code, 0);

        fs::remove_dir_all(source.join("d")).expect("removes");
        assert_eq!(import(&[]).code, 1, "more than half has vanished");
        assert_eq!(import(&["--force"]).code, 0);
        assert_eq!(replica.status()["present"], 0);
    });
}

#[test]
fn a_key_that_leaves_the_directory_is_not_exported() {
    both(|replica| {
        replica.put("../out", b"x");
        let target = replica.path("target");
        let ended = replica.run(["export", target.to_str().expect("UTF-8")]);
        assert_eq!(ended.code, 1);
        assert!(ended.stderr.contains("../out"), "{}", ended.stderr);
        assert!(!replica.path("out").exists() && !target.exists());
    });
}

#[test]
fn compaction_needs_a_word_about_members_and_drops_tombstones() {
    both(|replica| {
        replica.put("k", b"one");
        let kept = replica.put("kept", b"two")["version"].clone();
        replica.done(["delete", "k"]);
        assert_eq!(replica.run(["compact"]).code, 1, "no membership is configured");
        replica.done(["members", "add", "b"]);
        assert_eq!(replica.done(["members", "list"]).last()["members"][0]["identity"], "b");
        replica.done(["members", "remove", "b"]);
        replica.done(["members", "clear"]);
        let done = replica.done(["compact"]).last();
        let status = replica.status();
        assert_eq!((&done["tombstones_dropped"], &done["records"]), (&1.into(), &1.into()));
        assert_eq!((&status["floor"], &status["tombstones"]), (&status["tail"], &0.into()));
        assert_eq!(replica.run(["compact"]).code, 1, "there is nothing to compact");
        assert_eq!(replica.done(["get", "kept"]).last()["version"], kept);
    });
}

#[test]
fn a_blob_that_is_damaged_or_missing_is_named() {
    both(|replica| {
        let put = |key: &str, bytes: &[u8]| {
            let blob = replica.put(key, bytes)["blob"].as_str().expect("a blob").to_owned();
            replica.dir().join("blobs").join(&blob[..1]).join(&blob)
        };
        let (damaged, missing) = (put("damaged", b"one"), put("missing", b"two"));
        put("whole", b"three");
        fs::write(damaged, b"bad").expect("writes");
        fs::remove_file(missing).expect("removes");
        let ended = replica.run(["verify"]);
        assert_eq!(ended.code, 3, "{}", ended.stderr);
        let mut problems: Vec<_> =
            ended.lines().iter().filter_map(|l| l["problem"].as_str().map(str::to_owned)).collect();
        problems.sort();
        assert_eq!(problems, ["damaged", "missing"]);
        let summary = ended.last();
        assert_eq!((&summary["keys"], &summary["blobs"]), (&3.into(), &1.into()));
        assert_eq!(replica.run(["get", "missing"]).code, 0, "with --json only the entry is shown");
        assert_eq!(replica.plain(["get", "missing"]).code, 3);
        assert_eq!(replica.plain(["get", "damaged"]).code, 3);
    });
}

#[test]
fn exit_codes_tell_usage_from_state_from_storage() {
    let nowhere = Replica::new();
    assert_eq!(nowhere.run(["put"]).code, 2);
    assert_eq!(nowhere.run(["serve", "--listen", "127.0.0.1:0", "--peers", "missing.toml"]).code, 2);
    assert_eq!(nowhere.run(["status"]).code, 1, "there is no directory");
    let writer = Replica::writer("a");
    assert_eq!(writer.run(["init", "--identity", "a"]).code, 1, "there is a log already");
    let log = writer.status()["log"].as_str().expect("a log").to_owned();
    let follower = Replica::new();
    follower.done(["init", "--identity", "b", "--follow", "--log", &log]);
    assert_eq!(follower.status()["log"], log.as_str());
    let file = follower.path("f");
    fs::write(&file, b"x").expect("writes");
    assert_eq!(follower.run(["put", "k", file.to_str().expect("UTF-8")]).code, 1);
    assert_eq!(follower.run(["import", follower.home.path().to_str().expect("UTF-8")]).code, 1);
}

#[test]
fn a_killed_node_leaves_a_stale_socket_that_hinders_nobody() {
    let mut replica = Replica::writer("a");
    replica.serve(NOBODY);
    replica.put("k", b"one");
    replica.kill();
    assert!(replica.dir().join("control.sock").exists());
    assert_eq!(replica.plain(["get", "k"]).stdout, b"one");
    replica.serve(NOBODY);
    replica.put("k", b"two");
    assert_eq!(replica.stop(), 0);
    assert_eq!(replica.plain(["get", "k"]).stdout, b"two");
}

/// The reference compares paths as text, and through a link overwrote its own checkpoint.
#[test]
fn finding_j12_no_export_overwrites_the_replica_however_it_is_reached() {
    both(|replica| {
        replica.put("current", b"not ours to write");
        replica.put("log/current", b"nor this");
        let link = replica.path("link");
        std::os::unix::fs::symlink(replica.dir(), &link).expect("links");
        for target in [replica.dir(), link.clone(), link.join("."), replica.home.path().to_owned()] {
            let refused = replica.run(["export", "--force", target.to_str().expect("UTF-8")]);
            assert_eq!(refused.code, 1, "{}", refused.stderr);
            assert!(refused.stderr.contains("the replica's own directory"), "{}", refused.stderr);
        }
        assert_ne!(fs::read(replica.dir().join("current")).expect("reads"), b"not ours to write");
        assert_eq!(replica.plain(["get", "current"]).stdout, b"not ours to write");
        let target = replica.path("target");
        replica.done(["export", target.to_str().expect("UTF-8")]);
        assert_eq!(fs::read(target.join("log/current")).expect("reads"), b"nor this");
    });
}

#[test]
fn a_reader_that_goes_away_ends_a_command_quietly() {
    let replica = Replica::writer("a");
    replica.put("k", b"bytes");
    for args in [&["list"][..], &["get", "k"], &["status"]] {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let ended = std::process::Command::new(env!("CARGO_BIN_EXE_strandline"))
            .arg("--dir")
            .arg(replica.dir())
            .args(args)
            .stdout(writer)
            .output()
            .expect("runs");
        assert_eq!(ended.status.code(), Some(7), "{args:?}");
        assert_eq!(String::from_utf8_lossy(&ended.stderr), "", "{args:?}");
    }
}
