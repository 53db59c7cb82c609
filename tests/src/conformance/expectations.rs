//! The list of differences that are known: one line for each, `rule<TAB>what differs`.

use super::Report;
use std::collections::BTreeMap;

/// The list of a report's differences.
#[must_use]
pub fn write(report: &Report) -> String {
    let lines = report.differences().iter().map(|(what, rule)| format!("{rule}\t{what}\n"));
    lines.collect()
}

/// What a report's differences and the list do not agree on: a listed difference that no longer
/// differs or falls under another rule, and one that is not listed.
#[must_use]
pub fn unmet(list: &str, report: &Report) -> Vec<String> {
    let mut found = report
        .differences()
        .iter()
        .map(|(what, rule)| (what.as_str(), rule.to_string()))
        .collect::<BTreeMap<_, _>>();
    let mut unmet = Vec::new();
    for line in list.lines().filter(|line| !line.is_empty()) {
        let Some((rule, what)) = line.split_once('\t') else {
            unmet.push(format!("not a line of the list: {line:?}"));
            continue;
        };
        match found.remove(what) {
            Some(other) if other == rule => {}
            Some(other) => unmet.push(format!("{what}: listed under {rule}, differs under {other}")),
            None => unmet.push(format!("{what}: listed under {rule}, no longer differs")),
        }
    }
    unmet.extend(found.into_iter().map(|(what, rule)| format!("{what}: differs under {rule}, not listed")));
    unmet
}
