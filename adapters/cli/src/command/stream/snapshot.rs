//! `strandline stream snapshot`.

use super::show;
use super::target::{Access, Place, adopting, closing};
use crate::context::Context;
use crate::exit::Failure;
use strandline_core::stream::reply::Told;
use strandline_core::stream::{StreamName, Verb};

/// Print everything that a stream keeps, as it is at one instant.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    #[command(flatten)]
    place: Place,
    #[arg(value_parser = super::stream)]
    stream: StreamName,
}

pub(super) async fn run(args: &Args, context: &Context) -> Result<(), Failure> {
    let mut handle = adopting(&args.stream)?;
    let mut target = args.place.open(context, Access::Existing).await?;
    let told = target.ask(&mut handle, Verb::Snapshot).await;
    let done = told.and_then(|told| {
        let Told::Entries(entries) = told else { unreachable!("a snapshot tells entries") };
        entries.iter().try_for_each(|entry| show::entry(context.output, entry))
    });
    closing(target, done)
}
