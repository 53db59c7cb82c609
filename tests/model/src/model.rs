//! The model that `stateright` explores: a state is the way to it, told apart by what it comes to.

use crate::bounds::Bounds;
use crate::spec::{Promise, Spec};
use crate::world::{Action, Seen, World};
use stateright::{Checker, HasDiscoveries, Model, Property};
use std::hash::{Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A state: replicas cannot be copied, so it is kept as the actions that lead to it from the start, and
/// made again from them. Two states are one if their digests are.
#[derive(Clone, Debug)]
pub struct State {
    way: Vec<Action>,
    digest: u64,
    open: Vec<Action>,
    spec: Spec,
    seen: Seen,
}

impl Hash for State {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.digest.hash(state);
    }
}

impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl State {
    fn of(world: World<'_>, way: Vec<Action>) -> Self {
        // Nothing is looked at behind a broken promise.
        let open = if world.spec.broken.is_some() { Vec::new() } else { world.open() };
        Self { way, digest: world.digest(), open, seen: world.seen, spec: world.spec }
    }

    fn next(&self, bounds: &Bounds, action: Action) -> Self {
        let mut world = World::again(bounds, &self.way, &self.spec);
        world.act(action);
        let mut way = self.way.clone();
        way.push(action);
        Self::of(world, way)
    }

    fn keeps(&self, promise: Promise) -> bool {
        self.spec.broken.as_ref().is_none_or(|(broken, _)| *broken != promise)
    }

    /// Whether the nodes converge, or say why not, once nothing fails any more.
    fn heals(&self, bounds: &Bounds) -> bool {
        self.spec.broken.is_some() || World::again(bounds, &self.way, &self.spec).heal()
    }
}

/// The pair of replicas within bounds.
#[derive(Clone, Debug)]
pub struct Pair(pub Bounds);

/// What a panic says.
fn said(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_owned()
}

impl Model for Pair {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        vec![State::of(World::new(&self.0), Vec::new())]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Action>) {
        actions.extend(&state.open);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let next = catch_unwind(AssertUnwindSafe(|| last.next(&self.0, action)));
        Some(next.unwrap_or_else(|panic| {
            let mut ended = last.clone();
            ended.way.push(action);
            (ended.open, ended.digest) = (Vec::new(), !last.digest);
            ended.spec.breaks(Promise::NoPanic, said(&*panic));
            ended
        }))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        use Promise::{
            NoDeleteUndone, NoPanic, NobodyBlamed, NothingAcknowledgedBeforeDurable,
            NothingAcknowledgedIsLost, NothingInvented, QuietMeansDone,
        };
        vec![
            kept("nothing acknowledged is lost", |_, s| s.keeps(NothingAcknowledgedIsLost)),
            kept("no acknowledgement above what is durable", |_, s| {
                s.keeps(NothingAcknowledgedBeforeDurable)
            }),
            kept("nothing invented, versions in order", |_, s| s.keeps(NothingInvented)),
            kept("no delete undone, no put lost", |_, s| s.keeps(NoDeleteUndone)),
            kept("nobody blamed who keeps the protocol", |_, s| s.keeps(NobodyBlamed)),
            kept("what is quiet has converged or says why not", |_, s| s.keeps(QuietMeansDone)),
            kept("nothing panics", |_, s| s.keeps(NoPanic)),
            kept("whatever is healed converges or says why not", |pair, s| s.heals(&pair.0)),
            met(SIGHTS[0], |_, s| s.seen.converged),
            met(SIGHTS[1], |_, s| s.seen.installed),
            met(SIGHTS[2], |_, s| s.seen.diverged),
            met(SIGHTS[3], |_, s| s.seen.lost_unsynced),
            met(SIGHTS[4], |_, s| s.seen.replaced),
        ]
    }
}

fn kept(name: &'static str, holds: fn(&Pair, &State) -> bool) -> Property<Pair> {
    Property::always(name, holds)
}

fn met(name: &'static str, holds: fn(&Pair, &State) -> bool) -> Property<Pair> {
    Property::sometimes(name, holds)
}

/// What must be seen within some of the bounds: what never happens was not checked.
pub const SIGHTS: [&str; 5] = [
    "they converge",
    "a snapshot is installed",
    "both say that their histories differ",
    "a crash loses what was not synced",
    "a second link takes the place of the first",
];

/// A promise that did not hold, with a way to it.
#[derive(Clone, Debug)]
pub struct Counterexample {
    /// What must hold.
    pub promise: &'static str,
    /// What happened, from the start.
    pub way: Vec<Action>,
    /// What was found then.
    pub found: String,
}

/// What an exhaustive run found.
#[derive(Clone, Debug)]
pub struct Report {
    /// Different states.
    pub states: usize,
    /// Ways from one state to another that were gone.
    pub steps: usize,
    /// Most actions from the start.
    pub depth: usize,
    /// What was seen happening.
    pub seen: Vec<&'static str>,
    /// Broken promises.
    pub broken: Vec<Counterexample>,
}

/// Tries everything that may happen within `bounds`; stops early at a broken promise.
#[must_use]
pub fn explore(bounds: &Bounds, threads: usize) -> Report {
    let pair = Pair(bounds.clone());
    let checker = pair.checker().threads(threads).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let mut report = Report {
        states: checker.unique_state_count(),
        steps: checker.state_count(),
        depth: checker.max_depth(),
        seen: Vec::new(),
        broken: Vec::new(),
    };
    for (name, path) in checker.discoveries() {
        let property = checker.model().property(name);
        let last = path.last_state().clone();
        match property.expectation {
            stateright::Expectation::Sometimes => report.seen.push(property.name),
            stateright::Expectation::Always | stateright::Expectation::Eventually => {
                let found = last.spec.broken.map_or_else(|| "it does not".into(), |(_, why)| why);
                report.broken.push(Counterexample { promise: property.name, way: last.way, found });
            }
        }
    }
    report.seen.sort_unstable();
    report
}
