//! `strandline verify --blobs`: every blob read at a limited rate, and mended from a peer.

use crate::backend::Backend;
use crate::context::Context;
use crate::exit::Failure;
use crate::report::ScrubbedReport;
use crate::text::{shown, size};
use std::thread;
use std::time::{Duration, Instant};
use strandline_core::lifecycle::api::Scrub;

/// Time between two looks at what is still wanted.
const PAUSE: Duration = Duration::from_millis(100);

/// Looks at the blobs, then waits up to `wait` for peers to mend what is bad.
pub(crate) fn run(bytes_per_second: u64, wait: Duration, context: &Context) -> Result<(), Failure> {
    let (report, wanted) = context.with_replica(|replica| {
        let scrubbed = replica.scrub(Scrub { bytes_per_second })?;
        Ok((ScrubbedReport::from(&scrubbed), mended(replica, wait)?))
    })?;
    if !context.output.is_json() {
        for bad in &report.bad {
            let problem = if bad.damaged { "damaged" } else { "missing" };
            let key = bad.key.to_key().map_err(Failure::peer)?;
            context.output.text(format!("{problem}: blob {} of {}", bad.blob.0, shown(key.logical_key())))?;
        }
        let unnamed = report.found.saturating_sub(report.bad.len() as u64);
        if unnamed > 0 {
            context.output.text(format!("and {unnamed} more that are not named here"))?;
        }
    }
    let text = format!(
        "{} blobs ({}) read, {} bad, {wanted} still wanted from peers",
        report.keys,
        size(report.bytes),
        report.found
    );
    context.output.result(text, &ScrubbedReport { wanted, ..report })?;
    if wanted == 0 {
        return Ok(());
    }
    Err(Failure::storage(format!("{wanted} blobs are missing or damaged"))
        .advise("serve with a peer that has them, or put or import the keys named again"))
}

/// How many blobs are wanted after `wait`, or 0 as soon as none is.
fn mended(replica: &mut dyn Backend, wait: Duration) -> Result<u64, Failure> {
    let start = Instant::now();
    loop {
        let wanted = replica.status()?.blobs_wanted;
        if wanted == 0 || start.elapsed() >= wait {
            return Ok(wanted);
        }
        thread::sleep(PAUSE);
    }
}
