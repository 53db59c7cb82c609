//! The host on real files and threads.

use futures::executor::block_on;
use futures::future::join_all;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use strandline_core::stream::client::{LogPosition, Waited};
use strandline_core::stream::embedded::EmbeddedLimits;
use strandline_core::stream::op::{Condition, Nonce};
use strandline_core::stream::reply::Told;
use strandline_core::stream::retention::Settings;
use strandline_core::stream::{
    Event, EventId, Handle, Layout, OnceKey, Outcome, ServerFault, StreamError, StreamName, StreamOp, Verb,
};
use strandline_embedded::{Embedded, EmbeddedOptions, OpenFailed};
use strandline_file::OpenError;

fn handle() -> Handle {
    let wanted = Settings::new().unbounded().wanted().unwrap();
    Handle::new(StreamName::new("orders").unwrap(), wanted, Layout::Tagged).unwrap()
}

fn add(text: &str) -> StreamOp {
    let event = Event::new("e", text).unwrap();
    handle().op(Verb::Add { event, condition: Condition::Always }, Nonce([1; 16]))
}

fn add_once(key: u32) -> StreamOp {
    let (key, event) = (OnceKey::new(key.to_string()).unwrap(), Event::new("e", key.to_string()).unwrap());
    handle().op(Verb::AddOnce { key, event }, Nonce([1; 16]))
}

fn done(outcome: Outcome) -> Told {
    match outcome {
        Outcome::Answered { result, .. } => result.unwrap().told,
        Outcome::Uncertain(op) => panic!("no answer to {op:?}"),
    }
}

fn payloads(embedded: &Embedded) -> Vec<String> {
    let read = handle().op(Verb::Read { after: EventId::ZERO, events_max: 10_000 }, Nonce([0; 16]));
    let Told::Read { entries, .. } = done(block_on(embedded.apply(read))) else { panic!("entries") };
    let text = |event: &Event| String::from_utf8(event.payload().to_vec()).unwrap();
    entries.iter().map(|entry| text(entry.stored.event().unwrap())).collect()
}

fn small() -> EmbeddedOptions {
    let mut limits = EmbeddedLimits::default();
    limits.journal.segment_bytes = 64 << 10;
    limits.journal.batch_bytes_max = 32 << 10;
    limits.journal.entry_bytes_max = 16 << 10;
    limits.journal.pending_bytes_max = 32 << 10;
    limits.checkpoint_after_bytes = 40 << 10;
    EmbeddedOptions { limits, ..EmbeddedOptions::default() }
}

fn open(path: &Path) -> Embedded {
    Embedded::open(path, small()).unwrap().0
}

#[test]
fn publishers_of_many_threads_are_all_there_after_checkpoints_and_reopens() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("streams");
    let mut expected = BTreeSet::new();
    for round in 0..3 {
        let embedded = open(&path);
        thread::scope(|scope| {
            for publisher in 0..8 {
                let embedded = &embedded;
                scope.spawn(move || {
                    // Many at once: more than the journal lets wait.
                    let texts = (0..40).map(|n| format!("{round} {publisher} {n} {}", "x".repeat(400)));
                    let calls: Vec<_> = texts.map(|text| embedded.apply(add(&text))).collect();
                    for outcome in block_on(join_all(calls)) {
                        done(outcome);
                    }
                });
            }
        });
        for publisher in 0..8 {
            expected.extend((0..40).map(|n| format!("{round} {publisher} {n} {}", "x".repeat(400))));
        }
        let status = embedded.status();
        assert_eq!((status.fault, status.not_checkpointed), (None, None));
        // The next ones come when as much was written again as the last one held.
        assert!(round > 0 || status.checkpoints > 0, "{} checkpoints", status.checkpoints);
        embedded.close().unwrap();
        let found = payloads(&open(&path));
        assert_eq!(found.len(), expected.len());
        assert_eq!(found.into_iter().collect::<BTreeSet<_>>(), expected);
    }
    let segments = std::fs::read_dir(&path).unwrap().count();
    assert!(segments < 16, "{segments} files: checkpoints let the old ones go");
}

#[test]
fn a_key_is_published_once_over_reopens() {
    let home = tempfile::tempdir().unwrap();
    for _ in 0..3 {
        let embedded = open(home.path());
        for key in 0..20 {
            done(block_on(embedded.apply(add_once(key))));
        }
        // The last handle closes it.
    }
    assert_eq!(payloads(&open(home.path())).len(), 20);
}

#[test]
fn a_wait_ends_when_something_comes_or_time_is_up() {
    let home = tempfile::tempdir().unwrap();
    for embedded in [Embedded::in_memory(), open(home.path())] {
        let (stream, generation) = (StreamName::new("orders").unwrap(), 1);
        let watch = |after| vec![LogPosition { stream: stream.clone(), generation, after }];
        let Told::Added { id: Some(first) } = done(block_on(embedded.apply(add("one")))) else {
            panic!("published")
        };
        assert_eq!(
            block_on(embedded.wait(watch(EventId::ZERO), 60_000)),
            Waited::Rung,
            "it is there already"
        );
        assert_eq!(block_on(embedded.wait(watch(first), 20)), Waited::TimeOut, "nothing comes");
        let waiting = embedded.wait(watch(first), 60_000);
        let other = embedded.clone();
        let publisher = thread::spawn(move || done(block_on(other.apply(add("two")))));
        assert_eq!(block_on(waiting), Waited::Rung);
        publisher.join().unwrap();
        let ended = embedded.wait(watch(EventId::MAX), 60_000);
        done(block_on(embedded.apply(handle().op(Verb::Destroy, Nonce([0; 16])))));
        assert_eq!(block_on(ended), Waited::Rung, "the end rings, too");
    }
}

#[test]
fn one_opener_and_nothing_after_the_close() {
    let home = tempfile::tempdir().unwrap();
    let embedded = open(home.path());
    let second = Embedded::open(home.path(), small());
    assert!(matches!(second, Err(OpenFailed::Open(OpenError::InUse(_)))), "{second:?}");
    let waiting = embedded.wait(
        vec![LogPosition { stream: StreamName::new("orders").unwrap(), generation: 1, after: EventId::MAX }],
        60_000,
    );
    done(block_on(embedded.apply(add("one"))));
    let other = embedded.clone();
    embedded.close().unwrap();
    assert_eq!(block_on(waiting), Waited::Rung, "whoever waits is told");
    let outcome = block_on(other.apply(add("two")));
    let Outcome::Answered { result: Err(StreamError::Server(ServerFault::Refused { word, .. })), .. } =
        outcome
    else {
        panic!("{outcome:?}")
    };
    assert_eq!(word, "CLOSED");
    // The directory is free while a handle is still held.
    assert_eq!(payloads(&open(home.path())), ["one"]);
}

#[test]
fn a_checkpoint_after_the_close_does_nothing() {
    let home = tempfile::tempdir().unwrap();
    let embedded = open(home.path());
    done(block_on(embedded.apply(add("one"))));
    let other = embedded.clone();
    embedded.close().unwrap();
    other.checkpoint();
    assert_eq!((other.status().checkpoints, other.status().fault), (0, None));
    drop((embedded, other));
    assert_eq!(payloads(&open(home.path())), ["one"]);
}

#[test]
fn whoever_closes_finds_the_directory_released() {
    let home = tempfile::tempdir().unwrap();
    for _ in 0..20 {
        let embedded = open(home.path());
        done(block_on(embedded.apply(add("one"))));
        let one_by_one = Mutex::new(());
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    embedded.close().unwrap();
                    let _turn = one_by_one.lock().unwrap();
                    open(home.path()).close().unwrap();
                });
            }
        });
    }
}

/// The API of applications, on a directory.
#[tokio::test]
async fn streams_for_applications_stand_on_it() {
    use futures::StreamExt as _;
    use strandline_streams::{Item, Start, Streams};
    let home = tempfile::tempdir().unwrap();
    let embedded = open(home.path());
    let (streams, driver) = Streams::new(embedded.clone()).unwrap();
    let driving = tokio::spawn(driver.run(tokio::time::sleep));
    let orders = streams.stream("orders").unbounded().handle().unwrap();
    let first = orders.add(Event::new("e", "one").unwrap()).await.unwrap();
    let mut reader = orders.reader().start(Start::Oldest).open().await.unwrap();
    let mut expected = vec![first];
    for text in ["two", "three"] {
        expected.push(orders.add(Event::new("e", text).unwrap()).await.unwrap());
    }
    for id in expected {
        let Some(Ok(Item::Event(delivery))) = reader.next().await else { panic!("an event") };
        assert_eq!(delivery.id, id);
    }
    drop((reader, orders));
    streams.close();
    driving.await.unwrap();
    embedded.close().unwrap();
    assert_eq!(payloads(&open(home.path())), ["one", "two", "three"]);
}

#[test]
fn a_call_that_is_dropped_was_asked_all_the_same() {
    let home = tempfile::tempdir().unwrap();
    let embedded = open(home.path());
    drop(embedded.apply(add("one")));
    embedded.close().unwrap();
    assert_eq!(payloads(&open(home.path())), ["one"]);
}
