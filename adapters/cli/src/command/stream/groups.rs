//! `strandline stream groups`.

use super::target::{Access, Place, closing};
use crate::context::Context;
use crate::exit::Failure;
use strandline_core::stream::StreamName;

/// Show the consumer groups of a stream: contract, cursor, what is pending, members, fence.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    #[command(flatten)]
    place: Place,
    #[arg(value_parser = super::stream)]
    stream: StreamName,
}

pub(super) async fn run(args: &Args, context: &Context) -> Result<(), Failure> {
    let mut target = args.place.open(context, Access::Existing).await?;
    let seen = target.look(&args.stream).await;
    let done = seen.and_then(|seen| {
        let seen = seen
            .ok_or_else(|| Failure::refused("the stream does not exist").advise("`stream add` makes it"))?;
        if context.output.is_json() {
            return seen.groups.iter().try_for_each(|group| context.output.result("", group));
        }
        let rows = seen.groups.into_iter().map(|group| {
            let contract = group.contract.map_or_else(|| "-".into(), |fields| fields.join(" "));
            let cursor = group.cursor.unwrap_or_else(|| "-".into());
            let members = group.members.join(" ");
            [group.group, contract, cursor, group.pending.to_string(), members, group.fence.to_string()]
        });
        context.output.table(["group", "contract", "cursor", "pending", "members", "fence"], rows)
    });
    closing(target, done)
}
