//! The program whose files are watched and spoilt: some clients of one replica, in a process of its
//! own. It says what it asks for and what it is told, as [`crate::told`] reads it.

use crate::shim::Shim;
use crate::told::{Told, found, text};
use crate::trace::{self, Record};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use strandline_core::id::LogId;
use strandline_core::journal::limits::JournalLimits;
use strandline_core::lifecycle::api::{Change, MembersChange, Mutation};
use strandline_core::lifecycle::config::ReplicaConfig;
use strandline_core::lifecycle::recovery::{Init, RecoveryError};
use strandline_core::record::{AuthorityId, Key, Version};
use strandline_file::StoreError;
use strandline_file::blocking::BlockingReplica;
use strandline_file::node::{NodeConfig, PutError, StartError, WriteError};

/// Set in the child: the log's directory, and what to do.
const CHILD_DIR: &str = "STRANDLINE_CLIENT_DIR";
const CHILD_WORK: &str = "STRANDLINE_CLIENT_WORK";

const CLIENTS: u64 = 3;

/// The key that is written once all is judged.
const NEXT: &str = "next";

/// What a child does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work {
    /// Recovers and closes.
    Open,
    /// So many steps of each client, twice, with a compaction behind each time. The number, which
    /// differs from run to run, makes keys and contents its own.
    Steps { run: u64, steps: u64 },
}

/// Short segments, so that a short run enters many.
pub(crate) fn short() -> NodeConfig {
    let mut replica = ReplicaConfig::default();
    replica.wire.repair.records_max = 8;
    replica.wire.repair.key_bytes_max = 2048;
    replica.record.record_bytes_max = 4096;
    replica.journal = JournalLimits {
        segment_bytes: 12 << 10,
        batch_bytes_max: 8 << 10,
        entry_bytes_max: 4 << 10,
        pending_bytes_max: 8 << 10,
        ..replica.journal
    };
    NodeConfig { replica, ..NodeConfig::default() }
}

/// Opens the log, or makes it where there is none.
pub(crate) fn open(dir: &Path, config: NodeConfig) -> Result<BlockingReplica, StartError> {
    match BlockingReplica::open(dir, config.clone()) {
        Ok((replica, _)) => return Ok(replica),
        Err(StartError::Recovery(RecoveryError::NoLog)) => {}
        Err(error) if dir.exists() => return Err(error),
        Err(_) => {}
    }
    let init = Init {
        log: LogId([5; 16]),
        identity: "a".into(),
        namespaces: vec![b"files".to_vec()],
        authority: Some(AuthorityId::from_text("a")),
    };
    BlockingReplica::create(dir, init, config).map(|(replica, _)| replica)
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").expect("is read");
    out.flush().expect("is read");
}

/// Says what became of a write of these keys.
fn tell(keys: &[String], written: Result<Vec<Version>, PutError>) {
    let versions = match written {
        Ok(versions) => versions,
        Err(error) => {
            let word = match error {
                PutError::Write(WriteError::Uncertain(_)) => "uncertain",
                PutError::Write(WriteError::Refused(_) | WriteError::Unavailable(_))
                | PutError::Blob(StoreError::Storage(_) | StoreError::Source(_)) => "refused",
            };
            eprintln!("{keys:?} {word}: {error}");
            return keys.iter().for_each(|key| say(&format!("{word} {key}")));
        }
    };
    for (key, version) in keys.iter().zip(versions) {
        say(&format!("ack {} {key}", text(version)));
    }
}

fn key(replica: &BlockingReplica, key: &str) -> Key {
    replica.key(b"files", key.as_bytes()).expect("runs").expect("a key")
}

fn put(replica: &BlockingReplica, name: String, content: &str) {
    say(&format!("submit put {name} {content}"));
    let written = replica.put(key(replica, &name), content.as_bytes());
    tell(&[name], written.map(|version| vec![version]));
}

fn delete(replica: &BlockingReplica, name: String) {
    say(&format!("submit delete {name}"));
    let written = replica.delete(key(replica, &name));
    tell(&[name], written.map(|version| vec![version]).map_err(PutError::from));
}

/// Two keys in one unit.
fn put_pair(replica: &BlockingReplica, name: &str, content: &str) {
    let keys = ["left", "right"].map(|half| format!("{name}-{half}"));
    keys.iter().for_each(|key| say(&format!("submit put {key} {content}")));
    let stored = replica.blobs().store_reader(content.as_bytes()).map_err(PutError::from);
    let written = stored.and_then(|stored| {
        let change = Change::Put { blob: stored.key };
        let keys = keys.iter().map(|name| key(replica, name));
        let mutations = keys.map(|key| Mutation { key, change, if_version: None });
        Ok(replica.write_batch(mutations.collect())?)
    });
    tell(&keys, written.map(|accepted| accepted.iter().map(|accepted| accepted.version).collect()));
}

fn client(replica: &BlockingReplica, name: &str, steps: u64) {
    for step in 0..steps {
        let key = format!("{name}k{}", step % 13);
        match step % 7 {
            3 => delete(replica, key),
            5 => put_pair(replica, &format!("{name}p{step}"), &format!("pair{name}of{step}")),
            // Some contents come twice: their blob is there already.
            _ => put(replica, key, &format!("content{}", step / 2)),
        }
    }
}

/// Not a test of its own: what [`run`] starts.
#[test]
fn child_is_the_program_under_test() {
    let (Ok(dir), Ok(work)) = (std::env::var(CHILD_DIR), std::env::var(CHILD_WORK)) else { return };
    let words: Vec<u64> = work.split_whitespace().map(|word| word.parse().expect("a number")).collect();
    let replica = match open(Path::new(&dir), short()) {
        Ok(replica) => replica,
        // Its disk may be made to fail at once.
        Err(error) => return eprintln!("not opened: {error}"),
    };
    say("opened");
    if let [run, steps] = words[..] {
        for round in 0..2 {
            std::thread::scope(|scope| {
                for number in 0..CLIENTS {
                    let replica = &replica;
                    let name = format!("r{run}c{number}x{round}");
                    scope.spawn(move || client(replica, &name, steps));
                }
            });
            let compacted = replica.members(MembersChange::Clear).and_then(|()| replica.compact(None));
            if let Err(error) = compacted {
                eprintln!("not compacted: {error}");
            }
        }
    }
    match replica.close() {
        Ok(()) => say("closed"),
        Err(fault) => eprintln!("not closed: {fault}"),
    }
}

/// A child that is to run behind a shim.
pub(crate) fn child(dir: &Path, work: Work, shim: &Shim) -> Command {
    let mut child = Command::new(std::env::current_exe().expect("itself"));
    prepare(&mut child, dir, work);
    child.envs(shim.variables());
    child
}

/// Makes a command that runs this program into one that does the child's work.
pub(crate) fn prepare(command: &mut Command, dir: &Path, work: Work) {
    let work = match work {
        Work::Open => String::new(),
        Work::Steps { run, steps } => format!("{run} {steps}"),
    };
    command
        .args(["--exact", "client::child_is_the_program_under_test", "--nocapture", "--test-threads=1"])
        .env(CHILD_DIR, dir)
        .env(CHILD_WORK, work)
        .stdin(Stdio::null());
}

/// What a child left.
pub(crate) struct Ran {
    pub(crate) records: Vec<Record>,
    pub(crate) closed: bool,
    pub(crate) complaints: String,
}

/// Runs a child on a directory to its end; its trace goes to a file beside it.
pub(crate) fn run(dir: &Path, work: Work, rules: &str) -> Ran {
    let mut trace = PathBuf::from(dir);
    trace.set_extension("trace");
    let _ = std::fs::remove_file(&trace);
    let shim = Shim::tracing(&trace).with_rules(rules);
    let ended = child(dir, work, &shim).output().expect("runs");
    let complaints = complaints(&ended);
    assert!(ended.status.success(), "{complaints}");
    let closed = ended.stdout.windows(7).any(|word| word == b"closed\n");
    Ran { records: trace::read(&trace), closed, complaints }
}

/// What a child said on standard error.
pub(crate) fn complaints(ended: &Output) -> String {
    String::from_utf8_lossy(&ended.stderr).into_owned()
}

/// Opens what was left and holds it against what was told; then the next write must work.
///
/// # Errors
/// What does not hold.
pub(crate) fn judge(dir: &Path, config: NodeConfig, told: &Told) -> Result<(), String> {
    if told.opened && !dir.exists() {
        return Err("the log is gone".into());
    }
    let replica = open(dir, config).map_err(|e| format!("recovery: {e}"))?;
    let mut found = found(&replica)?;
    // What the last judgement wrote.
    found.remove(NEXT);
    told.judge(&found)?;
    replica.put(key(&replica, NEXT), &b"next"[..]).map_err(|e| format!("the next write: {e}"))?;
    replica.close().map_err(|e| e.to_string())
}
