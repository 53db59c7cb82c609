//! A bare journal: opaque payloads in a directory of their own, without a protocol on top.
//!
//! Two roots: [`LogRecovery`] makes a [`JournalLog`] from what is stored, or makes a new one.
//! `current` names the log, the oldest segment that counts and the run, as in every directory.

mod checkpoint;
mod kind;
mod recovery;

pub use checkpoint::{CHECKPOINT_BYTES_MAX, CheckpointError};
pub use kind::{LogKind, Rebuild};
pub use recovery::{LogError, LogRecovery, NotOpened, Opened};

use super::command::{FileName, SegmentNumber, StorageCommand, StorageCompletion, StorageOutcome};
use super::current::Current;
use super::writer::{AppendError, Halted, Journal, JournalPurpose, Switched};
use crate::error::StorageFault;
use crate::id::Lsn;
use crate::machine::{FrameInfo, Machine, Out, Pending};
use crate::ticket::Tickets;
use crate::time::{Instant, Now};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use checkpoint::{CheckpointPurpose, Making};

/// A channel that does not exist: a bare journal sends nothing.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum Never {}

/// What happened to a [`JournalLog`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum LogEvent {
    /// Everything up to here survives power loss.
    Durable(Lsn),
    /// A forced switch is done.
    Entered(Switched),
    /// `current` names `first_segment` as the oldest, and what may go is gone.
    Compacted {
        /// The oldest segment that counts.
        first_segment: SegmentNumber,
    },
    /// The files before the oldest segment could not be removed; the next open tries again.
    NotRemoved(StorageFault),
    /// A checkpoint is what recovery begins with.
    Checkpointed {
        /// The last entry that is in it.
        through: Lsn,
        /// Its length.
        bytes: u64,
    },
    /// A checkpoint could not be written; the segments stay, and another one may be tried.
    NotCheckpointed(StorageFault),
    /// A write or a sync failed: what was pending has an unknown outcome. Recover from storage.
    Halted(Halted),
}

/// Keeps segments from being removed while they are read; made by [`JournalLog::pin`].
#[derive(Debug)]
#[must_use = "a pin that is dropped keeps its segments for ever"]
pub struct Pin(SegmentNumber);

/// What a command was for.
#[derive(Debug)]
enum Purpose {
    Journal(JournalPurpose),
    Checkpoint(CheckpointPurpose),
    /// `current`, saying this.
    Commit(Box<Current>),
    Remove,
    /// Away with a file that nothing ever named.
    Discard,
}

impl From<JournalPurpose> for Purpose {
    fn from(purpose: JournalPurpose) -> Self {
        Self::Journal(purpose)
    }
}

/// The live root of a bare journal, made by [`LogRecovery::finish`] alone.
///
/// ```
/// use strandline_core::id::Lsn;
/// use strandline_core::journal::command::StorageCommand;
/// use strandline_core::journal::limits::JournalLimits;
/// use strandline_core::journal::log::{LogEvent, LogRecovery};
/// use strandline_core::machine::Machine;
/// use strandline_core::{seed::Seed, time::Now};
///
/// // A host executes commands; here every effect succeeds at once, in an empty directory.
/// let mut current = Vec::new();
/// let mut execute = |command| match command {
///     StorageCommand::List { ticket } if current.is_empty() => ticket.complete(Ok(Vec::new())),
///     StorageCommand::List { ticket } => {
///         use strandline_core::journal::command::{FileName, Listed};
///         ticket.complete(Ok(vec![Listed { file: FileName::Current, bytes: current.len() as u64 }]))
///     }
///     StorageCommand::Replace { ticket, bytes, .. } => {
///         current = bytes;
///         ticket.complete(Ok(()))
///     }
///     StorageCommand::Read { ticket, .. } => ticket.complete(Ok(current.clone())),
///     StorageCommand::Prepare { ticket, .. } => ticket.complete(Ok(())),
///     StorageCommand::Append { ticket, .. } => ticket.complete(Ok(())),
///     other => panic!("{other:?}"),
/// };
/// let visit = |_: Lsn, _: u8, _: &[u8]| Ok(());
/// let mut recovery = LogRecovery::create(JournalLimits::default(), Seed::new([1; 32]), visit);
/// while let Some(command) = recovery.poll_command() {
///     recovery.handle_completion(Now::default(), execute(command));
/// }
/// let Ok((mut log, opened)) = recovery.finish() else { panic!("a new journal") };
/// assert_eq!(opened.entries, 0);
///
/// let (first, last) = log.append(&[(0, b"one"), (0, b"two")])?;
/// while let Some(command) = log.poll_command() {
///     log.handle_completion(Now::default(), execute(command));
/// }
/// assert_eq!((first, log.poll_event()), (Lsn::FIRST, Some(LogEvent::Durable(last))));
/// # Ok::<(), Box<dyn core::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct JournalLog {
    out: Out<Purpose, StorageCommand, LogEvent>,
    now: Now,
    journal: Journal,
    current: Current,
    gate: Option<Lsn>,
    seal_at: Option<Instant>,
    /// The oldest segment to be kept; beyond what `current` names while a commit is to come.
    keep: SegmentNumber,
    committing: bool,
    halted: bool,
    /// Segments that `current` no longer names and that are not removed yet.
    leaving: Vec<SegmentNumber>,
    /// The checkpoint before the one that `current` names.
    leaving_checkpoint: Option<u64>,
    making: Option<Making>,
    pins: BTreeMap<SegmentNumber, u32>,
}

impl JournalLog {
    /// Its first command may prepare the next segment.
    fn new(journal: Journal, current: Current) -> Self {
        let mut log = Self {
            out: Out::new(Tickets::new(current.run)),
            now: Now::default(),
            journal,
            keep: current.first_segment,
            current,
            gate: None,
            seal_at: None,
            committing: false,
            halted: false,
            leaving: Vec::new(),
            leaving_checkpoint: None,
            making: None,
            pins: BTreeMap::new(),
        };
        log.submit();
        log
    }

    /// Appends entries (kind, payload) that recovery takes all or none. They are durable once
    /// [`LogEvent::Durable`] names the last of the two LSNs or a later one.
    ///
    /// # Errors
    /// Nothing is appended; [`AppendError`] says why.
    pub fn append(&mut self, entries: &[(u8, &[u8])]) -> Result<(Lsn, Lsn), AppendError> {
        if self.halted {
            return Err(AppendError::Halted);
        }
        let lsns = self.journal.append_group(entries)?;
        self.submit();
        Ok(lsns)
    }

    /// Whether these entries could be appended now.
    ///
    /// # Errors
    /// What [`JournalLog::append`] would refuse them with.
    pub fn admits(&self, entries: &[(u8, &[u8])]) -> Result<(), AppendError> {
        if self.halted { Err(AppendError::Halted) } else { self.journal.admits(entries) }
    }

    /// Holds the entries above `gate` back, until another gate lets them go.
    pub fn hold_above(&mut self, gate: Option<Lsn>) {
        self.gate = gate;
        self.submit();
    }

    /// Records the last entries as durable in the journal itself, before it is closed.
    pub fn seal(&mut self) {
        self.seal_at = None;
        if !self.halted {
            self.journal.seal(self.gate, &mut self.out);
        }
    }

    /// Starts a fresh segment, so that all entries so far can be dropped.
    pub fn switch_segment(&mut self) {
        if !self.halted {
            self.journal.switch_segment(self.gate, &mut self.out);
            self.switched();
        }
    }

    /// Drops the segments whose entries are all below `lsn`; the newest one stays. Answers with the
    /// oldest segment that will be left, and [`LogEvent::Compacted`] names it or a later one when
    /// that is durable; `None` if there is nothing to drop.
    pub fn compact_to(&mut self, lsn: Lsn) -> Option<SegmentNumber> {
        let below = lsn.before().min(self.journal.durable())?;
        let keep = self.journal.removable_before(Some(below));
        if self.halted || keep <= self.keep {
            return None;
        }
        self.keep = keep;
        self.commit();
        Some(keep)
    }

    /// Keeps what is retained now from being removed until [`JournalLog::unpin`].
    pub fn pin(&mut self) -> Pin {
        let first = self.current.first_segment;
        *self.pins.entry(first).or_insert(0) += 1;
        Pin(first)
    }

    /// Lets go of what `pin` kept.
    pub fn unpin(&mut self, pin: Pin) {
        if let Some(count) = self.pins.get_mut(&pin.0) {
            *count -= 1;
            if *count == 0 {
                self.pins.remove(&pin.0);
                self.remove();
            }
        }
    }

    /// The journal underneath.
    #[must_use]
    pub const fn journal(&self) -> &Journal {
        &self.journal
    }

    /// How many answers of other runs came in.
    pub fn stale(&mut self) -> u64 {
        self.out.tickets().stale()
    }

    fn submit(&mut self) {
        self.switched();
        if !self.halted {
            self.journal.submit(self.gate, &mut self.out);
        }
    }

    fn switched(&mut self) {
        if let Some(switched) = self.journal.take_switched() {
            self.out.event(LogEvent::Entered(switched));
            self.checkpoint_switched(switched.first_lsn);
        }
    }

    fn handled(&mut self, result: Result<Option<Lsn>, Halted>) {
        match result {
            // After a fault elsewhere the journal is done as well: what is not said to be durable by then
            // stays uncertain until recovery.
            Ok(Some(_)) if self.halted => {}
            Ok(None) => {}
            Ok(Some(lsn)) => {
                self.seal_at = Some(self.now.mono.after_ms(self.journal.limits().seal_ms));
                self.out.event(LogEvent::Durable(lsn));
                self.commit();
            }
            Err(halted) => self.halt(halted.0),
        }
        self.submit();
    }

    fn halt(&mut self, fault: StorageFault) {
        self.seal_at = None;
        if !core::mem::replace(&mut self.halted, true) {
            self.out.event(LogEvent::Halted(Halted(fault)));
        }
    }

    /// Replaces `current` unless that is under way; what was wanted meanwhile follows.
    fn commit(&mut self) {
        let nothing_new = self.making.is_none() && self.keep <= self.current.first_segment;
        if self.committing || self.halted || nothing_new {
            return;
        }
        let keep = self.keep.max(self.current.first_segment);
        let next = self.checkpoint_wanted(Current { first_segment: keep, ..self.current.clone() });
        if next == self.current {
            return;
        }
        self.committing = true;
        let (file, bytes) = (FileName::Current, next.encode());
        let purpose = Purpose::Commit(Box::new(next));
        self.out.command(purpose, |ticket| StorageCommand::Replace { ticket, file, bytes });
    }

    fn committed(&mut self, next: Box<Current>, result: Result<(), StorageFault>) {
        self.committing = false;
        // Which of the two a crash would leave is unknown, so nothing may be built on either.
        if let Err(fault) = result {
            return self.halt(fault);
        }
        // After a fault elsewhere nothing more is done; the next open removes what is left.
        if self.halted {
            return;
        }
        let keep = next.first_segment;
        let index = self.journal.index();
        self.leaving.extend(index.segments().map(super::index::SegmentIndex::number).filter(|n| *n < keep));
        self.checkpoint_committed(next);
        self.journal.drop_before(keep);
        if !self.remove() {
            self.out.event(LogEvent::Compacted { first_segment: keep });
        }
        self.commit();
    }

    /// Removes what `current` no longer names and nobody reads. False if there is nothing.
    fn remove(&mut self) -> bool {
        if self.halted {
            return false;
        }
        let pinned = self.pins.keys().next().copied();
        let (stay, go): (Vec<_>, Vec<_>) =
            self.leaving.drain(..).partition(|number| pinned.is_some_and(|pinned| pinned <= *number));
        self.leaving = stay;
        let checkpoint = self.leaving_checkpoint.take().map(FileName::Checkpoint);
        let files: Vec<_> = go.into_iter().map(FileName::Segment).chain(checkpoint).collect();
        if files.is_empty() {
            return false;
        }
        self.out.command(Purpose::Remove, |ticket| StorageCommand::Remove { ticket, files });
        true
    }
}

impl Machine for JournalLog {
    type Command = StorageCommand;
    type Event = LogEvent;
    type Completion = StorageCompletion;
    type Channel = Never;

    fn handle_completion(&mut self, now: Now, completion: StorageCompletion) {
        self.now = self.now.latest(now);
        match self.out.tickets().settle(completion) {
            None => {}
            Some((Purpose::Journal(purpose), StorageOutcome::Append(result))) => {
                let handled = self.journal.handle_append(purpose, result);
                self.handled(handled);
            }
            Some((Purpose::Journal(purpose), StorageOutcome::Prepare(result))) => {
                let handled = self.journal.handle_prepare(purpose, result);
                self.handled(handled.map(|()| None));
            }
            Some((
                Purpose::Checkpoint(purpose),
                StorageOutcome::Write(result) | StorageOutcome::Sync(result),
            )) => self.checkpoint_done(purpose, result),
            Some((Purpose::Commit(next), StorageOutcome::Replace(result))) => self.committed(next, result),
            // Nothing waits for it, and the next open removes what is left.
            Some((Purpose::Discard, StorageOutcome::Remove(_))) => {}
            Some((Purpose::Remove, StorageOutcome::Remove(result))) => self.out.event(match result {
                Ok(()) => LogEvent::Compacted { first_segment: self.current.first_segment },
                Err(fault) => LogEvent::NotRemoved(fault),
            }),
            Some((purpose, outcome)) => panic!("{outcome:?} does not answer {purpose:?}"),
        }
    }

    fn handle_timeout(&mut self, now: Now) {
        self.now = self.now.latest(now);
        if self.seal_at.is_some_and(|at| at <= self.now.mono) {
            self.seal();
        }
    }

    fn poll_command(&mut self) -> Option<StorageCommand> {
        self.out.poll_command()
    }

    fn poll_event(&mut self) -> Option<LogEvent> {
        self.out.poll_event()
    }

    fn poll_channel(&mut self, channel: Never, _: &mut Vec<u8>) -> Option<FrameInfo> {
        match channel {}
    }

    fn pending(&self) -> Pending {
        Pending { deadline: self.seal_at, ..self.out.pending() }
    }
}
