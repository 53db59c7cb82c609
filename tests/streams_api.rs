//! The way of an application, on a real server: every call, readers, consumers of groups.

use futures::StreamExt as _;
use std::time::Duration;
use strandline_core::stream::error::CallerError;
use strandline_redis::{Connect as _, Names};
use strandline_streams::{Delivery, Event, EventId, Failure, Ids, Item, OnceKey, Reader, Start, Streams};
use strandline_tests::streams::server::RedisServer;
use tokio::runtime::{Builder, Runtime};

/// The longest a test waits for something that must come.
const GIVE_UP: Duration = Duration::from_secs(60);

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn both() -> [Names; 2] {
    [Names::Pulse, tagged()]
}

fn tagged() -> Names {
    Names::tagged_below("s").expect("a name")
}

fn event() -> Event {
    Event::new("e", "payload").expect("an event")
}

async fn item(from: &mut (impl futures::Stream<Item = Result<Item, Failure>> + Unpin)) -> Item {
    let next = tokio::time::timeout(GIVE_UP, from.next()).await.expect("something in time");
    next.expect("not the end").unwrap_or_else(|failure| panic!("{failure}"))
}

async fn delivery(from: &mut (impl futures::Stream<Item = Result<Item, Failure>> + Unpin)) -> Delivery {
    match item(from).await {
        Item::Event(delivery) => delivery,
        Item::Gap(gap) => panic!("{gap:?}"),
    }
}

#[test]
fn handles_and_a_reader_of_an_application() {
    for names in both() {
        let process = RedisServer::start(None);
        runtime().block_on(async {
            let streams = Streams::connect(&process.url(), names).await.expect("connected");
            let settings = streams.stream("orders").max_len(100).ttl(Duration::from_secs(60));
            let orders = settings.handle().expect("a handle");
            let missing = orders.add_if_exists(event()).await;
            assert_eq!(missing, Err(Failure::Refused(CallerError::StreamNotFound.into())));
            orders.open().await.expect("opened");
            let mut tail: Reader =
                orders.reader().block(Duration::from_millis(200)).open().await.expect("a reader");

            let key = OnceKey::new("k").expect("a key");
            let (first, published) = orders.add_once(key.clone(), event()).await.expect("published");
            assert!(published);
            assert_eq!(orders.add_once(key, event()).await, Ok((first, false)));
            assert_eq!(delivery(&mut tail).await.id, first, "what came before the first wait is not missed");

            let publisher = orders.clone();
            let later = async {
                tokio::time::sleep(Duration::from_millis(50)).await;
                publisher.append_after(first, event()).await
            };
            let (came, second) = tokio::join!(delivery(&mut tail), later);
            let second = second.expect("published").expect("behind the first");
            assert_eq!(came.id, second);
            assert_eq!(orders.append_after(first, event()).await, Ok(None));
            assert_eq!(orders.snapshot().await.expect("a snapshot").len(), 2);
            assert_eq!(orders.replay(first).await.expect("a replay").len(), 1);
            assert_eq!(orders.remove(Ids::new([first]).expect("one")).await, Ok(1));

            assert_eq!(orders.destroy().await, Ok(true));
            assert_eq!(orders.destroy().await, Ok(false));
            // Nothing rings for the end of a log: the wait ends, and then the reader is told.
            let ended = tokio::time::timeout(GIVE_UP * 2, tail.next()).await.expect("told in time");
            let destroyed = CallerError::StreamDestroyed { current: Some(1) };
            assert_eq!(ended, Some(Err(Failure::Refused(destroyed.into()))));
            assert_eq!(tail.next().await, None);
        });
    }
}

#[test]
fn a_reader_of_several_streams_shows_what_its_filter_takes() {
    for names in both() {
        let process = RedisServer::start(None);
        runtime().block_on(async {
            let streams = Streams::connect(&process.url(), names).await.expect("connected");
            let (one, two) = (streams.stream("one").handle(), streams.stream("two").handle());
            let (one, two) = (one.expect("a handle"), two.expect("a handle"));
            let under = |topic: &str| event().with_topic(topic).expect("small");
            one.add(under("eu.1")).await.expect("published");
            let shown = two.add(under("us.1")).await.expect("published");
            let hidden = two.add(under("asia.us.1")).await.expect("published");
            assert!(hidden > shown || hidden.ms >= shown.ms);
            let builder = one.reader().and(&two).pattern("^(eu|us)").start(Start::Oldest);
            let mut reader = builder.open().await.expect("a reader");
            let mut seen = Vec::new();
            for _ in 0..2 {
                seen.push(delivery(&mut reader).await.stream.to_string());
            }
            seen.sort();
            assert_eq!(seen, ["one", "two"]);
            let last = two.add(under("eu.2")).await.expect("published");
            assert_eq!(delivery(&mut reader).await.id, last, "what is hidden is not handed out");
            reader.close();
            assert_eq!(reader.next().await, None);
            assert_eq!(one.replay(EventId::ZERO).await.expect("a replay").len(), 1);
        });
    }
}
