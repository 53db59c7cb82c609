//! `strandline compact`: drop history that every member has.

use super::members;
use crate::context::Context;
use crate::exit::Failure;
use crate::report::CompactedReport;
use crate::text::{VersionText, size};

/// Drop the journal up to what every member has acknowledged, and the tombstones with it.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Compact to this version instead of the highest one allowed.
    #[arg(long, value_name = "EPOCH.SEQUENCE")]
    upto: Option<VersionText>,
    /// Drop nothing: say how far it may go, and which member keeps it from going further.
    #[arg(long, conflicts_with = "upto")]
    explain: bool,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<(), Failure> {
    if args.explain {
        return members::explain(&context.with_replica(|replica| replica.status())?, context);
    }
    let done = context.with_replica(|replica| replica.compact(args.upto.map(|v| v.0)))?;
    let report = CompactedReport::from(done);
    let text = format!(
        "floor {}: {} records ({}) in the checkpoint, {} journal entries and {} tombstones dropped",
        report.floor,
        report.records,
        size(report.checkpoint_bytes),
        report.entries_dropped,
        report.tombstones_dropped
    );
    context.output.result(text, &report)
}
