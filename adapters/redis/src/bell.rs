//! Waiting for news of logs, on connections that do nothing else.

use crate::address::Address;
use crate::connection::{Connection, split};
use crate::names::Names;
use crate::timer::sleep;
use futures::future::{BoxFuture, FutureExt as _, select_all};
use redis::{Cmd, Pipeline, RedisResult, Value};
use std::collections::BTreeMap;
use std::time::Duration;
use strandline_core::stream::client::{LogPosition, Waited};
use strandline_core::stream::error::{CallerError, Setting, StreamError};
use strandline_core::stream::layout::PulseKeys;
use strandline_core::stream::{Layout, StreamName};

/// Extra time that the answer to a blocking read may take beyond what the read waits.
const MARGIN_MS: u64 = 2_000;

/// How often one wait follows a slot that has moved on.
const HOPS_MAX: u32 = 5;

/// The pause after a refusal, so that a read that is refused at once does not turn in a circle.
const REFUSED_MS: u64 = 100;

/// Waits for news of logs at one server, or at all nodes of a cluster that hold some of them.
///
/// It holds no operation and gives out no events: those come by [`Remote::apply`](crate::Remote::apply),
/// in a step that checks the generation. So a blocking read can neither hold up an operation nor hand out
/// what was ended meanwhile. In a cluster each slot has a connection of its own, as no blocking read may
/// name keys of two.
///
/// A wait that is dropped goes on, and the next one joins it: nothing is asked twice, and no news missed.
pub struct Bell {
    address: Address,
    names: Names,
    block_ms: u64,
    lines: BTreeMap<String, Line>,
    idle: BTreeMap<String, Connection>,
}

/// A log: stream and generation.
type Log = (StreamName, u64);

/// One blocking read on its way.
struct Line {
    logs: Vec<Log>,
    ends: BoxFuture<'static, (Option<Connection>, Waited)>,
}

impl core::fmt::Debug for Bell {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Bell").field("address", &self.address).field("block_ms", &self.block_ms).finish()
    }
}

impl Bell {
    /// A bell that is not connected yet. Every wait lasts at most `block_ms`, which is not zero (that
    /// would be for ever).
    ///
    /// # Errors
    /// `InvalidOption` for a wait of zero, and for the Pulse layout in a cluster.
    pub fn new(address: Address, names: Names, block_ms: u64) -> Result<Self, StreamError> {
        if block_ms == 0 {
            return Err(CallerError::InvalidOption { setting: Setting::Block }.into());
        }
        address.admits(&names)?;
        Ok(Self { address, names, block_ms, lines: BTreeMap::new(), idle: BTreeMap::new() })
    }

    /// Waits for an entry behind the given position of any of these logs. It may ring for nothing.
    ///
    /// Cancel safe: the reads go on, and the next call joins them.
    pub async fn wait(&mut self, logs: &[LogPosition]) -> Waited {
        let mut groups: BTreeMap<String, Vec<&LogPosition>> = BTreeMap::new();
        for log in logs {
            groups.entry(self.slot_of(&log.stream)).or_default().push(log);
        }
        self.lines.retain(|slot, _| groups.contains_key(slot));
        self.idle.retain(|slot, _| groups.contains_key(slot));
        for (slot, logs) in groups {
            let asked: Vec<Log> = logs.iter().map(|log| (log.stream.clone(), log.generation)).collect();
            // A read that asks from an older position of the same logs has nothing to tell yet: it rings
            // for whatever comes.
            if let Some(line) = self.lines.get_mut(&slot).filter(|line| line.logs == asked) {
                let Some((connection, waited)) = (&mut line.ends).now_or_never() else { continue };
                // It ended while nobody waited.
                self.ended(&slot, connection);
                if waited == Waited::Rung {
                    return waited;
                }
            }
            // A line that is replaced takes its connection with it: a read is on its way there.
            let read = self.read(&logs);
            let held = self.idle.remove(&slot);
            let ends = listen(self.address.clone(), held, read, self.block_ms).boxed();
            self.lines.insert(slot, Line { logs: asked, ends });
        }
        if self.lines.is_empty() {
            sleep(Duration::from_millis(self.block_ms)).await;
            return Waited::TimeOut;
        }
        let (slots, ends): (Vec<String>, Vec<_>) =
            self.lines.iter_mut().map(|(slot, line)| (slot.clone(), &mut line.ends)).unzip();
        let ((connection, waited), first, _) = select_all(ends).await;
        self.ended(&slots[first], connection);
        waited
    }

    /// Whether a read is on its way for logs other than these.
    pub(crate) fn is_busy_with_others(&self, logs: &[LogPosition]) -> bool {
        let asked = |log: &Log| logs.iter().any(|l| l.stream == log.0 && l.generation == log.1);
        !self.lines.values().all(|line| line.logs.iter().all(asked))
    }

    /// How long its waits are.
    pub(crate) const fn block_ms(&self) -> u64 {
        self.block_ms
    }

    fn ended(&mut self, slot: &str, connection: Option<Connection>) {
        self.lines.remove(slot);
        if let Some(connection) = connection {
            self.idle.insert(slot.to_string(), connection);
        }
    }

    /// What decides the slot of a stream's keys; one for all where there are no slots.
    fn slot_of(&self, stream: &StreamName) -> String {
        match (&self.names, self.address.is_cluster()) {
            (Names::Tagged { tag: None, .. }, true) => stream.as_str().to_string(),
            (Names::Tagged { .. } | Names::Pulse, _) => String::new(),
        }
    }

    fn read(&self, logs: &[&LogPosition]) -> Cmd {
        let mut read = redis::cmd("XREAD");
        read.arg("COUNT").arg(1).arg("BLOCK").arg(self.block_ms).arg("STREAMS");
        for log in logs {
            read.arg(self.log(&log.stream, log.generation));
        }
        for log in logs {
            read.arg(log.after.to_string());
        }
        read
    }

    fn log(&self, stream: &StreamName, generation: u64) -> String {
        match self.names.layout() {
            Layout::Pulse => PulseKeys { stream, generation }.log(),
            Layout::Tagged => {
                let [log, ..] = self.names.tagged(stream).generation(generation);
                log
            }
        }
    }
}

async fn listen(
    address: Address,
    held: Option<Connection>,
    read: Cmd,
    block_ms: u64,
) -> (Option<Connection>, Waited) {
    let limit_ms = block_ms.saturating_add(MARGIN_MS);
    let mut connection = match held {
        Some(connection) => connection,
        None => match address.connect_to_node(None, limit_ms).await {
            Ok(connection) => connection,
            Err(_) => return (None, Waited::Broken),
        },
    };
    let mut asking = false;
    for _ in 0..HOPS_MAX {
        let error = match ask(&mut connection, &read, asking).await {
            Ok(Value::Nil) => return (Some(connection), Waited::TimeOut),
            Ok(_) => return (Some(connection), Waited::Rung),
            Err(error) => error,
        };
        let Some((node, _)) = error.redirect_node() else {
            // A key of another type, or a server that is not ready, is the operations' to report.
            if error.code().is_none() {
                return (None, Waited::Broken);
            }
            sleep(Duration::from_millis(REFUSED_MS.min(block_ms))).await;
            return (Some(connection), Waited::TimeOut);
        };
        asking = error.code() == Some("ASK");
        let Some((host, port)) = split(node) else { return (None, Waited::Broken) };
        match address.connect_to_node(Some((&host, port)), limit_ms).await {
            Ok(there) => connection = there,
            Err(_) => return (None, Waited::Broken),
        }
    }
    (None, Waited::TimeOut)
}

async fn ask(connection: &mut Connection, read: &Cmd, asking: bool) -> RedisResult<Value> {
    if !asking {
        return read.query_async(connection).await;
    }
    let mut both = Pipeline::new();
    both.cmd("ASKING").ignore().add_command(read.clone());
    let (answer,): (Value,) = both.query_async(connection).await?;
    Ok(answer)
}
