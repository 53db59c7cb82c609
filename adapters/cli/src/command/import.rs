//! `strandline import`: a directory as keys.

use super::key::NamespaceArg;
use crate::backend::{Backend, scan_all, whole};
use crate::context::Context;
use crate::exit::Failure;
use crate::mirror::apply::{Counts, Progress, apply};
use crate::mirror::plan::plan;
use crate::output::Output;
use crate::text::{Bytes, KeyText, VersionText, shown, size};
use crate::tree::scan::{Skipped, scan};
use indicatif::ProgressBar;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use strandline_core::lifecycle::api::{Change, Mutation};
use strandline_core::record::{BlobKey, RecordLimits, State, Version};

/// Mirror a directory into a namespace: paths become keys, contents blobs, directories keys ending
/// in `/`; what vanished since the last import is deleted. Symlinks and special files are listed
/// and left out.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The directory to mirror.
    source: PathBuf,
    #[command(flatten)]
    namespace: NamespaceArg,
    /// Delete also if more than half of the keys have vanished.
    #[arg(long)]
    force: bool,
    /// Print a line for each change as soon as it is durable: `put VERSION KEY` or `delete VERSION
    /// KEY`.
    #[arg(long)]
    acks: bool,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<(), Failure> {
    let counts = context.with_replica(|replica| import(replica, args, context))?;
    let text = format!(
        "{} added, {} changed, {} unchanged, {} deleted, {} skipped, {} failed; {} stored",
        counts.added,
        counts.changed,
        counts.unchanged,
        counts.deleted,
        counts.skipped,
        counts.failed,
        size(counts.bytes_stored)
    );
    context.output.result(text, &counts)?;
    if counts.failed > 0 {
        return Err(Failure::incomplete(format!("{} paths are not in the replica", counts.failed))
            .advise("they are named above; import again"));
    }
    Ok(())
}

fn import(replica: &mut dyn Backend, args: &Args, context: &Context) -> Result<Counts, Failure> {
    let output = context.output;
    let namespace = args.namespace.bytes();
    check_writable(replica, namespace)?;
    let own = context.dir.as_deref().and_then(|dir| rustix::fs::stat(dir).ok());
    let scanned = scan(&args.source, own.as_ref(), RecordLimits::default().logical_key_bytes_max)?;
    let plan = plan(scanned.found, present(replica, namespace)?);
    if !args.force {
        plan.check_vanished()?;
    }
    scanned.skipped.iter().try_for_each(|skipped| tell_skipped(output, skipped))?;
    let bar = output.progress("import", plan.candidates.len() as u64);
    let mut told = Told { output, acks: args.acks, bar, durable: 0 };
    let applied = apply(replica, &args.source, namespace, plan, &mut told);
    let mut counts = applied.map_err(|failure| after(told.durable, failure))?;
    told.bar.finish_and_clear();
    counts.skipped = scanned.skipped.len() as u64;
    counts.failed += scanned.skipped.iter().filter(|s| s.why.is_loss()).count() as u64;
    Ok(counts)
}

/// A failure once something is durable.
fn after(durable: u64, failure: Failure) -> Failure {
    if durable > 0 { failure.partly(format!("stopped after {durable} durable changes")) } else { failure }
}

/// Refuses before anything is read where nothing could be written.
fn check_writable(replica: &mut dyn Backend, namespace: &[u8]) -> Result<(), Failure> {
    let status = replica.status()?;
    if status.authority.is_none() {
        return Err(Failure::refused(format!("replica {} follows and takes no imports", status.identity))
            .advise("import at the log's writer"));
    }
    if !status.namespaces.iter().any(|n| n.0 == namespace) {
        return Err(Failure::usage(format!("namespace {} is none of this log's", shown(namespace)))
            .advise("`status` lists the namespaces"));
    }
    Ok(())
}

/// The keys present and what they name.
fn present(replica: &mut dyn Backend, namespace: &[u8]) -> Result<BTreeMap<Vec<u8>, BlobKey>, Failure> {
    let mut present = BTreeMap::new();
    scan_all(replica, whole(namespace, b"", false), |key, entry| {
        if let State::Present { blob } = entry.state {
            present.insert(key.logical_key().to_vec(), blob);
        }
        Ok(())
    })?;
    Ok(present)
}

#[derive(Serialize)]
struct NotImported {
    path: Bytes,
    not_imported: String,
}

fn tell_skipped(output: Output, skipped: &Skipped) -> Result<(), Failure> {
    let why = skipped.why.to_string();
    output.note(format!("skipped {}: {why}", shown(&skipped.path)));
    let line = NotImported { path: Bytes(skipped.path.clone()), not_imported: why };
    if output.is_json() { output.result("", &line) } else { Ok(()) }
}

#[derive(Serialize)]
struct Ack {
    ack: &'static str,
    version: VersionText,
    #[serde(flatten)]
    key: KeyText,
}

struct Told {
    output: Output,
    acks: bool,
    bar: ProgressBar,
    /// Changes acknowledged so far.
    durable: u64,
}

impl Progress for Told {
    fn acknowledged(&mut self, mutation: &Mutation, version: Version) -> Result<(), Failure> {
        self.durable += 1;
        if !self.acks {
            return Ok(());
        }
        let ack = match mutation.change {
            Change::Put { .. } => "put",
            Change::Delete => "delete",
        };
        let text = format!("{ack} {version} {}", shown(mutation.key.logical_key()));
        let line = Ack { ack, version: VersionText(version), key: KeyText::from(&mutation.key) };
        self.bar.suspend(|| self.output.result(text, &line))
    }

    fn failed(&mut self, key: &[u8], error: &io::Error) -> Result<(), Failure> {
        let not_imported = error.to_string();
        self.bar.suspend(|| {
            self.output.note(format!("cannot read {}: {not_imported}", shown(key)));
            let line = NotImported { path: Bytes(key.to_vec()), not_imported: not_imported.clone() };
            if self.output.is_json() { self.output.result("", &line) } else { Ok(()) }
        })
    }

    fn step(&mut self) {
        self.bar.inc(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;

    #[test]
    fn a_refusal_after_durable_changes_does_not_say_that_nothing_changed() {
        assert_eq!(after(0, Failure::refused("full")).exit, Exit::Refused);
        assert_eq!(after(3, Failure::refused("full")).exit, Exit::Incomplete);
        assert_eq!(after(3, Failure::uncertain("lost")).exit, Exit::Uncertain);
    }
}
