//! The changes of a served node as live topics: the built program, killed and started again, and plain
//! sockets.

mod support;

use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use support::serving::Serving;
use support::{Replica, wait_until};

/// Only a node that hangs reaches it.
const GIVE_UP: Duration = Duration::from_secs(60);

/// A node that serves its changes.
fn serve(replica: &Replica) -> Serving {
    Serving::start(replica, &["--events"])
}

impl Serving {
    fn ask(&self, line: &str, headers: &str) -> Answer {
        let mut socket = TcpStream::connect(&self.http).expect("connects");
        socket.set_read_timeout(Some(GIVE_UP)).expect("sets");
        write!(socket, "{line} HTTP/1.0\r\nhost: t\r\ncontent-length: 0\r\n{headers}\r\n").expect("asks");
        let (mut reader, mut head) = (BufReader::new(socket), String::new());
        while reader.read_line(&mut head).expect("a head") > 2 {}
        let status = head.split(' ').nth(1).expect("a status").parse().expect("a number");
        Answer { status, reader }
    }

    fn get(&self, path: &str) -> Answer {
        self.ask(&format!("GET {path}"), "")
    }

    fn position(&self) -> String {
        let answer: Value = serde_json::from_str(&self.get("/position?topics=files").rest()).expect("JSON");
        answer["id"].as_str().expect("an ID").to_owned()
    }

    /// As a browser connects again.
    fn after(&self, id: &str) -> Answer {
        let answer = self.ask("GET /events?topics=files", &format!("last-event-id: {id}\r\n"));
        assert_eq!(answer.status, 200);
        answer
    }
}

struct Answer {
    status: u16,
    reader: BufReader<TcpStream>,
}

/// One frame of a stream.
#[derive(Debug, Default)]
struct Frame {
    event: String,
    id: String,
    data: String,
}

impl Answer {
    fn rest(mut self) -> String {
        let mut body = String::new();
        self.reader.read_to_string(&mut body).expect("a body");
        body
    }

    /// The next frame that dispatches anything; `None` at the end.
    fn frame(&mut self) -> Option<Frame> {
        let mut frame = Frame::default();
        loop {
            let mut line = String::new();
            // A killed server ends the connection in any way.
            if self.reader.read_line(&mut line).unwrap_or(0) == 0 {
                return None;
            }
            match line.trim_end_matches('\n').split_once(": ") {
                Some(("event", value)) => frame.event = value.to_owned(),
                Some(("id", value)) => frame.id = value.to_owned(),
                Some(("data", value)) => frame.data.push_str(value),
                Some(_) => {}
                None if line == "\n" && !frame.data.is_empty() => return Some(frame),
                None => {}
            }
        }
    }

    fn next(&mut self) -> Frame {
        self.frame().expect("a stream that goes on")
    }

    /// The next change: its key and version, and the ID of who has it.
    fn change(&mut self) -> (String, String, String) {
        let frame = self.next();
        assert!(matches!(&*frame.event, "present" | "deleted"), "{frame:?}");
        let data: Value = serde_json::from_str(&frame.data).expect("JSON");
        let text = |name: &str| data[name].as_str().expect("text").to_owned();
        (text("key"), text("version"), frame.id)
    }
}

#[test]
fn a_client_resumes_across_a_killed_node_and_a_compaction() {
    let replica = Replica::writer("a");
    replica.put("before", b"v");
    let mut serving = serve(&replica);
    let position = serving.position();
    let mut stream = serving.after(&position);
    assert_eq!(stream.next().event, "opened");
    replica.put("one", b"1");
    replica.put("two", b"2");
    replica.done(["delete", "one"]);
    let (one, two, gone) = (stream.change(), stream.change(), stream.change());
    assert_eq!((&*one.0, &*two.0, &*gone.0), ("one", "two", "one"));
    assert_eq!(serving.ask("POST /publish?topic=files", "").status, 405, "the log is the only source");
    serving.kill();
    assert!(stream.frame().is_none());

    replica.put("while it was down", b"3");
    let serving = serve(&replica);
    let mut stream = serving.after(&two.2);
    let opened = stream.next();
    assert_eq!((&*opened.event, opened.data.contains("\"resumed\":true")), ("opened", true), "{opened:?}");
    assert_eq!(stream.change(), gone, "the same event with the same ID");
    let down = stream.change();
    assert_eq!(down.0, "while it was down");
    replica.put("live", b"4");
    assert_eq!(stream.change().0, "live");

    replica.done(["members", "clear"]);
    replica.done(["compact"]);
    replica.put("after", b"5");
    let after = stream.change();
    assert_eq!(after.0, "after");
    let mut refused = serving.after(&two.2);
    let told = refused.next();
    assert_eq!(told.event, "sync_required");
    assert_eq!((told.data.contains("below_floor"), &told.id), (true, &after.2), "{told:?}");
    let fetch =
        serving.ask("GET /events?topics=files&client=fetch", &format!("last-event-id: {}\r\n", two.2));
    assert_eq!(fetch.status, 410);
    // Whoever stands at the new position goes on.
    let mut stream = serving.after(&told.id);
    assert!(stream.next().data.contains("\"resumed\":true"));
    replica.put("last", b"6");
    assert_eq!((stream.change().0, refused.change().0), ("last".into(), "last".into()));
    let metrics = serving.get("/metrics").rest();
    assert!(metrics.contains("strandline_hub_refused_total{reason=\"below_floor\"} 2"), "{metrics}");
    assert!(metrics.contains("strandline_tail_sequence "), "{metrics}");
    assert_eq!(serving.stop(), 0);
}

#[test]
fn another_log_in_the_same_place_is_another_space() {
    let replica = Replica::writer("a");
    let serving = serve(&replica);
    let id = serving.position();
    assert_eq!(serving.stop(), 0);
    let other = Replica::writer("a");
    let serving = serve(&other);
    let told = serving.after(&id).next();
    assert_eq!((&*told.event, told.data.contains("other_incarnation")), ("sync_required", true), "{told:?}");
    assert_eq!(serving.stop(), 0);
}

/// Kills the node again and again under writes. What a client was shown is in the log that comes back, at
/// the version that it was shown at, and over all its connections it is shown each change once.
#[test]
fn what_was_shown_is_in_the_log_that_comes_back() {
    const ROUNDS: u32 = 6;
    let replica = Replica::writer("a");
    let mut serving = serve(&replica);
    let mut id = serving.position();
    let mut shown: Vec<String> = Vec::new();
    for round in 0..ROUNDS {
        let mut stream = serving.after(&id);
        let opened = stream.next();
        assert!(opened.data.contains("\"resumed\":true"), "round {round}: {opened:?}");
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| {
                let mut n = 0;
                while !stop.load(Ordering::Relaxed) {
                    n += 1;
                    // The one that is under way when the node dies fails, or has happened.
                    let _ = replica.try_put(&format!("{round}-{n}"), b"v");
                }
            });
            for _ in 0..5 + round {
                let change = stream.change();
                shown.push(change.1);
                id = change.2;
            }
            serving.kill();
            // What was on its way before the end counts as shown.
            while let Some(frame) = stream.frame() {
                let data: Value = serde_json::from_str(&frame.data).expect("JSON");
                shown.push(data["version"].as_str().expect("a version").to_owned());
                id = frame.id;
            }
            stop.store(true, Ordering::Relaxed);
            writing.join().expect("ends");
        });
        serving = serve(&replica);
    }
    replica.put("last", b"v");
    let log = || -> Vec<String> {
        let lines = replica.done(["watch", "--from", "0.0", "--once"]).lines();
        let cursors = lines.iter().filter_map(|line| line["cursor"].as_str()?.split_once(':'));
        cursors.map(|(_, version)| version.to_owned()).collect()
    };
    let log = log();
    let mut stream = serving.after(&id);
    assert_eq!(stream.next().event, "opened");
    while shown.last() != log.last() {
        shown.push(stream.change().1);
    }
    assert_eq!(shown, log, "each change of the log once, and nothing else");
    wait_until("the stream to end with the node", || {
        serving.kill();
        stream.frame().is_none()
    });
}
