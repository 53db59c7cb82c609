//! A page of another site may not publish, whatever its visitor may.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use strandline_core::coverage::{HubConfig, TopicName};
use strandline_core::id::Run;
use strandline_http::events::{Access, Action, Denied, Events, Gate, Grant, Options};
use strandline_hub::{HandleOptions, HubHandle, NoBackend};
use tokio::net::TcpListener;

/// Knows whoever brings a cookie, as a browser does for any page.
struct Cookie;

impl Gate for Cookie {
    fn admit(&self, request: &axum::http::request::Parts) -> Result<Box<dyn Grant>, Denied> {
        if request.headers.contains_key("cookie") { Ok(Box::new(Self)) } else { Err(Denied) }
    }
}

impl Grant for Cookie {
    fn topic(&self, _topic: &TopicName, _action: Action) -> Access {
        Access::Allowed
    }
}

fn ask(address: SocketAddr, line: &str, headers: &str) -> (u16, String) {
    let mut socket = TcpStream::connect(address).unwrap();
    write!(socket, "{line} HTTP/1.0\r\nhost: live.example\r\ncontent-length: 1\r\n{headers}\r\nx").unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    (status, answer)
}

#[test]
fn a_page_of_another_site_may_not_publish() {
    let (hub, _driver) =
        HubHandle::new(HubConfig::minted(), HandleOptions::default(), NoBackend, Run(1), [1; 32]);
    let options = Options { publish_origins: vec!["https://app.example".into()], ..Options::default() };
    let events = Events::guarded(hub.clone(), options, Cookie);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().worker_threads(2).build().unwrap();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    runtime.spawn(async move { axum::serve(listener, events.router()).await });
    let post = |headers: &str| ask(address, "POST /publish?topic=t", headers);
    let published = || hub.counters().published;

    // A form or an image of another site: the cookie comes along.
    for page in ["origin: http://evil.example\r\n", "sec-fetch-site: cross-site\r\n", "origin: null\r\n"] {
        let (status, answer) = post(&format!("cookie: a=b\r\ncontent-type: text/plain\r\n{page}"));
        assert_eq!(status, 403, "{answer}");
        assert!(answer.contains("\"error\":\"cross_site\""), "{answer}");
        // Who it is comes first: a stranger is told nothing else.
        assert_eq!(post(page).0, 401);
    }
    assert_eq!(published(), 0);
    for page in [
        "sec-fetch-site: same-origin\r\n",
        "origin: http://live.example\r\n",
        "origin: https://app.example\r\n",
        "",
    ] {
        assert_eq!(post(&format!("cookie: a=b\r\n{page}")).0, 200, "{page}");
    }
    assert_eq!(published(), 4);
    // Reading changes nothing, and the browser keeps the answer from a foreign page by itself.
    let (status, _) =
        ask(address, "GET /position?topics=t", "cookie: a=b\r\norigin: http://evil.example\r\n");
    assert_eq!(status, 200);
}
