//! `EventLog`: the bare journal's roots, one after the other, and a host that executes them on a
//! [`Disk`].

use super::disk::{Disk, Torn};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use strandline_core::id::{Incarnation, LogId, Lsn, Run};
use strandline_core::journal::command::{SegmentNumber, StorageCommand, StorageCompletion};
use strandline_core::journal::current::Current;
use strandline_core::journal::limits::JournalLimits;
use strandline_core::journal::log::{JournalLog, LogError, LogEvent, LogRecovery, Never, NotOpened, Opened};
use strandline_core::journal::recovery::{Origin, RecoveryFault};
use strandline_core::journal::writer::{AppendError, Halted, Journal, Switched};
use strandline_core::machine::{FrameInfo, Host, Machine, Next, Pending, Sent, drain};
use strandline_core::seed::Seed;
use strandline_core::time::{Instant, Now};

pub(crate) const LOG: LogId = LogId([7; 16]);

/// Later than every deadline.
pub(crate) const LATE: Now = Now { mono: Instant(u64::MAX), wall: strandline_core::time::WallTime(0) };

/// Limits so small that every bound is met within a few entries.
pub(crate) const SMALL: JournalLimits = JournalLimits {
    segment_bytes: 1024,
    batch_bytes_max: 160,
    entry_bytes_max: 100,
    pending_bytes_max: 400,
    pending_entries_max: 20,
    read_bytes_max: 100,
    journal_bytes_max: 4000,
    journal_entries_max: 200,
    seal_ms: 1000,
};

type Entries = Vec<(u64, u8, Vec<u8>)>;
type Visit = Box<dyn FnMut(Lsn, u8, &[u8]) -> Result<(), String>>;

#[derive(Debug)]
pub(crate) enum Event {
    Recovered(Opened),
    Refused(RecoveryFault),
    Entered(Switched),
    Durable(Lsn),
    Compacted(SegmentNumber),
    Halted(Halted),
}

enum State {
    Recovering(Box<LogRecovery<Visit>>),
    Live(Box<JournalLog>),
    Over,
}

/// A bare journal from its opening on.
pub(crate) struct EventLog {
    state: State,
    opened: VecDeque<Event>,
    visited: Rc<RefCell<Entries>>,
    pub(crate) entries: Entries,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Config {
    pub(crate) limits: JournalLimits,
    pub(crate) origin: Origin,
    pub(crate) first_segment: u64,
    pub(crate) run: u64,
}

/// Opens a log on a disk and runs it until nothing moves.
pub(crate) fn open(config: &Config, disk: Disk) -> (EventLog, DiskHost) {
    let (mut log, mut host) = (EventLog::open(config), DiskHost::new(disk));
    host.settle(&mut log);
    (log, host)
}

impl EventLog {
    pub(crate) fn open(config: &Config) -> Self {
        let visited = Rc::new(RefCell::new(Vec::new()));
        let entries = Rc::clone(&visited);
        let visit: Visit = Box::new(move |lsn, kind, bytes| {
            entries.borrow_mut().push((lsn.get(), kind, bytes.to_vec()));
            if kind == 255 { Err("kind 255".into()) } else { Ok(()) }
        });
        let seed = Seed::new([u8::try_from(config.run).expect("small"); 32]);
        let recovery = LogRecovery::resume(config.limits, seed, visit, current(config), config.origin);
        let state = State::Recovering(Box::new(recovery));
        Self { state, opened: VecDeque::new(), visited, entries: Vec::new() }
    }

    fn live(&mut self) -> &mut JournalLog {
        let State::Live(log) = &mut self.state else { panic!("not live") };
        log
    }

    pub(crate) fn journal(&mut self) -> &Journal {
        self.live().journal()
    }

    pub(crate) fn append(&mut self, events: &[(u8, &[u8])]) -> Result<Lsn, AppendError> {
        self.live().append(events).map(|(_, last)| last)
    }

    pub(crate) fn set_gate(&mut self, gate: Option<Lsn>) {
        self.live().hold_above(gate);
    }

    pub(crate) fn seal(&mut self) {
        self.live().seal();
    }

    pub(crate) fn switch_segment(&mut self) {
        self.live().switch_segment();
    }

    pub(crate) fn log(&mut self) -> &mut JournalLog {
        self.live()
    }

    pub(crate) fn stale(&mut self) -> u64 {
        self.live().stale()
    }

    /// Goes live, or ends, once recovery has.
    fn finish(&mut self) {
        let State::Recovering(recovery) = std::mem::replace(&mut self.state, State::Over) else {
            panic!("recovery is over")
        };
        self.entries.append(&mut self.visited.borrow_mut());
        match recovery.finish() {
            Ok((log, opened)) => {
                self.opened.push_back(Event::Recovered(opened));
                self.state = State::Live(Box::new(log));
            }
            Err(NotOpened::Working(recovery)) => self.state = State::Recovering(recovery),
            Err(NotOpened::Failed(LogError::Segments(fault))) => self.opened.push_back(Event::Refused(fault)),
            Err(NotOpened::Failed(LogError::Storage(fault))) => {
                self.opened.push_back(Event::Refused(RecoveryFault::Failed(fault)));
            }
            Err(NotOpened::Failed(other)) => panic!("{other}"),
        }
    }
}

/// What `current` would say.
fn current(config: &Config) -> Current {
    Current {
        log: LOG,
        incarnation: Incarnation { counter: 1, nonce: [0; 8] },
        identity: String::new(),
        namespaces: Vec::new(),
        run: Run(config.run),
        first_segment: SegmentNumber(config.first_segment),
        next_checkpoint: 1,
        checkpoint: None,
        floor: [0; 16],
        floor_digest: [0; 32],
        opaque: Vec::new(),
    }
}

impl Machine for EventLog {
    type Command = StorageCommand;
    type Event = Event;
    type Completion = StorageCompletion;
    type Channel = Never;

    fn handle_completion(&mut self, now: Now, completion: StorageCompletion) {
        match &mut self.state {
            State::Recovering(recovery) => {
                recovery.handle_completion(now, completion);
                self.finish();
            }
            State::Live(log) => log.handle_completion(now, completion),
            State::Over => {}
        }
    }

    fn handle_timeout(&mut self, now: Now) {
        self.live().handle_timeout(now);
    }

    fn poll_command(&mut self) -> Option<StorageCommand> {
        match &mut self.state {
            State::Recovering(recovery) => recovery.poll_command(),
            State::Live(log) => log.poll_command(),
            State::Over => None,
        }
    }

    fn poll_event(&mut self) -> Option<Event> {
        if let Some(event) = self.opened.pop_front() {
            return Some(event);
        }
        let State::Live(log) = &mut self.state else { return None };
        log.poll_event().map(|event| match event {
            LogEvent::Durable(lsn) => Event::Durable(lsn),
            LogEvent::Entered(switched) => Event::Entered(switched),
            LogEvent::Compacted { first_segment } => Event::Compacted(first_segment),
            LogEvent::NotRemoved(fault) | LogEvent::NotCheckpointed(fault) => panic!("{fault}"),
            LogEvent::Checkpointed { .. } => panic!("nobody asked for a checkpoint"),
            LogEvent::Halted(halted) => Event::Halted(halted),
        })
    }

    fn poll_channel(&mut self, channel: Never, _: &mut Vec<u8>) -> Option<FrameInfo> {
        match channel {}
    }

    fn pending(&self) -> Pending {
        match &self.state {
            State::Recovering(recovery) => recovery.pending(),
            State::Live(log) => log.pending(),
            State::Over => Pending::default(),
        }
    }
}

/// Executes commands on a disk; can hold them back, and can lose power at one of them.
#[derive(Default)]
pub(crate) struct DiskHost {
    pub(crate) disk: Disk,
    pub(crate) completions: VecDeque<StorageCompletion>,
    pub(crate) events: Vec<Event>,
    /// Hold commands back instead of executing them.
    pub(crate) hold: bool,
    pub(crate) held: VecDeque<StorageCommand>,
    /// How many bytes each executed command wrote.
    pub(crate) written: Vec<usize>,
    /// Crash at the command of this number.
    pub(crate) crash_at: Option<(usize, Torn)>,
    pub(crate) crashed: bool,
}

impl Host<EventLog> for DiskHost {
    fn execute(&mut self, command: StorageCommand) {
        if self.crashed {
            return;
        }
        if self.hold {
            self.held.push_back(command);
            return;
        }
        let number = self.written.len();
        self.written.push(self.disk.written(&command));
        match self.crash_at {
            Some((at, torn)) if at == number => {
                self.disk.execute_torn(command, torn);
                self.crashed = true;
            }
            Some(_) | None => self.completions.push_back(self.disk.execute(command)),
        }
    }

    fn notify(&mut self, event: Event) {
        self.events.push(event);
    }

    fn ready(&mut self) -> Option<Never> {
        None
    }

    fn send(&mut self, channel: Never, _: &[u8]) -> Sent {
        match channel {}
    }

    fn done(&mut self, channel: Never) {
        match channel {}
    }
}

impl DiskHost {
    pub(crate) fn new(disk: Disk) -> Self {
        Self { disk, ..Self::default() }
    }

    /// Runs until nothing moves any more.
    pub(crate) fn settle(&mut self, log: &mut EventLog) {
        let mut buf = Vec::new();
        loop {
            let next = drain(log, self, &mut buf, 64);
            if self.crashed {
                return;
            }
            match (self.completions.pop_front(), next) {
                (Some(completion), _) => log.handle_completion(Now::default(), completion),
                (None, Next::More) => {}
                (None, Next::Sleep(_)) => return,
            }
        }
    }

    /// Executes what was held back, and goes on without holding.
    pub(crate) fn release(&mut self, log: &mut EventLog) {
        self.hold = false;
        while let Some(command) = self.held.pop_front() {
            self.execute(command);
        }
        self.settle(log);
    }

    /// The highest LSN reported durable.
    pub(crate) fn durable(&self) -> u64 {
        let durable = self.events.iter().filter_map(|event| match event {
            Event::Durable(lsn) => Some(lsn.get()),
            Event::Recovered(_)
            | Event::Refused(_)
            | Event::Entered(_)
            | Event::Compacted(_)
            | Event::Halted(_) => None,
        });
        durable.max().unwrap_or(0)
    }

    /// Whether a log was opened, so that its first segment must be there from now on.
    pub(crate) fn opened(&self) -> bool {
        self.events.iter().any(|event| matches!(event, Event::Recovered(_)))
    }

    pub(crate) fn halted(&self) -> bool {
        self.events.iter().any(|event| matches!(event, Event::Halted(_)))
    }

    pub(crate) fn refused(&self) -> Option<&RecoveryFault> {
        self.events.iter().find_map(|event| match event {
            Event::Refused(fault) => Some(fault),
            Event::Recovered(_)
            | Event::Entered(_)
            | Event::Durable(_)
            | Event::Compacted(_)
            | Event::Halted(_) => None,
        })
    }

    pub(crate) fn recovered(&self) -> &Opened {
        let found = self.events.iter().find_map(|event| match event {
            Event::Recovered(opened) => Some(opened),
            Event::Refused(_)
            | Event::Entered(_)
            | Event::Durable(_)
            | Event::Compacted(_)
            | Event::Halted(_) => None,
        });
        found.unwrap_or_else(|| panic!("not recovered: {:?}", self.events))
    }
}
