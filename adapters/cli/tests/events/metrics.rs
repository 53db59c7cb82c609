//! `/metrics` of `events serve`: what happens is seen to move, and what is named is a closed set.

use super::program::{Serving, Tail};
use super::redis_server::Server;
use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

/// Long enough on any machine; nothing is asserted about time.
const GIVE_UP: Duration = Duration::from_secs(60);

/// Every series of the page, name and labels, with its value.
fn series(serving: &Serving) -> BTreeMap<String, u64> {
    let answer = serving.get("/metrics");
    let (head, page) = answer.split_once("\r\n\r\n").expect("a head and a page");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert!(head.to_ascii_lowercase().contains("content-type: text/plain"), "{head}");
    let samples = page.lines().filter(|line| line.starts_with("strandline_"));
    samples
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').expect("a name and a value");
            (name.to_owned(), value.parse().expect("a number"))
        })
        .collect()
}

fn value(serving: &Serving, name: &str) -> u64 {
    let all = series(serving);
    *all.get(name).unwrap_or_else(|| panic!("expected {name}, found {:?}", all.keys()))
}

/// Waits until a series has a value.
pub(super) fn until(serving: &Serving, name: &str, holds: impl Fn(u64) -> bool) {
    let begun = Instant::now();
    while !holds(value(serving, name)) {
        assert!(begun.elapsed() < GIVE_UP, "{name} stays at {}", value(serving, name));
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn subscribers_verdicts_and_publishes_are_seen_to_move() {
    let serving = Serving::start(&[]);
    for name in [
        "strandline_hub_streams",
        "strandline_hub_subscribers",
        "strandline_hub_published_total",
        "strandline_hub_subscribes_total{verdict=\"fresh\"}",
        "strandline_hub_subscribes_total{verdict=\"complete\"}",
        "strandline_hub_refused_total{reason=\"unreadable_cursor\"}",
    ] {
        assert_eq!(value(&serving, name), 0, "{name}");
    }
    let mut tail = Tail::start(&serving, &["t", "--from", "earliest"]);
    until(&serving, "strandline_hub_subscribers", |count| count == 1);
    let first = serving.publish(&["t"], b"one").only();
    serving.publish(&["t"], b"two").only();
    assert_eq!((&tail.next()["data"], &tail.next()["data"]), (&"one".into(), &"two".into()));
    assert_eq!(value(&serving, "strandline_hub_published_total"), 2);
    assert_eq!(value(&serving, "strandline_hub_held_events"), 2);
    assert_eq!(value(&serving, "strandline_hub_subscribes_total{verdict=\"fresh\"}"), 1);
    assert!(value(&serving, "strandline_hub_polled_total") >= 2);

    let id = first["id"].as_str().expect("an id");
    serving.run(&["tail", "t", "--id", id, "--count", "1"]).only();
    until(&serving, "strandline_hub_subscribes_total{verdict=\"complete\"}", |count| count == 1);
    let mut lost = Tail::start(&serving, &["t", "--id", "rubbish"]);
    assert_eq!(lost.next()["event"], "sync_required");
    assert_eq!(value(&serving, "strandline_hub_refused_total{reason=\"unreadable_cursor\"}"), 1);
    assert_eq!(value(&serving, "strandline_hub_subscribes_total{verdict=\"refused\"}"), 1);
    assert_eq!(value(&serving, "strandline_hub_sync_required_total"), 1);

    drop((tail, lost));
    // A client that is gone is noticed when something is written to it.
    let begun = Instant::now();
    while value(&serving, "strandline_hub_streams") > 0 {
        assert!(begun.elapsed() < GIVE_UP, "streams of clients that are gone stay");
        serving.publish(&["t"], b"is anybody there").only();
    }
    assert_eq!(value(&serving, "strandline_hub_subscribers"), 0);
}

#[test]
fn what_clients_name_never_becomes_a_series() {
    let serving = Serving::start(&[]);
    let names = |serving: &Serving| series(serving).into_keys().collect::<BTreeSet<String>>();
    let before = names(&serving);
    for number in 0..20 {
        let topic = format!("of-a-client-{number}");
        serving.publish(&[&topic, "--kind", &topic, "--token", &topic], b"x").only();
        serving.run(&["tail", &topic, "--from", "earliest", "--count", "1"]).only();
        serving.get(&format!("/explain?topics={topic}&last_event_id={topic}"));
        serving.get(&format!("/{topic}"));
    }
    assert_eq!(value(&serving, "strandline_hub_topics{state=\"covered\"}"), 20);
    assert_eq!(names(&serving), before);
}

#[test]
fn a_server_that_is_lost_is_counted() {
    let mut server = Server::start();
    let serving = Serving::start(&["--redis", &server.url(), "--namespace", "metrics"]);
    let mut tail = Tail::start(&serving, &["t", "--from", "earliest"]);
    until(&serving, "strandline_hub_topics{state=\"covered\"}", |count| count == 1);
    assert!(value(&serving, "strandline_hub_position_runs_total") >= 1);
    serving.publish(&["t"], b"one").only();
    assert_eq!(tail.event()["data"], "one");
    server.restart();
    assert_eq!(tail.next()["event"], "sync_required");
    assert!(value(&serving, "strandline_hub_coverage_lost_total{reason=\"connection_lost\"}") >= 1);
    assert!(value(&serving, "strandline_hub_subscriptions_ended_total{reason=\"lost\"}") >= 1);
    assert!(value(&serving, "strandline_hub_resubscriptions_total") >= 1);
}
