//! Nodes that replicate through proxies, while processes are killed, stopped and started, connections
//! are cut, delayed and held, logs compacted, and clients write through the program. At the end all
//! replicas hold the same, and that is what the clients were told.

use crate::disk::Dice;
use crate::proxy::Proxy;
use crate::soak;
use crate::support::{Ended, Replica, wait_until, wait_until_within};
use crate::told::{Told, found};
use rustix::process::Signal;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use strandline_file::blocking::BlockingReplica;
use strandline_file::node::NodeConfig;

const CLIENTS: u64 = 2;

/// Keys of each client: few, so that most are written and deleted many times.
const KEYS: u64 = 12;

/// Longest wait for the last repair.
const CONVERGE: Duration = Duration::from_secs(120);

/// A dialer, whom it calls, and the proxy between them.
struct Line {
    from: usize,
    to: usize,
    proxy: Proxy,
}

/// How often what happened.
#[derive(Debug, Default)]
struct Counts {
    kills: u64,
    stops: u64,
    second_openers: u64,
    compactions: u64,
}

struct Storm {
    nodes: Vec<Replica>,
    lines: Vec<Line>,
    dice: Dice,
    counts: Counts,
}

const NAMES: [&str; 3] = ["a", "b", "c"];

impl Storm {
    /// A writer and its followers, each of which calls all before it.
    fn new(count: usize, seed: u64) -> Self {
        let mut nodes = vec![Replica::writer(NAMES[0])];
        let log = nodes[0].status()["log"].as_str().expect("a log").to_owned();
        for name in &NAMES[1..count] {
            let follower = Replica::new();
            follower.done(["init", "--identity", name, "--follow", "--log", &log]);
            nodes.push(follower);
        }
        nodes[0].done(["members", "clear"]);
        let pairs = (1..count).flat_map(|from| (0..from).map(move |to| (from, to)));
        let lines = pairs.map(|(from, to)| Line { from, to, proxy: Proxy::start() }).collect();
        let mut storm = Self { nodes, lines, dice: Dice(seed), counts: Counts::default() };
        (0..count).for_each(|node| storm.start(node));
        storm
    }

    /// Starts a node, as soon as no command of a client has its directory open.
    fn start(&mut self, node: usize) {
        let mut peers = format!("token = \"of {}\"\n", NAMES[node]);
        for line in self.lines.iter().filter(|line| line.from == node || line.to == node) {
            let other = if line.from == node { line.to } else { line.from };
            peers.push_str(&format!("[[peers]]\nidentity = \"{0}\"\ntoken = \"of {0}\"\n", NAMES[other]));
            if line.from == node {
                peers.push_str(&format!("address = \"{}\"\n", line.proxy.address));
            }
        }
        let mut address = None;
        wait_until("the directory", || match self.nodes[node].try_serve(&peers) {
            Ok(found) => {
                address = Some(found);
                true
            }
            Err(code) => {
                let said = self.nodes[node].said();
                assert!(code == 1 && said.contains("in use"), "a node ended with {code}: {said}");
                false
            }
        });
        let address = address.expect("started");
        for line in self.lines.iter().filter(|line| line.to == node) {
            line.proxy.lead_to(&address);
        }
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.dice.below(bound)
    }

    fn pause(&mut self, ms_max: u64) {
        std::thread::sleep(Duration::from_millis(self.dice.below(ms_max)));
    }

    /// Lets one thing go wrong.
    fn step(&mut self) {
        let count = self.nodes.len() as u64;
        let node = self.below(count) as usize;
        let line = self.below(self.lines.len() as u64) as usize;
        match self.below(20) {
            0..8 => {
                self.nodes[node].kill();
                self.counts.kills += 1;
                self.pause(300);
                self.start(node);
            }
            8..10 => {
                self.nodes[node].signal(Signal::STOP);
                self.counts.stops += 1;
                self.pause(700);
                self.nodes[node].signal(Signal::CONT);
            }
            10..12 => self.lines[line].proxy.cut(),
            12..15 => {
                let bytes = self.below(30_000) as u32;
                self.lines[line].proxy.cut_after(bytes);
            }
            15 => {
                let ms = self.below(40);
                self.lines[line].proxy.delay(ms);
            }
            16 => {
                let direction = self.below(2) as usize;
                self.lines[line].proxy.still(direction, true);
                self.pause(600);
                self.lines[line].proxy.still(direction, false);
            }
            17 => self.open_twice(node),
            18 => {
                self.nodes.iter_mut().for_each(Replica::kill);
                self.counts.kills += count;
                (0..self.nodes.len()).for_each(|node| self.start(node));
            }
            _ => {
                // Refused while another one runs, or with nothing to drop; lost with the node.
                let code = self.nodes[0].run(["compact"]).code;
                assert!([0, 1, 4, 5].contains(&code), "a compaction ended with {code}");
                self.counts.compactions += u64::from(code == 0);
            }
        }
        self.pause(200);
    }

    /// A second node on the directory of one that runs.
    fn open_twice(&mut self, node: usize) {
        let (peers, ready) = (self.nodes[node].path("peers.toml"), self.nodes[node].path("second"));
        let args = ["serve", "--listen", "127.0.0.1:0", "--ready-file"].map(PathBuf::from);
        let files = [ready.clone(), "--peers".into(), peers];
        let second = self.nodes[node].run(args.into_iter().chain(files));
        assert_eq!(second.code, 1, "a second opener: {}", second.stderr);
        assert!(second.stderr.contains("in use") && !ready.exists(), "{}", second.stderr);
        assert!(BlockingReplica::open(self.nodes[node].dir(), NodeConfig::default()).is_err());
        self.counts.second_openers += 1;
    }

    /// Ends all faults, starts every node anew, and waits until all hold the same.
    fn calm(&mut self) {
        self.lines.iter().for_each(|line| line.proxy.heal());
        for node in 0..self.nodes.len() {
            self.nodes[node].kill();
            self.start(node);
        }
        let at = |node: &Replica| {
            let status = node.status();
            (status["tail"].clone(), status["tail_digest"].clone())
        };
        for node in &self.nodes[1..] {
            let mut last = serde_json::Value::Null;
            wait_until_within(CONVERGE, "the same history, or a verdict that says why not", || {
                let verdicts = node.status()["links"].clone();
                if verdicts != last {
                    println!("links: {verdicts}");
                    last = verdicts;
                }
                at(node) == at(&self.nodes[0])
            });
            wait_until("the blobs", || node.run(["verify"]).code == 0);
        }
    }
}

/// What a command of a client is, beside its replica.
fn program(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_strandline"));
    command.arg("--json").arg("--dir").arg(dir).args(args);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs a command; `None` if it was killed after `kill_after` instead of ending.
fn ends(dir: &Path, args: &[&str], input: &str, kill_after: Option<Duration>) -> Option<Ended> {
    let mut child = program(dir, args).spawn().expect("runs");
    // One that ends before it has read everything says why.
    let _ = child.stdin.take().expect("piped").write_all(input.as_bytes());
    if let Some(after) = kill_after {
        std::thread::sleep(after);
        child.kill().expect("kills");
    }
    let output = child.wait_with_output().expect("ends");
    output.status.code().is_some().then(|| Ended::from(output))
}

/// Writes through the program until it is told to stop.
fn client(number: u64, seed: u64, dir: &Path, told: &Mutex<Told>, stop: &AtomicBool) {
    let mut dice = Dice(seed ^ (number + 1));
    for step in 0.. {
        if stop.load(Ordering::Relaxed) {
            return;
        }
        let key = format!("c{number}k{}", dice.below(KEYS));
        let delete = dice.below(4) == 0;
        let mut content = format!("{key}-{step}");
        if dice.below(10) == 0 {
            content.push_str(&"long".repeat(20_000));
        }
        let asked = (!delete).then(|| content.clone());
        told.lock().expect("no client panics").ask(&key, asked);
        let args = [if delete { "delete" } else { "put" }, &key];
        let kill_after = (dice.below(12) == 0).then(|| Duration::from_millis(dice.below(30)));
        let ended = ends(dir, &args, &content, kill_after);
        let version = judge_end(&key, ended, &mut told.lock().expect("no client panics"));
        if let (Some(version), false) = (version, delete) {
            read_back(dir, &key, &version);
        }
    }
}

/// What the end of a command says to whoever asked for it.
fn judge_end(key: &str, ended: Option<Ended>, told: &mut Told) -> Option<String> {
    let Some(ended) = ended else {
        told.uncertain += 1;
        return None;
    };
    match ended.code {
        0 => {
            let version = ended.last()["version"].as_str().expect("a version").to_owned();
            told.ack(key, &version);
            return Some(version);
        }
        // Both say that nothing happened.
        1 | 4 => told.refuse(key),
        5 => told.uncertain += 1,
        code => panic!("a write of {key} ended with {code}: {}", ended.stderr),
    }
    None
}

/// Whoever was acknowledged reads what it wrote.
fn read_back(dir: &Path, key: &str, version: &str) {
    let ended = ends(dir, &["get", key], "", None).expect("ends by itself");
    match ended.code {
        0 => assert_eq!(ended.last()["version"], version, "{key} was acknowledged at that version"),
        1 => assert!(ended.stderr.contains("in use"), "{key} was acknowledged: {}", ended.stderr),
        4 => {}
        code => panic!("a read of {key} ended with {code}: {}", ended.stderr),
    }
}

fn storm(nodes: usize, kills: u64, seed: u64) {
    let mut storm = Storm::new(nodes, seed);
    let (told, stop) = (Mutex::new(Told::default()), AtomicBool::new(false));
    let dir = storm.nodes[0].dir();
    std::thread::scope(|scope| {
        for number in 0..CLIENTS {
            let (dir, told, stop) = (&dir, &told, &stop);
            scope.spawn(move || client(number, seed, dir, told, stop));
        }
        let _stop = StopOnDrop(&stop);
        while storm.counts.kills < kills {
            storm.step();
        }
        storm.open_twice(0);
    });
    storm.calm();
    let told = told.into_inner().expect("no client panics");
    let mut held = Vec::new();
    for node in &mut storm.nodes {
        assert_eq!(node.stop(), 0);
        let (replica, _) = BlockingReplica::open(node.dir(), NodeConfig::default()).expect("opens");
        held.push(found(&replica).expect("all is readable"));
        replica.close().expect("closes");
    }
    told.judge(&held[0]).unwrap_or_else(|why| panic!("seed {seed}: {why}"));
    assert!(held.iter().all(|other| *other == held[0]), "seed {seed}: replicas of one digest differ");
    let cuts: u64 = storm.lines.iter().map(|line| line.proxy.cuts()).sum();
    println!(
        "{nodes} nodes, seed {seed}: {:?}, {cuts} connections cut, {} acknowledged, {} uncertain, {} refused",
        storm.counts, told.acknowledged, told.uncertain, told.refused
    );
    assert!(told.acknowledged > 5 * kills && cuts > 0, "too few to prove anything");
}

/// Lets the clients end also when the storm ends with a panic.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn two_nodes_in_a_storm() {
    for seed in if soak() { 100..110 } else { 1..2 } {
        storm(2, if soak() { 60 } else { 12 }, seed);
    }
}

#[test]
fn three_nodes_in_a_storm() {
    for seed in if soak() { 200..210 } else { 2..3 } {
        storm(3, if soak() { 60 } else { 14 }, seed);
    }
}
