//! `strandline delete`: one key.

use super::key::KeyArg;
use crate::context::Context;
use crate::exit::Failure;
use crate::text::{KeyText, VersionText, shown};
use serde::Serialize;
use strandline_core::lifecycle::api::{Change, Mutation};
use strandline_core::record::State;

/// Delete a key that is present.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    key: KeyArg,
    /// Delete it only while it is at exactly this version.
    #[arg(long, value_name = "EPOCH.SEQUENCE")]
    if_version: Option<VersionText>,
}

#[derive(Serialize)]
struct Deleted {
    #[serde(flatten)]
    key: KeyText,
    version: VersionText,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<(), Failure> {
    let key = args.key.key()?;
    let version = context.with_replica(|replica| {
        match replica.get(&key)? {
            None => return Err(Failure::refused(format!("{key} has no record"))),
            Some(entry) if entry.state == State::Deleted => {
                return Err(Failure::refused(format!("{key} was deleted at version {}", entry.version)));
            }
            Some(_) => {}
        }
        let if_version = args.if_version.map(|v| v.0);
        let mutation = Mutation { key: key.clone(), change: Change::Delete, if_version };
        Ok(VersionText(replica.batch(&[mutation])?[0]))
    })?;
    let text = format!("{version} {} deleted", shown(key.logical_key()));
    context.output.result(text, &Deleted { key: KeyText::from(&key), version })
}
