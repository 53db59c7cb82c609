//! `strandline events`, run.

use serde_json::Value;
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// Longest wait for anything; only a program that hangs reaches it.
const WAIT: Duration = Duration::from_secs(60);

/// How a command ended.
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ended {
    pub(crate) fn lines(&self) -> Vec<Value> {
        self.stdout.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
    }

    /// The one line of a command that is done.
    pub(crate) fn only(&self) -> Value {
        assert_eq!(self.code, 0, "{}", self.stderr);
        let mut lines = self.lines();
        assert_eq!(lines.len(), 1, "{}", self.stdout);
        lines.remove(0)
    }
}

/// The program with these arguments behind `events`.
pub(crate) fn events(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_strandline"));
    command.env_remove("STRANDLINE_EVENTS_URL").env_remove("STRANDLINE_REDIS").arg("events").args(args);
    command
}

/// Runs a command to its end, with these bytes as standard input.
pub(crate) fn ended(mut command: Command, input: &[u8]) -> Ended {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("runs");
    // One that ends before it has read everything says why.
    let _ = child.stdin.take().expect("piped").write_all(input);
    let output = child.wait_with_output().expect("ends");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    Ended {
        code: output.status.code().expect("ended by itself"),
        stdout: text(output.stdout),
        stderr: text(output.stderr),
    }
}

/// `events serve` on a free port of this machine.
pub(crate) struct Serving {
    child: Child,
    args: Vec<String>,
    files: tempfile::TempDir,
    pub(crate) address: String,
}

impl Serving {
    pub(crate) fn start(args: &[&str]) -> Self {
        let args: Vec<String> = args.iter().map(|&arg| arg.to_owned()).collect();
        let files = tempfile::tempdir().expect("a directory");
        let (child, address) = spawn("127.0.0.1:0", &args);
        Self { child, args, files, address }
    }

    /// Kills it and starts it anew at the same address.
    pub(crate) fn restart(&mut self) {
        self.child.kill().expect("kills");
        self.child.wait().expect("ends");
        let (child, address) = spawn(&self.address, &self.args);
        assert_eq!(address, self.address);
        self.child = child;
    }

    /// Ends it with SIGTERM; its exit code.
    pub(crate) fn stop(&mut self) -> i32 {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("signals");
        self.child.wait().expect("ends").code().expect("ended by itself")
    }

    /// A file with these bytes.
    pub(crate) fn file(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.files.path().join(name);
        std::fs::write(&path, bytes).expect("writes");
        path.to_str().expect("UTF-8").to_owned()
    }

    /// A command that asks this server.
    pub(crate) fn command(&self, args: &[&str], json: bool) -> Command {
        let mut command = events(args);
        command.env("STRANDLINE_EVENTS_URL", format!("http://{}", self.address));
        if json {
            command.arg("--json");
        }
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Ended {
        ended(self.command(args, true), b"")
    }

    /// As a person would.
    pub(crate) fn plain(&self, args: &[&str]) -> Ended {
        ended(self.command(args, false), b"")
    }

    /// Publishes bytes of standard input.
    pub(crate) fn publish(&self, args: &[&str], bytes: &[u8]) -> Ended {
        ended(self.command(&[&["publish"], args].concat(), true), bytes)
    }

    /// The answer to a request of HTTP/1.0, head and all.
    pub(crate) fn get(&self, path: &str) -> String {
        let mut socket = TcpStream::connect(&self.address).expect("connects");
        socket.set_read_timeout(Some(WAIT)).expect("sets");
        write!(socket, "GET {path} HTTP/1.1\r\nhost: h\r\nconnection: close\r\n\r\n").expect("sends");
        let mut answer = String::new();
        socket.read_to_string(&mut answer).expect("reads");
        answer
    }
}

fn spawn(listen: &str, args: &[String]) -> (Child, String) {
    let mut command = events(&["serve", "--listen", listen, "--json"]);
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().expect("runs");
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("reads");
    let ready: Value = serde_json::from_str(&line).expect("the line that says where it listens");
    (child, ready["http"].as_str().expect("an address").to_owned())
}

impl Drop for Serving {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// `events tail` beside a test.
pub(crate) struct Tail {
    child: Child,
    lines: Receiver<String>,
}

impl Tail {
    pub(crate) fn start(serving: &Serving, args: &[&str]) -> Self {
        let mut command = serving.command(&[&["tail"], args].concat(), true);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().expect("runs");
        let lines = read(child.stdout.take().expect("piped"));
        Self { child, lines }
    }

    /// The next line that it prints.
    pub(crate) fn next(&mut self) -> Value {
        let line = self.lines.recv_timeout(WAIT).expect("a line in time");
        serde_json::from_str(&line).expect("a line of JSON")
    }

    /// The next event. A tail may be told to synchronise first: on a machine that is busy, a server is
    /// reached later than a hub waits for it.
    pub(crate) fn event(&mut self) -> Value {
        loop {
            let line = self.next();
            if line["event"] == "event" {
                return line;
            }
            assert_eq!(line["event"], "sync_required", "{line}");
        }
    }
}

impl Drop for Tail {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read(output: ChildStdout) -> Receiver<String> {
    let (sender, lines) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    lines
}
