//! A directory in memory. What is not synced is lost in a power cut, and what was being written
//! when it came is torn anywhere.

use std::collections::BTreeMap;
use strandline_core::error::{StorageAction, StorageCause, StorageFault};
use strandline_core::journal::command::{FileName, Listed, SegmentNumber, StorageCommand, StorageCompletion};

/// One file: what reads see, and what survives a power cut (`None`: the file does not).
#[derive(Clone, Debug, Default)]
pub(crate) struct File {
    pub(crate) cache: Vec<u8>,
    pub(crate) durable: Option<Vec<u8>>,
}

/// Which bytes of the write that a power cut interrupts reach the disk.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Torn {
    /// The first ones only.
    First(usize),
    /// All but the first ones: sectors land in any order.
    AllBut(usize),
    /// All of them, into the page cache alone: the process dies, the machine does not.
    Cached,
}

impl Torn {
    fn lands(self, at: usize) -> bool {
        match self {
            Self::First(n) => at < n,
            Self::AllBut(n) => at >= n,
            Self::Cached => true,
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    pub(crate) files: BTreeMap<FileName, File>,
    pub(crate) copies: Vec<(SegmentNumber, u64, Vec<u8>)>,
    /// Every command of this kind fails, after its bytes went who knows where.
    pub(crate) failing: Option<StorageAction>,
    /// How many appends were executed.
    pub(crate) appends: u64,
    /// What reads of segments gave.
    pub(crate) segment_bytes_read: u64,
}

impl Disk {
    /// What a power cut leaves.
    pub(crate) fn power_cut(&mut self) {
        self.files.retain(|_, file| file.durable.is_some());
        for file in self.files.values_mut() {
            file.cache = file.durable.clone().expect("retained");
        }
    }

    pub(crate) fn segment(&mut self, number: u64) -> &mut Vec<u8> {
        &mut self.files.get_mut(&FileName::Segment(SegmentNumber(number))).expect("there").cache
    }

    /// Changes a segment as a fault of the disk does: for good.
    pub(crate) fn damage(&mut self, number: u64, change: impl FnOnce(&mut Vec<u8>)) {
        change(self.segment(number));
        self.sync(FileName::Segment(SegmentNumber(number)));
    }

    pub(crate) fn sync(&mut self, file: FileName) {
        let file = self.files.entry(file).or_default();
        file.durable = Some(file.cache.clone());
    }

    /// Executes a command whole.
    pub(crate) fn execute(&mut self, command: StorageCommand) -> StorageCompletion {
        match command {
            StorageCommand::List { ticket } => {
                ticket.complete(self.result(StorageAction::List, |disk| disk.list()))
            }
            StorageCommand::Read { ticket, file, offset, bytes_max } => {
                ticket.complete(self.result(StorageAction::Read, |disk| disk.read(file, offset, bytes_max)))
            }
            StorageCommand::Prepare { ticket, segment, bytes } => {
                ticket.complete(self.result(StorageAction::Prepare, |disk| disk.prepare(segment, bytes)))
            }
            StorageCommand::Append { ticket, segment, offset, bytes } => {
                self.appends += 1;
                ticket
                    .complete(self.result(StorageAction::Write, |disk| disk.append(segment, offset, &bytes)))
            }
            StorageCommand::Cut { ticket, segment, offset } => {
                ticket.complete(self.result(StorageAction::Cut, |disk| disk.cut(segment, offset)))
            }
            StorageCommand::Replace { ticket, file, bytes } => {
                ticket.complete(self.result(StorageAction::Replace, |disk| {
                    disk.files.insert(file, File { durable: Some(bytes.clone()), cache: bytes });
                }))
            }
            StorageCommand::Write { ticket, file, offset, bytes } => {
                ticket.complete(self.result(StorageAction::Write, |disk| disk.write(file, offset, &bytes)))
            }
            StorageCommand::Sync { ticket, file } => {
                ticket.complete(self.result(StorageAction::Sync, |disk| disk.sync(file)))
            }
            StorageCommand::Remove { ticket, files } => {
                ticket.complete(self.result(StorageAction::Remove, |disk| {
                    disk.files.retain(|name, _| !files.contains(name));
                }))
            }
        }
    }

    /// How many bytes a command writes, for tearing it.
    pub(crate) fn written(&self, command: &StorageCommand) -> usize {
        match command {
            StorageCommand::Append { bytes, .. } => bytes.len(),
            StorageCommand::Prepare { bytes, .. } => usize::try_from(*bytes).expect("small"),
            StorageCommand::Cut { segment, offset, .. } => {
                self.files[&FileName::Segment(*segment)].cache.len()
                    - usize::try_from(*offset).expect("small")
            }
            StorageCommand::List { .. }
            | StorageCommand::Read { .. }
            | StorageCommand::Replace { .. }
            | StorageCommand::Write { .. }
            | StorageCommand::Sync { .. }
            | StorageCommand::Remove { .. } => 0,
        }
    }

    /// Executes a command as far as `torn` says, then loses power (or the process).
    pub(crate) fn execute_torn(&mut self, command: StorageCommand, torn: Torn) {
        let (file, offset) = match &command {
            StorageCommand::Append { segment, offset, .. } | StorageCommand::Cut { segment, offset, .. } => {
                (FileName::Segment(*segment), usize::try_from(*offset).expect("small"))
            }
            StorageCommand::Prepare { segment, .. } => (FileName::Segment(*segment), 0),
            StorageCommand::List { .. }
            | StorageCommand::Read { .. }
            | StorageCommand::Replace { .. }
            | StorageCommand::Write { .. }
            | StorageCommand::Sync { .. }
            | StorageCommand::Remove { .. } => return self.power_cut(),
        };
        let before = self.files.get(&file).cloned().unwrap_or_default();
        let prepare = matches!(command, StorageCommand::Prepare { .. });
        let _late = self.execute(command);
        let file = self.files.get_mut(&file).expect("it was written");
        match torn {
            Torn::Cached => file.durable = before.durable,
            Torn::First(n) if prepare => {
                // Preparing replaces the old file: its directory entry and length come first.
                file.cache.truncate(n);
                file.durable = Some(file.cache.clone());
                self.power_cut();
            }
            Torn::First(_) | Torn::AllBut(_) => {
                let old = before.durable.unwrap_or_default();
                let mixed = file.cache.iter().enumerate().map(|(at, new)| {
                    let old = old.get(at).copied().unwrap_or(0);
                    if at >= offset && torn.lands(at - offset) { *new } else { old }
                });
                file.durable = Some(mixed.collect());
                self.power_cut();
            }
        }
    }

    fn result<T>(
        &mut self,
        action: StorageAction,
        run: impl FnOnce(&mut Self) -> T,
    ) -> Result<T, StorageFault> {
        let value = run(self);
        if self.failing != Some(action) {
            return Ok(value);
        }
        Err(StorageFault {
            action,
            file: "disk".into(),
            offset: None,
            cause: StorageCause::Failed,
            detail: "injected".into(),
        })
    }

    fn list(&self) -> Vec<Listed> {
        self.files.iter().map(|(file, f)| Listed { file: *file, bytes: f.cache.len() as u64 }).collect()
    }

    fn read(&mut self, file: FileName, offset: u64, bytes_max: u32) -> Vec<u8> {
        let bytes = &self.files[&file].cache;
        let from = usize::try_from(offset).expect("small").min(bytes.len());
        let read: Vec<u8> = bytes[from..].iter().copied().take(bytes_max as usize).collect();
        if matches!(file, FileName::Segment(_)) {
            self.segment_bytes_read += read.len() as u64;
        }
        read
    }

    fn prepare(&mut self, segment: SegmentNumber, bytes: u64) {
        let zeros = vec![0; usize::try_from(bytes).expect("small")];
        self.files.insert(FileName::Segment(segment), File { cache: zeros.clone(), durable: Some(zeros) });
    }

    /// Makes the bytes durable, not the directory entry: that was the work of the prepare.
    fn append(&mut self, segment: SegmentNumber, offset: u64, bytes: &[u8]) {
        self.write(FileName::Segment(segment), offset, bytes);
        let file = self.files.get_mut(&FileName::Segment(segment)).expect("written");
        if file.durable.is_some() {
            file.durable = Some(file.cache.clone());
        }
    }

    fn write(&mut self, file: FileName, offset: u64, bytes: &[u8]) {
        let (file, from) = (self.files.entry(file).or_default(), usize::try_from(offset).expect("small"));
        file.cache.resize(file.cache.len().max(from + bytes.len()), 0);
        file.cache[from..from + bytes.len()].copy_from_slice(bytes);
    }

    fn cut(&mut self, segment: SegmentNumber, offset: u64) -> u64 {
        let from = usize::try_from(offset).expect("small");
        let file = &mut self.files.get_mut(&FileName::Segment(segment)).expect("there").cache;
        let end = file.iter().rposition(|b| *b != 0).map_or(from, |last| last + 1).max(from);
        self.copies.push((segment, offset, file[from..end].to_vec()));
        file[from..].fill(0);
        self.sync(FileName::Segment(segment));
        (end - from) as u64
    }
}
