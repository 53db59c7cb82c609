//! A server of the benchmark's own.

use std::error::Error;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A `redis-server` that keeps nothing on disk and ends with this value.
pub(super) struct RedisServer {
    child: Child,
    port: u16,
}

impl RedisServer {
    pub(super) fn start(work: &Path) -> Result<Self, Box<dyn Error>> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let child = Command::new("redis-server")
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .arg("--dir")
            .arg(work)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|e| format!("expected redis-server on the path: {e}"))?;
        let server = Self { child, port };
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if begun.elapsed() > Duration::from_secs(20) {
                return Err("the server does not answer".into());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(server)
    }

    /// How long these commands have taken it so far, by its own count, in microseconds. Those inside a script
    /// are part of the script's time.
    pub(super) async fn busy_us(&self, commands: &[&str]) -> f64 {
        let mut connection = self.client().get_multiplexed_async_connection().await.expect("it answers");
        let mut info = redis::cmd("INFO");
        info.arg("commandstats");
        let text: String = info.query_async(&mut connection).await.expect("it answers");
        let us_of = |command: &&str| {
            let mut lines = text.lines().filter_map(|line| line.strip_prefix("cmdstat_")?.split_once(':'));
            let (_, counts) = lines.find(|(name, _)| name == command)?;
            counts.split(',').find_map(|count| count.strip_prefix("usec=")?.parse::<f64>().ok())
        };
        commands.iter().filter_map(us_of).sum()
    }

    pub(super) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    pub(super) fn client(&self) -> redis::Client {
        redis::Client::open(self.url()).expect("an address")
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
