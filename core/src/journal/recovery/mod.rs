//! Makes a live journal from what is stored, or says why it must not.
//!
//! Reads the headers of all segments, then every batch in order, then what lies behind the last
//! valid batch. The header of a later segment proves that everything before it was durable, so only
//! the newest entered segment can end in a torn tail. One command is out at a time, and nothing is
//! changed before everything was read.

mod batches;
mod end;
mod probe;
mod segments;

pub use end::{Decision, EndCase, RecoveryFault};

use super::command::{FileName, Listed, SegmentNumber, StorageCommand, StorageOutcome};
use super::index::Index;
use super::limits::JournalLimits;
use super::segment::{Position, SegmentHeader};
use super::writer::{Journal, Live, Spare, Start};
use crate::id::{LogId, Lsn};
use crate::machine::Out;
use crate::seed::Seed;
use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use probe::Suspect;

/// What a command of recovery was for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum RecoveryPurpose {
    /// Bytes to look at.
    Read,
    /// The torn tail.
    Cut,
    /// The last batch, or header, once more.
    Rewrite,
    /// A file to be built on.
    Sync,
}

/// Whether the first segment must be there.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Origin {
    /// The log was just created and nothing was ever acknowledged: the first segment may be
    /// missing or not entered. Whatever is there is recovered all the same.
    New,
    /// The first segment was entered before `current` named it, so it must be there.
    Existing,
}

/// Takes each entry of each valid batch in order. An error is damage of that entry.
pub type Visit<'a> = &'a mut dyn FnMut(Lsn, u8, &[u8]) -> Result<(), String>;

/// How far recovery is.
#[derive(Debug)]
#[must_use]
pub enum RecoveryStep {
    /// A command is out.
    Working,
    /// The journal is live: what was kept is synced, what was torn is cut.
    Done(Box<Recovered>),
}

/// A torn tail that was cut. Nothing of it was acknowledged.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CutReport {
    /// Where the journal ends now.
    pub at: Position,
    /// Length of the copy kept in the folder `cut/`.
    pub bytes: u64,
}

/// What recovery found.
#[derive(Debug)]
pub struct Recovered {
    /// The live journal.
    pub journal: Journal,
    /// The rows of the table that applied: of a segment prepared behind the newest entered one,
    /// then of that one.
    pub cases: Vec<EndCase>,
    /// The torn tail, if there was one.
    pub cut: Option<CutReport>,
    /// Segments that `current` no longer names, for the root to remove.
    pub remove: Vec<FileName>,
}

/// The part that recovers a journal. See [`Journal`] for an example.
#[derive(Debug)]
pub struct JournalRecovery {
    limits: JournalLimits,
    log: LogId,
    first_segment: SegmentNumber,
    origin: Origin,
    seed: Seed,
    found: Vec<Found>,
    remove: Vec<FileName>,
    phase: Phase,
    reading: Reading,
    index: Index,
    /// Where the next batch should start.
    at: Position,
    unrecorded: bool,
    spare: Spare,
    cases: Vec<EndCase>,
    cut: Option<CutReport>,
    /// The last batch of the newest entered segment, or its header: the only bytes of the journal
    /// that nothing behind them proves to be durable.
    last: Last,
}

#[derive(Debug)]
struct Last {
    at: Position,
    bytes: Vec<u8>,
}

#[derive(Clone, Copy, Debug)]
struct Found {
    number: SegmentNumber,
    bytes: u64,
    header: Option<SegmentHeader>,
}

#[derive(Clone, Copy, Debug)]
struct Reading {
    at: Position,
    bytes: u32,
}

#[derive(Debug)]
enum Phase {
    /// Reading the header of the segment with this place in the list.
    Headers(usize),
    /// Checking that the newest segment, which has no header, is zeros.
    Blank(EndCase),
    /// Reading the batches of the segment with this place in the list.
    Batches(usize),
    /// Looking for proof behind a bad batch; whether only zeros were seen from it on.
    Behind { suspect: Suspect, case: EndCase, zeros: bool },
    /// Cutting.
    Cutting,
    /// Writing the last batch again.
    Rewriting,
    /// Syncing what is built on.
    Syncing(VecDeque<FileName>),
}

/// What to do next.
enum Ask {
    Read { at: Position, bytes: u64 },
    Cut,
    Rewrite,
    Sync(FileName),
    Finish,
}

impl JournalRecovery {
    /// Recovers the segments of `log` from `first_segment` on. `seed` must differ between starts.
    ///
    /// # Panics
    /// If the limits contradict each other: whoever takes them in validates them.
    #[must_use]
    pub fn new(
        limits: JournalLimits,
        log: LogId,
        first_segment: SegmentNumber,
        origin: Origin,
        seed: Seed,
    ) -> Self {
        limits.validate().expect("limits were validated");
        let at = Position { segment: first_segment, offset: 0 };
        Self {
            limits,
            log,
            first_segment,
            origin,
            seed,
            found: Vec::new(),
            remove: Vec::new(),
            phase: Phase::Headers(0),
            reading: Reading { at, bytes: 0 },
            index: Index::new(Lsn::FIRST),
            at,
            unrecorded: false,
            spare: Spare::Absent,
            cases: Vec::new(),
            cut: None,
            last: Last { at, bytes: Vec::new() },
        }
    }

    /// Starts with what the directory holds. Files that are no segments are ignored.
    ///
    /// # Errors
    /// If a segment is missing.
    pub fn start<P, C, E>(
        &mut self,
        listed: &[Listed],
        out: &mut Out<P, C, E>,
    ) -> Result<RecoveryStep, RecoveryFault>
    where
        P: From<RecoveryPurpose>,
        C: From<StorageCommand>,
    {
        let ask = self.list(listed)?;
        Ok(self.push(ask, out))
    }

    /// Takes the answer to a command of recovery. Entries of valid batches go to `visit` in order;
    /// drop what it built if recovery ends in an error.
    ///
    /// # Errors
    /// A refusal, or a failed effect. Recovery is over; start a new one.
    ///
    /// # Panics
    /// If the answer is not one to the command that is out: the root's ledger rules that out.
    pub fn handle<P, C, E>(
        &mut self,
        purpose: RecoveryPurpose,
        outcome: StorageOutcome,
        visit: Visit<'_>,
        out: &mut Out<P, C, E>,
    ) -> Result<RecoveryStep, RecoveryFault>
    where
        P: From<RecoveryPurpose>,
        C: From<StorageCommand>,
    {
        let ask = match (purpose, outcome) {
            (RecoveryPurpose::Read, StorageOutcome::Read(result)) => {
                self.bytes(&result.map_err(RecoveryFault::read)?, visit)?
            }
            (RecoveryPurpose::Cut, StorageOutcome::Cut(result)) => {
                let bytes = result.map_err(RecoveryFault::Failed)?;
                self.cut = Some(CutReport { at: self.at, bytes });
                self.rewrite()
            }
            (RecoveryPurpose::Rewrite, StorageOutcome::Append(result)) => {
                result.map_err(RecoveryFault::Failed)?;
                self.sync()
            }
            (RecoveryPurpose::Sync, StorageOutcome::Sync(result)) => {
                result.map_err(RecoveryFault::Failed)?;
                self.sync_next()
            }
            (purpose, outcome) => panic!("{outcome:?} does not answer {purpose:?}"),
        };
        Ok(self.push(ask, out))
    }

    fn bytes(&mut self, bytes: &[u8], visit: Visit<'_>) -> Result<Ask, RecoveryFault> {
        let Reading { at, bytes: asked } = self.reading;
        if bytes.len() != asked as usize {
            let detail = format!("expected {asked} bytes as the file was listed, found {}", bytes.len());
            return Err(RecoveryFault::refused(EndCase::ReadError, at, detail));
        }
        match self.phase {
            Phase::Headers(place) => self.header(place, bytes),
            Phase::Blank(case) => self.blank(bytes, case),
            Phase::Batches(place) => self.batches(place, bytes, visit),
            Phase::Behind { suspect, case, zeros } => self.behind(bytes, suspect, case, zeros),
            Phase::Cutting | Phase::Rewriting | Phase::Syncing(_) => panic!("no read is out"),
        }
    }

    fn push<P, C, E>(&mut self, ask: Ask, out: &mut Out<P, C, E>) -> RecoveryStep
    where
        P: From<RecoveryPurpose>,
        C: From<StorageCommand>,
    {
        match ask {
            Ask::Read { at, bytes } => {
                let bytes_max = u32::try_from(bytes).expect("a window or one batch");
                self.reading = Reading { at, bytes: bytes_max };
                let (file, offset) = (FileName::Segment(at.segment), at.offset);
                out.command(RecoveryPurpose::Read, |ticket| StorageCommand::Read {
                    ticket,
                    file,
                    offset,
                    bytes_max,
                });
            }
            Ask::Cut => {
                let Position { segment, offset } = self.at;
                out.command(RecoveryPurpose::Cut, |ticket| StorageCommand::Cut { ticket, segment, offset });
            }
            Ask::Rewrite => {
                let Last { at: Position { segment, offset }, bytes } = &mut self.last;
                let (segment, offset, bytes) = (*segment, *offset, core::mem::take(bytes));
                out.command(RecoveryPurpose::Rewrite, |ticket| StorageCommand::Append {
                    ticket,
                    segment,
                    offset,
                    bytes,
                });
            }
            Ask::Sync(file) => {
                out.command(RecoveryPurpose::Sync, |ticket| StorageCommand::Sync { ticket, file });
            }
            Ask::Finish => return RecoveryStep::Done(Box::new(self.finish())),
        }
        RecoveryStep::Working
    }

    /// Writes the last batch again before it is vouched for. If its sync failed in an earlier run,
    /// the system may call its pages clean though the disk lacks them: then a read shows them, and
    /// another sync does nothing for them. Older bytes need it not, since each batch was written
    /// only after the one before it was durable.
    fn rewrite(&mut self) -> Ask {
        if self.last.bytes.is_empty() {
            return self.sync();
        }
        self.phase = Phase::Rewriting;
        Ask::Rewrite
    }

    /// Syncs what was read before anything builds on it: the page cache may hold bytes that the
    /// disk does not. Older segments were synced before the newest one was entered.
    fn sync(&mut self) -> Ask {
        let live = self.found.last().map(|f| f.number);
        let spare = match self.spare {
            Spare::Ready { .. } => Some(self.next_number()),
            Spare::Absent | Spare::Preparing { .. } | Spare::Failed => None,
        };
        self.phase = Phase::Syncing(live.into_iter().chain(spare).map(FileName::Segment).collect());
        self.sync_next()
    }

    fn sync_next(&mut self) -> Ask {
        let Phase::Syncing(files) = &mut self.phase else { panic!("no sync is out") };
        files.pop_front().map_or(Ask::Finish, Ask::Sync)
    }

    fn finish(&mut self) -> Recovered {
        let live = self.found.last().and_then(|f| f.header).map(|header| Live {
            number: header.number,
            salt: header.salt,
            offset: self.at.offset,
            bytes: header.prepared_bytes,
        });
        let journal = Journal::new(Start {
            limits: self.limits,
            log: self.log,
            seed: self.seed.clone(),
            index: core::mem::replace(&mut self.index, Index::new(Lsn::FIRST)),
            live,
            next_number: self.next_number(),
            spare: self.spare,
            unrecorded: self.unrecorded,
        });
        let (cases, remove) = (core::mem::take(&mut self.cases), core::mem::take(&mut self.remove));
        Recovered { journal, cases, cut: self.cut, remove }
    }

    /// The number of the segment after the newest entered one.
    fn next_number(&self) -> SegmentNumber {
        self.found.last().map_or(self.first_segment, |f| f.number.next())
    }

    fn window(&self, left: u64) -> u64 {
        left.min(u64::from(self.limits.read_bytes_max))
    }
}
