//! The command line.

use crate::command;
use crate::context::Context;
use crate::exit::{EXIT_CODES, Exit, Failure};
use crate::output::Output;
use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use std::ffi::OsString;
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

/// Runs what this process was started with, and reports how it ended.
pub(crate) fn run() -> Exit {
    let args: Vec<OsString> = std::env::args_os().collect();
    match parse(&args) {
        Ok((cli, dir_was_given)) => {
            let output = Output::new(cli.json);
            let context = Context { dir: cli.dir, dir_was_given, output };
            dispatch(cli.command, &context).map_or_else(|failure| failed(output, &failure), |()| Exit::Done)
        }
        // Help and version are what was asked for; and what is wrong reads best with the usage beside it.
        Err(error) if !error.use_stderr() || !wants_json(&args) => {
            // Nothing can be done where nobody reads it.
            let _ = error.print();
            if error.use_stderr() { Exit::Usage } else { Exit::Done }
        }
        Err(error) => failed(Output::new(true), &wrong(&error)),
    }
}

/// The command line, and whether the directory is named on it.
fn parse(args: &[OsString]) -> Result<(Cli, bool), clap::Error> {
    let matches = Cli::command().try_get_matches_from(args)?;
    let dir_was_given = matches.value_source("dir") == Some(ValueSource::CommandLine);
    Ok((Cli::from_arg_matches(&matches)?, dir_was_given))
}

/// Whether a command line that could not be read asks for JSON.
fn wants_json(args: &[OsString]) -> bool {
    args.iter().take_while(|arg| *arg != "--").any(|arg| arg == "--json")
}

/// What is wrong with a command line, without the usage, which is for people.
fn wrong(error: &clap::Error) -> Failure {
    let text = error.render().to_string();
    let said = if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        "expected a command, found none"
    } else {
        text.split("\n\n").next().unwrap_or_default().trim_start_matches("error: ").trim()
    };
    Failure::usage(said).advise("--help shows the form of every command")
}

fn failed(output: Output, failure: &Failure) -> Exit {
    if failure.exit != Exit::OutputGone {
        output.failure(failure);
    }
    failure.exit
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

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_help_lists_the_exit_codes() {
        assert!(Cli::command().render_help().to_string().contains("5  uncertain"));
    }

    #[test]
    fn a_wrong_command_line_is_usage_and_says_what_is_wrong_in_one_piece() {
        for (line, says) in [
            ("strandline --json put", "<KEY>"),
            ("strandline status --nonsense --json", "--nonsense"),
            ("strandline --json", "a subcommand"),
            ("strandline --json events", "expected a command"),
        ] {
            let error = parse(&words(line)).expect_err(line);
            assert!(wants_json(&words(line)) && error.use_stderr(), "{line}");
            let failure = wrong(&error);
            assert_eq!(failure.exit, Exit::Usage);
            assert!(failure.message.contains(says) && !failure.message.contains("Usage:"), "{failure}");
        }
        assert!(!wants_json(&words("strandline put -- --json")), "it is a key");
        let help = parse(&words("strandline --help")).expect_err("is no command");
        assert!(!help.use_stderr());
    }

    #[test]
    fn a_directory_named_on_the_command_line_is_told_from_any_other() {
        for (line, given) in [
            ("strandline --dir d status", true),
            ("strandline status --dir d", true),
            ("strandline status", false),
        ] {
            assert_eq!(parse(&words(line)).expect(line).1, given, "{line}");
        }
    }
}
