//! The tests of every runtime, on async-std.

#[path = "../../net/tests/suite/mod.rs"]
mod suite;

use strandline_async_std::AsyncStd;
use suite::Outcome;

fn run<F: Future<Output = Outcome>>(test: impl FnOnce(AsyncStd) -> F) -> Outcome {
    async_std::task::block_on(test(AsyncStd))
}

suite::tests!(run);
