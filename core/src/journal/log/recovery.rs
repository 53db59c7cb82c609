//! From the files of a directory to a bare journal.

use super::super::command::{
    FileName, Listed, SegmentNumber, StorageCommand, StorageCompletion, StorageOutcome,
};
use super::super::current::{self, CheckpointRef, Current};
use super::super::limits::{JournalLimits, JournalLimitsError};
use super::super::recovery::{
    CutReport, EndCase, JournalRecovery, Origin, Recovered, RecoveryFault, RecoveryPurpose, RecoveryStep,
};
use super::super::writer::JournalPurpose;
use super::checkpoint::{CHECKPOINT_BYTES_MAX, PIECE_BYTES_MAX, floor};
use super::kind::{LogKind, Rebuild};
use super::{JournalLog, Never};
use crate::error::{Classified, Family, StorageFault};
use crate::id::{Incarnation, LogId, Lsn, Run};
use crate::machine::{FrameInfo, Machine, Out, Pending};
use crate::seed::Seed;
use crate::ticket::Tickets;
use crate::time::Now;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use sha2::{Digest, Sha256};

/// What opening found and did.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Opened {
    /// Entries retained.
    pub entries: u64,
    /// Which rows of the table of journal ends applied.
    pub cases: Vec<EndCase>,
    /// A torn tail that was cut; nothing of it was acknowledged.
    pub cut: Option<CutReport>,
    /// Files removed because `current` no longer names them.
    pub removed: Vec<FileName>,
}

/// Why a bare journal cannot be opened, or not be made.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum LogError {
    /// The limits contradict each other.
    #[error(transparent)]
    Limits(#[from] JournalLimitsError),
    /// The directory holds no log.
    #[error("the directory holds no journal: expected a file current; create the journal first")]
    NoJournal,
    /// A journal cannot be made where files of a log are.
    #[error("the directory already holds {found}: a journal is made in an empty directory only")]
    Exists {
        /// The first file found.
        found: FileName,
    },
    /// The directory holds a log of another kind.
    #[error("the directory holds another kind of log: expected the mark of {expected}, found {found}")]
    OtherKind {
        /// What was to be opened.
        expected: &'static str,
        /// What `current` says in its place.
        found: String,
    },
    /// The segments must not be opened, or could not be repaired.
    #[error(transparent)]
    Segments(#[from] RecoveryFault),
    /// Another command failed, or `current` is not what was written.
    #[error(transparent)]
    Storage(#[from] StorageFault),
}

impl LogError {
    /// Whose fault it is: each variant belongs to one family.
    #[must_use]
    pub const fn family(&self) -> Family {
        match self {
            Self::Limits(_) | Self::NoJournal | Self::Exists { .. } | Self::OtherKind { .. } => {
                Family::Caller
            }
            Self::Segments(_) => RecoveryFault::FAMILY,
            Self::Storage(_) => StorageFault::FAMILY,
        }
    }
}

/// Why [`LogRecovery::finish`] gives no journal.
#[derive(Debug)]
pub enum NotOpened<V> {
    /// Commands are out or must be polled: drain, hand in completions, try again.
    Working(Box<LogRecovery<V>>),
    /// It failed for good; nothing was lost by trying.
    Failed(LogError),
}

#[derive(Debug)]
enum Purpose {
    List,
    Create,
    Current,
    Checkpoint,
    Recovery(RecoveryPurpose),
    Enter(JournalPurpose),
    Remove,
    Commit,
}

impl From<RecoveryPurpose> for Purpose {
    fn from(purpose: RecoveryPurpose) -> Self {
        Self::Recovery(purpose)
    }
}

impl From<JournalPurpose> for Purpose {
    fn from(purpose: JournalPurpose) -> Self {
        Self::Enter(purpose)
    }
}

/// What to do with the list of files.
#[derive(Debug)]
enum Mode {
    Create,
    Open,
    /// Whichever of the two it is.
    Ensure,
    Resume(Box<Named>),
}

/// What `current` names.
#[derive(Clone, Debug)]
struct Named {
    current: Current,
    origin: Origin,
}

#[derive(Debug)]
enum Stage {
    Listing(Mode),
    Creating,
    Current(Vec<Listed>),
    /// Reading the checkpoint, so far.
    Checkpoint {
        listed: Vec<Listed>,
        named: Box<Named>,
        made: CheckpointRef,
        bytes: Vec<u8>,
    },
    Segments(Box<JournalRecovery>, Box<Named>),
    /// Entering the first segment, removing, committing: one after the other.
    Recovered(Box<Recovered>, Box<Named>),
    Done(Box<Recovered>, Box<Current>),
    Failed(LogError),
}

/// Opens or creates a bare journal. A root: run it with [`crate::machine::drain`] until
/// [`LogRecovery::finish`] gives the journal. See [`JournalLog`] for an example.
///
/// `visit` takes each entry that is kept, in order, before the journal exists; drop what it built if
/// recovery fails. An error of it is damage of that entry.
#[derive(Debug)]
pub struct LogRecovery<V> {
    limits: JournalLimits,
    seed: Seed,
    kind: LogKind,
    visit: V,
    out: Out<Purpose, StorageCommand, Never>,
    stage: Stage,
    /// Checkpoints that `current` does not name.
    remove: Vec<FileName>,
}

impl<V: Rebuild> LogRecovery<V> {
    /// Makes a journal in an empty directory. `seed` must differ between starts.
    #[must_use]
    pub fn create(limits: JournalLimits, seed: Seed, visit: V) -> Self {
        Self::new(LogKind::Bare, limits, seed, visit, Mode::Create)
    }

    /// Opens the journal that a directory holds. `seed` must differ between starts.
    #[must_use]
    pub fn open(limits: JournalLimits, seed: Seed, visit: V) -> Self {
        Self::new(LogKind::Bare, limits, seed, visit, Mode::Open)
    }

    /// Opens segments whose `current` the caller has read, or knows to be lost and can replace.
    #[must_use]
    pub fn resume(limits: JournalLimits, seed: Seed, visit: V, current: Current, origin: Origin) -> Self {
        let mode = Mode::Resume(Box::new(Named { current, origin }));
        Self::new(LogKind::Bare, limits, seed, visit, mode)
    }

    /// Opens the journal of this kind that a directory holds, or makes one in an empty directory.
    #[must_use]
    pub fn ensure(kind: LogKind, limits: JournalLimits, seed: Seed, visit: V) -> Self {
        Self::new(kind, limits, seed, visit, Mode::Ensure)
    }

    fn new(kind: LogKind, limits: JournalLimits, seed: Seed, visit: V, mode: Mode) -> Self {
        // Tickets of recovery need a run of their own before `current` tells the last one.
        let run = Run(seed.number("recovery run", 0) | 1 << 63);
        let mut out = Out::new(Tickets::new(run));
        let stage = match limits.validate() {
            Ok(()) => {
                out.command(Purpose::List, |ticket| StorageCommand::List { ticket });
                Stage::Listing(mode)
            }
            Err(error) => Stage::Failed(error.into()),
        };
        Self { limits, seed, kind, visit, out, stage, remove: Vec::new() }
    }

    /// The journal, once everything it is built on is durable.
    ///
    /// # Errors
    /// [`NotOpened::Working`] hands the recovery back.
    pub fn finish(self) -> Result<(JournalLog, Opened), NotOpened<V>> {
        self.finish_with().map(|(log, opened, _)| (log, opened))
    }

    /// As [`LogRecovery::finish`], with what took the entries.
    ///
    /// # Errors
    /// As [`LogRecovery::finish`].
    pub fn finish_with(self) -> Result<(JournalLog, Opened, V), NotOpened<V>> {
        match self.stage {
            Stage::Done(recovered, current) => {
                let Recovered { journal, cases, cut, remove } = *recovered;
                let opened = Opened { entries: journal.index().entries(), cases, cut, removed: remove };
                Ok((JournalLog::new(journal, *current), opened, self.visit))
            }
            Stage::Failed(error) => Err(NotOpened::Failed(error)),
            Stage::Listing(_)
            | Stage::Creating
            | Stage::Current(_)
            | Stage::Checkpoint { .. }
            | Stage::Segments(..)
            | Stage::Recovered(..) => Err(NotOpened::Working(Box::new(self))),
        }
    }

    fn take_stage(&mut self) -> Stage {
        core::mem::replace(&mut self.stage, Stage::Creating)
    }

    fn settled(&mut self, purpose: Purpose, outcome: StorageOutcome) -> Result<(), LogError> {
        match (purpose, outcome) {
            (Purpose::List, StorageOutcome::List(listed)) => self.listed(listed?),
            (Purpose::Create, StorageOutcome::Replace(done)) => {
                done?;
                // The new journal is opened as any other: one way in.
                self.stage = Stage::Listing(Mode::Open);
                self.out.command(Purpose::List, |ticket| StorageCommand::List { ticket });
                Ok(())
            }
            (Purpose::Current, StorageOutcome::Read(bytes)) => {
                let Stage::Current(listed) = self.take_stage() else {
                    unreachable!("current was being read")
                };
                self.named(listed, Box::new(named(self.kind, &bytes?)?))
            }
            (Purpose::Checkpoint, StorageOutcome::Read(bytes)) => self.checkpoint_read(&bytes?),
            (Purpose::Recovery(purpose), outcome) => self.segments(purpose, outcome),
            (Purpose::Enter(purpose), outcome) => self.entering(purpose, outcome),
            (Purpose::Remove, StorageOutcome::Remove(done)) => {
                done?;
                self.commit();
                Ok(())
            }
            (Purpose::Commit, StorageOutcome::Replace(done)) => {
                done?;
                let Stage::Recovered(recovered, named) = self.take_stage() else {
                    unreachable!("current was being replaced")
                };
                self.stage = Stage::Done(recovered, Box::new(named.current));
                Ok(())
            }
            (purpose, outcome) => unreachable!("{outcome:?} does not answer {purpose:?}"),
        }
    }

    fn listed(&mut self, listed: Vec<Listed>) -> Result<(), LogError> {
        let Stage::Listing(mode) = self.take_stage() else { unreachable!("a list was asked for") };
        match mode {
            Mode::Resume(named) => self.begin(&listed, named),
            Mode::Create | Mode::Ensure if listed.is_empty() => {
                self.replace(Purpose::Create, &fresh(self.kind, &self.seed));
                Ok(())
            }
            Mode::Create => Err(LogError::Exists { found: listed[0].file }),
            Mode::Open | Mode::Ensure if listed.iter().any(|found| found.file == FileName::Current) => {
                self.stage = Stage::Current(listed);
                // One byte more than allowed tells that a file is too long.
                let bytes_max = u32::try_from(current::ENVELOPE.bytes_max() + 1).unwrap_or(u32::MAX);
                let (file, offset) = (FileName::Current, 0);
                self.out.command(Purpose::Current, |ticket| StorageCommand::Read {
                    ticket,
                    file,
                    offset,
                    bytes_max,
                });
                Ok(())
            }
            Mode::Ensure => Err(LogError::Exists { found: listed[0].file }),
            Mode::Open => Err(LogError::NoJournal),
        }
    }

    /// What `current` names is taken: the checkpoint first.
    fn named(&mut self, listed: Vec<Listed>, named: Box<Named>) -> Result<(), LogError> {
        let Some(made) = named.current.checkpoint else { return self.begin(&listed, named) };
        let file = FileName::Checkpoint(made.number);
        let found = listed.iter().find(|listed| listed.file == file).map_or(0, |listed| listed.bytes);
        if found != made.bytes || made.bytes > CHECKPOINT_BYTES_MAX {
            let bytes = made.bytes;
            let detail = format!(
                "expected {bytes} bytes ({CHECKPOINT_BYTES_MAX} at most) as current says, found {found}"
            );
            return Err(StorageFault::damaged(file, 0, detail).into());
        }
        self.stage = Stage::Checkpoint { listed, named, made, bytes: Vec::new() };
        self.checkpoint_read(&[])
    }

    fn checkpoint_read(&mut self, piece: &[u8]) -> Result<(), LogError> {
        let Stage::Checkpoint { made, bytes, .. } = &mut self.stage else {
            unreachable!("a checkpoint is being read")
        };
        let (file, asked) = (FileName::Checkpoint(made.number), !bytes.is_empty());
        bytes.extend_from_slice(piece);
        let (offset, left) = (bytes.len() as u64, made.bytes.saturating_sub(bytes.len() as u64));
        if left > 0 && !(asked && piece.is_empty()) {
            let bytes_max = u32::try_from(left).map_or(PIECE_BYTES_MAX, |left| left.min(PIECE_BYTES_MAX));
            self.out.command(Purpose::Checkpoint, |ticket| StorageCommand::Read {
                ticket,
                file,
                offset,
                bytes_max,
            });
            return Ok(());
        }
        if bytes.len() as u64 != made.bytes || Sha256::digest(&*bytes)[..] != made.sha256 {
            let detail = format!("expected {} bytes with the SHA-256 that current names", made.bytes);
            return Err(StorageFault::damaged(file, 0, detail).into());
        }
        let Stage::Checkpoint { listed, named, bytes, .. } = self.take_stage() else {
            unreachable!("a checkpoint was read")
        };
        self.visit.checkpoint(&bytes).map_err(|detail| StorageFault::damaged(file, 0, detail))?;
        self.begin(&listed, named)
    }

    fn replace(&mut self, purpose: Purpose, current: &Current) {
        let (file, bytes) = (FileName::Current, current.encode());
        self.out.command(purpose, |ticket| StorageCommand::Replace { ticket, file, bytes });
    }

    fn begin(&mut self, listed: &[Listed], mut named: Box<Named>) -> Result<(), LogError> {
        let Current { log, first_segment, .. } = named.current;
        let kept = named.current.checkpoint.map(|made| FileName::Checkpoint(made.number));
        for listed in listed {
            if let FileName::Checkpoint(number) = listed.file {
                named.current.next_checkpoint = named.current.next_checkpoint.max(number.saturating_add(1));
                if Some(listed.file) != kept {
                    self.remove.push(listed.file);
                }
            }
        }
        let mut recovery =
            JournalRecovery::new(self.limits, log, first_segment, named.origin, self.seed.clone());
        let step = recovery.start(listed, &mut self.out)?;
        self.stage = Stage::Segments(Box::new(recovery), named);
        self.step(step)
    }

    fn segments(&mut self, purpose: RecoveryPurpose, outcome: StorageOutcome) -> Result<(), LogError> {
        let Stage::Segments(recovery, named) = &mut self.stage else {
            unreachable!("segments are being read")
        };
        let (floor, rebuild) = (floor(&named.current), &mut self.visit);
        let visit = &mut |lsn: Lsn, kind: u8, payload: &[u8]| match floor {
            // It is in the checkpoint.
            Some(floor) if lsn <= floor => Ok(()),
            Some(_) | None => rebuild.entry(lsn, kind, payload),
        };
        let step = recovery.handle(purpose, outcome, visit, &mut self.out)?;
        self.step(step)
    }

    fn step(&mut self, step: RecoveryStep) -> Result<(), LogError> {
        let RecoveryStep::Done(recovered) = step else { return Ok(()) };
        let Stage::Segments(_, named) = self.take_stage() else { unreachable!("segments are being read") };
        let index = recovered.journal.index();
        let (first, next) = (index.first_lsn(), index.next_lsn());
        if let Some(floor) = floor(&named.current) {
            let after = floor.plus(1);
            // The segment after a checkpoint is entered before `current` names either: an entry written at
            // or before the floor would be taken for one that the checkpoint holds.
            if first > after || next < after {
                let detail = format!(
                    "expected a journal that goes on at {}, after the checkpoint, found one from {} on whose next entry is {}",
                    after.get(),
                    first.get(),
                    next.get(),
                );
                let file = FileName::Segment(named.current.first_segment);
                return Err(StorageFault::damaged(file, 0, detail).into());
            }
        }
        self.stage = Stage::Recovered(recovered, named);
        self.enter();
        Ok(())
    }

    /// A new journal's first segment is entered before anything may be submitted to it.
    fn enter(&mut self) {
        let Stage::Recovered(recovered, _) = &mut self.stage else { unreachable!("segments were read") };
        if recovered.journal.segment().is_none() {
            return recovered.journal.submit(None, &mut self.out);
        }
        let _ = recovered.journal.take_switched();
        recovered.remove.append(&mut self.remove);
        let files = recovered.remove.clone();
        if files.is_empty() {
            return self.commit();
        }
        self.out.command(Purpose::Remove, |ticket| StorageCommand::Remove { ticket, files });
    }

    fn entering(&mut self, purpose: JournalPurpose, outcome: StorageOutcome) -> Result<(), LogError> {
        let Stage::Recovered(recovered, _) = &mut self.stage else { unreachable!("a segment is entered") };
        let handled = match outcome {
            StorageOutcome::Append(result) => recovered.journal.handle_append(purpose, result).map(drop),
            StorageOutcome::Prepare(result) => recovered.journal.handle_prepare(purpose, result),
            other @ (StorageOutcome::List(_)
            | StorageOutcome::Read(_)
            | StorageOutcome::Cut(_)
            | StorageOutcome::Replace(_)
            | StorageOutcome::Write(_)
            | StorageOutcome::Sync(_)
            | StorageOutcome::Remove(_)) => unreachable!("{other:?} does not answer {purpose:?}"),
        };
        handled.map_err(|halted| halted.0)?;
        self.enter();
        Ok(())
    }

    /// Takes a run of its own, and from now on the first segment must be there.
    fn commit(&mut self) {
        let Stage::Recovered(_, named) = &mut self.stage else { unreachable!("segments were read") };
        named.current.run = Run(named.current.run.0 + 1);
        named.current.opaque = opaque(self.kind, Origin::Existing);
        let current = named.current.clone();
        self.replace(Purpose::Commit, &current);
    }
}

fn fresh(kind: LogKind, seed: &Seed) -> Current {
    Current {
        log: LogId(seed.bytes("log", 0)),
        incarnation: Incarnation { counter: 1, nonce: seed.bytes("incarnation", 0) },
        identity: String::new(),
        namespaces: Vec::new(),
        run: Run(1),
        first_segment: SegmentNumber(1),
        next_checkpoint: 1,
        checkpoint: None,
        floor: [0; 16],
        floor_digest: [0; 32],
        opaque: opaque(kind, Origin::New),
    }
}

/// What a bare journal keeps in `current`: the mark of its kind, then whether its first segment was
/// ever entered (one byte, 0 or 1).
fn opaque(kind: LogKind, origin: Origin) -> Vec<u8> {
    let entered = match origin {
        Origin::New => 0,
        Origin::Existing => 1,
    };
    let mut out = kind.mark().to_vec();
    out.push(entered);
    out
}

fn named(kind: LogKind, bytes: &[u8]) -> Result<Named, LogError> {
    let mark = kind.mark();
    let current = Current::decode(bytes)?;
    let origin = match current.opaque.strip_prefix(&mark[..]) {
        Some([0]) => Origin::New,
        Some([1]) => Origin::Existing,
        Some(_) | None => {
            let bytes = current.opaque.get(..mark.len() + 1).unwrap_or(&current.opaque);
            return Err(LogError::OtherKind {
                expected: kind.words(),
                found: format!("{}", bytes.escape_ascii()),
            });
        }
    };
    Ok(Named { current, origin })
}

impl<V: Rebuild> Machine for LogRecovery<V> {
    type Command = StorageCommand;
    type Event = Never;
    type Completion = StorageCompletion;
    type Channel = Never;

    fn handle_completion(&mut self, _: Now, completion: StorageCompletion) {
        let Some((purpose, outcome)) = self.out.tickets().settle(completion) else { return };
        if let Err(error) = self.settled(purpose, outcome) {
            self.stage = Stage::Failed(error);
        }
    }

    fn handle_timeout(&mut self, _: Now) {}

    fn poll_command(&mut self) -> Option<StorageCommand> {
        self.out.poll_command()
    }

    fn poll_event(&mut self) -> Option<Never> {
        None
    }

    fn poll_channel(&mut self, channel: Never, _: &mut Vec<u8>) -> Option<FrameInfo> {
        match channel {}
    }

    fn pending(&self) -> Pending {
        self.out.pending()
    }
}
