//! Comparing an answer of ours with the reference's.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Debug, Display};
use strandline_core::compat::streamhive::{Improvement, ReferenceNames, Rule};
use strandline_core::wire::json_read::Refusal;

/// Names of the reference's errors.
pub(super) type Names = BTreeSet<String>;

/// Our refusal.
#[derive(Debug)]
pub(super) struct Refused {
    names: Names,
    rule: Option<Rule>,
    text: String,
}

impl Refused {
    /// An error of ours, and the rule it says it falls under.
    pub(super) fn new(error: &(impl ReferenceNames + Display), rule: Option<Rule>) -> Self {
        let names = error.reference_names().into_iter().map(String::from).collect();
        Self { names, rule, text: error.to_string() }
    }

    /// An error that falls under no rule.
    pub(super) fn plain(error: &(impl ReferenceNames + Display)) -> Self {
        Self::new(error, None)
    }

    /// An answer that no error of the reference's says, and the row it falls under.
    pub(super) fn ruled(text: &str, row: Improvement) -> Self {
        Self { names: Names::new(), rule: Some(Rule::Improvement(row)), text: text.to_owned() }
    }

    /// Whether it is the reference's answer, too.
    pub(super) fn is(&self, names: &Names) -> bool {
        self.names == *names
    }

    /// An answer that is no error of ours but one of the reference's.
    pub(super) fn named(name: &str, text: &str) -> Self {
        Self { names: Names::from([name.to_owned()]), rule: None, text: text.to_owned() }
    }
}

/// What was played and how it came out.
#[derive(Debug, Default)]
pub struct Report {
    files: BTreeMap<String, u64>,
    cases: BTreeMap<String, u64>,
    checks: u64,
    differences: BTreeMap<String, Rule>,
    failures: Vec<String>,
}

impl Report {
    pub(super) fn file(&mut self, kind: &str) {
        *self.files.entry(kind.to_owned()).or_default() += 1;
    }

    pub(super) fn case(&mut self, section: &str) {
        *self.cases.entry(section.to_owned()).or_default() += 1;
    }

    /// Compares two values that must be the same.
    pub(super) fn same<T: PartialEq + Debug>(&mut self, what: &str, expected: &T, found: &T) {
        self.checks += 1;
        if expected != found {
            self.failures.push(format!("{what}: expected {expected:?}, found {found:?}"));
        }
    }

    /// Compares our answer with the reference's: the same value, the same errors, or a difference
    /// under the rule our answer names. `accepted` is the rule under which we accept what the
    /// reference refuses.
    pub(super) fn answer<T: PartialEq + Debug>(
        &mut self,
        what: &str,
        expected: &Result<T, Names>,
        found: &Result<T, Refused>,
        accepted: Option<Rule>,
    ) {
        self.checks += 1;
        let rule = match (expected, found) {
            (Ok(expected), Ok(found)) if expected == found => return,
            (Err(expected), Err(found)) if *expected == found.names => return,
            (Ok(_), Ok(_)) => None,
            (Err(_), Ok(_)) => accepted,
            (Ok(_) | Err(_), Err(found)) => found.rule,
        };
        match rule {
            Some(rule) => self.difference(what, rule),
            None => {
                let text = found.as_ref().err().map_or("", |refused| refused.text.as_str());
                self.failures.push(format!("{what}: expected {expected:?}, found {found:?} {text}"));
            }
        }
    }

    /// Notes a difference.
    pub(super) fn difference(&mut self, what: &str, rule: Rule) {
        if let Some(other) = self.differences.insert(what.to_owned(), rule)
            && other != rule
        {
            self.failures.push(format!("{what}: differs under {other} and under {rule}, expected one rule"));
        }
    }

    /// Everything that differs under no rule.
    #[must_use]
    pub fn failures(&self) -> &[String] {
        &self.failures
    }

    /// What differs, and under which rule.
    #[must_use]
    pub const fn differences(&self) -> &BTreeMap<String, Rule> {
        &self.differences
    }

    /// How many files were played.
    #[must_use]
    pub fn files(&self) -> u64 {
        self.files.values().sum()
    }

    /// How many cases were played.
    #[must_use]
    pub fn cases(&self) -> u64 {
        self.cases.values().sum()
    }

    /// The report for people.
    #[must_use]
    pub fn text(&self) -> String {
        let list = |map: &BTreeMap<String, u64>| {
            map.iter().map(|(name, count)| format!("{name} {count}")).collect::<Vec<_>>().join(", ")
        };
        let rules = Refusal::ALL.map(Rule::Refusal).into_iter();
        let rules = rules.chain(Improvement::ALL.map(Rule::Improvement)).map(|rule| {
            let table = match rule {
                Rule::Refusal(_) => "refusal",
                Rule::Improvement(_) => "improvement",
            };
            let count = self.differences.values().filter(|other| **other == rule).count();
            format!("  {table} {rule}: {count}")
        });
        let mut lines = vec![
            format!("files played: {} ({})", self.files(), list(&self.files)),
            format!("cases played: {} ({})", self.cases(), list(&self.cases)),
            format!(
                "answers compared: {}, of them differing under a rule: {}",
                self.checks,
                self.differences.len()
            ),
        ];
        lines.extend(rules);
        lines.push(format!("failures: {}", self.failures.len()));
        lines.extend(self.failures.iter().map(|failure| format!("  {failure}")));
        lines.join("\n")
    }
}
