//! `strandline init`: a directory for one log.

use crate::backend;
use crate::context::Context;
use crate::entropy::random;
use crate::exit::Failure;
use crate::report::StatusReport;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use strandline_core::id::LogId;
use strandline_core::lifecycle::recovery::Init;
use strandline_core::record::RecordLimits;

/// Make a directory for a log: a new one that this replica writes, or with --follow another's.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The replica's name, as its peers know it.
    #[arg(long, value_name = "NAME")]
    identity: String,
    /// A namespace the log may hold; can be given several times. Fixed for the log's life, and the
    /// same on all its replicas.
    #[arg(long = "namespace", value_name = "NAME", default_value = "files")]
    namespaces: Vec<OsString>,
    /// The log to follow, as `status` of its writer shows it: 32 hexadecimal digits.
    #[arg(long, value_name = "HEX", requires = "follow", value_parser = parse_log)]
    log: Option<LogId>,
    /// Follow another replica's log instead of writing one.
    #[arg(long, requires = "log", conflicts_with = "authority")]
    follow: bool,
    /// Under which name this replica writes; its identity if absent.
    #[arg(long, value_name = "ID")]
    authority: Option<String>,
}

fn parse_log(text: &str) -> Result<LogId, String> {
    LogId::parse(text).ok_or_else(|| format!("expected 32 lower-case hexadecimal digits, found {text:?}"))
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<(), Failure> {
    let authority = if args.follow {
        None
    } else {
        let text = args.authority.as_ref().unwrap_or(&args.identity);
        Some(RecordLimits::default().authority(text)?)
    };
    let init = Init {
        log: match args.log {
            Some(log) => log,
            None => LogId(random()?),
        },
        identity: args.identity.clone(),
        namespaces: args.namespaces.iter().map(|n| n.clone().into_vec()).collect(),
        authority,
    };
    let mut opened = backend::create(context.dir()?, init)?;
    let status: StatusReport = opened.replica().status()?;
    opened.close()?;
    context.output.result(format!("log {} as {}", status.log, status.identity), &status)
}
