//! Files that are written in pieces and synced once: checkpoints, and whatever recovery keeps.

use crate::directory::Directory;
use crate::fault::{OrFault, refused};
use crate::folder::Access;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use strandline_core::error::{StorageAction, StorageCause, StorageFault};
use strandline_core::journal::command::FileName;

/// Most files under construction at once.
const BUILDING_MAX: usize = 16;

/// Writes, syncs and removals of one directory, one after the other.
#[derive(Debug)]
pub(crate) struct Construction {
    directory: Arc<Directory>,
    /// Kept open from the first write to the sync: the system tells a failed write-back to the
    /// handles that were open when it failed.
    building: BTreeMap<FileName, Building>,
    /// Files that failed. They are not synced again before they are written afresh.
    failed: BTreeMap<FileName, StorageFault>,
}

#[derive(Debug)]
struct Building {
    handle: File,
    end: u64,
}

impl Construction {
    pub(crate) const fn new(directory: Arc<Directory>) -> Self {
        Self { directory, building: BTreeMap::new(), failed: BTreeMap::new() }
    }

    /// Writes a piece; offset 0 creates or empties the file.
    pub(crate) fn write(&mut self, file: FileName, offset: u64, bytes: &[u8]) -> Result<(), StorageFault> {
        if offset == 0 {
            self.abandon(file);
        }
        self.once(file, |this| {
            let mut building = this.continued(file, offset)?;
            let written = building.handle.write_all_at(bytes, offset);
            written.or_fault(StorageAction::Write, &file.to_string(), Some(offset))?;
            building.end = offset + bytes.len() as u64;
            this.building.insert(file, building);
            Ok(())
        })
    }

    /// Makes the file and its directory entry durable.
    pub(crate) fn sync(&mut self, file: FileName) -> Result<(), StorageFault> {
        self.once(file, |this| {
            let handle = match this.building.remove(&file) {
                Some(building) => building.handle,
                None => this.directory.file(file, Access::Change, StorageAction::Sync)?,
            };
            handle.sync_all().or_fault(StorageAction::Sync, &file.to_string(), None)?;
            this.directory.sync(StorageAction::Sync)
        })
    }

    /// Removes files, durably.
    pub(crate) fn remove(&mut self, files: &[FileName]) -> Result<(), StorageFault> {
        for file in files {
            self.abandon(*file);
        }
        self.directory.remove(files)
    }

    fn abandon(&mut self, file: FileName) {
        self.building.remove(&file);
        self.failed.remove(&file);
    }

    fn once(
        &mut self,
        file: FileName,
        work: impl FnOnce(&mut Self) -> Result<(), StorageFault>,
    ) -> Result<(), StorageFault> {
        if let Some(fault) = self.failed.get(&file) {
            return Err(fault.clone());
        }
        work(self).inspect_err(|fault| {
            self.building.remove(&file);
            // A file that is not there has nothing half-written in it.
            if fault.cause != StorageCause::Missing {
                self.failed.insert(file, fault.clone());
            }
        })
    }

    /// The file that is to go on at `offset`: under construction, left by an earlier run, or new.
    fn continued(&mut self, file: FileName, offset: u64) -> Result<Building, StorageFault> {
        let name = file.to_string();
        let at = Some(offset);
        let building = match self.building.remove(&file) {
            Some(building) => building,
            None if self.building.len() == BUILDING_MAX => {
                let detail =
                    format!("expected at most {BUILDING_MAX} files under construction, found one more");
                return Err(refused(StorageAction::Write, &name, at, StorageCause::Failed, detail));
            }
            None => {
                let access = if offset == 0 { Access::Empty } else { Access::Change };
                let handle = self.directory.file(file, access, StorageAction::Write)?;
                let end = handle.metadata().or_fault(StorageAction::Write, &name, at)?.len();
                Building { handle, end }
            }
        };
        if building.end == offset {
            return Ok(building);
        }
        let detail =
            format!("expected a write at the end of what is there, {}, found {offset}", building.end);
        Err(refused(StorageAction::Write, &name, at, StorageCause::Failed, detail))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::OpenMode;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    const FILE: FileName = FileName::Checkpoint(1);

    fn open(root: &Path) -> Construction {
        Construction::new(Arc::new(Directory::open(root, OpenMode::Existing).unwrap()))
    }

    fn content(root: &Path) -> Vec<u8> {
        std::fs::read(root.join(FILE.to_string())).unwrap()
    }

    #[test]
    fn pieces_follow_one_another_and_offset_zero_starts_afresh() {
        let root = tempfile::tempdir().unwrap();
        let mut construction = open(root.path());
        construction.write(FILE, 0, b"abandoned").unwrap();
        construction.write(FILE, 0, b"one ").unwrap();
        construction.write(FILE, 4, b"two").unwrap();
        construction.sync(FILE).unwrap();
        assert_eq!(content(root.path()), b"one two");
        assert!(construction.building.is_empty());
        let mode = root.path().join(FILE.to_string()).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_file_goes_on_after_its_sync_and_after_a_restart() {
        let root = tempfile::tempdir().unwrap();
        let mut construction = open(root.path());
        construction.write(FILE, 0, b"ab").unwrap();
        construction.sync(FILE).unwrap();
        construction.write(FILE, 2, b"cd").unwrap();
        drop(construction);
        let mut construction = open(root.path());
        construction.write(FILE, 4, b"ef").unwrap();
        construction.sync(FILE).unwrap();
        assert_eq!(content(root.path()), b"abcdef");
    }

    #[test]
    fn a_write_elsewhere_is_refused_and_the_file_stays_failed() {
        let root = tempfile::tempdir().unwrap();
        let mut construction = open(root.path());
        construction.write(FILE, 0, b"ab").unwrap();
        let fault = construction.write(FILE, 3, b"x").unwrap_err();
        assert!(fault.detail.contains("expected a write at the end of what is there, 2, found 3"), "{fault}");
        assert_eq!(construction.write(FILE, 2, b"x").unwrap_err(), fault);
        assert_eq!(construction.sync(FILE).unwrap_err(), fault);
        construction.write(FILE, 0, b"again").unwrap();
        construction.sync(FILE).unwrap();
        assert_eq!(content(root.path()), b"again");
    }

    #[test]
    fn a_missing_file_cannot_be_synced() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(open(root.path()).sync(FILE).unwrap_err().cause, StorageCause::Missing);
        assert_eq!(open(root.path()).write(FILE, 1, b"x").unwrap_err().cause, StorageCause::Missing);
    }

    #[test]
    fn files_under_construction_are_bounded_and_removal_makes_room() {
        let root = tempfile::tempdir().unwrap();
        let mut construction = open(root.path());
        let file = |number: usize| FileName::Checkpoint(number as u64);
        for number in 0..BUILDING_MAX {
            construction.write(file(number), 0, b"x").unwrap();
        }
        assert!(construction.write(file(BUILDING_MAX), 0, b"x").unwrap_err().detail.contains("at most 16"));
        construction.remove(&[file(0)]).unwrap();
        construction.write(file(BUILDING_MAX), 0, b"x").unwrap();
    }
}
