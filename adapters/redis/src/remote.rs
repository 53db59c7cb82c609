//! A server that is reached anew when its connection ends, and operations that end in time.

use crate::address::Address;
use crate::connection::Connection;
use crate::names::Names;
use crate::server::{Beside, Server, Told};
use crate::timer::{sleep, until};
use futures::lock::Mutex;
use std::sync::{Arc, Mutex as Short, PoisonError};
use std::time::{Duration, Instant};
use strandline_core::backoff::Backoff;
use strandline_core::seed::Seed;
use strandline_core::stream::failover::{Standing, Survival, Vouched, survival};
use strandline_core::stream::reply::Uncertain;
use strandline_core::stream::unready::Again;
use strandline_core::stream::{CallerError, Outcome, ServerFault, StreamError, StreamName, StreamOp};

/// How long things may take at a server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Bounds {
    /// Longest time of one operation in all, connecting anew and waiting included.
    pub answer_ms_max: u64,
    /// The first pause after a connection could not be made; it doubles.
    pub retry_ms: u64,
    /// The longest pause.
    pub retry_ms_max: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        Self { answer_ms_max: crate::ANSWER_MS_DEFAULT, retry_ms: 50, retry_ms_max: 2_000 }
    }
}

/// The first and longest pause before an operation that the server did not do is asked again.
const PAUSE_MS: (u64, u64) = (10, 500);

/// A server by its address. It is connected to when it is needed, and anew when the connection ended;
/// attempts that fail are followed by pauses that grow. Clones share the connection.
///
/// No operation takes longer than [`Bounds::answer_ms_max`]. What was not sent by then is answered by
/// `NotSent`; what was sent and not answered is uncertain. What the server did not do, and will do
/// soon by its own words, is asked again meanwhile.
///
/// Dropping a call is safe in that nothing else is harmed; its operation may have been done.
#[derive(Clone, Debug)]
pub struct Remote {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    address: Address,
    names: Names,
    bounds: Bounds,
    /// For pauses, numbered.
    seed: Seed,
    paused: Short<u64>,
    operations: Lane,
    /// Writes that wait for replicas hold up what comes behind them: they have a connection of their own.
    replicated: Lane,
}

/// One connection and those that may follow it.
#[derive(Debug)]
struct Lane {
    /// Held while somebody connects: nobody waits for it longer than for its own operation.
    now: Mutex<Reached>,
    ended: Short<Ended>,
    backoff: Short<Backoff>,
}

/// Which connection was given up last: told to whoever needs one next, without waiting for anybody.
#[derive(Clone, Copy, Debug, Default)]
struct Ended {
    turn: u64,
    not_before: Option<Instant>,
}

#[derive(Debug, Default)]
struct Reached {
    server: Option<Server<Connection>>,
    /// How many connections there have been.
    turn: u64,
    /// No attempt before.
    not_before: Option<Instant>,
}

impl Lane {
    fn new(bounds: &Bounds, seed: Seed, label: &str) -> Self {
        let backoff = Backoff::new(bounds.retry_ms, bounds.retry_ms_max, seed, label);
        Self { now: Mutex::default(), ended: Short::default(), backoff: Short::new(backoff) }
    }

    fn backoff(&self) -> std::sync::MutexGuard<'_, Backoff> {
        self.backoff.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ended(&self) -> std::sync::MutexGuard<'_, Ended> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a connection up, unless another one has taken its place.
    fn forget(&self, turn: u64) {
        let mut ended = self.ended();
        if ended.turn < turn {
            // The connection was there and ended: the next one may be tried after a pause.
            let pause = Duration::from_millis(self.backoff().grown_ms());
            *ended = Ended { turn, not_before: Some(Instant::now() + pause) };
        }
    }
}

impl Reached {
    /// Lets go of a connection that was given up.
    fn part(&mut self, ended: Ended) {
        if self.server.is_some() && self.turn <= ended.turn {
            self.server = None;
            self.not_before = ended.not_before;
        }
    }
}

/// What follows an outcome.
enum Then {
    /// It is handed out.
    Done,
    /// It is handed out, and the connection given up.
    GiveUp,
    /// The server did nothing, and will soon.
    Again,
    /// The server did nothing, and another one is to be found.
    Elsewhere,
}

fn then(outcome: &Outcome) -> Then {
    let fault = match outcome {
        Outcome::Uncertain(_) => return Then::GiveUp,
        Outcome::Answered { result: Err(StreamError::Server(fault)), .. } => fault,
        Outcome::Answered { .. } => return Then::Done,
    };
    match fault.again() {
        Again::Soon => Then::Again,
        Again::Elsewhere => Then::Elsewhere,
        Again::Later | Again::Never => Then::Done,
    }
}

impl Remote {
    /// A server that nothing is asked of yet. The seed makes pauses differ between processes; it must
    /// come from this machine's entropy.
    ///
    /// # Errors
    /// `InvalidOption` for the Pulse layout in a cluster.
    pub fn new(address: Address, names: Names, bounds: Bounds, seed: Seed) -> Result<Self, CallerError> {
        address.admits(&names)?;
        let operations = Lane::new(&bounds, seed.clone(), "operations");
        let replicated = Lane::new(&bounds, seed.clone(), "replicated");
        let paused = Short::new(0);
        let shared = Shared { address, names, bounds, seed, paused, operations, replicated };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The names of keys.
    #[must_use]
    pub fn names(&self) -> &Names {
        &self.shared.names
    }

    /// Where it is.
    #[must_use]
    pub fn address(&self) -> &Address {
        &self.shared.address
    }

    /// Connects if need be, so that a server that is not there is found out now.
    ///
    /// # Errors
    /// `NotSent` with what kept the connection from being made.
    pub async fn reach(&self) -> Result<(), StreamError> {
        self.shared.reached(&self.shared.operations, self.shared.deadline()).await.map(|_| ())
    }

    /// Does one operation.
    pub async fn apply(&self, op: &StreamOp) -> Outcome {
        let shared = &self.shared;
        shared.run(&shared.operations, op, shared.deadline(), Beside::Nothing).await.0
    }

    /// Does one operation and notes where its server stood after it: see [`Server::apply_vouched`].
    pub async fn apply_vouched(&self, op: &StreamOp) -> (Outcome, Option<Vouched>) {
        let shared = &self.shared;
        let (outcome, told) = shared.run(&shared.operations, op, shared.deadline(), Beside::Standing).await;
        (outcome, told.vouched())
    }

    /// Does one operation, and tells where its server stood beside the answer. `None` when it does not say,
    /// or says before and after the answer what does not agree.
    pub async fn apply_beside(&self, op: &StreamOp) -> (Outcome, Option<Standing>) {
        let shared = &self.shared;
        let (outcome, told) = shared.run(&shared.operations, op, shared.deadline(), Beside::Standing).await;
        (outcome, told.standing)
    }

    /// Does one operation and waits for replicas, for at most `wait_ms` more than an operation takes: see
    /// [`Server::apply_replicated`].
    pub async fn apply_replicated(
        &self,
        op: &StreamOp,
        replicas: u32,
        wait_ms: u64,
    ) -> (Outcome, Option<u64>) {
        let deadline = self.shared.deadline() + Duration::from_millis(wait_ms);
        // The connection itself gives up after the time of one answer.
        let wait_ms = wait_ms.min(self.shared.bounds.answer_ms_max / 2).max(1);
        let beside = Beside::Replicas(replicas, wait_ms);
        let (outcome, told) = self.shared.run(&self.shared.replicated, op, deadline, beside).await;
        (outcome, told.replicas)
    }

    /// Whether what was noted beside an answer about this stream is still in its server's history.
    pub async fn survival(&self, stream: &StreamName, noted: Option<&Vouched>) -> Survival {
        survival(noted, self.standing(stream).await.as_ref())
    }

    /// Where the server of a stream stands in its history; `None` when it does not say.
    pub async fn standing(&self, stream: &StreamName) -> Option<Standing> {
        let (deadline, lane) = (self.shared.deadline(), &self.shared.operations);
        let (mut server, turn) = self.shared.reached(lane, deadline).await.ok()?;
        let standing = until(deadline, server.standing(stream)).await.flatten();
        if standing.is_none() {
            lane.forget(turn);
        }
        standing
    }
}

impl Shared {
    fn deadline(&self) -> Instant {
        Instant::now() + Duration::from_millis(self.bounds.answer_ms_max)
    }

    /// The pauses of one operation: short, and of their own random numbers.
    fn pauses(&self) -> Backoff {
        let mut paused = self.paused.lock().unwrap_or_else(PoisonError::into_inner);
        *paused += 1;
        Backoff::new(PAUSE_MS.0, PAUSE_MS.1, self.seed.clone(), format!("pause {paused}"))
    }

    async fn reached(
        &self,
        lane: &Lane,
        deadline: Instant,
    ) -> Result<(Server<Connection>, u64), StreamError> {
        let mut last = None;
        let limit = self.bounds.answer_ms_max;
        let late = |last: Option<StreamError>| {
            let detail = format!("expected a connection within {limit} ms");
            last.unwrap_or_else(|| ServerFault::NotSent { detail }.into())
        };
        let Some(mut now) = until(deadline, lane.now.lock()).await else { return Err(late(None)) };
        now.part(*lane.ended());
        loop {
            if let Some(server) = &now.server {
                return Ok((server.clone(), now.turn));
            }
            if let Some(at) = now.not_before {
                if at >= deadline {
                    return Err(late(last));
                }
                sleep(at.saturating_duration_since(Instant::now())).await;
            }
            match until(deadline, self.address.connect(limit)).await {
                Some(Ok(connection)) => {
                    now.turn += 1;
                    now.server = Some(Server::new(connection, self.names.clone()));
                }
                failed => {
                    now.not_before = Some(Instant::now() + Duration::from_millis(lane.backoff().grown_ms()));
                    let Some(Err(error)) = failed else { return Err(late(last)) };
                    let again = matches!(&error, StreamError::Server(fault) if fault.again() != Again::Never);
                    if !again {
                        return Err(error);
                    }
                    last = Some(error);
                }
            }
        }
    }

    async fn run(&self, lane: &Lane, op: &StreamOp, deadline: Instant, beside: Beside) -> (Outcome, Told) {
        let mut pauses = None;
        loop {
            let (mut server, turn) = match self.reached(lane, deadline).await {
                Ok(reached) => reached,
                Err(error) => return (Outcome::Answered { at: None, result: Err(error) }, Told::default()),
            };
            let uncertain = || (Outcome::Uncertain(Uncertain::new(op.clone())), Told::default());
            let asked = until(deadline, server.apply_beside(op, beside)).await;
            let (outcome, told) = asked.unwrap_or_else(uncertain);
            match then(&outcome) {
                Then::Done => {
                    lane.backoff().start_over();
                    return (outcome, told);
                }
                Then::GiveUp => {
                    self.give_up(lane, turn);
                    return (outcome, told);
                }
                Then::Again => {}
                Then::Elsewhere => self.give_up(lane, turn),
            }
            let pause = Duration::from_millis(pauses.get_or_insert_with(|| self.pauses()).grown_ms());
            if Instant::now() + pause >= deadline {
                return (outcome, told);
            }
            sleep(pause).await;
        }
    }

    /// A cluster mends its connections itself.
    fn give_up(&self, lane: &Lane, turn: u64) {
        if !self.address.is_cluster() {
            lane.forget(turn);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strandline_core::stream::op::Nonce;
    use strandline_core::stream::unready::Unready;
    use strandline_core::stream::{Handle, Layout, Verb, Wanted};

    fn op() -> StreamOp {
        let stream = StreamName::new("orders").expect("a name");
        Handle::new(stream, Wanted::default(), Layout::Tagged)
            .expect("a handle")
            .op(Verb::Open, Nonce([1; 16]))
    }

    fn outcome(fault: ServerFault) -> Outcome {
        Outcome::Answered { at: None, result: Err(fault.into()) }
    }

    fn unready(why: Unready) -> Outcome {
        outcome(ServerFault::Unready { why, message: String::new() })
    }

    #[test]
    fn what_was_refused_for_now_is_asked_again() {
        assert!(matches!(then(&outcome(ServerFault::NotSent { detail: String::new() })), Then::Again));
        assert!(matches!(then(&unready(Unready::Loading)), Then::Again));
        assert!(matches!(then(&unready(Unready::ReadOnly)), Then::Elsewhere));
    }

    #[test]
    fn what_was_answered_or_stays_refused_is_handed_out() {
        assert!(matches!(then(&unready(Unready::OutOfMemory)), Then::Done));
        assert!(matches!(then(&outcome(ServerFault::NoGroup)), Then::Done));
        let caller = Outcome::Answered { at: None, result: Err(CallerError::StreamNotFound.into()) };
        assert!(matches!(then(&caller), Then::Done));
    }

    #[test]
    fn an_unknown_outcome_ends_the_connection_and_is_never_asked_again_here() {
        assert!(matches!(then(&Outcome::Uncertain(Uncertain::new(op()))), Then::GiveUp));
    }

    /// Runtimes with several threads move futures between them.
    #[test]
    fn its_futures_can_move_between_threads() {
        fn moves(_: impl Send) {}
        let address = Address::one("redis://127.0.0.1:1/").expect("an address");
        let names = Names::tagged_below("s").expect("a name");
        let remote = Remote::new(address, names, Bounds::default(), Seed::new([1; 32])).expect("admitted");
        let (op, stream) = (op(), StreamName::new("orders").expect("a name"));
        moves(remote.apply(&op));
        moves(remote.apply_vouched(&op));
        moves(remote.apply_beside(&op));
        moves(remote.apply_replicated(&op, 1, 1));
        moves(remote.survival(&stream, None));
    }
}
