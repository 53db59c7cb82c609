//! The keyspace without a server: in memory, or durable on a journal.

mod api;
mod change;
pub mod entry;
mod parts;
mod recovery;
mod state;
#[cfg(test)]
mod tests;

pub use api::{Ask, EmbeddedError, EmbeddedEvent, EmbeddedLimits, NotAsked};
pub use recovery::{NotRecovered, StreamRecovery};

use self::change::{Before, changes, wakes};
use self::parts::LAYOUT;
use super::error::StreamError;
use super::event::EventId;
use super::keyspace::Keyspace;
use super::keyspace::loss::Befall;
use super::name::StreamName;
use super::op::StreamOp;
use super::reply::{Outcome, StreamReply, Uncertain};
use super::time::ServerTime;
use crate::id::Lsn;
use crate::journal::command::{StorageCommand, StorageCompletion};
use crate::journal::log::{JournalLog, LogEvent, Never};
use crate::journal::writer::AppendError;
use crate::machine::{FrameInfo, Machine, Pending};
use crate::time::{Now, WallTime};
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// The keyspace and everything it needs to be a server of its own: a clock that never falls, and, if it
/// is to last, a journal of every operation that changed something. A root; see
/// [`crate::machine::drain`].
///
/// An operation is done at once, in the order of the asking, so that each decides by all before it. Its
/// answer leaves when the entry of the last change before it is durable, the answer of a read too: what
/// is shown is always a state that survives power loss. After a failed write or sync whatever still
/// waited ends as `Uncertain`, and nothing more is taken: recover from storage.
///
/// A caller may ask at any time, with any clock; a wall clock that falls stands still here.
///
/// ```
/// use strandline_core::machine::Machine;
/// use strandline_core::stream::embedded::{Embedded, EmbeddedEvent, EmbeddedLimits};
/// use strandline_core::stream::op::{Condition, Nonce};
/// use strandline_core::stream::{Event, Handle, Layout, Outcome, StreamName, Verb, Wanted};
/// use strandline_core::time::Now;
///
/// let mut embedded = Embedded::in_memory(EmbeddedLimits::default());
/// let handle = Handle::new(StreamName::new("orders")?, Wanted::default(), Layout::Tagged)?;
/// let event = Event::new("created", "one")?;
/// let op = handle.op(Verb::Add { event, condition: Condition::Always }, Nonce([7; 16]));
/// let ask = embedded.handle_ask(Now::default(), op)?;
/// let Some(EmbeddedEvent::Answered { ask: of, outcome }) = embedded.poll_event() else { panic!() };
/// assert_eq!(of, ask);
/// assert!(matches!(outcome, Outcome::Answered { result: Ok(_), .. }));
/// # Ok::<(), Box<dyn core::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Embedded {
    limits: EmbeddedLimits,
    keyspace: Keyspace,
    clock: ServerTime,
    store: Store,
    asks: u64,
    /// What was done and not answered, in order.
    waiting: VecDeque<Waiting>,
    events: VecDeque<EmbeddedEvent>,
    /// Bytes of entries since the last checkpoint.
    grown_bytes: u64,
    checkpoint_bytes: u64,
    halted: bool,
}

#[derive(Debug)]
enum Store {
    Memory,
    Journal(Box<JournalLog>),
}

/// An answer that waits for the disk.
#[derive(Debug)]
struct Waiting {
    /// The last change that it rests on.
    rests_on: Lsn,
    ask: Ask,
    op: StreamOp,
    at: ServerTime,
    result: Result<StreamReply, StreamError>,
    stirs: bool,
}

impl Embedded {
    /// An empty keyspace that lasts as long as it is held.
    #[must_use]
    pub const fn in_memory(limits: EmbeddedLimits) -> Self {
        Self::new(limits, Keyspace::new(LAYOUT), ServerTime::from_us(0), Store::Memory)
    }

    const fn new(limits: EmbeddedLimits, keyspace: Keyspace, clock: ServerTime, store: Store) -> Self {
        Self {
            limits,
            keyspace,
            clock,
            store,
            asks: 0,
            waiting: VecDeque::new(),
            events: VecDeque::new(),
            grown_bytes: 0,
            checkpoint_bytes: 0,
            halted: false,
        }
    }

    /// Does one operation. [`EmbeddedEvent::Answered`] brings its outcome.
    ///
    /// # Errors
    /// [`NotAsked`]: nothing was done.
    pub fn handle_ask(&mut self, now: Now, op: StreamOp) -> Result<Ask, NotAsked> {
        if self.halted {
            return Err(AppendError::Halted.into());
        }
        if self.waiting.len() >= self.limits.waiting_max as usize {
            return Err(NotAsked::Full(Box::new(op)));
        }
        let at = self.time(now.wall);
        // Room is made sure of before anything is done: what was done cannot be taken back.
        let entry = match &self.store {
            Store::Memory => None,
            Store::Journal(log) => match entry::encode(at, &op) {
                None => None,
                Some(entry) => match log.admits(&[(entry::OPERATION, &entry)]) {
                    Ok(()) => Some(entry),
                    Err(AppendError::Full { .. }) => return Err(NotAsked::Full(Box::new(op))),
                    Err(refused) => return Err(self.refused(refused)),
                },
            },
        };
        self.clock = at;
        let before = Before::of(&self.keyspace, &op);
        let result = self.keyspace.apply(at, &op);
        let changed = result.as_ref().is_ok_and(|reply| changes(&self.keyspace, before, &op, &reply.told));
        if changed {
            self.append(entry);
        }
        let ask = Ask(self.asks);
        self.asks += 1;
        let stirs = changed && wakes(&op.verb);
        match self.rests_on() {
            None => self.answer(ask, op, at, result, stirs),
            Some(rests_on) => {
                self.waiting.push_back(Waiting { rests_on, ask, op, at, result, stirs });
            }
        }
        self.settle();
        Ok(ask)
    }

    /// Records the last entries as durable in the journal itself, before it is closed.
    pub fn handle_close(&mut self) {
        if let Store::Journal(log) = &mut self.store {
            log.seal();
        }
        self.settle();
    }

    /// Makes a checkpoint now, unless one is under way or there is nothing new.
    pub fn handle_checkpoint(&mut self) {
        self.checkpoint();
        self.settle();
    }

    /// Lets something happen to a stream without an operation, as to a server whose keys somebody
    /// else can reach. For tests and simulations: it is not in the journal, only in the next checkpoint.
    pub fn befall(&mut self, now: Now, stream: &StreamName, generation: u64, what: Befall) {
        self.clock = self.time(now.wall);
        self.keyspace.befall(self.clock, stream, generation, what);
    }

    /// Whether whoever has read the stream up to `after` in this generation should look again: there is
    /// more, or the generation is over.
    #[must_use]
    pub fn has_news(&self, stream: &StreamName, generation: u64, after: EventId) -> bool {
        let Some(space) = self.keyspace.held(stream) else { return true };
        let goes_on = space.life.as_ref().is_some_and(|life| life.active && life.generation == generation);
        let log = space.data.get(&generation).and_then(|data| data.log.as_ref());
        // Not the last position given out: what had it may be gone, and nobody is ever handed it.
        let newest = log.and_then(|log| log.entries.last_key_value());
        !goes_on || newest.is_some_and(|(id, _)| *id > after)
    }

    /// Everything that is held, changes that are not durable yet included.
    #[must_use]
    pub const fn keyspace(&self) -> &Keyspace {
        &self.keyspace
    }

    /// The server's clock as of the last operation.
    #[must_use]
    pub const fn clock(&self) -> ServerTime {
        self.clock
    }

    /// The journal underneath; `None` in memory.
    #[must_use]
    pub fn log(&self) -> Option<&JournalLog> {
        match &self.store {
            Store::Memory => None,
            Store::Journal(log) => Some(log),
        }
    }

    /// Whether everything that was asked is answered and the journal has nothing more to write.
    #[must_use]
    pub fn is_quiet(&self) -> bool {
        let sealed =
            |log: &JournalLog| self.halted || !(log.journal().needs_seal() || log.is_checkpointing());
        self.waiting.is_empty() && self.log().is_none_or(sealed)
    }

    /// A full journal asks for a checkpoint, whatever became of the last one.
    fn refused(&mut self, error: AppendError) -> NotAsked {
        if matches!(error, AppendError::JournalFull { .. }) {
            self.checkpoint();
            self.settle();
        }
        error.into()
    }

    fn time(&self, wall: WallTime) -> ServerTime {
        self.clock.max(ServerTime::from_ms(wall.0))
    }

    fn append(&mut self, entry: Option<Vec<u8>>) {
        if let Store::Journal(log) = &mut self.store {
            let entry = entry.expect("what changes something has an entry");
            self.grown_bytes += entry.len() as u64;
            log.append(&[(entry::OPERATION, &entry)]).expect("room was made sure of");
        }
    }

    /// The last change, if it is not durable yet.
    fn rests_on(&self) -> Option<Lsn> {
        let journal = self.log()?.journal();
        journal.submitted_next_lsn().before().filter(|last| Some(*last) > journal.durable())
    }

    fn answer(
        &mut self,
        ask: Ask,
        op: StreamOp,
        at: ServerTime,
        result: Result<StreamReply, StreamError>,
        stirs: bool,
    ) {
        let outcome = Outcome::Answered { at: Some(at), result };
        self.events.push_back(EmbeddedEvent::Answered { ask, outcome });
        if stirs {
            self.events.push_back(EmbeddedEvent::Stirred(op.stream));
        }
    }

    /// Takes what the journal has to say.
    fn settle(&mut self) {
        while let Store::Journal(log) = &mut self.store
            && let Some(event) = log.poll_event()
        {
            match event {
                LogEvent::Durable(lsn) => self.durable(lsn),
                LogEvent::Entered(_) | LogEvent::Compacted { .. } => {}
                LogEvent::NotRemoved(fault) => self.events.push_back(EmbeddedEvent::NotRemoved(fault)),
                LogEvent::Checkpointed { through, bytes } => {
                    self.checkpoint_bytes = bytes;
                    self.events.push_back(EmbeddedEvent::Checkpointed { through, bytes });
                }
                LogEvent::NotCheckpointed(fault) => {
                    self.events.push_back(EmbeddedEvent::NotCheckpointed(fault));
                }
                LogEvent::Halted(halted) => {
                    self.halted = true;
                    for Waiting { ask, op, .. } in self.waiting.drain(..) {
                        let outcome = Outcome::Uncertain(Uncertain::new(op));
                        self.events.push_back(EmbeddedEvent::Answered { ask, outcome });
                    }
                    self.events.push_back(EmbeddedEvent::Halted(halted.0));
                }
            }
        }
    }

    fn durable(&mut self, lsn: Lsn) {
        while let Some(waiting) = self.waiting.pop_front_if(|waiting| waiting.rests_on <= lsn) {
            let Waiting { ask, op, at, result, stirs, .. } = waiting;
            self.answer(ask, op, at, result, stirs);
        }
        if self.grown_bytes >= self.limits.checkpoint_after_bytes.max(self.checkpoint_bytes) {
            self.checkpoint();
        }
    }

    fn checkpoint(&mut self) {
        let bytes_max = self.limits.checkpoint_bytes_max;
        let Store::Journal(log) = &mut self.store else { return };
        if log.is_checkpointing() {
            return;
        }
        self.grown_bytes = 0;
        match state::encode(self.clock, &self.keyspace, bytes_max) {
            // It may find nothing new: then the last one says the same.
            Ok(bytes) => drop(log.checkpoint(bytes)),
            Err(state::TooLarge) => self.events.push_back(EmbeddedEvent::CheckpointTooLarge { bytes_max }),
        }
    }
}

impl Machine for Embedded {
    type Command = StorageCommand;
    type Event = EmbeddedEvent;
    type Completion = StorageCompletion;
    type Channel = Never;

    fn handle_completion(&mut self, now: Now, completion: StorageCompletion) {
        if let Store::Journal(log) = &mut self.store {
            log.handle_completion(now, completion);
        }
        self.settle();
    }

    fn handle_timeout(&mut self, now: Now) {
        if let Store::Journal(log) = &mut self.store {
            log.handle_timeout(now);
        }
        self.settle();
    }

    fn poll_command(&mut self) -> Option<StorageCommand> {
        match &mut self.store {
            Store::Memory => None,
            Store::Journal(log) => log.poll_command(),
        }
    }

    fn poll_event(&mut self) -> Option<EmbeddedEvent> {
        self.events.pop_front()
    }

    fn poll_channel(&mut self, channel: Never, _: &mut Vec<u8>) -> Option<FrameInfo> {
        match channel {}
    }

    fn pending(&self) -> Pending {
        let of_log = self.log().map(JournalLog::pending).unwrap_or_default();
        Pending { events: !self.events.is_empty(), ..of_log }
    }
}
