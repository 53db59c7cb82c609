//! The simulator itself: it repeats, it finds what it must find, and the first seeds are clean.
//! `make sim` runs many more of them.

use strandline_sim::crash::{SCRIPTS, enumerate, failed_sync};
use strandline_sim::plan::Plan;
use strandline_sim::run::{command, run};
use strandline_sim::shrink::shrink;

#[test]
fn one_seed_is_one_run() {
    for seed in 0..5 {
        let plan = Plan::of(seed);
        let (first, second) = (run(&plan, true), run(&plan, true));
        assert_eq!(first.hash, second.hash, "seed {seed}");
        assert_eq!(first.trace, second.trace, "seed {seed}");
        assert_eq!(first.steps, run(&plan, false).steps, "looking changes nothing");
    }
}

#[test]
fn the_first_seeds_are_clean() {
    for seed in 0..100 {
        let plan = Plan::of(seed);
        if let Some(violation) = run(&plan, false).violation {
            let kept = shrink(&plan, violation.kind);
            panic!("{}: {}\nreplay with {}", violation.kind, violation.text, command(&plan, Some(&kept)));
        }
    }
}

#[test]
fn a_peer_of_the_reference_takes_records_in_a_share_of_the_runs() {
    let took = |seed: &u64| run(&Plan::of(*seed), false).outside_records > 0;
    let runs = (0..40).filter(took).count();
    assert!((1..30).contains(&runs), "in {runs} of 40");
}

#[test]
fn a_crash_of_a_short_script_gives_the_state_before_or_after() {
    for script in
        SCRIPTS.iter().filter(|script| ["append", "sidecar replace", "close"].contains(&script.name))
    {
        let visited = enumerate(script).expect("no third state");
        assert!(visited.states > 0, "{visited:?}");
    }
}

#[test]
fn what_recovery_shows_after_a_failed_sync_survives() {
    assert!(failed_sync().expect("it survives") > 0);
}
