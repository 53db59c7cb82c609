//! Random schedules before an all-knowing observer: no subscriber is ever told that it has everything
//! while it does not, and every later loss is told within three heartbeats.

use std::path::Path;
use strandline_tests::coverage::model::{FAULTS, Tally, run};
use strandline_tests::coverage::play::play;
use strandline_tests::coverage::scenario::read;

/// Seeds of the short form and of the long one.
const SEEDS: [u64; 2] = [2_000, 100_000];

fn soak() -> bool {
    std::env::var_os("STRANDLINE_SOAK").is_some()
}

#[test]
fn nobody_is_left_believing_to_be_current() {
    let only = std::env::var("STRANDLINE_SEED").ok().map(|seed| seed.parse::<u64>().expect("a number"));
    let seeds = only.map_or(0..SEEDS[usize::from(soak())], |seed| seed..seed + 1);
    let mut tally = Tally::default();
    let mut broken = Vec::new();
    for seed in seeds {
        match run(seed) {
            Ok(one) => tally.add(&one),
            Err(error) => broken.push(error),
        }
    }
    println!(
        "{} schedules, {} events, {} resumes complete, {} told to synchronise, {} of them needlessly ({:.1} %)",
        tally.runs,
        tally.published,
        tally.complete,
        tally.synced,
        tally.needless,
        100.0 * tally.needless as f64 / tally.synced.max(1) as f64,
    );
    for (name, count) in FAULTS.iter().zip(tally.faults) {
        println!("  {name}: {count}");
    }
    broken.truncate(5);
    assert!(broken.is_empty(), "replay one with STRANDLINE_SEED=n:\n{}", broken.join("\n"));
    if only.is_none() {
        assert!(tally.faults.iter().all(|count| *count > 0), "a fault that never came");
        assert!(tally.complete > 0 && tally.synced > 0);
    }
}

#[test]
fn every_scenario_of_the_reference_is_right() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios/coverage.json");
    let report = play(&read(&path).unwrap());
    assert!(report.failures.is_empty(), "{}", report.failures.join("\n"));
    assert_eq!(report.spurious_unmet, [] as [String; 0], "needless resynchronisations");
    assert!(report.right.len() >= 94 && report.ideals >= 29, "{} and {}", report.right.len(), report.ideals);
}
