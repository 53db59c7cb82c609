//! `strandline list`: the keys.

use super::key::NamespaceArg;
use crate::backend::{scan_all, whole};
use crate::context::Context;
use crate::exit::Failure;
use crate::report::EntryReport;
use crate::text::{KeyText, shown};
use serde::Serialize;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use strandline_core::record::State;

/// List keys in order, one a line.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Only keys that start with this.
    #[arg(default_value = "")]
    prefix: OsString,
    #[command(flatten)]
    namespace: NamespaceArg,
    /// Show version and blob as well.
    #[arg(long, short)]
    long: bool,
    /// List deleted keys as well.
    #[arg(long)]
    deleted: bool,
}

#[derive(Serialize)]
struct Line {
    #[serde(flatten)]
    key: KeyText,
    #[serde(flatten)]
    entry: EntryReport,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<(), Failure> {
    let scan = whole(args.namespace.bytes(), args.prefix.as_bytes(), args.deleted);
    context.with_replica(|replica| {
        scan_all(replica, scan, |key, entry| {
            let name = shown(key.logical_key());
            let text = if args.long {
                let blob = match entry.state {
                    State::Present { blob } => blob.to_string(),
                    State::Deleted => format!("{:64}", "deleted"),
                };
                format!("{:<12} {blob} {name}", entry.version.to_string())
            } else {
                name
            };
            context.output.result(text, &Line { key: KeyText::from(key), entry: EntryReport::from(entry) })
        })
    })
}
