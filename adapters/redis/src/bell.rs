//! Waiting for news of logs, on connections that do nothing else.

use crate::address::Address;
use crate::connection::{Connection, split};
use crate::names::Names;
use crate::timer::{sleep, until};
use futures::future::{BoxFuture, FutureExt as _, select_all};
use redis::cluster_routing::Slot;
use redis::{Cmd, Pipeline, RedisResult, Value};
use std::time::{Duration, Instant};
use strandline_core::stream::client::{LogPosition, Waited};
use strandline_core::stream::error::{CallerError, Setting, StreamError};
use strandline_core::stream::layout::PulseKeys;
use strandline_core::stream::limits::REST_MS_MAX;
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
/// what was ended meanwhile. In a cluster each slot that is waited for has one read on one connection of its
/// own, as no blocking read may name keys of two; a slot whose node is gone holds up none of the others.
///
/// A wait that is dropped goes on, and the next one joins it: nothing is asked twice, and no news missed.
pub struct Bell {
    address: Address,
    names: Names,
    block_ms: u64,
    lines: Vec<Line>,
    /// Connections that wait for nothing at the moment.
    idle: Vec<(Place, Connection)>,
}

/// The slot of a cluster; `None` where there are no slots.
type Place = Option<Slot>;

/// A log: stream and generation.
type Log = (StreamName, u64);

/// One blocking read on its way.
struct Line {
    place: Place,
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
        Ok(Self { address, names, block_ms, lines: Vec::new(), idle: Vec::new() })
    }

    /// Waits for an entry behind the given position of any of these logs. It may ring for nothing.
    ///
    /// Cancel safe: the reads go on, and the next call joins them.
    pub async fn wait(&mut self, logs: &[LogPosition]) -> Waited {
        if self.begin(logs) == Some(Waited::Rung) {
            return Waited::Rung;
        }
        if self.lines.is_empty() {
            sleep(Duration::from_millis(self.block_ms)).await;
            return Waited::TimeOut;
        }
        self.first(REST_MS_MAX).await
    }

    /// How the first of the reads ends that does not break. From the first break on the others have
    /// `rest_ms`: then it is time to look for the node that is gone.
    async fn first(&mut self, rest_ms: u64) -> Waited {
        let mut back_at = None;
        loop {
            let ends = select_all(self.lines.iter_mut().map(|line| &mut line.ends));
            let ended = match back_at {
                None => Some(ends.await),
                Some(at) => until(at, ends).await,
            };
            let Some(((connection, waited), at, _)) = ended else { return Waited::TimeOut };
            self.ended(at, connection);
            if waited != Waited::Broken || self.lines.is_empty() {
                return waited;
            }
            back_at.get_or_insert_with(|| Instant::now() + Duration::from_millis(rest_ms));
        }
    }

    /// Begins the reads that are not on their way, one for each slot. `Rung` when one that was has ended
    /// with news while nobody waited.
    fn begin(&mut self, logs: &[LogPosition]) -> Option<Waited> {
        let places = self.by_place(logs);
        let is_asked = |place: &Place| places.iter().any(|(of, _)| of == place);
        self.lines.retain(|line| is_asked(&line.place));
        self.idle.retain(|(place, _)| is_asked(place));
        for (place, logs) in places {
            let asked: Vec<Log> = logs.iter().map(|log| (log.stream.clone(), log.generation)).collect();
            if let Some(at) = self.lines.iter().position(|line| line.place == place) {
                // A read that asks from an older position of the same logs has nothing to tell yet: it
                // rings for whatever comes. One for other logs takes its connection with it.
                if self.lines[at].logs == asked {
                    let Some((connection, waited)) = (&mut self.lines[at].ends).now_or_never() else {
                        continue;
                    };
                    self.ended(at, connection);
                    if waited == Waited::Rung {
                        return Some(waited);
                    }
                } else {
                    self.lines.remove(at);
                }
            }
            let held = self.idle.iter().position(|(of, _)| *of == place).map(|at| self.idle.remove(at).1);
            let ends = listen(self.address.clone(), held, self.read(&logs), self.block_ms).boxed();
            self.lines.push(Line { place, logs: asked, ends });
        }
        None
    }

    fn by_place<'a>(&self, logs: &'a [LogPosition]) -> Vec<(Place, Vec<&'a LogPosition>)> {
        let mut places: Vec<(Place, Vec<&LogPosition>)> = Vec::new();
        for log in logs {
            let place = self.place(log);
            match places.iter_mut().find(|(of, _)| *of == place) {
                Some((_, logs)) => logs.push(log),
                None => places.push((place, vec![log])),
            }
        }
        places
    }

    /// Whether a read is on its way for logs other than these.
    pub(crate) fn is_busy_with_others(&self, logs: &[LogPosition]) -> bool {
        let asked = |log: &Log| logs.iter().any(|l| l.stream == log.0 && l.generation == log.1);
        !self.lines.iter().all(|line| line.logs.iter().all(asked))
    }

    /// How long its waits are.
    pub(crate) const fn block_ms(&self) -> u64 {
        self.block_ms
    }

    fn ended(&mut self, at: usize, connection: Option<Connection>) {
        let line = self.lines.remove(at);
        if let Some(connection) = connection {
            self.idle.push((line.place, connection));
        }
    }

    /// Where a log lies: streams of one slot share a read, however they came there.
    fn place(&self, log: &LogPosition) -> Place {
        self.address.is_cluster().then(|| Slot::for_key(self.log(&log.stream, log.generation)))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Names;
    use futures::future::{pending, ready};
    use strandline_core::stream::EventId;

    fn log(stream: &str) -> LogPosition {
        let stream = StreamName::new(stream).expect("a name");
        LogPosition { stream, generation: 1, after: EventId::ZERO }
    }

    fn bell(cluster: bool) -> Bell {
        let url = "redis://127.0.0.1:1/";
        let address = if cluster { Address::cluster([url]) } else { Address::one(url) };
        let names = Names::tagged_below("s").expect("a name");
        Bell::new(address.expect("an address"), names, 10).expect("a bell")
    }

    fn shared(bell: &Bell, logs: &[LogPosition]) -> Vec<Vec<String>> {
        let names = |logs: &Vec<&LogPosition>| logs.iter().map(|log| log.stream.to_string()).collect();
        bell.by_place(logs).iter().map(|(_, logs)| names(logs)).collect()
    }

    /// A name that lies in the slot of another one, found by trying.
    fn neighbour(of: &str) -> String {
        let slot = |name: &str| Slot::for_key(format!("{{{name}}}"));
        (0..).map(|n| format!("n{n}")).find(|name| slot(name) == slot(of)).expect("some name")
    }

    #[test]
    fn streams_of_one_slot_share_a_read_and_others_do_not() {
        let beside = neighbour("a");
        let logs = [log("a"), log("b"), log(&beside)];
        let expected = vec![vec!["a".to_string(), beside], vec!["b".to_string()]];
        assert_eq!(shared(&bell(true), &logs), expected);
    }

    #[tokio::test]
    async fn a_node_that_is_gone_shortens_the_wait_for_the_others() {
        let line = |ends| Line { place: None, logs: Vec::new(), ends };
        let mut bell = bell(true);
        bell.lines = vec![line(pending().boxed()), line(ready((None, Waited::Broken)).boxed())];
        let give_up = Instant::now() + Duration::from_secs(60);
        assert_eq!(until(give_up, bell.first(1)).await, Some(Waited::TimeOut));
        assert_eq!(bell.lines.len(), 1, "the other read goes on");
    }

    #[test]
    fn where_there_are_no_slots_all_share_a_read() {
        assert_eq!(shared(&bell(false), &[log("a"), log("b")]), [["a", "b"]]);
    }
}
