//! A hub on smol.

mod suite;

use std::future::Future;
use std::time::Duration;

#[derive(Clone, Copy)]
struct Smol;

impl suite::Runtime for Smol {
    fn spawn(self, task: impl Future<Output = ()> + Send + 'static) {
        smol::spawn(task).detach();
    }

    async fn sleep(self, time: Duration) {
        smol::Timer::after(time).await;
    }
}

fn run<F: Future<Output = ()>>(test: impl FnOnce(Smol) -> F) {
    smol::block_on(test(Smol));
}

suite::tests!(run);
