//! Backups of a running node, put back: the same history, another life, and nothing cut passes as whole.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use strandline_core::id::LogId;
use strandline_core::lifecycle::api::{Change, MembersChange, Mutation, MutationError, Scan};
use strandline_core::lifecycle::recovery::Init;
use strandline_core::record::{AuthorityId, Key, State};
use strandline_file::backup::{BackupError, BlobCopies, Manifest, begin, finish, restore};
use strandline_file::blocking::BlockingReplica;
use strandline_file::node::{NodeConfig, WriteError};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

fn create(path: &Path, authority: bool) -> Result<BlockingReplica> {
    let init = Init {
        log: LogId([5; 16]),
        identity: "a".into(),
        namespaces: vec![b"n".to_vec()],
        authority: authority.then(|| AuthorityId::from_text("a")),
    };
    let mut config = NodeConfig::default();
    config.replica.journal.segment_bytes = 8 << 20;
    Ok(BlockingReplica::create(path, init, config)?.0)
}

fn key(name: &str) -> Key {
    Key::from_parts(b"n", name.as_bytes()).expect("short")
}

/// Every present key with its bytes.
fn contents(replica: &BlockingReplica) -> Result<BTreeMap<Key, Vec<u8>>> {
    let mut scan =
        Scan { namespace: None, prefix: Vec::new(), after: None, entries_max: 4096, deleted: false };
    let mut all = BTreeMap::new();
    loop {
        let page = replica.scan(scan.clone())?;
        for (key, entry) in page.entries {
            let State::Present { blob } = entry.state else { continue };
            let mut bytes = Vec::new();
            std::io::Read::read_to_end(&mut replica.read_blob(blob)?.ok_or("not stored")?, &mut bytes)?;
            all.insert(key, bytes);
        }
        match page.next {
            Some(next) => scan.after = Some(next),
            None => return Ok(all),
        }
    }
}

/// A log with a checkpoint, journal after it, and overwritten and deleted keys.
fn filled(path: &Path) -> Result<BlockingReplica> {
    let replica = create(path, true)?;
    for n in 0..30 {
        replica.put(key(&format!("k{n}")), format!("v{n}").as_bytes())?;
    }
    replica.delete(key("k3"))?;
    replica.members(MembersChange::Clear)?;
    replica.compact(None)?;
    for n in 20..40 {
        replica.put(key(&format!("k{n}")), format!("w{n}").as_bytes())?;
    }
    replica.delete(key("k4"))?;
    Ok(replica)
}

fn back_up(
    replica: &BlockingReplica,
    to: &Path,
    copies: BlobCopies,
) -> std::result::Result<Manifest, BackupError> {
    let (moment, _hold) = begin(replica.handle(), to)?;
    finish(&replica.handle().directory().join("blobs"), to, moment, copies)
}

#[test]
fn what_comes_back_is_the_same_history_in_another_life_and_writes_only_once_fenced() -> Result {
    for copies in [BlobCopies::Copy, BlobCopies::Link] {
        let folder = tempfile::tempdir()?;
        let (log, backup, back) =
            (folder.path().join("log"), folder.path().join("backup"), folder.path().join("back"));
        let replica = filled(&log)?;
        let (before, expected) = (replica.status()?, contents(&replica)?);
        let manifest = back_up(&replica, &backup, copies)?;
        assert_eq!(manifest.tail, before.tail.to_string());
        assert_eq!(manifest.present, before.present);
        // The node runs on: what comes later is not in the backup.
        replica.put(key("later"), &b"later"[..])?;
        replica.compact(None)?;
        replica.close()?;
        let restored = restore(&backup, &back, copies)?;
        assert_eq!(restored, manifest);
        let (replica, report) = BlockingReplica::open(&back, NodeConfig::default())?;
        assert_eq!(report.cut, None);
        let after = replica.status()?;
        assert_eq!((after.log, &after.identity), (before.log, &before.identity));
        assert_eq!((after.tail, after.tail_digest), (before.tail, before.tail_digest));
        assert_eq!((after.floor, after.members_configured), (before.floor, true));
        assert_eq!(after.incarnation.counter, before.incarnation.counter + 1);
        assert_ne!(after.incarnation.nonce, before.incarnation.nonce);
        assert_eq!(contents(&replica)?, expected);
        assert!(after.fenced.is_some());
        let refused = replica.delete(key("k1"));
        assert!(matches!(&refused, Err(WriteError::Refused(MutationError::Fenced { .. }))), "{refused:?}");
        replica.close()?;
    }
    Ok(())
}

#[test]
fn a_backup_of_a_busy_node_is_a_moment_of_its_history() -> Result {
    let folder = tempfile::tempdir()?;
    let replica = filled(&folder.path().join("log"))?;
    let stop = AtomicBool::new(false);
    let manifests = std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut n = 0;
            while !stop.load(Ordering::Relaxed) {
                replica.put(key(&format!("k{}", n % 50)), format!("busy {n}").as_bytes()).expect("written");
                if n % 40 == 39 {
                    replica.compact(None).expect("compacts");
                }
                n += 1;
            }
        });
        let manifests: Vec<_> = (0..5)
            .map(|n| back_up(&replica, &folder.path().join(format!("backup{n}")), BlobCopies::Copy))
            .collect();
        stop.store(true, Ordering::Relaxed);
        writer.join().expect("wrote");
        manifests
    });
    for (n, manifest) in manifests.into_iter().enumerate() {
        let manifest = manifest?;
        let back = folder.path().join(format!("back{n}"));
        restore(&folder.path().join(format!("backup{n}")), &back, BlobCopies::Link)?;
        let (restored, report) = BlockingReplica::open(&back, NodeConfig::default())?;
        assert_eq!(report.cut, None);
        assert_eq!(restored.status()?.tail.to_string(), manifest.tail);
        assert_eq!(contents(&restored)?.len() as u64, manifest.present);
        restored.close()?;
    }
    Ok(replica.close()?)
}

/// The files of a backup, with a part of each changed.
#[test]
fn a_backup_that_is_cut_or_changed_is_not_put_back() -> Result {
    let folder = tempfile::tempdir()?;
    let (log, backup) = (folder.path().join("log"), folder.path().join("backup"));
    let replica = filled(&log)?;
    back_up(&replica, &backup, BlobCopies::Copy)?;
    replica.close()?;
    let mut files = Vec::new();
    for place in ["", "log", "blobs/0", "blobs/9"] {
        let Ok(entries) = fs::read_dir(backup.join(place)) else { continue };
        for entry in entries {
            let path = entry?.path();
            if path.is_file() && path.file_name().is_some_and(|name| name != "lock") {
                files.push(path);
            }
        }
    }
    assert!(files.len() > 5, "{files:?}");
    let mut tries = 0;
    for path in files {
        let bytes = fs::read(&path)?;
        let mut changed = bytes.clone();
        let middle = changed.len() / 2;
        changed[middle] ^= 1;
        for other in [&bytes[..middle], &[][..], &changed] {
            fs::write(&path, other)?;
            tries += 1;
            let target = folder.path().join(format!("back{tries}"));
            let found = restore(&backup, &target, BlobCopies::Copy);
            assert!(found.is_err(), "{} with {} bytes was put back", path.display(), other.len());
            assert!(!target.join("current").exists(), "it is no log");
        }
        fs::remove_file(&path)?;
        tries += 1;
        let found = restore(&backup, &folder.path().join(format!("back{tries}")), BlobCopies::Copy);
        assert!(found.is_err(), "without {}", path.display());
        fs::write(&path, bytes)?;
    }
    restore(&backup, &folder.path().join("whole"), BlobCopies::Copy)?;
    Ok(())
}

#[test]
fn nothing_is_written_over() -> Result {
    let folder = tempfile::tempdir()?;
    let (log, backup) = (folder.path().join("log"), folder.path().join("backup"));
    let replica = filled(&log)?;
    back_up(&replica, &backup, BlobCopies::Copy)?;
    assert!(matches!(begin(replica.handle(), &backup), Err(BackupError::Exists { .. })));
    assert!(matches!(restore(&backup, &log, BlobCopies::Copy), Err(BackupError::Exists { .. })));
    Ok(replica.close()?)
}

#[test]
fn a_backup_without_its_end_is_none() -> Result {
    let folder = tempfile::tempdir()?;
    let replica = filled(&folder.path().join("log"))?;
    let backup = folder.path().join("backup");
    let _hold = begin(replica.handle(), &backup)?;
    replica.close()?;
    let found = restore(&backup, &folder.path().join("back"), BlobCopies::Copy);
    assert!(matches!(found, Err(BackupError::NotWhole { .. })), "{found:?}");
    Ok(())
}

#[test]
fn a_missing_blob_is_named() -> Result {
    let folder = tempfile::tempdir()?;
    let (log, backup) = (folder.path().join("log"), folder.path().join("backup"));
    let replica = create(&log, true)?;
    replica.put(key("k"), &b"bytes"[..])?;
    let State::Present { blob } = replica.get(&key("k"))?.ok_or("there")?.state else { panic!("it was put") };
    let name = blob.to_string();
    fs::remove_file(log.join("blobs").join(&name[..1]).join(&name))?;
    let found = back_up(&replica, &backup, BlobCopies::Copy);
    assert!(matches!(&found, Err(BackupError::Blob { blob: found, .. }) if *found == blob), "{found:?}");
    Ok(replica.close()?)
}

#[test]
fn a_follower_comes_back_as_a_follower() -> Result {
    let folder = tempfile::tempdir()?;
    let (log, backup, back) =
        (folder.path().join("log"), folder.path().join("backup"), folder.path().join("back"));
    let replica = create(&log, false)?;
    back_up(&replica, &backup, BlobCopies::Copy)?;
    replica.close()?;
    restore(&backup, &back, BlobCopies::Copy)?;
    let (replica, _) = BlockingReplica::open(&back, NodeConfig::default())?;
    let refused = replica.delete(key("k"));
    assert!(matches!(refused, Err(WriteError::Refused(MutationError::NotAuthority { .. }))), "{refused:?}");
    Ok(replica.close()?)
}

#[test]
fn a_journal_beyond_the_default_limits_is_backed_up_and_restored() -> Result {
    let folder = tempfile::tempdir()?;
    let (log, backup, back) =
        (folder.path().join("log"), folder.path().join("backup"), folder.path().join("back"));
    let mut config = NodeConfig::default();
    config.replica.journal.batch_bytes_max = 7 << 20;
    let init = Init {
        log: LogId([5; 16]),
        identity: "a".into(),
        namespaces: vec![b"n".to_vec()],
        authority: Some(AuthorityId::from_text("a")),
    };
    let (replica, _) = BlockingReplica::create(&log, init, config.clone())?;
    let gone = |n| Mutation { key: key(&format!("{n:0>1000}")), change: Change::Delete, if_version: None };
    replica.write_batch((0..5200).map(gone).collect())?;
    let tail = replica.status()?.tail;
    assert!(replica.status()?.journal_bytes > 5 << 20, "one batch of more than 5 MiB");
    back_up(&replica, &backup, BlobCopies::Copy)?;
    restore(&backup, &back, BlobCopies::Copy)?;
    let (restored, _) = BlockingReplica::open(&back, config)?;
    assert_eq!(restored.status()?.tail, tail);
    Ok(())
}
