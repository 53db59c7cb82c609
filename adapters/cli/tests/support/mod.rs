//! The built program on directories of its own.
#![allow(dead_code)]

pub(crate) mod serving;

use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Longest wait for anything; only a program that hangs reaches it.
const WAIT: Duration = Duration::from_secs(60);

/// A replica's directory in a scratch directory.
pub(crate) struct Replica {
    pub(crate) home: tempfile::TempDir,
    /// Variables that every process of it gets.
    pub(crate) variables: Vec<(&'static str, OsString)>,
    /// What its node is started with besides.
    pub(crate) options: Vec<OsString>,
    node: Option<Child>,
}

/// How a command ended.
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) stdout: Vec<u8>,
    pub(crate) stderr: String,
}

impl Ended {
    /// Standard output as JSON lines.
    pub(crate) fn lines(&self) -> Vec<Value> {
        let lines = self.stdout.split(|b| *b == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_slice(line).expect("a line of JSON")).collect()
    }

    /// The last line.
    pub(crate) fn last(&self) -> Value {
        self.lines().pop().expect("at least one line")
    }
}

impl From<Output> for Ended {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code().expect("ended by itself"),
            stdout: output.stdout,
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// Looks until it holds.
pub(crate) fn wait_until(what: &str, holds: impl FnMut() -> bool) {
    wait_until_within(WAIT, what, holds);
}

/// Looks until it holds, for as long as `wait`.
pub(crate) fn wait_until_within(wait: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < wait, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

impl Replica {
    pub(crate) fn new() -> Self {
        let home = tempfile::tempdir().expect("a directory");
        Self { home, variables: Vec::new(), options: Vec::new(), node: None }
    }

    /// A replica that writes a log.
    pub(crate) fn writer(identity: &str) -> Self {
        let replica = Self::new();
        replica.done(["init", "--identity", identity]);
        replica
    }

    pub(crate) fn dir(&self) -> PathBuf {
        self.home.path().join("log")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn command<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_strandline"));
        command.env_remove("STRANDLINE_DIR").arg("--dir").arg(self.dir()).args(args).stdin(Stdio::null());
        command.envs(self.variables.iter().cloned());
        command
    }

    /// Runs a command with --json.
    pub(crate) fn run<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Ended {
        self.command(args).arg("--json").output().expect("runs").into()
    }

    /// Runs a command as a person would.
    pub(crate) fn plain<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Ended {
        self.command(args).output().expect("runs").into()
    }

    /// Runs a command that must be done.
    pub(crate) fn done<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Ended {
        let ended = self.run(args);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        ended
    }

    /// Begins a command, and does not wait for its end.
    pub(crate) fn begin<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Child {
        let mut command = self.command(args);
        command.arg("--json").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("runs")
    }

    /// Stores bytes given on standard input.
    pub(crate) fn put(&self, key: &str, bytes: &[u8]) -> Value {
        let ended = self.try_put(key, bytes);
        assert_eq!(ended.code, 0, "{}", ended.stderr);
        ended.last()
    }

    /// Stores bytes given on standard input, if it can be done.
    pub(crate) fn try_put(&self, key: &str, bytes: &[u8]) -> Ended {
        let mut child = self
            .command(["put", key, "--json"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("runs");
        // One that ends before it has read everything says why.
        let _ = child.stdin.take().expect("piped").write_all(bytes);
        Ended::from(child.wait_with_output().expect("ends"))
    }

    pub(crate) fn status(&self) -> Value {
        self.done(["status"]).last()
    }

    /// Starts the node; where it listens.
    pub(crate) fn serve(&mut self, peers: &str) -> String {
        self.try_serve(peers).unwrap_or_else(|code| panic!("the node ended with {code}: {}", self.said()))
    }

    /// Starts the node; where it listens, or the exit code with which it ended at once.
    pub(crate) fn try_serve(&mut self, peers: &str) -> Result<String, i32> {
        let (file, ready) = (self.path("peers.toml"), self.path("ready"));
        std::fs::write(&file, peers).expect("writes");
        let _ = std::fs::remove_file(&ready);
        let args = ["serve", "--listen", "127.0.0.1:0", "--ready-file"].map(Path::new);
        let mut command = self.command(args);
        let said = std::fs::File::create(self.path("said")).expect("creates");
        command.arg(&ready).arg("--peers").arg(&file).args(&self.options).stdout(Stdio::null()).stderr(said);
        let node = self.node.insert(command.spawn().expect("runs"));
        let mut ended = None;
        wait_until("the node", || {
            ended = node.try_wait().expect("asks");
            ended.is_some() || ready.exists()
        });
        match ended {
            Some(ended) => Err(ended.code().expect("ended by itself")),
            None => Ok(std::fs::read_to_string(&ready).expect("is there").trim().to_owned()),
        }
    }

    /// What the node said on standard error.
    pub(crate) fn said(&self) -> String {
        std::fs::read_to_string(self.path("said")).unwrap_or_default()
    }

    /// Ends the node with SIGTERM; its exit code.
    pub(crate) fn stop(&mut self) -> i32 {
        let mut node = self.node.take().expect("serves");
        let pid = rustix::process::Pid::from_child(&node);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("signals");
        node.wait().expect("ends").code().expect("ended by itself")
    }

    /// Waits until the node has ended by itself; its exit code.
    pub(crate) fn ended(&mut self) -> i32 {
        let node = self.node.as_mut().expect("serves");
        let mut status = None;
        wait_until("the node's end", || {
            status = node.try_wait().expect("asks");
            status.is_some()
        });
        self.node = None;
        status.and_then(|status| status.code()).expect("ended by itself")
    }

    /// The most memory that the node's process ever had, where the system tells.
    pub(crate) fn peak_bytes(&self) -> Option<u64> {
        let node = self.node.as_ref().expect("serves");
        let status = std::fs::read_to_string(format!("/proc/{}/status", node.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().expect("a number") * 1024)
    }

    /// Sends the node a signal.
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(self.node.as_ref().expect("serves"));
        rustix::process::kill_process(pid, signal).expect("signals");
    }

    /// Lets the node reload with SIGHUP.
    pub(crate) fn hangup(&self) {
        self.signal(rustix::process::Signal::HUP);
    }

    /// Ends the node with SIGKILL.
    pub(crate) fn kill(&mut self) {
        let mut node = self.node.take().expect("serves");
        node.kill().expect("kills");
        node.wait().expect("ends");
    }
}

impl Drop for Replica {
    fn drop(&mut self) {
        if let Some(mut node) = self.node.take() {
            let _ = node.kill();
            let _ = node.wait();
        }
    }
}

/// The regular files and directories below a root, sorted, with the files' bytes.
pub(crate) fn tree(root: &Path) -> Vec<(PathBuf, Option<Vec<u8>>)> {
    fn walk(root: &Path, at: &Path, out: &mut Vec<(PathBuf, Option<Vec<u8>>)>) {
        for entry in std::fs::read_dir(at).expect("lists") {
            let path = entry.expect("reads").path();
            let kind = std::fs::symlink_metadata(&path).expect("is there").file_type();
            let name = path.strip_prefix(root).expect("below").to_owned();
            if kind.is_dir() {
                out.push((name, None));
                walk(root, &path, out);
            } else if kind.is_file() {
                out.push((name, Some(std::fs::read(&path).expect("reads"))));
            }
        }
    }
    let mut out = Vec::new();
    walk(root, root, &mut out);
    out.sort();
    out
}

/// A small tree with a symlink, an empty directory and a name that is not UTF-8.
pub(crate) fn sample(root: &Path) {
    use std::os::unix::ffi::OsStrExt;
    std::fs::create_dir_all(root.join("d/empty")).expect("creates");
    std::fs::write(root.join("d/large"), vec![7; 4 << 20]).expect("writes");
    std::fs::write(root.join("d").join(OsStr::from_bytes(b"\xff.bin")), b"not utf-8").expect("writes");
    std::fs::write(root.join("none"), b"").expect("writes");
    std::os::unix::fs::symlink("none", root.join("link")).expect("links");
    for n in 0..300 {
        std::fs::write(root.join(format!("d/{n:03}")), n.to_string()).expect("writes");
    }
}
