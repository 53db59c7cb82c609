//! One or two replicas that do one thing after the other, and stop before any effect they are told.

use crate::blobs::contents;
use crate::effect::Armed;
use crate::fs::Name;
use crate::host::{NodeHost, Outgoing};
use crate::node::{LOG, NAMESPACE};
use crate::rng::Rng;
use crate::world::authenticate;
use std::collections::{BTreeMap, BTreeSet};
use strandline_core::id::LinkId;
use strandline_core::journal::command::FileName;
use strandline_core::lifecycle::api::{Change, Event, LinkRole, Mutation, Scan};
use strandline_core::lifecycle::config::ReplicaConfig;
use strandline_core::lifecycle::recovery::{Init, NotRecovered, Recovery, RecoveryError};
use strandline_core::lifecycle::replica::Replica;
use strandline_core::machine::{Machine, Next, drain};
use strandline_core::record::{AuthorityId, Key, RecordLimits, State, Version};
use strandline_core::seed::Seed;
use strandline_core::time::{Instant, Now, WallTime};

/// The bench stopped before the effect it was told.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Stopped;

/// What a replica shows.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Shown {
    pub(super) tail: [u8; 32],
    pub(super) version: Version,
    pub(super) floor: Version,
    pub(super) members: Option<Vec<String>>,
    pub(super) present: BTreeMap<Key, (State, Version)>,
}

/// One replica and its host.
#[derive(Debug)]
pub(super) struct Rig {
    pub(super) host: NodeHost,
    pub(super) replica: Option<Replica>,
    identity: &'static str,
    starts: u64,
}

/// Replicas on a bench. Effects of the one under test are counted.
#[derive(Debug)]
pub(super) struct Bench {
    pub(super) rigs: Vec<Rig>,
    pub(super) under: usize,
    now_ns: u64,
    effects: u64,
    /// Stop before this effect.
    fuse: Option<u64>,
    counting: bool,
    /// Everything that the one under test showed since the counting began.
    pub(super) seen: Vec<Shown>,
}

/// Small bounds, so that segments change soon.
pub(super) fn config() -> ReplicaConfig {
    let mut config = ReplicaConfig::default();
    config.record.authority_bytes_max = 16;
    config.record.namespace_bytes_max = 8;
    config.record.logical_key_bytes_max = 64;
    config.record.record_bytes_max = 1024;
    config.wire.record = config.record;
    config.wire.repair.records_max = 8;
    config.wire.repair.key_bytes_max = 8 * 72;
    config.wire.repair.record_json_bytes_max = 1024;
    config.journal.entry_bytes_max = 512;
    config.journal.batch_bytes_max = 1536;
    config.journal.pending_bytes_max = 4096;
    config.journal.segment_bytes = 2048;
    config.journal.read_bytes_max = 512;
    config
}

pub(super) fn key(text: &str) -> Key {
    RecordLimits::default().key(NAMESPACE, text.as_bytes()).expect("a short key")
}

pub(super) fn put(text: &str, content: usize) -> Mutation {
    Mutation { key: key(text), change: Change::Put { blob: contents()[content].key }, if_version: None }
}

pub(super) fn delete(text: &str) -> Mutation {
    Mutation { key: key(text), change: Change::Delete, if_version: None }
}

pub(super) fn shown(replica: &Replica) -> Shown {
    let status = replica.status();
    let scan =
        Scan { namespace: None, prefix: Vec::new(), after: None, entries_max: 1_000_000, deleted: false };
    let page = replica.scan(&scan);
    let members = status.members.into_iter().map(|member| member.identity).collect();
    Shown {
        tail: status.tail_digest,
        version: status.tail,
        floor: status.floor,
        members: status.members_configured.then_some(members),
        present: page.entries.into_iter().map(|(key, entry)| (key, (entry.state, entry.version))).collect(),
    }
}

impl Rig {
    pub(super) fn new(identity: &'static str) -> Self {
        Self { host: NodeHost::new(Rng::new(7), 1 << 20, false), replica: None, identity, starts: 0 }
    }

    /// A recovery of what is there, or of a new log where there is none.
    pub(super) fn recovery(&mut self, now: Now) -> Recovery {
        self.starts += 1;
        let mut seed = [self.identity.as_bytes()[0]; 32];
        seed[..8].copy_from_slice(&self.starts.to_be_bytes());
        let seed = Seed::new(seed);
        if self.host.fs.exists(Name::File(FileName::Current)) {
            return Recovery::open(now, seed, config());
        }
        let identity = self.identity;
        let init = Init {
            log: LOG,
            identity: identity.into(),
            namespaces: vec![NAMESPACE.to_vec()],
            authority: (identity == "a").then(|| AuthorityId::from_text(identity)),
        };
        Recovery::create(now, seed, config(), init)
    }
}

/// Runs a recovery over a host; `step` is asked before every effect.
pub(super) fn recover(
    rig: &mut Rig,
    now: Now,
    mut step: impl FnMut() -> Result<(), Stopped>,
) -> Result<Result<Replica, RecoveryError>, Stopped> {
    let mut recovery = rig.recovery(now);
    let mut buf = Vec::new();
    loop {
        while drain(&mut recovery, &mut rig.host, &mut buf, 64) == Next::More {}
        while rig.host.busy() {
            step()?;
            rig.host.advance_first();
        }
        while let Some(answer) = rig.host.answers.pop_front() {
            recovery.handle_completion(now, answer);
        }
        while drain(&mut recovery, &mut rig.host, &mut buf, 64) == Next::More {}
        if rig.host.busy() {
            continue;
        }
        match recovery.finish() {
            Ok((replica, _)) => return Ok(Ok(replica)),
            Err(NotRecovered::Working(working)) => recovery = *working,
            Err(NotRecovered::Failed(error)) => return Ok(Err(error)),
        }
    }
}

impl Bench {
    /// A bench with these replicas; the one with this place is tested.
    pub(super) fn new(identities: &[&'static str], under: usize, fuse: Option<u64>) -> Self {
        let rigs = identities.iter().map(|identity| Rig::new(identity)).collect();
        Self { rigs, under, now_ns: 1_000_000_000, effects: 0, fuse, counting: false, seen: Vec::new() }
    }

    pub(super) fn now(&self) -> Now {
        Now { mono: Instant(self.now_ns), wall: WallTime(self.now_ns / 1_000_000) }
    }

    /// From here on effects count.
    pub(super) fn count(&mut self) {
        self.counting = true;
        self.look();
    }

    /// No effect counts any more: the script is done.
    pub(super) fn done(mut self) -> Vec<Shown> {
        self.look();
        self.seen
    }

    fn look(&mut self) {
        if let Some(replica) = &self.rigs[self.under].replica
            && self.counting
        {
            let shown = shown(replica);
            if self.seen.last().is_none_or(|last| *last != shown) {
                self.seen.push(shown);
            }
        }
    }

    fn step(&mut self, at: usize) -> Result<(), Stopped> {
        if at == self.under && self.counting {
            if self.fuse == Some(self.effects) {
                return Err(Stopped);
            }
            self.effects += 1;
        }
        Ok(())
    }

    /// Starts a replica.
    pub(super) fn start(&mut self, at: usize) -> Result<(), Stopped> {
        let (now, counted) = (self.now(), at == self.under && self.counting);
        let (fuse, mut effects) = (self.fuse, self.effects);
        let replica = recover(&mut self.rigs[at], now, || {
            if counted && fuse == Some(effects) {
                return Err(Stopped);
            }
            effects += u64::from(counted);
            Ok(())
        });
        self.effects = effects;
        self.rigs[at].replica = Some(replica?.expect("a directory without damage opens"));
        self.settle()
    }

    /// Hands mutations in without waiting for them.
    pub(super) fn mutate(&mut self, at: usize, mutations: &[Mutation]) {
        let now = self.now();
        for content in contents() {
            self.rigs[at].host.blobs.store(content);
        }
        let replica = self.rigs[at].replica.as_mut().expect("it was started");
        replica.handle_mutations(now, mutations).expect("there is room");
    }

    pub(super) fn replica(&mut self, at: usize) -> &mut Replica {
        self.rigs[at].replica.as_mut().expect("it was started")
    }

    /// Connects the two replicas and lets them do what they have to.
    pub(super) fn connect(&mut self) -> Result<(), Stopped> {
        let now = self.now();
        let (for_a, for_b) = authenticate(
            self.rigs[0].replica.as_ref().expect("started"),
            self.rigs[1].replica.as_ref().expect("started"),
        );
        for (at, peer) in [(0, for_a), (1, for_b)] {
            let link = self.replica(at).handle_link_up(now, &peer, LinkRole::Both).expect("the first link");
            self.rigs[at].host.out.insert(link, Outgoing::default());
            self.rigs[at].host.wake(link);
        }
        self.settle()
    }

    /// Lets time pass, then everything that is due.
    pub(super) fn pass(&mut self, ms: u64) -> Result<(), Stopped> {
        self.now_ns += ms * 1_000_000;
        let now = self.now();
        for rig in &mut self.rigs {
            if let Some(replica) = &mut rig.replica {
                replica.handle_timeout(now);
            }
        }
        self.settle()
    }

    /// Does everything there is to do, one effect at a time.
    pub(super) fn settle(&mut self) -> Result<(), Stopped> {
        let mut moved = true;
        while moved {
            moved = false;
            for at in 0..self.rigs.len() {
                moved |= self.turn(at)?;
            }
        }
        Ok(())
    }

    fn turn(&mut self, at: usize) -> Result<bool, Stopped> {
        let now = self.now();
        self.drain(at);
        let mut moved = false;
        while self.rigs[at].host.busy() {
            self.step(at)?;
            self.rigs[at].host.advance_first();
            moved = true;
        }
        while let Some(answer) = self.rigs[at].host.answers.pop_front() {
            if let Some(replica) = &mut self.rigs[at].replica {
                replica.handle_completion(now, answer);
            }
            moved = true;
        }
        self.drain(at);
        self.look();
        if self.rigs.len() == 2 {
            moved |= self.deliver(at, 1 - at);
        }
        Ok(moved)
    }

    fn drain(&mut self, at: usize) {
        let Rig { host, replica, .. } = &mut self.rigs[at];
        let Some(replica) = replica else { return };
        let mut buf = Vec::new();
        while drain(replica, host, &mut buf, 64) == Next::More {}
        for event in host.events.drain(..) {
            let failed = matches!(event, Event::CloseLink { .. });
            assert!(!failed || host.armed.once != Armed::default().once, "{event:?}");
        }
    }

    /// Both replicas have one link, the same on both sides.
    fn deliver(&mut self, from: usize, to: usize) -> bool {
        let links: BTreeSet<LinkId> = self.rigs[from].host.out.keys().copied().collect();
        let now = self.now();
        let mut moved = false;
        for link in links {
            let out = self.rigs[from].host.out.get_mut(&link).expect("listed");
            let bytes: Vec<u8> = out.bytes.drain(..).collect();
            out.full = false;
            if let Some(replica) = &mut self.rigs[to].replica
                && !bytes.is_empty()
            {
                let _ = replica.handle_received(now, link, &bytes);
                self.rigs[from].host.wake(link);
                moved = true;
            }
        }
        moved
    }
}
