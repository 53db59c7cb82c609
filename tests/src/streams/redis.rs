//! A real server, in either layout.

use super::backend::{Backend, Raw};
use super::clock::Clock;
use super::keys::{GroupView, Part, View, parse};
use super::model::befall;
use super::server::RedisServer;
use crate::redis_cluster::RedisCluster;
use redis::{Cmd, FromRedisValue, cmd};
use std::collections::BTreeMap;
use std::time::Duration;
use strandline_core::stream::keyspace::loss::Befall;
use strandline_core::stream::{
    Contract, EventId, Layout, Outcome, ServerTime, StreamName, StreamOp, layout::PulseKeys,
};
use strandline_redis::{Address, Connection, Names, Server};
use tokio::runtime::{Builder, Runtime};

/// How long a server may take for one answer; only one that hangs reaches it.
pub const ANSWER_MS_MAX: u64 = 120_000;

/// A server of its own, or a cluster, and one connection to it.
pub struct Real {
    runtime: Runtime,
    server: Server<Connection>,
    place: Place,
    clock: Option<Clock>,
}

/// The processes.
enum Place {
    One(RedisServer),
    Cluster(RedisCluster),
}

impl Real {
    /// Starts a server.
    ///
    /// # Panics
    /// Without one: see [`RedisServer::start`].
    #[must_use]
    pub fn start(names: Names) -> Self {
        Self::start_by(names, None)
    }

    /// Starts a server whose clock the test moves.
    ///
    /// # Panics
    /// Without a server, or without a C compiler for the clock.
    #[must_use]
    pub fn start_frozen(names: Names) -> Self {
        Self::start_by(names, Some(Clock::new()))
    }

    fn start_by(names: Names, clock: Option<Clock>) -> Self {
        let process = RedisServer::start(clock.as_ref());
        let address = Address::one(&process.url()).expect("an address");
        Self::at(&address, names, Place::One(process), clock)
    }

    /// Starts a cluster of three masters whose clock the test moves.
    ///
    /// # Panics
    /// Without a server, or without a C compiler for the clock.
    #[must_use]
    pub fn start_frozen_cluster(names: Names) -> Self {
        let mut clock = Clock::new();
        let cluster = RedisCluster::start_frozen(&mut clock);
        let urls = cluster.urls();
        let address = Address::cluster(urls.iter().map(String::as_str)).expect("addresses");
        Self::at(&address, names, Place::Cluster(cluster), Some(clock))
    }

    fn at(address: &Address, names: Names, place: Place, clock: Option<Clock>) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
        // A machine under load may take its time; the default of the client gives up after half a second.
        let server = runtime.block_on(address.server(names, ANSWER_MS_MAX)).expect("connected");
        Self { runtime, server, place, clock }
    }

    /// The server's process.
    ///
    /// # Panics
    /// In a cluster, which has several.
    #[must_use]
    pub fn process(&self) -> &RedisServer {
        match &self.place {
            Place::One(process) => process,
            Place::Cluster(_) => panic!("a cluster has several processes"),
        }
    }

    /// Which master a stream lies on; 0 where there is one server.
    #[must_use]
    pub fn master_of(&self, stream: &StreamName) -> usize {
        match &self.place {
            Place::One(_) => 0,
            Place::Cluster(cluster) => cluster.master_of(&self.server.names().tagged(stream).life()),
        }
    }

    /// Moves a frozen clock; one that is not frozen moves by itself.
    pub fn advance_us(&mut self, us: u64) {
        if let Some(clock) = &mut self.clock {
            clock.advance_us(us);
        }
    }

    /// Sends one command and reads its answer.
    ///
    /// # Errors
    /// What the server answered.
    pub fn send<T: FromRedisValue>(&mut self, command: &Cmd) -> Result<T, redis::RedisError> {
        self.runtime.block_on(command.query_async(self.server.connection()))
    }

    fn must<T: FromRedisValue>(&mut self, words: &[&str]) -> T {
        let mut command = cmd(words[0]);
        command.arg(&words[1..]);
        self.send(&command).unwrap_or_else(|error| panic!("{words:?}: {error}"))
    }

    fn expiry(&mut self, key: &str) -> Option<u64> {
        u64::try_from(self.must::<i64>(&["PEXPIRETIME", key])).ok()
    }

    /// What lies under a real key.
    pub fn look(&mut self, key: &str) -> View {
        let kind: String = self.must(&["TYPE", key]);
        let expires_at_ms = self.expiry(key);
        match kind.as_str() {
            "none" => View::default(),
            "hash" => View::hash(self.must(&["HGETALL", key]), expires_at_ms),
            "set" => {
                let mut members: Vec<String> = self.must(&["SMEMBERS", key]);
                members.sort();
                View { kind: "set", members, expires_at_ms, ..View::default() }
            }
            "stream" => self.look_at_log(key, expires_at_ms),
            _ => View { kind: "string", expires_at_ms, ..View::default() },
        }
    }

    fn look_at_log(&mut self, key: &str, expires_at_ms: Option<u64>) -> View {
        let entries: Vec<(String, Vec<Vec<u8>>)> = self.must(&["XRANGE", key, "-", "+"]);
        let ids = entries.iter().map(|(id, _)| EventId::parse(id).expect("a position")).collect();
        let infos: Vec<BTreeMap<String, redis::Value>> = self.must(&["XINFO", "GROUPS", key]);
        let mut groups = BTreeMap::new();
        for info in infos {
            let text =
                |field: &str| -> String { redis::from_redis_value(info[field].clone()).expect("text") };
            let name = text("name");
            let consumers: Vec<BTreeMap<String, redis::Value>> =
                self.must(&["XINFO", "CONSUMERS", key, &name]);
            let consumers = consumers.into_iter().map(|info| {
                let name: String = redis::from_redis_value(info["name"].clone()).expect("text");
                let pending: u64 = redis::from_redis_value(info["pending"].clone()).expect("a number");
                (name, pending)
            });
            let view = GroupView {
                pending: redis::from_redis_value(info["pending"].clone()).expect("a number"),
                delivered: EventId::parse(&text("last-delivered-id")).expect("a position"),
                consumers: consumers.collect(),
            };
            groups.insert(name, view);
        }
        View { kind: "stream", ids, groups, expires_at_ms, ..View::default() }
    }

    /// A part of a stream's state in the Tagged layout, shown as the Pulse layout would.
    fn look_tagged(&mut self, stream: &StreamName, part: &Part) -> Option<View> {
        let keys = self.server.names().tagged(stream);
        let (generation, group) = match part {
            Part::Life => return Some(self.tagged_life(stream, &keys.life())),
            Part::Registry(_) => return None,
            Part::Log(g) | Part::Recovery(g) | Part::Once(g) | Part::Members(g) => (*g, None),
            Part::Contract(g, name) | Part::Lease(g, name) | Part::Alive(g, name) => {
                (*g, Some(name.as_str()))
            }
        };
        let [log, once, _, groups, _] = keys.generation(generation);
        match part {
            Part::Log(_) => return Some(self.look(&log)),
            Part::Once(_) => {
                // Ours hold a digest behind a space; the file's hold the event behind a NUL.
                let mut view = self.look(&once);
                for value in view.fields.values_mut() {
                    if let Some(at) = value.iter().position(|byte| *byte == b' ') {
                        value[at] = 0;
                    }
                }
                return Some(view);
            }
            Part::Life | Part::Registry(_) | Part::Recovery(_) | Part::Members(_) => {}
            Part::Contract(..) | Part::Lease(..) | Part::Alive(..) => {}
        }
        let expires = self.expiry(&groups);
        let all: BTreeMap<String, String> = self.must(&["HGETALL", &groups]);
        let of = |what: &str| -> BTreeMap<String, String> {
            let prefix = format!("{what}:");
            all.iter().filter_map(|(k, v)| Some((k.strip_prefix(&prefix)?.to_string(), v.clone()))).collect()
        };
        let own = |what: &str| group.and_then(|group| of(what).remove(group));
        let list = |text: String| -> Vec<(String, String)> {
            serde_json::from_str(&text).unwrap_or_else(|error| panic!("{text}: {error}"))
        };
        let mut fields = BTreeMap::new();
        match part {
            Part::Recovery(_) => fields.extend(of("cursor").into_iter().map(|(k, v)| (k, v.into_bytes()))),
            Part::Contract(..) => {
                let values = own("contract")
                    .map(|text| serde_json::from_str::<Vec<String>>(&text).expect("five fields"));
                let names = ["filter_kind", "filter_value", "start_id", "no_ack", "ack_grace_ms"];
                for (name, value) in names.iter().zip(values.into_iter().flatten()) {
                    fields.insert((*name).to_string(), value.into_bytes());
                }
            }
            Part::Lease(..) => {
                if let (Some(lease), Some(fence)) = (own("lease"), own("fence")) {
                    let (until, owner) = lease.split_once(' ').expect("an instant and an owner");
                    fields.insert("lease_until".into(), until.into());
                    fields.insert("owner".into(), owner.into());
                    fields.insert("fence".into(), fence.into_bytes());
                }
            }
            Part::Members(_) => {
                for (name, text) in of("members") {
                    let names: Vec<String> = list(text).into_iter().map(|(name, _)| name).collect();
                    fields.insert(name, serde_json::to_vec(&names).expect("text"));
                }
            }
            Part::Alive(..) => {
                for (name, us) in own("members").map(list).unwrap_or_default() {
                    fields.insert(name, format!("{us}000").into_bytes());
                }
            }
            Part::Life | Part::Log(_) | Part::Once(_) | Part::Registry(_) => {}
        }
        Some(View::hash(fields, expires))
    }

    fn tagged_life(&mut self, stream: &StreamName, key: &str) -> View {
        let view = self.look(key);
        let mut fields = view.fields;
        let Some(text) = fields.remove("contract") else { return View::hash(fields, view.expires_at_ms) };
        let text = String::from_utf8(text).expect("text");
        let contract = Contract::parse(&text, Layout::Tagged).expect("canonical");
        let generation = String::from_utf8_lossy(&fields["generation"]).parse().expect("a generation");
        let keys = PulseKeys { stream, generation };
        fields.remove("nonce");
        fields.insert("physical_key".into(), keys.log().into_bytes());
        fields.insert("retention_config".into(), contract.text(Layout::Pulse).into_bytes());
        if let Some(at) = contract.deadline_ms() {
            fields.insert("deadline_ms".into(), at.to_string().into_bytes());
        }
        if text.contains("|mode=ttl|") {
            fields.insert("ttl_owned".into(), b"1".to_vec());
        }
        View::hash(fields, view.expires_at_ms)
    }

    /// A raw command, done where it means the same in the Tagged layout.
    fn raw_tagged(&mut self, command: &[String]) -> Raw {
        let Some((stream, generation, what)) = befall(command) else {
            return if command[0] == "KEYS" { Raw::Done(String::new()) } else { Raw::PulseOnly };
        };
        let Ok(stream) = StreamName::new(stream) else { return Raw::PulseOnly };
        let keys = self.server.names().tagged(&stream);
        let [log, once, at, groups, _] = keys.generation(generation);
        let mut words: Vec<String> = command.to_vec();
        match what {
            Befall::LoseLife => words[1] = keys.life(),
            Befall::LoseOnce => words = vec!["DEL".into(), once, at],
            Befall::LapseLease(group) => {
                let field = format!("lease:{group}");
                let lease: Option<String> = self.must(&["HGET", &groups, &field]);
                let Some(lease) = lease else { return Raw::Done(String::new()) };
                let owner = lease.split_once(' ').expect("an owner").1.to_string();
                words = vec!["HSET".into(), groups, field, format!("0 {owner}")];
            }
            Befall::LoseLog | Befall::SetLogExpiry(_) | Befall::Append { .. } | Befall::Delete(_) => {
                words[1] = log;
            }
            Befall::LoseGroup(_) | Befall::MakeGroup(..) | Befall::MakeConsumer(..) => words[2] = log,
            Befall::ReadAs(..) => words[5] = log,
        }
        self.do_raw(&words)
    }

    fn do_raw(&mut self, words: &[String]) -> Raw {
        let mut command = cmd(&words[0]);
        command.arg(&words[1..]);
        let value: redis::Value = self.send(&command).unwrap_or_else(|error| panic!("{words:?}: {error}"));
        let id = redis::from_redis_value::<String>(value).unwrap_or_default();
        Raw::Done(if words[0] == "XADD" { id } else { String::new() })
    }
}

impl Backend for Real {
    fn name(&self) -> String {
        let what = match self.place {
            Place::One(_) => "redis",
            Place::Cluster(_) => "redis cluster",
        };
        format!("{what}, {}", super::answers::layout_name(self.layout()))
    }

    fn layout(&self) -> Layout {
        self.server.layout()
    }

    fn clear(&mut self) {
        self.must::<()>(&["FLUSHALL"]);
    }

    fn now(&mut self) -> ServerTime {
        let (seconds, us): (u64, u64) = self.must(&["TIME"]);
        ServerTime::from_us(seconds * 1_000_000 + us)
    }

    fn wait(&mut self, ms: u64) {
        match &mut self.clock {
            Some(clock) => clock.advance_us(ms * 1000),
            None => std::thread::sleep(Duration::from_millis(ms)),
        }
    }

    fn advance_us(&mut self, us: u64) {
        Self::advance_us(self, us);
    }

    fn apply(&mut self, op: &StreamOp) -> Outcome {
        self.runtime.block_on(self.server.apply(op))
    }

    fn raw(&mut self, command: &[String]) -> Raw {
        match self.layout() {
            Layout::Pulse => self.do_raw(command),
            Layout::Tagged => self.raw_tagged(command),
        }
    }

    fn script_flush(&mut self) {
        self.must::<()>(&["SCRIPT", "FLUSH"]);
    }

    fn view(&mut self, key: &str) -> Option<View> {
        match self.layout() {
            Layout::Pulse => Some(self.look(key)),
            Layout::Tagged => {
                let (name, part) = parse(key)?;
                self.look_tagged(&StreamName::new(name).ok()?, &part)
            }
        }
    }
}
