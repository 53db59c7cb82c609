//! Explores every set of bounds, and prints how many states there were and what was found.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Instant;
use strandline_model::bounds::Bounds;
use strandline_model::model::{SIGHTS, explore};

const USAGE: &str = "usage: strandline-model [small|large] [NAME]";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let all = match arguments.first().map(String::as_str) {
        None | Some("small") => Bounds::small(),
        Some("large") => Bounds::large(),
        Some(other) => {
            eprintln!("{USAGE}: found {other}");
            return ExitCode::from(2);
        }
    };
    let wanted = |bounds: &&Bounds| arguments.get(1).is_none_or(|name| name == bounds.name);
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let (mut states, mut failed, mut seen) = (0, false, BTreeSet::new());
    for bounds in all.iter().filter(wanted) {
        let start = Instant::now();
        let report = explore(bounds, threads);
        states += report.states;
        seen.extend(report.seen.iter().copied());
        println!(
            "{}: {} states, {} steps, {} deep, in {:.1} s; seen: {}",
            bounds.name,
            report.states,
            report.steps,
            report.depth,
            start.elapsed().as_secs_f32(),
            report.seen.join("; ")
        );
        for broken in &report.broken {
            failed = true;
            println!("BROKEN: {}: {}", broken.promise, broken.found);
            for (at, action) in broken.way.iter().enumerate() {
                println!("  {}: {action:?}", at + 1);
            }
        }
    }
    println!("{states} states in all");
    for never in SIGHTS.iter().filter(|name| arguments.len() < 2 && !seen.contains(*name)) {
        failed = true;
        println!("NEVER SEEN: {never}");
    }
    ExitCode::from(u8::from(failed))
}
