//! How readers and consumers end on a real server: at once, in order, and without a trace.

use futures::StreamExt as _;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};
use strandline_core::stream::error::CallerError;
use strandline_redis::{Connect as _, Names};
use strandline_streams::{Consumer, Delivery, Event, Failure, Item, Start, Stream, Streams};
use strandline_tests::streams::server::RedisServer;
use tokio::runtime::{Builder, Runtime};
use tokio::time::timeout;

/// The longest a test waits for something that must come.
const GIVE_UP: Duration = Duration::from_secs(60);

/// Longer than any test: what waits for so long is ended by something else.
const FOREVER: Duration = Duration::from_secs(3600);

fn runtime() -> Runtime {
    Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime")
}

/// The layouts, and the log that the first generation of the stream has there.
fn both() -> [(Names, &'static str); 2] {
    let tagged = Names::tagged_below("s").expect("a name");
    [(Names::Pulse, "pulse:stream:orders"), (tagged, "s:{orders}:orders:1:log")]
}

fn event() -> Event {
    Event::new("e", "payload").expect("an event")
}

async fn orders(process: &RedisServer, names: Names) -> (Streams, Stream) {
    let streams = Streams::connect(&process.url(), names).await.expect("connected");
    let orders = streams.stream("orders").handle().expect("a handle");
    orders.open().await.expect("opened");
    (streams, orders)
}

/// Takes over nothing because of its age.
async fn consumer(orders: &Stream, block: Duration) -> Consumer {
    let group = orders.group("mail").start(Start::Oldest).grace(FOREVER).block(block).max_polled(1);
    group.consumer("w").await.expect("joined")
}

async fn delivery(from: &mut (impl futures::Stream<Item = Result<Item, Failure>> + Unpin)) -> Delivery {
    match timeout(GIVE_UP, from.next()).await.expect("something in time") {
        Some(Ok(Item::Event(delivery))) => delivery,
        other => panic!("expected an event, found {other:?}"),
    }
}

fn plain(process: &RedisServer) -> redis::Connection {
    let client = redis::Client::open(process.url()).expect("an address");
    client.get_connection_with_timeout(GIVE_UP).expect("connected")
}

fn must<T: redis::FromRedisValue>(connection: &mut redis::Connection, words: &[&str]) -> T {
    let answer = redis::cmd(words[0]).arg(&words[1..]).query(connection);
    answer.unwrap_or_else(|error| panic!("{words:?}: {error}"))
}

/// Who holds how many entries of the group.
fn held(connection: &mut redis::Connection, log: &str) -> BTreeMap<String, u64> {
    let infos: Vec<BTreeMap<String, redis::Value>> = must(connection, &["XINFO", "CONSUMERS", log, "mail"]);
    let text = |value: &redis::Value| redis::from_redis_value(value.clone()).expect("text");
    let number = |value: &redis::Value| redis::from_redis_value(value.clone()).expect("a number");
    infos.iter().map(|info| (text(&info["name"]), number(&info["pending"]))).collect()
}

async fn wait(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < GIVE_UP, "expected {what}, waited {GIVE_UP:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[test]
fn a_close_does_not_wait_for_who_takes_nothing() {
    for (names, log) in both() {
        let process = RedisServer::start(None);
        let gives_back = !matches!(names, Names::Pulse);
        runtime().block_on(async {
            let (_streams, orders) = orders(&process, names).await;
            for _ in 0..5 {
                orders.add(event()).await.expect("published");
            }
            let mut stalled = consumer(&orders, FOREVER).await;
            delivery(&mut stalled).await;
            let name = stalled.name().to_string();
            timeout(GIVE_UP, stalled.close()).await.expect("in time").expect("left");
            let holder = if gives_back { "=".to_string() } else { name };
            assert_eq!(held(&mut plain(&process), log), BTreeMap::from([(holder, 1)]), "still pending");
        });
    }
}

#[test]
fn who_comes_while_everything_closes_comes_to_an_end() {
    let [_, (names, _)] = both();
    let process = RedisServer::start(None);
    runtime().block_on(async {
        let (streams, orders) = orders(&process, names).await;
        let orders = std::sync::Arc::new(orders);
        let tasks: Vec<_> = (0..48)
            .map(|_| {
                let orders = orders.clone();
                tokio::spawn(async move {
                    match orders.reader().block(FOREVER).open().await {
                        Ok(mut reader) => reader.next().await.is_none_or(|item| item.is_err()),
                        Err(failure) => failure == Failure::Closed,
                    }
                })
            })
            .collect();
        tokio::task::yield_now().await;
        streams.close();
        for task in tasks {
            assert!(
                timeout(GIVE_UP, task).await.expect("in time").expect("no panic"),
                "an end, and no event"
            );
        }
        assert_eq!(orders.reader().open().await.err(), Some(Failure::Closed), "and after it");
        assert_eq!(orders.add(event()).await, Err(Failure::Closed));
    });
}

#[test]
fn a_close_that_nobody_waits_for_goes_on() {
    let [_, (names, log)] = both();
    let process = RedisServer::start(None);
    runtime().block_on(async {
        let (_streams, orders) = orders(&process, names).await;
        orders.add(event()).await.expect("published");
        let mut leaving = consumer(&orders, FOREVER).await;
        delivery(&mut leaving).await;
        let _ = timeout(Duration::ZERO, leaving.close()).await;
        let mut watching = plain(&process);
        let given_back = BTreeMap::from([("=".to_string(), 1)]);
        wait("its event to be given back", || held(&mut watching, log) == given_back).await;
    });
}

#[test]
fn a_close_after_the_end_of_the_generation_is_told_of_it() {
    for (names, _) in both() {
        let process = RedisServer::start(None);
        runtime().block_on(async {
            let (_streams, orders) = orders(&process, names).await;
            let mut worker = consumer(&orders, Duration::from_millis(50)).await;
            orders.destroy().await.expect("destroyed");
            let destroyed = Failure::Refused(CallerError::StreamDestroyed { current: Some(1) }.into());
            let told = timeout(GIVE_UP, worker.next()).await.expect("told in time");
            assert_eq!(told, Some(Err(destroyed.clone())));
            assert_eq!(timeout(GIVE_UP, worker.close()).await.expect("in time"), Err(destroyed));
        });
    }
}

#[test]
fn a_close_ends_a_read_that_waits() {
    for (names, log) in both() {
        let process = RedisServer::start(None);
        runtime().block_on(async {
            let (_streams, orders) = orders(&process, names).await;
            let mut worker = consumer(&orders, FOREVER).await;
            let mut reader = orders.reader().block(FOREVER).open().await.expect("a reader");
            let mut watching = plain(&process);
            let both_wait = wait("both to wait", || {
                must::<String>(&mut watching, &["INFO", "clients"]).contains("blocked_clients:2")
            });
            tokio::select! {
                item = worker.next() => panic!("{item:?}"),
                item = reader.next() => panic!("{item:?}"),
                () = both_wait => {}
            }
            reader.close();
            assert_eq!(timeout(GIVE_UP, reader.next()).await.expect("in time"), None);
            timeout(GIVE_UP, worker.close()).await.expect("in time").expect("left");
            assert_eq!(held(&mut plain(&process), log), BTreeMap::new(), "nobody is left");
        });
    }
}

#[test]
fn a_reader_outlives_whatever_made_it() {
    for (names, _) in both() {
        let process = RedisServer::start(None);
        runtime().block_on(async {
            let (streams, orders) = orders(&process, names).await;
            let opened = tokio::spawn(async move { orders.reader().start(Start::Oldest).open().await });
            let mut reader = opened.await.expect("no panic").expect("a reader");
            let other = streams.stream("orders").handle().expect("a handle");
            let id = other.add(event()).await.expect("published");
            assert_eq!(delivery(&mut reader).await.id, id, "the task and the handle are gone");
            reader.close();
            assert_eq!(timeout(GIVE_UP, reader.next()).await.expect("in time"), None);
        });
    }
}

#[test]
fn a_close_is_not_held_up_by_a_group_that_is_destroyed_again_and_again() {
    for (names, log) in both() {
        let process = RedisServer::start(None);
        runtime().block_on(async {
            let (_streams, orders) = orders(&process, names).await;
            let mut worker = consumer(&orders, Duration::from_millis(10)).await;
            let mut hand = plain(&process);
            let destroying = tokio::task::spawn_blocking(move || {
                for _ in 0..50 {
                    must::<u64>(&mut hand, &["XGROUP", "DESTROY", log, "mail"]);
                    std::thread::sleep(Duration::from_millis(2));
                }
            });
            // What it is handed meanwhile are the holes that the losses left.
            let _ =
                timeout(Duration::from_millis(50), async { while worker.next().await.is_some() {} }).await;
            timeout(GIVE_UP, worker.close()).await.expect("in time").expect("left");
            destroying.await.expect("no panic");
            let mut watching = plain(&process);
            let mut asked = || {
                let stats: String = must(&mut watching, &["INFO", "commandstats"]);
                let line = stats.lines().find(|line| line.starts_with("cmdstat_xreadgroup:"));
                line.map(|line| line.split(',').next().unwrap_or_default().to_string())
            };
            let before = asked();
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert_eq!(asked(), before, "who has left reads no more");
        });
    }
}
