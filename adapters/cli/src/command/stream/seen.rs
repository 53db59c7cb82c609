//! The state of a stream as far as it explains itself: read without changing anything.

use super::target::{Remote, Target};
use crate::exit::Failure;
use std::collections::BTreeMap;
use strandline_core::stream::eviction::Eviction;
use strandline_core::stream::judge::LogEdges;
use strandline_core::stream::keyspace::log::Log;
use strandline_core::stream::keyspace::space::{Data, Space};
use strandline_core::stream::{EventId, Layout, StreamName};

/// A stream.
#[derive(Clone, Debug)]
pub(super) struct Seen {
    pub(super) active: bool,
    pub(super) generation: u64,
    pub(super) contract: String,
    /// `None` without data.
    pub(super) log: Option<LogEdges>,
    /// Whether the server may throw it away; `None` where that does not come up, or the server does not say.
    pub(super) eviction: Option<Eviction>,
}

impl Target {
    /// The stream; `None` if it was never made.
    pub(super) async fn look(&mut self, stream: &StreamName) -> Result<Option<Seen>, Failure> {
        match self {
            Self::Directory(embedded) => {
                let now_ms = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
                let now_ms = now_ms.map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
                let space = embedded.with(|root| {
                    let now = root.clock().max(strandline_core::stream::ServerTime::from_ms(now_ms));
                    root.keyspace().space(stream, now)
                });
                Ok(space.and_then(|space| in_memory(&space)))
            }
            Self::Remote(remote) => remote.look(stream).await,
        }
    }
}

fn in_memory(space: &Space) -> Option<Seen> {
    let life = space.life.as_ref()?;
    let nothing = Data::default();
    let data = space.data.get(&life.generation).unwrap_or(&nothing);
    let edges = |log: &Log| LogEdges {
        first: log.entries.keys().next().copied(),
        last: log.last,
        added: log.added,
        kept: log.entries.len() as u64,
    };
    Some(Seen {
        active: life.active,
        generation: life.generation,
        contract: life.contract.text(Layout::Tagged),
        log: data.log.as_ref().map(edges),
        eviction: None,
    })
}

type Fields = BTreeMap<String, redis::Value>;

impl Remote {
    async fn ask<T: redis::FromRedisValue>(&mut self, words: &[&str]) -> Result<T, Failure> {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        let answer = command.query_async(self.server.connection()).await;
        answer.map_err(|e| Failure::peer(format!("{} was not answered: {e}", words[0])))
    }

    async fn look(&mut self, stream: &StreamName) -> Result<Option<Seen>, Failure> {
        let keys = self.server.names().tagged(stream);
        let life: BTreeMap<String, String> = self.ask(&["HGETALL", &keys.life()]).await?;
        let (Some(state), Some(generation)) = (life.get("state"), life.get("generation")) else {
            return Ok(None);
        };
        let odd = |what: &str| Failure::peer(format!("expected a lifecycle record, found {what}"));
        let generation: u64 = generation.parse().map_err(|_| odd(generation))?;
        let [log, ..] = keys.generation(generation);
        let exists: bool = self.ask(&["EXISTS", &log]).await?;
        let edges = if exists { Some(self.edges(&log).await?) } else { None };
        Ok(Some(Seen {
            active: state == "active",
            generation,
            contract: life.get("contract").cloned().unwrap_or_default(),
            log: edges,
            eviction: self
                .ask::<String>(&["INFO", "memory"])
                .await
                .ok()
                .and_then(|info| Eviction::parse(&info)),
        }))
    }

    async fn edges(&mut self, log: &str) -> Result<LogEdges, Failure> {
        let info: Fields = self.ask(&["XINFO", "STREAM", log]).await?;
        let first: Vec<(String, Vec<Vec<u8>>)> = self.ask(&["XRANGE", log, "-", "+", "COUNT", "1"]).await?;
        let id = |text: &str| {
            EventId::parse(text).ok_or_else(|| Failure::peer(format!("expected a position, found {text}")))
        };
        Ok(LogEdges {
            first: first.first().map(|(text, _)| id(text)).transpose()?,
            last: id(&field::<String>(&info, "last-generated-id")?)?,
            added: field(&info, "entries-added")?,
            kept: field(&info, "length")?,
        })
    }
}

fn field<T: redis::FromRedisValue>(info: &Fields, name: &str) -> Result<T, Failure> {
    let value = info.get(name).cloned().unwrap_or(redis::Value::Nil);
    redis::from_redis_value(value).map_err(|e| Failure::peer(format!("expected {name}: {e}")))
}
