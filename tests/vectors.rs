//! Plays the conformance vectors and prints what was played: the ones in `vectors`, and those of the
//! directory named by `STRANDLINE_VECTORS`, if it is set.
//!
//! Fails on any difference outside the two tables, on a kind or section it does not know, and on a
//! difference of `expected_differences.txt` that no longer differs or falls under another rule.
//! Differences of another directory are judged by kind alone.

use std::path::Path;
use std::process::ExitCode;
use strandline_tests::conformance::{Report, expectations, play};

fn main() -> ExitCode {
    if std::env::args().any(|argument| argument == "--list") {
        return ExitCode::SUCCESS;
    }
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors");
    let mut good = run(&own, |report| expectations::unmet(include_str!("expected_differences.txt"), report));
    if let Some(other) = std::env::var_os("STRANDLINE_VECTORS") {
        // Tests run in the crate's folder; a path relative to the workspace is meant as such.
        let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the crate is in a workspace");
        good &= run(&workspace.join(other), |_| Vec::new());
    }
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(directory: &Path, unmet: impl Fn(&Report) -> Vec<String>) -> bool {
    println!("vectors of {}", directory.display());
    let report = match play(directory) {
        Ok(report) => report,
        Err(trouble) => {
            println!("cannot be played: {trouble}");
            return false;
        }
    };
    println!("{}", report.text());
    let unmet = unmet(&report);
    for line in &unmet {
        println!("  {line}");
    }
    if std::env::args().any(|argument| argument == "--differences") {
        print!("{}", expectations::write(&report));
    }
    report.failures().is_empty() && unmet.is_empty()
}
