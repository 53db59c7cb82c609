//! A Redis server of a test's own, on a free port of this machine.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running server; it ends with this value.
#[derive(Debug)]
pub struct RedisServer {
    child: Child,
    port: u16,
    directory: PathBuf,
}

/// How long a server may take to answer before the test gives up.
const START: Duration = Duration::from_secs(20);

impl RedisServer {
    /// Starts a server that keeps nothing on disk.
    ///
    /// # Panics
    /// Without `redis-server` on the path, or when it does not answer: a test that needs it fails.
    #[must_use]
    pub fn start(arguments: &[&str]) -> Self {
        for _ in 0..5 {
            if let Some(server) = Self::try_start(arguments) {
                return server;
            }
        }
        panic!("expected a redis-server that answers; install Redis 7.0 or later")
    }

    fn try_start(arguments: &[&str]) -> Option<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        drop(listener);
        let directory = std::env::temp_dir().join(format!("strandline-redis-{}-{port}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let program = std::env::var_os("STRANDLINE_REDIS_SERVER").unwrap_or_else(|| "redis-server".into());
        let child = Command::new(program)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .arg("--dir")
            .arg(&directory)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("expected redis-server on the path: {error}"));
        let mut server = Self { child, port, directory };
        server.answers().then_some(server)
    }

    fn answers(&mut self) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < START {
            if let Ok(Some(_)) = self.child.try_wait() {
                return false;
            }
            if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) {
                let mut answer = [0; 5];
                if stream.write_all(b"PING\r\n").is_ok()
                    && stream.read_exact(&mut answer).is_ok()
                    && &answer == b"+PONG"
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
        format!("redis://127.0.0.1:{}/?protocol=resp2", self.port)
    }

    /// The port it listens on.
    #[must_use]
    pub const fn port(&self) -> u16 {
        self.port
    }

    /// Its process.
    #[must_use]
    pub fn process(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        // Nothing is kept, so nothing is lost by ending it at once.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir(&self.directory);
    }
}
