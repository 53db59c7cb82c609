//! The runner of protocol C's scenarios: what it reads, what it refuses, and what stands in prose.

use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use strandline_tests::coverage::runner::{BY_HAND, Summary, chosen, own, run};
use strandline_tests::coverage::scenario::read;

/// A scenario of one topic with these steps.
fn scenario(steps: &Value) -> Value {
    let setup = json!({"buffer_size": 8, "bus": "per-topic", "backend": "memory", "queue": 8});
    json!({"id": "own-1", "title": "one", "check": "model", "setup": setup, "steps": steps})
}

fn file(scenarios: &Value) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().unwrap();
    serde_json::to_writer(&file, scenarios).unwrap();
    file
}

fn played(scenarios: &Value) -> Summary {
    run(file(scenarios).path()).unwrap()
}

fn published(number: u64) -> Value {
    json!([{"op": "publish", "args": {"topic": "T"}, "expect": {"id": number}}])
}

#[test]
fn a_right_scenario_is_counted() {
    let summary = played(&json!([scenario(&published(1))]));
    assert!(summary.right, "{}", summary.text);
    assert!(summary.text.ends_with("1 passed, 0 failed\n"), "{}", summary.text);
}

#[test]
fn another_answer_is_a_failure() {
    let summary = played(&json!([scenario(&published(7))]));
    assert!(!summary.right && summary.text.contains("FAILED own-1"), "{}", summary.text);
}

#[test]
fn an_op_that_is_not_known_is_a_failure() {
    let steps = json!([{"op": "levitate", "args": {}, "expect": {}}]);
    let summary = played(&json!([scenario(&steps)]));
    assert!(!summary.right && summary.text.contains("\"levitate\" is unknown"), "{}", summary.text);
}

#[test]
fn an_argument_that_is_not_known_is_a_failure() {
    let steps = json!([{"op": "publish", "args": {"topic": "T", "colour": 1}, "expect": {"id": 1}}]);
    let summary = played(&json!([scenario(&steps)]));
    assert!(!summary.right && summary.text.contains("\"colour\" is unknown"), "{}", summary.text);
}

#[test]
fn a_setup_that_is_not_known_is_refused() {
    for (field, value) in [("gravity", json!(1)), ("bus", json!("omnibus")), ("limits", json!({"moon": 1}))] {
        let mut one = scenario(&published(1));
        one["setup"][field] = value;
        let error = run(file(&json!([one])).path()).unwrap_err();
        assert!(error.contains("unknown"), "{field}: {error}");
    }
}

#[test]
fn nothing_played_is_not_right() {
    assert!(!played(&json!([])).right);
    assert!(run(Path::new("no such file")).is_err());
}

#[test]
fn prose_is_named_and_not_played() {
    let mut one = scenario(&json!([{"op": "runtime", "args": {"do": "something"}, "expect": {}}]));
    one["check"] = json!("prose");
    let summary = played(&json!([one, scenario(&published(1))]));
    assert!(summary.right && summary.text.contains("own-1 in prose: not played"), "{}", summary.text);
}

#[test]
fn the_needless_ones_are_printed_both_ways() {
    let text = run(&own()).unwrap().text;
    for way in ["not here [\"cov-", "here too []"] {
        assert!(text.contains(way), "{way}: {text}");
    }
}

#[test]
fn every_scenario_in_prose_is_a_test_by_hand() {
    let prose: Vec<String> =
        read(&own()).unwrap().into_iter().filter(|s| s.check == "prose").map(|s| s.id).collect();
    let by_hand: Vec<&str> = BY_HAND.iter().map(|(id, ..)| *id).collect();
    assert_eq!(prose, by_hand);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for (id, path, test) in BY_HAND {
        let source = std::fs::read_to_string(root.join(path)).unwrap();
        let at = source.find(&format!("fn {test}(")).unwrap_or_else(|| panic!("{id}: no test {test}"));
        let above = source[..at].lines().rev().take(3).any(|l| l.contains("#[test]") || l.contains("::test"));
        assert!(above, "{id}: {test} is no test");
    }
}

/// Run by the test below in a process of its own, with another environment; by itself, the own file.
#[test]
fn the_chosen_file_is_right() {
    let summary = run(&chosen()).unwrap();
    assert!(summary.right, "{}", summary.text);
}

#[test]
fn the_environment_names_another_file() {
    let steps = json!([{"op": "levitate", "args": {}, "expect": {}}]);
    let others = file(&json!([scenario(&steps)]));
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_chosen_file_is_right", "--nocapture"])
        .env("STRANDLINE_COVERAGE_SCENARIOS", others.path())
        .output()
        .unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(!output.status.success() && said.contains("levitate"), "{said}");
}
