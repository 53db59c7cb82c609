//! `strandline demo`: the whole promise on real processes, told as one table.

mod compare;
mod proxy;
mod replica;
mod source;
mod steps;

use crate::context::Context;
use crate::entropy::random;
use crate::exit::Failure;
use crate::output::Output;
use serde::Serialize;
use std::fs;
use std::path::PathBuf;
use strandline_core::id::hex;

/// Run the whole story on this machine: a directory is imported, repaired to other replicas over
/// TCP, a replica is killed and recovers, a delete is never undone, history is compacted, a late
/// replica is bootstrapped, and what it exports is compared byte for byte.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The directory to import; it is only read. A tree is made if none is given.
    source: Option<PathBuf>,
    /// Keep the replicas and say where they are.
    #[arg(long)]
    keep: bool,
}

/// A step of the story.
#[derive(Debug, Serialize)]
struct Step {
    step: &'static str,
    done: &'static str,
    evidence: String,
    ok: bool,
}

/// The steps so far. A step that fails ends the story: the next ones build on it.
struct Story {
    output: Output,
    steps: Vec<Step>,
}

impl Story {
    fn step(
        &mut self,
        step: &'static str,
        done: &'static str,
        run: impl FnOnce() -> Result<String, Failure>,
    ) -> Result<(), Failure> {
        self.output.note(format!("{step} ..."));
        let (evidence, ended) = match run() {
            Ok(evidence) => (evidence, Ok(())),
            Err(failure) => (failure.message.clone(), Err(failure)),
        };
        let ok = ended.is_ok();
        self.steps.push(Step { step, done, evidence, ok });
        ended
    }

    fn tell(&self) -> Result<(), Failure> {
        if self.output.is_json() {
            return self.steps.iter().try_for_each(|step| self.output.result("", step));
        }
        let rows = self.steps.iter().enumerate().map(|(i, step)| {
            let ok = if step.ok { "ok" } else { "FAILED" };
            [format!("{} {}", i + 1, step.step), step.done.to_owned(), step.evidence.clone(), ok.to_owned()]
        });
        self.output.table(["step", "what was done", "evidence", ""], rows)
    }
}

/// The demo's directory, removed at the end unless it is kept.
struct Scratch {
    path: PathBuf,
    keep: bool,
}

impl Scratch {
    fn new(keep: bool) -> Result<Self, Failure> {
        let path = std::env::temp_dir().join(format!("strandline-demo-{}", hex(&random::<8>()?)));
        fs::create_dir(&path).map_err(|e| Failure::io("make", &path, &e))?;
        Ok(Self { path, keep })
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if !self.keep {
            // What stays in the directory for temporary files is for the system to remove.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<(), Failure> {
    let output = context.output;
    let scratch = Scratch::new(args.keep)?;
    let source = match &args.source {
        Some(source) => source.clone(),
        None => {
            let made = scratch.path.join("source");
            source::make(&made)?;
            made
        }
    };
    let mut story = Story { output, steps: Vec::new() };
    let ended = steps::tell(&mut story, &source, &scratch.path);
    story.tell()?;
    if args.keep {
        output.text(format!("kept in {}", scratch.path.display()))?;
    }
    let failed =
        |failure: Failure| Failure { message: format!("the demo failed: {}", failure.message), ..failure };
    ended.map_err(failed)?;
    output.text("every step held")
}
