//! The folders that blobs are spread over, and which of the names in them are durable.
//!
//! A name that was only renamed may be gone after a power cut, so nobody is told of it before a sync
//! of its folder that began later has succeeded. Syncs of one folder never overlap, and one that
//! failed is the last: the system reports a lost write once, and a later sync would vouch for it.

use crate::fault::{OrFault, refused};
use crate::folder::Folder;
use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::sync::{Mutex, MutexGuard};
use strandline_core::error::{StorageAction, StorageFault};
use strandline_core::record::BlobKey;

/// How many there are. Few, since each folder touched is a sync of its own in every group of blobs;
/// enough that none grows past what a file system lists at ease.
pub(super) const FANS: u8 = 16;

/// The folder of a blob: the first digit of its key.
pub(super) const fn fan_of(key: BlobKey) -> u8 {
    key.0[0] >> 4
}

/// What a fan-out folder is called.
pub(super) fn fan_name(fan: u8) -> String {
    format!("{fan:x}")
}

/// All of them, by number.
#[derive(Debug, Default)]
pub(super) struct Fans {
    made: Mutex<Made>,
    fans: [Fan; FANS as usize],
}

/// Which folders have durable entries themselves.
#[derive(Debug, Default)]
struct Made {
    durable: BTreeSet<u8>,
    failed: Option<StorageFault>,
}

#[derive(Debug, Default)]
struct Fan {
    names: Mutex<Names>,
    /// Held over a sync of the folder.
    syncing: Mutex<()>,
}

#[derive(Debug, Default)]
struct Names {
    /// Counts the changes made to the folder.
    changes: u64,
    /// How many of them a sync has made durable.
    durable: u64,
    /// The names whose change is not among these, with its number.
    waiting: BTreeMap<BlobKey, u64>,
    failed: Option<StorageFault>,
}

impl Fans {
    /// Makes durable what a killed process left in the folders that there are.
    pub(super) fn open(root: &Folder) -> Result<Self, StorageFault> {
        let mut durable = BTreeSet::new();
        for fan in 0..FANS {
            let name = fan_name(fan);
            let folder = match root.existing(&name) {
                Err(error) if error.kind() == ErrorKind::NotFound => continue,
                other => other.or_fault(StorageAction::List, &name, None)?,
            };
            folder.sync().or_fault(StorageAction::Sync, &name, None)?;
            durable.insert(fan);
        }
        Ok(Self { made: Mutex::new(Made { durable, failed: None }), fans: Default::default() })
    }

    /// Creates these folders, durably.
    pub(super) fn ensure(&self, root: &Folder, fans: &BTreeSet<u8>) -> Result<(), StorageFault> {
        // Held over the sync: nobody may count on a folder that another thread has only created.
        let mut made = self.made.lock().expect("no holder panics");
        let missing: Vec<u8> = fans.difference(&made.durable).copied().collect();
        if missing.is_empty() {
            return Ok(());
        }
        if let Some(fault) = &made.failed {
            return Err(still(fault));
        }
        for fan in &missing {
            root.make(&fan_name(*fan)).or_fault(StorageAction::Write, &fan_name(*fan), None)?;
        }
        if let Err(fault) = root.sync().or_fault(StorageAction::Sync, ".", None) {
            // Nothing is in them. The next process must not find what may not be on the disk.
            missing.iter().for_each(|fan| drop(root.remove_folder(&fan_name(*fan))));
            made.failed = Some(fault.clone());
            return Err(fault);
        }
        made.durable.extend(missing);
        Ok(())
    }

    /// Changes the name of `key` in its folder by `change`, which says whether it did. Until the next
    /// sync the name is not told of.
    pub(super) fn add(
        &self,
        key: BlobKey,
        change: impl FnOnce() -> Result<bool, StorageFault>,
    ) -> Result<(), StorageFault> {
        let mut names = self.names(fan_of(key));
        if let Some(fault) = &names.failed {
            return Err(still(fault));
        }
        if change()? {
            names.changes += 1;
            let number = names.changes;
            names.waiting.insert(key, number);
        }
        Ok(())
    }

    /// Notes that a name of this folder was taken away, for the next sync.
    pub(super) fn took(&self, fan: u8) {
        self.names(fan).changes += 1;
    }

    /// What `look` finds of a name; `None` while the name is not durable.
    pub(super) fn find<T>(
        &self,
        key: BlobKey,
        look: impl FnOnce() -> Result<Option<T>, StorageFault>,
    ) -> Result<Option<T>, StorageFault> {
        // Held while we look, so that no name comes between.
        let names = self.names(fan_of(key));
        if names.waiting.contains_key(&key) { Ok(None) } else { look() }
    }

    /// Whether what a folder does not hold is durably not in it.
    ///
    /// # Errors
    /// A sync of it failed earlier.
    pub(super) fn vouch(&self, fan: u8) -> Result<(), StorageFault> {
        self.names(fan).failed.as_ref().map_or(Ok(()), |fault| Err(still(fault)))
    }

    /// Makes all changes durable that were made to a folder before this call.
    ///
    /// # Errors
    /// What the system reports, now or of an earlier sync: none is believed after one that failed.
    pub(super) fn sync(&self, fan: u8, folder: &Folder) -> Result<(), StorageFault> {
        self.sync_by(fan, folder, || folder.sync())
    }

    fn sync_by(
        &self,
        fan: u8,
        folder: &Folder,
        sync: impl FnOnce() -> std::io::Result<()>,
    ) -> Result<(), StorageFault> {
        let asked = self.names(fan).changes;
        let _syncing = self.fans[usize::from(fan)].syncing.lock().expect("no holder panics");
        let through = {
            let names = self.names(fan);
            if let Some(fault) = &names.failed {
                return Err(still(fault));
            }
            if names.durable >= asked {
                return Ok(());
            }
            names.changes
        };
        let synced = sync().or_fault(StorageAction::Sync, &fan_name(fan), None);
        let mut names = self.names(fan);
        if let Err(fault) = synced {
            // Nobody was told of these. The next process would find them, and could not know that
            // they may not be on the disk.
            names.waiting.keys().for_each(|key| drop(folder.remove(&key.to_string())));
            names.failed = Some(fault.clone());
            return Err(fault);
        }
        names.durable = through;
        names.waiting.retain(|_, number| *number > through);
        Ok(())
    }

    fn names(&self, fan: u8) -> MutexGuard<'_, Names> {
        self.fans[usize::from(fan)].names.lock().expect("no holder panics")
    }
}

/// The answer to whoever comes after a sync that failed.
fn still(fault: &StorageFault) -> StorageFault {
    let detail = format!(
        "expected every sync of this folder to have succeeded, found that one failed ({}): nothing more is \
         stored in it until the store is opened again",
        fault.detail
    );
    refused(StorageAction::Sync, &fault.file, None, fault.cause, detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::Access;

    const KEY: BlobKey = BlobKey([0xab; 32]);
    const OTHER: BlobKey = BlobKey([0xac; 32]);
    const FAN: u8 = 0xa;

    struct Bench {
        _home: tempfile::TempDir,
        root: Folder,
        fans: Fans,
        fan: Folder,
    }

    impl Bench {
        fn new() -> Self {
            let home = tempfile::tempdir().unwrap();
            let root = Folder::open(home.path()).unwrap();
            let fans = Fans::open(&root).unwrap();
            fans.ensure(&root, &BTreeSet::from([FAN])).unwrap();
            let fan = root.existing(&fan_name(FAN)).unwrap();
            Self { _home: home, root, fans, fan }
        }

        fn add(&self, key: BlobKey) -> Result<(), StorageFault> {
            self.fans.add(key, || {
                self.fan.file(&key.to_string(), Access::New).or_fault(StorageAction::Write, "new", None)?;
                Ok(true)
            })
        }

        fn told(&self, key: BlobKey) -> bool {
            let look = || self.fan.length(&key.to_string()).or_fault(StorageAction::Read, "name", None);
            self.fans.find(key, look).unwrap().is_some()
        }
    }

    #[test]
    fn a_name_is_told_of_once_a_sync_that_began_after_it_has_succeeded() {
        let bench = Bench::new();
        bench.add(KEY).unwrap();
        assert!(!bench.told(KEY));
        let syncing = bench.fans.sync_by(FAN, &bench.fan, || {
            bench.add(OTHER).unwrap();
            Ok(())
        });
        assert_eq!((syncing, bench.told(KEY), bench.told(OTHER)), (Ok(()), true, false));
        bench.fans.sync(FAN, &bench.fan).unwrap();
        assert!(bench.told(OTHER));
        let again = bench.fans.sync_by(FAN, &bench.fan, || panic!("everything is durable"));
        assert_eq!(again, Ok(()));
    }

    #[test]
    fn after_a_failed_sync_of_a_folder_nothing_is_stored_in_it_and_what_it_was_to_sync_is_gone() {
        let bench = Bench::new();
        bench.add(KEY).unwrap();
        bench.fans.sync(FAN, &bench.fan).unwrap();
        bench.add(OTHER).unwrap();
        let failed = || Err(std::io::Error::other("the disk went away"));
        bench.fans.sync_by(FAN, &bench.fan, failed).unwrap_err();
        assert!(bench.told(KEY) && !bench.told(OTHER));
        assert_eq!(bench.fan.length(&OTHER.to_string()).unwrap(), None, "the next process would believe it");
        assert_eq!(bench.fans.vouch(FAN + 1), Ok(()), "the other folders go on");
        for fault in [
            bench.fans.sync_by(FAN, &bench.fan, || panic!("would vouch for it")).unwrap_err(),
            bench.add(OTHER).unwrap_err(),
            bench.fans.vouch(FAN).unwrap_err(),
        ] {
            assert!(fault.detail.contains("the disk went away"), "{fault}");
        }
    }

    #[test]
    fn folders_have_one_digit_and_only_those_count_as_made() {
        let bench = Bench::new();
        bench.root.make("0b").unwrap();
        let fans = Fans::open(&bench.root).unwrap();
        fans.ensure(&bench.root, &BTreeSet::from([0xb])).unwrap();
        bench.root.existing("b").unwrap();
    }
}
