//! One of many publishers of the storm in `tests/remote/storm.rs`: it is killed at any time, and its way to
//! the server is broken. What it does it tells, line by line, for the test to judge.
//!
//! `stream_worker PORT NUMBER LIFE FIRST`: the port to the server, which worker, which life of it, and the
//! first event.

use std::io::Write as _;
use strandline_core::seed::Seed;
use strandline_core::stream::contract::GroupContract;
use strandline_core::stream::error::CallerError;
use strandline_core::stream::filter::Filter;
use strandline_core::stream::op::{Lease, Nonce};
use strandline_core::stream::reply::Told;
use strandline_core::stream::retention::Settings;
use strandline_core::stream::unready::Again;
use strandline_core::stream::{
    ConsumerName, Event, GroupName, Handle, Ids, Layout, OnceKey, Outcome, ServerTime, Start, StreamError,
    StreamName, Verb,
};
use strandline_redis::{Address, Bounds, Names, Remote};

/// How long an owner of the lease has it.
const LEASE_MS: u64 = 300;

struct Worker {
    remote: Remote,
    name: String,
    seed: Seed,
    nonces: u64,
    events: Handle,
    churn: Handle,
    lease: Option<Lease>,
}

/// What came of asking once.
enum Came {
    Told(ServerTime, Told),
    /// No answer, or none that says more than "not now".
    Unsure,
    /// The generation is over.
    Over,
    LeaseLost,
}

fn tell(line: &str) {
    let mut out = std::io::stdout().lock();
    // Without anybody who listens the storm is over.
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

fn handle(name: &str) -> Handle {
    let wanted = Settings::new().unbounded().wanted().expect("settings");
    Handle::new(StreamName::new(name).expect("a name"), wanted, Layout::Tagged).expect("a handle")
}

fn group() -> GroupName {
    GroupName::new("mail").expect("a name")
}

impl Worker {
    fn nonce(&mut self) -> Nonce {
        self.nonces += 1;
        Nonce(self.seed.bytes("nonce", self.nonces))
    }

    async fn ask(&mut self, churn: bool, verb: Verb) -> Came {
        let nonce = self.nonce();
        let handle = if churn { &mut self.churn } else { &mut self.events };
        let op = handle.op(verb, nonce);
        let (at, result) = match self.remote.apply(&op).await {
            Outcome::Answered { at, result } => (at, result),
            Outcome::Uncertain(_) => {
                tell("unsure");
                return Came::Unsure;
            }
        };
        handle.answered(&op.verb, &result);
        match result {
            Ok(reply) => Came::Told(at.expect("a step has an instant"), reply.told),
            Err(StreamError::Caller(CallerError::StreamDestroyed { .. })) if churn => Came::Over,
            // What an unbound handle may find between two generations.
            Err(StreamError::Caller(CallerError::StreamNotFound)) if churn => Came::Over,
            Err(StreamError::Caller(CallerError::LeaseLost { .. })) => Came::LeaseLost,
            Err(StreamError::Server(fault)) if fault.again() != Again::Never => {
                tell("unsure");
                Came::Unsure
            }
            Err(error) => {
                tell(&format!("error {:?}: {error}", op.verb));
                std::process::exit(1)
            }
        }
    }

    /// Exactly once, however often it must be asked.
    async fn publish(&mut self, worker: u64, number: u64) {
        let key = format!("{worker}-{number}");
        loop {
            tell(&format!("try {key}"));
            let event = Event::new("e", key.clone()).expect("an event");
            let verb = Verb::AddOnce { key: OnceKey::new(key.as_str()).expect("a key"), event };
            if let Came::Told(_, Told::AddedOnce { id, published }) = self.ask(false, verb).await {
                tell(&format!("done {key} {id} {}", if published { "new" } else { "again" }));
                return;
            }
        }
    }

    /// Takes the lease, or keeps it. Each answer is told with the server's time.
    async fn lead(&mut self) {
        let verb = match &self.lease {
            Some(lease) => Verb::LeaseRenew { group: group(), lease: lease.clone() },
            None => Verb::LeaseAcquire { group: group(), owner: self.name.clone(), lease_ms: LEASE_MS },
        };
        match self.ask(false, verb).await {
            Came::Told(at, Told::Leased { acquired: true, fence }) => {
                self.lease = Some(Lease { owner: self.name.clone(), fence, lease_ms: LEASE_MS });
                tell(&format!("lease {fence} {} {}", at.us() / 1000, at.us() / 1000 + LEASE_MS));
            }
            Came::Told(at, Told::Done) => {
                let fence = self.lease.as_ref().map_or(0, |lease| lease.fence);
                tell(&format!("lease {fence} {} {}", at.us() / 1000, at.us() / 1000 + LEASE_MS));
            }
            Came::LeaseLost => self.lease = None,
            Came::Told(..) | Came::Unsure | Came::Over => {}
        }
    }

    /// Opens, publishes, reads and settles in a stream that others destroy; every event names the
    /// generation that it was published to.
    async fn churn(&mut self, number: u64) {
        let verb = match self.seed.number("act", number) % 12 {
            0 => Verb::Destroy,
            1 | 2 => Verb::GroupOpen { group: group(), contract: contract(), settled: None },
            3 => Verb::GroupRegister { group: group(), consumer: self.consumer() },
            4 | 5 => Verb::GroupKeepAlive { group: group(), consumer: self.consumer() },
            6 | 7 => Verb::GroupRead { group: group(), consumer: self.consumer(), events_max: 5 },
            8 => Verb::LeaseAcquire { group: group(), owner: self.name.clone(), lease_ms: 50 },
            _ => match self.churn.bound() {
                None => Verb::Open,
                Some(bound) => {
                    let event = Event::new("e", bound.generation.to_string()).expect("an event");
                    let key = format!("{}-{number}", self.name);
                    Verb::AddOnce { key: OnceKey::new(key.as_str()).expect("a key"), event }
                }
            },
        };
        match self.ask_in_group(verb).await {
            Came::Told(_, Told::Taken { entries, .. }) if !entries.is_empty() => {
                let ids: Vec<_> = entries.iter().map(|entry| entry.id).collect();
                let ids = Ids::new(ids).expect("few");
                if let Came::Over = self.ask_in_group(Verb::GroupAck { group: group(), ids }).await {
                    self.begin_anew();
                }
            }
            Came::Told(_, Told::Destroyed { .. }) | Came::Over => self.begin_anew(),
            Came::Told(..) | Came::Unsure | Came::LeaseLost => {}
        }
    }

    /// Who has no generation yet binds to one first: an operation in a group never makes one.
    async fn ask_in_group(&mut self, verb: Verb) -> Came {
        if self.churn.bound().is_none() {
            let opened =
                self.ask(true, Verb::GroupOpen { group: group(), contract: contract(), settled: None });
            if !matches!(opened.await, Came::Told(..)) {
                return Came::Unsure;
            }
        }
        self.ask(true, verb).await
    }

    fn begin_anew(&mut self) {
        tell("over");
        self.churn = handle("churn");
    }

    fn consumer(&self) -> ConsumerName {
        ConsumerName::new(self.name.replace('.', "-")).expect("a name")
    }
}

const fn contract() -> GroupContract {
    GroupContract { filter: Filter::All, start: Start::Oldest, no_ack: false, grace_ms: 1_000 }
}

#[tokio::main(flavor = "current_thread")]
async fn main() {
    let words: Vec<u64> = std::env::args().skip(1).map(|word| word.parse().expect("a number")).collect();
    let [port, number, life, first] = words[..] else { panic!("expected PORT NUMBER LIFE FIRST") };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&number.to_be_bytes());
    bytes[8..16].copy_from_slice(&life.to_be_bytes());
    let seed = Seed::new(bytes);
    let address = Address::one(&format!("redis://127.0.0.1:{port}/")).expect("an address");
    let bounds = Bounds { answer_ms_max: 1_000, retry_ms: 5, retry_ms_max: 100 };
    let names = Names::tagged_below("s").expect("a name");
    let remote = Remote::new(address, names, bounds, seed.clone()).expect("admitted");
    let mut worker = Worker {
        remote,
        // Keys are the worker's; owners and consumers are those of one life.
        name: format!("{number}.{life}"),
        seed,
        nonces: 0,
        events: handle("events"),
        churn: handle("churn"),
        lease: None,
    };
    let open = Verb::GroupOpen { group: group(), contract: contract(), settled: None };
    while !matches!(worker.ask(false, open.clone()).await, Came::Told(..)) {}
    for event in first.. {
        worker.publish(number, event).await;
        worker.lead().await;
        worker.churn(event).await;
    }
}
