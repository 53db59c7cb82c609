//! What takes a second process: who may open, what a killed one leaves, and a disk that is full.
//!
//! Each test starts itself again with [`common::FOLDER`] set and plays the other process there.

mod common;

use common::{Files, folder, open, other, this_program};
use sha2::{Digest, Sha256};
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Command as Process, Stdio};
use strandline_core::error::{StorageAction, StorageCause};
use strandline_core::journal::command::{FileName, SegmentNumber, StorageCommand};
use strandline_core::record::BlobKey;
use strandline_file::{BlobStore, OpenError, StoreError};

#[test]
fn a_second_process_is_refused_until_the_first_lets_go() {
    if let Some(folder) = folder() {
        let refused = matches!(open(&folder), Err(OpenError::InUse(_)));
        println!("\nrefused: {refused}");
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let ask = || {
        let name = "a_second_process_is_refused_until_the_first_lets_go";
        let output = other(this_program(), name, root.path()).output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    let directory = open(root.path()).unwrap();
    assert!(ask().contains("refused: true"));
    std::fs::remove_file(root.path().join("lock")).unwrap();
    assert!(ask().contains("refused: true"), "deleting the lock file lets nobody in");
    drop(directory);
    assert!(ask().contains("refused: false"));
}

#[test]
fn a_killed_process_leaves_no_lock_and_no_upload() {
    if let Some(folder) = folder() {
        let _directory = open(&folder).unwrap();
        let store = BlobStore::open(folder.join("blobs")).unwrap();
        let mut group = store.group();
        group.add(&b"never committed"[..]).unwrap();
        println!("\nready");
        // Until we are killed.
        let _ = std::io::stdin().read(&mut [0]);
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let name = "a_killed_process_leaves_no_lock_and_no_upload";
    let mut child = other(this_program(), name, root.path()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.map_while(Result::ok).any(|line| line == "ready"));
    let uploads = || std::fs::read_dir(root.path().join("blobs/uploads")).unwrap().count();
    assert!(open(root.path()).is_err());
    assert_eq!(uploads(), 1);
    child.kill().unwrap();
    child.wait().unwrap();
    open(root.path()).unwrap();
    let store = BlobStore::open(root.path().join("blobs")).unwrap();
    assert_eq!((uploads(), store.keys().count()), (0, 0));
}

#[test]
fn a_full_disk_is_told_and_leaves_what_was_there() {
    if let Some(folder) = folder() {
        full_files(&folder);
        full_blobs(&folder);
        return;
    }
    let root = tempfile::tempdir().unwrap();
    // At most 64 blocks of a file, be they of 512 or of 1,024 bytes; the ignored signal makes it an error.
    let mut shell = Process::new("sh");
    let script = r#"trap "" XFSZ; ulimit -f 64; exec "$0" "$@""#;
    shell.args(["-c", script]).arg(std::env::current_exe().unwrap());
    let name = "a_full_disk_is_told_and_leaves_what_was_there";
    let output = other(shell, name, root.path()).stderr(Stdio::piped()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert!(root.path().join("acked").exists(), "the other process did its work");
}

/// More than the limit of the other process, and less.
const TOO_MUCH: usize = 1 << 20;
const FITS: usize = 4096;

fn full_files(folder: &Path) {
    let mut files = Files::open(folder);
    let (segment, next) = (SegmentNumber(1), SegmentNumber(2));
    let file = FileName::Acked;
    let names = || {
        let entries =
            std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = entries.collect();
        names.sort();
        names
    };
    files.run(|ticket| StorageCommand::Prepare { ticket, segment, bytes: FITS as u64 }).unwrap();
    files.run(|ticket| StorageCommand::Replace { ticket, file, bytes: b"old".into() }).unwrap();
    let before = names();

    let bytes = vec![1; TOO_MUCH];
    let fault = files.run(|ticket| StorageCommand::Replace { ticket, file, bytes }).unwrap_err();
    assert_eq!((fault.action, fault.cause), (StorageAction::Replace, StorageCause::Full));
    assert_eq!(std::fs::read(folder.join("acked")).unwrap(), b"old");
    let fault = files
        .run(|ticket| StorageCommand::Prepare { ticket, segment: next, bytes: TOO_MUCH as u64 })
        .unwrap_err();
    assert_eq!((fault.action, fault.cause), (StorageAction::Prepare, StorageCause::Full));
    assert_eq!(names(), before, "no temporary file and no half segment");

    let file = FileName::Checkpoint(1);
    let bytes = vec![1; TOO_MUCH];
    let fault = files.run(|ticket| StorageCommand::Write { ticket, file, offset: 0, bytes }).unwrap_err();
    assert_eq!((fault.action, fault.cause), (StorageAction::Write, StorageCause::Full));
    let synced = files.run(|ticket| StorageCommand::Sync { ticket, file });
    assert_eq!(synced.unwrap_err(), fault, "what failed is not synced afterwards");

    let bytes = vec![1; TOO_MUCH];
    let append = |ticket| StorageCommand::Append { ticket, segment, offset: 8, bytes };
    let fault = files.run(append).unwrap_err();
    assert_eq!(
        (fault.action, fault.cause, fault.offset),
        (StorageAction::Write, StorageCause::Full, Some(8))
    );
    let append = |ticket| StorageCommand::Append { ticket, segment, offset: 8, bytes: vec![2] };
    assert_eq!(files.run(append).unwrap_err(), fault, "nothing is appended after a failure");
    assert_ne!(std::fs::read(folder.join(FileName::Segment(segment).to_string())).unwrap()[8], 2);
}

fn full_blobs(folder: &Path) {
    let store = BlobStore::open(folder.join("blobs")).unwrap();
    let (large, small) = (vec![1; TOO_MUCH], vec![2; FITS]);
    let key = |bytes: &[u8]| BlobKey(Sha256::digest(bytes).into());
    assert_eq!(store.put(key(&large), &large).unwrap_err().cause, StorageCause::Full);
    let mut group = store.group();
    group.add(&small[..]).unwrap();
    let Err(StoreError::Storage(fault)) = group.add(&large[..]) else { panic!("it cannot fit") };
    assert_eq!(fault.cause, StorageCause::Full);
    group.commit().unwrap();
    assert_eq!(store.keys().collect::<Result<Vec<_>, _>>().unwrap(), [key(&small)]);
    assert_eq!(std::fs::read_dir(folder.join("blobs/uploads")).unwrap().count(), 0);
}
