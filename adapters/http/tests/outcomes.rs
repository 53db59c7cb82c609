//! How a publish over a server ended, as a status that a program can act on.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use strandline_core::coverage::{Command, HubConfig, Minted};
use strandline_core::error::{StorageAction, StorageCause, StorageFault};
use strandline_core::id::Run;
use strandline_http::events::{Events, Options};
use strandline_hub::{Backend, HandleOptions, HubHandle, ShardId};
use tokio::runtime::Runtime;

/// Long enough on any machine; nothing is asserted about time.
const GIVE_UP: Duration = Duration::from_secs(60);

fn fault() -> StorageFault {
    let detail = "the server's own words".to_owned();
    let (action, cause) = (StorageAction::Write, StorageCause::Failed);
    StorageFault { action, file: "server".into(), offset: None, cause, detail }
}

/// Ends every publish in the same way.
struct Ends(Result<Minted, StorageFault>);

impl Backend for Ends {
    fn start(&self, handle: &HubHandle, shard: ShardId, command: Command) {
        if let Command::Publish { ticket, .. } = command {
            handle.complete(shard, ticket.complete(self.0.clone()));
        }
    }
}

fn serve(runtime: &Runtime, ends: Ends) -> SocketAddr {
    let (hub, _driver) = HubHandle::new(HubConfig::broker(), HandleOptions::default(), ends, Run(1), [7; 32]);
    let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("listens");
    let address = listener.local_addr().expect("an address");
    let router = Events::new(hub, Options::default()).router();
    runtime.spawn(async move { axum::serve(listener, router).await });
    address
}

/// The status, and the whole answer.
fn publish(address: SocketAddr) -> (u16, String) {
    let mut socket = TcpStream::connect(address).expect("connected");
    socket.set_read_timeout(Some(GIVE_UP)).expect("a limit");
    let head = "POST /publish?topic=a HTTP/1.1\r\nhost: t\r\nconnection: close\r\ncontent-length: 1\r\n\r\nx";
    socket.write_all(head.as_bytes()).expect("sent");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("an answer");
    let status = answer.split(' ').nth(1).and_then(|word| word.parse().ok()).expect("a status");
    (status, answer)
}

#[test]
fn refused_by_the_server_is_503_and_says_that_nothing_was_published() {
    let runtime = Runtime::new().expect("a runtime");
    let (status, answer) = publish(serve(&runtime, Ends(Ok(Minted::Refused(fault())))));
    assert_eq!(status, 503, "{answer}");
    assert!(answer.contains(r#""error":"refused","message":"nothing was published"#), "{answer}");
    assert!(answer.contains("the server's own words"), "{answer}");
}

#[test]
fn uncertain_is_504_and_says_that_it_may_be_published() {
    let runtime = Runtime::new().expect("a runtime");
    let (status, answer) = publish(serve(&runtime, Ends(Err(fault()))));
    assert_eq!(status, 504, "{answer}");
    assert!(answer.contains(r#""error":"uncertain","message":"it may be published or not"#), "{answer}");
}

#[test]
fn a_state_without_sequences_is_500_and_says_that_nothing_was_published() {
    let runtime = Runtime::new().expect("a runtime");
    let (status, answer) = publish(serve(&runtime, Ends(Ok(Minted::NoSequence))));
    assert_eq!(status, 500, "{answer}");
    assert!(answer.contains(r#""error":"no_sequence""#), "{answer}");
    assert!(answer.contains("nothing was published"), "{answer}");
}
