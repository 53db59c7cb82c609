//! A real server in the place of the model: the shipped scripts mint and publish, and what they send is
//! read from its channels. The network between it and the hubs stays ours, so that scenarios can break
//! it.

use super::broker::{Asked, Server, State};
use redis::{Client, Connection, ProtocolVersion, PushInfo, PushKind, Value};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use strandline_core::coverage::{Minted, Standing, TopicName, Upstream};
use strandline_core::error::StorageFault;
use strandline_core::id::Incarnation;
use strandline_core::time::WallTime;
use strandline_redis_hub::{Asked as ScriptAsked, HubNames, HubScripts, Keeping, Offer, PubSub, decode};
use tempfile::TempDir;

/// A `redis-server` of its own, which ends with this value.
pub struct Process {
    child: Child,
    _directory: TempDir,
    port: u16,
}

impl Process {
    /// Starts one on a free port, without files.
    ///
    /// # Panics
    /// If there is no `redis-server`, or it does not answer.
    #[must_use]
    pub fn start() -> Self {
        // A port that was free may be taken before it is listened on: then others are tried.
        (0..5).find_map(|_| Self::on_a_free_port()).expect("a redis-server that answers")
    }

    fn on_a_free_port() -> Option<Self> {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let directory = TempDir::new().unwrap();
        let child = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .arg("--dir")
            .arg(directory.path())
            .stdout(Stdio::null())
            .spawn()
            .expect("expected redis-server on the path");
        let mut process = Self { child, _directory: directory, port };
        let until = Instant::now() + Duration::from_secs(60);
        while process.connect().and_then(|mut c| redis::cmd("PING").query::<String>(&mut c)).is_err() {
            if let Ok(Some(_)) = process.child.try_wait() {
                return None;
            }
            assert!(Instant::now() < until, "the server does not answer on port {port}");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(process)
    }

    fn connect(&self) -> redis::RedisResult<Connection> {
        let info = Client::open(format!("redis://127.0.0.1:{}/", self.port))?.get_connection_info().clone();
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        Client::open(info.set_redis_settings(settings))?.get_connection()
    }

    /// An empty server, and everything it sends from now on.
    ///
    /// # Panics
    /// If it does not answer.
    #[must_use]
    pub fn empty(&self) -> RedisServer {
        let mut commands = self.connect().unwrap();
        let () = redis::cmd("FLUSHALL").query(&mut commands).unwrap();
        let mut events = self.connect().unwrap();
        let (sender, pushed) = channel();
        events.set_push_sender(sender);
        // Its answer is a push message, for which the client would wait in vain.
        events.send_packed_command(&redis::cmd("PSUBSCRIBE").arg("*").get_packed_command()).unwrap();
        let keeping = Keeping { topic_state_ms: 86_400_000, token_ms: 60_000, history_events_max: 100 };
        let scripts = HubScripts::new(HubNames::new("scenario").unwrap(), keeping, PubSub::Plain);
        RedisServer { commands, events, pushed, scripts }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// See the module.
pub struct RedisServer {
    commands: Connection,
    events: Connection,
    pushed: Receiver<PushInfo>,
    scripts: HubScripts,
}

fn topic(name: &str) -> TopicName {
    TopicName::parse(name).expect("a topic")
}

impl Server for RedisServer {
    fn state(&mut self, name: &str) -> State {
        let key = self.scripts.names().state(&topic(name));
        let kind: String = redis::cmd("TYPE").arg(&key).query(&mut self.commands).unwrap();
        match kind.as_str() {
            "none" => State::Absent,
            "hash" => {
                let (incarnation, minted): (String, u64) = redis::cmd("HMGET")
                    .arg(&key)
                    .arg(&["incarnation", "sequence"])
                    .query(&mut self.commands)
                    .unwrap();
                State::At { incarnation: Incarnation::parse(&incarnation).unwrap(), minted }
            }
            _ => State::Rubbish,
        }
    }

    fn spoil(&mut self, name: &str, rubbish: bool) {
        let key = self.scripts.names().state(&topic(name));
        let () = redis::cmd("DEL").arg(&key).query(&mut self.commands).unwrap();
        if rubbish {
            let () = redis::cmd("SET").arg(&key).arg("rubbish").query(&mut self.commands).unwrap();
        }
    }

    fn flush(&mut self) {
        let () = redis::cmd("FLUSHALL").query(&mut self.commands).unwrap();
    }

    fn publish(&mut self, asked: Asked<'_>, token: &str, payload: &[u8]) -> Result<Minted, StorageFault> {
        let (name, Asked { seen, nonce, .. }) = (topic(asked.topic), asked);
        let offer = Offer { token, at: WallTime(0), kind: "", payload };
        self.scripts.run_publish(&mut self.commands, ScriptAsked { topic: &name, seen, nonce }, offer)
    }

    fn position(&mut self, asked: Asked<'_>) -> Result<Standing, StorageFault> {
        let (name, Asked { seen, nonce, .. }) = (topic(asked.topic), asked);
        self.scripts.run_position(&mut self.commands, ScriptAsked { topic: &name, seen, nonce })
    }

    fn sent(&mut self) -> Vec<(String, Upstream)> {
        // The answer comes behind everything that was sent before it.
        let _: Value = redis::cmd("PING").query(&mut self.events).unwrap();
        let messages = self.pushed.try_iter().filter(|push| push.kind == PushKind::PMessage);
        messages
            .map(|push| match &push.data[..] {
                [Value::BulkString(_), Value::BulkString(channel), Value::BulkString(bytes)] => {
                    let channel = String::from_utf8(channel.clone()).expect("our channels are text");
                    let name = channel.split(['{', '}']).nth(1).expect("a tag").to_owned();
                    (name, decode(bytes).expect("what our scripts send"))
                }
                other => panic!("expected a message, found {other:?}"),
            })
            .collect()
    }
}
