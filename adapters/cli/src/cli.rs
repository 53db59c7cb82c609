//! The command line.

use crate::command;
use crate::context::Context;
use crate::exit::{EXIT_CODES, Exit, Failure};
use crate::output::Output;
use clap::{Parser, Subcommand};
use std::path::PathBuf;

/// Replicated key spaces whose history never lies: directories imported, repaired between replicas
/// over TCP, exported identical; a delete stays deleted, what was acknowledged stays.
#[derive(Debug, Parser)]
#[command(name = "strandline", version, after_help = EXIT_CODES, max_term_width = 100)]
pub(crate) struct Cli {
    /// The replica's directory. While a node serves it, commands go through the node.
    #[arg(long, global = true, env = "STRANDLINE_DIR", value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Print one JSON object a line instead of text and tables.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Init(command::init::Args),
    Put(command::put::Args),
    Get(command::get::Args),
    Delete(command::delete::Args),
    List(command::list::Args),
    Import(command::import::Args),
    Export(command::export::Args),
    Serve(command::serve::Args),
    Reload(command::reload::Args),
    Status(command::status::Args),
    Verify(command::verify::Args),
    Compact(command::compact::Args),
    Gc(command::gc::Args),
    Members(command::members::Args),
    Watch(command::watch::Args),
    Explain(command::explain::Args),
    Events(command::events::Args),
    Stream(command::stream::Args),
    History(command::history::Args),
    Backup(command::backup::Args),
    Restore(command::backup::RestoreArgs),
    Migrate(command::migrate::Args),
    Fence(command::fence::Args),
    Reseed(command::reseed::Args),
    Demo(command::demo::Args),
}

impl Cli {
    /// Runs the command and reports how it ended.
    pub(crate) fn run(self) -> Exit {
        let output = Output::new(self.json);
        let context = Context { dir: self.dir, output };
        match dispatch(self.command, &context) {
            Ok(()) => Exit::Done,
            Err(failure) if failure.exit == Exit::OutputGone => failure.exit,
            Err(failure) => {
                output.failure(&failure);
                failure.exit
            }
        }
    }
}

fn dispatch(command: Command, context: &Context) -> Result<(), Failure> {
    match command {
        Command::Init(args) => command::init::run(&args, context),
        Command::Put(args) => command::put::run(&args, context),
        Command::Get(args) => command::get::run(&args, context),
        Command::Delete(args) => command::delete::run(&args, context),
        Command::List(args) => command::list::run(&args, context),
        Command::Import(args) => command::import::run(&args, context),
        Command::Export(args) => command::export::run(&args, context),
        Command::Serve(args) => command::serve::run(&args, context),
        Command::Reload(args) => command::reload::run(&args, context),
        Command::Status(args) => command::status::run(&args, context),
        Command::Verify(args) => command::verify::run(&args, context),
        Command::Compact(args) => command::compact::run(&args, context),
        Command::Gc(args) => command::gc::run(&args, context),
        Command::Members(args) => command::members::run(&args, context),
        Command::Watch(args) => command::watch::run(&args, context),
        Command::Events(args) => command::events::run(&args, context),
        Command::Stream(args) => command::stream::run(&args, context),
        Command::Explain(args) => command::explain::run(&args, context),
        Command::History(args) => command::history::run(&args, context),
        Command::Backup(args) => command::backup::run(&args, context),
        Command::Restore(args) => command::backup::restore(&args, context),
        Command::Migrate(args) => command::migrate::run(&args, context),
        Command::Fence(args) => command::fence::run(&args, context),
        Command::Reseed(args) => command::reseed::run(&args, context),
        Command::Demo(args) => command::demo::run(&args, context),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_help_lists_the_exit_codes() {
        assert!(Cli::command().render_help().to_string().contains("5  uncertain"));
    }

    #[test]
    fn a_wrong_command_line_ends_as_usage() {
        let error = Cli::try_parse_from(["strandline", "put"]).expect_err("a key is missing");
        assert_eq!(error.exit_code(), i32::from(Exit::Usage.code()));
    }
}
