//! The power is cut at any moment while the program itself works: one command after the other on a
//! directory, and two nodes that replicate. Its answers on standard output are what clients know.

use crate::client::judge;
use crate::disk::{Dice, Disk, Survives};
use crate::power_loss::Cuts;
use crate::shim::Shim;
use crate::support::{Replica, wait_until};
use crate::told::{Found, Told, found, text};
use crate::trace::{self, Record};
use crate::{scratch, soak};
use serde_json::Value;
use std::path::Path;
use strandline_file::blocking::BlockingReplica;
use strandline_file::node::NodeConfig;

/// Turns what the program printed with `--json` into the words that [`Told`] hears.
fn words(record: &Record) -> Option<Record> {
    let Record::Say { bytes } = record else { return Some(record.clone()) };
    let mut said = String::new();
    for line in bytes.split(|byte| *byte == b'\n') {
        let Ok(line) = serde_json::from_slice::<Value>(line) else { continue };
        if let (Some(version), Some(key)) = (line["version"].as_str(), line["key"].as_str()) {
            said.push_str(&format!("ack {version} {key}\n"));
        }
        if line["tail"].is_string() {
            said.push_str("opened\n");
        }
    }
    Some(Record::Say { bytes: said.into_bytes() })
}

/// What a shared trace holds behind the `seen` records that were looked at before.
fn since(trace: &Path, seen: &mut usize) -> Vec<Record> {
    let records = trace::read(trace);
    let new = records[*seen..].iter().filter_map(words).collect();
    *seen = records.len();
    new
}

#[test]
fn a_power_cut_during_any_command_loses_nothing_that_the_program_said_was_done() {
    let mut replica = Replica::new();
    let trace = replica.path("trace");
    let source = replica.path("source");
    let mut cuts = Cuts::new(Disk::of(replica.home.path()), Told::default(), 7);
    replica.variables = Shim::tracing(&trace).variables();
    std::fs::create_dir(&source).expect("creates");
    let source = source.to_str().expect("UTF-8").to_owned();
    let mut seen = 0;
    let points = if soak() { 3_000 } else { 10 };
    let mut step = |args: &[&str], asked: &[(String, Option<String>)]| {
        asked.iter().for_each(|(key, content)| cuts.told.ask(key, content.clone()));
        let ended = replica.run(args);
        assert_eq!(ended.code, 0, "{args:?}: {}", ended.stderr);
        cuts.follow(&since(&trace, &mut seen), points, |image, told| {
            judge(&image.join("log"), NodeConfig::default(), told).map_err(|why| format!("{args:?}: {why}"))
        });
    };
    let write = |name: &str, content: &str| {
        std::fs::write(Path::new(&source).join(name), content).expect("writes");
        (name.to_owned(), Some(content.to_owned()))
    };
    step(&["init", "--identity", "a"], &[]);
    let first: Vec<_> = (0..40).map(|n| write(&format!("f{n:02}"), &format!("first {n}"))).collect();
    step(&["import", "--acks", &source], &first);
    let second: Vec<_> = (30..60).map(|n| write(&format!("f{n:02}"), &format!("second {n}"))).collect();
    step(&["import", "--acks", &source], &second);
    std::fs::remove_file(Path::new(&source).join("f00")).expect("removes");
    step(&["import", "--acks", &source], &[("f00".into(), None)]);
    step(&["members", "clear"], &[]);
    step(&["compact"], &[]);
    step(&["delete", "f01"], &[("f01".into(), None)]);
    let path = Path::new(&source).join("f02");
    step(&["put", "single", path.to_str().expect("UTF-8")], &[("single".into(), Some("first 2".into()))]);
    step(&["compact"], &[]);
    println!("{seen} records, {} power cuts, {} acknowledged", cuts.count, cuts.told.acknowledged);
    assert!(cuts.told.acknowledged == 73 && cuts.count > 60, "too few to prove anything");
}

/// A node's answer on how far its follower is.
fn acked_by_follower(record: &Record) -> Option<(u64, u64)> {
    let Record::Say { bytes } = record else { return None };
    let status: Value = serde_json::from_slice(bytes.trim_ascii()).ok()?;
    let links = status["links"].as_array()?;
    links
        .iter()
        .filter(|link| link["identity"] == "b")
        .filter_map(|link| version(link["acked"].as_str()?))
        .max()
}

fn version(text: &str) -> Option<(u64, u64)> {
    let (epoch, sequence) = text.split_once('.')?;
    Some((epoch.parse().ok()?, sequence.parse().ok()?))
}

/// A follower that lost its power holds all it had acknowledged, and nothing that nobody wrote.
fn judge_follower(dir: &Path, told: &Told, acked: (u64, u64), versions: &Found) -> Result<(), String> {
    let (replica, _) = match BlockingReplica::open(dir, NodeConfig::default()) {
        Ok(opened) => opened,
        Err(error) => return Err(format!("recovery of the follower: {error}")),
    };
    let tail = replica.status().map_err(|e| e.to_string())?.tail;
    if (tail.epoch, tail.sequence) < acked {
        return Err(format!("the follower acknowledged {acked:?} and stands at {}", text(tail)));
    }
    let held = found(&replica)?;
    for (key, (content, at)) in versions {
        if version(at) <= version(&text(tail)) && held.get(key) != Some(&(content.clone(), at.clone())) {
            return Err(format!("{key} at {at} is {:?} where the tail is {}", held.get(key), text(tail)));
        }
    }
    told.invented(&held)?;
    replica.close().map_err(|e| e.to_string())
}

#[test]
fn a_power_cut_of_both_nodes_loses_nothing_acknowledged_to_a_client_or_to_the_other() {
    let (mut a, mut b) = (Replica::writer("a"), Replica::new());
    let log = a.status()["log"].as_str().expect("a log").to_owned();
    b.done(["init", "--identity", "b", "--follow", "--log", &log]);
    let disks = [&a, &b].map(|replica| Disk::of(replica.home.path()));
    let trace = scratch();
    let trace = trace.path().join("trace");
    let variables = Shim::tracing(&trace).variables();
    (a.variables, b.variables) = (variables.clone(), variables);
    let mut told = Told::default();
    told.opened = true;
    let address = a.serve("[[peers]]\nidentity = \"b\"\ntoken = \"of b\"\n");
    b.serve(&format!("token = \"of b\"\n[[peers]]\nidentity = \"a\"\naddress = \"{address}\"\n"));
    for n in 0..30 {
        let (key, content) = (format!("k{n:02}"), format!("content {n}"));
        a.put(&key, content.as_bytes());
        told.ask(&key, Some(content));
        if n % 3 == 0 {
            let tail = a.status()["tail"].clone();
            wait_until("the follower", || a.status()["links"][0]["acked"] == tail);
        }
    }
    assert_eq!((a.stop(), b.stop()), (0, 0));
    let records = trace::read(&trace);
    let versions = all_versions(&told, &records);
    cut_both(disks, told, &records, &versions);
}

/// Each key at the version that its client was told.
fn all_versions(told: &Told, records: &[Record]) -> Found {
    let mut told = told.clone();
    for record in records.iter().filter_map(words) {
        if let Record::Say { bytes } = record {
            told.hear(&bytes);
        }
    }
    told.last()
}

fn cut_both(mut disks: [Disk; 2], mut told: Told, records: &[Record], versions: &Found) {
    let (mut dice, mut acked, mut count) = (Dice(3), (0, 0), 0);
    let points = if soak() { 4_000 } else { 40 };
    for (number, record) in records.iter().enumerate() {
        disks.iter_mut().for_each(|disk| disk.follow(record));
        if let Some(Record::Say { bytes }) = words(record) {
            told.hear(&bytes);
        }
        acked = acked_by_follower(record).map_or(acked, |now| now.max(acked));
        if dice.below(records.len() as u64) >= points {
            continue;
        }
        for survives in [Survives::Nothing, Survives::Some(number as u64)] {
            let images = [scratch(), scratch()];
            for (disk, image) in disks.iter().zip(&images) {
                disk.cut_power(survives, image.path());
            }
            let logs = images.each_ref().map(|image| image.path().join("log"));
            let judged = judge_follower(&logs[1], &told, acked, versions)
                .and_then(|()| judge(&logs[0], NodeConfig::default(), &told));
            judged.unwrap_or_else(|why| panic!("cut after record {number}, {survives:?} survives: {why}"));
            count += 1;
        }
    }
    println!("{} records, {count} power cuts of both, {acked:?} acknowledged by the follower", records.len());
    assert!(count > 40 && acked >= (1, 28), "too few to prove anything");
}
