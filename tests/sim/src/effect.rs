//! Storage commands as the single effects that the file adapter makes of them, in its order.

use crate::fault::{Counts, Fault};
use crate::fs::{Fs, Name};
use crate::rng::Choose;
use std::collections::{BTreeSet, VecDeque};
use strandline_core::error::{StorageAction, StorageCause, StorageFault};
use strandline_core::journal::command::{FileName, StorageCommand, StorageCompletion};

/// One effect on the folder. A process can end before each of them.
#[derive(Clone, Debug, Eq, PartialEq)]
enum Effect {
    /// What a process does when it opens a directory.
    Open,
    Create(Name),
    Write {
        name: Name,
        offset: usize,
        bytes: Vec<u8>,
    },
    /// Overwrites with zeros what is none, from here to the end.
    Blank {
        name: Name,
        offset: usize,
    },
    Sync(Name),
    SyncFolder,
    Rename(Name, Name),
    Remove(Name),
    /// Nothing but the answer.
    Answer,
}

/// Faults that wait for the next effect they can hit.
#[derive(Clone, Debug, Default)]
pub struct Armed {
    /// Each hits once.
    pub once: BTreeSet<Fault>,
    /// No file grows while this is set.
    pub full: bool,
}

/// An append, as the model must know it to judge damage.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Appended {
    /// Which segment.
    pub segment: u64,
    /// Where the batch starts.
    pub offset: u64,
    /// How long it is.
    pub bytes: u64,
    /// LSN of its first entry, or of the next one if it has none.
    pub first_lsn: u64,
}

/// A storage command being executed.
#[derive(Debug)]
pub struct StorageJob {
    command: StorageCommand,
    effects: VecDeque<Effect>,
    /// How many bytes a cut found.
    cut: u64,
    appended: Option<Appended>,
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).expect("small files")
}

impl StorageJob {
    /// Splits a command. `temporary` is a number that no file on its way has.
    #[must_use]
    pub fn new(mut command: StorageCommand, temporary: u64, choose: &mut dyn Choose) -> Self {
        let through_temporary = |file, bytes: Vec<u8>, choose: &mut dyn Choose| {
            let (temporary, name) = (Name::Temporary(temporary), Name::File(file));
            let mut effects = VecDeque::from([Effect::Create(temporary)]);
            effects.extend(pieces(temporary, 0, bytes, choose));
            effects.extend([
                Effect::Sync(temporary),
                Effect::Rename(temporary, name),
                Effect::SyncFolder,
                Effect::Answer,
            ]);
            effects
        };
        let appended = appended(&command);
        let effects = match &mut command {
            StorageCommand::List { .. } => VecDeque::from([Effect::Open, Effect::Answer]),
            StorageCommand::Read { .. } => VecDeque::from([Effect::Answer]),
            StorageCommand::Prepare { segment, bytes, .. } => {
                through_temporary(FileName::Segment(*segment), vec![0; size(*bytes)], choose)
            }
            StorageCommand::Append { segment, offset, bytes, .. } => {
                let name = Name::File(FileName::Segment(*segment));
                let mut effects: VecDeque<Effect> =
                    pieces(name, size(*offset), std::mem::take(bytes), choose).collect();
                effects.extend([Effect::Sync(name), Effect::Answer]);
                effects
            }
            StorageCommand::Cut { segment, offset, .. } => {
                let name = Name::File(FileName::Segment(*segment));
                let blank = Effect::Blank { name, offset: size(*offset) };
                VecDeque::from([blank, Effect::Sync(name), Effect::Answer])
            }
            StorageCommand::Replace { file, bytes, .. } => {
                through_temporary(*file, std::mem::take(bytes), choose)
            }
            StorageCommand::Write { file, offset, bytes, .. } => {
                let name = Name::File(*file);
                let create = (*offset == 0).then_some(Effect::Create(name));
                let mut effects: VecDeque<Effect> = create.into_iter().collect();
                effects.extend(pieces(name, size(*offset), std::mem::take(bytes), choose));
                effects.push_back(Effect::Answer);
                effects
            }
            StorageCommand::Sync { file, .. } => {
                VecDeque::from([Effect::Sync(Name::File(*file)), Effect::SyncFolder, Effect::Answer])
            }
            StorageCommand::Remove { files, .. } => {
                let mut effects: VecDeque<Effect> =
                    files.iter().map(|file| Effect::Remove(Name::File(*file))).collect();
                effects.extend([Effect::SyncFolder, Effect::Answer]);
                effects
            }
        };
        Self { command, effects, cut: 0, appended }
    }

    /// The command, without the bytes it writes.
    pub const fn command(&self) -> &StorageCommand {
        &self.command
    }

    /// The batch it appends, if it is one.
    #[must_use]
    pub const fn appended(&self) -> Option<Appended> {
        self.appended
    }

    /// Executes one effect; the answer, if that was the last one or it failed.
    pub fn advance(
        &mut self,
        fs: &mut Fs,
        armed: &mut Armed,
        choose: &mut dyn Choose,
        counts: &mut Counts,
    ) -> Option<Result<(), StorageFault>> {
        let effect = self.effects.pop_front().expect("an answered job is dropped");
        if effect == Effect::Answer {
            return Some(Ok(()));
        }
        match self.apply(effect, fs, armed, choose, counts) {
            Ok(()) => None,
            Err(fault) => {
                self.clean_up(fs);
                Some(Err(fault))
            }
        }
    }

    fn apply(
        &mut self,
        effect: Effect,
        fs: &mut Fs,
        armed: &mut Armed,
        choose: &mut dyn Choose,
        counts: &mut Counts,
    ) -> Result<(), StorageFault> {
        let mut hit = |fault: Fault| {
            let hits = armed.once.remove(&fault);
            if hits {
                counts.add(fault);
            }
            hits
        };
        match effect {
            Effect::Open => {
                fs.clean();
                fs.sync_folder();
            }
            Effect::Create(name) => fs.create(name),
            Effect::Write { name, offset, bytes } => {
                let grows = fs.bytes(name).is_none_or(|length| offset + bytes.len() > length);
                if armed.full && grows {
                    counts.add(Fault::FullDisk);
                    return Err(self.fault(StorageAction::Write, StorageCause::Full));
                }
                if hit(Fault::FailedWrite) {
                    return Err(self.fault(StorageAction::Write, StorageCause::Failed));
                }
                if bytes.len() > 1 && hit(Fault::ShortWrite) {
                    let some = 1 + choose.index(bytes.len() - 1);
                    fs.write(name, offset, &bytes[..some]);
                    return Err(self.fault(StorageAction::Write, StorageCause::Failed));
                }
                if !fs.write(name, offset, &bytes) {
                    return Err(self.fault(StorageAction::Write, StorageCause::Missing));
                }
            }
            Effect::Blank { name, offset } => {
                let bytes = fs.read(name, offset, usize::MAX);
                let Some(bytes) = bytes else {
                    return Err(self.fault(StorageAction::Cut, StorageCause::Missing));
                };
                let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
                self.cut = end as u64;
                fs.write(name, offset, &vec![0; end]);
            }
            Effect::Sync(name) => {
                if hit(Fault::FailedSync) {
                    fs.fail_sync(name, choose);
                    return Err(self.fault(StorageAction::Sync, StorageCause::Failed));
                }
                if !fs.sync(name) {
                    return Err(self.fault(StorageAction::Sync, StorageCause::Missing));
                }
            }
            Effect::SyncFolder => {
                if hit(Fault::FailedSync) {
                    return Err(self.fault(StorageAction::Sync, StorageCause::Failed));
                }
                fs.sync_folder();
            }
            Effect::Rename(from, to) => fs.rename(from, to),
            Effect::Remove(name) => fs.remove(name),
            Effect::Answer => unreachable!("an answer is no effect"),
        }
        Ok(())
    }

    /// A replacement that failed before its rename leaves nothing behind.
    fn clean_up(&self, fs: &mut Fs) {
        for effect in &self.effects {
            if let Effect::Rename(from, _) = effect {
                fs.remove(*from);
            }
        }
    }

    fn fault(&self, action: StorageAction, cause: StorageCause) -> StorageFault {
        let file = match &self.command {
            StorageCommand::List { .. } | StorageCommand::Remove { .. } => ".".into(),
            StorageCommand::Prepare { segment, .. }
            | StorageCommand::Append { segment, .. }
            | StorageCommand::Cut { segment, .. } => FileName::Segment(*segment).to_string(),
            StorageCommand::Read { file, .. }
            | StorageCommand::Replace { file, .. }
            | StorageCommand::Write { file, .. }
            | StorageCommand::Sync { file, .. } => file.to_string(),
        };
        StorageFault { action, file, offset: None, cause, detail: "injected".into() }
    }

    /// Answers the command.
    #[must_use]
    pub fn complete(
        self,
        result: Result<(), StorageFault>,
        fs: &Fs,
        armed: &mut Armed,
        counts: &mut Counts,
    ) -> StorageCompletion {
        let read_fault = if let StorageCommand::Read { file, .. } = &self.command {
            if armed.once.remove(&Fault::FailedRead) {
                counts.add(Fault::FailedRead);
                Some(self.fault(StorageAction::Read, StorageCause::Failed))
            } else if fs.exists(Name::File(*file)) {
                None
            } else {
                Some(self.fault(StorageAction::Read, StorageCause::Missing))
            }
        } else {
            None
        };
        match self.command {
            StorageCommand::List { ticket } => ticket.complete(result.map(|()| fs.list())),
            StorageCommand::Read { ticket, file, offset, bytes_max } => {
                let bytes = fs.read(Name::File(file), size(offset), bytes_max as usize);
                ticket.complete(read_fault.map_or(Ok(()), Err).map(|()| bytes.expect("it exists")))
            }
            StorageCommand::Prepare { ticket, .. } => ticket.complete(result),
            StorageCommand::Append { ticket, .. } => ticket.complete(result),
            StorageCommand::Cut { ticket, .. } => ticket.complete(result.map(|()| self.cut)),
            StorageCommand::Replace { ticket, .. } => ticket.complete(result),
            StorageCommand::Write { ticket, .. } => ticket.complete(result),
            StorageCommand::Sync { ticket, .. } => ticket.complete(result),
            StorageCommand::Remove { ticket, .. } => ticket.complete(result),
        }
    }
}

/// The batch of an append that is none of a segment's header.
fn appended(command: &StorageCommand) -> Option<Appended> {
    let StorageCommand::Append { segment, offset, bytes, .. } = command else { return None };
    let first_lsn: [u8; 8] = bytes.get(8..16)?.try_into().ok()?;
    let (segment, offset, bytes) = (segment.0, *offset, bytes.len() as u64);
    (offset > 0).then(|| Appended { segment, offset, bytes, first_lsn: u64::from_be_bytes(first_lsn) })
}

/// A write as one or two calls of the system.
fn pieces(
    name: Name,
    offset: usize,
    mut bytes: Vec<u8>,
    choose: &mut dyn Choose,
) -> impl Iterator<Item = Effect> + use<> {
    let second = if bytes.len() > 1 && choose.once_in(4) {
        let at = 1 + choose.index(bytes.len() - 1);
        let rest = bytes.split_off(at);
        Some(Effect::Write { name, offset: offset + at, bytes: rest })
    } else {
        None
    };
    std::iter::once(Effect::Write { name, offset, bytes }).chain(second)
}
