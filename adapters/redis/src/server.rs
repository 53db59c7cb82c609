//! One server: does operations by their scripts.

use crate::decode::{Answer, decode};
use crate::encode::encode;
use crate::names::Names;
use crate::script::{Name, Scripts};
use redis::aio::ConnectionLike;
use redis::{RedisError, Value};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use strandline_core::stream::error::CallerError;
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
    scripts: Arc<Scripts>,
    /// Clones ask over the same connection, and learn from each other.
    supposed: Arc<Mutex<BTreeMap<StreamName, u64>>>,
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

impl<C: ConnectionLike> Server<C> {
    /// Uses a connection. It must answer or fail within a bounded time, or [`Server::apply`] would not
    /// end.
    #[must_use]
    pub fn new(connection: C, names: Names) -> Self {
        let scripts = Arc::new(Scripts::new(names.layout()));
        Self { connection, names, scripts, supposed: Arc::default() }
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
        let refused = |error| Outcome::Answered { at: None, result: Err(error) };
        if self.layout() == Layout::Pulse && op.verb.is_tagged_only() {
            return refused(CallerError::TaggedOnly.into());
        }
        for _ in 0..MOVES_MAX {
            let supposed = match &op.by.bound {
                Some(bound) => bound.generation,
                None => self.supposed(&op.stream),
            };
            let value = match self.ask(op, supposed).await {
                Asked::Value(value) => value,
                Asked::Refused(error) => return refused(error),
                Asked::Nothing => return Outcome::Uncertain(Uncertain::new(op.clone())),
            };
            match decode(&value, op, self.layout()) {
                Ok(Answer::Done(at, result)) => return Outcome::Answered { at: Some(at), result },
                Ok(Answer::Moved(generation)) => self.suppose(&op.stream, generation),
                // It answered something: whether it did the step cannot be told.
                Err(_) => return Outcome::Uncertain(Uncertain::new(op.clone())),
            }
        }
        let detail = format!("expected a generation that holds still for {MOVES_MAX} tries");
        refused(ServerFault::Answer { detail }.into())
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

    async fn ask(&mut self, op: &StreamOp, supposed: u64) -> Asked {
        let (keys, args) = encode(op, &self.names, supposed);
        let script = self.scripts.get(Name::of(&op.verb));
        let command = |name: &str, script: &str| {
            let mut command = redis::cmd(name);
            command.arg(script).arg(keys.len());
            for key in &keys {
                command.arg(key);
            }
            for arg in &args.0 {
                command.arg(arg.as_slice());
            }
            command
        };
        let by_hash = command("EVALSHA", &script.hash);
        let mut result = self.connection.req_packed_command(&by_hash).await.and_then(Value::extract_error);
        if result.as_ref().is_err_and(|error| error.code() == Some("NOSCRIPT")) {
            let by_text = command("EVAL", &script.text);
            result = self.connection.req_packed_command(&by_text).await.and_then(Value::extract_error);
        }
        match result {
            Ok(value) => Asked::Value(value),
            Err(error) => refused_or_nothing(&error),
        }
    }
}

/// Only an error that the server itself sent is an answer.
fn refused_or_nothing(error: &RedisError) -> Asked {
    match error.code() {
        Some(code) => {
            let detail = error.detail().unwrap_or_default();
            // A script's own words come behind an `ERR` that is not always there.
            let text = if code == "ERR" { detail.to_string() } else { format!("{code} {detail}") };
            Asked::Refused(refusal(&text))
        }
        None => Asked::Nothing,
    }
}
