//! The live journal: what is pending, what is in flight, what is durable.

mod admit;
mod effect;
mod pending;

pub use admit::AppendError;

use super::batch::{self, BatchHeader, Sealing, batch_bytes};
use super::command::{SegmentNumber, StorageCommand};
use super::index::Index;
use super::limits::JournalLimits;
use super::segment::{self, Position, Salt, SegmentHeader};
use crate::error::{Classified, Family, StorageFault};
use crate::id::{LogId, Lsn};
use crate::machine::{Health, Out};
use crate::seed::Seed;
use alloc::vec::Vec;
use effect::Effect;
use pending::{Built, Pending};

/// What a command of the journal was for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum JournalPurpose {
    /// An append: a batch, or the header of a segment. At most one is in flight.
    Append,
    /// The next segment, as zeros.
    Prepare(SegmentNumber),
}

/// The live part of a journal, made by [`super::recovery::JournalRecovery`] alone.
///
/// Entries are appended at once and get their LSN; [`Journal::submit`] sends whatever has gathered
/// as one batch when nothing is in flight (group commit). Call it after every append and after
/// every completion. `durable` moves only when a completion says so, and never again after a
/// failed write or sync: the journal is then halted, and what was pending has an unknown outcome.
///
/// ```
/// use strandline_core::id::{LogId, Lsn, Run};
/// use strandline_core::journal::command::{SegmentNumber, StorageCommand, StorageOutcome};
/// use strandline_core::journal::limits::JournalLimits;
/// use strandline_core::journal::recovery::{JournalRecovery, Origin, RecoveryPurpose, RecoveryStep};
/// use strandline_core::journal::writer::JournalPurpose;
/// use strandline_core::machine::Out;
/// use strandline_core::{seed::Seed, ticket::Tickets};
///
/// # #[derive(Debug)]
/// enum Purpose { Journal(JournalPurpose), Recovery(RecoveryPurpose) }
/// # impl From<JournalPurpose> for Purpose { fn from(p: JournalPurpose) -> Self { Self::Journal(p) } }
/// # impl From<RecoveryPurpose> for Purpose { fn from(p: RecoveryPurpose) -> Self { Self::Recovery(p) } }
/// let mut out: Out<Purpose, StorageCommand, ()> = Out::new(Tickets::new(Run(1)));
/// let (log, first) = (LogId([7; 16]), SegmentNumber(1));
/// let mut recovery = JournalRecovery::new(JournalLimits::default(), log, first, Origin::New, Seed::new([1; 32]));
/// let Ok(RecoveryStep::Done(recovered)) = recovery.start(&[], &mut out) else { panic!("nothing to read") };
/// let mut journal = recovered.journal;
///
/// let lsn = journal.append(1, b"opaque")?;
/// while journal.durable() < Some(lsn) {
///     journal.submit(None, &mut out);
///     // A host executes the command; here every effect succeeds at once.
///     let completion = match out.poll_command().expect("work") {
///         StorageCommand::Prepare { ticket, .. } => ticket.complete(Ok(())),
///         StorageCommand::Append { ticket, .. } => ticket.complete(Ok(())),
///         other => panic!("{other:?}"),
///     };
///     match out.tickets().settle(completion) {
///         Some((Purpose::Journal(p), StorageOutcome::Append(done))) => drop(journal.handle_append(p, done)?),
///         Some((Purpose::Journal(p), StorageOutcome::Prepare(done))) => journal.handle_prepare(p, done)?,
///         other => panic!("{other:?}"),
///     }
/// }
/// assert_eq!(journal.durable(), Some(Lsn::FIRST));
/// # Ok::<(), Box<dyn core::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Journal {
    limits: JournalLimits,
    log: LogId,
    seed: Seed,
    index: Index,
    pending: Pending,
    live: Option<Live>,
    next_number: SegmentNumber,
    spare: Spare,
    in_flight: Option<InFlight>,
    unrecorded: bool,
    sealing: bool,
    switch_at: Option<Lsn>,
    switched: Option<Switched>,
    health: Health,
}

/// The segment that grows.
#[derive(Clone, Copy, Debug)]
pub(super) struct Live {
    pub(super) number: SegmentNumber,
    pub(super) salt: Salt,
    /// Where the durable bytes end.
    pub(super) offset: u64,
    /// The length it was prepared with.
    pub(super) bytes: u64,
}

/// The segment after the live one.
#[derive(Clone, Copy, Debug)]
pub(super) enum Spare {
    /// Not asked for.
    Absent,
    /// Asked for; `needed` once a batch waits for it.
    Preparing { needed: bool },
    /// Zeros, durable.
    Ready { bytes: u64 },
    /// Preparing it ahead failed; it is tried once more when it is needed.
    Failed,
}

#[derive(Clone, Copy, Debug)]
enum InFlight {
    Header(Live),
    Batch { offset: u64, header: BatchHeader },
}

/// The journal has stopped for good: its storage failed, and what was not durable has an unknown
/// outcome. Recover from storage.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("the journal is halted: {0}")]
pub struct Halted(
    /// The first failure.
    pub StorageFault,
);

impl Classified for Halted {
    const FAMILY: Family = Family::Storage;
}

/// A forced switch that is done: everything from `first_lsn` on lies in `segment` or later.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Switched {
    /// The fresh segment; its header is durable.
    pub segment: SegmentNumber,
    /// Its first entry, present or not.
    pub first_lsn: Lsn,
}

/// What recovery found, as far as the live part goes on from it.
#[derive(Debug)]
pub(super) struct Start {
    pub(super) limits: JournalLimits,
    pub(super) log: LogId,
    pub(super) seed: Seed,
    pub(super) index: Index,
    pub(super) live: Option<Live>,
    pub(super) next_number: SegmentNumber,
    pub(super) spare: Spare,
    pub(super) unrecorded: bool,
}

impl Journal {
    pub(super) fn new(start: Start) -> Self {
        let Start { limits, log, seed, index, live, next_number, spare, unrecorded } = start;
        let next = index.next_lsn();
        Self {
            limits,
            log,
            seed,
            index,
            pending: Pending::new(next, limits.batch_bytes_max),
            live,
            next_number,
            spare,
            in_flight: None,
            unrecorded,
            sealing: false,
            switch_at: live.is_none().then_some(next),
            switched: None,
            health: Health::Running,
        }
    }

    /// Appends one entry. It is pending until [`Journal::submit`] sends it.
    ///
    /// # Errors
    /// What recovery would refuse, back-pressure, a full or a halted journal. Nothing is appended.
    pub fn append(&mut self, kind: u8, payload: &[u8]) -> Result<Lsn, AppendError> {
        self.append_group(&[(kind, payload)]).map(|(first, _)| first)
    }

    /// Appends entries that recovery takes all or none: they stay in one batch. Returns the first
    /// and the last LSN.
    ///
    /// # Errors
    /// As [`Journal::append`], and for a group that is empty or longer than a batch.
    pub fn append_group(&mut self, entries: &[(u8, &[u8])]) -> Result<(Lsn, Lsn), AppendError> {
        let bytes = self.check(entries)?;
        let first = self.pending.push(entries, bytes);
        Ok((first, first.plus(entries.len() as u64 - 1)))
    }

    /// Sends what may be sent now: entries above `gate` are held back, groups never split. At most
    /// one append is in flight; the next segment is prepared ahead beside it.
    pub fn submit<P, C, E>(&mut self, gate: Option<Lsn>, out: &mut Out<P, C, E>)
    where
        P: From<JournalPurpose>,
        C: From<StorageCommand>,
    {
        if self.is_halted() {
            return;
        }
        let half_full = self.live.is_none_or(|live| live.offset >= live.bytes / 2);
        if half_full && matches!(self.spare, Spare::Absent) {
            self.prepare(false).push(out);
        }
        if self.in_flight.is_none()
            && let Some(effect) = self.send(gate)
        {
            effect.push(out);
        }
    }

    /// Asks for a batch without entries that records the last batch as durable, so that damage to
    /// it can be told from a torn tail. Sent as soon as nothing else may be; not at all if it is
    /// recorded already.
    pub fn seal<P, C, E>(&mut self, gate: Option<Lsn>, out: &mut Out<P, C, E>)
    where
        P: From<JournalPurpose>,
        C: From<StorageCommand>,
    {
        self.sealing = self.unrecorded || self.in_flight.is_some() || self.pending.entries() > 0;
        self.submit(gate, out);
    }

    /// Starts a fresh segment behind everything appended so far, so that all older ones can be
    /// dropped. [`Journal::take_switched`] tells when it is durable. A second call before that moves
    /// the switch behind what was appended since.
    pub fn switch_segment<P, C, E>(&mut self, gate: Option<Lsn>, out: &mut Out<P, C, E>)
    where
        P: From<JournalPurpose>,
        C: From<StorageCommand>,
    {
        let at = self.pending.next_lsn();
        let fresh = |live: Live| live.offset == segment::HEADER_BYTES && self.index.next_lsn() == at;
        match self.live {
            Some(live) if self.in_flight.is_none() && fresh(live) => {
                self.switched = Some(Switched { segment: live.number, first_lsn: at });
            }
            Some(_) | None => {
                self.pending.close();
                self.switch_at = Some(at);
                self.submit(gate, out);
            }
        }
    }

    /// Takes the answer to an append: the new durable LSN, if it moved. Submit again afterwards.
    ///
    /// # Errors
    /// [`Halted`] if it failed.
    ///
    /// # Panics
    /// If no append is in flight: the root's ledger hands over each answer once.
    pub fn handle_append(
        &mut self,
        purpose: JournalPurpose,
        result: Result<(), StorageFault>,
    ) -> Result<Option<Lsn>, Halted> {
        assert_eq!(purpose, JournalPurpose::Append, "an append answers an append");
        let done = self.in_flight.take().expect("an append is in flight");
        if let Err(fault) = result {
            return Err(self.halt(fault));
        }
        match done {
            InFlight::Header(live) => {
                self.entered(live);
                Ok(None)
            }
            InFlight::Batch { offset, header } => {
                let live = self.live.as_mut().expect("a batch lies in a segment");
                live.offset = offset + header.bytes();
                self.unrecorded = header.count > 0;
                self.index.push(offset, &header);
                Ok(if header.count > 0 { self.durable() } else { None })
            }
        }
    }

    /// Takes the answer to a prepare. Submit again afterwards. One that failed ahead of need is tried
    /// once more when it is needed.
    ///
    /// # Errors
    /// [`Halted`] if it failed and a batch waits for the segment. Each halt is reported once.
    ///
    /// # Panics
    /// If that segment is not being prepared: the root's ledger hands over each answer once.
    pub fn handle_prepare(
        &mut self,
        purpose: JournalPurpose,
        result: Result<(), StorageFault>,
    ) -> Result<(), Halted> {
        assert_eq!(purpose, JournalPurpose::Prepare(self.next_number), "one segment is prepared at a time");
        let Spare::Preparing { needed } = self.spare else { panic!("no segment is being prepared") };
        self.spare = match result {
            Ok(()) => Spare::Ready { bytes: self.limits.segment_bytes },
            Err(_) => Spare::Failed,
        };
        match result {
            Err(fault) if needed && !self.is_halted() => Err(self.halt(fault)),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// The last entry that survives power loss.
    #[must_use]
    pub fn durable(&self) -> Option<Lsn> {
        self.index.next_lsn().before()
    }

    /// The LSN the next appended entry gets.
    #[must_use]
    pub const fn submitted_next_lsn(&self) -> Lsn {
        self.pending.next_lsn()
    }

    /// Where the retained, durable entries lie.
    #[must_use]
    pub const fn index(&self) -> &Index {
        &self.index
    }

    /// Its bounds.
    #[must_use]
    pub const fn limits(&self) -> &JournalLimits {
        &self.limits
    }

    /// Payload bytes that wait to be submitted.
    #[must_use]
    pub const fn pending_bytes(&self) -> u64 {
        self.pending.bytes()
    }

    /// Entries that wait to be submitted.
    #[must_use]
    pub const fn pending_entries(&self) -> u64 {
        self.pending.entries()
    }

    /// Whether an append has not been answered.
    #[must_use]
    pub const fn in_flight(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Whether a seal would add anything: the last durable batch is not recorded as such.
    #[must_use]
    pub const fn needs_seal(&self) -> bool {
        self.unrecorded
    }

    /// The segment that grows; `None` before the first one of a new log is entered.
    #[must_use]
    pub fn segment(&self) -> Option<SegmentNumber> {
        self.live.map(|live| live.number)
    }

    /// Where the durable bytes of the segment that grows end.
    #[must_use]
    pub fn end(&self) -> Option<Position> {
        self.live.map(|live| Position { segment: live.number, offset: live.offset })
    }

    /// A forced switch that has become durable, once. A new log's first segment counts as one.
    pub const fn take_switched(&mut self) -> Option<Switched> {
        self.switched.take()
    }

    /// As [`Journal::take_switched`], for whoever asked for the switch; `None` if `wanted` is not set.
    pub const fn take_switched_if(&mut self, wanted: bool) -> Option<Switched> {
        if wanted { self.switched.take() } else { None }
    }

    /// The first segment that must be kept for the entries above `floor` and for new ones.
    #[must_use]
    pub fn removable_before(&self, floor: Option<Lsn>) -> SegmentNumber {
        self.index.needed_after(floor).unwrap_or(self.next_number)
    }

    /// Forgets the segments before `segment`, except the live one. Their files are the root's to
    /// remove, after `current` no longer names them and nothing reads them.
    pub fn drop_before(&mut self, segment: SegmentNumber) {
        self.index.drop_before(segment);
    }

    /// Running, or halted and by what.
    #[must_use]
    pub const fn health(&self) -> &Health {
        &self.health
    }

    fn is_halted(&self) -> bool {
        match &self.health {
            Health::Running => false,
            Health::Halted(_) => true,
        }
    }

    fn halt(&mut self, fault: StorageFault) -> Halted {
        self.health = Health::Halted(fault.clone());
        Halted(fault)
    }

    /// The first entry that was not sent yet, or the LSN it will have.
    fn unsent_lsn(&self) -> Lsn {
        self.pending.first().unwrap_or_else(|| self.pending.next_lsn())
    }

    /// What goes out now that nothing is in flight.
    fn send(&mut self, gate: Option<Lsn>) -> Option<Effect> {
        if self.switch_at == Some(self.unsent_lsn()) {
            return self.enter();
        }
        let Some(live) = self.live else { return self.enter() };
        let front = self.pending.front(gate);
        let payload = match front {
            Some(bytes) => bytes,
            None if self.sealing && self.unrecorded => 0,
            None => return None,
        };
        if live.offset + batch_bytes(payload) > live.bytes {
            return self.enter();
        }
        let empty = Built { buf: Vec::new(), first: self.unsent_lsn(), count: 0 };
        let built = front.and_then(|_| self.pending.take()).unwrap_or(empty);
        Some(self.send_batch(live, built))
    }

    fn prepare(&mut self, needed: bool) -> Effect {
        self.spare = Spare::Preparing { needed };
        Effect::Prepare { segment: self.next_number, bytes: self.limits.segment_bytes }
    }

    /// Writes the header of the next segment, or gets the segment first.
    fn enter(&mut self) -> Option<Effect> {
        match self.spare {
            Spare::Absent | Spare::Failed => Some(self.prepare(true)),
            Spare::Preparing { .. } => {
                self.spare = Spare::Preparing { needed: true };
                None
            }
            Spare::Ready { bytes } => Some(self.send_header(bytes)),
        }
    }

    fn send_header(&mut self, bytes: u64) -> Effect {
        let number = self.next_number;
        let salt = Salt(self.seed.bytes("segment salt", number.0));
        let header = SegmentHeader {
            log: self.log,
            number,
            first_lsn: self.unsent_lsn(),
            salt,
            previous_end: self.live.map_or(0, |live| live.offset),
            prepared_bytes: bytes,
        };
        let live = Live { number, salt, offset: segment::HEADER_BYTES, bytes };
        self.in_flight = Some(InFlight::Header(live));
        Effect::Append { at: Position { segment: number, offset: 0 }, bytes: header.encode().to_vec() }
    }

    fn entered(&mut self, live: Live) {
        self.index.enter(live.number, live.salt);
        self.live = Some(live);
        self.next_number = live.number.next();
        self.spare = Spare::Absent;
        self.unrecorded = false;
        self.sealing &= self.pending.entries() > 0;
        let first_lsn = self.index.next_lsn();
        if self.switch_at == Some(first_lsn) {
            self.switch_at = None;
            self.switched = Some(Switched { segment: live.number, first_lsn });
        }
    }

    fn send_batch(&mut self, live: Live, built: Built) -> Effect {
        let Built { mut buf, first, count } = built;
        let at = Position { segment: live.number, offset: live.offset };
        let sealing = Sealing {
            salt: live.salt,
            at,
            first_lsn: first,
            count,
            durable: self.durable(),
            durable_end: at,
        };
        let header = batch::seal(&mut buf, &sealing);
        self.in_flight = Some(InFlight::Batch { offset: at.offset, header });
        self.sealing &= count > 0;
        Effect::Append { at, bytes: buf }
    }
}
