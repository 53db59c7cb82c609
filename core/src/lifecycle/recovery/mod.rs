//! From the files of a directory to a live replica: the one root that may make one.

mod create;
mod load;
mod reseed;
mod tail;

pub use reseed::Reseeded;

use crate::error::{Classified, Family, StorageFault};
use crate::id::{LinkId, LogId, Run};
use crate::journal::command::{FileName, Listed, StorageCommand, StorageOutcome};
use crate::journal::current::Current;
use crate::journal::recovery::{JournalRecovery, Recovered, RecoveryPurpose};
use crate::journal::writer::JournalPurpose;
use crate::lifecycle::acked::Acked;
use crate::lifecycle::api::Event;
use crate::lifecycle::authority::Authority;
use crate::lifecycle::checkpoint_read::CheckpointReader;
use crate::lifecycle::command::{Command, Outcome, ReplicaCompletion};
use crate::lifecycle::config::{ConfigError, ReplicaConfig};
use crate::lifecycle::history::History;
use crate::lifecycle::membership::Members;
use crate::lifecycle::opaque::Opaque;
use crate::lifecycle::replica::Replica;
use crate::lifecycle::shared::Shared;
use crate::lifecycle::views::Views;
use crate::lifecycle::wanted::Wanted;
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
    /// Records that were appended without their blobs.
    wanted: Wanted,
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
        let stage =
            match failed.and_then(|()| init.as_ref().map_or(Ok(()), |init| create::allowed(init, &config))) {
                Ok(()) => {
                    out.command(Purpose::List, |ticket| StorageCommand::List { ticket });
                    Stage::Listing
                }
                Err(error) => Stage::Failed(error),
            };
        let found = Found {
            wanted: Wanted::default(),
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
        let mut wanted = found.wanted;
        // Where damage to the last batch passes for a torn end, an older record is seen again, whose blob
        // may have been collected since.
        if opaque.wanting || report.cut.is_some() {
            wanted.begin_look(false);
        }
        let tail = found.history.tail();
        let (authority, fenced) = match &opaque.authority {
            None => (None, None),
            Some(id) => {
                match Authority::open(found.authority.as_deref(), id.clone(), tail, found.history.epoch()) {
                    Ok(authority) => (Some(authority), None),
                    Err(refusal) => (None, Some(refusal.to_string())),
                }
            }
        };
        let shared = Shared::new(crate::lifecycle::shared::Parts {
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
            wanted,
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
