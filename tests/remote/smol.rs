//! The same on smol, which async-std is built on: no tokio runtime far and wide.

use crate::support::{
    GIVE_UP, PATIENT, SHORT, add, ask, event, handle, op, payloads, remote, stream, tagged,
};
use ::futures::StreamExt as _;
use ::futures::future::{Either, select};
use std::pin::pin;
use std::time::Duration;
use strandline_core::stream::client::{LogPosition, Waited};
use strandline_core::stream::{EventId, Outcome, ServerFault, StreamError};
use strandline_redis::{Address, Bell, Redis};
use strandline_streams::{Failure, Item, Start, Streams};
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

async fn delivered(
    from: &mut (impl ::futures::Stream<Item = Result<Item, Failure>> + Unpin),
) -> strandline_streams::Delivery {
    let next = pin!(from.next());
    let Either::Left((next, _)) = select(next, pin!(::smol::Timer::after(GIVE_UP))).await else {
        panic!("expected an item in time")
    };
    match next {
        Some(Ok(Item::Event(delivery))) => delivery,
        other => panic!("expected an event, found {other:?}"),
    }
}

#[test]
fn an_application_publishes_reads_and_consumes_on_smol() {
    assert!(tokio::runtime::Handle::try_current().is_err(), "no tokio here");
    let server = RedisServer::start(None);
    ::smol::block_on(async {
        let redis = Redis::new(&server.url(), tagged()).expect("an address");
        let (streams, driver) = Streams::new(redis).expect("entropy");
        let sleep = |time| async move { _ = ::smol::Timer::after(time).await };
        let driving = ::smol::spawn(driver.run(sleep));
        let orders = streams.stream("orders").handle().expect("a handle");
        orders.open().await.expect("opened");
        let quick = Duration::from_millis(50);
        let mut reader = orders.reader().block(quick).open().await.expect("a reader");
        let group = orders.group("mail").start(Start::Oldest).block(quick);
        let mut consumer = group.consumer("w").await.expect("joined");
        let id = orders.add(event("a")).await.expect("published");
        assert_eq!(delivered(&mut reader).await.id, id);
        let given = delivered(&mut consumer).await;
        assert_eq!(given.id, id);
        let [group] = &orders.groups(None).await.expect("a listing").groups[..] else { panic!("one group") };
        assert_eq!((group.group.as_str(), group.pending, group.lag), ("mail", 1, Some(0)));
        assert_eq!(consumer.ack(&given).await, Ok(true));
        consumer.close().await.expect("left");
        let totals = orders.group_totals().await.expect("a listing");
        assert_eq!((totals.groups, totals.pending, totals.members), (1, 0, 0));
        assert_eq!(streams.counters().published, 1);
        streams.close();
        driving.await;
    });
}
