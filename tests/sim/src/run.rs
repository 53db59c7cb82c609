//! Runs plans: a panic of the core is a violation like any other.

use crate::plan::Plan;
use crate::world::{Outcome, Violation, World};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs a plan to its end, its first violation, or its first panic.
#[must_use]
pub fn run(plan: &Plan, traced: bool) -> Outcome {
    let mut world = World::new(plan, traced);
    let violation = match catch_unwind(AssertUnwindSafe(|| world.play(plan))) {
        Ok(judged) => judged.err(),
        Err(panic) => Some(Violation { kind: "panic", text: message(panic.as_ref()) }),
    };
    world.outcome(violation)
}

fn message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message").into()
}

/// The command that replays a run.
#[must_use]
pub fn command(plan: &Plan, kept: Option<&[usize]>) -> String {
    let ops = kept.map_or(String::new(), |kept| {
        let list: Vec<String> = kept.iter().map(usize::to_string).collect();
        format!(" --ops {}", if list.is_empty() { "none".into() } else { list.join(",") })
    });
    format!("cargo run --release -p strandline-sim -- replay {}{ops}", plan.seed)
}
