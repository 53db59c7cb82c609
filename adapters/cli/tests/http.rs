//! What those who run a node ask it over HTTP: the built program and a plain socket.

mod support;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use support::Replica;
use support::serving::Serving;

impl Serving {
    /// The status code and the body of an answer.
    fn get(&self, path: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.http).expect("connects");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("sets");
        write!(stream, "GET {path} HTTP/1.1\r\nhost: node\r\nconnection: close\r\n\r\n").expect("asks");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("is answered");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        let code = head.split(' ').nth(1).expect("a status line").parse().expect("a number");
        (code, body.to_owned())
    }
}

/// The value of a metric line.
fn metric(page: &str, name: &str) -> u64 {
    let line = page.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(' ')));
    let line = line.unwrap_or_else(|| panic!("no {name} in\n{page}"));
    line.rsplit(' ').next().expect("a value").parse().expect("a number")
}

#[test]
fn a_node_says_that_it_is_ready_and_well_and_how_it_stands() {
    let replica = Replica::writer("a");
    let serving = Serving::start(&replica, &[]);
    assert_eq!(serving.get("/healthz"), (200, "ok\n".into()));
    assert_eq!(serving.get("/readyz"), (200, "ok\n".into()));
    assert_eq!(serving.get("/other").0, 404);
    for n in 0..3 {
        replica.put(&format!("k{n}"), b"v");
    }
    replica.done(["delete", "k0"]);
    let (code, page) = serving.get("/metrics");
    assert_eq!(code, 200);
    assert_eq!(metric(&page, "strandline_keys{state=\"present\"}"), 2);
    assert_eq!(metric(&page, "strandline_keys{state=\"deleted\"}"), 1);
    let tail = replica.status()["tail"].as_str().expect("a version").to_owned();
    let sequence = metric(&page, "strandline_tail_sequence");
    assert_eq!(format!("{}.{sequence}", metric(&page, "strandline_tail_epoch")), tail);
    assert_eq!(metric(&page, "strandline_compaction_blocked"), 1);
    assert_eq!((metric(&page, "strandline_authority"), metric(&page, "strandline_halted")), (1, 0));
    for line in page.lines().filter(|line| line.starts_with("# HELP")) {
        let name = line.split(' ').nth(2).expect("a name");
        assert_eq!(page.matches(&format!("# TYPE {name} gauge\n")).count(), 1, "{name}");
    }
    // A client that keeps its connection open does not hold up the end.
    let _idle = TcpStream::connect(&serving.http).expect("connects");
    assert_eq!(serving.stop(), 0);
}

#[test]
fn a_restored_writer_is_well_but_not_ready() {
    let replica = Replica::writer("a");
    replica.put("k", b"v");
    let backup = replica.path("backup");
    replica.done(["backup", backup.to_str().expect("UTF-8")]);
    let restored = Replica::new();
    restored.done(["restore", backup.to_str().expect("UTF-8")]);
    let serving = Serving::start(&restored, &[]);
    assert_eq!(serving.get("/healthz").0, 200);
    let (code, why) = serving.get("/readyz");
    assert_eq!(code, 503);
    assert!(why.starts_with("fenced"), "{why}");
    assert_eq!(metric(&serving.get("/metrics").1, "strandline_fenced"), 1);
    assert_eq!(serving.stop(), 0);
}
