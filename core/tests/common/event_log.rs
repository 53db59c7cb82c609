//! `EventLog`: the smallest root over the journal, and a host that executes it on a [`Disk`].

use super::disk::{Disk, Torn};
use std::collections::VecDeque;
use strandline_core::id::{LogId, Lsn, Run};
use strandline_core::journal::command::{SegmentNumber, StorageCommand, StorageCompletion, StorageOutcome};
use strandline_core::journal::limits::JournalLimits;
use strandline_core::journal::recovery::{
    JournalRecovery, Origin, Recovered, RecoveryFault, RecoveryPurpose, RecoveryStep,
};
use strandline_core::journal::writer::{AppendError, Halted, Journal, JournalPurpose, Switched};
use strandline_core::machine::{FrameInfo, Host, Machine, Next, Out, Pending, Sent, drain};
use strandline_core::seed::Seed;
use strandline_core::ticket::Tickets;
use strandline_core::time::Now;

pub(crate) const LOG: LogId = LogId([7; 16]);

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

#[derive(Debug)]
pub(crate) enum Purpose {
    List,
    Recovery(RecoveryPurpose),
    Journal(JournalPurpose),
}

impl From<RecoveryPurpose> for Purpose {
    fn from(purpose: RecoveryPurpose) -> Self {
        Self::Recovery(purpose)
    }
}

impl From<JournalPurpose> for Purpose {
    fn from(purpose: JournalPurpose) -> Self {
        Self::Journal(purpose)
    }
}

#[derive(Debug)]
pub(crate) enum Event {
    Recovered(Box<Summary>),
    Refused(RecoveryFault),
    Entered(Switched),
    Durable(Lsn),
    Halted(Halted),
}

/// What recovery found, without the journal.
#[derive(Debug)]
pub(crate) struct Summary {
    pub(crate) cases: Vec<strandline_core::journal::recovery::EndCase>,
    pub(crate) cut: Option<strandline_core::journal::recovery::CutReport>,
    pub(crate) remove: Vec<strandline_core::journal::command::FileName>,
}

/// A channel that does not exist.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub(crate) enum Never {}

enum State {
    Recovering(Box<JournalRecovery>),
    Live(Box<Journal>),
    Refused,
}

/// Opaque events in a journal.
pub(crate) struct EventLog {
    out: Out<Purpose, StorageCommand, Event>,
    state: State,
    gate: Option<Lsn>,
    pub(crate) entries: Vec<(u64, u8, Vec<u8>)>,
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
        let mut out = Out::new(Tickets::new(Run(config.run)));
        out.command(Purpose::List, |ticket| StorageCommand::List { ticket });
        let run = u8::try_from(config.run).expect("small");
        let recovery = JournalRecovery::new(
            config.limits,
            LOG,
            SegmentNumber(config.first_segment),
            config.origin,
            Seed::new([run; 32]),
        );
        Self { out, state: State::Recovering(Box::new(recovery)), gate: None, entries: Vec::new() }
    }

    pub(crate) fn journal(&mut self) -> &mut Journal {
        let State::Live(journal) = &mut self.state else { panic!("not live") };
        journal
    }

    pub(crate) fn append(&mut self, events: &[(u8, &[u8])]) -> Result<Lsn, AppendError> {
        let (_, last) = self.journal().append_group(events)?;
        self.submit();
        Ok(last)
    }

    pub(crate) fn set_gate(&mut self, gate: Option<Lsn>) {
        self.gate = gate;
        self.submit();
    }

    pub(crate) fn seal(&mut self) {
        let State::Live(journal) = &mut self.state else { panic!("not live") };
        journal.seal(self.gate, &mut self.out);
    }

    pub(crate) fn switch_segment(&mut self) {
        let State::Live(journal) = &mut self.state else { panic!("not live") };
        journal.switch_segment(self.gate, &mut self.out);
    }

    pub(crate) fn stale(&mut self) -> u64 {
        self.out.tickets().stale()
    }

    fn submit(&mut self) {
        if let State::Live(journal) = &mut self.state {
            if let Some(entered) = journal.take_switched() {
                self.out.event(Event::Entered(entered));
            }
            journal.submit(self.gate, &mut self.out);
        }
    }

    fn recovering(&mut self, purpose: Option<RecoveryPurpose>, outcome: StorageOutcome) {
        let State::Recovering(recovery) = &mut self.state else { panic!("recovery is over") };
        let entries = &mut self.entries;
        let visit = &mut |lsn: Lsn, kind: u8, bytes: &[u8]| {
            entries.push((lsn.get(), kind, bytes.to_vec()));
            if kind == 255 { Err("kind 255".into()) } else { Ok(()) }
        };
        let step = match (purpose, outcome) {
            (None, StorageOutcome::List(listed)) => recovery.start(&listed.expect("listed"), &mut self.out),
            (None, other) => panic!("{other:?} does not answer a list"),
            (Some(purpose), outcome) => recovery.handle(purpose, outcome, visit, &mut self.out),
        };
        match step {
            Ok(RecoveryStep::Working) => {}
            Ok(RecoveryStep::Done(recovered)) => {
                let Recovered { journal, cases, cut, remove } = *recovered;
                self.out.event(Event::Recovered(Box::new(Summary { cases, cut, remove })));
                self.state = State::Live(Box::new(journal));
                self.submit();
            }
            Err(fault) => {
                self.out.event(Event::Refused(fault));
                self.state = State::Refused;
            }
        }
    }
}

impl Machine for EventLog {
    type Command = StorageCommand;
    type Event = Event;
    type Completion = StorageCompletion;
    type Channel = Never;

    fn handle_completion(&mut self, _: Now, completion: StorageCompletion) {
        let result = match self.out.tickets().settle(completion) {
            None => return,
            Some((Purpose::List, outcome)) => return self.recovering(None, outcome),
            Some((Purpose::Recovery(purpose), outcome)) => return self.recovering(Some(purpose), outcome),
            Some((Purpose::Journal(p), StorageOutcome::Append(done))) => {
                self.journal().handle_append(p, done)
            }
            Some((Purpose::Journal(p), StorageOutcome::Prepare(done))) => {
                self.journal().handle_prepare(p, done).map(|()| None)
            }
            Some((Purpose::Journal(p), other)) => panic!("{other:?} does not answer {p:?}"),
        };
        match result {
            Ok(durable) => durable.into_iter().for_each(|lsn| self.out.event(Event::Durable(lsn))),
            Err(halted) => self.out.event(Event::Halted(halted)),
        }
        self.submit();
    }

    fn handle_timeout(&mut self, _: Now) {
        self.seal();
    }

    fn poll_command(&mut self) -> Option<StorageCommand> {
        self.out.poll_command()
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.out.poll_event()
    }

    fn poll_channel(&mut self, channel: Never, _: &mut Vec<u8>) -> Option<FrameInfo> {
        match channel {}
    }

    fn pending(&self) -> Pending {
        self.out.pending()
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
            Event::Recovered(_) | Event::Refused(_) | Event::Entered(_) | Event::Halted(_) => None,
        });
        durable.max().unwrap_or(0)
    }

    pub(crate) fn entered(&self) -> bool {
        self.events.iter().any(|event| matches!(event, Event::Entered(_)))
    }

    pub(crate) fn halted(&self) -> bool {
        self.events.iter().any(|event| matches!(event, Event::Halted(_)))
    }

    pub(crate) fn refused(&self) -> Option<&RecoveryFault> {
        self.events.iter().find_map(|event| match event {
            Event::Refused(fault) => Some(fault),
            Event::Recovered(_) | Event::Entered(_) | Event::Durable(_) | Event::Halted(_) => None,
        })
    }

    pub(crate) fn recovered(&self) -> &Summary {
        let found = self.events.iter().find_map(|event| match event {
            Event::Recovered(summary) => Some(&**summary),
            Event::Refused(_) | Event::Entered(_) | Event::Durable(_) | Event::Halted(_) => None,
        });
        found.unwrap_or_else(|| panic!("not recovered: {:?}", self.events))
    }
}
