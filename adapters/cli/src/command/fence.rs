//! `strandline fence`: take the right to write the log.

use crate::context::Context;
use crate::exit::Failure;
use crate::report::FencedReport;

/// Take the right to write the log, in a new epoch. Whoever wrote it before writes no more once it, or
/// a replica it reaches, has heard of it; records it wrote after its epoch ended are refused.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The new epoch: above every epoch that any replica of the log knows. `status` shows each one's.
    #[arg(long, value_name = "N")]
    epoch: u64,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<(), Failure> {
    let done: FencedReport = context.with_replica(|replica| replica.fence(args.epoch))?;
    let text = format!("epoch {} of {} begins after {}", done.epoch, done.authority, done.previous_end);
    context.output.result(text, &done)
}
