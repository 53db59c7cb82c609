//! Sentinels name the master, and another one after a failover.

use crate::support::{
    GIVE_UP, PATIENT, add_once, ask, handle, must, op, payloads, plain, remote_by, runtime, stream, tagged,
    told, wait,
};
use redis::Connection;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use strandline_core::stream::failover::Survival;
use strandline_core::stream::reply::Told;
use strandline_core::stream::unready::Again;
use strandline_core::stream::{Handle, Outcome, StreamError};
use strandline_redis::{Address, Remote};
use strandline_tests::streams::server::RedisServer;
use tempfile::TempDir;

/// A Sentinel that watches a master under the name `orders`.
pub(crate) struct Sentinel {
    child: Child,
    port: u16,
    _directory: TempDir,
}

impl Sentinel {
    fn of(master: &RedisServer) -> Self {
        let sentinel = Self::start(master.port(), "");
        wait("a Sentinel that knows the replica", || {
            let Ok(mut asked) = sentinel.connection() else { return false };
            let replicas: redis::RedisResult<Vec<redis::Value>> =
                redis::cmd("SENTINEL").arg("REPLICAS").arg("orders").query(&mut asked);
            replicas.is_ok_and(|replicas| !replicas.is_empty())
        });
        sentinel
    }

    /// One that watches the master at a port of this machine, with more lines of settings.
    pub(crate) fn start(master: u16, settings: &str) -> Self {
        let directory = TempDir::new().expect("a directory");
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        drop(listener);
        // It writes what it learns into this file.
        let file = directory.path().join("sentinel.conf");
        let text = format!(
            "port {port}\nbind 127.0.0.1\ndir {}\n{settings}sentinel monitor orders 127.0.0.1 {master} 1\n\
             sentinel down-after-milliseconds orders 3000\nsentinel failover-timeout orders 10000\n",
            directory.path().display(),
        );
        std::fs::write(&file, text).expect("written");
        let program = std::env::var_os("STRANDLINE_REDIS_SERVER").unwrap_or_else(|| "redis-server".into());
        let child = Command::new(program)
            .arg(&file)
            .arg("--sentinel")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server on the path");
        Self { child, port, _directory: directory }
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    fn connection(&self) -> redis::RedisResult<Connection> {
        redis::Client::open(self.url())?.get_connection_with_timeout(Duration::from_secs(5))
    }

    fn master(&self) -> u16 {
        let mut asked = self.connection().expect("a Sentinel that answers");
        let (_, port): (String, String) =
            must(&mut asked, &["SENTINEL", "GET-MASTER-ADDR-BY-NAME", "orders"]);
        port.parse().expect("a port")
    }

    /// Replicas that are in line with this master, by the Sentinel's word.
    fn is_calm(&self) -> bool {
        let mut asked = self.connection().expect("a Sentinel that answers");
        let replicas: Vec<std::collections::BTreeMap<String, String>> =
            must(&mut asked, &["SENTINEL", "REPLICAS", "orders"]);
        replicas.iter().any(|replica| replica["master-link-status"] == "ok")
    }
}

impl Drop for Sentinel {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn pair() -> (RedisServer, RedisServer) {
    let master = RedisServer::start_with(&["--repl-diskless-sync-delay", "0"]);
    let port = master.port().to_string();
    let replica =
        RedisServer::start_with(&["--replicaof", "127.0.0.1", &port, "--repl-diskless-sync-delay", "0"]);
    let mut asked = plain(&replica);
    wait("a replica whose link is up", || {
        must::<String>(&mut asked, &["INFO", "replication"]).contains("master_link_status:up")
    });
    (master, replica)
}

fn by(sentinel: &Sentinel) -> Remote {
    let url = sentinel.url();
    let address = Address::sentinel([url.as_str()], "orders", "redis://unused/").expect("addresses");
    remote_by(address, tagged(), PATIENT)
}

/// Publishes until it is done: what was on its way when the master went is asked again by its key.
async fn publish(remote: &Remote, handle: &mut Handle, key: &str) -> Told {
    let begun = Instant::now();
    loop {
        assert!(begun.elapsed() < GIVE_UP, "expected an answer to {key}");
        let outcome = remote.apply(&op(handle, add_once(key))).await;
        match &outcome {
            Outcome::Uncertain(_) => continue,
            Outcome::Answered { result: Err(StreamError::Server(fault)), .. }
                if fault.again() != Again::Never =>
            {
                continue;
            }
            Outcome::Answered { .. } => return told(handle, &add_once(key), outcome),
        }
    }
}

#[test]
fn a_failover_by_hand_is_followed_and_what_was_replicated_is_kept() {
    let (master, replica) = pair();
    let sentinel = Sentinel::of(&master);
    runtime().block_on(async {
        let remote = by(&sentinel);
        let mut orders = handle("orders");
        ask(&remote, &mut orders, add_once("a")).await;
        let (outcome, noted) = remote.apply_vouched(&op(&orders, add_once("b"))).await;
        told(&mut orders, &add_once("b"), outcome);
        let noted = noted.expect("a master says where it stands");
        wait("a replica that is in line", || sentinel.is_calm());
        // Nobody else waits for it: a failover by hand takes a replica as it is.
        let mut follower = plain(&replica);
        wait("a replica that has both", || {
            must::<i64>(&mut follower, &["XLEN", "s:{orders}:orders:1:log"]) == 2
        });
        must::<()>(&mut sentinel.connection().expect("a Sentinel"), &["SENTINEL", "FAILOVER", "orders"]);
        wait("another master", || sentinel.master() == replica.port());
        // The old master becomes a replica, and says so to whoever still writes to it. It is told to end
        // all connections, at a moment of the Sentinel's.
        wait("a master that follows", || {
            let info: redis::RedisResult<String> =
                crate::support::command(&["INFO", "replication"]).query(&mut plain(&master));
            info.is_ok_and(|info| info.contains("role:slave"))
        });
        publish(&remote, &mut orders, "c").await;
        publish(&remote, &mut orders, "b").await;
        assert_eq!(payloads(&remote, &mut orders).await, ["a", "b", "c"]);
        let lives: i64 = must(&mut plain(&replica), &["EXISTS", "s:{orders}:orders:life"]);
        assert_eq!(lives, 1);
        assert_eq!(remote.survival(&stream("orders"), Some(&noted)).await, Survival::Kept);
    });
}

#[test]
fn a_master_that_is_gone_is_replaced() {
    let (mut master, replica) = pair();
    let sentinel = Sentinel::of(&master);
    runtime().block_on(async {
        let remote = by(&sentinel);
        let mut orders = handle("orders");
        let (outcome, noted) = remote.apply_vouched(&op(&orders, add_once("a"))).await;
        told(&mut orders, &add_once("a"), outcome);
        let noted = noted.expect("a master says where it stands");
        wait("a replica that is in line", || sentinel.is_calm());
        let mut follower = plain(&replica);
        wait("a replica that has it", || {
            must::<i64>(&mut follower, &["EXISTS", "s:{orders}:orders:life"]) == 1
        });
        master.kill();
        publish(&remote, &mut orders, "b").await;
        assert_eq!(sentinel.master(), replica.port());
        assert_eq!(payloads(&remote, &mut orders).await, ["a", "b"]);
        assert_eq!(remote.survival(&stream("orders"), Some(&noted)).await, Survival::Kept);
    });
}
