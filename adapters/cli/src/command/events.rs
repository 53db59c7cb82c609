//! `strandline events`: live topics whose subscribers resume honestly.

mod client;
mod explain;
mod publish;
mod serve;
mod status;
mod tail;

use crate::context::Context;
use crate::exit::Failure;
use clap::Subcommand;
use strandline_core::coverage::TopicName;

/// Live topics over HTTP: served from memory or over Redis, published to, followed, explained.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Serve(serve::Args),
    Publish(publish::Args),
    Tail(tail::Args),
    Explain(explain::Args),
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Failure::storage(format!("cannot start threads: {e}")))?;
    runtime.block_on(async {
        match &args.command {
            Command::Serve(args) => serve::run(args, context.output).await,
            Command::Publish(args) => publish::run(args, context.output).await,
            Command::Tail(args) => tail::run(args, context.output).await,
            Command::Explain(args) => explain::run(args, context.output).await,
        }
    })
}

/// A topic on the command line.
fn topic(text: &str) -> Result<TopicName, String> {
    TopicName::parse(text).map_err(|bad| bad.to_string())
}
