//! A replica of the demo: a directory, and the real program run on it as child processes.

use crate::exit::{Exit, Failure};
use crate::report::StatusReport;
use serde::de::DeserializeOwned;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Longest wait for anything.
const WAIT: Duration = Duration::from_secs(120);

/// Time between two looks.
const PAUSE: Duration = Duration::from_millis(30);

/// Looks until there is an answer.
pub(super) fn wait_for<T>(
    what: &str,
    mut look: impl FnMut() -> Result<Option<T>, Failure>,
) -> Result<T, Failure> {
    let start = Instant::now();
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if start.elapsed() > WAIT {
            return Err(Failure::refused(format!("waited {} s in vain for {what}", WAIT.as_secs())));
        }
        thread::sleep(PAUSE);
    }
}

/// One replica.
pub(super) struct Replica {
    pub(super) name: &'static str,
    pub(super) token: String,
    program: PathBuf,
    /// Holds the replica's directory and the files of its node.
    home: PathBuf,
    node: Option<Child>,
}

impl Replica {
    pub(super) fn new(
        name: &'static str,
        token: String,
        program: &Path,
        root: &Path,
    ) -> Result<Self, Failure> {
        let home = root.join(name);
        fs::create_dir(&home).map_err(|e| Failure::io("make", &home, &e))?;
        Ok(Self { name, token, program: program.to_owned(), home, node: None })
    }

    /// Runs a command; its standard output if it ended as [`Exit::Done`].
    pub(super) fn run<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Result<Vec<u8>, Failure> {
        let args: Vec<OsString> = args.into_iter().map(|a| a.as_ref().to_owned()).collect();
        let ended = self.end_of(&args)?;
        if ended.status.success() { Ok(ended.stdout) } else { Err(self.unexpected(&args, &ended)) }
    }

    /// Runs a command that ends as [`Exit::Done`] or refused by the state it finds; whether it was
    /// refused.
    pub(super) fn is_refused<A: AsRef<OsStr>>(
        &self,
        args: impl IntoIterator<Item = A>,
    ) -> Result<bool, Failure> {
        let args: Vec<OsString> = args.into_iter().map(|a| a.as_ref().to_owned()).collect();
        let ended = self.end_of(&args)?;
        match refused(&ended) {
            false if !ended.status.success() => Err(self.unexpected(&args, &ended)),
            refused => Ok(refused),
        }
    }

    /// The last line of a command's output; `None` if it was refused by the state it found.
    pub(super) fn answer_unless_refused<T: DeserializeOwned>(
        &self,
        args: &[&str],
    ) -> Result<Option<T>, Failure> {
        let owned: Vec<OsString> = args.iter().map(OsString::from).collect();
        let ended = self.end_of(&owned)?;
        if ended.status.success() {
            return self.parse(args, &ended.stdout).map(Some);
        }
        if refused(&ended) { Ok(None) } else { Err(self.unexpected(&owned, &ended)) }
    }

    fn unexpected(&self, args: &[OsString], ended: &Output) -> Failure {
        let said = String::from_utf8_lossy(&ended.stderr).trim().to_owned();
        let shown = args.join(OsStr::new(" ")).to_string_lossy().into_owned();
        Failure::refused(format!("`{shown}` on {} ended with {}: {said}", self.name, ended.status))
    }

    fn end_of(&self, args: &[OsString]) -> Result<Output, Failure> {
        self.command(args).output().map_err(|e| Failure::io("run", &self.program, &e))
    }

    fn command(&self, args: &[OsString]) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("--json").arg("--dir").arg(self.home.join("log")).args(args).stdin(Stdio::null());
        command
    }

    /// The last line of a command's output.
    pub(super) fn answer<T: DeserializeOwned>(&self, args: &[&str]) -> Result<T, Failure> {
        self.parse(args, &self.run(args)?)
    }

    fn parse<T: DeserializeOwned>(&self, args: &[&str], out: &[u8]) -> Result<T, Failure> {
        let line = out.split(|b| *b == b'\n').rfind(|line| !line.is_empty()).unwrap_or_default();
        serde_json::from_slice(line).map_err(|e| {
            Failure::refused(format!("`{}` on {} answered no JSON: {e}", args.join(" "), self.name))
        })
    }

    pub(super) fn status(&self) -> Result<StatusReport, Failure> {
        self.answer(&["status"])
    }

    /// Starts the node and waits until it is ready; where it listens.
    pub(super) fn serve(&mut self, peers: &str) -> Result<SocketAddr, Failure> {
        let file = |name: &str| self.home.join(name);
        let (peers_file, ready, log) = (file("peers.toml"), file("ready"), file("node.log"));
        fs::write(&peers_file, format!("token = {:?}\n{peers}", self.token))
            .map_err(|e| Failure::io("write", &peers_file, &e))?;
        // From an earlier start, if there was one.
        let _ = fs::remove_file(&ready);
        let said = File::create(&log).map_err(|e| Failure::io("write", &log, &e))?;
        let args = ["serve", "--listen", "127.0.0.1:0", "--log-level", "info", "--peers"].map(OsString::from);
        let mut args = args.to_vec();
        args.extend([peers_file.into(), "--ready-file".into(), ready.clone().into()]);
        let child = self.command(&args).stdout(Stdio::null()).stderr(said).spawn();
        self.node = Some(child.map_err(|e| Failure::io("run", &self.program, &e))?);
        let name = self.name;
        wait_for(&format!("the node of {name}"), || {
            if let Some(ended) = self.node.as_mut().and_then(|node| node.try_wait().ok().flatten()) {
                let said = fs::read_to_string(&log).unwrap_or_default();
                return Err(Failure::refused(format!("the node of {name} ended with {ended}: {said}")));
            }
            Ok(fs::read_to_string(&ready).ok().and_then(|text| text.trim().parse().ok()))
        })
    }

    /// Ends the node with SIGKILL.
    pub(super) fn kill(&mut self) -> Result<(), Failure> {
        let Some(mut node) = self.node.take() else { return Ok(()) };
        node.kill()
            .and_then(|()| node.wait())
            .map(drop)
            .map_err(|e| Failure::refused(format!("cannot kill the node of {}: {e}", self.name)))
    }

    /// Ends the node with SIGTERM, in order.
    pub(super) fn stop(&mut self) -> Result<(), Failure> {
        let Some(mut node) = self.node.take() else { return Ok(()) };
        let failed = |e: std::io::Error| Failure::refused(format!("cannot end the node: {e}"));
        rustix::process::kill_process(rustix::process::Pid::from_child(&node), rustix::process::Signal::TERM)
            .map_err(|e| failed(e.into()))?;
        let ended = node.wait().map_err(failed)?;
        if ended.success() {
            return Ok(());
        }
        let said = fs::read_to_string(self.home.join("node.log")).unwrap_or_default();
        Err(Failure::refused(format!("the node of {} ended with {ended}: {said}", self.name)))
    }

    /// Waits until this replica holds what `other` holds, blobs included.
    pub(super) fn wait_until_same(&self, other: &StatusReport) -> Result<StatusReport, Failure> {
        let what = format!("{} to reach version {}", self.name, other.tail);
        let status = wait_for(&what, || {
            let status = self.status()?;
            Ok((status.tail == other.tail).then_some(status))
        })?;
        if status.tail_digest != other.tail_digest {
            return Err(Failure::refused(format!("{} has another history at {}", self.name, other.tail)));
        }
        wait_for(&format!("the blobs of {}", self.name), || {
            let verified = self.run(["verify"]);
            Ok(verified.is_ok().then_some(()))
        })?;
        Ok(status)
    }
}

fn refused(ended: &Output) -> bool {
    ended.status.code() == Some(i32::from(Exit::Refused.code()))
}

impl Drop for Replica {
    fn drop(&mut self) {
        // The demo has failed already if a node is still there.
        let _ = self.kill();
    }
}

/// What `import --json` ends with.
#[derive(Debug, serde::Deserialize)]
pub(super) struct Imported {
    pub(super) added: u64,
    pub(super) bytes_stored: u64,
    pub(super) skipped: u64,
}

/// What `compact --json` ends with.
#[derive(Debug, serde::Deserialize)]
pub(super) struct Compacted {
    pub(super) entries_dropped: u64,
    pub(super) tombstones_dropped: u64,
}
