//! `docs/COVERAGE.md` names every reason that a client can be given, and no other.

use super::read;
use std::collections::BTreeSet;
use strandline_core::coverage::Reason;

/// Rows of the table below a heading: the cells of each.
fn rows(text: &str, heading: &str) -> Vec<Vec<String>> {
    let section = text.split(heading).nth(1).unwrap_or_else(|| panic!("expected the heading {heading:?}"));
    let table =
        section.lines().skip_while(|line| !line.starts_with('|')).take_while(|line| line.starts_with('|'));
    // The head, and the line below it.
    table.skip(2).map(|line| line.split('|').map(|cell| cell.trim().to_owned()).collect()).collect()
}

#[test]
fn every_reason_stands_in_its_table_once() {
    let text = read("docs/COVERAGE.md");
    let rows = rows(&text, "\n## Reasons\n");
    let named: Vec<&str> = rows.iter().map(|row| row[1].trim_matches('`')).collect();
    let ours: BTreeSet<&str> = Reason::ALL.iter().map(|reason| reason.label()).collect();
    assert_eq!(named.iter().copied().collect::<BTreeSet<_>>(), ours);
    assert_eq!(named.len(), ours.len());
    for row in &rows {
        assert!(matches!(row[2].as_str(), "Gap" | "Unknown" | "told live") && row[3].len() > 10, "{row:?}");
    }
}
