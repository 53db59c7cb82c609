//! A user of the server with the rights that the documentation names, and no others.

use crate::support::{PATIENT, must, op, plain, remote_by, runtime, stream, tagged};
use redis::Connection;
use strandline_core::stream::client::{LogPosition, Waited};
use strandline_core::stream::{EventId, Layout, Outcome, ServerFault, StreamError, Verb};
use strandline_redis::{Address, Bell, Names};
use strandline_tests::streams::every::every_operation;
use strandline_tests::streams::server::RedisServer;

const DOCUMENT: &str = include_str!("../../docs/STREAMS.md");

/// The words of the command in the documentation that makes this user.
fn documented(user: &str) -> Vec<String> {
    let begin = format!("ACL SETUSER {user} ");
    let text =
        &DOCUMENT[DOCUMENT.find(&begin).unwrap_or_else(|| panic!("expected {begin} in the document"))..];
    let command = text.split("```").next().expect("its end");
    command.split_whitespace().filter(|word| *word != "\\").map(String::from).collect()
}

fn server_with(user: &str) -> (RedisServer, String) {
    let server = RedisServer::start(None);
    let words = documented(user);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    must::<()>(&mut plain(&server), &words);
    // Nobody else may do anything.
    must::<()>(&mut plain(&server), &["ACL", "SETUSER", "default", "off"]);
    let url = format!("redis://{user}:secret@127.0.0.1:{}/?protocol=resp2", server.port());
    (server, url)
}

fn refused(connection: &mut Connection, words: &[&str]) {
    let answer: redis::RedisResult<redis::Value> = crate::support::command(words).query(connection);
    assert!(answer.is_err_and(|error| error.code() == Some("NOPERM")), "{words:?} is not permitted");
}

#[test]
fn the_documented_rights_suffice_for_every_operation_and_no_more() {
    for (user, names, foreign) in
        [("streams", tagged(), "x:{orders}:orders:life"), ("pulse", Names::Pulse, "other")]
    {
        let (_server, url) = server_with(user);
        let address = Address::one(&url).expect("an address");
        let (runtime, layout) = (runtime(), names.layout());
        let remote = remote_by(address.clone(), names.clone(), PATIENT);
        every_operation("orders", layout, &mut |op| runtime.block_on(remote.apply(op)));
        runtime.block_on(async {
            let mut bell = Bell::new(address.clone(), names.clone(), 20).expect("a bell");
            let logs = [LogPosition { stream: stream("orders"), generation: 1, after: EventId::ZERO }];
            assert_eq!(bell.wait(&logs).await, Waited::TimeOut);
            if layout == Layout::Tagged {
                let mut orders = crate::support::handle("more");
                let add = crate::support::add("a");
                let (outcome, vouched) = remote.apply_vouched(&op(&orders, add.clone())).await;
                crate::support::told(&mut orders, &add, outcome);
                assert!(vouched.is_some());
                let (outcome, replicas) = remote.apply_replicated(&op(&orders, add.clone()), 0, 10).await;
                crate::support::told(&mut orders, &add, outcome);
                assert_eq!(replicas, Some(0));
            }
        });
        let client = redis::Client::open(url.as_str()).expect("an address");
        let mut own = client.get_connection().expect("connected");
        refused(&mut own, &["FLUSHALL"]);
        refused(&mut own, &["CONFIG", "GET", "*"]);
        refused(&mut own, &["KEYS", "*"]);
        refused(&mut own, &["HGET", foreign, "state"]);
        refused(&mut own, &["GET", foreign]);
    }
}

#[test]
fn a_user_without_rights_is_told_so_by_type() {
    let server = RedisServer::start(None);
    for rights in [&["+evalsha", "+eval"][..], &["-@all"]] {
        let mut words = vec!["ACL", "SETUSER", "weak", "reset", "on", ">secret", "~*"];
        words.extend_from_slice(rights);
        must::<()>(&mut plain(&server), &words);
        let url = format!("redis://weak:secret@127.0.0.1:{}/?protocol=resp2", server.port());
        let remote = remote_by(Address::one(&url).expect("an address"), tagged(), PATIENT);
        let outcome = runtime().block_on(remote.apply(&op(&crate::support::handle("orders"), Verb::Open)));
        let Outcome::Answered { result: Err(StreamError::Server(fault)), .. } = outcome else {
            panic!("{outcome:?}")
        };
        assert!(matches!(&fault, ServerFault::NotPermitted { word, .. } if word == "NOPERM"), "{fault:?}");
    }
}
