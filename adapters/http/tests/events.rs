//! Live topics over real sockets.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use strandline_core::coverage::{BufferLimits, Entry, HubConfig, HubLimits, Publish, TopicName};
use strandline_core::id::Run;
use strandline_http::events::{Access, Action, Denied, Events, Gate, Grant, Options};
use strandline_hub::{HandleOptions, HubHandle, NoBackend};
use tokio::runtime::Runtime;

/// Long enough on any machine; nothing is asserted about time.
const GIVE_UP: Duration = Duration::from_secs(60);

struct Serving {
    address: SocketAddr,
    events: Events,
    runtime: Runtime,
}

fn hub(limits: HubLimits) -> HubHandle {
    let config = HubConfig { limits, ..HubConfig::minted() };
    let mut seed = [0; 32];
    // Two hubs of one test are two starts.
    seed[..8].copy_from_slice(&std::sync::atomic::AtomicU64::fetch_add(&STARTS, 1, ORDER).to_le_bytes());
    HubHandle::new(config, HandleOptions::default(), NoBackend, Run(1), seed).0
}

static STARTS: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(0);
const ORDER: std::sync::atomic::Ordering = std::sync::atomic::Ordering::Relaxed;

impl Serving {
    fn of(events: Events) -> Self {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(2).build().unwrap();
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let router = events.router();
        runtime.spawn(async move { axum::serve(listener, router).await });
        Self { address, events, runtime }
    }

    fn limited(limits: HubLimits) -> Self {
        Self::of(Events::new(hub(limits), Options::default()))
    }

    fn start() -> Self {
        Self::limited(HubLimits::default())
    }

    /// HTTP/1.0, so that the body ends with the connection and is not cut into chunks.
    fn ask(&self, line: &str, headers: &str, body: &[u8]) -> Answer {
        let mut socket = TcpStream::connect(self.address).unwrap();
        socket.set_read_timeout(Some(GIVE_UP)).unwrap();
        let length = body.len();
        write!(socket, "{line} HTTP/1.0\r\nhost: t\r\ncontent-length: {length}\r\n{headers}\r\n").unwrap();
        socket.write_all(body).unwrap();
        Answer::read(BufReader::new(socket))
    }

    fn get(&self, path: &str) -> Answer {
        self.ask(&format!("GET {path}"), "", b"")
    }

    /// As a browser connects again.
    fn again(&self, path: &str, id: &str) -> Answer {
        self.ask(&format!("GET {path}"), &format!("last-event-id: {id}\r\n"), b"")
    }

    fn publish(&self, topic: &str, texts: impl IntoIterator<Item = impl AsRef<[u8]>>) {
        let topic = TopicName::parse(topic).unwrap();
        for text in texts {
            let publish = Publish::new(text.as_ref());
            self.runtime.block_on(self.events.hub().publish(&topic, publish)).unwrap();
        }
    }

    fn position(&self, topics: &str) -> String {
        let answer = self.get(&format!("/position?topics={topics}"));
        assert_eq!(answer.status, 200);
        answer.json()["id"].as_str().unwrap().to_owned()
    }
}

struct Answer {
    status: u16,
    headers: String,
    reader: BufReader<TcpStream>,
}

#[derive(Debug, Default, PartialEq)]
struct Frame {
    event: String,
    topic: String,
    data: Option<String>,
    id: Option<String>,
    retry: Option<u64>,
    comment: Option<String>,
}

impl Answer {
    fn read(mut reader: BufReader<TcpStream>) -> Self {
        let mut headers = String::new();
        while reader.read_line(&mut headers).unwrap() > 2 {}
        let status = headers.split(' ').nth(1).unwrap().parse().unwrap();
        Self { status, headers: headers.to_lowercase(), reader }
    }

    fn rest(mut self) -> String {
        let mut body = String::new();
        self.reader.read_to_string(&mut body).unwrap();
        body
    }

    fn json(self) -> serde_json::Value {
        serde_json::from_str(&self.rest()).unwrap()
    }

    /// The next frame; `None` at the end of the stream.
    fn frame(&mut self) -> Option<Frame> {
        let mut frame = Frame::default();
        loop {
            let mut line = String::new();
            if self.reader.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            let line = line.trim_end_matches('\n');
            if line.is_empty() {
                return Some(frame);
            }
            let (field, value) = line.split_once(':').unwrap();
            let value = value.trim_start().to_owned();
            match field {
                "" => frame.comment = Some(value),
                "event" => frame.event = value,
                "topic" => frame.topic = value,
                "data" => frame.data = Some(frame.data.map_or(value.clone(), |d| format!("{d}\n{value}"))),
                "id" => {
                    assert!(!value.is_empty(), "an empty id clears the client's cursor");
                    frame.id = Some(value);
                }
                "retry" => frame.retry = Some(value.parse().unwrap()),
                other => panic!("{other}"),
            }
        }
    }

    /// The next frame with that name.
    fn named(&mut self, name: &str) -> Frame {
        loop {
            let frame = self.frame().expect("the stream goes on");
            if frame.data.is_some() && frame.event == name {
                return frame;
            }
            assert!(
                frame.data.is_none() || (frame.event == "opened" && name.is_empty()),
                "expected {name:?}, found {frame:?}"
            );
        }
    }

    /// The next events, without a notice between, and the last ID.
    fn events(&mut self, count: usize) -> (Vec<String>, String) {
        let frames: Vec<Frame> = (0..count).map(|_| self.named("")).collect();
        let id = frames.last().unwrap().id.clone().unwrap();
        (frames.into_iter().map(|frame| frame.data.unwrap()).collect(), id)
    }
}

fn small_buffer() -> HubLimits {
    let buffer = BufferLimits { events_max: 2, ..HubLimits::default().buffer };
    HubLimits { buffer, ..HubLimits::default() }
}

#[test]
fn a_resume_gives_exactly_what_was_missed() {
    let serving = Serving::start();
    let mut first = serving.get("/events?topics=t");
    let opened = first.named("opened");
    assert!(opened.id.is_some(), "a client that hears nothing else has a position");
    serving.publish("t", ["1", "2"]);
    let (texts, id) = first.events(2);
    assert_eq!(texts, ["1", "2"]);
    drop(first);
    serving.publish("t", ["3", "4"]);
    let mut second = serving.again("/events?topics=t", &id);
    assert_eq!(second.named("opened").data.unwrap(), "{\"resumed\":true,\"topic\":\"t\"}");
    serving.publish("t", ["5"]);
    assert_eq!(second.events(3).0, ["3", "4", "5"]);
}

#[test]
fn the_position_comes_first_and_loses_nothing() {
    let serving = Serving::start();
    serving.publish("t", ["before"]);
    let id = serving.position("t");
    serving.publish("t", ["while the state is fetched"]);
    let mut stream = serving.get(&format!("/events?topics=t&last_event_id={id}"));
    assert_eq!(stream.events(1).0, ["while the state is fetched"]);
}

#[test]
fn an_event_source_is_told_in_its_stream_and_goes_on_from_there() {
    let serving = Serving::limited(small_buffer());
    let id = serving.position("t");
    serving.publish("t", ["1", "2", "3"]);
    let mut stream = serving.again("/events?topics=t", &id);
    assert_eq!(stream.status, 200);
    let told = stream.named("sync_required");
    assert_eq!(told.data.unwrap(), "{\"reason\":\"evicted\",\"topic\":\"t\"}");
    assert!(told.retry.is_some(), "clients come back spread over time");
    let fresh = told.id.expect("the dead cursor is retired");
    // A drop right after it loses nothing.
    drop(stream);
    serving.publish("t", ["4"]);
    let mut stream = serving.again("/events?topics=t", &fresh);
    assert_eq!(stream.events(1).0, ["4"]);
}

#[test]
fn a_cursor_that_cannot_be_read_is_never_taken_for_none() {
    let serving = Serving::start();
    serving.publish("t", ["1"]);
    for id in ["42", "x", "\u{fc}", "AAAA.BBBB"] {
        let told = serving.again("/events?topics=t", id).named("sync_required");
        assert!(told.data.unwrap().contains("unreadable_cursor"), "{id}");
        assert!(told.id.is_some());
    }
    let opened = serving.again("/events?topics=t", "").named("opened");
    assert!(opened.data.unwrap().contains("\"resumed\":false"));
}

#[test]
fn another_life_of_the_server_is_told() {
    let (one, two) = (Serving::start(), Serving::start());
    one.publish("t", ["1"]);
    two.publish("t", ["1"]);
    let id = one.position("t");
    let told = two.again("/events?topics=t", &id).named("sync_required");
    assert!(told.data.unwrap().contains("other_incarnation"));
}

#[test]
fn several_topics_share_one_id_and_each_has_its_own_verdict() {
    let serving = Serving::limited(small_buffer());
    let mut stream = serving.get("/events?topics=a,b");
    stream.named("opened");
    stream.named("opened");
    serving.publish("a", ["a1"]);
    assert_eq!(stream.events(1).0, ["a1"]);
    serving.publish("b", ["b1"]);
    let event = stream.named("");
    assert_eq!((event.topic.as_str(), event.data.as_deref()), ("b", Some("b1")));
    let id = event.id.unwrap();
    assert_eq!(id.split('.').count(), 2);
    drop(stream);
    serving.publish("a", ["a2"]);
    serving.publish("b", ["b2", "b3", "b4"]);
    let mut stream = serving.again("/events?topics=a,b", &id);
    let mut seen: Vec<(String, String)> = Vec::new();
    while seen.len() < 3 {
        let frame = stream.frame().unwrap();
        match (frame.event.as_str(), frame.data) {
            ("opened", Some(data)) => seen.push((frame.event, data)),
            ("sync_required", Some(data)) => seen.push((frame.event, data)),
            ("", Some(data)) => seen.push((frame.topic, data)),
            (_, None) => {}
            other => panic!("{other:?}"),
        }
    }
    seen.sort();
    let expected = [
        ("a", "a2"),
        ("opened", "{\"resumed\":true,\"topic\":\"a\"}"),
        ("sync_required", "{\"reason\":\"evicted\",\"topic\":\"b\"}"),
    ];
    assert_eq!(seen, expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
}

#[test]
fn a_client_that_reads_statuses_gets_409_or_410_and_goes_on_with_the_id() {
    let serving = Serving::limited(small_buffer());
    let old = serving.position("t");
    serving.publish("t", ["1", "2", "3"]);
    for (path, header, id, status) in [
        ("/events?topics=t&client=fetch", "", "x", 409),
        ("/events?topics=t&client=fetch", "", old.as_str(), 410),
        ("/events?topics=t", "accept: text/event-stream, application/json\r\n", old.as_str(), 410),
    ] {
        let headers = format!("{header}last-event-id: {id}\r\n");
        let answer = serving.ask(&format!("GET {path}"), &headers, b"");
        assert_eq!(answer.status, status, "{path} {id}");
        let json = answer.json();
        assert_eq!(json["error"], "sync_required");
        let reason = if status == 409 { "unreadable_cursor" } else { "evicted" };
        assert_eq!(json["topics"][0]["reason"], reason);
        let fresh = json["id"].as_str().unwrap();
        let mut stream = serving.again("/events?topics=t&client=fetch", fresh);
        assert_eq!((stream.status, stream.named("opened").data.unwrap().contains("true")), (200, true));
    }
}

#[test]
fn silence_is_filled_with_comments_that_move_no_cursor() {
    let options = Options { keep_alive_ms: 20, ..Options::default() };
    let serving = Serving::of(Events::new(hub(HubLimits::default()), options));
    let mut stream = serving.get("/events?topics=t");
    stream.named("opened");
    for _ in 0..3 {
        let expected = Frame { comment: Some(String::new()), ..Frame::default() };
        assert_eq!(stream.frame(), Some(expected));
    }
}

#[test]
fn nobody_between_keeps_or_gathers_the_stream() {
    let serving = Serving::start();
    let mut stream = serving.get("/events?topics=t");
    for header in [
        "content-type: text/event-stream; charset=utf-8\r\n",
        "cache-control: no-store, no-transform\r\n",
        "x-accel-buffering: no\r\n",
    ] {
        assert!(stream.headers.contains(header), "{header}{}", stream.headers);
    }
    assert!(stream.frame().unwrap().retry.is_some(), "something is sent at once");
}

#[test]
fn a_slow_reader_is_told_and_the_others_are_not() {
    let serving = Serving::limited(HubLimits { queue_events_max: 4, ..HubLimits::default() });
    let mut slow = serving.get("/events?topics=t");
    slow.named("opened");
    let mut quick = serving.get("/events?topics=t");
    quick.named("opened");
    // More than sockets and queues hold.
    let big = "x".repeat(200_000);
    for n in 0..100 {
        serving.publish("t", [format!("{n} {big}")]);
        assert!(quick.named("").data.unwrap().starts_with(&format!("{n} ")));
    }
    let (mut told, mut last) = (false, None);
    while last != Some(99) {
        let frame = slow.frame().expect("the stream goes on");
        match (frame.event.as_str(), frame.data) {
            ("gap" | "sync_required", Some(_)) => told = true,
            ("", Some(data)) => {
                let n: usize = data.split(' ').next().unwrap().parse().unwrap();
                assert!(n == last.map_or(0, |last| last + 1) || told, "{n} after {last:?} without a word");
                last = Some(n);
            }
            _ => {}
        }
        if told && last != Some(99) {
            // Whatever was skipped was told; the stream goes on live.
            serving.publish("t", ["99 end"]);
        }
    }
    assert!(told);
}

#[test]
fn limits_send_an_event_source_away_to_come_again_and_tell_others_by_status() {
    let gate = Named;
    let limits = HubLimits {
        client_subscribers_max: Some(1),
        topic_subscribers_max: Some(2),
        subscribers_max: Some(3),
        ..HubLimits::default()
    };
    let serving = Serving::of(Events::guarded(hub(limits), Options::default(), gate));
    let open = |client: &str, topic: &str| {
        let mut stream =
            serving.ask(&format!("GET /events?topics={topic}"), &format!("x-user: {client}\r\n"), b"");
        stream.named("opened");
        stream
    };
    let refused = |client: &str, topic: &str| {
        let headers = format!("x-user: {client}\r\n");
        let stream = serving.ask(&format!("GET /events?topics={topic}"), &headers, b"");
        assert_eq!(stream.status, 200);
        let text = stream.rest();
        assert!(text.starts_with("retry: ") && !text.contains("id:") && !text.contains("event:"), "{text}");
        let answer = serving.ask(&format!("GET /events?client=fetch&topics={topic}"), &headers, b"");
        assert!(answer.headers.contains("retry-after: "));
        (answer.status, answer.json()["error"].as_str().unwrap().to_owned())
    };
    let ann = open("ann", "t");
    assert_eq!(refused("ann", "u"), (429, "client_limit".into()));
    let _bob = open("bob", "t");
    assert_eq!(refused("cid", "t"), (503, "topic_limit".into()));
    let _cid = open("cid", "u");
    assert_eq!(refused("dan", "u"), (503, "total_limit".into()));
    drop(ann);
    // The server sees the end when it writes next.
    while serving.events.hub().streams() > 2 {
        serving.publish("t", ["."]);
        std::thread::yield_now();
    }
    open("dan", "u");
}

/// A client is whom a header names; the topic `secret` is nobody's, `past` is over, and an event that
/// begins with `-` is hidden.
struct Named;

impl Gate for Named {
    fn admit(&self, request: &axum::http::request::Parts) -> Result<Box<dyn Grant>, Denied> {
        let user = request.headers.get("x-user").and_then(|v| v.to_str().ok()).ok_or(Denied)?;
        Ok(Box::new(User(user.to_owned())))
    }
}

struct User(String);

impl Grant for User {
    fn client(&self) -> Option<&str> {
        Some(&self.0)
    }

    fn topic(&self, topic: &TopicName, action: Action) -> Access {
        match (topic.as_str(), action) {
            ("past", _) => Access::Over,
            ("secret", _) | ("read-only", Action::Publish) => Access::Denied,
            _ => Access::Allowed,
        }
    }

    fn event(&self, _topic: &TopicName, event: &Entry) -> bool {
        !event.payload.starts_with(b"-")
    }
}

#[test]
fn the_gate_decides_for_each_topic() {
    let serving = Serving::of(Events::guarded(hub(HubLimits::default()), Options::default(), Named));
    let status = |line: &str, headers: &str| serving.ask(line, headers, b"").status;
    let user = "x-user: ann\r\n";
    assert_eq!(status("GET /events?topics=t", ""), 401);
    for path in ["events", "position", "explain"] {
        assert_eq!(status(&format!("GET /{path}?topics=t,secret"), user), 403);
        assert_eq!(status(&format!("GET /{path}?topics=t,past"), user), 204);
    }
    assert_eq!(status("POST /publish?topic=read-only", user), 403);
    assert_eq!(status("POST /publish?topic=t", user), 200);
    assert_eq!(status("POST /publish?topic=t", ""), 401);
}

#[test]
fn a_hidden_event_only_moves_the_cursor_replayed_or_live() {
    let serving = Serving::of(Events::guarded(hub(HubLimits::default()), Options::default(), Named));
    let ask = |path: &str| serving.ask(&format!("GET {path}"), "x-user: ann\r\n", b"");
    let id = ask("/position?topics=t").json()["id"].as_str().unwrap().to_owned();
    serving.publish("t", ["1", "-2"]);
    let mut stream = ask(&format!("/events?topics=t&last_event_id={id}"));
    assert_eq!(stream.events(1).0, ["1"]);
    let moved = stream.frame().unwrap();
    assert!(moved.data.is_none() && moved.id.is_some(), "{moved:?}");
    serving.publish("t", ["-3", "4"]);
    let moved = stream.frame().unwrap();
    assert!(moved.data.is_none() && moved.id.is_some(), "{moved:?}");
    assert_eq!(stream.events(1).0, ["4"]);
    let after = moved.id.unwrap();
    assert_eq!(ask(&format!("/events?topics=t&last_event_id={after}")).events(1).0, ["4"]);
}

#[test]
fn a_publish_is_one_step_and_its_repeat_is_the_same() {
    let serving = Serving::start();
    let mut stream = serving.get("/events?topics=t&envelope=json");
    stream.named("opened");
    let post = |headers: &str, body: &[u8]| serving.ask("POST /publish?topic=t&kind=k", headers, body);
    let first = post("idempotency-key: one\r\n", b"\xff").json();
    let second = post("idempotency-key: one\r\n", b"\xff").json();
    assert_eq!((&first["repeated"], &second["repeated"]), (&false.into(), &true.into()));
    assert_eq!(first["id"], second["id"]);
    post("", b"two");
    let data = |frame: Frame| serde_json::from_str::<serde_json::Value>(&frame.data.unwrap()).unwrap();
    let (one, two) = (stream.named(""), stream.named(""));
    assert_eq!(one.id.as_deref(), first["id"].as_str());
    let (one, two) = (data(one), data(two));
    assert_eq!((&one["topic"], &one["kind"], &one["base64"]), (&"t".into(), &"k".into(), &"/w==".into()));
    assert_eq!((&two["data"], two.get("base64")), (&"two".into(), None));
}

#[test]
fn what_cannot_be_published_says_why() {
    let serving = Serving::start();
    let post = |line: &str, headers: &str, body: &[u8]| {
        let answer = serving.ask(line, headers, body);
        let status = answer.status;
        (status, answer.json()["error"].as_str().unwrap().to_owned())
    };
    assert_eq!(post("POST /publish", "", b""), (400, "bad_request".into()));
    assert_eq!(post("POST /publish?topics=a,b", "", b""), (400, "bad_request".into()));
    assert_eq!(post("POST /publish?topic=a&kind=a%0Ab", "", b""), (400, "bad_kind".into()));
    let long = format!("idempotency-key: {}\r\n", "x".repeat(201));
    assert_eq!(post("POST /publish?topic=a", &long, b""), (400, "bad_token".into()));
    let big = vec![0; Options::default().body_bytes_max + 1];
    assert_eq!(post("POST /publish?topic=a", "", &big), (413, "too_large".into()));
    // More than what lies between can hold: the client still sends when it is refused.
    let huge = vec![0; 16 << 20];
    assert_eq!(post("POST /publish?topic=a", "", &huge), (413, "too_large".into()));
    assert_eq!(post("POST /publish?topic=a", &long, &huge), (400, "bad_token".into()));
    assert_eq!(post("POST /publish", "", &huge), (400, "bad_request".into()));
    serving.events.hub().close();
    assert_eq!(post("POST /publish?topic=a", "", b""), (503, "closed".into()));
}

#[test]
fn draining_ends_streams_with_word_to_come_again() {
    let serving = Serving::start();
    let mut stream = serving.get("/events?topics=t");
    let id = stream.named("opened").id.unwrap();
    serving.events.drain();
    assert!(stream.frame().unwrap().retry.is_some());
    assert_eq!(stream.frame(), None);
    let away = serving.again("/events?topics=t", &id);
    assert_eq!(away.status, 200);
    let text = away.rest();
    assert!(text.starts_with("retry: ") && !text.contains("event:") && !text.contains("id:"), "{text}");
    assert_eq!(serving.get("/events?topics=t&client=fetch").status, 503);
    serving.publish("t", ["the hub goes on"]);
}

#[test]
fn a_closed_hub_ends_streams_after_what_waits() {
    let serving = Serving::start();
    let mut stream = serving.get("/events?topics=t");
    stream.named("opened");
    serving.publish("t", ["1"]);
    serving.events.hub().close();
    assert_eq!(stream.events(1).0, ["1"]);
    assert_eq!(stream.frame(), None);
}

#[test]
fn an_id_is_explained_with_its_evidence() {
    let serving = Serving::limited(small_buffer());
    let old = serving.position("t");
    serving.publish("t", ["1", "2", "3"]);
    let why = |id: &str| serving.get(&format!("/explain?topics=t,u&last_event_id={id}")).json();
    let page = why(&format!("{old}.-"));
    let of = |page: &serde_json::Value, n: usize, name: &str| page[n][name].as_str().unwrap_or("").to_owned();
    assert_eq!((of(&page, 0, "verdict"), of(&page, 0, "reason")), ("gap".into(), "evicted".into()));
    assert_eq!((of(&page, 0, "cursor"), of(&page, 0, "floor")), ("0".into(), "1".into()));
    assert_eq!(of(&page, 0, "head"), "3");
    assert_eq!(
        (of(&page, 1, "verdict"), of(&page, 1, "reason")),
        ("unknown".into(), "unreadable_cursor".into())
    );
    assert_eq!(of(&why(&serving.position("t")), 0, "verdict"), "complete");
}

#[test]
fn what_is_asked_wrongly_is_400() {
    let serving = Serving::start();
    for path in ["/events", "/events?topics=%7B", "/events?topics=t&from=x", "/position?topics=t,t"] {
        assert_eq!(serving.get(path).status, 400, "{path}");
    }
}
