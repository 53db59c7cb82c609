//! The root, and whoever uses it: callers and the executor's threads drive it under one lock, a thread of
//! its own looks at the clock.

use crate::handle::EmbeddedStatus;
use crate::waits::Waits;
use futures::channel::oneshot::Sender;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::Builder;
use strandline_core::error::StorageFault;
use strandline_core::journal::command::{StorageCommand, StorageCompletion};
use strandline_core::journal::log::Never;
use strandline_core::machine::{Host, Machine, Next, Sent, drain};
use strandline_core::stream::client::{LogPosition, Waited};
use strandline_core::stream::embedded::{Ask, Embedded as Root, EmbeddedEvent, NotAsked};
use strandline_core::stream::{Outcome, ServerFault, StreamOp};
use strandline_file::{Clock, StorageExecutor};

/// Outputs of the root between two looks at what else is to do.
const OUTPUTS_MAX: u32 = 1024;

/// Most operations that wait for room, beyond what the root itself lets wait.
const PARKED_MAX: usize = 65_536;

/// What is shared by all handles, and by the threads.
#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<State>,
    /// A deadline came nearer, or something that a close waits for was done.
    changed: Condvar,
    clock: Clock,
}

#[derive(Debug)]
struct State {
    root: Root,
    outside: Outside,
    /// What the root had no room for, in order.
    parked: VecDeque<(StreamOp, Sender<Outcome>)>,
    closed: bool,
    held: Held,
}

/// Whether the directory is still ours.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Held {
    Yes,
    /// A close joins the threads that use it.
    Releasing,
    Released,
}

/// Where the root's outputs go.
#[derive(Debug)]
struct Outside {
    /// `None` in memory, and after the close.
    executor: Option<StorageExecutor>,
    asked: BTreeMap<Ask, Sender<Outcome>>,
    waits: Waits,
    status: EmbeddedStatus,
    tell: Tell,
}

/// Answers that are given once the lock is free: whoever is woken may ask at once.
#[derive(Debug, Default)]
#[must_use]
struct Tell {
    outcomes: Vec<(Sender<Outcome>, Outcome)>,
    rung: Vec<(Sender<Waited>, Waited)>,
}

impl Tell {
    fn give(self) {
        // Whoever asked may have gone.
        for (sender, outcome) in self.outcomes {
            let _ = sender.send(outcome);
        }
        for (sender, rung) in self.rung {
            let _ = sender.send(rung);
        }
    }
}

impl Host<Root> for Outside {
    fn execute(&mut self, command: StorageCommand) {
        // After the close nobody waits for one: it is as if the process had ended before it.
        if let Some(executor) = &self.executor {
            executor.execute(command);
        }
    }

    fn notify(&mut self, event: EmbeddedEvent) {
        match event {
            EmbeddedEvent::Answered { ask, outcome } => {
                let sender = self.asked.remove(&ask).expect("each is answered once");
                self.tell.outcomes.push((sender, outcome));
            }
            EmbeddedEvent::Stirred(stream) => self.waits.ring(&stream, &mut self.tell.rung),
            EmbeddedEvent::Checkpointed { bytes, .. } => {
                self.status.checkpoints += 1;
                self.status.checkpoint_bytes = bytes;
                self.status.not_checkpointed = None;
            }
            EmbeddedEvent::NotCheckpointed(fault) => {
                self.status.not_checkpointed = Some(fault.to_string());
            }
            EmbeddedEvent::CheckpointTooLarge { bytes_max } => {
                let told = format!("expected a keyspace of at most {bytes_max} bytes as a checkpoint");
                self.status.not_checkpointed = Some(told);
            }
            EmbeddedEvent::NotRemoved(fault) => self.status.not_removed = Some(fault),
            EmbeddedEvent::Halted(fault) => {
                self.status.fault = Some(fault);
                // They are to learn of it.
                self.waits.ring_all(&mut self.tell.rung);
            }
        }
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

fn refused(word: &str, message: String) -> Outcome {
    let word = word.to_owned();
    Outcome::Answered { at: None, result: Err(ServerFault::Refused { word, message }.into()) }
}

impl State {
    fn ask(&mut self, clock: &Clock, op: StreamOp, sender: Sender<Outcome>) {
        if self.closed {
            let outcome = refused("CLOSED", "the keyspace was closed".into());
            self.outside.tell.outcomes.push((sender, outcome));
        } else if self.parked.len() >= PARKED_MAX {
            let outcome = refused("BUSY", format!("expected at most {PARKED_MAX} operations that wait"));
            self.outside.tell.outcomes.push((sender, outcome));
        } else if self.parked.is_empty() {
            if let Some(parked) = self.offer(clock, op, sender) {
                self.parked.push_back(parked);
            }
        } else {
            self.parked.push_back((op, sender));
        }
    }

    /// Offers an operation to the root; gives it back if there is no room.
    fn offer(
        &mut self,
        clock: &Clock,
        op: StreamOp,
        sender: Sender<Outcome>,
    ) -> Option<(StreamOp, Sender<Outcome>)> {
        match self.root.handle_ask(clock.now(), op) {
            Ok(ask) => drop(self.outside.asked.insert(ask, sender)),
            Err(NotAsked::Full(op)) => return Some((*op, sender)),
            Err(NotAsked::Refused(error)) => {
                let told = self.outside.status.fault.as_ref().map_or(String::new(), |f| format!(": {f}"));
                self.outside.tell.outcomes.push((sender, refused("JOURNAL", format!("{error}{told}"))));
            }
        }
        None
    }

    fn drain(&mut self, clock: &Clock) {
        loop {
            // An embedded keyspace has no channels, so nothing is written into the buffer.
            while drain(&mut self.root, &mut self.outside, &mut Vec::new(), OUTPUTS_MAX) == Next::More {}
            let Some((op, sender)) = self.parked.pop_front() else { return };
            if let Some(parked) = self.offer(clock, op, sender) {
                return self.parked.push_front(parked);
            }
        }
    }
}

impl Shared {
    pub(crate) fn new(root: Root, executor: Option<StorageExecutor>) -> Self {
        let outside = Outside {
            executor,
            asked: BTreeMap::new(),
            waits: Waits::default(),
            status: EmbeddedStatus::default(),
            tell: Tell::default(),
        };
        let state = State { root, outside, parked: VecDeque::new(), closed: false, held: Held::Yes };
        Self { state: Mutex::new(state), changed: Condvar::new(), clock: Clock::start() }
    }

    /// Starts what looks at the clock.
    pub(crate) fn start(self: &Arc<Self>) {
        let shared = Arc::clone(self);
        let thread = Builder::new().name("strandline-streams".into());
        thread.spawn(move || shared.look_at_the_clock()).expect("the system gives us a thread");
        self.turn(|_, _| {});
    }

    /// Does something to the state, and everything that follows from it.
    fn turn<T>(&self, act: impl FnOnce(&mut State, &Clock) -> T) -> T {
        let mut state = self.lock();
        let before = deadline(&state);
        let value = act(&mut state, &self.clock);
        state.drain(&self.clock);
        let tell = std::mem::take(&mut state.outside.tell);
        let wake = state.closed || deadline(&state) != before;
        drop(state);
        if wake {
            self.changed.notify_all();
        }
        tell.give();
        value
    }

    pub(crate) fn ask(&self, op: StreamOp, sender: Sender<Outcome>) {
        self.turn(|state, clock| state.ask(clock, op, sender));
    }

    pub(crate) fn wait(&self, logs: Vec<LogPosition>, wait_ms: u64, sender: Sender<Waited>) {
        self.turn(|state, clock| {
            let news = logs.iter().any(|log| state.root.has_news(&log.stream, log.generation, log.after));
            if news || state.closed || state.outside.status.fault.is_some() {
                state.outside.tell.rung.push((sender, Waited::Rung));
            } else {
                let until = clock.now().mono.after_ms(wait_ms);
                state.outside.waits.add(logs.into_iter().map(|log| log.stream).collect(), until, sender);
            }
        });
    }

    pub(crate) fn completed(&self, completion: StorageCompletion) {
        self.turn(|state, clock| state.root.handle_completion(clock.now(), completion));
        if self.lock().closed {
            self.changed.notify_all();
        }
    }

    pub(crate) fn with<T>(&self, read: impl FnOnce(&Root) -> T) -> T {
        read(&self.lock().root)
    }

    pub(crate) fn status(&self) -> EmbeddedStatus {
        self.lock().outside.status.clone()
    }

    pub(crate) fn checkpoint(&self) {
        self.turn(|state, _| {
            if !state.closed {
                state.root.handle_checkpoint();
            }
        });
    }

    /// Takes nothing more, waits until all is answered and sealed, and releases the directory.
    pub(crate) fn close(&self) -> Result<(), StorageFault> {
        self.turn(|state, _| {
            state.closed = true;
            state.outside.waits.ring_all(&mut state.outside.tell.rung);
        });
        let mut state = self.lock();
        let mut sealed = false;
        loop {
            let fault = state.outside.status.fault.clone();
            let idle = state.parked.is_empty() && state.root.is_quiet();
            if fault.is_some() || idle {
                self.release(state);
                return fault.map_or(Ok(()), Err);
            }
            if !sealed && state.parked.is_empty() {
                sealed = true;
                drop(state);
                self.turn(|state, _| state.root.handle_close());
                state = self.lock();
                continue;
            }
            state = self.changed.wait(state).expect("no holder panics");
        }
    }

    /// Lets go of the directory, or waits until another close has.
    fn release(&self, mut state: MutexGuard<'_, State>) {
        match state.held {
            Held::Yes => {
                state.held = Held::Releasing;
                let executor = state.outside.executor.take();
                drop(state);
                // Joins its threads, which may still answer.
                drop(executor);
                self.lock().held = Held::Released;
                self.changed.notify_all();
            }
            Held::Releasing | Held::Released => {
                while state.held != Held::Released {
                    state = self.changed.wait(state).expect("no holder panics");
                }
            }
        }
    }

    fn look_at_the_clock(&self) {
        let mut state = self.lock();
        while !state.closed {
            let now = self.clock.now();
            let due = deadline(&state);
            match due {
                Some(at) if at <= now.mono => {
                    drop(state);
                    self.turn(|state, clock| {
                        let now = clock.now();
                        state.root.handle_timeout(now);
                        let Outside { waits, tell, .. } = &mut state.outside;
                        waits.expire(now.mono, &mut tell.rung);
                    });
                    state = self.lock();
                }
                Some(at) => {
                    let wait = self.changed.wait_timeout(state, at.since(now.mono));
                    state = wait.expect("no holder panics").0;
                }
                None => state = self.changed.wait(state).expect("no holder panics"),
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }
}

fn deadline(state: &State) -> Option<strandline_core::time::Instant> {
    [state.root.pending().deadline, state.outside.waits.deadline()].into_iter().flatten().min()
}
