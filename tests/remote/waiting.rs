//! Waiting for news holds up no operation of the same client.

use super::support::{PATIENT, add, ask, handle, must, plain, runtime, stream, tagged, wait_async};
use futures::future::{Either, select};
use std::pin::pin;
use strandline_core::stream::EventId;
use strandline_core::stream::client::LogPosition;
use strandline_core::stream::reply::Told;
use strandline_redis::{Address, Redis};
use strandline_streams::Backend as _;
use strandline_tests::streams::server::RedisServer;

/// Longer than anything else here may take.
const WAIT_MS: u64 = 600_000;

#[test]
fn an_operation_does_not_stand_behind_a_wait() {
    let server = RedisServer::start(None);
    let mut watching = plain(&server);
    runtime().block_on(async {
        let address = Address::one(&server.url()).expect("an address");
        let redis = Redis::at(address, tagged(), PATIENT).expect("names that can live there");
        let orders = LogPosition { stream: stream("orders"), generation: 1, after: EventId::ZERO };
        let asking = async {
            let blocked =
                || must::<String>(&mut watching, &["INFO", "clients"]).contains("blocked_clients:1");
            wait_async("the wait to have begun", blocked).await;
            ask(redis.remote(), &mut handle("invoices"), add("x")).await
        };
        match select(redis.wait(vec![orders], WAIT_MS), pin!(asking)).await {
            Either::Left((waited, _)) => panic!("nothing came to wait for, found {waited:?}"),
            Either::Right((told, _)) => assert!(matches!(told, Told::Added { id: Some(_) }), "{told:?}"),
        }
    });
}
