//! placeholder
use crate::{context::Context, exit::Failure};
/// Demo
#[derive(clap::Args, Debug)]
pub(crate) struct Args {}
pub(crate) fn run(_: &Args, _: &Context) -> Result<(), Failure> {
    Ok(())
}
