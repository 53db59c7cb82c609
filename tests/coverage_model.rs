//! Random schedules before an all-knowing observer: no subscriber is ever told that it has everything
//! while it does not, and every later loss is told within three heartbeats.

use std::ops::Range;
use strandline_tests::coverage::model::run;
use strandline_tests::coverage::play::play;
use strandline_tests::coverage::runner::own;
use strandline_tests::coverage::scenario::read;
use strandline_tests::coverage::tally::{HAPPENINGS, Tally};

/// Seeds of the short form and of the long one.
const SEEDS: [u64; 2] = [2_000, 100_000];

/// Which seeds: the one of `STRANDLINE_SEED`, those of `STRANDLINE_SEEDS` as `from..to`, else the short
/// or the long form.
fn seeds() -> Range<u64> {
    let number = |text: &str| text.parse::<u64>().expect("a number");
    if let Ok(seed) = std::env::var("STRANDLINE_SEED") {
        return number(&seed)..number(&seed) + 1;
    }
    if let Ok(seeds) = std::env::var("STRANDLINE_SEEDS") {
        let (from, to) = seeds.split_once("..").expect("from..to");
        return number(from)..number(to);
    }
    0..SEEDS[usize::from(std::env::var_os("STRANDLINE_SOAK").is_some())]
}

/// Runs the seeds on every processor.
fn run_all(seeds: &Range<u64>) -> (Tally, Vec<String>) {
    let workers = std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
    let part = |worker: u64| {
        let mut tally = Tally::default();
        let mut broken = Vec::new();
        for seed in seeds.clone().skip(worker as usize).step_by(workers as usize) {
            match run(seed) {
                Ok(one) => tally.add(&one),
                Err(error) => broken.push(error),
            }
        }
        (tally, broken)
    };
    std::thread::scope(|scope| {
        let parts: Vec<_> = (0..workers).map(|worker| scope.spawn(move || part(worker))).collect();
        let mut all = (Tally::default(), Vec::new());
        for part in parts {
            let (tally, broken) = part.join().expect("a broken invariant of the core");
            all.0.add(&tally);
            all.1.extend(broken);
        }
        all
    })
}

#[test]
fn nobody_is_left_believing_to_be_current() {
    let seeds = seeds();
    let (tally, mut broken) = run_all(&seeds);
    println!(
        "{} schedules, {} events, {} resumes complete, {} told to synchronise, {} of them needlessly ({:.1} %)",
        tally.runs,
        tally.published,
        tally.complete,
        tally.synced,
        tally.needless,
        100.0 * tally.needless as f64 / tally.synced.max(1) as f64,
    );
    for (name, count) in HAPPENINGS.iter().zip(tally.happened) {
        println!("  {name}: {count}");
    }
    broken.truncate(5);
    assert!(broken.is_empty(), "replay one with STRANDLINE_SEED=n:\n{}", broken.join("\n"));
    if seeds.end - seeds.start >= SEEDS[0] {
        assert!(tally.happened.iter().all(|count| *count > 0), "something never came");
        assert!(tally.complete > 0 && tally.synced > 0);
    }
}

#[test]
fn every_scenario_of_the_reference_is_right() {
    let report = play(&read(&own()).unwrap());
    assert!(report.failures.is_empty(), "{}", report.failures.join("\n"));
    assert_eq!(report.spurious_unmet, [] as [String; 0], "needless resynchronisations");
    assert!(report.right.len() >= 94 && report.ideals >= 29, "{} and {}", report.right.len(), report.ideals);
}
