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
        other @ (Item::Gap(_) | Item::Failover(_)) => panic!("{other:?}"),
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

/// What is pending for anybody of a group, and who is in it: name and count.
fn pending(process: &RedisServer, log: &str, group: &str) -> (u64, Vec<(String, u64)>) {
    let client = redis::Client::open(process.url()).expect("an address");
    let mut connection = client.get_connection().expect("connected");
    type Info = std::collections::BTreeMap<String, redis::Value>;
    let infos: Vec<Info> =
        redis::cmd("XINFO").arg("CONSUMERS").arg(log).arg(group).query(&mut connection).expect("consumers");
    let number =
        |info: &Info, field: &str| -> u64 { redis::from_redis_value(info[field].clone()).expect("a number") };
    let name = |info: &Info| redis::from_redis_value(info["name"].clone()).expect("a name");
    let all: Vec<(String, u64)> = infos.iter().map(|info| (name(info), number(info, "pending"))).collect();
    (all.iter().map(|(_, count)| count).sum(), all)
}

const LOG: &str = "s:{orders}:orders:1:log";

#[test]
fn two_consumers_share_a_group_and_settle() {
    for names in both() {
        let process = RedisServer::start(None);
        runtime().block_on(async {
            let streams = Streams::connect(&process.url(), names.clone()).await.expect("connected");
            let orders = streams.stream("orders").handle().expect("a handle");
            let group = || orders.group("mail").start(Start::Oldest).block(Duration::from_millis(100));
            let mut one = group().max_polled(1).consumer("w").await.expect("joined");
            let mut two = group().max_polled(1).consumer("w").await.expect("joined");
            assert_ne!(one.name(), two.name(), "the same worker, started twice, is two consumers");
            let first = orders.add(event()).await.expect("published");
            let second = orders.add(event()).await.expect("published");
            let (a, b) = tokio::join!(delivery(&mut one), delivery(&mut two));
            let mut ids = [a.id, b.id];
            ids.sort();
            assert_eq!(ids, [first, second], "each event goes to one of them");
            assert_eq!((a.count, a.fence), (1, None));
            assert_eq!(one.ack(&a).await, Ok(true));
            assert_eq!(one.ack(&a).await, Ok(false), "settled before");
            assert_eq!(two.ack(&b).await, Ok(true));
            one.close().await.expect("left");
            two.close().await.expect("left");
            let log = if matches!(names, Names::Pulse) { "pulse:stream:orders" } else { LOG };
            assert_eq!(pending(&process, log, "mail"), (0, Vec::new()), "nothing and nobody is left");
            let other = orders.group("mail").start(Start::Newest).consumer("w").await;
            let mismatch = Failure::Refused(CallerError::GroupConfigMismatch.into());
            assert_eq!(other.err(), Some(mismatch));
        });
    }
}

/// What is taken ahead waits behind the work of who took it.
#[test]
fn only_a_consumer_that_asks_for_it_reads_ahead() {
    for names in both() {
        let process = RedisServer::start(None);
        runtime().block_on(async {
            let streams = Streams::connect(&process.url(), names.clone()).await.expect("connected");
            let orders = streams.stream("orders").handle().expect("a handle");
            let mut ids = Vec::new();
            for _ in 0..8 {
                ids.push(orders.add(event()).await.expect("published"));
            }
            // With a grace of an hour nothing is taken over because of its age.
            let hour = Duration::from_secs(3600);
            let group = || orders.group("mail").start(Start::Oldest).grace(hour).max_polled(2);
            let mut ahead = group().read_ahead().consumer("ahead").await.expect("joined");
            assert_eq!([delivery(&mut ahead).await.id, delivery(&mut ahead).await.id], ids[..2]);
            let log = if matches!(names, Names::Pulse) { "pulse:stream:orders" } else { LOG };
            let more = async {
                while pending(&process, log, "mail").0 < 4 {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            tokio::time::timeout(GIVE_UP, more).await.expect("more is taken, though nobody polls for it");
            let mut one = group().consumer("one").await.expect("joined");
            assert_eq!([delivery(&mut one).await.id, delivery(&mut one).await.id], ids[4..6]);
            let mut two = group().consumer("two").await.expect("joined");
            assert_eq!([delivery(&mut two).await.id, delivery(&mut two).await.id], ids[6..]);
            assert_eq!([delivery(&mut ahead).await.id, delivery(&mut ahead).await.id], ids[2..4]);
        });
    }
}

#[test]
fn what_is_not_settled_at_a_close_is_claimed_by_another_at_once() {
    let process = RedisServer::start(None);
    runtime().block_on(async {
        let streams = Streams::connect(&process.url(), tagged()).await.expect("connected");
        let orders = streams.stream("orders").handle().expect("a handle");
        // With a grace of an hour nothing is taken over because of its age.
        let hour = Duration::from_secs(3600);
        let group =
            || orders.group("mail").start(Start::Oldest).grace(hour).block(Duration::from_millis(100));
        let mut one = group().consumer("one").await.expect("joined");
        let ids =
            [orders.add(event()).await.expect("published"), orders.add(event()).await.expect("published")];
        let first = delivery(&mut one).await;
        assert_eq!(first.id, ids[0]);
        let left = one.name().to_string();
        one.close().await.expect("left");
        let (_, consumers) = pending(&process, LOG, "mail");
        assert!(consumers.iter().all(|(name, _)| *name != left), "nothing is left claimed: {consumers:?}");
        let mut two = group().consumer("two").await.expect("joined");
        for id in ids {
            let taken = delivery(&mut two).await;
            assert_eq!((taken.id, taken.count), (id, 2));
            assert_eq!(taken.fence, two.lease(&taken.stream), "under the lease of its group");
            assert_eq!(two.ack(&taken).await, Ok(true));
        }
        two.close().await.expect("left");
        assert_eq!(pending(&process, LOG, "mail").0, 0);
    });
}

#[test]
fn an_event_that_is_given_back_comes_again_after_its_delay_and_at_last_is_a_dead_letter() {
    let process = RedisServer::start(None);
    runtime().block_on(async {
        let streams = Streams::connect(&process.url(), tagged()).await.expect("connected");
        let orders = streams.stream("orders").handle().expect("a handle");
        let hour = Duration::from_secs(3600);
        let group = orders.group("mail").start(Start::Oldest).grace(hour).deliveries_max(3);
        let group = group.block(Duration::from_millis(50)).lease(Duration::from_millis(100));
        let mut worker = group.consumer("w").await.expect("joined");
        let id = orders.add(event()).await.expect("published");
        for count in 1..=3 {
            let given = delivery(&mut worker).await;
            assert_eq!((given.id, given.count), (id, count));
            let begun = std::time::Instant::now();
            assert_eq!(worker.nack(&given, Duration::from_millis(150)).await, Ok(true));
            assert_eq!(worker.nack(&given, Duration::ZERO).await, Ok(false), "no longer this consumer's");
            if count < 3 {
                continue;
            }
            let letters = loop {
                let letters = orders.dead_letters(EventId::ZERO, 10).await.expect("dead letters");
                if !letters.is_empty() {
                    break letters;
                }
                assert!(begun.elapsed() < GIVE_UP, "a dead letter in time");
                // Room for a claim is made by who asks for the next event.
                let _ = tokio::time::timeout(Duration::from_millis(20), worker.next()).await;
            };
            assert!(begun.elapsed() >= Duration::from_millis(150), "not before its delay");
            let letter = &letters[0];
            assert_eq!((letter.id, letter.count, letter.group.as_str()), (id, 4, "mail"));
            assert_eq!(letter.stored.event(), Some(&event()));
            assert_eq!(orders.remove_dead_letters(Ids::new([letter.at]).expect("one")).await, Ok(1));
        }
        assert_eq!(pending(&process, LOG, "mail").0, 0, "it is settled");
        let buried = orders.add(event()).await.expect("published");
        let given = delivery(&mut worker).await;
        assert_eq!(worker.bury(&given).await, Ok(true));
        let letters = orders.dead_letters(EventId::ZERO, 10).await.expect("dead letters");
        assert_eq!((letters[0].id, letters[0].count), (buried, 1));
        worker.close().await.expect("left");
    });
}

#[test]
fn what_a_killed_consumer_left_is_taken_over_and_the_fence_rises() {
    let process = RedisServer::start(None);
    runtime().block_on(async {
        let settings = |streams: &Streams| streams.stream("orders").handle().expect("a handle");
        let mut fences = Vec::new();
        let mut left = None;
        for round in 0..3 {
            // A runtime of its own, and with it all tasks, ends without a word: the worker is killed.
            let url = process.url();
            let (fence, id) = std::thread::spawn(move || {
                runtime().block_on(async {
                    let streams = Streams::connect(&url, tagged()).await.expect("connected");
                    let orders = settings(&streams);
                    let group = orders.group("mail").start(Start::Oldest).grace(Duration::from_millis(60));
                    let group = group.block(Duration::from_millis(50)).lease(Duration::from_millis(200));
                    let mut worker = group.consumer("w").await.expect("joined");
                    if round == 0 {
                        orders.add(event()).await.expect("published");
                    }
                    let given = delivery(&mut worker).await;
                    let mut fence = worker.lease(&given.stream);
                    while fence.is_none() {
                        let _ = tokio::time::timeout(Duration::from_millis(20), worker.next()).await;
                        fence = worker.lease(&given.stream);
                    }
                    std::mem::forget(worker);
                    (fence.expect("held"), given.id)
                })
            })
            .join()
            .expect("the worker did its part");
            assert_eq!(*left.get_or_insert(id), id, "the same event, taken over");
            fences.push(fence);
        }
        assert!(fences.is_sorted_by(|a, b| a < b), "a new owner has a higher fence: {fences:?}");
        let (_, consumers) = pending(&process, LOG, "mail");
        assert!(consumers.len() <= 3, "who had nothing left was taken out: {consumers:?}");
    });
}

#[test]
fn a_hole_is_told_to_readers_and_groups() {
    let process = RedisServer::start(None);
    runtime().block_on(async {
        let streams = Streams::connect(&process.url(), tagged()).await.expect("connected");
        let orders = streams.stream("orders").max_len(2).handle().expect("a handle");
        orders.open().await.expect("opened");
        let quick = Duration::from_millis(50);
        let mut reader = orders.reader().block(quick).open().await.expect("a reader");
        let mut worker = orders.group("mail").block(quick).consumer("w").await.expect("joined");
        let mut ids = Vec::new();
        for _ in 0..5 {
            ids.push(orders.add(event()).await.expect("published"));
        }
        for gap in [item(&mut reader).await, item(&mut worker).await] {
            let Item::Gap(gap) = gap else { panic!("expected the hole first, found {gap:?}") };
            assert_eq!((gap.events, gap.before), (Some(3), Some(ids[3])));
        }
        assert_eq!(delivery(&mut reader).await.id, ids[3]);
        let pending = delivery(&mut worker).await;
        assert_eq!(pending.id, ids[3]);
        worker.nack(&pending, Duration::ZERO).await.expect("given back");
        for _ in 0..2 {
            orders.add(event()).await.expect("published");
        }
        // What was given out, not settled, and dropped, is a hole too.
        let told = async {
            loop {
                if let Item::Gap(gap) = item(&mut worker).await {
                    break gap;
                }
            }
        };
        let gap = tokio::time::timeout(GIVE_UP, told).await.expect("told in time");
        assert_eq!(gap.reason, strandline_streams::GapReason::TrimmedPending);
        worker.close().await.expect("left");
    });
}
