//! A publish whose body does not come to its end.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use strandline_core::id::Run;
use strandline_http::events::{Events, Options};
use strandline_hub::HubHandle;

/// Long enough on any machine; nothing is asserted about time.
const GIVE_UP: Duration = Duration::from_secs(60);

#[test]
fn a_publish_that_stalls_within_its_bound_is_answered_and_published_by_nobody() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (hub, _driver) = HubHandle::in_process(Run(1), [7; 32]);
    let options = Options { body_ms: 50, answer_ms: 50, ..Options::default() };
    let events = Events::new(hub, options);
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("listens");
    let address = listener.local_addr().expect("an address");
    let router = events.router();
    runtime.spawn(async move { axum::serve(listener, router).await });

    let mut socket = TcpStream::connect(address).expect("connected");
    socket.set_read_timeout(Some(GIVE_UP)).expect("a limit");
    let head =
        "POST /publish?topic=a HTTP/1.1\r\nhost: t\r\nconnection: close\r\ncontent-length: 10\r\n\r\nhalf";
    socket.write_all(head.as_bytes()).expect("sent");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("an answer, and the end of the connection");
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(answer.contains(r#""error":"slow_body""#), "{answer}");
    assert!(answer.contains("found 4 bytes of it; nothing was published"), "{answer}");
    assert_eq!(events.hub().counters().published, 0);
}
