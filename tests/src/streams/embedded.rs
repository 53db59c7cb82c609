//! The embedded keyspace as a server: in memory, or on a folder of the simulator that is opened anew
//! after every operation.

use super::backend::{Backend, Raw};
use super::keys::{View, parse};
use super::model::{befall, show};
use std::collections::{BTreeMap, VecDeque};
use strandline_core::journal::command::{StorageCommand, StorageCompletion};
use strandline_core::journal::log::{Never, Opened};
use strandline_core::machine::{Host, Machine, Next, Sent, drain};
use strandline_core::seed::Seed;
use strandline_core::stream::embedded::{
    Ask, Embedded as Root, EmbeddedError, EmbeddedEvent, EmbeddedLimits, NotRecovered, StreamRecovery,
};
use strandline_core::stream::keyspace::loss::Befall;
use strandline_core::stream::keyspace::space::Space;
use strandline_core::stream::{Layout, Outcome, ServerTime, StreamName, StreamOp};
use strandline_core::time::{Instant, Now, WallTime};
use strandline_sim::effect::{Armed, StorageJob};
use strandline_sim::fault::Counts;
use strandline_sim::fs::Fs;
use strandline_sim::rng::Rng;

/// The process ended before an effect.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Stopped;

/// A folder of the simulator, whose effects are executed one at a time.
#[derive(Debug)]
pub struct Folder {
    /// What is in it.
    pub fs: Fs,
    /// Faults that wait for the next effect they can hit.
    pub armed: Armed,
    jobs: VecDeque<StorageJob>,
    temporaries: u64,
    choose: Rng,
    counts: Counts,
    starts: u8,
    events: Vec<EmbeddedEvent>,
}

impl Folder {
    /// A folder that holds this.
    #[must_use]
    pub fn new(fs: Fs) -> Self {
        Self {
            fs,
            armed: Armed::default(),
            jobs: VecDeque::new(),
            temporaries: 0,
            choose: Rng::new(7),
            counts: Counts::default(),
            starts: 0,
            events: Vec::new(),
        }
    }

    /// Executes the next effect; the answer of its command, if it was the last.
    fn advance(&mut self) -> Option<StorageCompletion> {
        let job = self.jobs.front_mut()?;
        let result = job.advance(&mut self.fs, &mut self.armed, &mut self.choose, &mut self.counts)?;
        let job = self.jobs.pop_front().expect("it is first");
        Some(job.complete(result, &self.fs, &mut self.armed, &mut self.counts))
    }

    /// Runs a root until nothing is left; `step` is asked before every effect.
    fn run<M>(
        &mut self,
        root: &mut M,
        now: Now,
        step: &mut dyn FnMut() -> Result<(), Stopped>,
    ) -> Result<(), Stopped>
    where
        M: Machine<Command = StorageCommand, Completion = StorageCompletion>,
        Self: Host<M>,
    {
        loop {
            while drain(root, self, &mut Vec::new(), 64) == Next::More {}
            if self.jobs.is_empty() {
                return Ok(());
            }
            step()?;
            if let Some(completion) = self.advance() {
                root.handle_completion(now, completion);
            }
        }
    }

    /// Opens the keyspace that is in it.
    ///
    /// # Errors
    /// Outside: `step` said so. Inside: it cannot be opened.
    ///
    /// # Panics
    /// Never.
    pub fn open(
        &mut self,
        limits: EmbeddedLimits,
        step: &mut dyn FnMut() -> Result<(), Stopped>,
    ) -> Result<Result<(Root, Opened), EmbeddedError>, Stopped> {
        self.jobs.clear();
        self.starts = self.starts.wrapping_add(1);
        let mut recovery = StreamRecovery::open(limits, Seed::new([self.starts; 32]));
        loop {
            self.run(&mut recovery, Now::default(), step)?;
            match recovery.finish() {
                Ok(done) => return Ok(Ok(done)),
                Err(NotRecovered::Working(working)) => recovery = *working,
                Err(NotRecovered::Failed(error)) => return Ok(Err(error)),
            }
        }
    }

    /// Runs a keyspace until nothing is left to do; what it said.
    ///
    /// # Errors
    /// `step` said so.
    pub fn settle(
        &mut self,
        root: &mut Root,
        now: Now,
        step: &mut dyn FnMut() -> Result<(), Stopped>,
    ) -> Result<Vec<EmbeddedEvent>, Stopped> {
        self.run(root, now, step)?;
        Ok(std::mem::take(&mut self.events))
    }

    /// What was said before it stopped.
    pub fn said(&mut self) -> Vec<EmbeddedEvent> {
        std::mem::take(&mut self.events)
    }
}

macro_rules! host {
    ($root:ty, $event:ty, $notify:expr) => {
        impl Host<$root> for Folder {
            fn execute(&mut self, command: StorageCommand) {
                self.temporaries += 1;
                self.jobs.push_back(StorageJob::new(command, self.temporaries, &mut self.choose));
            }
            fn notify(&mut self, event: $event) {
                let notify: fn(&mut Self, $event) = $notify;
                notify(self, event);
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
    };
}

host!(Root, EmbeddedEvent, |folder, event| folder.events.push(event));
host!(StreamRecovery, Never, |_, event| match event {});

/// Small files, so that segments and checkpoints come and go.
#[must_use]
pub fn small() -> EmbeddedLimits {
    let mut limits = EmbeddedLimits::default();
    limits.journal.segment_bytes = 4096;
    limits.journal.batch_bytes_max = 2048;
    limits.journal.pending_bytes_max = 4096;
    limits.journal.entry_bytes_max = 1500;
    limits.journal.read_bytes_max = 1024;
    limits.checkpoint_after_bytes = 900;
    limits
}

/// What is held at `now`, by name.
#[must_use]
pub fn held(root: &Root, now: ServerTime) -> BTreeMap<StreamName, Space> {
    let names = root.keyspace().spaces().map(|(name, _)| name.clone());
    let spaces = names.filter_map(|name| root.keyspace().space(&name, now).map(|space| (name, space)));
    spaces.filter(|(_, space)| *space != Space::default()).collect()
}

/// The embedded keyspace as what scenarios are played against.
#[derive(Debug)]
pub struct Embedded {
    root: Root,
    folder: Option<Folder>,
    limits: EmbeddedLimits,
    /// Somebody reached into the state: what is in the journal does not lead to it.
    touched: bool,
    now_us: u64,
    /// How often it was opened anew.
    pub reopened: u64,
}

/// How long one operation takes here.
const STEP_US: u64 = 100;

impl Embedded {
    /// In memory.
    #[must_use]
    pub const fn in_memory() -> Self {
        Self {
            root: Root::in_memory(limits()),
            folder: None,
            limits: limits(),
            touched: false,
            now_us: 1_800_000_000_000_000,
            reopened: 0,
        }
    }

    /// On a folder, opened anew after every operation.
    ///
    /// # Panics
    /// If an empty folder cannot be opened.
    #[must_use]
    pub fn durable() -> Self {
        let mut made = Self { folder: Some(Folder::new(Fs::default())), ..Self::in_memory() };
        made.limits.checkpoint_after_bytes = 4000;
        made.clear();
        made
    }

    /// On a folder of small files, whose segments and checkpoints come and go.
    ///
    /// # Panics
    /// If an empty folder cannot be opened.
    #[must_use]
    pub fn durable_in_small_files() -> Self {
        let mut made = Self::durable();
        made.limits = small();
        made.clear();
        made
    }

    const fn clock(&self) -> Now {
        Now { mono: Instant(self.now_us * 1000), wall: WallTime(self.now_us / 1000) }
    }

    fn run(&mut self, now: Now) -> Vec<EmbeddedEvent> {
        match &mut self.folder {
            None => std::iter::from_fn(|| self.root.poll_event()).collect(),
            Some(folder) => folder.settle(&mut self.root, now, &mut || Ok(())).expect("nothing stops it"),
        }
    }

    fn open(&mut self) {
        let Some(folder) = &mut self.folder else { return };
        let opened = folder.open(self.limits, &mut || Ok(())).expect("nothing stops it");
        self.root = opened.expect("it was closed in order").0;
        self.reopened += 1;
    }

    /// Opened anew it holds the same.
    fn reopen(&mut self) {
        if self.folder.is_none() || self.touched {
            return;
        }
        let (clock, now) = (self.root.clock(), self.now());
        let before = held(&self.root, now);
        self.open();
        assert_eq!(held(&self.root, now), before, "opened anew at {} us", clock.us());
    }

    fn answer(&mut self, ask: Ask) -> Outcome {
        let events = self.run(self.clock());
        let mut found = events.into_iter().filter_map(|event| match event {
            EmbeddedEvent::Answered { ask: of, outcome } => (of == ask).then_some(outcome),
            EmbeddedEvent::Stirred(_) | EmbeddedEvent::Checkpointed { .. } => None,
            EmbeddedEvent::NotCheckpointed(_)
            | EmbeddedEvent::CheckpointTooLarge { .. }
            | EmbeddedEvent::NotRemoved(_)
            | EmbeddedEvent::Halted(_) => panic!("{event:?}"),
        });
        found.next().expect("each operation is answered")
    }
}

/// Few bytes in a journal between checkpoints, and segments of a size that is quick to make.
const fn limits() -> EmbeddedLimits {
    use strandline_core::journal::limits::JournalLimits;
    EmbeddedLimits {
        journal: JournalLimits {
            segment_bytes: 1700 << 10,
            batch_bytes_max: 1600 << 10,
            entry_bytes_max: 1500 << 10,
            pending_bytes_max: 8 << 20,
            pending_entries_max: 65_536,
            read_bytes_max: 1 << 20,
            journal_bytes_max: 1 << 30,
            journal_entries_max: 1 << 20,
            seal_ms: 1000,
        },
        checkpoint_after_bytes: 64 << 20,
        checkpoint_bytes_max: 1 << 30,
        waiting_max: 65_536,
    }
}

impl Backend for Embedded {
    fn name(&self) -> String {
        if self.folder.is_some() { "embedded, durable" } else { "embedded, in memory" }.into()
    }

    fn layout(&self) -> Layout {
        Layout::Tagged
    }

    fn clear(&mut self) {
        self.touched = false;
        self.root = Root::in_memory(self.limits);
        if self.folder.is_some() {
            self.folder = Some(Folder::new(Fs::default()));
            self.open();
        }
    }

    fn now(&mut self) -> ServerTime {
        self.root.clock().max(ServerTime::from_ms(self.now_us / 1000))
    }

    fn wait(&mut self, ms: u64) {
        self.now_us += ms * 1000;
    }

    fn advance_us(&mut self, us: u64) {
        self.now_us += us;
    }

    fn apply(&mut self, op: &StreamOp) -> Outcome {
        self.now_us += STEP_US;
        let ask = match self.root.handle_ask(self.clock(), op.clone()) {
            Ok(ask) => ask,
            Err(error) => panic!("{error}"),
        };
        let outcome = self.answer(ask);
        self.reopen();
        outcome
    }

    fn raw(&mut self, command: &[String]) -> Raw {
        let Some((stream, generation, what)) = befall(command) else {
            return if command[0] == "KEYS" { Raw::Done(String::new()) } else { Raw::PulseOnly };
        };
        let Ok(stream) = StreamName::new(stream) else { return Raw::PulseOnly };
        let appends = matches!(what, Befall::Append { .. });
        self.touched = true;
        self.root.befall(self.clock(), &stream, generation, what);
        let space = self.root.keyspace().space(&stream, self.root.clock()).filter(|_| appends);
        let log = space.as_ref().and_then(|space| space.data.get(&generation)?.log.as_ref());
        Raw::Done(log.map(|log| log.last.to_string()).unwrap_or_default())
    }

    fn view(&mut self, key: &str) -> Option<View> {
        let (name, part) = parse(key)?;
        let (name, now) = (StreamName::new(name).ok()?, self.now());
        let space = self.root.keyspace().space(&name, now).unwrap_or_default();
        show(&space, &name, &part, Layout::Tagged)
    }
}
