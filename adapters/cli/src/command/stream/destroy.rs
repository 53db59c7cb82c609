//! `strandline stream destroy`.

use super::target::{Access, Place, adopting, closing};
use crate::context::Context;
use crate::exit::Failure;
use serde::Serialize;
use strandline_core::stream::reply::Told;
use strandline_core::stream::{StreamName, Verb};

/// End a stream's generation with everything it owns. The next `stream add` makes a new one.
#[derive(clap::Args, Debug)]
pub(super) struct Args {
    #[command(flatten)]
    place: Place,
    #[arg(value_parser = super::stream)]
    stream: StreamName,
}

#[derive(Serialize)]
struct Destroyed {
    generation: u64,
}

pub(super) async fn run(args: &Args, context: &Context) -> Result<(), Failure> {
    let mut handle = adopting(&args.stream)?;
    let mut target = args.place.open(context, Access::Existing).await?;
    let told = target.ask(&mut handle, Verb::Destroy).await;
    let done = told.and_then(|told| {
        let Told::Destroyed { .. } = told else { unreachable!("destroy tells what it did") };
        let generation = handle.bound().map_or(0, |bound| bound.generation);
        context.output.result(format!("generation {generation} is over"), &Destroyed { generation })
    });
    closing(target, done)
}
