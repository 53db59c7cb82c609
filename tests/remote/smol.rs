//! The same on smol, which async-std is built on: no tokio runtime far and wide.

use crate::support::{PATIENT, SHORT, add, ask, handle, op, payloads, remote, stream, tagged};
use ::futures::future::{Either, select};
use std::pin::pin;
use std::time::Duration;
use strandline_core::stream::client::{LogPosition, Waited};
use strandline_core::stream::{EventId, Outcome, ServerFault, StreamError};
use strandline_redis::{Address, Bell};
use strandline_tests::streams::server::RedisServer;

#[test]
fn operations_waits_and_deadlines_run_on_smol() {
    assert!(tokio::runtime::Handle::try_current().is_err(), "no tokio here");
    let mut server = RedisServer::start(None);
    ::smol::block_on(async {
        let remote = remote(&server, PATIENT);
        let mut orders = handle("orders");
        ask(&remote, &mut orders, add("a")).await;
        let address = Address::one(&server.url()).expect("an address");
        let mut bell = Bell::new(address, tagged(), 60_000).expect("a bell");
        let logs = [LogPosition { stream: stream("orders"), generation: 1, after: EventId::ZERO }];
        assert_eq!(bell.wait(&logs).await, Waited::Rung);
        assert_eq!(payloads(&remote, &mut orders).await, ["a"]);

        server.restart_with(&[]);
        let mut fresh = handle("orders");
        // The connection that ended leaves the first one uncertain.
        assert!(matches!(remote.apply(&op(&orders, add("b"))).await, Outcome::Uncertain(_)));
        ask(&remote, &mut fresh, add("c")).await;
        server.kill();
        let hurried = crate::support::remote(&server, SHORT);
        let late = op(&fresh, add("d"));
        let outcome = pin!(hurried.apply(&late));
        let Either::Left((outcome, _)) =
            select(outcome, pin!(::smol::Timer::after(Duration::from_secs(60)))).await
        else {
            panic!("expected an end within its bound")
        };
        let Outcome::Answered { result: Err(StreamError::Server(fault)), .. } = outcome else {
            panic!("{outcome:?}")
        };
        assert!(matches!(fault, ServerFault::NotSent { .. }), "{fault:?}");
    });
}
