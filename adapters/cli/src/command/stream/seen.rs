//! The state of a stream as far as it explains itself: read without changing anything.

use super::target::{Remote, Target};
use crate::exit::Failure;
use serde::Serialize;
use std::collections::BTreeMap;
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
    pub(super) groups: Vec<SeenGroup>,
}

/// A group.
#[derive(Clone, Debug, Default, Serialize)]
pub(super) struct SeenGroup {
    pub(super) group: String,
    /// Filter, start, no-ack, grace; `None` where only a cursor is left.
    pub(super) contract: Option<Vec<String>>,
    /// Up to where everything is settled.
    pub(super) cursor: Option<String>,
    pub(super) pending: u64,
    pub(super) members: Vec<String>,
    /// The number of the last lease.
    pub(super) fence: u64,
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
    let groups = data.groups.iter().map(|(name, group)| SeenGroup {
        group: name.to_string(),
        contract: group.contract.as_ref().map(|contract| contract.fields().map(|(_, value)| value).to_vec()),
        cursor: group.cursor.map(|id| id.to_string()),
        pending: data.log.as_ref().and_then(|log| log.groups.get(name)).map_or(0, |g| g.pending.len() as u64),
        members: group.members.iter().map(|member| member.consumer.to_string()).collect(),
        fence: group.lease.as_ref().map_or(0, |lease| lease.fence),
    });
    Some(Seen {
        active: life.active,
        generation: life.generation,
        contract: life.contract.text(Layout::Tagged),
        log: data.log.as_ref().map(edges),
        groups: groups.collect(),
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
        let [log, _, _, groups, _] = keys.generation(generation);
        let exists: bool = self.ask(&["EXISTS", &log]).await?;
        let (mut edges, mut pending) = (None, BTreeMap::new());
        if exists {
            edges = Some(self.edges(&log).await?);
            for info in self.ask::<Vec<Fields>>(&["XINFO", "GROUPS", &log]).await? {
                pending.insert(field::<String>(&info, "name")?, field::<u64>(&info, "pending")?);
            }
        }
        let books: BTreeMap<String, String> = self.ask(&["HGETALL", &groups]).await?;
        Ok(Some(Seen {
            active: state == "active",
            generation,
            contract: life.get("contract").cloned().unwrap_or_default(),
            log: edges,
            groups: of_books(&books, &pending),
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

fn of_books(books: &BTreeMap<String, String>, pending: &BTreeMap<String, u64>) -> Vec<SeenGroup> {
    let mut groups: BTreeMap<&str, SeenGroup> = BTreeMap::new();
    for (key, value) in books {
        let Some((what, name)) = key.split_once(':') else { continue };
        let group = groups.entry(name).or_default();
        match what {
            "contract" => group.contract = serde_json::from_str(value).ok(),
            "cursor" => group.cursor = Some(value.clone()),
            "fence" => group.fence = value.parse().unwrap_or_default(),
            "members" => {
                let members: Vec<(String, String)> = serde_json::from_str(value).unwrap_or_default();
                group.members = members.into_iter().map(|(name, _)| name).collect();
            }
            _ => {}
        }
    }
    let named = groups.into_iter().map(|(name, group)| SeenGroup {
        group: name.to_owned(),
        pending: pending.get(name).copied().unwrap_or_default(),
        ..group
    });
    named.collect()
}
