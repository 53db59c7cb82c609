//! One server: does operations by their scripts.

use crate::connection::Together;
use crate::decode::{Answer, decode};
use crate::encode::encode;
use crate::names::Names;
use crate::script::{Name, Scripts};
use redis::{Cmd, ErrorKind, Pipeline, RedisError, RedisResult, Value};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use strandline_core::stream::error::CallerError;
use strandline_core::stream::failover::{Standing, Vouched};
use strandline_core::stream::layout::PulseKeys;
use strandline_core::stream::reply::Uncertain;
use strandline_core::stream::word::refusal;
use strandline_core::stream::{Layout, Outcome, ServerFault, StreamError, StreamName, StreamOp};

/// How often an operation is asked again because the stream had gone on to another generation.
const MOVES_MAX: u32 = 8;

/// A server in one layout, over one connection that never blocks.
///
/// An operation that is dropped before its answer came may have been done: it is to be taken for
/// uncertain. Nothing else is lost by it.
#[derive(Clone, Debug)]
pub struct Server<C> {
    connection: C,
    names: Names,
    scripts: &'static Scripts,
    /// Clones ask over the same connection, and learn from each other.
    supposed: Arc<Mutex<BTreeMap<StreamName, u64>>>,
    /// Where the server was last told to stand, over this very connection, if that lasts: it goes with the
    /// connection.
    stood: Arc<Mutex<Option<Standing>>>,
}

/// Most streams whose generation is remembered; forgetting costs one more round trip.
const SUPPOSED_MAX: usize = 10_000;

/// How one asking ended.
enum Asked {
    Value(Value),
    /// The server refused in its own words.
    Refused(StreamError),
    /// No answer, or none that tells.
    Nothing,
}

/// What is asked together with an operation, over the same connection: nothing comes between.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Beside {
    Nothing,
    /// Where the server stands, before and after. What was told before an earlier operation's end, over one
    /// connection to one process, need not be asked again.
    Standing,
    /// That this many replicas follow, within so many milliseconds.
    Replicas(u32, u64),
}

/// What was told beside an operation.
#[derive(Debug, Default)]
pub(crate) struct Told {
    pub(crate) standing: Option<Standing>,
    pub(crate) replicas: Option<u64>,
}

impl Told {
    /// What may be noted beside the answer.
    pub(crate) fn vouched(&self) -> Option<Vouched> {
        self.standing.and_then(|standing| standing.vouched(&standing))
    }
}

impl<C: Together> Server<C> {
    /// Uses a connection. It must answer or fail within a bounded time, or [`Server::apply`] would not
    /// end.
    #[must_use]
    pub fn new(connection: C, names: Names) -> Self {
        let scripts = Scripts::of(names.layout());
        Self { connection, names, scripts, supposed: Arc::default(), stood: Arc::default() }
    }

    /// The layout.
    #[must_use]
    pub const fn layout(&self) -> Layout {
        self.names.layout()
    }

    /// The names of keys.
    #[must_use]
    pub const fn names(&self) -> &Names {
        &self.names
    }

    /// The connection, for what is no operation of a stream.
    pub const fn connection(&mut self) -> &mut C {
        &mut self.connection
    }

    /// Does one operation. Without an answer the outcome is uncertain, never "not done".
    pub async fn apply(&mut self, op: &StreamOp) -> Outcome {
        self.apply_beside(op, Beside::Nothing).await.0
    }

    /// Does one operation, and notes where in its history the server stood after it, to be judged after
    /// a failover. `None` when nothing can be noted: the server is no master, or says nothing.
    pub async fn apply_vouched(&mut self, op: &StreamOp) -> (Outcome, Option<Vouched>) {
        let (outcome, told) = self.apply_beside(op, Beside::Standing).await;
        (outcome, told.vouched())
    }

    /// Does one operation, then waits until `replicas` have it, for at most `wait_ms`; how many have it.
    /// All over the connection that wrote: over another one the server would answer at once for nothing.
    /// It holds up whatever else goes over this connection, which must not give up sooner.
    ///
    /// A replica that has it may still not be the one that takes over: it is less likely to be lost, not
    /// safe.
    pub async fn apply_replicated(
        &mut self,
        op: &StreamOp,
        replicas: u32,
        wait_ms: u64,
    ) -> (Outcome, Option<u64>) {
        let (outcome, told) = self.apply_beside(op, Beside::Replicas(replicas, wait_ms)).await;
        (outcome, told.replicas)
    }

    /// Where the server of a stream stands in its history, by its own words now.
    pub async fn standing(&mut self, stream: &StreamName) -> Option<Standing> {
        let mut commands = Pipeline::new();
        commands.ignore_errors().add_command(info());
        let values = self.connection.together(&commands, &self.key(stream)).await.ok()?;
        standing(values.first()?)
    }

    /// A key of the stream: it decides which node of a cluster is asked.
    fn key(&self, stream: &StreamName) -> String {
        match self.names.layout() {
            Layout::Tagged => self.names.tagged(stream).life(),
            Layout::Pulse => PulseKeys { stream, generation: 1 }.life(),
        }
    }

    pub(crate) async fn apply_beside(&mut self, op: &StreamOp, beside: Beside) -> (Outcome, Told) {
        let refused = |error| Outcome::Answered { at: None, result: Err(error) };
        if self.layout() == Layout::Pulse && op.verb.is_tagged_only() {
            return (refused(CallerError::TaggedOnly.into()), Told::default());
        }
        let uncertain = || Outcome::Uncertain(Uncertain::new(op.clone()));
        for _ in 0..MOVES_MAX {
            let supposed = match &op.by.bound {
                Some(bound) => bound.generation,
                None => self.supposed(&op.stream),
            };
            let (asked, told) = self.ask(op, supposed, beside).await;
            let value = match asked {
                Asked::Value(value) => value,
                Asked::Refused(error) => return (refused(error), told),
                Asked::Nothing => return (uncertain(), told),
            };
            match decode(value, op, self.layout()) {
                Ok(Answer::Done(at, result)) => return (Outcome::Answered { at: Some(at), result }, told),
                Ok(Answer::Moved(generation)) => self.suppose(&op.stream, generation),
                // It answered something: whether it did the step cannot be told.
                Err(_) => return (uncertain(), told),
            }
        }
        let detail = format!("expected a generation that holds still for {MOVES_MAX} tries");
        (refused(ServerFault::Answer { detail }.into()), Told::default())
    }

    fn supposed(&self, stream: &StreamName) -> u64 {
        let supposed = self.supposed.lock().unwrap_or_else(PoisonError::into_inner);
        supposed.get(stream).copied().unwrap_or(1)
    }

    fn suppose(&self, stream: &StreamName, generation: u64) {
        let mut supposed = self.supposed.lock().unwrap_or_else(PoisonError::into_inner);
        if supposed.len() >= SUPPOSED_MAX {
            supposed.pop_first();
        }
        supposed.insert(stream.clone(), generation);
    }

    fn stood(&self) -> Option<Standing> {
        *self.stood.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answers may cross: then an older standing takes the place of a newer one, which is as good.
    fn stands(&self, after: Option<Standing>) {
        let Some(after) = after.filter(|_| self.connection.is_to_one_process()) else { return };
        let mut stood = self.stood.lock().unwrap_or_else(PoisonError::into_inner);
        *stood = after.is_lasting().then_some(after);
    }

    async fn ask(&mut self, op: &StreamOp, supposed: u64, beside: Beside) -> (Asked, Told) {
        let script = self.scripts.get(Name::of(&op.verb));
        let by_hash = encode("EVALSHA", &script.hash, op, &self.names, supposed);
        let (mut result, mut told) = self.send(&by_hash, op, beside).await;
        if result.as_ref().is_err_and(|error| error.code() == Some("NOSCRIPT")) {
            let by_text = encode("EVAL", &script.text, op, &self.names, supposed);
            (result, told) = self.send(&by_text, op, beside).await;
        }
        match result {
            Ok(value) => (Asked::Value(value), told),
            Err(error) => (refused_or_nothing(&error), told),
        }
    }

    async fn send(&mut self, script: &Cmd, op: &StreamOp, beside: Beside) -> (RedisResult<Value>, Told) {
        let mut commands = Pipeline::new();
        commands.ignore_errors();
        // Read before anything is sent: what is told from then on may be newer than this operation.
        let stood = self.stood();
        match beside {
            Beside::Nothing => {
                let answer = self.connection.req_packed_command(script).await.and_then(Value::extract_error);
                return (answer, Told::default());
            }
            Beside::Standing if stood.is_some() => commands.add_command(script.clone()).add_command(info()),
            Beside::Standing => commands.add_command(info()).add_command(script.clone()).add_command(info()),
            Beside::Replicas(replicas, wait_ms) => {
                let mut wait = redis::cmd("WAIT");
                wait.arg(replicas).arg(wait_ms);
                commands.add_command(script.clone()).add_command(wait)
            }
        };
        let values = match self.connection.together(&commands, &self.key(&op.stream)).await {
            Ok(values) => values,
            Err(error) => return (Err(error), Told::default()),
        };
        let mut told = Told::default();
        let answer = match (beside, values.as_slice()) {
            (Beside::Standing, [before @ .., answer, after])
                if before.len() == usize::from(stood.is_none()) =>
            {
                let before = stood.or_else(|| standing(before.first()?));
                let after = standing(after);
                told.standing = before.zip(after).and_then(|(before, after)| after.beside(&before));
                self.stands(after);
                answer
            }
            (Beside::Replicas(..), [answer, replicas]) => {
                if let Value::Int(count) = replicas {
                    told.replicas = u64::try_from(*count).ok();
                }
                answer
            }
            (Beside::Standing | Beside::Replicas(..) | Beside::Nothing, _) => {
                let text = format!("expected an answer to each command, found {}", values.len());
                let error = RedisError::from((ErrorKind::UnexpectedReturnType, "answers", text));
                return (Err(error), Told::default());
            }
        };
        (answer.clone().extract_error(), told)
    }
}

fn info() -> Cmd {
    let mut info = redis::cmd("INFO");
    info.arg("replication");
    info
}

fn standing(value: &Value) -> Option<Standing> {
    let text: String = redis::from_redis_value(value.clone()).ok()?;
    Standing::parse(&text)
}

/// Only an error that the server itself sent is an answer, or one that came before anything was sent.
fn refused_or_nothing(error: &RedisError) -> Asked {
    let unsent = error.is_connection_refusal() || error.kind() == ErrorKind::ClusterConnectionNotFound;
    match error.code() {
        Some(code) => {
            let detail = error.detail().unwrap_or_default();
            // A script's own words come behind an `ERR` that is not always there.
            let text = if code == "ERR" { detail.to_string() } else { format!("{code} {detail}") };
            Asked::Refused(refusal(&text))
        }
        None if unsent => {
            let detail = format!("expected a connection, found {error}");
            Asked::Refused(ServerFault::NotSent { detail }.into())
        }
        None => Asked::Nothing,
    }
}

#[cfg(test)]
mod tests;
