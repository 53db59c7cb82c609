//! Groups and leases under faults: 2,000 seeds, a hundred times as many with `STRANDLINE_SOAK`.
//!
//! `STRANDLINE_STREAM_GROUPS=17` replays one seed.

use strandline_tests::streams::groups::{Counts, run};

const SEEDS: u64 = 2_000;

/// Every fault that so many seeds must have met.
const FAULTS: [&str; 16] = [
    "answer lost",
    "clock set back",
    "clock set forward",
    "effect after the asker gave up",
    "everything lost",
    "failover",
    "group lost",
    "hole told",
    "log evicted",
    "question lost",
    "refused by the server",
    "server refuses",
    "wait broken",
    "worker closed",
    "worker killed",
    "worker stalled",
];

fn play(seed: u64) -> Counts {
    run(seed).unwrap_or_else(|broken| {
        panic!(
            "seed {seed}: {broken}\nto replay it:\n  \
             STRANDLINE_STREAM_GROUPS={seed} cargo test -p strandline-tests --test streams_groups"
        )
    })
}

#[test]
fn no_event_is_settled_unprocessed_or_lost_untold_and_a_fence_has_one_owner() {
    if let Ok(seed) = std::env::var("STRANDLINE_STREAM_GROUPS") {
        play(seed.parse().expect("a seed"));
        return;
    }
    let seeds = if std::env::var_os("STRANDLINE_SOAK").is_some() { 100 * SEEDS } else { SEEDS };
    let mut counts = Counts::new();
    for seed in 0..seeds {
        for (fault, count) in play(seed) {
            *counts.entry(fault).or_default() += count;
        }
    }
    println!("{seeds} seeds: {counts:#?}");
    let unmet: Vec<&str> = FAULTS.into_iter().filter(|fault| !counts.contains_key(fault)).collect();
    assert!(unmet.is_empty(), "{seeds} seeds and never: {unmet:?}");
}

#[test]
fn a_seed_gives_the_same_run_twice() {
    assert_eq!(play(7), play(7));
}
