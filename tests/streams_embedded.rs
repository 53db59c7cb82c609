//! Power cuts at every effect of an embedded keyspace: recovery gives the state before an operation or
//! after it, and whatever was answered is there.

use std::collections::BTreeMap;
use strandline_core::seed::Seed;
use strandline_core::stream::contract::GroupContract;
use strandline_core::stream::embedded::{Embedded as Root, EmbeddedEvent};
use strandline_core::stream::filter::Filter;
use strandline_core::stream::keyspace::space::Space;
use strandline_core::stream::op::{Condition, Nonce};
use strandline_core::stream::{
    ConsumerName, Event, EventId, GroupName, Handle, Ids, Layout, OnceKey, Outcome, ServerTime, Start,
    StreamName, StreamOp, Verb, Wanted,
};
use strandline_core::time::{Now, WallTime};
use strandline_sim::fault::{Counts, Fault};
use strandline_sim::fs::{Fs, Tearing};
use strandline_sim::rng::{Odometer, Rng};
use strandline_tests::streams::embedded::{Folder, Stopped, held, small};

/// Up to so many undecided pages and entries every set of them is tried.
const UNDECIDED_MAX: usize = 5;
/// Beyond that, so many are sampled; ten times as many with `STRANDLINE_SOAK`.
const SAMPLES: u64 = 24;

type State = BTreeMap<StreamName, Space>;

fn now(step: usize) -> Now {
    Now { wall: WallTime(1_000_000 + step as u64), ..Now::default() }
}

/// Later than every step, so that what has expired is gone from both sides of a comparison.
const LATER: ServerTime = ServerTime::from_ms(2_000_000);

/// Publications, with and without keys, a group that reads and settles, an end and a new beginning.
fn script() -> Vec<StreamOp> {
    let handle = |name: &str| {
        Handle::new(StreamName::new(name).unwrap(), Wanted::default(), Layout::Tagged).expect("a name")
    };
    let (group, consumer) = (GroupName::new("g").unwrap(), ConsumerName::new("c").unwrap());
    let contract = GroupContract { filter: Filter::All, start: Start::Oldest, no_ack: false, grace_ms: 1000 };
    let mut ops = Vec::new();
    for round in 0..7_u64 {
        let event = |text: &str| Event::new("e", format!("{text} {round} {}", "x".repeat(90))).unwrap();
        let key = OnceKey::new(format!("k{round}")).unwrap();
        let first = EventId { ms: 1_000_000 + 8 * round, seq: 0 };
        let verbs = [
            Verb::Add { event: event("added"), condition: Condition::Always },
            Verb::AddOnce { key: key.clone(), event: event("once") },
            Verb::AddOnce { key, event: event("once") },
            Verb::GroupOpen { group: group.clone(), contract: contract.clone(), settled: None },
            Verb::GroupRead { group: group.clone(), consumer: consumer.clone(), events_max: 9 },
            Verb::GroupAck { group: group.clone(), ids: Ids::new(vec![first]).unwrap() },
            Verb::Read { after: EventId::ZERO, events_max: 3 },
            if round == 4 { Verb::Destroy } else { Verb::Remove { ids: Ids::new(vec![first]).unwrap() } },
        ];
        for (at, verb) in verbs.into_iter().enumerate() {
            let nonce = Nonce([u8::try_from(8 * round).unwrap() + u8::try_from(at).unwrap(); 16]);
            ops.push(handle(if at == 1 { "other" } else { "orders" }).op(verb, nonce));
        }
    }
    ops
}

/// The states after each operation, the empty one first.
fn states(ops: &[StreamOp]) -> Vec<State> {
    let mut root = Root::in_memory(small());
    let mut states = vec![held(&root, LATER)];
    for (step, op) in ops.iter().enumerate() {
        root.handle_ask(now(step), op.clone()).expect("there is room");
        states.push(held(&root, LATER));
    }
    states
}

/// How far a run came before it stopped.
struct Run {
    folder: Folder,
    /// So many operations were answered.
    answered: usize,
    /// So many were asked.
    asked: usize,
    /// The fuse lasted to the end of the script.
    finished: bool,
}

/// Runs the script until the fuse burns down; `group` operations are asked before the disk is waited for.
fn run(ops: &[StreamOp], group: usize, mut fuse: u64) -> Run {
    let mut run = Run { folder: Folder::new(Fs::default()), answered: 0, asked: 0, finished: false };
    let mut step = || {
        if fuse == 0 {
            return Err(Stopped);
        }
        fuse -= 1;
        Ok(())
    };
    let Ok(opened) = run.folder.open(small(), &mut step) else { return run };
    let (mut root, _) = opened.expect("an empty folder");
    for (at, ops) in ops.chunks(group).enumerate() {
        for (place, op) in ops.iter().enumerate() {
            root.handle_ask(now(at * group + place), op.clone()).expect("there is room");
            run.asked += 1;
        }
        let settled = run.folder.settle(&mut root, now(run.asked), &mut step);
        let stopped = settled.is_err();
        let said = settled.unwrap_or_else(|_| run.folder.said());
        run.answered += answered(&said);
        if stopped {
            return run;
        }
        assert_eq!(run.answered, run.asked);
    }
    run.finished = true;
    run
}

fn answered(events: &[EmbeddedEvent]) -> usize {
    let sure = |event: &&EmbeddedEvent| {
        matches!(event, EmbeddedEvent::Answered { outcome: Outcome::Answered { .. }, .. })
    };
    events.iter().filter(sure).count()
}

/// Opens what a crash left: it is a state that is allowed, and it goes on from there, also over one more
/// power cut.
fn recovered(fs: Fs, allowed: &[State], seed: u64) -> Result<(), String> {
    let mut folder = Folder::new(fs);
    let open = |folder: &mut Folder| {
        let opened = folder.open(small(), &mut || Ok(())).expect("nothing stops it");
        opened.map(|(root, _)| root).map_err(|error| format!("it does not open: {error}"))
    };
    let root = open(&mut folder)?;
    let found = held(&root, LATER);
    if !allowed.contains(&found) {
        return Err(format!("expected one of {} states, found {found:?}", allowed.len()));
    }
    folder.fs.power_cut(&mut Rng::new(seed), Tearing::Anywhere, &mut Counts::default());
    let mut root = open(&mut folder)?;
    if held(&root, LATER) != found {
        return Err("another power cut changed it".into());
    }
    let op = &script()[0];
    root.handle_ask(now(900), op.clone()).expect("there is room");
    let events = folder.settle(&mut root, now(901), &mut || Ok(())).expect("nothing stops it");
    let after = held(&root, LATER);
    folder.fs.power_cut(&mut Rng::new(seed), Tearing::Anywhere, &mut Counts::default());
    let again = held(&open(&mut folder)?, LATER);
    if answered(&events) != 1 || again != after {
        return Err("what was answered after the recovery is gone".into());
    }
    Ok(())
}

fn enumerate(group: usize) {
    let ops = script();
    let states = states(&ops);
    let samples = if std::env::var_os("STRANDLINE_SOAK").is_some() { 10 * SAMPLES } else { SAMPLES };
    let (mut boundaries, mut looked) = (0, 0);
    for fuse in 0.. {
        let run = run(&ops, group, fuse);
        if run.finished {
            break;
        }
        boundaries += 1;
        let allowed = &states[run.answered..=run.asked];
        let mut look = |fs: Fs| {
            looked += 1;
            let told = recovered(fs, allowed, looked);
            told.unwrap_or_else(|what| panic!("groups of {group}, before effect {fuse}: {what}"));
        };
        // The process ends, the machine does not.
        look(run.folder.fs.clone());
        let cut = |choose: &mut dyn strandline_sim::rng::Choose, tearing| {
            let mut fs = run.folder.fs.clone();
            fs.power_cut(choose, tearing, &mut Counts::default());
            fs
        };
        if run.folder.fs.undecided() <= UNDECIDED_MAX {
            let mut all = Odometer::default();
            loop {
                look(cut(&mut all, Tearing::Never));
                if !all.advance() {
                    break;
                }
            }
        }
        let mut rng = Rng::new(fuse);
        for _ in 0..samples {
            look(cut(&mut rng, Tearing::Anywhere));
        }
    }
    println!("groups of {group}: {boundaries} effects, {looked} states of the disk");
    assert!(boundaries > 100, "{boundaries} effects");
}

#[test]
fn a_power_cut_before_any_effect_leaves_the_state_before_or_after() {
    enumerate(1);
}

#[test]
fn a_power_cut_during_group_commits_leaves_a_prefix_that_holds_what_was_answered() {
    enumerate(5);
}

#[test]
fn a_sync_that_fails_leaves_what_waited_uncertain_and_a_recovery_tells() {
    let ops = script();
    let states = states(&ops);
    for seed in 0..16 {
        let mut folder = Folder::new(Fs::default());
        let opened = folder.open(small(), &mut || Ok(())).expect("nothing stops it");
        let (mut root, _) = opened.expect("an empty folder");
        let (mut sure, mut asked, mut uncertain) = (0, 0, 0);
        for (step, op) in ops.iter().enumerate() {
            if step == 9 + usize::try_from(seed).unwrap() {
                folder.armed.once.insert(Fault::FailedSync);
            }
            if root.handle_ask(now(step), op.clone()).is_err() {
                break;
            }
            asked += 1;
            let events = folder.settle(&mut root, now(step), &mut || Ok(())).expect("nothing stops it");
            sure += answered(&events);
            uncertain += events
                .iter()
                .filter(|e| matches!(e, EmbeddedEvent::Answered { outcome: Outcome::Uncertain(_), .. }))
                .count();
        }
        assert!(asked < ops.len(), "seed {seed}: it goes on after a failed sync");
        assert_eq!(sure + uncertain, asked, "seed {seed}");
        folder.armed.once.clear();
        let mut fs = folder.fs.clone();
        fs.evict(&mut Rng::new(seed));
        recovered(fs, &states[sure..=asked], seed).unwrap_or_else(|what| panic!("seed {seed}: {what}"));
    }
}

#[test]
fn damage_of_what_was_acknowledged_is_refused() {
    let run = run(&script(), 1, u64::MAX);
    assert!(run.finished, "nothing stops it");
    let mut refused = 0;
    let mut seed = 0;
    for (name, page) in run.folder.fs.clean_pages() {
        seed += 1;
        let byte: [u8; 1] = Seed::new([1; 32]).bytes("byte", seed);
        let at = page * strandline_sim::fs::PAGE;
        let mut fs = run.folder.fs.clone();
        let was = fs.read(name, at, 1).unwrap_or_default();
        if was.is_empty() || was[0] == byte[0] {
            continue;
        }
        fs.damage(name, at, &byte);
        let mut folder = Folder::new(fs);
        refused += u64::from(folder.open(small(), &mut || Ok(())).expect("nothing stops it").is_err());
    }
    assert!(refused > 2, "{refused} of {seed} damaged pages were noticed");
}
