//! The tests of every runtime, on tokio.

#[path = "../../net/tests/suite/mod.rs"]
mod suite;

use strandline_tokio::Tokio;
use suite::Outcome;

fn run<F: Future<Output = Outcome>>(test: impl FnOnce(Tokio) -> F) -> Outcome {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async { test(Tokio::current()).await })
}

suite::tests!(run);
