//! `strandline put`: one key from a file or standard input.

use super::key::KeyArg;
use crate::content;
use crate::context::Context;
use crate::exit::Failure;
use crate::report::BlobText;
use crate::text::{KeyText, VersionText, shown, size};
use serde::Serialize;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use strandline_core::lifecycle::api::{Change, Mutation};

/// Store a file, or standard input, under a key.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    key: KeyArg,
    /// The file to store; standard input if it is `-` or absent.
    #[arg(default_value = "-")]
    file: PathBuf,
    /// Store it only while the key is at exactly this version; 0.0 for a key without a record.
    #[arg(long, value_name = "EPOCH.SEQUENCE")]
    if_version: Option<VersionText>,
}

#[derive(Serialize)]
struct Stored {
    #[serde(flatten)]
    key: KeyText,
    version: VersionText,
    blob: BlobText,
    bytes: u64,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<(), Failure> {
    let key = args.key.key()?;
    let mut source = open(&args.file)?;
    let stored = context.with_replica(|replica| {
        let mut group = replica.group()?;
        let (blob, bytes) = group.add(&mut *source).map_err(|e| e.fatal(&args.file))?;
        group.commit()?;
        let change = Change::Put { blob };
        let mutation = Mutation { key: key.clone(), change, if_version: args.if_version.map(|v| v.0) };
        let version = replica.batch(&[mutation])?[0];
        Ok(Stored { key: KeyText::from(&key), version: VersionText(version), blob: BlobText(blob), bytes })
    })?;
    let text = format!("{} {} ({})", stored.version, shown(key.logical_key()), size(stored.bytes));
    context.output.result(text, &stored)
}

fn open(path: &Path) -> Result<Box<dyn Read>, Failure> {
    if path == Path::new("-") {
        return Ok(Box::new(io::stdin().lock()));
    }
    Ok(Box::new(content::open(path)?))
}
