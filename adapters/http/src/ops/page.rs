//! Prometheus' text format.

use std::collections::BTreeMap;
use std::fmt::Write;

/// Writes metrics, each with its help and type once.
pub(super) struct Page(String);

impl Page {
    pub(super) const fn new() -> Self {
        Self(String::new())
    }

    pub(super) fn text(self) -> String {
        self.0
    }

    /// What stands now.
    pub(super) fn gauge(&mut self, name: &str, help: &str, value: u64) {
        self.labelled(name, help, "", &BTreeMap::from([("", value)]));
    }

    /// One line for each value of a label, which comes from a closed set.
    pub(super) fn labelled(&mut self, name: &str, help: &str, label: &str, values: &BTreeMap<&str, u64>) {
        self.lines("gauge", name, help, label, values);
    }

    /// What only grows while the process lives.
    pub(super) fn counter(&mut self, name: &str, help: &str, value: u64) {
        self.counted(name, help, "", &BTreeMap::from([("", value)]));
    }

    /// The same, one line for each value of a label from a closed set.
    pub(super) fn counted(&mut self, name: &str, help: &str, label: &str, values: &BTreeMap<&str, u64>) {
        self.lines("counter", &format!("{name}_total"), help, label, values);
    }

    fn lines(&mut self, kind: &str, name: &str, help: &str, label: &str, values: &BTreeMap<&str, u64>) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "# HELP strandline_{name} {help}\n# TYPE strandline_{name} {kind}");
        for (value, number) in values {
            let _ = if label.is_empty() {
                writeln!(self.0, "strandline_{name} {number}")
            } else {
                writeln!(self.0, "strandline_{name}{{{label}=\"{value}\"}} {number}")
            };
        }
    }
}
