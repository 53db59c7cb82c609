//! A node that serves HTTP beside its peers.

use super::Replica;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// It ends when it is dropped.
pub(crate) struct Serving {
    child: Child,
    pub(crate) http: String,
}

impl Serving {
    /// Starts `serve` on free ports, and waits until it is ready.
    pub(crate) fn start(replica: &Replica, more: &[&str]) -> Self {
        let peers = replica.path("peers.toml");
        std::fs::write(&peers, "").expect("writes");
        let mut child = Command::new(env!("CARGO_BIN_EXE_strandline"))
            .args(["--json", "serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0"])
            .args(more)
            .arg("--peers")
            .arg(&peers)
            .arg("--dir")
            .arg(replica.dir())
            .stdout(Stdio::piped())
            .spawn()
            .expect("runs");
        let mut line = String::new();
        let mut stdout = BufReader::new(child.stdout.take().expect("piped"));
        stdout.read_line(&mut line).expect("it says that it is ready");
        let ready: serde_json::Value = serde_json::from_str(&line).expect("JSON");
        Self { child, http: ready["http"].as_str().expect("an address").to_owned() }
    }

    /// Ends it as a machine would.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("kills");
        self.child.wait().expect("ends");
    }

    /// Ends it as a person would; its exit code.
    pub(crate) fn stop(mut self) -> i32 {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("signals");
        self.child.wait().expect("ends").code().expect("ended by itself")
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
