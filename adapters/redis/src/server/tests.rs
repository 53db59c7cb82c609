//! What stands for a question where the server stands, over connections that answer when a test says so.

use super::*;
use futures::channel::oneshot::{Sender, channel};
use futures::future::BoxFuture;
use futures::{FutureExt as _, poll};
use redis::RedisFuture;
use redis::aio::ConnectionLike;
use std::task::Poll;
use strandline_core::stream::op::Nonce;
use strandline_core::stream::{Handle, Verb, Wanted};

/// Commands that were sent together, and are not answered yet.
struct Sent {
    count: usize,
    answers: Sender<Vec<Value>>,
}

#[derive(Clone)]
struct Wire {
    one_process: bool,
    sent: Arc<Mutex<Vec<Sent>>>,
}

impl ConnectionLike for Wire {
    fn req_packed_command<'a>(&'a mut self, _: &'a Cmd) -> RedisFuture<'a, Value> {
        panic!("operations with something beside them are sent together")
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        _: &'a Pipeline,
        _: usize,
        _: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        panic!("operations with something beside them are sent together")
    }

    fn get_db(&self) -> i64 {
        0
    }
}

impl Together for Wire {
    async fn together(&mut self, commands: &Pipeline, _: &str) -> RedisResult<Vec<Value>> {
        let (answers, answered) = channel();
        let sent = Sent { count: commands.len(), answers };
        self.sent.lock().expect("no panic").push(sent);
        Ok(answered.await.expect("an answer"))
    }

    fn is_to_one_process(&self) -> bool {
        self.one_process
    }
}

fn info(role: &str, id: char, offset: u64) -> Value {
    let id = id.to_string().repeat(40);
    let text = format!("role:{role}\r\nmaster_replid:{id}\r\nmaster_repl_offset:{offset}\r\n");
    Value::BulkString(text.into_bytes())
}

fn master(id: char, offset: u64) -> Value {
    info("master", id, offset)
}

/// An operation that was sent.
type Asked = BoxFuture<'static, (Outcome, Option<Vouched>)>;

struct World {
    server: Server<Wire>,
    sent: Arc<Mutex<Vec<Sent>>>,
}

impl World {
    fn new(one_process: bool) -> Self {
        let sent = Arc::default();
        let wire = Wire { one_process, sent: Arc::clone(&sent) };
        Self { server: Server::new(wire, Names::tagged_below("s").expect("a name")), sent }
    }

    /// Sends an operation; how many commands went together.
    async fn ask(&self) -> (Asked, Sent) {
        let mut server = self.server.clone();
        let stream = StreamName::new("orders").expect("a name");
        let handle = Handle::new(stream, Wanted::default(), Layout::Tagged).expect("a handle");
        let op = handle.op(Verb::Open, Nonce([1; 16]));
        let mut asked: Asked = async move { server.apply_vouched(&op).await }.boxed();
        assert_eq!(poll!(&mut asked).map(|_| ()), Poll::Pending);
        (asked, self.sent.lock().expect("no panic").pop().expect("it was sent"))
    }

    /// One operation, from beginning to end: what may be noted beside it.
    async fn step(&self, count: usize, before: Option<Value>, after: Value) -> Option<(String, u64)> {
        let (asked, sent) = self.ask().await;
        assert_eq!(sent.count, count);
        sent.answer(before, after);
        noted(asked).await
    }
}

impl Sent {
    fn answer(self, before: Option<Value>, after: Value) {
        let values = before.into_iter().chain([Value::Okay, after]).collect();
        self.answers.send(values).expect("somebody waits");
    }
}

async fn noted(asked: Asked) -> Option<(String, u64)> {
    asked.await.1.map(|vouched| (vouched.id.as_str()[..1].to_string(), vouched.offset))
}

fn at(id: char, offset: u64) -> Option<(String, u64)> {
    Some((id.to_string(), offset))
}

#[tokio::test]
async fn what_a_master_told_after_one_operation_stands_before_the_next() {
    let world = World::new(true);
    assert_eq!(world.step(3, Some(master('a', 1)), master('a', 2)).await, at('a', 2));
    assert_eq!(world.step(2, None, master('a', 3)).await, at('a', 3));
    assert_eq!(world.step(2, None, master('a', 4)).await, at('a', 4));
}

#[tokio::test]
async fn an_operation_over_a_change_of_history_since_the_last_one_belongs_to_nobody() {
    let world = World::new(true);
    assert_eq!(world.step(3, Some(master('a', 1)), master('a', 2)).await, at('a', 2));
    assert_eq!(world.step(2, None, master('b', 3)).await, None);
    assert_eq!(world.step(2, None, master('b', 4)).await, at('b', 4));
}

#[tokio::test]
async fn a_server_that_follows_is_asked_before_and_after() {
    let world = World::new(true);
    assert_eq!(world.step(3, Some(info("slave", 'a', 1)), info("slave", 'a', 2)).await, None);
    assert_eq!(world.step(3, Some(master('b', 3)), master('b', 4)).await, at('b', 4));
    assert_eq!(world.step(2, None, info("slave", 'b', 5)).await, None);
    assert_eq!(world.step(3, Some(master('c', 6)), master('c', 7)).await, at('c', 7));
}

#[tokio::test]
async fn what_cannot_be_read_leaves_what_was_told_before() {
    let world = World::new(true);
    assert_eq!(world.step(3, Some(Value::Nil), master('a', 2)).await, None);
    assert_eq!(world.step(2, None, Value::Nil).await, None);
    assert_eq!(world.step(2, None, master('a', 3)).await, at('a', 3));
}

#[tokio::test]
async fn a_connection_to_several_processes_is_asked_before_and_after() {
    let world = World::new(false);
    for offset in [1, 2] {
        assert_eq!(world.step(3, Some(master('a', 1)), master('a', offset)).await, at('a', offset));
    }
}

#[tokio::test]
async fn a_new_connection_is_asked_before_and_after() {
    for id in ['a', 'b'] {
        let world = World::new(true);
        assert_eq!(world.step(3, Some(master(id, 1)), master(id, 2)).await, at(id, 2));
    }
}

/// The history changes between the first operation and the question behind it; the second one is answered first.
#[tokio::test]
async fn what_is_told_once_an_operation_was_sent_says_nothing_of_the_time_before() {
    let world = World::new(true);
    assert_eq!(world.step(3, Some(master('a', 1)), master('a', 2)).await, at('a', 2));
    let (first, of_first) = world.ask().await;
    let (second, of_second) = world.ask().await;
    of_second.answer(None, master('b', 4));
    assert_eq!(noted(second).await, None);
    of_first.answer(None, master('b', 3));
    assert_eq!(noted(first).await, None);
    assert_eq!(world.step(2, None, master('b', 5)).await, at('b', 5));
}

/// What an older answer told is kept, and is older still: it vouches for no more than it saw.
#[tokio::test]
async fn answers_that_cross_are_each_judged_by_what_was_told_before_they_were_sent() {
    let world = World::new(true);
    assert_eq!(world.step(3, Some(master('a', 1)), master('a', 2)).await, at('a', 2));
    let (first, of_first) = world.ask().await;
    let (second, of_second) = world.ask().await;
    of_second.answer(None, master('a', 4));
    assert_eq!(noted(second).await, at('a', 4));
    of_first.answer(None, master('a', 3));
    assert_eq!(noted(first).await, at('a', 3));
    assert_eq!(world.step(2, None, master('b', 5)).await, None);
}
