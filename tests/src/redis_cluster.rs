//! A Redis Cluster of a test's own: masters on free ports of this machine, with nothing kept on disk.

use crate::streams::clock::Clock;
use redis::{Client, Connection, RedisResult, Value};
use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

mod replica;

pub use replica::Replica;

/// How long the cluster may take to stand before the test gives up.
const START: Duration = Duration::from_secs(60);
const SLOTS: u16 = 16_384;

/// One master.
#[derive(Debug)]
struct Master {
    child: Child,
    port: u16,
    bus: u16,
    directory: TempDir,
    environment: Environment,
}

/// What its process is started with.
type Environment = Vec<(&'static str, PathBuf)>;

impl Master {
    /// One that answers. A port that was free may be taken before it is listened on: then others are tried.
    fn start(environment: &Environment) -> Self {
        for _ in 0..5 {
            let [port, bus] = free_ports();
            let directory = TempDir::new().expect("a directory");
            let child = spawn(port, bus, &directory, environment);
            let mut master = Self { child, port, bus, directory, environment: environment.clone() };
            if master.answers() {
                return master;
            }
        }
        panic!("expected a redis-server that answers; install Redis 7.0 or later")
    }

    /// Whether it comes to answer, it and nobody else on its port.
    fn answers(&mut self) -> bool {
        let begun = Instant::now();
        let own = format!("process_id:{}\r", self.child.id());
        while begun.elapsed() < START {
            if let Ok(Some(_)) = self.child.try_wait() {
                return false;
            }
            if self.ask::<String>(&["INFO", "server"]).is_ok_and(|told| told.contains(&own)) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    fn connection(&self) -> RedisResult<Connection> {
        Client::open(self.url())?.get_connection_with_timeout(Duration::from_secs(5))
    }

    fn ask<T: redis::FromRedisValue>(&self, words: &[&str]) -> RedisResult<T> {
        let (name, arguments) = words.split_first().expect("a command");
        redis::cmd(name).arg(arguments).query(&mut self.connection()?)
    }
}

impl Drop for Master {
    fn drop(&mut self) {
        // Nothing is kept, so nothing is lost by ending it at once.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_ports<const N: usize>() -> [u16; N] {
    let listeners = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").expect("a free port"));
    listeners.map(|listener| listener.local_addr().expect("an address").port())
}

fn spawn(port: u16, bus: u16, directory: &TempDir, environment: &Environment) -> Child {
    // One that does not live by the time of this machine must not judge others by it.
    let timeout_ms = if environment.is_empty() { "2000" } else { "2000000000" };
    let program = std::env::var_os("STRANDLINE_REDIS_SERVER").unwrap_or_else(|| "redis-server".into());
    Command::new(program)
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
        .args(["--cluster-enabled", "yes", "--cluster-port", &bus.to_string()])
        // A master that is gone costs its own slots only.
        .args(["--cluster-require-full-coverage", "no", "--cluster-node-timeout", timeout_ms])
        .arg("--dir")
        .arg(directory.path())
        .envs(environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("expected redis-server on the path: {error}"))
}

/// A running cluster of masters without replicas; it ends with this value.
#[derive(Debug)]
pub struct RedisCluster {
    masters: Vec<Master>,
}

impl RedisCluster {
    /// Three masters that share the slots evenly.
    ///
    /// # Panics
    /// Without `redis-server` 7.0 or later on the path, or when the cluster does not stand in time: a
    /// test that needs it fails.
    #[must_use]
    pub fn start() -> Self {
        Self::start_by(&[], || {})
    }

    /// Three masters that live by a clock which the test moves; it goes on while they find each other.
    ///
    /// # Panics
    /// As [`RedisCluster::start`].
    #[must_use]
    pub fn start_frozen(clock: &mut Clock) -> Self {
        let environment = clock.environment();
        // They wait for some of their own seconds before they call the cluster sound.
        Self::start_by(&environment, || clock.advance_us(100_000))
    }

    fn start_by(environment: &[(&'static str, PathBuf)], mut tick: impl FnMut()) -> Self {
        let cluster = Self { masters: (0..3).map(|_| Master::start(&environment.to_vec())).collect() };
        for (index, master) in cluster.masters.iter().enumerate() {
            let (first, last) = cluster.range(index);
            let arguments = ["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()];
            master.ask::<()>(&arguments).expect("slots that nobody has");
        }
        for master in &cluster.masters[1..] {
            cluster.meet(master);
        }
        cluster.wait(&mut tick);
        cluster
    }

    fn meet(&self, other: &Master) {
        let (port, bus) = (other.port.to_string(), other.bus.to_string());
        self.masters[0].ask::<()>(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]).expect("a meeting");
    }

    /// Waits until every master knows all slots and calls the cluster sound.
    fn wait(&self, tick: &mut dyn FnMut()) {
        let masters = self.masters.len().to_string();
        for master in &self.masters {
            wait(&format!("a sound cluster at port {}", master.port), || {
                tick();
                let Ok(info) = master.ask::<String>(&["CLUSTER", "INFO"]) else { return false };
                let told: BTreeMap<&str, &str> = info.lines().filter_map(|l| l.split_once(':')).collect();
                told.get("cluster_state") == Some(&"ok")
                    && told.get("cluster_slots_ok") == Some(&SLOTS.to_string().as_str())
                    && told.get("cluster_size") == Some(&masters.as_str())
            });
        }
    }

    fn range(&self, index: usize) -> (u16, u16) {
        let masters = u16::try_from(self.masters.len()).expect("a few masters");
        let index = u16::try_from(index).expect("a few masters");
        let share = SLOTS / masters;
        let last = if index + 1 == masters { SLOTS - 1 } else { share * (index + 1) - 1 };
        (share * index, last)
    }

    /// Where the masters listen.
    #[must_use]
    pub fn urls(&self) -> Vec<String> {
        self.masters.iter().map(Master::url).collect()
    }

    /// A blocking connection to one of them.
    ///
    /// # Panics
    /// If it does not answer.
    #[must_use]
    pub fn connection(&self, master: usize) -> Connection {
        self.masters[master].connection().expect("a master that answers")
    }

    /// Which master a key, or a sharded channel, belonged to at the start.
    ///
    /// # Panics
    /// If the first master does not answer.
    #[must_use]
    pub fn master_of(&self, key: &str) -> usize {
        let slot = self.slot(key);
        (0..self.masters.len())
            .find(|index| (self.range(*index).0..=self.range(*index).1).contains(&slot))
            .expect("every slot has a master")
    }

    fn slot(&self, key: &str) -> u16 {
        self.masters[0].ask(&["CLUSTER", "KEYSLOT", key]).expect("a slot")
    }

    /// Kills a master and starts it anew: its data and its place in the cluster are gone, so it is
    /// given its slots again and meets the others.
    ///
    /// # Panics
    /// If it does not come back.
    pub fn restart(&mut self, master: usize) {
        let (first, last) = self.range(master);
        let gone = &mut self.masters[master];
        gone.child.kill().expect("a process to kill");
        gone.child.wait().expect("its end");
        // It keeps who it is; what is lost is the data.
        gone.child = spawn(gone.port, gone.bus, &gone.directory, &gone.environment);
        let back = &self.masters[master];
        wait(&format!("an answer on port {}", back.port), || {
            back.ask::<String>(&["PING"]).is_ok_and(|pong| pong == "PONG")
        });
        // Its own file names its slots already, unless it was lost with the process.
        let _ = back.ask::<Value>(&["CLUSTER", "ADDSLOTSRANGE", &first.to_string(), &last.to_string()]);
        self.wait(&mut || {});
    }

    /// Gives the slot of a key, which must have no data beside `keys`, to another master.
    ///
    /// # Panics
    /// If the cluster refuses.
    pub fn move_slot(&self, key: &str, keys: &[&str], to: usize) {
        self.begin_move(key, to);
        self.carry(key, keys, to);
        self.end_move(key, to);
    }

    /// Opens the move of a key's slot: from now on keys that are gone from there are looked for at `to`.
    ///
    /// # Panics
    /// If the cluster refuses.
    pub fn begin_move(&self, key: &str, to: usize) {
        let (slot, from) = (self.slot(key).to_string(), self.master_of(key));
        let (source, target) = (&self.masters[from], &self.masters[to]);
        target.ask::<()>(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &self.id(from)]).expect("importing");
        source.ask::<()>(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &self.id(to)]).expect("migrating");
    }

    /// Carries keys of a slot that moves.
    ///
    /// # Panics
    /// If the cluster refuses.
    pub fn carry(&self, key: &str, keys: &[&str], to: usize) {
        let port = self.masters[to].port.to_string();
        let mut migrate = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
        migrate.extend_from_slice(keys);
        self.masters[self.master_of(key)].ask::<Value>(&migrate).expect("a migration");
    }

    /// Ends the move of a slot.
    ///
    /// # Panics
    /// If the cluster refuses.
    pub fn end_move(&self, key: &str, to: usize) {
        let slot = self.slot(key).to_string();
        for master in [to, self.master_of(key)] {
            let command = ["CLUSTER", "SETSLOT", &slot, "NODE", &self.id(to)];
            self.masters[master].ask::<()>(&command).expect("a new owner");
        }
    }

    fn id(&self, master: usize) -> String {
        self.masters[master].ask(&["CLUSTER", "MYID"]).expect("an ID")
    }

    /// The ports they listen on.
    #[must_use]
    pub fn ports(&self) -> Vec<u16> {
        self.masters.iter().map(|master| master.port).collect()
    }
}

fn wait(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < START, "expected {what}, waited {START:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_masters_share_the_slots_and_one_can_come_back_empty_and_a_slot_can_move() {
        let mut cluster = RedisCluster::start();
        let homes: Vec<(usize, String)> =
            (0..64).map(|i| format!("{{t{i}}}")).map(|key| (cluster.master_of(&key), key)).collect();
        for master in 0..3 {
            let (_, key) = homes.iter().find(|(home, _)| *home == master).expect("a key of each");
            let set: RedisResult<()> =
                redis::cmd("SET").arg(key).arg("1").query(&mut cluster.connection(master));
            assert!(set.is_ok(), "{set:?}");
        }
        let (_, key) = homes.iter().find(|(home, _)| *home == 1).expect("a key of the second");
        cluster.move_slot(key, &[key], 2);
        let moved: String = redis::cmd("GET").arg(key).query(&mut cluster.connection(2)).unwrap();
        assert_eq!(moved, "1");
        let (_, key) = homes.iter().find(|(home, _)| *home == 0).expect("a key of the first");
        cluster.restart(0);
        let gone: Option<String> = redis::cmd("GET").arg(key).query(&mut cluster.connection(0)).unwrap();
        assert_eq!(gone, None);
    }
}
