//! The world of one run: nodes, connections, time, the model, and the judgement after every step.

mod blobs;
mod config;
mod judge;
mod links;
mod membership;
mod ops;
mod outside;
mod parting;
mod people;
mod quiesce;
mod readers;
mod turn;

use crate::fault::Counts;
use crate::host::NodeHost;
use crate::model::Tree;
use crate::node::Node;
use crate::plan::{Plan, Profile};
use crate::rng::{Choose, Rng};
use links::Conn;
use outside::Outside;
use std::collections::{BTreeMap, BTreeSet};
use strandline_core::id::LinkId;

pub(crate) use links::authenticate;
pub use readers::Reader;

/// What must never happen, happened.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Violation {
    /// Which invariant, in a word or two; the shrinker keeps it.
    pub kind: &'static str,
    /// What was expected and what was found.
    pub text: String,
}

impl Violation {
    fn new(kind: &'static str, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }
}

/// The answer of whatever may break an invariant.
pub type Judged = Result<(), Violation>;

/// The world of one run.
#[derive(Debug)]
pub struct World {
    profile: Profile,
    nodes: Vec<Node>,
    conns: BTreeMap<u64, Conn>,
    by_link: BTreeMap<(usize, LinkId), (u64, usize)>,
    conns_made: u64,
    time_ns: u64,
    rng: Rng,
    tree: Tree,
    counts: Counts,
    /// Inputs handed to machines.
    steps: u64,
    /// A hash of everything that happened.
    hash: u64,
    /// Histories may have parted: someone wrote elsewhere, or went back in time.
    forked: bool,
    /// The highest epoch that has begun.
    epoch: u64,
    /// Who began which.
    epochs: BTreeMap<u64, String>,
    /// What they began behind.
    bases: Vec<parting::Base>,
    /// The highest that a person asked for.
    epoch_asked: u64,
    /// Names of nodes that lost, or may have lost, what they had acknowledged.
    lossy: BTreeSet<String>,
    /// A peer of the reference beside the nodes.
    outside: Option<Outside>,
    /// Followers that a person is about to reseed.
    to_reseed: BTreeSet<usize>,
    trace: Option<Vec<String>>,
    buf: Vec<u8>,
}

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Inputs handed to machines.
    pub steps: u64,
    /// A hash of everything that happened: the same for the same plan.
    pub hash: u64,
    /// How often each fault was injected.
    pub counts: Counts,
    /// Records that were submitted.
    pub records: usize,
    /// Records that a peer of the reference took.
    pub outside_records: usize,
    /// What went wrong.
    pub violation: Option<Violation>,
    /// What happened, for people, if it was asked for.
    pub trace: Vec<String>,
}

impl World {
    /// The world of a plan before anything happened in it.
    #[must_use]
    pub fn new(plan: &Plan, traced: bool) -> Self {
        let mut rng = Rng::new(plan.seed);
        let profile = plan.profile;
        let shared = Rng::new(rng.next());
        let mut nodes = Vec::new();
        for at in 0..profile.nodes {
            let host = NodeHost::new(Rng::new(rng.next()), profile.window, profile.instant);
            let identity = ["a", "b", "c", "d"][at % 4];
            let config = config::of(&profile, at, &mut shared.clone(), &mut rng);
            nodes.push(Node::new(identity, at == 0, config, host));
        }
        Self {
            profile,
            nodes,
            conns: BTreeMap::new(),
            by_link: BTreeMap::new(),
            conns_made: 0,
            time_ns: 1_000_000_000,
            rng,
            tree: Tree::default(),
            counts: Counts::default(),
            steps: 0,
            hash: 0xCBF2_9CE4_8422_2325,
            forked: false,
            epoch: 0,
            epochs: BTreeMap::new(),
            bases: Vec::new(),
            epoch_asked: 1,
            lossy: BTreeSet::new(),
            to_reseed: BTreeSet::new(),
            outside: outside::of(plan.seed),
            trace: traced.then(Vec::new),
            buf: Vec::new(),
        }
    }

    /// Runs a plan to its end, or to the first violation.
    #[must_use]
    pub fn run(plan: &Plan, traced: bool) -> Outcome {
        let mut world = Self::new(plan, traced);
        let violation = world.play(plan).err();
        world.outcome(violation)
    }

    /// As [`World::run`], into a world that outlives a panic of the core.
    pub fn play(&mut self, plan: &Plan) -> Judged {
        // Not everyone is there from the start: late ones begin with a snapshot.
        self.start(0)?;
        for (at, op) in plan.ops.iter().enumerate() {
            self.rng = Rng::new(op.seed);
            self.tell(|| format!("-- {at}: {:?} on {}", op.kind, op.node));
            self.apply(op)?;
            if let Some(at) = self.to_reseed.pop_first() {
                self.reseed(at)?;
            }
            for _ in 0..op.ticks {
                self.tick()?;
            }
            self.look_at_links(op.node)?;
        }
        self.rng = Rng::new(plan.seed ^ 1);
        self.quiesce()
    }

    /// What it came to.
    #[must_use]
    pub fn outcome(self, violation: Option<Violation>) -> Outcome {
        let mut counts = self.counts;
        for node in &self.nodes {
            counts.merge(&node.host.counts);
        }
        Outcome {
            steps: self.steps,
            hash: self.hash,
            counts,
            records: self.tree.len(),
            outside_records: self.outside.map_or(0, |outside| outside.records),
            violation,
            trace: self.trace.unwrap_or_default(),
        }
    }

    fn tell(&mut self, text: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>9} {:>6} {}", self.time_ns / 1_000_000, self.steps, text()));
        }
    }

    /// Counts an input, and mixes what it was into the hash.
    fn step(&mut self, what: u64, node: usize, detail: u64) {
        self.steps += 1;
        for value in [what, node as u64, detail] {
            self.hash = (self.hash ^ value).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(23);
        }
    }

    /// Every node that is not `at`.
    fn other(&mut self, at: usize) -> usize {
        let pick = self.rng.index(self.nodes.len() - 1);
        if pick >= at { pick + 1 } else { pick }
    }
}
