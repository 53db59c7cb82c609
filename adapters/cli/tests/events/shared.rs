//! Two instances over one server.

use super::error;
use super::metrics::until;
use super::program::{Serving, Tail};
use super::redis_server::Server;

fn instance(server: &Server) -> Serving {
    Serving::start(&["--redis", &server.url(), "--namespace", "cli"])
}

/// A tail after `id` of the only topic that an instance serves, once it is told what comes.
fn tail_after(instance: &Serving, id: &serde_json::Value) -> Tail {
    let tail = Tail::start(instance, &["t", "--id", id.as_str().expect("an id")]);
    until(instance, "strandline_hub_topics{state=\"covered\"}", |count| count == 1);
    tail
}

#[test]
fn what_one_instance_takes_another_gives() {
    let server = Server::start();
    let (a, b) = (instance(&server), instance(&server));
    let first = a.publish(&["t", "--token", "k"], b"one").only();
    let mut tail = tail_after(&b, &first["id"]);
    let again = b.publish(&["t", "--token", "k"], b"one").only();
    assert_eq!((&again["repeated"], &again["id"]), (&true.into(), &first["id"]));
    a.publish(&["t"], b"two").only();
    let line = tail.event();
    assert_eq!(line["data"], "two", "nothing was missed, though {} heard of the topic only now", b.address);
    let id = line["id"].as_str().expect("an id").to_owned();
    let explained = b.run(&["explain", "--topic", "t", &id]).only();
    assert_eq!((&explained["verdict"], &explained["head"]), (&"complete".into(), &"2".into()));
}

#[test]
fn a_server_that_forgot_everything_is_told_and_the_tail_goes_on() {
    let mut server = Server::start();
    let a = instance(&server);
    let first = a.publish(&["t"], b"one").only();
    let mut tail = tail_after(&a, &first["id"]);
    a.publish(&["t"], b"two").only();
    assert_eq!(tail.event()["data"], "two");
    server.restart();
    assert_eq!(tail.next()["event"], "sync_required");
    // The first publish may still meet the old connection: its outcome is uncertain then, and repeated.
    let mut tries = 0;
    while a.publish(&["t", "--token", "again"], b"three").code != 0 {
        tries += 1;
        assert!(tries < 100, "the server is there again");
    }
    assert_eq!(tail.event()["data"], "three");
}

#[test]
fn a_server_that_is_gone_leaves_a_publish_uncertain() {
    let server = Server::start();
    let a = instance(&server);
    a.publish(&["t"], b"one").only();
    drop(server);
    let lost = a.publish(&["t", "--token", "k"], b"two");
    assert_eq!((lost.code, &error(&lost)["exit"]), (5, &"uncertain".into()), "{}", lost.stderr);
    assert!(error(&lost)["advice"].as_str().is_some_and(|advice| advice.contains("--token")));
}
