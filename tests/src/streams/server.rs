//! A Redis server of a test's own, on a free port of this machine.

use super::clock::Clock;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running server; it ends with this value.
#[derive(Debug)]
pub struct RedisServer {
    child: Child,
    command: Spawn,
}

/// How it was started.
#[derive(Debug)]
struct Spawn {
    port: u16,
    directory: PathBuf,
    environment: Vec<(&'static str, PathBuf)>,
    arguments: Vec<String>,
}

impl Spawn {
    fn spawn(&self) -> Child {
        let program = std::env::var_os("STRANDLINE_REDIS_SERVER").unwrap_or_else(|| "redis-server".into());
        Command::new(program)
            .args([
                "--port",
                &self.port.to_string(),
                "--bind",
                "127.0.0.1",
                "--save",
                "",
                "--appendonly",
                "no",
            ])
            .arg("--dir")
            .arg(&self.directory)
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("expected redis-server on the path: {error}"))
    }
}

/// Ports that nobody listens on just now.
#[must_use]
pub(crate) fn free_ports<const N: usize>() -> [u16; N] {
    let listeners = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").expect("a free port"));
    listeners.map(|listener| listener.local_addr().expect("an address").port())
}

/// How long a server may take to answer before the test gives up.
const START: Duration = Duration::from_secs(20);

impl RedisServer {
    /// Starts a server that keeps nothing on disk, with the clock of this machine or a frozen one.
    ///
    /// # Panics
    /// Without `redis-server` on the path, or when it does not answer: a test that needs it fails.
    #[must_use]
    pub fn start(clock: Option<&Clock>) -> Self {
        let environment = clock.iter().flat_map(|clock| clock.environment()).collect();
        Self::start_by(environment, &[])
    }

    /// Starts a server with more words on its command line; a `--dir` is set already.
    ///
    /// # Panics
    /// As [`RedisServer::start`].
    #[must_use]
    pub fn start_with(arguments: &[&str]) -> Self {
        Self::start_by(Vec::new(), arguments)
    }

    fn start_by(environment: Vec<(&'static str, PathBuf)>, arguments: &[&str]) -> Self {
        for _ in 0..5 {
            let [port] = free_ports();
            let directory =
                std::env::temp_dir().join(format!("strandline-redis-{}-{port}", std::process::id()));
            std::fs::create_dir_all(&directory).expect("a directory");
            let arguments = arguments.iter().map(ToString::to_string).collect();
            let command = Spawn { port, directory, environment: environment.clone(), arguments };
            let mut server = Self { child: command.spawn(), command };
            if server.answers() {
                return server;
            }
        }
        panic!("expected a redis-server that answers; install Redis 7.0 or later")
    }

    /// Ends it at once, and starts it anew at the same port with these words more.
    ///
    /// # Panics
    /// If it does not come back.
    pub fn restart_with(&mut self, arguments: &[&str]) {
        self.kill();
        self.command.arguments.extend(arguments.iter().map(ToString::to_string));
        self.child = self.command.spawn();
        assert!(self.answers(), "expected the server to come back at port {}", self.port());
    }

    /// Ends it at once; it can come back by [`RedisServer::restart_with`].
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn answers(&mut self) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < START {
            if let Ok(Some(_)) = self.child.try_wait() {
                return false;
            }
            if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.command.port)) {
                let mut answer = [0; 5];
                // One that still loads its data, or wants a password, is there.
                if stream.write_all(b"PING\r\n").is_ok()
                    && stream.read_exact(&mut answer).is_ok()
                    && [b"+PONG", b"-LOAD", b"-NOAU", b"-MAST"].contains(&&answer)
                {
                    return true;
                }
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }

    /// Where it listens.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/?protocol=resp2", self.command.port)
    }

    /// The port it listens on.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.command.port
    }

    /// Its process.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
        // A test that had it write files gave it a directory of the test's own.
        let _ = std::fs::remove_dir(&self.command.directory);
    }
}
