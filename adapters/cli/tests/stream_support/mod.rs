//! A Redis server of a test's own.

use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A `redis-server` that keeps nothing on disk and ends with this value.
pub(crate) struct RedisServer {
    child: Child,
    port: u16,
    _directory: tempfile::TempDir,
}

impl RedisServer {
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// One with these arguments besides.
    pub(crate) fn start_with(arguments: &[&str]) -> Self {
        // A port that was free may be taken before it is listened on: then others are tried.
        (0..5).find_map(|_| Self::on_a_free_port(arguments)).expect("a redis-server that answers")
    }

    fn on_a_free_port(arguments: &[&str]) -> Option<Self> {
        let port = TcpListener::bind("127.0.0.1:0").expect("a port").local_addr().expect("one").port();
        let directory = tempfile::tempdir().expect("a directory");
        let child = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .arg("--dir")
            .arg(directory.path())
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("expected redis-server on the path");
        let mut server = Self { child, port, _directory: directory };
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if let Ok(Some(_)) = server.child.try_wait() {
                return None;
            }
            assert!(begun.elapsed() < Duration::from_secs(60), "the server does not answer on port {port}");
            std::thread::sleep(Duration::from_millis(20));
        }
        Some(server)
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
