//! Keeps `docs/COMPARISON.md` whole and true.

use crate::{read, root};
use std::collections::BTreeMap;
use std::fs;

/// The exported names of the reference of protocol A, one on a line: methods as `Type.Method`.
const STREAMHIVE_NAMES: &str = include_str!("streamhive_names.txt");

/// What the reference of protocol C states, one on a line: `identifier: what it says`, in our words.
const PAD_STATEMENTS: &str = include_str!("pad_statements.txt");

/// What the reference of protocol B states of its pull request 82, in the same form.
const PULSE_STATEMENTS: &str = include_str!("pulse_statements.txt");

/// The cells behind the first of each row in the tables below a heading, up to the next heading of its
/// level, by that first cell.
fn rows<'a, const N: usize>(document: &'a str, heading: &str) -> BTreeMap<&'a str, [&'a str; N]> {
    let part = document.split("\n## ").find(|part| part.starts_with(heading));
    let part = part.unwrap_or_else(|| panic!("COMPARISON.md has no part {heading:?}"));
    let mut found = BTreeMap::new();
    for line in part.lines().filter(|line| line.starts_with("| `")) {
        let mut cells = line.trim_matches('|').split(" | ").map(str::trim);
        let name = cells.next().unwrap_or_default().trim_matches('`');
        let rest: Vec<&str> = cells.collect();
        let rest = rest.try_into().unwrap_or_else(|_| panic!("not {} cells: {line}", N + 1));
        assert!(found.insert(name, rest).is_none(), "{name} has two rows");
    }
    found
}

/// Panics unless `file::name` in backticks is a test function of that file.
fn assert_test_exists(of: &str, shown_by: &str) {
    let test = shown_by.trim_matches('`');
    let (file, name) = test.split_once("::").unwrap_or_else(|| panic!("{of}: {test} is not file::name"));
    let source =
        fs::read_to_string(root().join(file)).unwrap_or_else(|error| panic!("{of}: {file}: {error}"));
    let at = source.find(&format!("fn {name}(")).unwrap_or_else(|| panic!("{of}: {file} has no test {name}"));
    let above = source[..at].lines().rev().take_while(|line| !line.is_empty() && *line != "}");
    let attribute = |line: &str| ["#[test]", "::test]", "::test("].iter().any(|end| line.contains(end));
    assert!(above.into_iter().any(attribute), "{of}: {name} in {file} is no test");
}

#[test]
fn every_exported_name_of_streamhive_has_its_row_and_its_test() {
    let document = read("docs/COMPARISON.md");
    let rows = rows(&document, "Protocol A");
    let names: Vec<&str> = STREAMHIVE_NAMES.lines().collect();
    for name in &names {
        let [here, shown_by] =
            rows.get(name).unwrap_or_else(|| panic!("COMPARISON.md has no row for {name}"));
        if *shown_by == "-" {
            assert!(here.starts_with("not needed: "), "{name} has neither a test nor a reason");
        } else {
            assert_test_exists(name, shown_by);
        }
    }
    assert_eq!(
        rows.len(),
        names.len(),
        "COMPARISON.md has rows for names that the reference does not export"
    );
}

/// Every statement has its row below the heading, and a test, or a reason why it needs none here.
fn assert_stated(heading: &str, statements: &str) {
    let document = read("docs/COMPARISON.md");
    let rows = rows(&document, heading);
    let statements: Vec<(&str, &str)> =
        statements.lines().map(|line| line.split_once(": ").expect("identifier: statement")).collect();
    for (name, says) in &statements {
        let [what, here, shown_by] =
            rows.get(name).unwrap_or_else(|| panic!("COMPARISON.md has no row for {name}"));
        assert_eq!(what, says, "COMPARISON.md says something else of {name}");
        assert!(!here.is_empty(), "{name} lives nowhere");
        if *shown_by == "-" {
            assert!(here.starts_with("not needed: "), "{name} has neither a test nor a reason");
        } else {
            assert_test_exists(name, shown_by);
        }
    }
    assert_eq!(rows.len(), statements.len(), "COMPARISON.md has rows that are no statement of the reference");
}

#[test]
fn every_statement_of_pulse_has_its_row_and_its_test() {
    assert_stated("Protocol B", PULSE_STATEMENTS);
}

#[test]
fn every_statement_of_pad_has_its_row_and_its_test() {
    assert_stated("Protocol C", PAD_STATEMENTS);
}
