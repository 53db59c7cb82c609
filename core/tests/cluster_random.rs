//! Random work and random faults over a small cluster, against a model that knows what was submitted
//! and what was told durable. A failure names its seed; `seed(N)` replays it.

mod common;

use common::cluster::{Cluster, Rng, blob_key, key, small_config};
use std::collections::BTreeMap;
use strandline_core::id::Lsn;
use strandline_core::lifecycle::api::{
    Change, Event, LinkStatus, MembersChange, Mutation, MutationError, Scan,
};
use strandline_core::lifecycle::config::ReplicaConfig;
use strandline_core::record::{BlobKey, State, Version};

/// Node 0 writes the log; all others follow.
const A: usize = 0;
const NODES_MAX: usize = 5;
const KEYS: u64 = 24;

/// One record as the authority submitted it.
#[derive(Clone, Debug)]
struct Submitted {
    lsn: Lsn,
    version: Version,
    key: String,
    blob: Option<BlobKey>,
}

struct World {
    seed: u64,
    rng: Rng,
    cluster: Cluster,
    config: ReplicaConfig,
    names: Vec<String>,
    /// What the authority's log durably holds, in order.
    log: Vec<Submitted>,
    /// Submitted, and not told durable.
    pending: Vec<Submitted>,
    /// The last version given.
    given: Version,
    /// How many events of the authority were looked at.
    seen: usize,
    /// The highest durable tail each node showed.
    tails: Vec<Version>,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut rng = Rng::new(seed ^ 0xC0FF_EE00);
        let mut config = small_config();
        match rng.below(3) {
            0 => {
                config.blob_requests_max = 1;
                config.snapshot_requests_max = 1;
                config.link_queue_bytes_max = 600;
                config.wire.repair.records_max = 2;
                config.compaction_keys_max = 3;
            }
            1 => config = ReplicaConfig::default(),
            _ => {}
        }
        if config.journal.segment_bytes > 1 << 20 {
            config.journal.segment_bytes = 1 << 20;
            config.journal.batch_bytes_max = 1 << 18;
            config.journal.entry_bytes_max = 1 << 17;
        }
        let cluster = Cluster::new(seed);
        let mut world = Self {
            seed,
            rng,
            cluster,
            config,
            names: Vec::new(),
            log: Vec::new(),
            pending: Vec::new(),
            given: Version::ZERO,
            seen: 0,
            tails: Vec::new(),
        };
        for _ in 0..3 + seed % 2 {
            world.add();
        }
        world
    }

    fn add(&mut self) {
        let name = format!("n{}", self.names.len());
        self.cluster.add(&name, self.names.is_empty(), self.config.clone());
        self.names.push(name);
        self.tails.push(Version::ZERO);
    }

    fn up(&self, at: usize) -> bool {
        self.cluster.nodes[at].replica.is_some()
    }

    /// What was told durable moves into the log, in order.
    fn observe(&mut self) {
        let events = &self.cluster.nodes[A].host.events;
        for event in &events[self.seen..] {
            if let Event::Durable { upto } = event {
                let told = self.pending.partition_point(|p| p.lsn <= *upto);
                self.log.extend(self.pending.drain(..told));
            }
        }
        self.seen = events.len();
    }

    /// The submitted version of a key; zero for none.
    fn latest(&mut self, key: &str) -> Version {
        // Compaction drops a tombstone: the key has no record then.
        let floor = self.cluster.replica(A).status().floor;
        let mut all = self.pending.iter().rev().chain(self.log.iter().rev());
        let last = all.find(|s| s.key == key).filter(|s| s.blob.is_some() || s.version > floor);
        last.map_or(Version::ZERO, |s| s.version)
    }

    fn blob(&mut self) -> BlobKey {
        let bytes = match self.rng.below(12) {
            0 => Vec::new(),
            1 => vec![self.rng.below(4) as u8; 300_000],
            2 if self.seed.is_multiple_of(8) => vec![self.rng.below(4) as u8; 700_000],
            _ => vec![self.rng.below(200) as u8; 1 + self.rng.below(100) as usize],
        };
        let blob = blob_key(&bytes);
        self.cluster.nodes[A].host.blobs.stored.insert(blob, bytes);
        blob
    }

    fn mutate(&mut self) {
        if !self.up(A) {
            return;
        }
        let count = 1 + self.rng.below(8) * self.rng.below(2);
        let mut names: Vec<String> = Vec::new();
        let mut mutations = Vec::new();
        let mut holds = true;
        for _ in 0..count {
            let name = format!("k{}", self.rng.below(KEYS));
            if names.contains(&name) {
                continue;
            }
            let change =
                if self.rng.below(4) == 0 { Change::Delete } else { Change::Put { blob: self.blob() } };
            let if_version = match self.rng.below(8) {
                0 => Some(self.latest(&name)),
                1 => Some(Version::new(1, self.rng.below(20))),
                _ => None,
            };
            let latest = self.latest(&name);
            holds &= if_version.is_none_or(|expected| expected == latest);
            mutations.push(Mutation { key: key(&name), change, if_version });
            names.push(name);
        }
        match self.cluster.mutate(A, &mutations) {
            Ok(accepted) => {
                assert!(holds, "seed({}): a condition that does not hold was taken", self.seed);
                for ((accepted, name), mutation) in accepted.iter().zip(names).zip(&mutations) {
                    assert!(accepted.version > self.given, "seed({}): a version twice", self.seed);
                    self.given = accepted.version;
                    let blob = match mutation.change {
                        Change::Put { blob } => Some(blob),
                        Change::Delete => None,
                    };
                    let (lsn, version) = (accepted.lsn, accepted.version);
                    self.pending.push(Submitted { lsn, version, key: name, blob });
                }
            }
            Err(MutationError::Precondition { .. }) => assert!(!holds, "seed({})", self.seed),
            Err(MutationError::Full { .. }) => {}
            Err(error) => panic!("seed({}): {error}", self.seed),
        }
    }

    fn kill(&mut self, at: usize) {
        if self.up(at) {
            self.cluster.kill(at);
            self.observe();
        }
    }

    fn restart(&mut self, at: usize) {
        if self.up(at) {
            return;
        }
        self.cluster.restart(at);
        if at == A {
            // What was submitted and not told is uncertain: a prefix of it, whole groups, may be there.
            let tail = self.cluster.replica(A).status().tail;
            let kept = self.pending.partition_point(|p| p.version <= tail);
            self.log.extend(self.pending.drain(..kept));
            self.pending.clear();
            let last = self.log.last().map_or(Version::ZERO, |s| s.version);
            // A version whose reservation was lost with the record was never seen outside.
            self.given = last;
            assert_eq!(last, tail, "seed({}): told durable, or never submitted", self.seed);
        }
    }

    fn members(&mut self, at: usize) {
        let name = self.names[1 + self.rng.below(self.names.len() as u64 - 1) as usize].clone();
        let change = match self.rng.below(6) {
            0 => MembersChange::Clear,
            1 => MembersChange::Remove(name),
            _ => MembersChange::Add(name),
        };
        let now = self.cluster.now;
        self.cluster.replica(at).handle_members(now, change);
    }

    fn act(&mut self) {
        let at = self.rng.below(self.names.len() as u64) as usize;
        let other = self.rng.below(self.names.len() as u64) as usize;
        match self.rng.below(40) {
            0..=11 => self.mutate(),
            12..=14 if at != other && self.up(at) && self.up(other) => {
                // Refused while another link of the pair stays: nothing to do then.
                let _refused = self.cluster.connect(at, other);
            }
            15 => {
                if let Some(link) = self.cluster.nodes[at].links.keys().next().copied() {
                    self.cluster.cut(at, link);
                }
            }
            16 => self.kill(at),
            17..=19 => self.restart(at),
            20..=21 if self.up(at) => {
                let now = self.cluster.now;
                self.cluster.replica(at).handle_compact(now, None);
            }
            22 if self.up(at) => self.members(at),
            23 if self.rng.below(6) == 0 && self.names.len() < NODES_MAX => self.add(),
            24 => self.cluster.tick(self.seed % 300),
            _ => {
                for _ in 0..self.rng.below(40) {
                    let at = self.rng.below(self.names.len() as u64) as usize;
                    self.cluster.step(at);
                }
            }
        }
        self.observe();
    }

    /// The key space after every record up to `tail`.
    fn model(&self, tail: Version) -> BTreeMap<&str, (Version, Option<BlobKey>)> {
        let mut keys = BTreeMap::new();
        for s in self.log.iter().take_while(|s| s.version <= tail) {
            keys.insert(s.key.as_str(), (s.version, s.blob));
        }
        keys
    }

    fn check(&mut self, at: usize) {
        if !self.up(at) {
            return;
        }
        let seed = self.seed;
        let status = self.cluster.replica(at).status();
        assert!(status.halted.is_none(), "seed({seed}): {at} halted");
        let tail = status.tail;
        assert!(tail >= self.tails[at], "seed({seed}): {at} fell back to {tail}");
        self.tails[at] = tail;
        let known = tail.is_zero() || self.log.iter().any(|s| s.version == tail);
        assert!(known, "seed({seed}): {at} shows {tail}, which its source had not made durable");
        let scan =
            Scan { namespace: None, prefix: Vec::new(), after: None, entries_max: 1000, deleted: false };
        let page = self.cluster.replica(at).scan(&scan);
        let mut expected = self.model(tail);
        expected.retain(|_, (_, blob)| blob.is_some());
        let found: BTreeMap<&str, (Version, Option<BlobKey>)> = page
            .entries
            .iter()
            .map(|(key, entry)| {
                let State::Present { blob } = entry.state else { unreachable!("not asked for") };
                assert!(
                    self.cluster.nodes[at].host.blobs.stored.contains_key(&blob),
                    "seed({seed}): no blob"
                );
                let name = std::str::from_utf8(key.logical_key()).expect("ours");
                (name, (entry.version, Some(blob)))
            })
            .collect();
        assert_eq!(found, expected, "seed({seed}): node {at} at {tail}");
        // Nobody who counts for compaction lacks what it dropped. (A follower's floor also rises with a
        // snapshot from the authority.)
        for member in status.members.iter().filter(|m| at == A && m.state == "active") {
            let Some(peer) = self.names.iter().position(|name| *name == member.identity) else { continue };
            let has = match &self.cluster.nodes[peer].replica {
                Some(replica) => replica.status().tail,
                None => continue,
            };
            assert!(
                has >= status.floor,
                "seed({seed}): {at} compacted to {}, {peer} has {has}",
                status.floor
            );
        }
    }

    fn quiet(&mut self) {
        for at in 0..self.names.len() {
            self.restart(at);
        }
        for round in 0..4 {
            for a in 0..self.names.len() {
                for b in 0..a {
                    let linked = self.cluster.nodes[a].links.values().any(|(peer, _)| *peer == b);
                    if !linked {
                        let _refused = self.cluster.connect(a, b);
                    }
                }
            }
            self.cluster.settle();
            self.cluster.pass(100 + round * 900);
            self.observe();
        }
        let tail = self.cluster.replica(A).status().tail;
        assert_eq!(self.cluster.replica(A).status().submitted, tail, "seed({})", self.seed);
        assert!(self.pending.is_empty(), "seed({}): {:?}", self.seed, self.pending);
        for at in 0..self.names.len() {
            self.check(at);
            let found = self.cluster.replica(at).status();
            let links: Vec<LinkStatus> = found.links;
            let of_a = self.cluster.replica(A).status().links;
            let told: Vec<&Event> = self.cluster.nodes[at].host.events.iter().rev().take(12).collect();
            assert_eq!(
                found.tail, tail,
                "seed({}): {at} did not converge: {links:#?}\nA: {of_a:#?}\n{told:?}",
                self.seed
            );
            assert!(links.iter().all(|l| l.state != "stopped"), "seed({}): {links:#?}", self.seed);
        }
    }
}

fn seed(seed: u64) {
    let mut world = World::new(seed);
    for turn in 0..250 {
        world.act();
        if turn % 5 == 0 {
            for at in 0..world.names.len() {
                world.check(at);
            }
        }
    }
    world.quiet();
}

#[test]
fn whatever_happens_nothing_acknowledged_is_lost_and_nothing_invented() {
    for number in 0..100 {
        let run = std::panic::catch_unwind(|| seed(number));
        if let Err(panic) = run {
            eprintln!("replay with seed({number})");
            std::panic::resume_unwind(panic);
        }
    }
}
