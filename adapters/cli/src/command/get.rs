//! `strandline get`: the bytes of one key.

use super::key::KeyArg;
use crate::backend::Backend;
use crate::content::{self, CopyError};
use crate::context::Context;
use crate::exit::Failure;
use crate::report::EntryReport;
use crate::text::KeyText;
use serde::Serialize;
use std::io::{self, Write};
use strandline_core::record::{BlobKey, Key, State};

/// Write the bytes of a key to standard output, or with --json what the key is.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    key: KeyArg,
}

#[derive(Serialize)]
struct Found {
    #[serde(flatten)]
    key: KeyText,
    #[serde(flatten)]
    entry: EntryReport,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<(), Failure> {
    let key = args.key.key()?;
    context.with_replica(|replica| {
        let Some(entry) = replica.get(&key)? else {
            return Err(Failure::refused(format!("{key} has no record")));
        };
        let State::Present { blob } = entry.state else {
            return Err(Failure::refused(format!("{key} was deleted at version {}", entry.version)));
        };
        if context.output.is_json() {
            let found = Found { key: KeyText::from(&key), entry: EntryReport::from(&entry) };
            return context.output.result("", &found);
        }
        write_out(replica, &key, blob)
    })
}

fn write_out(replica: &mut dyn Backend, key: &Key, blob: BlobKey) -> Result<(), Failure> {
    let Some(mut from) = replica.blob(blob)? else {
        if replica.pending(key)? {
            return Err(Failure::refused(format!("blob {blob} of {key} is not here yet"))
                .advise("it comes when a peer that has it is connected; try again"));
        }
        return Err(blob_missing(key, blob));
    };
    let mut to = io::stdout().lock();
    match content::copy(&mut from, &mut to) {
        Ok((found, _)) if found == blob => to.flush().map_err(|error| Failure::output(&error)),
        Ok((found, _)) => Err(blob_damaged(key, blob, found)),
        Err(CopyError::Source(error)) => Err(blob_unreadable(key, blob, &error)),
        Err(CopyError::Target(error)) => Err(Failure::output(&error)),
    }
}

/// A blob that could not be read to its end.
pub(crate) fn blob_unreadable(key: &Key, blob: BlobKey, error: &io::Error) -> Failure {
    Failure::storage(format!("cannot read blob {blob} of {key}: {error}"))
        .advise("if a node serves the directory, look whether it still runs; else run `verify`")
}

/// A key whose blob is not stored.
pub(crate) fn blob_missing(key: &Key, blob: BlobKey) -> Failure {
    Failure::storage(format!("blob {blob} of {key} is not stored here"))
        .advise("connect to a peer that has it, or put the key again")
}

/// A blob whose bytes are not those of its name.
pub(crate) fn blob_damaged(key: &Key, blob: BlobKey, found: BlobKey) -> Failure {
    Failure::storage(format!("blob {blob} of {key} is damaged: its bytes hash to {found}"))
        .advise("do not use these bytes; run `verify`, then put the key again or reseed from a peer")
}
