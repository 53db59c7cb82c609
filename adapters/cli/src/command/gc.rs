//! `strandline gc`: remove the blobs that nothing needs any more.

use crate::context::Context;
use crate::exit::Failure;
use crate::report::CollectedReport;
use crate::text::size;
use strandline_core::lifecycle::api::Collect;

/// Remove the blobs that nothing needs: no key, no write under way, nothing on its way in, and no member
/// that lacks a blob.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// Say what would be removed, and remove nothing. Names the first 1,024 blobs and counts all.
    #[arg(long)]
    dry_run: bool,
    /// Leave alone what was stored, or stored again, less than this long ago. Writers store a blob
    /// before they name it: 0 only while nobody writes.
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    untouched: u64,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<(), Failure> {
    let collect = Collect { dry_run: args.dry_run, untouched_ms: args.untouched.saturating_mul(1000) };
    let collected = context.with_replica(|replica| replica.collect(collect))?;
    let report = CollectedReport::new(args.dry_run, &collected);
    if args.dry_run && !context.output.is_json() {
        for blob in &report.keys {
            context.output.text(format!("{}", blob.0))?;
        }
        let unnamed = report.blobs.saturating_sub(report.keys.len() as u64);
        if unnamed > 0 {
            context.output.text(format!("and {unnamed} more that are not named here"))?;
        }
    }
    let done = if args.dry_run { "would be removed" } else { "removed" };
    let text = format!("{} of {} blobs ({}) {done}", report.blobs, report.looked, size(report.bytes));
    context.output.result(text, &report)
}
