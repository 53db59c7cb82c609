//! Replicas in one process: disks and blob stores in memory, links that carry bytes in pieces, and
//! completions in an order that a seed picks. Drives them through the same `drain` as every host.

pub(crate) use super::blobs::{Blobs, blob_key};
use super::disk::Disk;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use strandline_core::id::{LinkId, LogId};
use strandline_core::journal::command::{FileName, StorageCommand};
use strandline_core::lifecycle::api::{
    Accepted, Change, Done, Event, Flow, LinkRole, Mutation, MutationError, RequestId,
};
use strandline_core::lifecycle::command::{BlobCommand, Command, ReplicaCompletion};
use strandline_core::lifecycle::config::ReplicaConfig;
use strandline_core::lifecycle::recovery::{Init, NotRecovered, Recovery, RecoveryError, RecoveryReport};
use strandline_core::lifecycle::replica::Replica;
use strandline_core::machine::{Host, Machine, Next, Sent, drain};
use strandline_core::record::{AuthorityId, BlobKey, Key, RecordLimits, State};
use strandline_core::seed::Seed;
use strandline_core::time::{Instant, Now, WallTime};

pub(crate) const LOG: LogId = LogId([7; 16]);

/// A generator of numbers that are the same for the same seed everywhere.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x5DEE_CE66)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Wires {
    pub(crate) out: BTreeMap<LinkId, VecDeque<u8>>,
    ready: BTreeSet<LinkId>,
    closing: BTreeSet<LinkId>,
    /// Links that take no bytes before they are resumed.
    paused: BTreeSet<LinkId>,
    /// Most bytes on their way over one link, after which no further frame is taken; no bound if none.
    pub(crate) bytes_max: Option<usize>,
}

/// The host of one replica.
#[derive(Debug, Default)]
pub(crate) struct NodeHost {
    pub(crate) disk: Disk,
    pub(crate) blobs: Blobs,
    pub(crate) commands: Vec<Command>,
    pub(crate) events: Vec<Event>,
    pub(crate) wires: Wires,
    /// How many reads of segments were executed.
    pub(crate) segment_reads: u32,
}

impl<M: Machine<Command = Command, Event = Event, Channel = LinkId>> Host<M> for NodeHost {
    fn execute(&mut self, command: Command) {
        self.commands.push(command);
    }

    fn notify(&mut self, event: Event) {
        if let Event::Frames { link } = &event {
            self.wires.ready.insert(*link);
        }
        if let Event::CloseLink { link, .. } = &event {
            self.wires.closing.insert(*link);
        }
        if let Event::Resume { link } = &event {
            self.wires.paused.remove(link);
        }
        self.events.push(event);
    }

    fn ready(&mut self) -> Option<LinkId> {
        let Wires { out, ready, bytes_max, .. } = &self.wires;
        let sent = |link: &LinkId| out.get(link).map_or(0, VecDeque::len);
        ready.iter().copied().find(|link| bytes_max.is_none_or(|most| sent(link) < most))
    }

    fn send(&mut self, link: LinkId, bytes: &[u8]) -> Sent {
        self.wires.out.entry(link).or_default().extend(bytes);
        Sent::More
    }

    fn done(&mut self, link: LinkId) {
        self.wires.ready.remove(&link);
    }
}

/// Appends and cuts must keep their order; everything else may be answered in any.
fn ordered(command: &Command) -> bool {
    use strandline_core::journal::command::StorageCommand as S;
    match command {
        Command::Storage(S::Append { .. } | S::Cut { .. } | S::Write { .. } | S::Sync { .. }) => true,
        Command::Storage(
            S::List { .. } | S::Read { .. } | S::Prepare { .. } | S::Replace { .. } | S::Remove { .. },
        ) => false,
        Command::Blob(
            BlobCommand::Write { .. } | BlobCommand::Commit { .. } | BlobCommand::Abandon { .. },
        ) => true,
        Command::Blob(
            BlobCommand::Stat { .. }
            | BlobCommand::Read { .. }
            | BlobCommand::Put { .. }
            | BlobCommand::List { .. }
            | BlobCommand::Remove { .. }
            | BlobCommand::Verify { .. },
        ) => false,
    }
}

impl NodeHost {
    /// Executes one command of those that may go next.
    pub(crate) fn step(&mut self, rng: &mut Rng) -> Option<ReplicaCompletion> {
        if self.commands.is_empty() {
            return None;
        }
        let pick = rng.below(self.commands.len() as u64) as usize;
        let first_ordered = self.commands.iter().position(ordered);
        let at = match first_ordered {
            Some(first) if ordered(&self.commands[pick]) => first,
            Some(_) | None => pick,
        };
        let command = self.commands.remove(at);
        Some(self.execute_one(command))
    }

    fn execute_one(&mut self, command: Command) -> ReplicaCompletion {
        match command {
            Command::Storage(command) => {
                if let StorageCommand::Read { file: FileName::Segment(_), .. } = &command {
                    self.segment_reads += 1;
                }
                self.disk.execute(command).into()
            }
            Command::Blob(command) => self.blobs.execute(command),
        }
    }
}

pub(crate) struct Node {
    pub(crate) host: NodeHost,
    pub(crate) replica: Option<Replica>,
    pub(crate) report: Option<RecoveryReport>,
    pub(crate) config: ReplicaConfig,
    /// Peer node by link, and the peer's link.
    pub(crate) links: BTreeMap<LinkId, (usize, LinkId)>,
}

pub(crate) struct Cluster {
    pub(crate) nodes: Vec<Node>,
    pub(crate) rng: Rng,
    pub(crate) now: Now,
    starts: u64,
}

pub(crate) fn small_config() -> ReplicaConfig {
    let mut config = ReplicaConfig::default();
    config.journal.segment_bytes = 8192;
    config.journal.batch_bytes_max = 4096;
    config.journal.entry_bytes_max = 2048;
    config.journal.pending_bytes_max = 16384;
    config.wire.repair.records_max = 10;
    config.wire.repair.key_bytes_max = 1024;
    config.wire.repair.record_json_bytes_max = 4096;
    config.record.authority_bytes_max = 64;
    config.journal.read_bytes_max = 4096;
    config.record.logical_key_bytes_max = 512;
    config.record.record_bytes_max = 2048;
    config
}

pub(crate) fn key(text: &str) -> Key {
    RecordLimits::default().key(b"files", text.as_bytes()).expect("a key")
}

pub(crate) fn put(text: &str, blob: BlobKey) -> Mutation {
    Mutation { key: key(text), change: Change::Put { blob }, if_version: None }
}

pub(crate) fn delete(text: &str) -> Mutation {
    Mutation { key: key(text), change: Change::Delete, if_version: None }
}

impl Cluster {
    pub(crate) fn new(seed: u64) -> Self {
        let now = Now { mono: Instant(1), wall: WallTime(1) };
        Self { nodes: Vec::new(), rng: Rng::new(seed), now, starts: 0 }
    }

    pub(crate) fn add(&mut self, identity: &str, writes: bool, config: ReplicaConfig) -> usize {
        self.add_log(identity, writes, config, LOG)
    }

    pub(crate) fn add_log(
        &mut self,
        identity: &str,
        writes: bool,
        config: ReplicaConfig,
        log: LogId,
    ) -> usize {
        let init = Init { log, ..self.init(identity, writes) };
        self.add_init(init, config)
    }

    pub(crate) fn add_init(&mut self, init: Init, config: ReplicaConfig) -> usize {
        let at = self.add_empty(config);
        self.start(at, Some(init)).expect("a new log");
        at
    }

    pub(crate) fn init(&self, identity: &str, writes: bool) -> Init {
        Init {
            log: LOG,
            identity: identity.into(),
            namespaces: vec![b"files".to_vec()],
            authority: writes.then(|| AuthorityId::from_text(identity)),
        }
    }

    /// A node whose power was cut while its log was being made, after `count` commands.
    pub(crate) fn add_crashed(
        &mut self,
        identity: &str,
        writes: bool,
        config: ReplicaConfig,
        count: usize,
    ) -> usize {
        let (init, seed, now) = (self.init(identity, writes), self.seed(), self.now);
        let at = self.add_empty(config.clone());
        let node = &mut self.nodes[at];
        let mut recovery = Recovery::create(now, seed, config, init);
        for _ in 0..count {
            let _ = drain(&mut recovery, &mut node.host, &mut Vec::new(), 64);
            let Some(completion) = node.host.step(&mut self.rng) else { break };
            recovery.handle_completion(now, completion);
        }
        self.kill(at);
        at
    }

    /// Begins to recover a node, and cuts its power after `count` commands.
    pub(crate) fn start_crashed(&mut self, at: usize, count: usize) {
        let (seed, now) = (self.seed(), self.now);
        let node = &mut self.nodes[at];
        let mut recovery = Recovery::open(now, seed, node.config.clone());
        for _ in 0..count {
            let _ = drain(&mut recovery, &mut node.host, &mut Vec::new(), 64);
            let Some(completion) = node.host.step(&mut self.rng) else { break };
            recovery.handle_completion(now, completion);
        }
        self.kill(at);
    }

    fn add_empty(&mut self, config: ReplicaConfig) -> usize {
        let at = self.nodes.len();
        self.nodes.push(Node {
            host: NodeHost::default(),
            replica: None,
            report: None,
            config,
            links: BTreeMap::new(),
        });
        at
    }

    fn seed(&mut self) -> Seed {
        self.starts += 1;
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&self.rng.next().to_be_bytes());
        bytes[8..16].copy_from_slice(&self.starts.to_be_bytes());
        Seed::new(bytes)
    }

    /// Runs recovery over the node's disk.
    pub(crate) fn start(&mut self, at: usize, init: Option<Init>) -> Result<(), RecoveryError> {
        let (seed, now) = (self.seed(), self.now);
        let node = &mut self.nodes[at];
        let config = node.config.clone();
        let mut recovery = match init {
            Some(init) => Recovery::create(now, seed, config, init),
            None => Recovery::open(now, seed, config),
        };
        let mut buf = Vec::new();
        loop {
            let _ = drain(&mut recovery, &mut node.host, &mut buf, 64);
            while let Some(completion) = node.host.step(&mut self.rng) {
                recovery.handle_completion(now, completion);
                let _ = drain(&mut recovery, &mut node.host, &mut buf, 64);
            }
            match recovery.finish() {
                Ok((replica, report)) => {
                    node.replica = Some(replica);
                    node.report = Some(report);
                    return Ok(());
                }
                Err(NotRecovered::Working(back)) => {
                    assert!(!node.host.commands.is_empty() || back.pending().commands, "recovery is stuck");
                    recovery = *back;
                }
                Err(NotRecovered::Failed(error)) => return Err(error),
            }
        }
    }

    /// Kills a node: commands that were not executed are lost, and what was not synced.
    pub(crate) fn kill(&mut self, at: usize) {
        let links: Vec<LinkId> = self.nodes[at].links.keys().copied().collect();
        for link in links {
            self.cut(at, link);
        }
        let node = &mut self.nodes[at];
        node.replica = None;
        node.host.commands.clear();
        node.host.wires = Wires::default();
        node.host.disk.power_cut();
        node.host.blobs.parts.clear();
    }

    pub(crate) fn restart(&mut self, at: usize) {
        self.start(at, None).expect("recovers");
    }

    /// Connects two nodes with a handshake.
    pub(crate) fn connect(&mut self, a: usize, b: usize) -> Result<(LinkId, LinkId), String> {
        let (for_a, for_b) = super::handshake::authenticate(
            self.nodes[a].replica.as_ref().expect("up"),
            self.nodes[b].replica.as_ref().expect("up"),
        );
        let now = self.now;
        let up = |node: &mut Node, peer: &strandline_core::wire::handshake::Authenticated| {
            let replica = node.replica.as_mut().expect("up");
            replica.handle_link_up(now, peer, LinkRole::Both).map_err(|e| e.to_string())
        };
        let link_a = up(&mut self.nodes[a], &for_a)?;
        let link_b = match up(&mut self.nodes[b], &for_b) {
            Ok(link) => link,
            Err(error) => {
                let replica = self.nodes[a].replica.as_mut().expect("up");
                replica.handle_link_down(now, link_a);
                return Err(error);
            }
        };
        self.nodes[a].links.insert(link_a, (b, link_b));
        self.nodes[b].links.insert(link_b, (a, link_a));
        Ok((link_a, link_b))
    }

    /// Cuts a link on both sides; bytes on their way are lost.
    pub(crate) fn cut(&mut self, at: usize, link: LinkId) {
        let now = self.now;
        let Some((peer, peer_link)) = self.nodes[at].links.remove(&link) else { return };
        self.nodes[peer].links.remove(&peer_link);
        for (node, link) in [(at, link), (peer, peer_link)] {
            let node = &mut self.nodes[node];
            node.host.wires.out.remove(&link);
            node.host.wires.ready.remove(&link);
            node.host.wires.paused.remove(&link);
            if let Some(replica) = &mut node.replica {
                replica.handle_link_down(now, link);
            }
        }
    }

    /// Takes what a node has to say; nothing is executed.
    pub(crate) fn drain(&mut self, at: usize) {
        let node = &mut self.nodes[at];
        let Some(replica) = &mut node.replica else { return };
        let mut buf = Vec::new();
        while drain(replica, &mut node.host, &mut buf, 16) == Next::More {}
    }

    /// Executes the commands that `wanted` picks, oldest first, until there are none; all others wait.
    pub(crate) fn run(&mut self, at: usize, wanted: impl Fn(&Command) -> bool) {
        self.drain(at);
        while let Some(which) = self.nodes[at].host.commands.iter().position(&wanted) {
            let now = self.now;
            let node = &mut self.nodes[at];
            let command = node.host.commands.remove(which);
            let completion = node.host.execute_one(command);
            node.replica.as_mut().expect("up").handle_completion(now, completion);
            self.drain(at);
        }
    }

    /// One random step of one node: a command, some bytes of a link, or nothing to do.
    pub(crate) fn step(&mut self, at: usize) -> bool {
        self.now.mono = Instant(self.now.mono.0 + 1_000);
        self.drain(at);
        let mut did = false;
        if self.rng.below(2) == 0 || self.nodes[at].links.is_empty() {
            did = self.execute_next(at);
        }
        did |= self.step_links(at);
        self.drain(at);
        did
    }

    /// Executes one command of a node; whether it had one.
    pub(crate) fn execute_next(&mut self, at: usize) -> bool {
        let now = self.now;
        let node = &mut self.nodes[at];
        let Some(replica) = &mut node.replica else { return false };
        let Some(completion) = node.host.step(&mut self.rng) else { return false };
        replica.handle_completion(now, completion);
        true
    }

    /// Carries some bytes of a node's links; whether there were any.
    pub(crate) fn step_links(&mut self, at: usize) -> bool {
        let (now, mut did) = (self.now, false);
        let links: Vec<(LinkId, (usize, LinkId))> =
            self.nodes[at].links.iter().map(|(link, peer)| (*link, *peer)).collect();
        for (link, (peer, peer_link)) in links {
            if self.nodes[peer].host.wires.paused.contains(&peer_link) {
                continue;
            }
            let limit = 1 + self.rng.below(4096) as usize;
            let queue = self.nodes[at].host.wires.out.entry(link).or_default();
            let bytes: Vec<u8> = queue.drain(..limit.min(queue.len())).collect();
            if bytes.is_empty() {
                if self.nodes[at].host.wires.closing.remove(&link) {
                    self.cut(at, link);
                }
                continue;
            }
            did = true;
            if let Some(replica) = &mut self.nodes[peer].replica {
                if replica.handle_received(now, peer_link, &bytes) == Flow::Pause {
                    self.nodes[peer].host.wires.paused.insert(peer_link);
                }
                self.drain(peer);
            }
        }
        did
    }

    /// Steps until nothing moves any more but what waits for longer than some milliseconds.
    pub(crate) fn settle(&mut self) {
        let mut quiet = 0;
        for _ in 0..2_000_000 {
            let mut did = false;
            for at in 0..self.nodes.len() {
                did |= self.step(at);
                did |= !self.nodes[at].host.commands.is_empty();
            }
            quiet = if did { 0 } else { quiet + 1 };
            if quiet == 3 {
                // A link that had no room looks again after some milliseconds.
                let soon = Some(self.now.mono.after_ms(10));
                let due = |n: &Node| n.replica.as_ref().and_then(|r| r.pending().deadline);
                if !self.nodes.iter().any(|n| due(n).is_some() && due(n) <= soon) {
                    return;
                }
                self.tick(10);
                quiet = 0;
            }
        }
        panic!("the cluster does not settle");
    }

    /// Lets time pass, then settles.
    pub(crate) fn pass(&mut self, ms: u64) {
        self.tick(ms);
        self.settle();
    }

    /// Lets time pass.
    pub(crate) fn tick(&mut self, ms: u64) {
        self.now.mono = self.now.mono.after_ms(ms);
        let now = self.now;
        for node in &mut self.nodes {
            if let Some(replica) = &mut node.replica {
                replica.handle_timeout(now);
            }
        }
    }

    pub(crate) fn replica(&mut self, at: usize) -> &mut Replica {
        self.nodes[at].replica.as_mut().expect("up")
    }

    pub(crate) fn mutate(
        &mut self,
        at: usize,
        mutations: &[Mutation],
    ) -> Result<Vec<Accepted>, MutationError> {
        let now = self.now;
        self.replica(at).handle_mutations(now, mutations)
    }

    /// Stores a blob and puts it under a key.
    pub(crate) fn put(&mut self, at: usize, text: &str, bytes: &[u8]) -> Accepted {
        let blob = blob_key(bytes);
        self.nodes[at].host.blobs.stored.insert(blob, bytes.to_vec());
        self.mutate(at, &[put(text, blob)]).expect("accepted")[0]
    }

    /// Waits for the answer to a request.
    pub(crate) fn done(&mut self, at: usize, request: RequestId) -> Done {
        self.settle();
        let found = self.nodes[at].host.events.iter().find_map(|event| {
            let Event::Done { request: answered, done } = event else { return None };
            (*answered == request).then(|| done.clone())
        });
        found.expect("answered")
    }

    /// The durable key space, blobs included: what a reader would see.
    pub(crate) fn contents(&mut self, at: usize) -> BTreeMap<Vec<u8>, Option<Vec<u8>>> {
        let scan = strandline_core::lifecycle::api::Scan {
            namespace: None,
            prefix: Vec::new(),
            after: None,
            entries_max: 1_000_000,
            deleted: false,
        };
        let page = self.replica(at).scan(&scan);
        assert!(page.next.is_none());
        let stored = &self.nodes[at].host.blobs.stored;
        page.entries
            .iter()
            .map(|(key, entry)| {
                let State::Present { blob } = entry.state else { unreachable!("not asked for") };
                (key.logical_key().to_vec(), stored.get(&blob).cloned())
            })
            .collect()
    }
}
