//! The `strandline` program: one replica's directory, and the node that serves it.

mod access;
mod backend;
mod cli;
mod command;
mod content;
mod context;
mod control;
mod cut;
mod entropy;
mod epoch_file;
mod exit;
mod migrate;
mod mirror;
mod output;
mod peers;
mod report;
mod text;
mod topics;
mod tree;
mod watch;

use std::process::ExitCode;

fn main() -> ExitCode {
    ExitCode::from(cli::run().code())
}
