//! Runs seeds, replays one, or cuts a failing one down. See `make sim`.

use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;
use strandline_sim::crash::{SCRIPTS, Visited, enumerate, failed_sync};
use strandline_sim::fault::{Counts, Fault};
use strandline_sim::plan::Plan;
use strandline_sim::run::{command, run};
use strandline_sim::shrink::shrink;
use strandline_sim::world::Outcome;

const USAGE: &str = "usage: strandline-sim run [--seeds N] [--from SEED] [--jobs N] | replay SEED [--ops I,J,...] | shrink SEED | crash";

fn main() -> ExitCode {
    // A panic of the core is reported with its seed, not here.
    std::panic::set_hook(Box::new(|_| {}));
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |name: &str| {
        let at = args.iter().position(|arg| arg == name)?;
        args.get(at + 1)?.parse::<u64>().ok()
    };
    match args.first().map(String::as_str) {
        Some("run") => {
            let threads = std::thread::available_parallelism().map_or(1, usize::from) as u64;
            let (seeds, from) = (number("--seeds").unwrap_or(2000), number("--from").unwrap_or(0));
            sweep(from, seeds, number("--jobs").unwrap_or(threads))
        }
        Some("replay") => match args.get(1).and_then(|seed| seed.parse().ok()) {
            Some(seed) => replay(seed, &args),
            None => usage(),
        },
        Some("crash") => crashes(),
        Some("shrink") => match args.get(1).and_then(|seed| seed.parse().ok()) {
            Some(seed) => shortest(seed),
            None => usage(),
        },
        _ => usage(),
    }
}

/// Prints the command that replays the shortest run found that fails as this seed does.
fn shortest(seed: u64) -> ExitCode {
    let plan = Plan::of(seed);
    match run(&plan, false).violation {
        Some(violation) => {
            println!("{}", command(&plan, Some(&shrink(&plan, violation.kind))));
            ExitCode::FAILURE
        }
        None => ExitCode::SUCCESS,
    }
}

/// Crashes every script everywhere.
fn crashes() -> ExitCode {
    let mut failed = false;
    for script in SCRIPTS {
        match enumerate(script) {
            Ok(Visited { boundaries, states, nested }) => {
                println!(
                    "{:<28} {boundaries:>5} boundaries {states:>8} states {nested:>8} nested",
                    script.name
                );
            }
            Err(text) => {
                failed = true;
                println!("{:<28} FAILS {text}", script.name);
            }
        }
    }
    match failed_sync() {
        Ok(states) => println!("{:<28} {states:>25} states", "failed sync, then power cut"),
        Err(text) => {
            failed = true;
            println!("failed sync FAILS {text}");
        }
    }
    if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}

/// What all seeds came to.
#[derive(Default)]
struct Total {
    steps: Vec<u64>,
    records: u64,
    outside_records: u64,
    counts: Counts,
    failed: Vec<(u64, Outcome)>,
}

fn sweep(from: u64, seeds: u64, jobs: u64) -> ExitCode {
    let start = Instant::now();
    let (next, stop, total) = (AtomicU64::new(from), AtomicBool::new(false), Mutex::new(Total::default()));
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= from + seeds {
                        break;
                    }
                    let outcome = run(&Plan::of(seed), false);
                    let mut total = total.lock().expect("no thread panics with it");
                    total.steps.push(outcome.steps);
                    total.records += outcome.records as u64;
                    total.outside_records += outcome.outside_records as u64;
                    total.counts.merge(&outcome.counts);
                    if outcome.violation.is_some() {
                        total.failed.push((seed, outcome));
                        stop.store(total.failed.len() >= 20, Ordering::Relaxed);
                    }
                }
            });
        }
    });
    let mut total = total.into_inner().expect("no thread panicked");
    let seconds = start.elapsed().as_secs_f64();
    total.failed.sort_by_key(|(seed, _)| *seed);
    report(&mut total, seconds, seeds)
}

fn report(total: &mut Total, seconds: f64, seeds: u64) -> ExitCode {
    total.steps.sort_unstable();
    let (ran, steps) = (total.steps.len(), total.steps.iter().sum::<u64>());
    for fault in Fault::ALL {
        println!("{:>12}  {}", total.counts.get(*fault), fault.name());
    }
    let median = total.steps.get(ran / 2).copied().unwrap_or(0);
    println!(
        "{ran} seeds, {steps} steps, {median} in the median, {} records, {} of them to peers of the reference; {:.0} seeds/s, {:.0} steps/s",
        total.records,
        total.outside_records,
        ran as f64 / seconds,
        steps as f64 / seconds
    );
    for (seed, outcome) in &total.failed {
        let violation = outcome.violation.as_ref().expect("it failed");
        let text: String = violation.text.chars().take(400).collect();
        println!("seed {seed} fails: {}: {text}", violation.kind);
    }
    if let Some((seed, outcome)) = total.failed.first() {
        let plan = Plan::of(*seed);
        let kept = shrink(&plan, outcome.violation.as_ref().expect("it failed").kind);
        println!("replay with\n  {}", command(&plan, Some(&kept)));
        return ExitCode::FAILURE;
    }
    // Too few seeds cannot meet every fault.
    let missing = total.counts.missing();
    if seeds >= 1000 && !missing.is_empty() {
        println!("never injected: {}", missing.iter().map(|f| f.name()).collect::<Vec<_>>().join(", "));
        return ExitCode::FAILURE;
    }
    if seeds >= 1000 && total.outside_records == 0 {
        println!("no peer of the reference took anything");
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

fn replay(seed: u64, args: &[String]) -> ExitCode {
    let mut plan = Plan::of(seed);
    if let Some(at) = args.iter().position(|arg| arg == "--ops") {
        let list = args.get(at + 1).map(String::as_str).unwrap_or_default();
        let kept: Vec<usize> = list.split(',').filter_map(|text| text.parse().ok()).collect();
        plan = plan.keep(&kept);
    }
    let outcome = run(&plan, true);
    for line in &outcome.trace {
        println!("{line}");
    }
    println!("{:?}, {} steps, hash {:016x}", plan.profile, outcome.steps, outcome.hash);
    match outcome.violation {
        Some(violation) => {
            println!("{}: {}", violation.kind, violation.text);
            ExitCode::FAILURE
        }
        None => ExitCode::SUCCESS,
    }
}
