//! The examples of the documents, on a real server.

use strandline_redis::{Connect as _, Names};
use strandline_streams::{Failure, Streams};
use strandline_tests::streams::server::RedisServer;

#[path = "../adapters/redis/examples/exactly_once.rs"]
#[allow(dead_code, reason = "the example's own `main` is not used here")]
mod exactly_once;
#[path = "../adapters/redis/examples/outbox.rs"]
#[allow(dead_code, reason = "the example's own `main` is not used here")]
mod outbox;
#[path = "../adapters/redis/examples/worker_pool.rs"]
#[allow(dead_code, reason = "the example's own `main` is not used here")]
mod worker_pool;

fn on_a_server<T>(example: impl AsyncFnOnce(Streams) -> Result<T, Failure>) -> T {
    let process = RedisServer::start(None);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let names = Names::tagged_below("example").expect("a name");
        let streams = Streams::connect(&process.url(), names).await.expect("connected");
        example(streams).await.unwrap_or_else(|failure| panic!("{failure}"))
    })
}

#[test]
fn a_pool_of_workers_does_every_job_and_gives_up_what_cannot_be_done() {
    let (done, dead) = on_a_server(async |streams| worker_pool::run(&streams, 30, 3).await);
    assert_eq!((done, dead), (27, 3));
}

#[test]
fn a_publisher_that_is_started_again_publishes_only_what_is_new() {
    let fresh = on_a_server(async |streams| {
        Ok([exactly_once::run(&streams, 0..20).await?, exactly_once::run(&streams, 10..30).await?])
    });
    assert_eq!(fresh, [20, 10]);
}

#[test]
fn a_relay_that_died_publishes_nothing_twice() {
    assert_eq!(on_a_server(async |streams| outbox::run(&streams).await), (2, 1));
}
