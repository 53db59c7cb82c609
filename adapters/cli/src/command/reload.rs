//! `strandline reload`: let the running node read its peers file anew.

use crate::context::Context;
use crate::exit::Failure;

/// Let the node that serves the directory read its peers file, certificates and keys anew, as SIGHUP
/// does. Links that are still allowed go on; the others end. If a file cannot be used nothing changes.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {}

pub(crate) fn run(_: &Args, context: &Context) -> Result<(), Failure> {
    let done = context.with_replica(|replica| replica.reload())?;
    let text = format!(
        "reloaded: {} links ended as they are not allowed any more, {} more peers are called",
        done.links_ended, done.peers_called
    );
    context.output.result(text, &done)
}
