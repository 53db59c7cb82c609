//! Group commit: the caller that finds no append under way executes it, for all that gathered.

use super::JournalAppendError;
use super::OUTPUTS_MAX;
use super::group::{Group, Woken};
use super::hands::Hands;
use crate::node::Clock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::time::Duration;
use strandline_core::error::StorageFault;
use strandline_core::id::Lsn;
use strandline_core::journal::command::{SegmentNumber, StorageCommand, StorageCompletion};
use strandline_core::journal::log::{JournalLog, LogEvent, Never, Pin};
use strandline_core::journal::writer::AppendError;
use strandline_core::machine::{Host, Machine, Next, Sent, drain};

/// What the helper is told.
#[derive(Debug)]
pub(super) enum Side {
    /// Execute this beside the appends.
    Command(StorageCommand),
    /// A deadline was set: from now on look at the clock.
    Timed,
    /// The journal is closed.
    Stop,
}

/// The root and everything that is needed to run it from any thread.
#[derive(Debug)]
pub(super) struct Commit {
    state: Mutex<State>,
    told: Arc<Told>,
    /// Used by the leader alone.
    leader: Mutex<Hands>,
    /// Something other than an append was answered.
    changed: Condvar,
    clock: Clock,
}

/// What may be looked at without the lock.
#[derive(Debug, Default)]
struct Told {
    durable: AtomicU64,
    fault: OnceLock<StorageFault>,
}

#[derive(Debug)]
struct State {
    log: JournalLog,
    outbox: Outbox,
    /// Somebody executes `outbox.append`, or was woken to do so.
    leading: bool,
    timed: bool,
}

/// Where the root's outputs go.
#[derive(Debug)]
struct Outbox {
    /// The append that is to be executed next.
    append: Option<StorageCommand>,
    /// Callers whose entries are in the append under way.
    flying: Arc<Group>,
    /// Callers whose entries are pending.
    filling: Arc<Group>,
    side: Sender<Side>,
    told: Arc<Told>,
    compacted: Option<SegmentNumber>,
    not_removed: Option<StorageFault>,
}

impl Host<JournalLog> for Outbox {
    fn execute(&mut self, command: StorageCommand) {
        match command {
            StorageCommand::Append { .. } => {
                self.flying = std::mem::take(&mut self.filling);
                self.append = Some(command);
            }
            StorageCommand::List { .. }
            | StorageCommand::Read { .. }
            | StorageCommand::Prepare { .. }
            | StorageCommand::Cut { .. }
            | StorageCommand::Replace { .. }
            | StorageCommand::Write { .. }
            | StorageCommand::Sync { .. }
            | StorageCommand::Remove { .. } => {
                self.side.send(Side::Command(command)).expect("the helper listens until it is stopped");
            }
        }
    }

    fn notify(&mut self, event: LogEvent) {
        match event {
            LogEvent::Durable(lsn) => self.told.durable.store(lsn.get(), Release),
            // A bare journal is compacted by its program, without checkpoints.
            LogEvent::Entered(_) | LogEvent::Checkpointed { .. } | LogEvent::NotCheckpointed(_) => {}
            LogEvent::Compacted { first_segment } => self.compacted = Some(first_segment),
            LogEvent::NotRemoved(fault) => self.not_removed = Some(fault),
            LogEvent::Halted(halted) => {
                let _first_stays = self.told.fault.set(halted.0);
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

impl State {
    fn drain(&mut self) {
        // A bare journal has no channels, so nothing is written into the buffer.
        while drain(&mut self.log, &mut self.outbox, &mut Vec::new(), OUTPUTS_MAX) == Next::More {}
    }

    /// The group that is woken when the entry `lsn` is answered.
    fn group_of(&self, lsn: Lsn) -> Arc<Group> {
        let journal = self.log.journal();
        let pending = journal.submitted_next_lsn().get() - journal.pending_entries();
        Arc::clone(if lsn.get() < pending { &self.outbox.flying } else { &self.outbox.filling })
    }
}

type Locked<'a> = MutexGuard<'a, State>;

impl Commit {
    pub(super) fn new(log: JournalLog, leader: Hands, side: Sender<Side>) -> Self {
        let told = Arc::new(Told::default());
        if let Some(lsn) = log.journal().durable() {
            told.durable.store(lsn.get(), Release);
        }
        let outbox = Outbox {
            append: None,
            flying: Arc::default(),
            filling: Arc::default(),
            side,
            told: Arc::clone(&told),
            compacted: None,
            not_removed: None,
        };
        let state = Mutex::new(State { log, outbox, leading: false, timed: false });
        Self { state, told, leader: Mutex::new(leader), changed: Condvar::new(), clock: Clock::start() }
    }

    /// Sends what the root wants to do first.
    pub(super) fn started(&self) {
        self.lock().drain();
    }

    pub(super) fn append(&self, entries: &[(u8, &[u8])]) -> Result<Lsn, JournalAppendError> {
        let mut state = self.lock();
        let last = loop {
            match state.log.append(entries) {
                Ok((_, last)) => break last,
                Err(AppendError::Full { .. }) => state = self.wait_for_room(state),
                Err(refused) => return Err(refused.into()),
            }
        };
        state.drain();
        self.wait_durable(state, last).map_err(JournalAppendError::Uncertain)?;
        Ok(last)
    }

    /// Reads the root.
    pub(super) fn with<T>(&self, read: impl FnOnce(&JournalLog) -> T) -> T {
        read(&self.lock().log)
    }

    /// Keeps segments from being removed until it is dropped.
    pub(super) fn pin(&self) -> Pinned<'_> {
        Pinned { commit: self, pin: Some(self.lock().log.pin()) }
    }

    pub(super) fn compact_to(&self, lsn: Lsn) -> Result<Lsn, StorageFault> {
        let mut state = self.lock();
        let first = |state: &Locked<'_>| state.log.journal().index().first_lsn();
        let Some(target) = state.log.compact_to(lsn) else { return Ok(first(&state)) };
        state.outbox.not_removed = None;
        state.drain();
        while state.outbox.compacted < Some(target) {
            let fault = state.outbox.not_removed.as_ref().or(self.told.fault.get());
            if let Some(fault) = fault {
                return Err(fault.clone());
            }
            state = self.changed.wait(state).expect("no holder panics");
        }
        Ok(first(&state))
    }

    /// Takes the answer to what the helper did.
    pub(super) fn completed(&self, completion: StorageCompletion) {
        let mut state = self.lock();
        state.log.handle_completion(self.clock.now(), completion);
        self.pass_on(state);
    }

    /// Tells the root the time; whether a deadline is still set.
    pub(super) fn timeout(&self) -> bool {
        let mut state = self.lock();
        state.log.handle_timeout(self.clock.now());
        self.pass_on(state);
        let mut state = self.lock();
        state.timed = state.log.pending().deadline.is_some();
        state.timed
    }

    /// The next work for the helper; `None` if a deadline came first.
    pub(super) fn wait_for_work(&self, work: &Receiver<Side>) -> Option<Side> {
        let deadline = self.lock().log.pending().deadline;
        let left = deadline.map_or(Duration::ZERO, |at| at.since(self.clock.now().mono));
        match work.recv_timeout(left) {
            Ok(side) => Some(side),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Side::Stop),
        }
    }

    /// Seals, and stops the helper.
    pub(super) fn close(&self) -> Result<(), StorageFault> {
        let mut state = self.lock();
        state.log.seal();
        self.pass_on(state);
        state = self.lock();
        // The seal may wait for a segment that the helper prepares.
        while self.told.fault.get().is_none() && state.log.journal().needs_seal() {
            state = self.changed.wait(state).expect("no holder panics");
        }
        state.outbox.side.send(Side::Stop).expect("the helper listens until it is stopped");
        self.told.fault.get().map_or(Ok(()), |fault| Err(fault.clone()))
    }

    fn lock(&self) -> Locked<'_> {
        self.state.lock().expect("no holder panics")
    }

    fn is_durable(&self, lsn: Lsn) -> bool {
        self.told.durable.load(Acquire) >= lsn.get()
    }

    fn wait_durable<'a>(&'a self, mut state: Locked<'a>, lsn: Lsn) -> Result<(), StorageFault> {
        loop {
            if self.is_durable(lsn) {
                return Ok(());
            }
            if let Some(fault) = self.told.fault.get() {
                return Err(fault.clone());
            }
            if !state.leading && state.outbox.append.is_some() {
                state.leading = true;
                self.lead(state, Some(lsn));
            } else {
                let group = state.group_of(lsn);
                self.wait_in(state, &group, Some(lsn));
            }
            if self.is_durable(lsn) {
                return Ok(());
            }
            state = self.lock();
        }
    }

    /// Waits until something that is pending now was answered.
    fn wait_for_room<'a>(&'a self, state: Locked<'a>) -> Locked<'a> {
        let group = Arc::clone(&state.outbox.filling);
        self.wait_in(state, &group, None);
        self.lock()
    }

    fn wait_in<'a>(&'a self, state: Locked<'a>, group: &Group, own: Option<Lsn>) {
        group.join();
        drop(state);
        match group.wait() {
            Woken::Done => {}
            Woken::Lead => {
                let state = self.lock();
                group.leave();
                self.lead(state, own);
            }
        }
    }

    /// Executes the append that is ready, and more of them until `own` is durable and somebody else
    /// waits to lead, or none is left. The lead is handed over before those are woken whose entries
    /// are durable: the disk does not wait for that.
    fn lead<'a>(&'a self, mut state: Locked<'a>, own: Option<Lsn>) {
        while let Some(command) = state.outbox.append.take() {
            let group = Arc::clone(&state.outbox.flying);
            drop(state);
            let completion = self.leader.lock().expect("no holder panics").execute(command);
            state = self.lock();
            state.log.handle_completion(self.clock.now(), completion);
            state.drain();
            self.set_timer(&mut state);
            let others = self.others(&mut state);
            let mine = own.is_none_or(|lsn| self.is_durable(lsn));
            if mine && state.outbox.append.is_some() && !state.outbox.flying.is_empty() {
                let next = Arc::clone(&state.outbox.flying);
                drop(state);
                next.hand_over();
                return wake(&group, others);
            }
            if state.outbox.append.is_none() {
                state.leading = false;
                drop(state);
                return wake(&group, others);
            }
            wake(&group, others);
        }
        state.leading = false;
    }

    /// After an input that was no append: sees to it that somebody leads what became ready.
    fn pass_on<'a>(&'a self, mut state: Locked<'a>) {
        state.drain();
        self.set_timer(&mut state);
        let others = self.others(&mut state);
        if state.outbox.append.is_some() && !state.leading {
            state.leading = true;
            let next = Arc::clone(&state.outbox.flying);
            if next.is_empty() {
                self.lead(state, None);
            } else {
                drop(state);
                next.hand_over();
            }
        } else {
            drop(state);
        }
        if let Some(group) = others {
            group.done();
        }
        self.changed.notify_all();
    }

    /// Those whose entries will never be sent, once the journal is halted.
    fn others(&self, state: &mut Locked<'_>) -> Option<Arc<Group>> {
        self.told.fault.get().map(|_| std::mem::take(&mut state.outbox.filling))
    }

    fn set_timer(&self, state: &mut Locked<'_>) {
        if !state.timed && state.log.pending().deadline.is_some() {
            state.timed = true;
            // After the close nobody looks at deadlines any more.
            let _ = state.outbox.side.send(Side::Timed);
        }
    }
}

fn wake(group: &Group, others: Option<Arc<Group>>) {
    group.done();
    if let Some(others) = others {
        others.done();
    }
}

/// See [`Commit::pin`].
#[derive(Debug)]
pub(super) struct Pinned<'a> {
    commit: &'a Commit,
    pin: Option<Pin>,
}

impl Drop for Pinned<'_> {
    fn drop(&mut self) {
        if let Some(pin) = self.pin.take() {
            let mut state = self.commit.lock();
            state.log.unpin(pin);
            self.commit.pass_on(state);
        }
    }
}
