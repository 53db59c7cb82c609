//! A hub on tokio.

mod suite;

use std::future::Future;
use std::time::Duration;

#[derive(Clone, Copy)]
struct Tokio;

impl suite::Runtime for Tokio {
    fn spawn(self, task: impl Future<Output = ()> + Send + 'static) {
        tokio::spawn(task);
    }

    fn sleep(self, time: Duration) -> impl Future<Output = ()> + Send + 'static {
        tokio::time::sleep(time)
    }
}

fn run<F: Future<Output = ()>>(test: impl FnOnce(Tokio) -> F) {
    tokio::runtime::Builder::new_multi_thread().enable_time().build().unwrap().block_on(test(Tokio));
}

suite::tests!(run);
