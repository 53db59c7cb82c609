//! Plays the scenarios of protocol C against the core's hub. `STRANDLINE_COVERAGE_SCENARIOS` names
//! another file of the same form.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use strandline_tests::coverage::play::play;
use strandline_tests::coverage::scenario::read;

/// Scenarios in prose, and the test by hand of each.
const BY_HAND: [(&str, &str); 5] = [
    ("cov-032", "reports_fire_outside_the_hub"),
    ("cov-033", "concurrent_use"),
    ("cov-035", "a_buffer_of_no_size"),
    ("cov-078", "concurrent_publishes_stay_dense_and_ordered"),
    ("cov-117", "every_field_a_filter_reads_survives_the_wire"),
];

fn main() -> ExitCode {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/coverage.json");
    let path = std::env::var_os("STRANDLINE_COVERAGE_SCENARIOS").map_or(own, PathBuf::from);
    let scenarios = match read(&path) {
        Ok(scenarios) => scenarios,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let report = play(&scenarios);
    for id in &report.prose {
        match BY_HAND.iter().find(|(prose, _)| prose == id) {
            Some((_, test)) => println!("{id} in prose: the test {test}"),
            None => println!("{id} in prose: not played"),
        }
    }
    for failure in &report.failures {
        println!("FAILED {failure}");
    }
    println!("needless resynchronisations of the reference: not here {:?}", report.spurious_met);
    println!("needless resynchronisations of the reference: here too {:?}", report.spurious_unmet);
    println!(
        "coverage scenarios: {} right, {} in prose, {} failed; {} steps better than the reference as they \
         must be, {} needless ones avoided, {} not",
        report.right.len(),
        report.prose.len(),
        report.failures.len(),
        report.ideals,
        report.spurious_met.len(),
        report.spurious_unmet.len(),
    );
    println!("{} passed, {} failed", report.right.len(), report.failures.len());
    if report.failures.is_empty() && !report.right.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
