//! Eight processes publish, lead and take streams from under each other, while they are killed at random
//! and their ways to the server are cut, slowed and held up.

use crate::proxy::Proxy;
use crate::support::{must, plain};
use redis::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use strandline_core::seed::Seed;
use strandline_core::stream::EventId;
use strandline_tests::streams::server::RedisServer;

const WORKERS: u64 = 8;

/// The last events of a life are published again by the next one: whether they were is not known.
const OVERLAP: u64 = 3;

struct Worker {
    child: Child,
    life: u64,
}

/// What one worker told.
struct Line {
    worker: u64,
    life: u64,
    words: Vec<String>,
}

/// Everything that was told, and what holds of it.
#[derive(Default)]
struct Told {
    /// For each worker, the number behind the last event that it has an answer for.
    next: BTreeMap<u64, u64>,
    tried: BTreeSet<String>,
    done: BTreeMap<String, String>,
    again: usize,
    unsure: usize,
    over: usize,
    /// For each fence: its owner, when it was first had, until when it was had at least.
    leases: BTreeMap<u64, (String, u64, u64)>,
}

impl Told {
    fn take(&mut self, line: &Line) {
        let words: Vec<&str> = line.words.iter().map(String::as_str).collect();
        match words[..] {
            ["try", key] => _ = self.tried.insert(key.into()),
            ["done", key, id, how] => {
                let before = self.done.insert(key.into(), id.into());
                assert!(before.is_none_or(|before| before == id), "{key} is at {id} and was elsewhere");
                self.again += usize::from(how == "again");
                let number: u64 = key.rsplit('-').next().and_then(|n| n.parse().ok()).expect("a number");
                self.next.insert(line.worker, number + 1);
            }
            ["lease", fence, from, till] => {
                let owner = format!("{}.{}", line.worker, line.life);
                let number = |text: &str| text.parse::<u64>().expect("a number");
                let (fence, from, till) = (number(fence), number(from), number(till));
                let had = self.leases.entry(fence).or_insert_with(|| (owner.clone(), from, till));
                assert_eq!(had.0, owner, "fence {fence} has one owner");
                had.1 = had.1.min(from);
                had.2 = had.2.max(till);
            }
            ["unsure"] => self.unsure += 1,
            ["over"] => self.over += 1,
            _ => panic!("worker {} of life {} says {:?}", line.worker, line.life, line.words.join(" ")),
        }
    }

    /// In the server's time no two had the lease at once, and fences rise with it.
    fn leases_follow_each_other(&self) {
        let all: Vec<(&u64, &(String, u64, u64))> = self.leases.iter().collect();
        for pair in all.windows(2) {
            let [(fence, (owner, _, till)), (next, (heir, from, _))] = pair else { continue };
            assert!(
                from >= till,
                "fence {fence} of {owner} lasts till {till}, {next} of {heir} begins at {from}"
            );
        }
    }
}

fn start(port: u16, number: u64, life: u64, first: u64, lines: &Sender<Line>) -> Worker {
    let mut child = Command::new(env!("CARGO_BIN_EXE_stream_worker"))
        .args([u64::from(port), number, life, first].map(|word| word.to_string()))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a worker");
    let out = BufReader::new(child.stdout.take().expect("its output"));
    let lines = lines.clone();
    std::thread::spawn(move || {
        for line in out.split(b'\n').map_while(Result::ok) {
            // A line that a kill cut off has lost its end, and with it what it says.
            let Ok(text) = String::from_utf8(line) else { continue };
            let words = text.split(' ').map(String::from).collect();
            if lines.send(Line { worker: number, life, words }).is_err() {
                break;
            }
        }
    });
    Worker { child, life }
}

/// Numbers from a seed.
struct Dice(Seed, u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.1 += 1;
        self.0.number("storm", self.1) % bound
    }
}

fn disturb(proxy: &Proxy, dice: &mut Dice) {
    match dice.below(8) {
        0 => proxy.cut(),
        1 => proxy.cut_after(u32::try_from(dice.below(4_000)).expect("small")),
        2 => proxy.delay(dice.below(40)),
        // Long enough for answers to be given up.
        3 => proxy.still(usize::from(dice.below(2) == 0), true),
        _ => proxy.heal(),
    }
}

fn drain(lines: &Receiver<Line>, told: &mut Told, time: Duration) {
    let until = Instant::now() + time;
    while let Ok(line) = lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
        told.take(&line);
    }
}

/// All keys of the stream and its state, in one step.
const LOOK: &str = "local life = redis.call('HMGET', 's:{churn}:churn:life', 'state', 'generation')
    local log = 's:{churn}:churn:' .. (life[2] or '0') .. ':log'
    return {life[1] or '', life[2] or '0', redis.call('KEYS', 's:{churn}*'), redis.call('XRANGE', log, '-', '+')}";

/// Of a destroyed generation there is nothing but the record; in an active one, nothing of another.
fn nothing_reappears(server: &mut redis::Connection) -> u64 {
    type Entries = Vec<(String, Vec<String>)>;
    let (state, generation, keys, entries): (String, u64, Vec<String>, Entries) =
        must(server, &["EVAL", LOOK, "0"]);
    for key in &keys {
        let own = key.starts_with(&format!("s:{{churn}}:churn:{generation}:")) && state == "active";
        assert!(own || key == "s:{churn}:churn:life", "{key} beside generation {generation}, {state}");
    }
    for (id, fields) in entries {
        assert_eq!(fields[3], generation.to_string(), "{id} was published to another generation");
    }
    generation
}

#[test]
fn each_event_is_there_once_each_lease_is_had_once_and_nothing_destroyed_reappears() {
    let server = RedisServer::start(None);
    let proxy = Proxy::start();
    proxy.lead_to(&format!("127.0.0.1:{}", server.port()));
    let mut direct = plain(&server);
    let (send, lines) = channel();
    let port = proxy.address.port();
    let mut workers: Vec<Worker> = (0..WORKERS).map(|number| start(port, number, 0, 0, &send)).collect();
    let mut dice = Dice(Seed::new([5; 32]), 0);
    let mut told = Told::default();
    let time = Duration::from_secs(if std::env::var_os("STRANDLINE_SOAK").is_some() { 60 } else { 10 });
    let (begun, mut kills) = (Instant::now(), 0);
    // A machine under load gets the time until something happened at all.
    while begun.elapsed() < time || told.done.len() < 100 || told.over < 10 || kills < 10 {
        assert!(begun.elapsed() < 10 * time + crate::support::GIVE_UP, "expected more to happen");
        disturb(&proxy, &mut dice);
        drain(&lines, &mut told, Duration::from_millis(50 + dice.below(100)));
        nothing_reappears(&mut direct);
        if dice.below(3) == 0 {
            let number = dice.below(WORKERS);
            let worker = &mut workers[usize::try_from(number).expect("small")];
            worker.child.kill().expect("a process to kill");
            worker.child.wait().expect("its end");
            kills += 1;
            drain(&lines, &mut told, Duration::from_millis(10));
            let first = told.next.get(&number).copied().unwrap_or(0).saturating_sub(OVERLAP);
            *worker = start(port, number, worker.life + 1, first, &send);
        }
    }
    proxy.heal();
    drain(&lines, &mut told, Duration::from_secs(2));
    for worker in &mut workers {
        worker.child.kill().expect("a process to kill");
        worker.child.wait().expect("its end");
    }
    drop(send);
    while let Ok(line) = lines.recv() {
        told.take(&line);
    }
    let generations = nothing_reappears(&mut direct);
    told.leases_follow_each_other();
    each_once(&told, &mut direct);
    println!(
        "{} events, {} found again, {} answers missing, {kills} kills, {} cuts, {} fences, {generations} generations",
        told.done.len(),
        told.again,
        told.unsure,
        proxy.cuts(),
        told.leases.len(),
    );
    assert!(told.again > 0 && told.unsure > 0 && proxy.cuts() > 0, "it was a storm");
    assert!(told.leases.len() > 1 && generations > 3, "leases and generations changed");
}

/// What was answered is in the log once, where it was said to be; what is in the log was tried.
fn each_once(told: &Told, server: &mut redis::Connection) {
    let log: Vec<(String, Vec<String>)> = must(server, &["XRANGE", "s:{events}:events:1:log", "-", "+"]);
    let mut found = BTreeMap::new();
    for (id, fields) in log {
        assert!(EventId::parse(&id).is_some());
        let before = found.insert(fields[3].clone(), id);
        assert_eq!(before, None, "{} is there twice", fields[3]);
    }
    for (key, id) in &told.done {
        assert_eq!(found.get(key), Some(id), "{key}");
    }
    for key in found.keys() {
        assert!(told.tried.contains(key), "{key} was never published");
    }
    let records: Value = must(server, &["HLEN", "s:{events}:events:1:once"]);
    assert_eq!(records, Value::Int(i64::try_from(found.len()).expect("small")), "a record for each");
}
