//! `strandline backup` and `strandline restore`.

use crate::backend::node::start_failure;
use crate::context::Context;
use crate::exit::Failure;
use crate::text::size;
use std::path::{Path, PathBuf};
use strandline_file::backup::{self, BackupError, BlobCopies, Manifest};

/// Copy the replica's durable state of one moment to a new folder, verified, while the node runs on.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The folder to make.
    #[arg(value_name = "FOLDER")]
    to: PathBuf,
    /// Link blobs instead of copying them: quick, on the same file system only, and a disk that damages
    /// a blob damages both.
    #[arg(long)]
    link: bool,
}

/// Put a backup back as the replica's directory, which must not exist: the same replica in another
/// incarnation. One that wrote the log refuses writes until it is fenced.
#[derive(clap::Args, Debug)]
pub(crate) struct RestoreArgs {
    /// The backup.
    #[arg(value_name = "FOLDER")]
    from: PathBuf,
    /// Link blobs instead of copying them.
    #[arg(long)]
    link: bool,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<(), Failure> {
    // The node that serves the directory has another working directory.
    let to = std::path::absolute(&args.to).map_err(|error| Failure::io("find", &args.to, &error))?;
    let blobs = context.dir()?.join("blobs");
    let manifest = context.with_replica(|replica| {
        let moment = replica.begin_backup(&to)?;
        // While the replica is reached none of its blobs is collected.
        backup::finish(&blobs, &to, moment, copies(args.link)).map_err(|e| failure(&to, e))
    })?;
    context.output.result(text("backed up", &manifest), &manifest)
}

pub(crate) fn restore(args: &RestoreArgs, context: &Context) -> Result<(), Failure> {
    let dir = context.dir()?;
    let manifest = backup::restore(&args.from, dir, copies(args.link)).map_err(|e| failure(dir, e))?;
    context.output.note(
        "this is another incarnation: peers will say what it lacks; if it wrote the log, fence it before it \
         writes again",
    );
    context.output.result(text("restored", &manifest), &manifest)
}

const fn copies(link: bool) -> BlobCopies {
    if link { BlobCopies::Link } else { BlobCopies::Copy }
}

fn text(what: &str, manifest: &Manifest) -> String {
    let Manifest { identity, tail, present, blobs, .. } = manifest;
    format!("{what} {identity} at {tail}: {present} keys, {} blobs ({})", blobs.count, size(blobs.bytes))
}

/// What a person is told when a backup fails.
pub(crate) fn failure(at: &Path, error: BackupError) -> Failure {
    let text = error.to_string();
    match error {
        BackupError::Exists { .. } => Failure::refused(text).advise("name a folder that does not exist"),
        BackupError::NotWhole { .. } => {
            Failure::storage(text).advise("use another backup; this one is cut or damaged")
        }
        BackupError::Blob { .. } => Failure::storage(text)
            .advise("find what is missing with `strandline verify`; a peer that has it brings it back"),
        BackupError::Unavailable(_) => Failure::refused(text).advise("try again"),
        BackupError::Recovery(error) => start_failure(at, error),
        BackupError::Storage(fault) => fault.into(),
    }
}
