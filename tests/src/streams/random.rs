//! Random operations against the model and a server whose clock a test moves: equal replies after each step,
//! equal contents after each sequence. A failing sequence is cut down to the steps it needs.

use super::backend::Backend;
use super::keys::{Part, View};
use super::model::{Model, show};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::num::NonZeroU64;
use strandline_core::seed::Seed;
use strandline_core::stream::contract::GroupContract;
use strandline_core::stream::error::{CallerError, ServerFault, StreamError};
use strandline_core::stream::event::Event;
use strandline_core::stream::filter::Filter;
use strandline_core::stream::layout::PulseKeys;
use strandline_core::stream::op::{Condition, Lease, Nonce};
use strandline_core::stream::reply::Told;
use strandline_core::stream::retention::{Contract, Expiry};
use strandline_core::stream::{
    ConsumerName, EventId, GroupName, Handle, Ids, Layout, OnceKey, Outcome, ServerTime, Start, StreamName,
    StreamReply, Verb, Wanted,
};

/// Most steps of one sequence.
pub const STEPS_MAX: usize = 50;

/// The streams of a sequence; in a cluster of three masters they lie on two of them.
pub const STREAMS: [&str; 2] = ["orders", "a:b"];
const GROUPS: [&str; 2] = ["mail", "audit:x"];
const CONSUMERS: [&str; 3] = ["C1", "C2", "c 3"];

/// Numbers from a seed, in order.
struct Dice {
    seed: Seed,
    next: u64,
}

impl Dice {
    fn new(seed: u64, label: u64) -> Self {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_be_bytes());
        bytes[8..16].copy_from_slice(&label.to_be_bytes());
        Self { seed: Seed::new(bytes), next: 0 }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next += 1;
        self.seed.number("dice", self.next) % bound
    }

    fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[usize::try_from(self.below(from.len() as u64)).expect("small")]
    }

    /// Mostly the first, so that steps meet each other.
    fn name<'a>(&mut self, from: &[&'a str]) -> &'a str {
        if self.one_in(3) { self.pick(from) } else { from[0] }
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }
}

/// What both servers and all handles are at, while a sequence runs.
struct Run<'a> {
    real: &'a mut dyn Backend,
    model: Model,
    handles: Vec<Handle>,
    seen: Vec<EventId>,
    leases: Vec<Lease>,
    reached: Reached,
    told: String,
}

/// The steps of a sequence that failed, and how.
#[derive(Debug)]
pub struct Failure {
    /// The seed of the sequence.
    pub seed: u64,
    /// The steps it needs.
    pub steps: Vec<usize>,
    /// What every step did, and what differed.
    pub told: String,
}

/// Runs one sequence; a failing one is cut down.
///
/// # Errors
/// The cut-down sequence.
pub fn sequence(real: &mut dyn Backend, seed: u64) -> Result<Reached, Failure> {
    let all: Vec<usize> = (0..STEPS_MAX).collect();
    let mut told = match replay(real, seed, &all) {
        Ok(reached) => return Ok(reached),
        Err(told) => told,
    };
    let mut steps = all;
    let mut at = steps.len();
    while at > 0 {
        at -= 1;
        let mut fewer = steps.clone();
        fewer.remove(at);
        if let Err(still) = replay(real, seed, &fewer) {
            (steps, told) = (fewer, still);
        }
    }
    Err(Failure { seed, steps, told })
}

/// Runs the chosen steps of a sequence.
///
/// # Errors
/// What every step did, and what differed.
pub fn replay(real: &mut dyn Backend, seed: u64, steps: &[usize]) -> Result<Reached, String> {
    real.clear();
    let model = Model::at(real.layout());
    let mut run = Run {
        real,
        model,
        handles: Vec::new(),
        seen: Vec::new(),
        leases: Vec::new(),
        reached: Reached::new(),
        told: String::new(),
    };
    for step in steps {
        let mut dice = Dice::new(seed, *step as u64);
        if let Err(differs) = run.step(*step, &mut dice) {
            return Err(format!("{}{differs}\n", run.told));
        }
    }
    run.contents().map_err(|differs| format!("{}{differs}\n", run.told))?;
    Ok(run.reached)
}

/// Kinds of replies and refusals that came, so that a test can tell what it never saw.
pub type Reached = BTreeSet<&'static str>;

/// Every kind that a long enough run must see.
pub const KINDS: [&str; 25] = [
    "done",
    "attended",
    "added",
    "not added",
    "published once",
    "found again",
    "removed",
    "entries",
    "taken",
    "replayed after an anchor",
    "destroyed",
    "destroyed before",
    "group opened",
    "group made again",
    "settled",
    "detached",
    "kept with what is pending",
    "leased",
    "not leased",
    "taken over",
    "vanished",
    "swept",
    "no group",
    "lease lost",
    "conflict",
];

/// Kinds that only the Tagged layout has.
pub const TAGGED_KINDS: [&str; 4] = ["missed", "given back", "buried", "dead letters"];

fn kind(result: &Result<StreamReply, StreamError>) -> Option<&'static str> {
    let reply = match result {
        Ok(reply) => reply,
        Err(StreamError::Server(ServerFault::NoGroup)) => return Some("no group"),
        Err(StreamError::Caller(CallerError::LeaseLost { .. })) => return Some("lease lost"),
        Err(StreamError::Caller(CallerError::IdempotencyConflict)) => return Some("conflict"),
        Err(_) => return None,
    };
    Some(match &reply.told {
        Told::Done => "done",
        Told::Attended { .. } => "attended",
        Told::Added { id: Some(_) } => "added",
        Told::Added { id: None } => "not added",
        Told::AddedOnce { published: true, .. } => "published once",
        Told::AddedOnce { published: false, .. } => "found again",
        Told::Removed { count } if *count > 0 => "removed",
        Told::Entries(entries) | Told::Read { entries, .. } if !entries.is_empty() => "entries",
        Told::Taken { missed, .. } if !missed.is_empty() => "missed",
        Told::Taken { entries, .. } if !entries.is_empty() => "taken",
        Told::Nacked { count } if *count > 0 => "given back",
        Told::Buried { count, .. } if *count > 0 => "buried",
        Told::Dead(letters) if !letters.is_empty() => "dead letters",
        Told::Groups(groups) if groups.groups.iter().any(|group| group.pending > 0) => {
            "listed with what is pending"
        }
        Told::Groups(groups) if !groups.groups.is_empty() => "listed",
        Told::Replayed { anchor: Some(_), .. } => "replayed after an anchor",
        Told::Destroyed { now: true } => "destroyed",
        Told::Destroyed { now: false } => "destroyed before",
        Told::GroupOpened { log_was_absent: true, cursor } if *cursor > EventId::ZERO => "group made again",
        Told::GroupOpened { .. } => "group opened",
        Told::Acked { count, .. } if *count > 0 => "settled",
        Told::Detached { deleted: true } => "detached",
        Told::Detached { deleted: false } => "kept with what is pending",
        Told::Leased { acquired: true, .. } => "leased",
        Told::Leased { acquired: false, .. } => "not leased",
        Told::Claimed { vanished, .. } if !vanished.is_empty() => "vanished",
        Told::Claimed { entries, .. } if !entries.is_empty() => "taken over",
        Told::Swept { removed, .. } if !removed.is_empty() => "swept",
        Told::Removed { .. } | Told::Entries(_) | Told::Replayed { .. } | Told::Acked { .. } => return None,
        Told::Claimed { .. } | Told::Swept { .. } | Told::Read { .. } | Told::Taken { .. } => return None,
        Told::Nacked { .. } | Told::Buried { .. } | Told::Dead(_) | Told::Groups(_) => return None,
    })
}

impl Run<'_> {
    fn tell(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.told, "{line}").expect("a string grows");
    }

    fn step(&mut self, number: usize, dice: &mut Dice) -> Result<(), String> {
        match dice.below(20) {
            0 | 1 => {
                let us = match dice.below(4) {
                    0 => dice.below(900),
                    1 => 1000 * dice.below(20),
                    _ => 1000 * dice.below(700),
                };
                self.tell(format_args!("{number}: the clock moves by {us} us"));
                self.real.advance_us(us);
                Ok(())
            }
            2 => {
                self.make_handle(dice);
                Ok(())
            }
            3 if dice.one_in(2) => {
                self.befall(number, dice);
                Ok(())
            }
            _ => self.ask(number, dice),
        }
    }

    fn make_handle(&mut self, dice: &mut Dice) {
        let now_ms = self.real.now().ms();
        let contract = match dice.below(9) {
            0 | 1 | 8 => None,
            2 => Some((3, Expiry::Never)),
            3 => Some((1000, Expiry::Ttl { ms: NonZeroU64::new(400).expect("not zero"), sliding: false })),
            4 => Some((4, Expiry::Ttl { ms: NonZeroU64::new(500).expect("not zero"), sliding: true })),
            5 => Some((0, Expiry::Never)),
            6 => Some((5, Expiry::Deadline { at_ms: now_ms.saturating_add(dice.below(2000)) })),
            // The same for handles made at about the same time.
            _ => Some((1000, Expiry::Deadline { at_ms: (now_ms / 100_000 + 2) * 100_000 })),
        };
        let wanted = contract.map_or_else(Wanted::default, |(max, expiry)| {
            let mut contract = Contract::new(NonZeroU64::new(max), expiry);
            if self.real.layout() == Layout::Tagged && dice.one_in(3) {
                contract.once_window_ms = 600;
            }
            Wanted { contract, explicit: true }
        });
        let stream = StreamName::new(dice.name(&STREAMS)).expect("a name");
        let handle = Handle::new(stream, wanted, self.real.layout()).expect("a name of both layouts");
        self.handles.push(handle);
    }

    /// Something happens without an operation, to both.
    fn befall(&mut self, number: usize, dice: &mut Dice) {
        let stream = StreamName::new(dice.name(&STREAMS)).expect("a name");
        let generation = 1 + dice.below(2);
        let keys = PulseKeys { stream: &stream, generation };
        let group = GroupName::new(dice.name(&GROUPS)).expect("a name");
        let who = ["x1", "x2"][usize::try_from(dice.below(2)).expect("small")];
        if dice.one_in(6) {
            self.tell(format_args!("{number}: everything is lost"));
            self.real.clear();
            self.model.keyspace().lose_all();
            return;
        }
        let words: Vec<String> = match dice.below(7) {
            0 => vec!["DEL".into(), keys.log()],
            1 => vec!["DEL".into(), keys.life()],
            2 => vec!["PEXPIRE".into(), keys.log(), (1 + dice.below(600)).to_string()],
            3 => vec!["XGROUP".into(), "DESTROY".into(), keys.log(), group.to_string()],
            4 => vec!["XGROUP".into(), "CREATECONSUMER".into(), keys.log(), group.to_string(), who.into()],
            5 => {
                let (log, group) = (keys.log(), group.to_string());
                let words = ["XREADGROUP", "GROUP", &group, who, "STREAMS", &log, ">"];
                words.map(String::from).to_vec()
            }
            _ => vec!["HSET".into(), keys.group_lease(&group), "lease_until".into(), "0".into()],
        };
        // What names a log or group that is not there is an error of the server, and nothing to us.
        let at = self.real.now();
        let space = self.model.keyspace().space(&stream, at).unwrap_or_default();
        let data = space.data.get(&generation);
        let log = data.and_then(|data| data.log.as_ref());
        let there = match words[0].as_str() {
            // There only our scripts read: they note how far, so that settling needs no walk over groups.
            "XREADGROUP" if self.real.layout() == Layout::Tagged => false,
            "XGROUP" | "XREADGROUP" => log.is_some_and(|log| log.groups.contains_key(&group)),
            "HSET" => data.and_then(|d| d.groups.get(&group)).is_some_and(|group| group.lease.is_some()),
            // What a lost generation left would still end at its deadline; the model keeps no such instants.
            "DEL" if words[1].ends_with(":lifecycle") => {
                space.life.as_ref().is_none_or(|life| life.contract.deadline_ms().is_none())
            }
            _ => true,
        };
        if there {
            // Servers differ in whether a read that brings nothing makes its consumer: it is made before.
            let create = ["XGROUP", "CREATECONSUMER", &keys.log(), group.as_str(), who].map(String::from);
            let made = (words[0] == "XREADGROUP").then(|| create.to_vec());
            for words in made.into_iter().chain([words]) {
                self.tell(format_args!("{number}: {words:?}"));
                let _ = self.real.raw(&words);
                self.model.raw_at(at, &words);
            }
        }
    }

    fn id(&mut self, dice: &mut Dice) -> EventId {
        if self.seen.is_empty() || dice.one_in(8) {
            return EventId { ms: dice.below(3), seq: dice.below(2) };
        }
        let newest = self.seen.len() as u64;
        let back = dice.below(newest.min(6));
        self.seen[usize::try_from(newest - 1 - back).expect("small")]
    }

    fn ids(&mut self, dice: &mut Dice) -> Ids {
        let ids: Vec<EventId> = (0..dice.below(4)).map(|_| self.id(dice)).collect();
        Ids::new(ids).expect("few")
    }

    fn verb(&mut self, dice: &mut Dice) -> Verb {
        let group = GroupName::new(dice.name(&GROUPS)).expect("a name");
        let consumer = ConsumerName::new(dice.name(&CONSUMERS).replace(' ', "-")).expect("a name");
        let event = Event::new(
            *dice.pick(&[&"a", &"b:1"]),
            vec![b'x'; usize::try_from(dice.below(4)).expect("small")],
        );
        let mut event = event.expect("small");
        if dice.one_in(2) {
            event = event.with_topic("t").expect("small");
        }
        let lease = self.leases.last().filter(|_| !dice.one_in(4)).cloned().unwrap_or(Lease {
            owner: "o1".into(),
            fence: dice.below(3),
            lease_ms: 300,
        });
        let sides = match self.real.layout() {
            Layout::Pulse => 32,
            Layout::Tagged => 42,
        };
        match dice.below(sides) {
            0 | 1 => Verb::Open,
            28 | 29 | 31 | 38 => {
                let idle_ms = dice.below(3);
                Verb::GroupClaim { group, lease, consumer, idle_ms, from: EventId::ZERO, events_max: 2 }
            }
            30 => Verb::GroupRead { group, consumer, events_max: 2 },
            32 | 33 => Verb::GroupNack {
                group,
                consumer,
                ids: self.ids(dice),
                delay_ms: if dice.one_in(3) { 0 } else { dice.below(600) },
            },
            34 | 39 => Verb::GroupBury { group, consumer, ids: self.ids(dice) },
            35 | 40 | 41 => Verb::DeadRead { after: EventId::ZERO, events_max: 3 },
            37 => Verb::GroupTold { group, through: if dice.one_in(2) { u64::MAX } else { 0 } },
            36 => Verb::DeadRemove { ids: self.ids(dice) },
            2 if dice.one_in(2) => Verb::Attend,
            2 => Verb::Groups {
                after: dice.one_in(3).then_some(group),
                groups_max: 1 + u32::try_from(dice.below(2)).expect("small"),
            },
            3..=6 => Verb::Add { event, condition: Condition::Always },
            7 => Verb::Add { event, condition: Condition::IfExists },
            8 => Verb::Add { event, condition: Condition::After(self.id(dice)) },
            9..=11 => {
                let key = OnceKey::new(*dice.pick(&[b"k1", b"k2", b"k3"])).expect("a key");
                Verb::AddOnce { key, event }
            }
            12 => Verb::Remove { ids: self.ids(dice) },
            13 => Verb::Snapshot,
            14 if dice.one_in(2) => Verb::Destroy,
            14 | 15 => Verb::Read {
                after: self.id(dice),
                events_max: 1 + u32::try_from(dice.below(4)).expect("small"),
            },
            16 => {
                let after = if dice.one_in(2) { EventId::ZERO } else { self.id(dice) };
                Verb::Replay { after, events_max: 3, bytes_max: 18 + dice.below(30) }
            }
            17 | 18 => {
                // The last two lie far ahead of every clock.
                let starts = [
                    Start::Newest,
                    Start::Oldest,
                    Start::After(EventId::ZERO),
                    Start::at_ms(1 << 50),
                    Start::After(EventId::MAX),
                ];
                let start =
                    starts[usize::try_from(if dice.one_in(4) { dice.below(5) } else { 1 }).expect("small")];
                let contract = GroupContract { filter: Filter::All, start, no_ack: false, grace_ms: 50 };
                let settled = dice.one_in(4).then(|| self.id(dice));
                Verb::GroupOpen { group, contract, settled }
            }
            19 | 20 => Verb::GroupRead {
                group,
                consumer,
                events_max: 1 + u32::try_from(dice.below(3)).expect("small"),
            },
            21 | 22 => Verb::GroupAck { group, ids: self.ids(dice) },
            23 if dice.one_in(2) => Verb::GroupKeepAlive { group, consumer },
            23 => Verb::GroupRegister { group, consumer },
            24 => {
                let release = self.real.layout() == Layout::Tagged && dice.one_in(2);
                Verb::GroupDetach { group, consumer, release }
            }
            25 => {
                let owner = (*dice.pick(&[&"o1", &"o 2"])).to_string();
                Verb::LeaseAcquire { group, owner, lease_ms: 100 + dice.below(3000) }
            }
            26 if dice.one_in(3) => Verb::LeaseRenew { group, lease },
            26 => Verb::GroupSweep { group, lease, grace_ms: dice.below(200) },
            _ => Verb::GroupClaim {
                group,
                lease,
                consumer,
                idle_ms: dice.below(100),
                from: if dice.one_in(3) { self.id(dice) } else { EventId::ZERO },
                events_max: 1 + u32::try_from(dice.below(3)).expect("small"),
            },
        }
    }

    fn ask(&mut self, number: usize, dice: &mut Dice) -> Result<(), String> {
        if self.handles.is_empty() {
            self.make_handle(dice);
        }
        let handle = usize::try_from(dice.below(self.handles.len() as u64)).expect("small");
        let verb = self.verb(dice);
        let mut nonce = [0; 16];
        nonce[..8].copy_from_slice(&(number as u64 + 1).to_be_bytes());
        let op = self.handles[handle].op(verb, Nonce(nonce));
        let Outcome::Answered { at, result } = self.real.apply(&op) else {
            return Err(format!("{number}: no answer to {op:?}"));
        };
        let at = at.unwrap_or(ServerTime::from_us(0));
        let Outcome::Answered { result: expected, .. } = self.model.apply_at(at, &op) else {
            return Err("the model answers".into());
        };
        self.tell(format_args!(
            "{number}: handle {handle} of {} asks {:?} at {} us: {expected:?}",
            op.stream,
            op.verb,
            at.us()
        ));
        if result != expected {
            return Err(format!("   model: {expected:?}\n  server: {result:?}"));
        }
        self.handles[handle].answered(&op.verb, &result);
        self.reached.extend(kind(&result));
        if let Ok(StreamReply { told, .. }) = &result {
            self.learn(&op.verb, told);
        }
        Ok(())
    }

    fn learn(&mut self, verb: &Verb, told: &Told) {
        if let Told::Added { id: Some(id) } | Told::AddedOnce { id, .. } = told {
            self.seen.push(*id);
        }
        if let (Told::Leased { acquired: true, fence }, Verb::LeaseAcquire { owner, lease_ms, .. }) =
            (told, verb)
        {
            self.leases.push(Lease { owner: owner.clone(), fence: *fence, lease_ms: *lease_ms });
        }
    }

    /// Every key that there can be, on both.
    fn contents(&mut self) -> Result<(), String> {
        let (at, layout) = (self.real.now(), self.real.layout());
        for stream in STREAMS {
            let name = StreamName::new(stream).expect("a name");
            let space = self.model.keyspace().space(&name, at).unwrap_or_default();
            for (key, part) in parts(&name) {
                let found = self.real.view(&key).unwrap_or_default();
                let expected: View = show(&space, &name, &part, layout).unwrap_or_default();
                if found != expected {
                    return Err(format!(
                        "{key} at {} us\n   model: {expected:?}\n  server: {found:?}",
                        at.us()
                    ));
                }
            }
        }
        Ok(())
    }
}

/// All keys of a stream's first three generations.
fn parts(stream: &StreamName) -> Vec<(String, Part)> {
    let mut all = vec![(PulseKeys { stream, generation: 1 }.life(), Part::Life)];
    for generation in 1..=3 {
        let keys = PulseKeys { stream, generation };
        all.extend([
            (keys.log(), Part::Log(generation)),
            (keys.recovery(), Part::Recovery(generation)),
            (keys.once(), Part::Once(generation)),
            (keys.registry(), Part::Registry(generation)),
            (keys.members(), Part::Members(generation)),
        ]);
        for name in GROUPS {
            let group = GroupName::new(name).expect("a name");
            all.extend([
                (keys.group_contract(&group), Part::Contract(generation, name.into())),
                (keys.group_lease(&group), Part::Lease(generation, name.into())),
                (keys.alive(&group), Part::Alive(generation, name.into())),
            ]);
        }
    }
    all
}
