//! Keeps `docs/COMPARISON.md` whole and true.

use crate::{read, root};
use std::collections::BTreeMap;
use std::fs;

/// The exported names of the reference of protocol A, one on a line: methods as `Type.Method`.
const STREAMHIVE_NAMES: &str = include_str!("streamhive_names.txt");

/// What goadesign/pulse says of its pull request 82, one statement on a line, in short.
const PULSE_STATEMENTS: &str = include_str!("pulse_statements.txt");

struct Row<'a> {
    here: &'a str,
    shown_by: &'a str,
}

/// The rows of the tables below a heading, up to the next heading of its level, by their first cell.
fn rows<'a>(document: &'a str, heading: &str) -> BTreeMap<&'a str, Row<'a>> {
    let part = document.split("\n## ").find(|part| part.starts_with(heading));
    let part = part.unwrap_or_else(|| panic!("COMPARISON.md has no part {heading:?}"));
    let mut found = BTreeMap::new();
    for line in part.lines().filter(|line| line.starts_with("| `")) {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [name, here, shown_by] = cells[..] else { panic!("not three cells: {line}") };
        let name = name.trim_matches('`');
        assert!(found.insert(name, Row { here, shown_by }).is_none(), "{name} has two rows");
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
    let above = &source[..at];
    let attribute = above.rfind("test]").or_else(|| above.rfind("proptest!"));
    assert!(attribute.is_some(), "{of}: {name} in {file} is no test");
}

/// Every line of `expected` has its row below the heading, with its test or the reason for none.
fn assert_whole(heading: &str, expected: &str) {
    let document = read("docs/COMPARISON.md");
    let rows = rows(&document, heading);
    let names: Vec<&str> = expected.lines().collect();
    for name in &names {
        let row = rows.get(name).unwrap_or_else(|| panic!("COMPARISON.md has no row for {name}"));
        if row.shown_by == "-" {
            assert!(row.here.starts_with("not needed: "), "{name} has neither a test nor a reason");
        } else {
            assert_test_exists(name, row.shown_by);
        }
    }
    assert_eq!(rows.len(), names.len(), "COMPARISON.md has rows below {heading:?} that nothing asks for");
}

#[test]
fn every_exported_name_of_streamhive_has_its_row_and_its_test() {
    assert_whole("Protocol A", STREAMHIVE_NAMES);
}

#[test]
fn every_statement_of_pulse_has_its_row_and_its_test() {
    assert_whole("Protocol B", PULSE_STATEMENTS);
}
