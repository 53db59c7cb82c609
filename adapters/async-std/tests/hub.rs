//! A hub on async-std: the tests of every runtime.

#[path = "../../hub/tests/suite/mod.rs"]
mod suite;

use std::future::Future;
use std::time::Duration;

#[derive(Clone, Copy)]
struct AsyncStd;

impl suite::Runtime for AsyncStd {
    fn spawn(self, task: impl Future<Output = ()> + Send + 'static) {
        async_std::task::spawn(task);
    }

    fn sleep(self, time: Duration) -> impl Future<Output = ()> + Send + 'static {
        async_std::task::sleep(time)
    }
}

fn run<F: Future<Output = ()>>(test: impl FnOnce(AsyncStd) -> F) {
    async_std::task::block_on(test(AsyncStd));
}

suite::tests!(run);
