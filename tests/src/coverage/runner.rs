//! Plays a file of scenarios and says what came of it.

use super::play::{Report, play};
use super::scenario::{Scenario, read};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Scenarios in prose, and the test by hand of each: its file and its name.
pub const BY_HAND: [(&str, &str, &str); 5] = [
    ("cov-032", "adapters/hub/tests/shared.rs", "reports_fire_outside_the_hub"),
    ("cov-033", "adapters/hub/tests/shared.rs", "concurrent_use"),
    ("cov-035", "adapters/hub/tests/shared.rs", "a_buffer_of_no_size"),
    ("cov-078", "adapters/hub/tests/shared.rs", "concurrent_publishes_stay_dense_and_ordered"),
    ("cov-117", "core/src/compat/pad.rs", "every_field_a_filter_reads_survives_the_wire"),
];

/// The repository's own scenarios.
#[must_use]
pub fn own() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/coverage.json")
}

/// The file that `STRANDLINE_COVERAGE_SCENARIOS` names, else the repository's own.
#[must_use]
pub fn chosen() -> PathBuf {
    std::env::var_os("STRANDLINE_COVERAGE_SCENARIOS").map_or_else(own, PathBuf::from)
}

/// What came of a file.
#[derive(Debug)]
pub struct Summary {
    /// Counts, failures, and the needless resynchronisations met and not met.
    pub text: String,
    /// Nothing failed, and something was played.
    pub right: bool,
}

/// Plays a file before the model of a server.
///
/// # Errors
/// If it cannot be read or has another form.
pub fn run(path: &Path) -> Result<Summary, String> {
    let scenarios = read(path)?;
    let report = play(&scenarios);
    let right = report.failures.is_empty() && !report.right.is_empty();
    Ok(Summary { text: told(&scenarios, &report), right })
}

fn told(scenarios: &[Scenario], report: &Report) -> String {
    let mut text = String::new();
    let mut line = |line: std::fmt::Arguments<'_>| {
        writeln!(text, "{line}").expect("a String takes all");
    };
    for id in &report.prose {
        match BY_HAND.iter().find(|(prose, ..)| prose == id) {
            Some((_, file, test)) => line(format_args!("{id} in prose: the test {file}::{test}")),
            None => line(format_args!("{id} in prose: not played")),
        }
    }
    for failure in &report.failures {
        line(format_args!("FAILED {failure}"));
    }
    line(format_args!("needless resynchronisations of the reference: not here {:?}", report.spurious_met));
    line(format_args!("needless resynchronisations of the reference: here too {:?}", report.spurious_unmet));
    line(format_args!(
        "coverage scenarios: {} read, {} right, {} in prose, {} failed; {} steps better than the reference \
         as they must be, {} needless ones avoided, {} not",
        scenarios.len(),
        report.right.len(),
        report.prose.len(),
        report.failures.len(),
        report.ideals,
        report.spurious_met.len(),
        report.spurious_unmet.len(),
    ));
    line(format_args!("{} passed, {} failed", report.right.len(), report.failures.len()));
    text
}
