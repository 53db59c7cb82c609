//! From the files of a directory to a live replica: the one root that may make one.

use super::acked::Acked;
use super::api::{Entry, Event};
use super::authority::Authority;
use super::checkpoint_read::{CheckpointItem, CheckpointLimits, CheckpointReader};
use super::command::{Command, Outcome, ReplicaCompletion};
use super::config::{ConfigError, ReplicaConfig};
use super::entry::JournalEntry;
use super::history::History;
use super::membership::Members;
use super::opaque::{Opaque, floor_bytes, floor_version};
use super::replica::Replica;
use super::shared::Shared;
use super::sidecars::{ACKED, AUTHORITY, MEMBERS};
use super::views::Views;
use crate::error::{Classified, Family, StorageFault};
use crate::id::{Incarnation, LinkId, LogId, Run};
use crate::journal::command::{FileName, Listed, SegmentNumber, StorageCommand, StorageOutcome};
use crate::journal::current::{self, Current};
use crate::journal::recovery::{
    JournalRecovery, Origin, Recovered, RecoveryFault, RecoveryPurpose, RecoveryStep,
};
use crate::journal::writer::JournalPurpose;
use crate::machine::{FrameInfo, Machine, Out, Pending};
use crate::record::{AuthorityId, Version};
use crate::seed::Seed;
use crate::ticket::Tickets;
use crate::time::Now;
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// What a new directory is made for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Init {
    /// The log: a fresh random one for its authority, the authority's for a follower.
    pub log: LogId,
    /// This replica's name, unique among the replicas of the log.
    pub identity: String,
    /// The namespaces the log may hold; every replica of it must be given the same.
    pub namespaces: Vec<Vec<u8>>,
    /// The authority identity if this replica writes the log.
    pub authority: Option<AuthorityId>,
}

/// What recovery found and did.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct RecoveryReport {
    /// A torn tail that was cut: the segment, the offset, and how many bytes were kept in `cut/`.
    pub cut: Option<(FileName, u64, u64)>,
    /// Journal entries recovered.
    pub entries: u64,
    /// Records of the checkpoint loaded.
    pub checkpoint_records: u64,
    /// Files removed that nothing names.
    pub removed: Vec<FileName>,
}

/// Why a directory cannot be opened, or not be made.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RecoveryError {
    /// The configuration contradicts itself.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The directory holds no log.
    #[error("the directory holds no log: expected a file current; make a log with init")]
    NoLog,
    /// A log cannot be made where files of one are.
    #[error("the directory already holds {found}: a log is made in an empty directory only")]
    Exists {
        /// The first file found.
        found: String,
    },
    /// What a log is made for is not allowed.
    #[error("{what}: expected {expected}, found {found}")]
    Init {
        /// Which part of [`Init`].
        what: &'static str,
        /// The rule.
        expected: String,
        /// What was given.
        found: String,
    },
    /// The disk failed, or holds other bytes than were written.
    #[error("{0}")]
    Storage(StorageFault),
}

impl Classified for RecoveryError {
    const FAMILY: Family = Family::Storage;
}

/// Why [`Recovery::finish`] gives no replica.
#[derive(Debug)]
pub enum NotRecovered {
    /// Commands are out or must be polled: drain, hand in completions, try again.
    Working(Box<Recovery>),
    /// It failed for good; nothing was lost by trying.
    Failed(RecoveryError),
}

#[derive(Debug)]
enum Purpose {
    List,
    Sidecar(FileName),
    Checkpoint,
    CheckpointSync,
    Journal(RecoveryPurpose),
    Enter(JournalPurpose),
    Create,
    Current,
    Remove,
}

impl From<RecoveryPurpose> for Purpose {
    fn from(purpose: RecoveryPurpose) -> Self {
        Self::Journal(purpose)
    }
}

impl From<JournalPurpose> for Purpose {
    fn from(purpose: JournalPurpose) -> Self {
        Self::Enter(purpose)
    }
}

/// How much of a checkpoint is read at once.
const CHECKPOINT_READ_BYTES: u32 = 1 << 20;

/// What was read so far.
#[derive(Debug)]
struct Found {
    listed: Vec<Listed>,
    current: Option<Current>,
    opaque: Option<Opaque>,
    authority: Option<Vec<u8>>,
    members: Members,
    acked: Acked,
    views: Views,
    history: History,
    checkpoint_records: u64,
}

#[derive(Debug)]
enum Stage {
    Listing,
    /// Writing the sidecars of a new log.
    Creating,
    /// Reading sidecars; how many are out.
    Sidecars(u32),
    Checkpoint {
        reader: Box<CheckpointReader>,
        offset: u64,
    },
    CheckpointSync,
    Journal(Box<JournalRecovery>),
    Entering(Box<Recovered>),
    Removing(Box<Recovered>),
    Committing(Box<Recovered>),
    Done(Box<Recovered>),
    Failed(RecoveryError),
}

/// Recovers a replica from its directory, or makes a new one. A root: run it with
/// [`crate::machine::drain`] until [`Recovery::finish`] gives the replica.
///
/// Everything that is kept, and the cut of a torn tail, is durable before the replica exists. A
/// crash during recovery leaves a directory that recovers to the same state.
#[derive(Debug)]
pub struct Recovery {
    now: Now,
    seed: Seed,
    config: ReplicaConfig,
    init: Option<Init>,
    out: Out<Purpose, Command, Event>,
    found: Found,
    stage: Stage,
    removed: Vec<FileName>,
}

impl Recovery {
    /// Opens the log that a directory holds. `seed` must differ between starts.
    #[must_use]
    pub fn open(now: Now, seed: Seed, config: ReplicaConfig) -> Self {
        Self::new(now, seed, config, None)
    }

    /// Makes a log in an empty directory.
    #[must_use]
    pub fn create(now: Now, seed: Seed, config: ReplicaConfig, init: Init) -> Self {
        Self::new(now, seed, config, Some(init))
    }

    fn new(now: Now, seed: Seed, config: ReplicaConfig, init: Option<Init>) -> Self {
        // Tickets of recovery need a run of their own before the directory tells the last one.
        let run = Run(seed.number("recovery run", 0) | 1 << 63);
        let mut out = Out::new(Tickets::new(run));
        let failed = config.validate().map_err(RecoveryError::from);
        let stage = match failed.and_then(|()| init.as_ref().map_or(Ok(()), |init| allowed(init, &config))) {
            Ok(()) => {
                out.command(Purpose::List, |ticket| StorageCommand::List { ticket });
                Stage::Listing
            }
            Err(error) => Stage::Failed(error),
        };
        let found = Found {
            listed: Vec::new(),
            current: None,
            opaque: None,
            authority: None,
            members: Members::default(),
            acked: Acked::default(),
            views: Views::default(),
            history: History::new(Version::ZERO, [0; 32]),
            checkpoint_records: 0,
        };
        Self { now, seed, config, init, out, found, stage, removed: Vec::new() }
    }

    /// The replica, once everything it is built on is durable.
    ///
    /// # Errors
    /// [`NotRecovered::Working`] hands the recovery back.
    pub fn finish(self) -> Result<(Replica, RecoveryReport), NotRecovered> {
        match self.stage {
            Stage::Done(_) => {}
            Stage::Failed(error) => return Err(NotRecovered::Failed(error)),
            Stage::Listing
            | Stage::Creating
            | Stage::Sidecars(_)
            | Stage::Checkpoint { .. }
            | Stage::CheckpointSync
            | Stage::Journal(_)
            | Stage::Entering(_)
            | Stage::Removing(_)
            | Stage::Committing(_) => return Err(NotRecovered::Working(Box::new(self))),
        }
        let Self { now, config, found, stage: Stage::Done(recovered), removed, .. } = self else {
            unreachable!("the stage was just seen to be done");
        };
        let (Some(current), Some(opaque)) = (found.current, found.opaque) else {
            unreachable!("a recovery without current ended before");
        };
        let report = RecoveryReport {
            cut: recovered.cut.map(|cut| (FileName::Segment(cut.at.segment), cut.at.offset, cut.bytes)),
            entries: recovered.journal.index().entries(),
            checkpoint_records: found.checkpoint_records,
            removed,
        };
        let tail = found.history.tail();
        let (authority, fenced) = match &opaque.authority {
            None => (None, None),
            Some(id) => match Authority::open(found.authority.as_deref(), id.clone(), tail) {
                Ok(authority) => (Some(authority), None),
                Err(refusal) => (None, Some(refusal.to_string())),
            },
        };
        let shared = Shared::new(super::shared::Parts {
            config,
            now,
            journal: recovered.journal,
            views: found.views,
            history: found.history,
            authority,
            fenced,
            members: found.members,
            acked: found.acked,
            current,
            opaque,
        });
        Ok((Replica::new(shared), report))
    }

    fn fail(&mut self, error: RecoveryError) {
        self.stage = Stage::Failed(error);
    }

    fn settled(&mut self, purpose: Purpose, outcome: StorageOutcome) -> Result<(), RecoveryError> {
        let storage = RecoveryError::Storage;
        match (purpose, outcome) {
            (Purpose::List, StorageOutcome::List(result)) => self.listed(result.map_err(storage)?),
            (Purpose::Create, StorageOutcome::Replace(result)) => {
                result.map_err(storage)?;
                self.created()
            }
            (Purpose::Sidecar(file), StorageOutcome::Read(result)) => {
                self.sidecar(file, &result.map_err(storage)?)
            }
            (Purpose::Checkpoint, StorageOutcome::Read(result)) => self.checkpoint(&result.map_err(storage)?),
            (Purpose::CheckpointSync, StorageOutcome::Sync(result)) => {
                result.map_err(storage)?;
                self.begin_journal()
            }
            (Purpose::Journal(purpose), outcome) => self.journal(purpose, outcome),
            (Purpose::Enter(purpose), outcome) => self.entering(purpose, outcome),
            (Purpose::Remove, StorageOutcome::Remove(result)) => {
                result.map_err(storage)?;
                self.commit()
            }
            (Purpose::Current, StorageOutcome::Replace(result)) => {
                result.map_err(storage)?;
                let stage = core::mem::replace(&mut self.stage, Stage::Listing);
                let Stage::Committing(recovered) = stage else { unreachable!("current was being replaced") };
                self.stage = Stage::Done(recovered);
                Ok(())
            }
            (purpose, outcome) => unreachable!("{outcome:?} answers no {purpose:?}"),
        }
    }

    fn listed(&mut self, listed: Vec<Listed>) -> Result<(), RecoveryError> {
        let has_current = listed.iter().any(|l| l.file == FileName::Current);
        if self.init.is_some() {
            // What a crash during an earlier try may have left: all of it but `current` is unnamed.
            let first = listed.iter().find(|l| has_current || l.file != FileName::Authority);
            if let Some(found) = first {
                return Err(RecoveryError::Exists { found: found.file.to_string() });
            }
            return self.create_files();
        }
        if !has_current {
            return Err(RecoveryError::NoLog);
        }
        self.found.listed = listed;
        self.read_sidecars();
        Ok(())
    }

    fn create_files(&mut self) -> Result<(), RecoveryError> {
        let Some(init) = &self.init else { unreachable!("only a new log is created") };
        let current = Current {
            log: init.log,
            incarnation: Incarnation { counter: 1, nonce: self.seed.bytes("incarnation", 0) },
            identity: init.identity.clone(),
            namespaces: init.namespaces.clone(),
            run: Run(1),
            first_segment: SegmentNumber(1),
            next_checkpoint: 1,
            checkpoint: None,
            floor: floor_bytes(Version::ZERO),
            floor_digest: [0; 32],
            opaque: Opaque {
                chained: true,
                entered: false,
                checkpoint_records: 0,
                authority: init.authority.clone(),
            }
            .encode(),
        };
        let mut files = Vec::new();
        if let Some(id) = &init.authority {
            let content = Authority::create(id.clone(), 1).initial_content();
            files.push((FileName::Authority, AUTHORITY.encode(&content)));
        }
        self.found.current = Some(current);
        self.stage = Stage::Creating;
        for (file, bytes) in files {
            self.out.command(Purpose::Create, |ticket| StorageCommand::Replace { ticket, file, bytes });
        }
        if self.init.as_ref().is_some_and(|init| init.authority.is_none()) {
            self.create_current();
        }
        Ok(())
    }

    /// `current` comes last: it is what makes the directory a log.
    fn create_current(&mut self) {
        let Some(current) = &self.found.current else { unreachable!("its content was made first") };
        let (file, bytes) = (FileName::Current, current.encode());
        self.stage = Stage::Creating;
        self.out.command(Purpose::Create, |ticket| StorageCommand::Replace { ticket, file, bytes });
        self.init = None;
    }

    fn created(&mut self) -> Result<(), RecoveryError> {
        if self.init.is_some() {
            self.create_current();
        } else {
            // The new log is opened as any other: one way in.
            self.stage = Stage::Listing;
            self.out.command(Purpose::List, |ticket| StorageCommand::List { ticket });
        }
        Ok(())
    }

    fn read_sidecars(&mut self) {
        let sidecars = [
            (FileName::Current, current::ENVELOPE.bytes_max()),
            (FileName::Authority, AUTHORITY.bytes_max()),
            (FileName::Members, MEMBERS.bytes_max()),
            (FileName::Acked, ACKED.bytes_max()),
        ];
        let mut out = 0;
        for (file, bytes_max) in sidecars {
            if self.found.listed.iter().any(|l| l.file == file) {
                out += 1;
                // One byte more than allowed tells that a file is too long.
                let bytes_max = u32::try_from(bytes_max + 1).unwrap_or(u32::MAX);
                self.out.command(Purpose::Sidecar(file), |ticket| StorageCommand::Read {
                    ticket,
                    file,
                    offset: 0,
                    bytes_max,
                });
            }
        }
        self.stage = Stage::Sidecars(out);
    }

    fn sidecar(&mut self, file: FileName, bytes: &[u8]) -> Result<(), RecoveryError> {
        let content = |error: super::membership::ContentError| {
            RecoveryError::Storage(StorageFault::damaged(file, 0, error.to_string()))
        };
        match file {
            FileName::Current => {
                let current = Current::decode(bytes).map_err(RecoveryError::Storage)?;
                self.found.opaque = Some(Opaque::decode(&current.opaque).map_err(RecoveryError::Storage)?);
                self.found.history = History::new(floor_version(current.floor), current.floor_digest);
                self.found.current = Some(current);
            }
            FileName::Authority => {
                self.found.authority =
                    Some(AUTHORITY.decode(bytes).map_err(RecoveryError::Storage)?.to_vec());
            }
            FileName::Members => {
                let payload = MEMBERS.decode(bytes).map_err(RecoveryError::Storage)?;
                self.found.members = Members::decode(payload).map_err(content)?;
            }
            FileName::Acked => {
                let payload = ACKED.decode(bytes).map_err(RecoveryError::Storage)?;
                self.found.acked = Acked::decode(payload).map_err(content)?;
            }
            FileName::Segment(_) | FileName::Checkpoint(_) => unreachable!("no sidecar"),
        }
        let Stage::Sidecars(out) = &mut self.stage else { unreachable!("sidecars are being read") };
        *out -= 1;
        if *out == 0 {
            return self.begin_checkpoint();
        }
        Ok(())
    }

    fn begin_checkpoint(&mut self) -> Result<(), RecoveryError> {
        let current = self.found.current.as_ref().expect("current was listed and read");
        let Some(checkpoint) = current.checkpoint else {
            return self.begin_journal();
        };
        let file = FileName::Checkpoint(checkpoint.number);
        let listed = self.found.listed.iter().find(|l| l.file == file).map(|l| l.bytes);
        if listed != Some(checkpoint.bytes) {
            let found = listed.map_or("no such file".to_string(), |bytes| alloc::format!("{bytes} bytes"));
            let detail = alloc::format!("current names {} bytes, found {found}", checkpoint.bytes);
            return Err(RecoveryError::Storage(StorageFault::damaged(file, 0, detail)));
        }
        let reader = Box::new(CheckpointReader::new(CheckpointLimits::of(current.log)));
        self.stage = Stage::Checkpoint { reader, offset: 0 };
        self.read_checkpoint(file, 0);
        Ok(())
    }

    fn read_checkpoint(&mut self, file: FileName, offset: u64) {
        self.out.command(Purpose::Checkpoint, |ticket| StorageCommand::Read {
            ticket,
            file,
            offset,
            bytes_max: CHECKPOINT_READ_BYTES,
        });
    }

    fn checkpoint(&mut self, bytes: &[u8]) -> Result<(), RecoveryError> {
        let Some(checkpoint) = self.found.current.as_ref().and_then(|c| c.checkpoint) else {
            unreachable!("a checkpoint is being read");
        };
        let file = FileName::Checkpoint(checkpoint.number);
        let damaged =
            |error: super::checkpoint::CheckpointError| RecoveryError::Storage(error.into_fault(file));
        let Stage::Checkpoint { reader, offset } = &mut self.stage else {
            unreachable!("a checkpoint is being read");
        };
        let (views, history) = (&mut self.found.views, &mut self.found.history);
        reader
            .push(bytes, &mut |item| {
                match item {
                    CheckpointItem::Header(header) => history.load_epochs(&header.epochs),
                    CheckpointItem::Record { view, .. } => {
                        let record = view.to_record();
                        let (state, version, authority) = (record.state, record.version, record.authority);
                        views.load(record.key, Entry { state, version, authority });
                    }
                }
                Ok(())
            })
            .map_err(damaged)?;
        *offset += bytes.len() as u64;
        if *offset < checkpoint.bytes && !bytes.is_empty() {
            let offset = *offset;
            self.read_checkpoint(file, offset);
            return Ok(());
        }
        let Stage::Checkpoint { reader, .. } = core::mem::replace(&mut self.stage, Stage::CheckpointSync)
        else {
            unreachable!("a checkpoint is being read");
        };
        let summary = reader.finish().map_err(damaged)?;
        if summary.sha256 != checkpoint.sha256 {
            let detail = "expected the SHA-256 that current names, found another one";
            return Err(RecoveryError::Storage(StorageFault::damaged(file, 0, detail)));
        }
        self.found.checkpoint_records = summary.records;
        // What was read may be in memory only: it is built on, so it must be on disk.
        self.out.command(Purpose::CheckpointSync, |ticket| StorageCommand::Sync { ticket, file });
        Ok(())
    }

    fn begin_journal(&mut self) -> Result<(), RecoveryError> {
        let (Some(current), Some(opaque)) = (&self.found.current, &self.found.opaque) else {
            unreachable!("current was read");
        };
        let origin = if opaque.entered { Origin::Existing } else { Origin::New };
        let mut journal = JournalRecovery::new(
            self.config.journal,
            current.log,
            current.first_segment,
            origin,
            self.seed.clone(),
        );
        let step = journal.start(&self.found.listed, &mut self.out).map_err(refused)?;
        self.stage = Stage::Journal(Box::new(journal));
        self.journal_step(step)
    }

    fn journal(&mut self, purpose: RecoveryPurpose, outcome: StorageOutcome) -> Result<(), RecoveryError> {
        let Stage::Journal(journal) = &mut self.stage else { unreachable!("the journal is being read") };
        let (views, history) = (&mut self.found.views, &mut self.found.history);
        let mut visit = |lsn, kind, bytes: &[u8]| -> Result<(), String> {
            match JournalEntry::parse(kind, bytes).map_err(|error| error.to_string())? {
                JournalEntry::EpochStart(_) => {}
                JournalEntry::Record(view) => {
                    if view.version <= history.floor() {
                        return Ok(());
                    }
                    if view.version <= history.tail() {
                        let (found, tail) = (view.version, history.tail());
                        return Err(alloc::format!("expected a version above {tail}, found {found}"));
                    }
                    let record = view.to_record();
                    history.push(lsn, record.version, &record.authority, bytes);
                    let (state, version, authority) = (record.state, record.version, record.authority);
                    views.load(record.key, Entry { state, version, authority });
                }
            }
            Ok(())
        };
        let step = journal.handle(purpose, outcome, &mut visit, &mut self.out).map_err(refused)?;
        self.journal_step(step)
    }

    fn journal_step(&mut self, step: RecoveryStep) -> Result<(), RecoveryError> {
        match step {
            RecoveryStep::Working => Ok(()),
            RecoveryStep::Done(recovered) => {
                self.stage = Stage::Entering(recovered);
                self.enter()
            }
        }
    }

    /// A new log's first segment is entered before anything may be submitted to it.
    fn enter(&mut self) -> Result<(), RecoveryError> {
        let Stage::Entering(recovered) = &mut self.stage else { unreachable!("a segment is entered") };
        if recovered.journal.segment().is_none() {
            recovered.journal.submit(None, &mut self.out);
            return Ok(());
        }
        let _ = recovered.journal.take_switched();
        self.remove()
    }

    fn entering(&mut self, purpose: JournalPurpose, outcome: StorageOutcome) -> Result<(), RecoveryError> {
        let recovered = match &mut self.stage {
            Stage::Entering(recovered) | Stage::Removing(recovered) | Stage::Committing(recovered) => {
                recovered
            }
            Stage::Listing
            | Stage::Creating
            | Stage::Sidecars(_)
            | Stage::Checkpoint { .. }
            | Stage::CheckpointSync
            | Stage::Journal(_)
            | Stage::Done(_)
            | Stage::Failed(_) => unreachable!("only entering sends commands of the live journal"),
        };
        let handled = match outcome {
            StorageOutcome::Append(result) => recovered.journal.handle_append(purpose, result).map(|_| ()),
            StorageOutcome::Prepare(result) => recovered.journal.handle_prepare(purpose, result),
            outcome @ (StorageOutcome::List(_)
            | StorageOutcome::Read(_)
            | StorageOutcome::Cut(_)
            | StorageOutcome::Replace(_)
            | StorageOutcome::Write(_)
            | StorageOutcome::Sync(_)
            | StorageOutcome::Remove(_)) => unreachable!("{outcome:?} answers no append or prepare"),
        };
        handled.map_err(|halted| RecoveryError::Storage(halted.0))?;
        if matches!(self.stage, Stage::Entering(_)) { self.enter() } else { Ok(()) }
    }

    /// Removes what `current` does not name.
    fn remove(&mut self) -> Result<(), RecoveryError> {
        let stage = core::mem::replace(&mut self.stage, Stage::Listing);
        let Stage::Entering(recovered) = stage else { unreachable!("the journal is live") };
        let named = self.found.current.as_ref().and_then(|c| c.checkpoint).map(|c| c.number);
        let mut files = recovered.remove.clone();
        files.extend(self.found.listed.iter().map(|l| l.file).filter(|file| match file {
            FileName::Checkpoint(number) => named != Some(*number),
            FileName::Current
            | FileName::Authority
            | FileName::Members
            | FileName::Acked
            | FileName::Segment(_) => false,
        }));
        self.stage = Stage::Removing(recovered);
        if files.is_empty() {
            return self.commit();
        }
        self.removed.clone_from(&files);
        self.out.command(Purpose::Remove, |ticket| StorageCommand::Remove { ticket, files });
        Ok(())
    }

    /// Takes a run of its own: no ticket of an earlier one can be mistaken for one of this.
    fn commit(&mut self) -> Result<(), RecoveryError> {
        let stage = core::mem::replace(&mut self.stage, Stage::Listing);
        let Stage::Removing(recovered) = stage else { unreachable!("files were removed") };
        self.stage = Stage::Committing(recovered);
        let (Some(current), Some(opaque)) = (&mut self.found.current, &mut self.found.opaque) else {
            unreachable!("current was read");
        };
        current.run = Run(current.run.0 + 1);
        opaque.entered = true;
        current.opaque = opaque.encode();
        let (file, bytes) = (FileName::Current, current.encode());
        self.out.command(Purpose::Current, |ticket| StorageCommand::Replace { ticket, file, bytes });
        Ok(())
    }
}

fn refused(fault: RecoveryFault) -> RecoveryError {
    RecoveryError::Storage(fault.fault().clone())
}

/// Whether a log may be made for this.
fn allowed(init: &Init, config: &ReplicaConfig) -> Result<(), RecoveryError> {
    let refuse = |what, expected: String, found: String| Err(RecoveryError::Init { what, expected, found });
    if let Some(found) = super::membership::identity_fault(&init.identity) {
        return refuse("identity", "1 to 128 printable bytes".into(), found);
    }
    let most = current::NAMESPACES_MAX;
    if init.namespaces.is_empty() || init.namespaces.len() > most {
        let expected = alloc::format!("1 to {most} namespaces");
        return refuse("namespaces", expected, init.namespaces.len().to_string());
    }
    for namespace in &init.namespaces {
        let bytes_max = (config.record.namespace_bytes_max as usize).min(current::NAMESPACE_BYTES_MAX);
        if namespace.is_empty() || namespace.len() > bytes_max {
            let found = alloc::format!("{} bytes", namespace.len());
            return refuse("namespace", alloc::format!("1 to {bytes_max} bytes"), found);
        }
    }
    if let Some(authority) = &init.authority
        && let Err(error) = config.record.authority(authority.as_str())
    {
        return refuse("authority", "an authority identity".into(), error.to_string());
    }
    Ok(())
}

impl Machine for Recovery {
    type Command = Command;
    type Event = Event;
    type Completion = ReplicaCompletion;
    type Channel = LinkId;

    fn handle_completion(&mut self, now: Now, completion: ReplicaCompletion) {
        self.now = self.now.latest(now);
        if let Some((purpose, outcome)) = self.out.tickets().settle(completion) {
            let Outcome::Storage(outcome) = outcome else { unreachable!("recovery touches no blobs") };
            if matches!(self.stage, Stage::Failed(_)) {
                return;
            }
            if let Err(error) = self.settled(purpose, outcome) {
                self.fail(error);
            }
        }
    }

    fn handle_timeout(&mut self, now: Now) {
        self.now = self.now.latest(now);
    }

    fn poll_command(&mut self) -> Option<Command> {
        self.out.poll_command()
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.out.poll_event()
    }

    fn poll_channel(&mut self, _: LinkId, _: &mut Vec<u8>) -> Option<FrameInfo> {
        None
    }

    fn pending(&self) -> Pending {
        self.out.pending()
    }
}
