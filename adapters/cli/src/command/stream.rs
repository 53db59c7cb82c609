//! `strandline stream`: streams in a directory, or on Redis.

mod add;
mod consume;
mod destroy;
mod explain;
mod fault;
mod groups;
mod seen;
mod show;
mod snapshot;
mod tail;
mod target;

use crate::context::Context;
use crate::exit::Failure;
use clap::Subcommand;
use strandline_core::stream::{EventId, GroupName, StreamName};

/// Event streams whose publications can happen exactly once: in the directory that --dir names, or on
/// the server that --redis names.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Add(add::Args),
    AddOnce(add::OnceArgs),
    Snapshot(snapshot::Args),
    Tail(tail::Args),
    Consume(consume::Args),
    Groups(groups::Args),
    Destroy(destroy::Args),
    Explain(explain::Args),
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let runtime = runtime.map_err(|e| Failure::storage(format!("cannot start threads: {e}")))?;
    runtime.block_on(async {
        match &args.command {
            Command::Add(args) => add::run(args, context).await,
            Command::AddOnce(args) => add::run_once(args, context).await,
            Command::Snapshot(args) => snapshot::run(args, context).await,
            Command::Tail(args) => tail::run(args, context).await,
            Command::Consume(args) => consume::run(args, context).await,
            Command::Groups(args) => groups::run(args, context).await,
            Command::Destroy(args) => destroy::run(args, context).await,
            Command::Explain(args) => explain::run(args, context).await,
        }
    })
}

fn stream(text: &str) -> Result<StreamName, String> {
    StreamName::new(text).map_err(|_| "expected 1 to 512 characters, none of space, NUL, * ? [ ]".into())
}

fn group(text: &str) -> Result<GroupName, String> {
    let bad = "expected 1 to 512 characters, none of space, NUL, * ? [ ], and no = at the beginning";
    GroupName::new(text).map_err(|_| bad.into())
}

fn position(text: &str) -> Result<EventId, String> {
    EventId::parse(text).ok_or_else(|| format!("expected a position like 1700000000123-0, found {text:?}"))
}
