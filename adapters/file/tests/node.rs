//! A node on a real directory: what it answers is there afterwards, whatever happens in between.

use std::error::Error;
use std::io::Read;
use std::path::Path;
use strandline_core::id::LogId;
use strandline_core::lifecycle::api::{Change, Mutation, MutationError, Scan};
use strandline_core::lifecycle::recovery::{Init, RecoveryError};
use strandline_core::record::{AuthorityId, Key, State};
use strandline_file::OpenError;
use strandline_file::blocking::BlockingReplica;
use strandline_file::node::{NodeConfig, StartError, Unavailable, WriteError};

type Result = std::result::Result<(), Box<dyn Error>>;

fn init() -> Init {
    Init {
        log: LogId([5; 16]),
        identity: "a".into(),
        namespaces: vec![b"n".to_vec()],
        authority: Some(AuthorityId::from_text("a")),
    }
}

fn create(path: &Path) -> std::result::Result<BlockingReplica, StartError> {
    Ok(BlockingReplica::create(path, init(), NodeConfig::default())?.0)
}

fn open(path: &Path) -> std::result::Result<BlockingReplica, StartError> {
    Ok(BlockingReplica::open(path, NodeConfig::default())?.0)
}

fn key(name: &str) -> Key {
    Key::from_parts(b"n", name.as_bytes()).expect("short")
}

fn delete(name: &str) -> Mutation {
    Mutation { key: key(name), change: Change::Delete, if_version: None }
}

#[test]
fn what_was_answered_is_there_after_reopening() -> Result {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("log");
    let replica = create(&path)?;
    std::thread::scope(|scope| {
        for writer in 0..8 {
            let replica = &replica;
            scope.spawn(move || {
                for n in 0..10 {
                    let name = format!("{writer}.{n}");
                    replica.put(key(&name), name.as_bytes()).expect("written");
                }
            });
        }
    });
    let tail = replica.status()?.tail;
    replica.close()?;

    let replica = open(&path)?;
    assert_eq!(replica.status()?.tail, tail);
    let scan = Scan { namespace: None, prefix: Vec::new(), after: None, entries_max: 100, deleted: false };
    let page = replica.scan(scan)?;
    assert_eq!((page.entries.len(), page.next), (80, None));
    for (key, entry) in page.entries {
        let State::Present { blob } = entry.state else { panic!("{key} is deleted") };
        let mut text = Vec::new();
        replica.read_blob(blob)?.expect("stored").read_to_end(&mut text)?;
        assert_eq!(text, key.logical_key());
    }
    Ok(replica.close()?)
}

#[test]
fn a_batch_gets_consecutive_versions_in_one_wait() -> Result {
    let folder = tempfile::tempdir()?;
    let replica = create(&folder.path().join("log"))?;
    let accepted = replica.write_batch((0..50).map(|n| delete(&n.to_string())).collect())?;
    assert_eq!(accepted.len(), 50);
    for pair in accepted.windows(2) {
        assert_eq!(pair[0].version.sequence + 1, pair[1].version.sequence);
    }
    Ok(replica.close()?)
}

#[test]
fn a_directory_has_one_opener_and_one_log() -> Result {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("log");
    let replica = create(&path)?;
    assert!(matches!(open(&path), Err(StartError::Open(OpenError::InUse(_)))));
    replica.close()?;
    assert!(matches!(create(&path), Err(StartError::Recovery(RecoveryError::Exists { .. }))));
    open(&path)?.close()?;
    let empty = folder.path().join("empty");
    std::fs::create_dir(&empty)?;
    assert!(matches!(open(&empty), Err(StartError::Recovery(RecoveryError::NoLog))));
    Ok(())
}

#[test]
fn a_closed_node_takes_no_calls() -> Result {
    let folder = tempfile::tempdir()?;
    let replica = create(&folder.path().join("log"))?;
    let handle = replica.handle().clone();
    replica.close()?;
    let (tx, rx) = std::sync::mpsc::channel();
    let policy = strandline_file::node::WaitPolicy::Wait;
    handle.submit(vec![delete("k")], policy, move |written| drop(tx.send(written)));
    assert_eq!(rx.recv()?, Err(WriteError::Unavailable(Unavailable::Closed)));
    Ok(())
}

#[test]
fn a_disk_that_fails_leaves_the_write_uncertain_and_refuses_the_next() -> Result {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("log");
    let replica = create(&path)?;
    replica.delete(key("before"))?;
    for entry in std::fs::read_dir(&path)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("segment-") {
            std::fs::remove_file(entry.path())?;
        }
    }
    let uncertain = replica.delete(key("during"));
    assert!(matches!(uncertain, Err(WriteError::Uncertain(_))), "found {uncertain:?}");
    let refused = replica.delete(key("after"));
    assert!(matches!(refused, Err(WriteError::Refused(MutationError::Halted(_)))), "found {refused:?}");
    assert!(replica.status()?.halted.is_some());
    assert!(replica.close().is_err(), "the fault is told once more");
    Ok(())
}
