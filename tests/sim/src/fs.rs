//! A folder of files over a page cache over a disk.
//!
//! Writes change the cache; a sync takes dirty pages to the disk; a sync of the folder makes its
//! entries durable. What a power cut leaves is picked by a [`Choose`]: every dirty page and every
//! changed entry on its own.

use crate::fault::{Counts, Fault};
use crate::rng::Choose;
use std::collections::{BTreeMap, BTreeSet};
use strandline_core::journal::command::{FileName, Listed};

/// Bytes of a page; also of a sector.
pub const PAGE: usize = 512;

/// A name in the folder.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Name {
    /// A file of the log.
    File(FileName),
    /// A file on its way to a name.
    Temporary(u64),
}

#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct Inode {
    cache: Vec<u8>,
    disk: Vec<u8>,
    dirty: BTreeSet<usize>,
    /// Pages of a failed sync that count as clean and did not reach the disk.
    stale: BTreeSet<usize>,
}

#[derive(Clone, Debug, Default, Eq, PartialEq)]
struct Entry {
    durable: Option<u64>,
    /// What the name has stood for since the folder was synced, oldest first.
    since: Vec<Option<u64>>,
}

impl Entry {
    fn now(&self) -> Option<u64> {
        self.since.last().copied().unwrap_or(self.durable)
    }
}

/// The folder.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Fs {
    inodes: BTreeMap<u64, Inode>,
    entries: BTreeMap<Name, Entry>,
    next: u64,
}

/// Whether a page that is dirty in a power cut may survive in part.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Tearing {
    /// Torn at any byte, sometimes.
    Anywhere,
    /// Whole or not at all.
    Never,
    /// This page of the oldest file that has it dirty is torn at this byte; the flag says whether
    /// the new bytes come first. Every other page follows the choices.
    At(usize, usize, bool),
}

fn page(bytes: &[u8], page: usize) -> &[u8] {
    let from = (page * PAGE).min(bytes.len());
    &bytes[from..(from + PAGE).min(bytes.len())]
}

impl Inode {
    fn write(&mut self, offset: usize, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let end = offset + bytes.len();
        if end > self.cache.len() {
            self.cache.resize(end, 0);
        }
        self.cache[offset..end].copy_from_slice(bytes);
        for page in offset / PAGE..=(end - 1) / PAGE {
            self.dirty.insert(page);
            self.stale.remove(&page);
        }
    }

    fn land(&mut self, at: usize) {
        let from = at * PAGE;
        let to = (from + PAGE).min(self.cache.len()).min(self.disk.len());
        if from < to {
            self.disk[from..to].copy_from_slice(&self.cache[from..to]);
        }
    }

    fn sync(&mut self) {
        self.disk.resize(self.cache.len(), 0);
        for page in std::mem::take(&mut self.dirty) {
            self.land(page);
        }
    }

    /// The pages count as clean; which of them reached the disk is picked.
    fn fail_sync(&mut self, choose: &mut dyn Choose) {
        self.disk.resize(self.cache.len(), 0);
        for page in std::mem::take(&mut self.dirty) {
            if choose.once_in(2) {
                self.land(page);
            } else {
                self.stale.insert(page);
            }
        }
    }

    fn power_cut(&mut self, choose: &mut dyn Choose, tearing: Tearing, counts: &mut Counts) {
        let grown = self.cache.len() > self.disk.len();
        if self.cache.len() != self.disk.len() && choose.once_in(2) {
            self.disk.resize(self.cache.len(), 0);
        }
        let mut lost_before = false;
        for at in std::mem::take(&mut self.dirty) {
            let torn = match tearing {
                Tearing::At(page, byte, first) if page == at => Some((byte, first)),
                Tearing::Anywhere if choose.once_in(4) => {
                    Some((choose.index(PAGE - 1) + 1, choose.once_in(2)))
                }
                Tearing::At(..) | Tearing::Anywhere | Tearing::Never => None,
            };
            if let Some((byte, first)) = torn {
                counts.add(Fault::TornWrite);
                self.tear(at, byte, first);
            } else if choose.once_in(2) {
                if grown && self.disk.len() > at * PAGE {
                    counts.add(Fault::ZeroTail);
                }
                counts.add(Fault::UnsyncedLost);
                lost_before = true;
            } else {
                if lost_before {
                    counts.add(Fault::UnsyncedReordered);
                }
                self.land(at);
            }
        }
        self.stale.clear();
        self.cache.clone_from(&self.disk);
    }

    fn tear(&mut self, at: usize, byte: usize, new_first: bool) {
        let from = at * PAGE;
        let end = (from + PAGE).min(self.cache.len()).min(self.disk.len());
        let cut = (from + byte).min(end);
        let range = if new_first { from.min(cut)..cut } else { cut..end };
        self.disk[range.clone()].copy_from_slice(&self.cache[range]);
    }
}

impl Fs {
    fn inode(&mut self, name: Name) -> Option<&mut Inode> {
        let ino = self.entries.get(&name)?.now()?;
        self.inodes.get_mut(&ino)
    }

    fn point(&mut self, name: Name, ino: Option<u64>) {
        self.entries.entry(name).or_default().since.push(ino);
    }

    /// Creates an empty file in place of what has the name.
    pub fn create(&mut self, name: Name) {
        self.next += 1;
        self.inodes.insert(self.next, Inode::default());
        self.point(name, Some(self.next));
    }

    /// Whether the name stands for a file.
    #[must_use]
    pub fn exists(&self, name: Name) -> bool {
        self.entries.get(&name).and_then(Entry::now).is_some()
    }

    /// Writes into the cache. False if there is no such file.
    pub fn write(&mut self, name: Name, offset: usize, bytes: &[u8]) -> bool {
        self.inode(name).map(|inode| inode.write(offset, bytes)).is_some()
    }

    /// Length of a file.
    #[must_use]
    pub fn bytes(&self, name: Name) -> Option<usize> {
        let ino = self.entries.get(&name)?.now()?;
        self.inodes.get(&ino).map(|inode| inode.cache.len())
    }

    /// What a read sees.
    #[must_use]
    pub fn read(&self, name: Name, offset: usize, bytes_max: usize) -> Option<Vec<u8>> {
        let ino = self.entries.get(&name)?.now()?;
        let cache = &self.inodes.get(&ino)?.cache;
        let from = offset.min(cache.len());
        Some(cache[from..from.saturating_add(bytes_max).min(cache.len())].to_vec())
    }

    /// Makes a file's bytes durable. False if there is no such file.
    pub fn sync(&mut self, name: Name) -> bool {
        self.inode(name).map(Inode::sync).is_some()
    }

    /// A sync that fails.
    pub fn fail_sync(&mut self, name: Name, choose: &mut dyn Choose) {
        if let Some(inode) = self.inode(name) {
            inode.fail_sync(choose);
        }
    }

    /// Makes the entries durable.
    pub fn sync_folder(&mut self) {
        self.entries.retain(|_, entry| {
            entry.durable = entry.now();
            entry.since.clear();
            entry.durable.is_some()
        });
        let used: BTreeSet<u64> = self.entries.values().filter_map(|entry| entry.durable).collect();
        self.inodes.retain(|ino, _| used.contains(ino));
    }

    /// Renames over whatever has the name.
    pub fn rename(&mut self, from: Name, to: Name) {
        let ino = self.entries.get(&from).and_then(Entry::now);
        self.point(to, ino);
        self.point(from, None);
    }

    /// Removes a name; a missing one is no error.
    pub fn remove(&mut self, name: Name) {
        if self.exists(name) {
            self.point(name, None);
        }
    }

    /// Removes what was on its way to a name.
    pub fn clean(&mut self) {
        let temporary: Vec<Name> =
            self.entries.keys().copied().filter(|name| matches!(name, Name::Temporary(_))).collect();
        for name in temporary {
            self.remove(name);
        }
    }

    /// The files of the log.
    #[must_use]
    pub fn list(&self) -> Vec<Listed> {
        let listed = |(name, entry): (&Name, &Entry)| {
            let (Name::File(file), Some(ino)) = (*name, entry.now()) else { return None };
            Some(Listed { file, bytes: self.inodes.get(&ino)?.cache.len() as u64 })
        };
        self.entries.iter().filter_map(listed).collect()
    }

    /// How many pages and entries a power cut would decide about.
    #[must_use]
    pub fn undecided(&self) -> usize {
        let pages: usize = self.inodes.values().map(|inode| inode.dirty.len()).sum();
        pages + self.entries.values().filter(|entry| !entry.since.is_empty()).count()
    }

    /// The dirty pages of the oldest file that has some.
    #[must_use]
    pub fn dirty(&self) -> Vec<usize> {
        let first = self.inodes.values().find(|inode| !inode.dirty.is_empty());
        first.map(|inode| inode.dirty.iter().copied().collect()).unwrap_or_default()
    }

    /// The machine loses power.
    pub fn power_cut(&mut self, choose: &mut dyn Choose, tearing: Tearing, counts: &mut Counts) {
        for (name, entry) in &mut self.entries {
            let now = entry.now();
            let pick = choose.index(entry.since.len() + 1);
            if let Some(back) = pick.checked_sub(1) {
                entry.durable = entry.since[back];
            }
            if entry.durable != now && matches!(name, Name::File(_)) {
                let lost = if entry.durable.is_some() { Fault::LostRename } else { Fault::LostEntry };
                counts.add(lost);
            }
            entry.since.clear();
        }
        self.sync_folder();
        for inode in self.inodes.values_mut() {
            inode.power_cut(choose, tearing, counts);
        }
    }

    /// Pages of failed syncs leave the cache. How many did.
    pub fn evict(&mut self, choose: &mut dyn Choose) -> usize {
        let mut evicted = 0;
        for inode in self.inodes.values_mut() {
            let pages: Vec<usize> = inode.stale.iter().copied().filter(|_| choose.once_in(2)).collect();
            for at in pages {
                inode.stale.remove(&at);
                let old = page(&inode.disk, at).to_vec();
                let from = at * PAGE;
                inode.cache[from..from + old.len()].copy_from_slice(&old);
                evicted += 1;
            }
        }
        evicted
    }

    /// Clean pages of the log's files that hold something, as (name, page).
    #[must_use]
    pub fn clean_pages(&self) -> Vec<(Name, usize)> {
        let mut pages = Vec::new();
        for (name, entry) in &self.entries {
            let (Name::File(_), Some(ino)) = (name, entry.durable) else { continue };
            if entry.now() != Some(ino) {
                continue;
            }
            let Some(inode) = self.inodes.get(&ino) else { continue };
            if !inode.stale.is_empty() || inode.cache.len() != inode.disk.len() {
                continue;
            }
            let count = inode.disk.len().div_ceil(PAGE);
            let used = |at: &usize| {
                !inode.dirty.contains(at) && page(&inode.disk, *at).iter().any(|byte| *byte != 0)
            };
            pages.extend((0..count).filter(used).map(|at| (*name, at)));
        }
        pages
    }

    /// Bytes of a page on the disk.
    #[must_use]
    pub fn disk_page(&self, name: Name, at: usize) -> Vec<u8> {
        let ino = self.entries.get(&name).and_then(|entry| entry.durable);
        ino.and_then(|ino| self.inodes.get(&ino))
            .map(|inode| page(&inode.disk, at).to_vec())
            .unwrap_or_default()
    }

    /// Puts other bytes into a clean page, on the disk and in the cache; what does not fit is left
    /// out.
    pub fn damage(&mut self, name: Name, at: usize, bytes: &[u8]) {
        let Some(inode) = self.inode(name) else { return };
        let from = at * PAGE;
        for copy in [&mut inode.cache, &mut inode.disk] {
            let to = (from + bytes.len()).min(copy.len());
            if from < to {
                copy[from..to].copy_from_slice(&bytes[..to - from]);
            }
        }
    }

    /// A folder with one more durable file in it.
    pub fn put_durable(&mut self, file: FileName, bytes: &[u8]) {
        let name = Name::File(file);
        self.create(name);
        self.write(name, 0, bytes);
        self.sync(name);
        self.sync_folder();
    }

    /// The folder as a copy of it made now would be found: what is cached is part of it.
    #[must_use]
    pub fn copied(&self) -> Self {
        let mut copy = self.clone();
        copy.clean();
        for inode in copy.inodes.values_mut() {
            inode.stale.clear();
            inode.dirty.clear();
            inode.disk.clone_from(&inode.cache);
        }
        copy.sync_folder();
        copy
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Odometer, Rng};

    const FILE: Name = Name::File(FileName::Current);

    fn written() -> Fs {
        let mut fs = Fs::default();
        fs.create(FILE);
        fs.write(FILE, 0, &[1; 2 * PAGE]);
        fs.sync(FILE);
        fs.sync_folder();
        fs
    }

    #[test]
    fn what_is_synced_survives() {
        let mut fs = written();
        fs.power_cut(&mut Rng::new(1), Tearing::Anywhere, &mut Counts::default());
        assert_eq!(fs.read(FILE, 0, 9 * PAGE), Some(vec![1; 2 * PAGE]));
    }

    #[test]
    fn every_set_of_dirty_pages_may_survive() {
        let mut base = written();
        base.write(FILE, 0, &[2; 2 * PAGE]);
        let (mut all, mut seen) = (Odometer::default(), BTreeSet::new());
        loop {
            let mut fs = base.clone();
            fs.power_cut(&mut all, Tearing::Never, &mut Counts::default());
            let read = fs.read(FILE, 0, 2 * PAGE).expect("there");
            seen.insert((read[0], read[PAGE]));
            if !all.advance() {
                break;
            }
        }
        assert_eq!(seen, BTreeSet::from([(1, 1), (1, 2), (2, 1), (2, 2)]));
    }

    #[test]
    fn a_rename_may_be_lost_before_the_folder_is_synced_and_not_after() {
        let mut base = written();
        base.create(Name::Temporary(1));
        base.write(Name::Temporary(1), 0, b"new");
        base.sync(Name::Temporary(1));
        base.rename(Name::Temporary(1), FILE);
        let (mut all, mut seen) = (Odometer::default(), BTreeSet::new());
        loop {
            let mut fs = base.clone();
            fs.power_cut(&mut all, Tearing::Never, &mut Counts::default());
            seen.insert(fs.bytes(FILE));
            if !all.advance() {
                break;
            }
        }
        assert_eq!(seen, BTreeSet::from([Some(3), Some(2 * PAGE)]));
        base.sync_folder();
        base.power_cut(&mut Rng::new(1), Tearing::Anywhere, &mut Counts::default());
        assert_eq!(base.bytes(FILE), Some(3));
    }

    #[test]
    fn pages_of_a_failed_sync_count_as_clean_and_may_be_older_on_the_disk() {
        let mut seen = BTreeSet::new();
        for seed in 0..20 {
            let mut fs = written();
            fs.write(FILE, 0, &[2; PAGE]);
            fs.fail_sync(FILE, &mut Rng::new(seed));
            assert_eq!(fs.read(FILE, 0, 1), Some(vec![2]), "the cache keeps the new bytes");
            fs.sync(FILE);
            fs.power_cut(&mut Rng::new(seed), Tearing::Anywhere, &mut Counts::default());
            seen.insert(fs.read(FILE, 0, 1));
        }
        assert_eq!(seen.len(), 2, "a second sync proves nothing");
    }
}
