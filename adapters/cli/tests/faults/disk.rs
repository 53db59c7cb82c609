//! A disk whose power can be cut: what a trace left in the page cache, and what of it is durable.
//!
//! A write is durable when a sync of its file began after it and succeeded; a name, when a sync of
//! its folder did. Of everything else any part may survive. What a failed sync was to write stays
//! undecided for good: the system calls its pages clean, so no later sync writes them.

use crate::trace::{FileId, Place, Record, SyncEnded};
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

const PAGE: usize = 4096;
const SECTOR: usize = 512;

type Page = Arc<[u8; PAGE]>;

/// What survives a power cut of what is not durable.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Survives {
    Nothing,
    /// All of it, as after a killed process.
    Everything,
    /// Any part of it; the number decides which.
    Some(u64),
}

#[derive(Clone, Debug, Default)]
struct FileNode {
    now: Content,
    durable: Content,
    /// Pages whose durable bytes may differ, and whether a sync of them failed.
    dirty: BTreeMap<u64, bool>,
}

/// Pages that are not all zeros, and the length.
#[derive(Clone, Debug, Default)]
struct Content {
    pages: BTreeMap<u64, Page>,
    bytes: u64,
}

#[derive(Clone, Debug, Default)]
struct FolderNode {
    now: BTreeMap<Vec<u8>, usize>,
    durable: BTreeMap<Vec<u8>, usize>,
    changes: Vec<(u64, Change)>,
}

/// One change of a folder, which is there or not as a whole.
#[derive(Clone, Debug)]
struct Change {
    without: Option<Vec<u8>>,
    with: Option<(Vec<u8>, usize)>,
}

impl Change {
    fn apply(&self, entries: &mut BTreeMap<Vec<u8>, usize>) {
        if let Some(name) = &self.without {
            entries.remove(name);
        }
        if let Some((name, node)) = &self.with {
            entries.insert(name.clone(), *node);
        }
    }
}

#[derive(Clone, Debug)]
enum Node {
    File(FileNode),
    Folder(FolderNode),
}

/// What a sync is to make durable, as it was when it began.
#[derive(Clone, Debug)]
enum Began {
    File { pages: BTreeMap<u64, Option<Page>>, bytes: u64 },
    Folder { changes_before: u64 },
}

/// The files below one folder.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    nodes: Vec<Node>,
    /// The node that has an inode now. Numbers of removed files are used again.
    live: BTreeMap<FileId, usize>,
    syncs: BTreeMap<String, Began>,
    changes: u64,
}

const ROOT: usize = 0;

impl Disk {
    /// What is below `root` now, all of it durable.
    pub(crate) fn of(root: &Path) -> Self {
        let mut disk = Self { nodes: Vec::new(), live: BTreeMap::new(), syncs: BTreeMap::new(), changes: 0 };
        disk.scan(root);
        disk
    }

    fn scan(&mut self, path: &Path) -> usize {
        let found = path.symlink_metadata().expect("is there");
        let folder = found.is_dir();
        let node = self.add((found.dev(), found.ino()), folder);
        if folder {
            let mut entries = BTreeMap::new();
            for entry in std::fs::read_dir(path).expect("lists") {
                let entry = entry.expect("lists");
                let kind = entry.file_type().expect("is there");
                if kind.is_dir() || kind.is_file() {
                    entries.insert(entry.file_name().as_bytes().to_vec(), self.scan(&entry.path()));
                }
            }
            let Node::Folder(this) = &mut self.nodes[node] else { unreachable!() };
            this.now.clone_from(&entries);
            this.durable = entries;
        } else {
            let bytes = std::fs::read(path).expect("reads");
            let Node::File(this) = &mut self.nodes[node] else { unreachable!() };
            this.write(0, &bytes);
            this.durable = this.now.clone();
            this.dirty.clear();
        }
        node
    }

    fn add(&mut self, id: FileId, folder: bool) -> usize {
        self.nodes.push(if folder {
            Node::Folder(FolderNode::default())
        } else {
            Node::File(FileNode::default())
        });
        self.live.insert(id, self.nodes.len() - 1);
        self.nodes.len() - 1
    }

    /// Follows one record. What is done outside the folder is passed over.
    pub(crate) fn follow(&mut self, record: &Record) {
        match record {
            Record::Write { file, at, bytes } => self.file(*file, |file| file.write(*at, bytes)),
            Record::Zeros { file, at, bytes } => self.file(*file, |file| file.zero(*at, *bytes)),
            Record::Resize { file, bytes } => self.file(*file, |file| file.resize(*bytes)),
            Record::SyncBegin { file, number } => self.sync_begins(*file, number),
            Record::SyncEnd { file, number, ended } => self.sync_ends(*file, number, *ended),
            Record::Create { place, file } => self.create(place, *file, false),
            Record::Mkdir { place, folder } => self.create(place, *folder, true),
            Record::Rename { from, to } => self.rename(from, to),
            Record::Unlink { place } => {
                self.change(place.folder, Change { without: Some(place.name.clone()), with: None });
            }
            Record::Say { .. } | Record::Struck { .. } => {}
        }
    }

    fn file(&mut self, id: FileId, change: impl FnOnce(&mut FileNode)) {
        if let Some(node) = self.live.get(&id)
            && let Node::File(file) = &mut self.nodes[*node]
        {
            change(file);
        }
    }

    fn create(&mut self, place: &Place, id: FileId, folder: bool) {
        self.live.remove(&id);
        if self.live.contains_key(&place.folder) {
            let node = self.add(id, folder);
            self.change(place.folder, Change { without: None, with: Some((place.name.clone(), node)) });
        }
    }

    fn rename(&mut self, from: &Place, to: &Place) {
        let Some(Node::Folder(source)) = self.live.get(&from.folder).map(|node| &self.nodes[*node]) else {
            return;
        };
        // A socket has no node.
        let Some(moved) = source.now.get(&from.name).copied() else { return };
        let without = Some(from.name.clone());
        let with = Some((to.name.clone(), moved));
        if from.folder == to.folder {
            self.change(to.folder, Change { without, with });
        } else {
            self.change(to.folder, Change { without: None, with });
            self.change(from.folder, Change { without, with: None });
        }
    }

    fn change(&mut self, folder: FileId, change: Change) {
        if let Some(node) = self.live.get(&folder)
            && let Node::Folder(folder) = &mut self.nodes[*node]
        {
            change.apply(&mut folder.now);
            folder.changes.push((self.changes, change));
            self.changes += 1;
        }
    }

    fn sync_begins(&mut self, id: FileId, number: &str) {
        let Some(node) = self.live.get(&id) else { return };
        let began = match &self.nodes[*node] {
            Node::Folder(_) => Began::Folder { changes_before: self.changes },
            Node::File(file) => {
                let writable = file.dirty.iter().filter(|(_, failed)| !**failed);
                let pages = writable.map(|(page, _)| (*page, file.now.pages.get(page).cloned())).collect();
                Began::File { pages, bytes: file.now.bytes }
            }
        };
        self.syncs.insert(number.to_owned(), began);
    }

    fn sync_ends(&mut self, id: FileId, number: &str, ended: SyncEnded) {
        let (Some(began), Some(node)) = (self.syncs.remove(number), self.live.get(&id)) else { return };
        let ok = match ended {
            SyncEnded::Ok => true,
            SyncEnded::Failed => false,
            SyncEnded::Interrupted => return,
        };
        match (began, &mut self.nodes[*node]) {
            (Began::File { pages, bytes }, Node::File(file)) => file.synced(pages, bytes, ok),
            (Began::Folder { changes_before }, Node::Folder(folder)) if ok => folder.synced(changes_before),
            // A failed sync of a folder makes nothing durable; an inode that is another file by now
            // was synced as the one it had been.
            (Began::Folder { .. } | Began::File { .. }, Node::File(_) | Node::Folder(_)) => {}
        }
    }

    /// The same disk after its process was killed, laid out anew in an empty folder: a trace of what
    /// is done there can be followed from here.
    pub(crate) fn killed(&self, target: &Path) -> Self {
        self.cut_power(Survives::Everything, target);
        let mut moved = self.clone();
        moved.live.clear();
        moved.syncs.clear();
        moved.find(ROOT, target);
        moved
    }

    fn find(&mut self, node: usize, path: &Path) {
        let found = path.symlink_metadata().expect("laid out");
        self.live.insert((found.dev(), found.ino()), node);
        if let Node::Folder(folder) = &self.nodes[node] {
            for (name, node) in folder.now.clone() {
                self.find(node, &path.join(std::ffi::OsStr::from_bytes(&name)));
            }
        }
    }

    /// Writes what a power cut leaves into an empty folder.
    pub(crate) fn cut_power(&self, survives: Survives, target: &Path) {
        let mut dice = match survives {
            Survives::Some(seed) => Some(Dice(seed)),
            Survives::Nothing | Survives::Everything => None,
        };
        self.lay_out(ROOT, survives, &mut dice, target);
    }

    fn lay_out(&self, node: usize, survives: Survives, dice: &mut Option<Dice>, target: &Path) {
        match &self.nodes[node] {
            Node::File(file) => file.surviving(survives, dice).lay_out(target),
            Node::Folder(folder) => {
                if !target.is_dir() {
                    std::fs::create_dir(target).expect("creates");
                }
                for (name, node) in folder.surviving(survives, dice) {
                    self.lay_out(node, survives, dice, &target.join(std::ffi::OsStr::from_bytes(&name)));
                }
            }
        }
    }

    /// Whether the page cache holds what the trace says: else some call went past the trace.
    ///
    /// # Panics
    /// If it does not, naming the first difference.
    pub(crate) fn assert_is(&self, root: &Path) {
        self.compare(ROOT, root);
    }

    fn compare(&self, node: usize, path: &Path) {
        let at = path.display();
        match &self.nodes[node] {
            Node::File(file) => {
                let found = std::fs::read(path).unwrap_or_else(|e| panic!("{at} is in the trace: {e}"));
                assert_eq!(found.len() as u64, file.now.bytes, "length of {at}");
                for (number, page) in found.chunks(PAGE).enumerate() {
                    let expected = file.now.pages.get(&(number as u64)).map_or(&[0; PAGE], |page| &**page);
                    assert!(page == &expected[..page.len()], "page {number} of {at} is not as traced");
                }
            }
            Node::Folder(folder) => {
                let mut found: Vec<_> = std::fs::read_dir(path)
                    .expect("lists")
                    .map(|entry| entry.expect("lists"))
                    .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir() || kind.is_file()))
                    .map(|entry| entry.file_name().as_bytes().to_vec())
                    .collect();
                found.sort();
                assert_eq!(found, folder.now.keys().cloned().collect::<Vec<_>>(), "names in {at}");
                for (name, node) in &folder.now {
                    self.compare(*node, &path.join(std::ffi::OsStr::from_bytes(name)));
                }
            }
        }
    }
}

impl FileNode {
    fn write(&mut self, at: u64, bytes: &[u8]) {
        let mut done = 0;
        while done < bytes.len() {
            let position = at + done as u64;
            let (number, start) = (position / PAGE as u64, (position % PAGE as u64) as usize);
            let count = (PAGE - start).min(bytes.len() - done);
            let page = self.now.pages.entry(number).or_insert_with(|| Arc::new([0; PAGE]));
            Arc::make_mut(page)[start..start + count].copy_from_slice(&bytes[done..done + count]);
            self.dirty.insert(number, false);
            done += count;
        }
        self.now.bytes = self.now.bytes.max(at + bytes.len() as u64);
    }

    fn zero(&mut self, at: u64, bytes: u64) {
        let page = PAGE as u64;
        let end = at + bytes;
        let (first, last) = (at.next_multiple_of(page), end / page * page);
        if first >= last {
            return self.write(at, &vec![0; bytes as usize]);
        }
        self.write(at, &vec![0; (first - at) as usize]);
        for number in first / page..last / page {
            self.now.pages.remove(&number);
            self.dirty.insert(number, false);
        }
        self.now.bytes = self.now.bytes.max(last);
        self.write(last, &vec![0; (end - last) as usize]);
    }

    fn resize(&mut self, bytes: u64) {
        let page = PAGE as u64;
        if bytes < self.now.bytes {
            let kept = bytes.next_multiple_of(page);
            self.zero(bytes, kept - bytes);
            for number in self.now.pages.split_off(&(kept / page)).into_keys() {
                self.dirty.insert(number, false);
            }
        }
        self.now.bytes = bytes;
    }

    fn synced(&mut self, pages: BTreeMap<u64, Option<Page>>, bytes: u64, ok: bool) {
        for (number, page) in pages {
            let now = self.now.pages.get(&number);
            let untouched = match (&page, now) {
                (Some(then), Some(now)) => Arc::ptr_eq(then, now),
                (None, None) => true,
                (Some(_), None) | (None, Some(_)) => false,
            };
            if !ok {
                if untouched {
                    self.dirty.insert(number, true);
                }
                continue;
            }
            if untouched {
                self.dirty.remove(&number);
            }
            match page {
                Some(page) => self.durable.pages.insert(number, page),
                None => self.durable.pages.remove(&number),
            };
        }
        if ok {
            self.durable.bytes = bytes;
        }
    }

    fn surviving(&self, survives: Survives, dice: &mut Option<Dice>) -> Content {
        let mut content = self.durable.clone();
        if let Survives::Everything = survives {
            return self.now.clone();
        }
        let Some(dice) = dice else { return content };
        if dice.below(2) == 0 {
            content.bytes = self.now.bytes;
        }
        for number in self.dirty.keys() {
            let now = self.now.pages.get(number);
            match dice.below(3) {
                0 => {}
                1 => match now {
                    Some(page) => drop(content.pages.insert(*number, Arc::clone(page))),
                    None => drop(content.pages.remove(number)),
                },
                _ => {
                    let page = content.pages.entry(*number).or_insert_with(|| Arc::new([0; PAGE]));
                    let now = now.map_or(&[0; PAGE], |page| &**page);
                    for at in (0..PAGE).step_by(SECTOR).filter(|_| dice.below(2) == 0) {
                        Arc::make_mut(page)[at..at + SECTOR].copy_from_slice(&now[at..at + SECTOR]);
                    }
                }
            }
        }
        content
    }
}

impl FolderNode {
    fn synced(&mut self, changes_before: u64) {
        let durable = &mut self.durable;
        self.changes.retain(|(number, change)| {
            let covered = *number < changes_before;
            if covered {
                change.apply(durable);
            }
            !covered
        });
    }

    fn surviving(&self, survives: Survives, dice: &mut Option<Dice>) -> BTreeMap<Vec<u8>, usize> {
        if let Survives::Everything = survives {
            return self.now.clone();
        }
        let mut entries = self.durable.clone();
        if let Some(dice) = dice {
            for (_, change) in self.changes.iter().filter(|_| dice.below(2) == 0) {
                change.apply(&mut entries);
            }
        }
        entries
    }
}

impl Content {
    fn lay_out(&self, target: &Path) {
        let file = File::create(target).expect("creates");
        for (number, page) in &self.pages {
            let at = number * PAGE as u64;
            let count = self.bytes.saturating_sub(at).min(PAGE as u64) as usize;
            file.write_all_at(&page[..count], at).expect("writes");
        }
        file.set_len(self.bytes).expect("resizes");
    }
}

/// A small generator: the same number, the same answers.
#[derive(Debug)]
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        // SplitMix64 (Steele, Lea and Flood, 2014).
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}
