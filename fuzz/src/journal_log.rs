//! A bare journal under any order of operations: appends, switches, compactions, pins, answers in any
//! order that is allowed, failures, power cuts, late answers.

use crate::disk::Disk;
use crate::input::Input;
use std::collections::BTreeMap;
use strandline_core::error::{StorageAction, StorageCause, StorageFault};
use strandline_core::id::Lsn;
use strandline_core::journal::command::{FileName, StorageCommand, StorageCompletion};
use strandline_core::journal::limits::JournalLimits;
use strandline_core::journal::log::{JournalLog, LogEvent, LogRecovery, NotOpened, Pin};
use strandline_core::machine::Machine;
use strandline_core::seed::Seed;
use strandline_core::time::Now;

const LIMITS: JournalLimits = JournalLimits {
    segment_bytes: 1024,
    batch_bytes_max: 160,
    entry_bytes_max: 100,
    pending_bytes_max: 400,
    pending_entries_max: 20,
    read_bytes_max: 100,
    journal_bytes_max: 4000,
    journal_entries_max: 60,
    seal_ms: 1000,
};
const OPERATIONS_MAX: usize = 2000;
/// An append, a segment under preparation, `current`, and removals that may come with each pin.
const COMMANDS_MAX: usize = 3 + 8;

/// What was appended: kind and bytes by LSN.
type Entries = BTreeMap<Lsn, (u8, Vec<u8>)>;

struct Driven {
    log: JournalLog,
    disk: Disk,
    commands: Vec<StorageCommand>,
    late: Vec<StorageCommand>,
    pins: Vec<Pin>,
    /// Everything appended, as far as it was not lost before it was said to be durable.
    appended: Entries,
    durable: Option<Lsn>,
    /// No entry below this one is kept for sure.
    dropped_below: Option<Lsn>,
    now: Now,
    starts: u8,
    halted: bool,
}

/// Whatever the operations are: nothing panics; the durable prefix never shrinks, also over a power cut,
/// and is read back as it was appended; a refused append appends nothing; late answers change nothing;
/// no more commands are out than there is work. Says whether anything became durable.
///
/// # Panics
/// If a promise is broken.
pub fn check(data: &[u8]) -> bool {
    let mut input = Input::new(data);
    let mut disk = Disk::default();
    let (log, _) = opened(&mut disk, 1, false);
    let mut driven = Driven {
        log,
        disk,
        commands: Vec::new(),
        late: Vec::new(),
        pins: Vec::new(),
        appended: Entries::new(),
        durable: None,
        dropped_below: None,
        now: Now::default(),
        starts: 1,
        halted: false,
    };
    for _ in 0..OPERATIONS_MAX {
        let Some(operation) = input.next() else { break };
        driven.operate(operation, &mut input);
        driven.look();
    }
    driven.crash();
    driven.durable.is_some()
}

/// Opens or makes the journal, and says what is in it.
fn opened(disk: &mut Disk, start: u8, open: bool) -> (JournalLog, Entries) {
    let mut entries = Entries::new();
    let mut visit = |lsn: Lsn, kind: u8, bytes: &[u8]| {
        assert!(entries.insert(lsn, (kind, bytes.to_vec())).is_none(), "{lsn:?} twice");
        Ok(())
    };
    let seed = Seed::new([start; 32]);
    let mut recovery = if open {
        LogRecovery::open(LIMITS, seed, &mut visit)
    } else {
        LogRecovery::create(LIMITS, seed, &mut visit)
    };
    let log = loop {
        while let Some(command) = recovery.poll_command() {
            let completion = disk.execute(command);
            recovery.handle_completion(Now::default(), completion);
        }
        match recovery.finish() {
            Ok((log, _)) => break log,
            Err(NotOpened::Working(back)) => recovery = *back,
            Err(NotOpened::Failed(error)) => panic!("a disk that keeps what it synced: {error}"),
        }
    };
    (log, entries)
}

fn fault(action: StorageAction) -> StorageFault {
    let (file, detail) = ("disk".into(), "injected".into());
    StorageFault { action, file, offset: None, cause: StorageCause::Failed, detail }
}

impl Driven {
    fn operate(&mut self, operation: u8, input: &mut Input<'_>) {
        match operation % 16 {
            0..=3 => self.append(input),
            4 => self.log.seal(),
            5 => self.log.switch_segment(),
            6 => {
                let upto = self.durable.map_or(1, Lsn::get).saturating_sub(u64::from(input.byte() % 8));
                if let Some(lsn) = Lsn::new(upto.max(1)) {
                    let _ = self.log.compact_to(lsn);
                    self.dropped_below = self.dropped_below.max(Some(lsn));
                }
            }
            7 => {
                if self.pins.len() < 4 && input.below(2) == 0 {
                    self.pins.push(self.log.pin());
                } else if let Some(pin) = self.pins.pop() {
                    self.log.unpin(pin);
                }
            }
            8 => {
                let next = self.log.journal().submitted_next_lsn();
                self.log.hold_above((input.below(3) == 0).then_some(next));
            }
            9 => {
                self.now.mono = self.now.mono.after_ms(u64::from(input.byte()) * 16);
                self.log.handle_timeout(self.now);
            }
            10 if input.below(8) == 0 => self.fail(input),
            11 if input.below(4) == 0 => self.crash(),
            12 => self.late(),
            _ => {
                if let Some(command) = self.pick(input) {
                    let completion = self.disk.execute(command);
                    self.answered(completion);
                }
            }
        }
    }

    fn append(&mut self, input: &mut Input<'_>) {
        let entries: Vec<(u8, Vec<u8>)> =
            (0..input.below(4)).map(|_| (input.byte(), vec![input.byte(); input.below(120)])).collect();
        let refs: Vec<(u8, &[u8])> = entries.iter().map(|(kind, bytes)| (*kind, bytes.as_slice())).collect();
        let before = self.log.journal().submitted_next_lsn();
        match self.log.append(&refs) {
            Ok((first, last)) => {
                assert_eq!(first, before, "a place is left out, or given twice");
                assert_eq!(last.get() - first.get() + 1, entries.len() as u64);
                self.appended.extend((first.get()..).filter_map(Lsn::new).zip(entries));
            }
            Err(_) => assert_eq!(self.log.journal().submitted_next_lsn(), before, "refused, and appended"),
        }
    }

    /// Takes out a command that may be executed next: appends and cuts keep their order.
    fn pick(&mut self, input: &mut Input<'_>) -> Option<StorageCommand> {
        if self.commands.is_empty() {
            return None;
        }
        let ordered =
            |c: &StorageCommand| matches!(c, StorageCommand::Append { .. } | StorageCommand::Cut { .. });
        let at = input.below(self.commands.len());
        let first = self.commands.iter().position(ordered);
        let at = first.filter(|_| ordered(&self.commands[at])).unwrap_or(at);
        Some(self.commands.remove(at))
    }

    fn answered(&mut self, completion: StorageCompletion) {
        self.log.handle_completion(self.now, completion);
    }

    /// A command fails after its bytes went who knows where.
    fn fail(&mut self, input: &mut Input<'_>) {
        let Some(command) = self.pick(input) else { return };
        let mut untouched = self.disk.clone();
        let disk = if input.below(2) == 0 { &mut self.disk } else { &mut untouched };
        let action = match &command {
            StorageCommand::Append { .. } | StorageCommand::Write { .. } => StorageAction::Write,
            StorageCommand::Prepare { .. } => StorageAction::Prepare,
            StorageCommand::Replace { .. } => StorageAction::Replace,
            StorageCommand::Remove { .. } => StorageAction::Remove,
            StorageCommand::Cut { .. } => StorageAction::Cut,
            StorageCommand::Sync { .. } => StorageAction::Sync,
            StorageCommand::Read { .. } => StorageAction::Read,
            StorageCommand::List { .. } => StorageAction::List,
        };
        disk.failing = Some(action);
        let completion = disk.execute(command);
        disk.failing = None;
        self.answered(completion);
    }

    /// An answer to a command of an earlier run counts as stale, and for nothing else.
    fn late(&mut self) {
        let Some(command) = self.late.pop() else { return };
        let (stale, durable) = (self.log.stale(), self.log.journal().durable());
        let completion = match command {
            StorageCommand::Append { ticket, .. } => ticket.complete(Ok(())),
            StorageCommand::Replace { ticket, .. } => ticket.complete(Err(fault(StorageAction::Replace))),
            StorageCommand::Prepare { ticket, .. } => ticket.complete(Ok(())),
            StorageCommand::Remove { ticket, .. } => ticket.complete(Ok(())),
            StorageCommand::Cut { ticket, .. } => ticket.complete(Ok(0)),
            StorageCommand::Write { ticket, .. } => ticket.complete(Ok(())),
            StorageCommand::Sync { ticket, .. } => ticket.complete(Ok(())),
            StorageCommand::Read { ticket, .. } => ticket.complete(Ok(Vec::new())),
            StorageCommand::List { ticket } => ticket.complete(Ok(Vec::new())),
        };
        self.answered(completion);
        assert_eq!((self.log.stale(), self.log.journal().durable()), (stale + 1, durable));
    }

    fn look(&mut self) {
        while let Some(command) = self.log.poll_command() {
            self.commands.push(command);
        }
        assert!(self.commands.len() <= COMMANDS_MAX, "{} commands are out", self.commands.len());
        while let Some(event) = self.log.poll_event() {
            match event {
                LogEvent::Durable(lsn) => {
                    assert!(!self.halted, "durable after a fault");
                    assert!(Some(lsn) > self.durable, "{lsn:?} is durable after {:?}", self.durable);
                    assert!(self.appended.contains_key(&lsn), "{lsn:?} was never appended");
                    self.durable = Some(lsn);
                }
                LogEvent::Halted(_) => {
                    assert!(!self.halted, "halted twice");
                    self.halted = true;
                }
                LogEvent::Entered(_) | LogEvent::Compacted { .. } | LogEvent::NotRemoved(_) => {}
                LogEvent::Checkpointed { .. } | LogEvent::NotCheckpointed(_) => panic!("nobody asked"),
            }
        }
        let pending = self.log.pending();
        assert!(!pending.commands && !pending.events);
        let bytes = self.disk.files.iter().filter(|(name, _)| matches!(name, FileName::Segment(_)));
        assert!(bytes.count() <= 4000 / 100 + 4, "segments pile up");
    }

    /// The power goes, and the journal is opened again: the durable entries are there, as they were
    /// appended, then perhaps some that were on their way, and nothing else.
    fn crash(&mut self) {
        self.disk.power_cut();
        self.late.append(&mut self.commands);
        self.late.truncate(16);
        self.pins.clear();
        self.starts = self.starts.wrapping_add(1);
        let (log, found) = opened(&mut self.disk, self.starts, true);
        (self.log, self.halted) = (log, false);
        if let Some(durable) = self.durable
            && self.dropped_below.is_none_or(|below| below <= durable)
        {
            assert!(found.contains_key(&durable), "{durable:?} was durable and is gone");
        }
        for (lsn, entry) in &found {
            assert_eq!(self.appended.get(lsn), Some(entry), "{lsn:?} is not what was appended");
        }
        let kept = self.dropped_below.into_iter().chain(found.keys().next().copied()).min();
        for (lsn, _) in self.appended.range(kept.unwrap_or(Lsn::FIRST)..) {
            let needed = Some(*lsn) <= self.durable && Some(*lsn) >= self.dropped_below;
            assert!(!needed || found.contains_key(lsn), "{lsn:?} was durable and is gone");
        }
        let last = found.keys().last().copied();
        self.appended.retain(|lsn, _| Some(*lsn) <= last || Some(*lsn) <= self.durable);
        self.durable = self.durable.max(last);
        let next = self.log.journal().submitted_next_lsn();
        assert!(self.durable.is_none_or(|durable| next > durable), "a place is given twice");
        self.appended.retain(|lsn, _| *lsn < next);
    }
}
