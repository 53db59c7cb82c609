//! Processes killed at a random moment: what was acknowledged is there, nothing else is, and the
//! next write works. (This proves nothing about power loss: the page cache survives a killed
//! process. The simulator does that.)

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use strandline_core::id::LogId;
use strandline_core::lifecycle::api::Scan;
use strandline_core::lifecycle::recovery::Init;
use strandline_core::record::{AuthorityId, State, Version};
use strandline_file::blocking::BlockingReplica;
use strandline_file::node::NodeConfig;

/// Set in the child: the directory to write to, and the first number to write.
const CHILD_DIR: &str = "STRANDLINE_KILL_DIR";
const CHILD_FROM: &str = "STRANDLINE_KILL_FROM";

const PUT_ROUNDS: u64 = 140;
const IMPORT_ROUNDS: u64 = 60;

/// A number that differs from round to round and run to run; which moments are hit is not the point
/// of a replay.
fn moment(round: u64) -> Duration {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).expect("entropy");
    Duration::from_micros((u64::from_be_bytes(bytes) ^ round) % 60_000)
}

fn init(dir: &Path) {
    let init = Init {
        log: LogId([1; 16]),
        identity: "a".into(),
        namespaces: vec![b"files".to_vec()],
        authority: Some(AuthorityId::from_text("a")),
    };
    let (replica, _) = BlockingReplica::create(dir, init, NodeConfig::default()).expect("a new log");
    replica.close().expect("closes");
}

fn open(dir: &Path) -> BlockingReplica {
    BlockingReplica::open(dir, NodeConfig::default()).expect("recovers").0
}

fn all(replica: &BlockingReplica) -> BTreeMap<String, Version> {
    let mut found = BTreeMap::new();
    let mut after = None;
    loop {
        let scan = Scan { namespace: None, prefix: Vec::new(), after, entries_max: 1000, deleted: false };
        let page = replica.scan(scan).expect("scans");
        for (key, entry) in page.entries {
            assert!(matches!(entry.state, State::Present { .. }));
            found.insert(String::from_utf8(key.logical_key().to_vec()).expect("ours"), entry.version);
        }
        after = page.next;
        if after.is_none() {
            return found;
        }
    }
}

/// Everything that was acknowledged is there, at the version that was told.
fn assert_all_there(round: u64, acked: &BTreeMap<String, String>, found: &BTreeMap<String, Version>) {
    for (key, version) in acked {
        let found =
            found.get(key).unwrap_or_else(|| panic!("round {round}: {key} was acknowledged and is gone"));
        assert_eq!(&format!("{}.{}", found.epoch, found.sequence), version, "round {round}: {key}");
    }
}

/// Lets the child run for a moment, kills it, and reads what it had said. The moment begins with
/// the child's first word; in every fourth round it begins with its start, so that recovery is hit
/// as well.
fn kill(mut child: Child, round: u64) -> Vec<String> {
    let out = child.stdout.take().expect("piped");
    let (first_word, began) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let lines = BufReader::new(out).lines().map_while(Result::ok);
        lines
            .inspect(|line| {
                if line.contains("submit ") || line.starts_with("put ") {
                    let _ = first_word.send(());
                }
            })
            .collect::<Vec<String>>()
    });
    if !round.is_multiple_of(4) {
        // An error says that the child ended without a word; what it left is checked all the same.
        let _ = began.recv();
    }
    std::thread::sleep(moment(round));
    child.kill().expect("kills");
    child.wait().expect("ends");
    reader.join().expect("reads")
}

/// Not a test of its own: what the child of [`put_loop_killed`] runs.
#[test]
fn child_puts_until_it_is_killed() {
    let (Ok(dir), Ok(from)) = (std::env::var(CHILD_DIR), std::env::var(CHILD_FROM)) else { return };
    let replica = open(Path::new(&dir));
    let mut out = std::io::stdout();
    for number in from.parse::<u64>().expect("a number").. {
        let key = format!("k{number:08}");
        writeln!(out, "submit {key}").expect("writes");
        let place = replica.key(b"files", key.as_bytes()).expect("runs").expect("a key");
        let version = replica.put(place, &number.to_be_bytes()[..]).expect("durable");
        writeln!(out, "ack {}.{} {key}", version.epoch, version.sequence).expect("writes");
        out.flush().expect("writes");
    }
}

#[test]
fn put_loop_killed() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = dir.path().join("log");
    init(&log);
    let (mut acked, mut submitted) = (BTreeMap::new(), BTreeSet::new());
    let (mut next, mut rounds_with_acks) = (0, 0);
    for round in 0..PUT_ROUNDS {
        let child = Command::new(std::env::current_exe().expect("itself"))
            .args(["--exact", "child_puts_until_it_is_killed", "--nocapture", "--test-threads=1"])
            .env(CHILD_DIR, &log)
            .env(CHILD_FROM, next.to_string())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("starts");
        let mut any = false;
        for line in kill(child, round) {
            let words: Vec<&str> = line.split(' ').collect();
            // The test runner's own line has no end when the child begins to write.
            match words[..] {
                [.., "submit", key] => {
                    submitted.insert(key.to_string());
                }
                ["ack", version, key] => {
                    any = true;
                    acked.insert(key.to_string(), version.to_string());
                }
                _ => {}
            }
        }
        rounds_with_acks += u64::from(any);
        next += 1_000_000 / PUT_ROUNDS;
        let replica = open(&log);
        let found = all(&replica);
        assert_all_there(round, &acked, &found);
        for key in found.keys() {
            assert!(
                submitted.contains(key) || acked.contains_key(key),
                "round {round}: {key} was never submitted"
            );
        }
        let key = format!("after{round:04}");
        let place = replica.key(b"files", key.as_bytes()).expect("runs").expect("a key");
        let version = replica.put(place, &b"next"[..]).expect("the next write works");
        acked.insert(key, format!("{}.{}", version.epoch, version.sequence));
        replica.close().expect("closes");
    }
    assert!(rounds_with_acks > PUT_ROUNDS / 4, "most children were killed before their first write");
    println!("{PUT_ROUNDS} rounds, {rounds_with_acks} with acknowledgements, {} acknowledged", acked.len());
}

#[test]
fn import_killed() {
    let dir = tempfile::tempdir().expect("a directory");
    let (log, tree) = (dir.path().join("log"), dir.path().join("tree"));
    init(&log);
    std::fs::create_dir(&tree).expect("a directory");
    let mut acked: BTreeMap<String, String> = BTreeMap::new();
    let mut rounds_with_acks = 0;
    for round in 0..IMPORT_ROUNDS {
        let folder = tree.join(format!("d{round:03}"));
        std::fs::create_dir(&folder).expect("a directory");
        for file in 0..600 {
            std::fs::write(folder.join(format!("f{file:04}")), format!("{round} {file}")).expect("writes");
        }
        let child = Command::new(env!("CARGO_BIN_EXE_strandline"))
            .args(["import", "--acks", "--dir"])
            .arg(&log)
            .arg(&tree)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("starts");
        let mut any = false;
        for line in kill(child, round) {
            if let Some((version, key)) = line.strip_prefix("put ").and_then(|rest| rest.split_once(' ')) {
                any = true;
                acked.insert(key.to_string(), version.to_string());
            }
        }
        rounds_with_acks += u64::from(any);
        let replica = open(&log);
        let found = all(&replica);
        assert_all_there(round, &acked, &found);
        for key in found.keys() {
            assert!(tree.join(key).exists(), "round {round}: {key} is in no tree that was imported");
        }
        replica.close().expect("closes");
    }
    let done = Command::new(env!("CARGO_BIN_EXE_strandline"))
        .args(["import", "--dir"])
        .arg(&log)
        .arg(&tree)
        .output()
        .expect("runs");
    assert!(rounds_with_acks > IMPORT_ROUNDS / 4, "most children were killed before their first write");
    assert!(done.status.success(), "the next import works: {}", String::from_utf8_lossy(&done.stderr));
    let replica = open(&log);
    assert_eq!(all(&replica).len() as u64, IMPORT_ROUNDS * 601);
    replica.close().expect("closes");
    println!(
        "{IMPORT_ROUNDS} rounds, {rounds_with_acks} with acknowledgements, {} acknowledged",
        acked.len()
    );
}
