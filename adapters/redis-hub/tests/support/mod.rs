//! A server of this test's own.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A `redis-server` that ends with this value.
pub(crate) struct Server {
    child: Child,
    directory: TempDir,
    /// Where it listens.
    port: u16,
}

impl Server {
    /// Starts one on a free port, without files.
    ///
    /// # Panics
    /// If there is no `redis-server`, or it does not answer.
    pub(crate) fn start() -> Self {
        Self::start_with(&[])
    }

    /// The same with further arguments.
    pub(crate) fn start_with(args: &[&str]) -> Self {
        // A port that was free may be taken before it is listened on: then others are tried.
        let server = (0..5).find_map(|_| {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let directory = TempDir::new().unwrap();
            let child = spawn(port, &directory, args);
            let mut server = Self { child, directory, port };
            server.answers().then_some(server)
        });
        server.expect("a redis-server that answers")
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://{}/", self.address())
    }

    /// Its address, without the scheme.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// A blocking connection.
    pub(crate) fn connection(&self) -> redis::Connection {
        redis::Client::open(self.url()).unwrap().get_connection().unwrap()
    }

    /// Kills it and starts it anew: everything is gone but what it was told to save.
    pub(crate) fn restart(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
        self.child = spawn(self.port, &self.directory, &[]);
        assert!(self.answers(), "the server does not come back on port {}", self.port);
    }

    fn answers(&mut self) -> bool {
        let until = Instant::now() + Duration::from_secs(60);
        let client = redis::Client::open(self.url()).unwrap();
        while client.get_connection().and_then(|mut c| redis::cmd("PING").query::<String>(&mut c)).is_err() {
            if let Ok(Some(_)) = self.child.try_wait() {
                return false;
            }
            assert!(Instant::now() < until, "the server does not answer on port {}", self.port);
            std::thread::sleep(Duration::from_millis(20));
        }
        true
    }
}

fn spawn(port: u16, directory: &TempDir, args: &[&str]) -> Child {
    Command::new("redis-server")
        .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
        .arg("--dir")
        .arg(directory.path())
        .args(args)
        .stdout(Stdio::null())
        .spawn()
        .expect("expected redis-server on the path")
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
