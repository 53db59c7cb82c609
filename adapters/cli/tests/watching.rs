//! Watching a node, explaining cursors, the history of a key, backups: the built program, on the
//! directory itself and through the node that serves it.

mod support;

use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use support::{Replica, wait_until};

const NOBODY: &str = "";

/// Runs a check on a replica that nobody serves, and on one that is served.
fn both(check: impl Fn(&Replica)) {
    check(&Replica::writer("a"));
    let mut served = Replica::writer("a");
    served.serve(NOBODY);
    check(&served);
    assert_eq!(served.stop(), 0);
}

fn text(value: &Value) -> String {
    value.as_str().expect("a string").to_owned()
}

/// A watch that runs beside the test.
struct Watching {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Watching {
    fn start(replica: &Replica, args: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_strandline"))
            .arg("--dir")
            .arg(replica.dir())
            .args(["watch", "--json"])
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("runs");
        let lines = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, lines }
    }

    fn next(&mut self) -> Value {
        let mut line = String::new();
        self.lines.read_line(&mut line).expect("reads");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error} in {line:?}"))
    }

    fn code(mut self) -> i32 {
        self.child.wait().expect("ends").code().expect("ended by itself")
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_watch_prints_each_change_once_and_its_cursor_goes_on_after_a_restart() {
    let mut replica = Replica::writer("a");
    replica.serve(NOBODY);
    replica.put("before", b"x");
    let mut watching = Watching::start(&replica, &["--from", "0.0"]);
    assert_eq!(watching.next()["key"], "before");
    let mut cursor = String::new();
    for n in 0..5 {
        let put = replica.put(&format!("k{n}"), b"y");
        let line = watching.next();
        assert_eq!((&line["event"], &line["version"]), (&"change".into(), &put["version"]));
        assert_eq!((&line["key"], &line["blob"]), (&put["key"], &put["blob"]));
        cursor = text(&line["cursor"]);
    }
    assert_eq!(replica.stop(), 0);
    assert_eq!(watching.code(), 4, "the node it watched has ended");
    replica.put("while nobody serves", b"z");
    replica.serve(NOBODY);
    let mut watching = Watching::start(&replica, &["--from", &cursor]);
    assert_eq!(watching.next()["key"], "while nobody serves");
    replica.done(["delete", "k0"]);
    let deleted = watching.next();
    assert_eq!((&deleted["key"], deleted.get("blob")), (&"k0".into(), None));
    assert_eq!(replica.stop(), 0);
}

#[test]
fn below_the_floor_a_watch_says_so_and_with_reset_prints_the_state() {
    both(|replica| {
        let first = text(&replica.put("k1", b"1")["version"]);
        replica.put("k2", b"2");
        replica.done(["delete", "k1"]);
        replica.done(["members", "clear"]);
        let floor = text(&replica.done(["compact"]).last()["floor"]);
        replica.put("k3", b"3");
        let refused = replica.run(["watch", "--from", &first, "--once"]);
        assert_eq!(refused.code, 1);
        assert!(refused.stderr.contains("gap") && refused.stderr.contains("--reset"), "{}", refused.stderr);
        let lines = replica.done(["watch", "--from", &first, "--once", "--reset"]).lines();
        let events: Vec<_> = lines.iter().map(|line| text(&line["event"])).collect();
        assert_eq!(events, ["gap", "reset-begin", "state", "reset-end", "change"]);
        assert_eq!((&lines[1]["cut"], &lines[2]["key"]), (&floor.as_str().into(), &"k2".into()));
        assert_eq!((&lines[3]["keys"], &lines[4]["key"]), (&1.into(), &"k3".into()));
        let cursor = text(&lines[4]["cursor"]);
        assert_eq!(replica.done(["watch", "--from", &cursor, "--once"]).lines().len(), 0);
        let whole = replica.done(["watch", "--once", "--reset"]).lines();
        assert_eq!(whole.len(), 4, "asked for without a cursor: {whole:?}");
    });
}

#[test]
fn every_cursor_is_explained_with_its_evidence() {
    both(|replica| {
        let first = text(&replica.put("k1", b"1")["version"]);
        let tail = text(&replica.put("k2", b"2")["version"]);
        let explained = |cursor: &str| replica.done(["explain", cursor]).last();
        let complete = explained(&first);
        assert_eq!((&complete["verdict"], &complete["tail"]), (&"complete".into(), &tail.as_str().into()));
        let own = text(&complete["cursor"]);
        assert_eq!(explained(&own), complete);
        let ahead = explained("9.9");
        assert_eq!((&ahead["verdict"], &ahead["reason"]), (&"diverged".into(), &"ahead-of-tail".into()));
        let other = explained(&format!("{}:{first}", "0".repeat(24)));
        assert_eq!((&other["verdict"], &other["reason"]), (&"unknown".into(), &"other-log".into()));
        replica.done(["members", "clear"]);
        replica.done(["compact"]);
        let gap = explained(&first);
        assert_eq!((&gap["verdict"], &gap["reason"]), (&"gap".into(), &"below-floor".into()));
        assert_eq!(gap["floor"], tail.as_str());
        assert!(text(&gap["advice"]).contains("watch --reset"));
        assert_eq!(replica.run(["explain", "nonsense"]).code, 2);
        let shown = replica.plain(["explain", &first]);
        assert!(String::from_utf8_lossy(&shown.stdout).contains("no longer held"));
    });
}

#[test]
fn the_history_of_a_key_is_every_change_that_is_retained() {
    both(|replica| {
        let versions: Vec<_> = (0..3)
            .map(|n| {
                replica.put("other", b"x");
                text(&replica.put("k", format!("{n}").as_bytes())["version"])
            })
            .collect();
        replica.done(["delete", "k"]);
        let history = replica.done(["history", "k"]).lines();
        let found: Vec<_> = history.iter().take(3).map(|line| text(&line["version"])).collect();
        assert_eq!((found, history.len()), (versions, 4));
        assert!(history.iter().all(|line| line["authority"] == "a" && line["retained"] == true));
        assert_eq!((history[3].get("blob"), &history[3]["epoch"]), (None, &1.into()));
        replica.done(["members", "clear"]);
        replica.done(["compact"]);
        let retained = |key: &str| -> Vec<_> {
            replica.done(["history", key]).lines().iter().map(|line| line["retained"].clone()).collect()
        };
        assert_eq!(retained("other"), [false], "the one that compaction kept");
        replica.put("other", b"y");
        assert_eq!(retained("other"), [true]);
        assert_eq!(replica.run(["history", "k"]).code, 1, "its tombstone was compacted");
        assert_eq!(replica.run(["history", "never"]).code, 1);
    });
}

#[test]
fn a_backup_of_a_running_node_comes_back_and_refuses_writes() {
    for link in [false, true] {
        let mut replica = Replica::writer("a");
        replica.serve(NOBODY);
        for n in 0..20 {
            replica.put(&format!("k{n}"), format!("v{n}").as_bytes());
        }
        let before = replica.status();
        let backup = replica.path("backup");
        let backup = backup.to_str().expect("UTF-8");
        let mut args = vec!["backup", backup];
        args.extend(link.then_some("--link"));
        let taken = replica.done(&args).last();
        assert_eq!((&taken["tail"], &taken["present"]), (&before["tail"], &20.into()));
        assert_eq!(replica.run(&args).code, 1, "it is there already");
        replica.put("later", b"x");
        let restored = Replica::new();
        let mut args = vec!["restore", backup];
        args.extend(link.then_some("--link"));
        assert_eq!(restored.done(&args).last(), taken);
        let after = restored.status();
        assert_eq!((&after["tail"], &after["tail_digest"]), (&before["tail"], &before["tail_digest"]));
        assert_ne!(after["incarnation"], before["incarnation"]);
        assert_eq!(restored.plain(["get", "k7"]).stdout, b"v7");
        assert_eq!(restored.run(["verify"]).code, 0);
        assert_eq!(restored.run(["get", "later"]).code, 1);
        let refused = restored.run(["delete", "k7"]);
        assert_eq!(refused.code, 1);
        assert!(refused.stderr.contains("fenced"), "{}", refused.stderr);
        assert_eq!(restored.run(&args).code, 1, "there is a log already");
        assert_eq!(replica.stop(), 0);
    }
}

#[test]
fn a_watcher_that_goes_away_makes_room_for_the_next() {
    let mut replica = Replica::writer("a");
    replica.serve(NOBODY);
    replica.put("k", b"x");
    for _ in 0..3 {
        let mut watching = Watching::start(&replica, &["--from", "0.0"]);
        watching.next();
        assert_eq!(replica.status()["subscriptions"].as_array().map(Vec::len), Some(1));
        drop(watching);
        wait_until("the subscription to end", || {
            replica.status()["subscriptions"].as_array().is_some_and(Vec::is_empty)
        });
    }
    assert_eq!(replica.stop(), 0);
}
