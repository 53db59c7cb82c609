//! The chat page of the documents, over real sockets.

use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use strandline_core::id::Run;
use strandline_hub::HubHandle;

#[path = "../examples/chat.rs"]
#[allow(dead_code, reason = "the example's own `main` is not used here")]
mod chat;

/// Long enough on any machine; nothing is asserted about time.
const GIVE_UP: Duration = Duration::from_secs(60);

/// Asks over HTTP/1.0, so that the body ends with the connection and is not cut into chunks.
fn ask(address: SocketAddr, line: &str, body: &str) -> BufReader<TcpStream> {
    let mut socket = TcpStream::connect(address).unwrap();
    socket.set_read_timeout(Some(GIVE_UP)).unwrap();
    let length = body.len();
    write!(socket, "{line} HTTP/1.0\r\nhost: t\r\ncontent-length: {length}\r\n\r\n{body}").unwrap();
    BufReader::new(socket)
}

/// Status and body.
fn answer(address: SocketAddr, line: &str, body: &str) -> (u16, String) {
    let mut text = String::new();
    ask(address, line, body).read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// The next message of a stream.
fn next(stream: &mut BufReader<TcpStream>) -> String {
    loop {
        let mut line = String::new();
        assert!(stream.read_line(&mut line).unwrap() > 0, "expected a message, found the end of the stream");
        if let Some(data) = line.strip_prefix("data: ")
            && data.contains("\"text\"")
        {
            let message: serde_json::Value = serde_json::from_str(data).unwrap();
            return format!("{} {}", message["number"], message["text"].as_str().unwrap());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_has_its_messages_and_what_is_said_later() {
    let (hub, driver) = HubHandle::in_process(Run(1), [7; 32]);
    tokio::spawn(driver.run(tokio::time::sleep));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, chat::app(hub)).await });
    tokio::task::spawn_blocking(move || talk(address)).await.unwrap();
}

fn talk(address: SocketAddr) {
    let say = |text: &str| assert_eq!(answer(address, "POST /say", text).0, 204);
    let (status, page) = answer(address, "GET /", "");
    assert!(status == 200 && page.contains("/live/strandline.js"), "{page}");
    assert_eq!(answer(address, "GET /live/strandline.js", "").0, 200);
    say("one");
    let (_, position) = answer(address, "GET /live/position?topics=chat", "");
    let position: serde_json::Value = serde_json::from_str(&position).unwrap();
    let id = position["id"].as_str().unwrap();
    // Between the position and the state, and before the stream.
    say("two");
    let (_, state) = answer(address, "GET /messages", "");
    let state: serde_json::Value = serde_json::from_str(&state).unwrap();
    assert_eq!(state.as_array().map(Vec::len), Some(2));
    let mut stream = ask(address, &format!("GET /live/events?topics=chat&last_event_id={id}"), "");
    assert_eq!(next(&mut stream), "2 two", "the state has it too, and its number says so");
    say("three");
    assert_eq!(next(&mut stream), "3 three");
    assert_eq!(answer(address, "POST /live/publish?topic=chat", "forged").0, 403, "pages only listen");
}
