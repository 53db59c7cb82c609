//! One simulated node: its life, its clock, and what the model must remember of it.

use crate::fault::Fault;
use crate::host::NodeHost;
use crate::model::{Digest, Mirror};
use crate::world::Reader;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use strandline_core::id::{Incarnation, LinkId, LogId};
use strandline_core::lifecycle::api::RequestId;
use strandline_core::lifecycle::backup::BackupPlan;
use strandline_core::lifecycle::config::ReplicaConfig;
use strandline_core::lifecycle::recovery::{Init, Recovery, RecoveryError};
use strandline_core::lifecycle::replica::Replica;
use strandline_core::record::{AuthorityId, BlobKey, Version};
use strandline_core::time::{Instant, Now, WallTime};

/// The log of every simulated node.
pub const LOG: LogId = LogId([7; 16]);
/// Its namespace.
pub const NAMESPACE: &[u8] = b"files";

/// Whether a node runs.
#[derive(Debug)]
pub enum Life {
    /// It does not.
    Down,
    /// It recovers, or makes its log.
    Recovering(Box<Recovery>),
    /// It serves.
    Up(Box<Replica>),
    /// Its directory could not be opened.
    Refused(RecoveryError),
}

/// A clock that can go wrong.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    /// Ahead of the world by this much.
    pub ahead_ns: u64,
    /// Behind the world by this much.
    pub behind_ns: u64,
    /// Stands still at this time, until the world is as late as the second number.
    pub stalled: Option<(u64, u64)>,
}

/// Damage that was done to the disk of a node and not found yet.
#[derive(Clone, Debug)]
pub struct Damage {
    /// Which fault.
    pub fault: Fault,
    /// Segment and bytes of it, if a segment was hit.
    pub segment: Option<(u64, std::ops::Range<u64>)>,
}

/// What a node vouched for, and what may explain it if it holds less one day.
#[derive(Clone, Debug, Default)]
pub struct Claim {
    /// Its tail in this life.
    pub digest: Digest,
    /// The version of that.
    pub version: Version,
    /// The highest it ever vouched for under its name.
    pub highest: Version,
    /// The tail after each LSN that it said is durable lately, oldest first.
    pub durable: VecDeque<(u64, Digest)>,
}

/// One node.
#[derive(Debug)]
pub struct Node {
    /// Its name.
    pub identity: String,
    /// Whether it writes the log.
    pub writes: bool,
    /// Its bounds.
    pub config: ReplicaConfig,
    /// Whether it runs.
    pub life: Life,
    /// Disk, blobs, commands, links.
    pub host: NodeHost,
    /// Its clock.
    pub clock: Clock,
    /// No command goes on before this time.
    pub slow_until_ns: u64,
    /// What it vouched for.
    pub claim: Claim,
    /// Records handed in and not durable: LSN and digest.
    pub pending: VecDeque<(u64, Digest)>,
    /// The last record handed in, or the tail.
    pub submitted: Digest,
    /// What conditions see.
    pub latest: Mirror,
    /// What reads must see.
    pub mirror: Mirror,
    /// The floor seen last.
    pub floor: Version,
    /// The latest epoch it said that it knows.
    pub epoch: u64,
    /// Members that were active when the last compaction began, and what they had acknowledged.
    pub counted: Vec<(String, Version)>,
    /// Members that were removed here, and the lives that had counted.
    pub removed: BTreeMap<String, Removed>,
    /// Changes of its members that are under way: whom they remove or add, in which life.
    pub changing: BTreeMap<RequestId, Vec<(String, Option<Removed>)>>,
    /// The tail and the life that a restored backup had.
    pub restored: Option<(Digest, Incarnation)>,
    /// Where the last recovery cut the journal.
    pub cut: Option<(u64, u64)>,
    /// Damage not found yet.
    pub damage: Vec<Damage>,
    /// Blobs that rotted here and that nobody found yet.
    pub rotten: BTreeSet<BlobKey>,
    /// Blobs that ever rotted here: a copy put back may hold them so.
    pub rotted: BTreeSet<BlobKey>,
    /// An older copy of its directory and blobs, with the tail it had.
    pub backup: Option<Backup>,
    /// Someone who follows what it makes durable.
    pub reader: Reader,
    /// Links that may not be handed bytes before they resume.
    pub paused: BTreeSet<LinkId>,
    /// Links to close once their bytes are out.
    pub closing: BTreeSet<LinkId>,
    /// Starts so far.
    pub starts: u64,
    /// Its directory was made and vouched for something, so that it must be there.
    pub made: bool,
    /// A restore or wipe explains a lower tail at the next start.
    pub regressed: bool,
    /// Taken out at the end: it carries the name of another one.
    pub twin: bool,
    /// Its journal halted.
    pub halted: bool,
    /// It said that it is closed.
    pub closed: bool,
}

/// A member that is removed.
#[derive(Clone, Copy, Debug)]
pub struct Removed {
    /// The life of its data that counted.
    pub life: Incarnation,
    /// What it had acknowledged.
    pub acked: Version,
    /// It may count in that life again: it took a snapshot, or one was due to it.
    pub may_count: bool,
}

/// An older copy of a node.
#[derive(Clone, Debug)]
pub struct Backup {
    /// The folder.
    pub fs: crate::fs::Fs,
    /// The blobs.
    pub blobs: crate::blobs::BlobStore,
    /// The batches in it.
    pub appended: Vec<crate::effect::Appended>,
    /// What `backup` takes of it, if the node served.
    pub plan: Option<BackupPlan>,
}

impl Node {
    /// A node without a directory.
    #[must_use]
    pub fn new(identity: &str, writes: bool, config: ReplicaConfig, host: NodeHost) -> Self {
        Self {
            identity: identity.into(),
            writes,
            config,
            life: Life::Down,
            host,
            clock: Clock::default(),
            slow_until_ns: 0,
            claim: Claim::default(),
            pending: VecDeque::new(),
            submitted: Digest::default(),
            latest: Mirror::default(),
            mirror: Mirror::default(),
            floor: Version::ZERO,
            epoch: 0,
            counted: Vec::new(),
            removed: BTreeMap::new(),
            changing: BTreeMap::new(),
            restored: None,
            cut: None,
            damage: Vec::new(),
            rotten: BTreeSet::new(),
            rotted: BTreeSet::new(),
            backup: None,
            reader: Reader::default(),
            paused: BTreeSet::new(),
            closing: BTreeSet::new(),
            starts: 0,
            made: false,
            regressed: false,
            twin: false,
            halted: false,
            closed: false,
        }
    }

    /// The last record that was handed in here, or that it shows.
    #[must_use]
    pub fn submitted_or_claimed(&self) -> Digest {
        if self.writes && !self.pending.is_empty() { self.submitted } else { self.claim.digest }
    }

    /// What its directory is made for.
    #[must_use]
    pub fn init(&self) -> Init {
        Init {
            log: LOG,
            identity: self.identity.clone(),
            namespaces: vec![NAMESPACE.to_vec()],
            authority: self.writes.then(|| AuthorityId::from_text(&self.identity)),
        }
    }

    /// The replica, if it serves.
    #[must_use]
    pub fn replica(&self) -> Option<&Replica> {
        match &self.life {
            Life::Up(replica) => Some(replica),
            Life::Down | Life::Recovering(_) | Life::Refused(_) => None,
        }
    }

    /// The replica, if it serves.
    pub fn replica_mut(&mut self) -> Option<&mut Replica> {
        match &mut self.life {
            Life::Up(replica) => Some(replica),
            Life::Down | Life::Recovering(_) | Life::Refused(_) => None,
        }
    }

    /// Its clocks when the world is at `world_ns`.
    #[must_use]
    pub fn now(&self, world_ns: u64) -> Now {
        let world_ns = match self.clock.stalled {
            Some((at, until)) if world_ns < until => at,
            Some(_) | None => world_ns,
        };
        let mono = (world_ns + self.clock.ahead_ns).saturating_sub(self.clock.behind_ns);
        Now { mono: Instant(mono), wall: WallTime(mono / 1_000_000) }
    }
}
