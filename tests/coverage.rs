//! Plays the scenarios of protocol C against the core's hub. `STRANDLINE_COVERAGE_SCENARIOS` names
//! another file of the same form.

use std::process::ExitCode;
use strandline_tests::coverage::runner::{chosen, run};

fn main() -> ExitCode {
    match run(&chosen()) {
        Ok(summary) => {
            print!("{}", summary.text);
            if summary.right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
