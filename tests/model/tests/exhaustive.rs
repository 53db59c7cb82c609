//! The smallest bounds, and faults put into the hosts: what the exploration must find.

use strandline_model::bounds::{Bounds, Disks, Step};
use strandline_model::model::explore;
use strandline_model::world::Action;

fn tiny() -> Bounds {
    let mut bounds = Bounds::small().remove(0);
    bounds.name = "tiny";
    bounds.script = [&[Step::Delete("k")], &[]];
    (bounds.dials, bounds.cuts, bounds.crashes) = ([0, 1], 0, [1, 1]);
    (bounds.frame_faults, bounds.ticks) = (0, 0);
    bounds
}

#[test]
fn every_state_within_the_smallest_bounds_keeps_every_promise() {
    let report = explore(&tiny(), 2);
    assert!(report.broken.is_empty(), "{:#?}", report.broken);
    assert!(report.states > 100, "{} states are too few to say anything", report.states);
    assert!(report.seen.contains(&"they converge"), "seen: {:?}", report.seen);
}

#[test]
fn the_same_bounds_have_the_same_states() {
    let (one, two) = (explore(&tiny(), 1), explore(&tiny(), 2));
    assert_eq!((one.states, one.steps), (two.states, two.steps));
}

#[test]
fn an_append_answered_before_it_is_durable_is_found() {
    let report = explore(&Bounds { disks: Disks::AnswerEarly, ..tiny() }, 2);
    let broken = report.broken.first().expect("a crash loses what was acknowledged");
    assert_eq!(broken.promise, "nothing acknowledged is lost", "{broken:?}");
    assert!(matches!(broken.way.last(), Some(Action::Crash(..))), "{:?}", broken.way);
}
