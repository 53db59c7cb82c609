//! The server with its faults, the network, and what happens when.

use super::judge::Judge;
use super::rng::Rng;
use super::worker::{Deed, Worker, group, settings, stream};
use std::collections::{BTreeMap, VecDeque};
use strandline_core::machine::Machine as _;
use strandline_core::stream::client::{
    ClientCompletion, ClientEvent, Command, Execution, Give, Item, LogPosition, Waited,
};
use strandline_core::stream::error::{ServerFault, StreamError};
use strandline_core::stream::keyspace::loss::Befall;
use strandline_core::stream::keyspace::space::{Data, Space};
use strandline_core::stream::op::{Condition, Nonce};
use strandline_core::stream::reply::{Told, Uncertain};
use strandline_core::stream::{
    Event, EventId, Handle, Ids, Keyspace, Layout, Outcome, ServerTime, StreamOp, Verb,
};
use strandline_core::time::{Instant, Now, WallTime};

/// How often each thing happened, by name.
pub type Counts = BTreeMap<&'static str, u64>;

/// How long faults are injected, and how long everything may then take to come right.
const FAULTS_MS: u64 = 4_000;
const GIVE_UP_MS: u64 = 60_000;
const WORKERS: usize = 3;
/// How long an asker waits for an answer.
const PATIENCE_MS: u64 = 40;
/// Lines of history that a failure prints.
const HISTORY: usize = 60;

/// Something that is going to happen.
enum Happening {
    /// An operation reaches the server. `answers` within the asker's patience, or not.
    Arrives {
        worker: usize,
        life: u64,
        ticket: Option<Answering>,
        op: StreamOp,
    },
    /// An answer, or the end of patience, reaches the asker.
    Answers {
        worker: usize,
        life: u64,
        completion: ClientCompletion,
    },
    /// A wait ends.
    Waits {
        worker: usize,
        life: u64,
        ticket: Waiting,
        logs: Vec<LogPosition>,
        until_ms: u64,
    },
    Deadline {
        worker: usize,
        life: u64,
    },
    Acts {
        worker: usize,
        life: u64,
    },
    Publishes,
    Befalls,
    Starts {
        worker: usize,
    },
}

type Answering = strandline_core::ticket::Ticket<strandline_core::stream::client::op::Execute>;
type Waiting = strandline_core::ticket::Ticket<strandline_core::stream::client::op::Wait>;

pub(super) struct World {
    seed: u64,
    rng: Rng,
    now_ms: u64,
    /// The server's clock against the true one, in milliseconds.
    clock_ms: u64,
    server: Keyspace,
    replica: Keyspace,
    /// The last event that the replica has.
    replicated: u64,
    /// The server refuses everything until then.
    refuses_until_ms: u64,
    publisher: Handle,
    published: u64,
    workers: Vec<Option<Worker>>,
    lives: u64,
    order: u64,
    queue: BTreeMap<(u64, u64), Happening>,
    judge: Judge,
    counts: Counts,
    history: VecDeque<String>,
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let wanted = settings().wanted().expect("settings");
        Self {
            seed,
            rng: Rng::new(seed),
            now_ms: 0,
            clock_ms: 1_000_000,
            server: Keyspace::new(Layout::Tagged),
            replica: Keyspace::new(Layout::Tagged),
            replicated: 0,
            refuses_until_ms: 0,
            publisher: Handle::new(stream(), wanted, Layout::Tagged).expect("a name"),
            published: 0,
            workers: (0..WORKERS).map(|_| None).collect(),
            lives: 0,
            order: 0,
            queue: BTreeMap::new(),
            judge: Judge::default(),
            counts: Counts::new(),
            history: VecDeque::new(),
        }
    }

    pub(super) fn run(mut self) -> Result<Counts, String> {
        for worker in 0..WORKERS {
            self.at(worker as u64 * 7, Happening::Starts { worker });
        }
        self.at(3, Happening::Publishes);
        self.at(50, Happening::Befalls);
        let mut looked_ms = FAULTS_MS;
        while let Some(((at_ms, _), happening)) = self.queue.pop_first() {
            self.now_ms = at_ms;
            if let Err(broken) = self.happen(happening) {
                return Err(self.failure(&broken));
            }
            if self.now_ms >= looked_ms + 500 {
                looked_ms = self.now_ms;
                let data = self.data();
                match self.judge.owed(data.as_ref()) {
                    None => return Ok(self.counts),
                    Some(owed) if self.now_ms > GIVE_UP_MS => return Err(self.failure(&owed)),
                    Some(_) => {}
                }
            }
        }
        Err(self.failure("nothing happens any more"))
    }

    fn failure(&self, broken: &str) -> String {
        let history: Vec<&str> = self.history.iter().map(String::as_str).collect();
        let group = self.data().and_then(|data| Some(format!("{:?}", data.log?.groups)));
        format!("{broken} (at {} ms)\n  {}\n  {group:?}", self.now_ms, history.join("\n  "))
    }

    fn tell(&mut self, line: String) {
        // What follows is everybody asking in vain.
        if self.now_ms > FAULTS_MS + 1000 {
            return;
        }
        if self.history.len() >= HISTORY {
            self.history.pop_front();
        }
        self.history.push_back(format!("{} ms: {line}", self.now_ms));
    }

    fn count(&mut self, what: &'static str) {
        *self.counts.entry(what).or_default() += 1;
    }

    fn at(&mut self, after_ms: u64, happening: Happening) {
        self.order += 1;
        self.queue.insert((self.now_ms + after_ms, self.order), happening);
    }

    const fn faults(&self) -> bool {
        self.now_ms < FAULTS_MS
    }

    const fn now(&self) -> Now {
        Now { mono: Instant(self.now_ms * 1_000_000), wall: WallTime(0) }
    }

    const fn clock(&self) -> ServerTime {
        ServerTime::from_ms(self.clock_ms + self.now_ms)
    }

    fn space(&self) -> Option<Space> {
        self.server.space(&stream(), self.clock())
    }

    fn data(&self) -> Option<Data> {
        let space = self.space()?;
        let generation = space.life.as_ref()?.generation;
        space.data.get(&generation).cloned()
    }

    fn happen(&mut self, happening: Happening) -> Result<(), String> {
        match happening {
            Happening::Arrives { worker, life, ticket, op } => self.arrives(worker, life, ticket, &op),
            Happening::Answers { worker, life, completion } => {
                let now = self.now();
                if let Some(worker) = self.living(worker, life) {
                    worker.client.handle_completion(now, completion);
                }
                self.pump(worker)
            }
            Happening::Waits { worker, life, ticket, logs, until_ms } => {
                self.waits(worker, life, ticket, logs, until_ms)
            }
            Happening::Deadline { worker, life } => {
                let now = self.now();
                if let Some(worker) = self.living(worker, life) {
                    worker.client.handle_timeout(now);
                }
                self.pump(worker)
            }
            Happening::Acts { worker, life } => self.acts(worker, life),
            Happening::Publishes => self.publishes(),
            Happening::Befalls => {
                self.befalls();
                Ok(())
            }
            Happening::Starts { worker } => self.starts(worker),
        }
    }

    fn living(&mut self, worker: usize, life: u64) -> Option<&mut Worker> {
        self.workers[worker].as_mut().filter(|worker| worker.life == life)
    }

    fn starts(&mut self, worker: usize) -> Result<(), String> {
        if self.workers[worker].is_none() {
            self.lives += 1;
            self.workers[worker] = Some(Worker::new(self.lives, self.seed, self.now()));
            let life = self.lives;
            self.at(1, Happening::Acts { worker, life });
        }
        self.pump(worker)
    }

    /// Carries what a worker's machine says.
    fn pump(&mut self, at: usize) -> Result<(), String> {
        loop {
            let Some(worker) = self.workers[at].as_mut() else { return Ok(()) };
            let life = worker.life;
            if let Some(command) = worker.client.poll_command() {
                self.send(at, life, command);
            } else if let Some(event) = worker.client.poll_event() {
                self.hears(at, event);
            } else {
                if let Some(deadline) = worker.client.pending().deadline {
                    let at_ms = deadline.0.div_ceil(1_000_000).saturating_sub(self.now_ms);
                    self.at(at_ms, Happening::Deadline { worker: at, life });
                }
                return Ok(());
            }
        }
    }

    fn send(&mut self, worker: usize, life: u64, command: Command) {
        let (ticket, op) = match command {
            Command::Wait { ticket, logs, wait_ms, .. } => {
                let until_ms = self.now_ms + wait_ms;
                self.at(1, Happening::Waits { worker, life, ticket, logs, until_ms });
                return;
            }
            Command::Execute { ticket, op, .. } => (ticket, op),
        };
        let latency_ms = self.rng.below(4);
        let uncertain = Execution::Ended(Outcome::Uncertain(Uncertain::new(op.clone())));
        let fate = if self.faults() { self.rng.below(30) } else { 29 };
        match fate {
            0 => {
                self.count("question lost");
                let completion = ticket.complete(Ok(uncertain));
                self.at(PATIENCE_MS, Happening::Answers { worker, life, completion });
            }
            1 | 2 => {
                self.count("answer lost");
                let completion = ticket.complete(Ok(uncertain));
                self.at(PATIENCE_MS, Happening::Answers { worker, life, completion });
                self.at(latency_ms, Happening::Arrives { worker, life, ticket: None, op });
            }
            3 => {
                self.count("effect after the asker gave up");
                let completion = ticket.complete(Ok(uncertain));
                self.at(PATIENCE_MS, Happening::Answers { worker, life, completion });
                let late_ms = PATIENCE_MS + self.rng.below(300);
                self.at(late_ms, Happening::Arrives { worker, life, ticket: None, op });
            }
            _ => self.at(latency_ms, Happening::Arrives { worker, life, ticket: Some(ticket), op }),
        }
    }

    fn arrives(
        &mut self,
        worker: usize,
        life: u64,
        ticket: Option<Answering>,
        op: &StreamOp,
    ) -> Result<(), String> {
        let outcome = if self.now_ms < self.refuses_until_ms {
            self.count("refused by the server");
            let fault = ServerFault::Refused { word: "LOADING".into(), message: String::new() };
            Outcome::Answered { at: None, result: Err(StreamError::Server(fault)) }
        } else {
            let at = self.clock();
            let before = self.pending_of(&op.verb);
            let known = self.data().is_some_and(|data| data.groups.contains_key(&group()));
            let result = self.server.apply(at, op);
            if !known && self.data().is_some_and(|data| data.groups.contains_key(&group())) {
                let kept = self.data().and_then(|data| data.log).map(|log| log.entries).unwrap_or_default();
                self.judge.group_made(|id| kept.contains_key(&id));
            }
            self.judged(&op.verb, &before, result.as_ref().ok().map(|reply| &reply.told))?;
            self.tell(
                format!("life {life}: {:?} -> {:?}", op.verb, result.as_ref().map(|r| &r.told))
                    .chars()
                    .take(700)
                    .collect(),
            );
            Outcome::Answered { at: Some(at), result }
        };
        if let Some(ticket) = ticket {
            let completion = ticket.complete(Ok(Execution::Ended(outcome)));
            let latency_ms = self.rng.below(4);
            self.at(latency_ms, Happening::Answers { worker, life, completion });
        }
        Ok(())
    }

    /// Which of the entries that an acknowledgement names are pending.
    fn pending_of(&self, verb: &Verb) -> Vec<EventId> {
        let Verb::GroupAck { ids, .. } = verb else { return Vec::new() };
        let Some(log) = self.data().and_then(|data| data.log) else { return Vec::new() };
        let Some(held) = log.groups.get(&group()) else { return Vec::new() };
        ids.as_slice().iter().filter(|id| held.pending.contains_key(id)).copied().collect()
    }

    fn judged(&mut self, verb: &Verb, acked: &[EventId], told: Option<&Told>) -> Result<(), String> {
        match (verb, told) {
            (Verb::GroupAck { .. }, Some(_)) => self.judge.settled(acked),
            (Verb::LeaseAcquire { owner, .. }, Some(Told::Leased { acquired: true, fence })) => {
                self.judge.leased(*fence, owner)
            }
            _ => Ok(()),
        }
    }

    fn waits(
        &mut self,
        worker: usize,
        life: u64,
        ticket: Waiting,
        logs: Vec<LogPosition>,
        until_ms: u64,
    ) -> Result<(), String> {
        if self.living(worker, life).is_none() {
            return Ok(());
        }
        let last = self.data().and_then(|data| data.log).map_or(EventId::ZERO, |log| log.last);
        let rings = logs.iter().any(|log| last > log.after);
        let waited = if self.faults() && self.rng.one_in(100) {
            self.count("wait broken");
            Waited::Broken
        } else if rings {
            Waited::Rung
        } else if self.now_ms >= until_ms {
            Waited::TimeOut
        } else {
            self.at(5, Happening::Waits { worker, life, ticket, logs, until_ms });
            return Ok(());
        };
        let completion = ticket.complete(Ok(waited));
        self.at(0, Happening::Answers { worker, life, completion });
        Ok(())
    }

    fn hears(&mut self, at: usize, event: ClientEvent) {
        let Some(worker) = self.workers[at].as_mut() else { return };
        match event {
            ClientEvent::Items { items, .. } => {
                for item in items {
                    match item {
                        Item::Event(delivery) => worker.hand.push(delivery),
                        Item::Gap(gap) => {
                            self.judge.told(&gap);
                            *self.counts.entry("hole told").or_default() += 1;
                        }
                        // This world's servers do not say where they stand.
                        Item::Failover(failover) => unreachable!("{failover:?}"),
                    }
                }
            }
            ClientEvent::Ended { .. } => {
                self.workers[at] = None;
                let pause_ms = 1 + self.rng.below(100);
                self.at(pause_ms, Happening::Starts { worker: at });
            }
            ClientEvent::Called { .. } | ClientEvent::Ready { .. } | ClientEvent::Failover { .. } => {}
            ClientEvent::Leased { .. } | ClientEvent::Trouble { .. } => {}
        }
    }

    /// The application of a worker does something with one event, or asks for more.
    fn acts(&mut self, at: usize, life: u64) -> Result<(), String> {
        let (faults, now, now_ms) = (self.faults(), self.now(), self.now_ms);
        let Some(worker) = self.workers[at].as_mut().filter(|worker| worker.life == life) else {
            return Ok(());
        };
        let pause_ms = 1 + self.rng.below(20);
        if faults && self.rng.one_in(150) {
            self.workers[at] = None;
            self.count("worker killed");
            let pause_ms = 1 + self.rng.below(600);
            self.at(pause_ms, Happening::Starts { worker: at });
            return Ok(());
        }
        if faults && self.rng.one_in(200) && !worker.closing {
            worker.closing = true;
            worker.client.handle_close(now, worker.party);
            self.count("worker closed");
            return self.pump(at);
        }
        if faults && self.rng.one_in(100) {
            worker.asleep_until_ms = now_ms + self.rng.below(1500);
            *self.counts.entry("worker stalled").or_default() += 1;
        }
        if worker.asleep_until_ms <= now_ms && !worker.closing {
            match worker.hand.pop() {
                None => worker.client.handle_want(now, worker.party),
                Some(delivery) => {
                    let number = number(&delivery.event);
                    let deed = Worker::deed(&mut self.rng, !faults);
                    let give = match deed {
                        Deed::ProcessAndAck => Some(Give::Ack),
                        Deed::ProcessAndForget | Deed::Forget => None,
                        Deed::GiveBack { delay_ms } => Some(Give::Nack { delay_ms }),
                        Deed::Bury => Some(Give::Bury),
                    };
                    match deed {
                        Deed::ProcessAndAck | Deed::ProcessAndForget => self.judge.processed(number),
                        Deed::Bury => self.judge.gave_up(number),
                        Deed::Forget | Deed::GiveBack { .. } => {}
                    }
                    if let Some(give) = give {
                        let ids = Ids::new([delivery.id]).expect("one");
                        let _ = worker.client.handle_give(now, worker.party, &delivery.stream, give, ids);
                    }
                }
            }
        }
        self.at(pause_ms, Happening::Acts { worker: at, life });
        self.pump(at)
    }

    fn publishes(&mut self) -> Result<(), String> {
        if !self.faults() {
            return Ok(());
        }
        self.published += 1;
        let number = self.published;
        let event = Event::new("e", number.to_be_bytes()).expect("small");
        let mut nonce = [0; 16];
        nonce[..8].copy_from_slice(&number.to_be_bytes());
        let at = self.clock();
        let op = self.publisher.op(Verb::Add { event, condition: Condition::Always }, Nonce(nonce));
        let result = self.server.apply(at, &op);
        self.publisher.answered(&op.verb, &result);
        match result {
            Ok(reply) => {
                if let Told::Added { id: Some(id) } = reply.told {
                    self.judge.published(number, id);
                    self.tell(format!("published {number} at {id}"));
                }
            }
            // The generation was lost: another handle makes the next.
            Err(_) => {
                let wanted = settings().wanted().expect("settings");
                self.publisher = Handle::new(stream(), wanted, Layout::Tagged).expect("a name");
            }
        }
        if self.rng.one_in(3) {
            self.replica = self.server.clone();
            self.replicated = self.published;
        }
        let most_ms = if self.rng.one_in(3) { 10 } else { 120 };
        let pause_ms = 1 + self.rng.below(most_ms);
        self.at(pause_ms, Happening::Publishes);
        Ok(())
    }

    fn befalls(&mut self) {
        if !self.faults() {
            return;
        }
        let at = self.clock();
        let generation = self.space().and_then(|space| space.life).map_or(1, |life| life.generation);
        let what = self.rng.below(14);
        self.tell(format!("fault {what}"));
        match what {
            0 => {
                self.count("failover");
                self.server = self.replica.clone();
                let data = self.data();
                let held = data.as_ref().and_then(|data| data.groups.get(&group()));
                let fence = held.and_then(|held| held.lease.as_ref()).map_or(0, |lease| lease.fence);
                self.judge.failed_over(self.replicated, fence);
            }
            1 if self.rng.one_in(3) => {
                self.count("everything lost");
                self.server.lose_all();
                self.replica.lose_all();
                self.judge.lost_all();
            }
            2 => {
                self.count("log evicted");
                self.server.befall(at, &stream(), generation, Befall::LoseLog);
            }
            3 => {
                self.count("group lost");
                self.server.befall(at, &stream(), generation, Befall::LoseGroup(group()));
            }
            4 | 5 => {
                self.count("clock set forward");
                self.clock_ms += self.rng.below(3_000);
            }
            6 | 7 => {
                self.count("clock set back");
                self.clock_ms -= self.rng.below(3_000);
            }
            8 => {
                self.count("server refuses");
                self.refuses_until_ms = self.now_ms + self.rng.below(200);
            }
            _ => {}
        }
        let pause_ms = 20 + self.rng.below(300);
        self.at(pause_ms, Happening::Befalls);
    }
}

fn number(event: &Event) -> u64 {
    event.payload().try_into().map_or(0, u64::from_be_bytes)
}
