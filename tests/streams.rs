//! Every scenario of protocol B against the model, the embedded keyspace and a server, in both layouts.

use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use strandline_core::stream::Layout;
use strandline_redis::Names;
use strandline_tests::streams::answers::Answers;
use strandline_tests::streams::backend::Backend;
use strandline_tests::streams::embedded::Embedded;
use strandline_tests::streams::file::{self, Scenario};
use strandline_tests::streams::model::Model;
use strandline_tests::streams::play::{Report, play};
use strandline_tests::streams::redis::Real;

fn own(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios").join(name)
}

/// The scenarios of the file that `STRANDLINE_STREAM_SCENARIOS` names, or ours.
fn scenarios() -> Vec<Scenario> {
    let path =
        std::env::var_os("STRANDLINE_STREAM_SCENARIOS").map_or_else(|| own("streams.json"), PathBuf::from);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    file::read(&text).unwrap_or_else(|what| panic!("{}: {what}", path.display()))
}

fn answers() -> Answers {
    let text = fs::read_to_string(own("answers.json")).expect("our answers");
    Answers::read(&text).expect("our answers are of the form")
}

fn held_to_the_file(backend: &mut dyn Backend) -> Report {
    let report = play(backend, &scenarios(), &answers()).unwrap_or_else(|what| panic!("{what}"));
    println!(
        "{}: {} scenarios, {} steps, {} keys; {} only for Pulse on a server {:?}; {} in prose; not judged: {:?}",
        backend.name(),
        report.scenarios,
        report.steps,
        report.keys,
        report.pulse_only.len(),
        report.pulse_only,
        report.prose,
        report.unjudged,
    );
    let shown: Vec<&str> = report.failures.iter().map(String::as_str).collect();
    assert!(shown.is_empty(), "{} failures:\n{}", shown.len(), shown.join("\n"));
    report
}

#[test]
fn the_model_in_the_pulse_layout() {
    held_to_the_file(&mut Model::new(Layout::Pulse));
}

#[test]
fn the_model_in_the_tagged_layout() {
    held_to_the_file(&mut Model::new(Layout::Tagged));
}

#[test]
fn the_embedded_keyspace_in_memory() {
    held_to_the_file(&mut Embedded::in_memory());
}

#[test]
fn the_embedded_keyspace_opened_after_each_step() {
    let mut embedded = Embedded::durable();
    held_to_the_file(&mut embedded);
    assert!(embedded.reopened > 100, "{} times", embedded.reopened);
}

#[test]
fn redis_in_the_pulse_layout() {
    held_to_the_file(&mut Real::start(Names::Pulse));
}

#[test]
fn redis_in_the_tagged_layout() {
    held_to_the_file(&mut Real::start(Names::tagged_below("s").unwrap()));
}

/// What the file tells in words is played by tests of our own: `scenarios/prose.json` says by which.
#[test]
fn each_scenario_in_prose_is_played_by_tests_that_exist() {
    let read = |name: &str| fs::read_to_string(own(name)).expect("a file of ours");
    let of_the_file = file::read(&read("streams.json")).expect("scenarios");
    let wanted: BTreeSet<String> =
        of_the_file.into_iter().filter(|scenario| scenario.is_prose).map(|scenario| scenario.id).collect();
    let table: Vec<Value> = serde_json::from_str(&read("prose.json")).expect("a list");
    let mut played = BTreeSet::new();
    for row in &table {
        let id = row["id"].as_str().expect("an id").to_string();
        let tests = row["tests"].as_array().expect("a list");
        assert!(!tests.is_empty(), "{id}: expected a test");
        for test in tests {
            let (path, name) = test.as_str().and_then(|test| test.split_once("::")).expect("FILE::TEST");
            let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
            let text = fs::read_to_string(root.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"));
            assert!(
                text.contains(&format!("#[test]\nfn {name}("))
                    || text.contains(&format!("#[test]\n    fn {name}(")),
                "{id}: expected a test {name} in {path}"
            );
        }
        assert!(played.insert(id.clone()), "{id} stands there twice");
    }
    assert_eq!(played, wanted, "the scenarios in prose, and those that the table names");
}
