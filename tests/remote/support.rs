//! What these tests share.

use redis::{Cmd, Connection, FromRedisValue, RedisResult};
use std::time::{Duration, Instant};
use strandline_core::seed::Seed;
use strandline_core::stream::event::{Entry, Event};
use strandline_core::stream::op::{Condition, Nonce, StreamOp};
use strandline_core::stream::reply::Told;
use strandline_core::stream::{Handle, Layout, OnceKey, Outcome, StreamName, StreamReply, Verb, Wanted};
use strandline_redis::{Address, Bounds, Names, Remote};
use strandline_tests::streams::server::RedisServer;
use tokio::runtime::{Builder, Runtime};

/// How long something that happens by itself may take before a test gives up.
pub(crate) const GIVE_UP: Duration = Duration::from_secs(60);

/// For servers that answer, if late: a machine under load takes its time.
pub(crate) const PATIENT: Bounds = Bounds { answer_ms_max: 30_000, retry_ms: 5, retry_ms_max: 100 };

/// For servers that do not.
pub(crate) const SHORT: Bounds = Bounds { answer_ms_max: 300, retry_ms: 5, retry_ms_max: 50 };

pub(crate) fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

pub(crate) fn tagged() -> Names {
    Names::tagged_below("s").expect("a name")
}

pub(crate) fn remote_by(address: Address, names: Names, bounds: Bounds) -> Remote {
    Remote::new(address, names, bounds, Seed::new([7; 32])).expect("names that can live there")
}

pub(crate) fn remote(server: &RedisServer, bounds: Bounds) -> Remote {
    remote_by(Address::one(&server.url()).expect("an address"), tagged(), bounds)
}

pub(crate) fn stream(name: &str) -> StreamName {
    StreamName::new(name).expect("a name")
}

pub(crate) fn handle(name: &str) -> Handle {
    Handle::new(stream(name), Wanted::default(), Layout::Tagged).expect("a handle")
}

pub(crate) fn event(payload: &str) -> Event {
    Event::new("e", payload).expect("an event")
}

pub(crate) fn add(payload: &str) -> Verb {
    Verb::Add { event: event(payload), condition: Condition::Always }
}

pub(crate) fn add_once(key: &str) -> Verb {
    Verb::AddOnce { key: OnceKey::new(key).expect("a key"), event: event(key) }
}

pub(crate) fn op(handle: &Handle, verb: Verb) -> StreamOp {
    handle.op(verb, Nonce([1; 16]))
}

/// What was told, of an operation that must be done; the handle learns of it.
pub(crate) fn told(handle: &mut Handle, verb: &Verb, outcome: Outcome) -> Told {
    let Outcome::Answered { result, .. } = outcome else { panic!("no answer to {verb:?}") };
    handle.answered(verb, &result);
    let StreamReply { told, .. } = result.unwrap_or_else(|error| panic!("{verb:?}: {error}"));
    told
}

pub(crate) async fn ask(remote: &Remote, handle: &mut Handle, verb: Verb) -> Told {
    let outcome = remote.apply(&op(handle, verb.clone())).await;
    told(handle, &verb, outcome)
}

pub(crate) async fn payloads(remote: &Remote, handle: &mut Handle) -> Vec<String> {
    let Told::Entries(entries) = ask(remote, handle, Verb::Snapshot).await else { panic!("entries") };
    entries.iter().map(payload).collect()
}

pub(crate) fn payload(entry: &Entry) -> String {
    let event = entry.stored.event().expect("an event");
    String::from_utf8(event.payload().to_vec()).expect("text")
}

/// A plain connection to a server of the test.
pub(crate) fn plain(server: &RedisServer) -> Connection {
    let client = redis::Client::open(server.url()).expect("an address");
    client.get_connection_with_timeout(Duration::from_secs(30)).expect("a server that answers")
}

pub(crate) fn command(words: &[&str]) -> Cmd {
    let mut command = redis::cmd(words[0]);
    command.arg(&words[1..]);
    command
}

pub(crate) fn must<T: FromRedisValue>(connection: &mut Connection, words: &[&str]) -> T {
    let answer: RedisResult<T> = command(words).query(connection);
    answer.unwrap_or_else(|error| panic!("{words:?}: {error}"))
}

/// Waits until something is so.
pub(crate) fn wait(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < GIVE_UP, "expected {what}, waited {GIVE_UP:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The same beside other futures.
pub(crate) async fn wait_async(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < GIVE_UP, "expected {what}, waited {GIVE_UP:?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
