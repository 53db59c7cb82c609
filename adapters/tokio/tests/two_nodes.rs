//! Two nodes on real directories and real sockets.

use futures::StreamExt;
use std::error::Error;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use strandline_core::id::{Incarnation, LogId};
use strandline_core::lifecycle::api::{LinkRole, Page};
use strandline_core::lifecycle::recovery::Init;
use strandline_core::record::{AuthorityId, Key, State, Version};
use strandline_core::wire::capability::{Capabilities, Capability};
use strandline_core::wire::handshake::{DialAuth, Handshake};
use strandline_core::wire::identity::PeerIdentity;
use strandline_file::node::{Node, NodeConfig, StartError, Unavailable, WriteError};
use strandline_net::{Handle, NetConfig, Peer};
use strandline_tokio::{ServeConfig, Server, serve};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

const TOKEN_OF_B: &str = "the token of b";
const TOKEN_OF_C: &str = "the token of c";

fn init(identity: &str, authority: bool) -> Init {
    Init {
        log: LogId([9; 16]),
        identity: identity.into(),
        namespaces: vec![b"n".to_vec()],
        authority: authority.then(|| AuthorityId::from_text(identity)),
    }
}

fn any_port() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

fn key(name: &str) -> Key {
    Key::from_parts(b"n", name.as_bytes()).expect("short")
}

fn node(path: &Path, init: Init) -> std::result::Result<Node, StartError> {
    let config = NodeConfig::default();
    Ok(if path.exists() { Node::open(path, config)?.0 } else { Node::create(path, init, config)?.0 })
}

/// The authority, which listens.
async fn serve_a(path: &Path, listen: SocketAddr) -> Result<Server> {
    let caller = |identity: &str, token: &str| Peer {
        identity: identity.into(),
        address: None,
        token: Some(token.into()),
        role: LinkRole::Both,
    };
    let peers = vec![caller("b", TOKEN_OF_B), caller("c", TOKEN_OF_C)];
    let node = node(path, init("a", true))?;
    let limits = NetConfig::default();
    Ok(serve(ServeConfig { node, listen, peers, token: "the token of a".into(), limits }).await?)
}

/// The follower, which calls.
async fn serve_b(path: &Path, call: SocketAddr, token: &str) -> Result<Server> {
    let address = Some(call.to_string());
    let peers = vec![Peer { identity: "a".into(), address, token: None, role: LinkRole::Both }];
    let node = node(path, init("b", false))?;
    let limits = NetConfig { retry_ms: 10, retry_ms_max: 50, ..NetConfig::default() };
    Ok(serve(ServeConfig { node, listen: any_port(), peers, token: token.into(), limits }).await?)
}

/// Waits until a replica has durably reached `version`.
async fn reaches(handle: &Handle, version: Version) -> Result {
    let reached = async {
        while handle.status().await?.tail < version {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        Ok::<(), Unavailable>(())
    };
    Ok(tokio::time::timeout(Duration::from_secs(30), reached).await??)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_gets_what_the_authority_writes_across_a_restart() -> Result {
    let folder = tempfile::tempdir()?;
    let (path_a, path_b) = (folder.path().join("a"), folder.path().join("b"));
    let a = serve_a(&path_a, any_port()).await?;
    let address = a.local_addr();
    let first = a.handle().put(key("one"), "first").await?;
    let b = serve_b(&path_b, address, TOKEN_OF_B).await?;
    reaches(b.handle(), first).await?;
    a.shutdown().await?;

    let a = serve_a(&path_a, address).await?;
    a.handle().delete(key("one")).await?;
    let last = a.handle().put(key("two"), "second").await?;
    reaches(b.handle(), last).await?;
    let gone = b.handle().get(key("one")).await?.expect("a tombstone");
    assert_eq!(gone.state, State::Deleted);
    let State::Present { blob } = b.handle().get(key("two")).await?.expect("there").state else {
        panic!("it was put");
    };
    assert_eq!(b.handle().node().blobs().read(blob, 0, 100)?.expect("its blob is there").bytes, b"second");
    let (ours, theirs) = (a.handle().status().await?, b.handle().status().await?);
    assert_eq!((ours.tail, ours.tail_digest), (theirs.tail, theirs.tail_digest));
    a.shutdown().await?;
    Ok(b.shutdown().await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_token_gets_nothing() -> Result {
    let folder = tempfile::tempdir()?;
    let a = serve_a(&folder.path().join("a"), any_port()).await?;
    a.handle().put(key("one"), "first").await?;
    let b = serve_b(&folder.path().join("b"), a.local_addr(), "a guess").await?;
    tokio::time::sleep(Duration::from_millis(300)).await;
    assert_eq!(b.handle().status().await?.tail, Version::ZERO);
    assert!(a.handle().status().await?.links.is_empty());
    a.shutdown().await?;
    Ok(b.shutdown().await?)
}

/// Authenticates as `c`, an empty replica of the log, and then never reads.
async fn dead_peer(call: SocketAddr) -> Result<TcpStream> {
    let incarnation = Incarnation { counter: 1, nonce: [7; 8] };
    let auth = DialAuth {
        token: TOKEN_OF_C.into(),
        identity: Some(PeerIdentity::parse("c")?),
        capabilities: Capabilities::new([
            Capability::Lifecycle,
            Capability::Log(LogId([9; 16])),
            Capability::Incarnation(incarnation),
        ])?,
        expect: None,
    };
    let mut hello = Vec::new();
    Handshake::dial(auth, &mut hello)?;
    let mut connection = TcpStream::connect(call).await?;
    connection.write_all(&hello).await?;
    Ok(connection)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_peer_delays_neither_a_write_nor_another_peer() -> Result {
    let folder = tempfile::tempdir()?;
    let a = serve_a(&folder.path().join("a"), any_port()).await?;
    let dead = dead_peer(a.local_addr()).await?;
    while a.handle().status().await?.links.is_empty() {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let b = serve_b(&folder.path().join("b"), a.local_addr(), TOKEN_OF_B).await?;
    let mut last = Version::ZERO;
    for n in 0..8_u8 {
        last = a.handle().put(key(&n.to_string()), vec![n; 2 << 20]).await?;
    }
    reaches(b.handle(), last).await?;
    let identities: Vec<_> = a.handle().status().await?.links.into_iter().map(|l| l.identity).collect();
    assert!(identities.iter().any(|identity| identity == "c"), "it still hangs there: {identities:?}");
    drop(dead);
    a.shutdown().await?;
    Ok(b.shutdown().await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_loses_nothing_that_was_answered() -> Result {
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("a");
    let a = serve_a(&path, any_port()).await?;
    let writers: Vec<_> = (0..8)
        .map(|writer| {
            let handle = a.handle().clone();
            tokio::spawn(async move {
                let mut answered = Vec::new();
                for n in 0.. {
                    match handle.delete(key(&format!("{writer}.{n}"))).await {
                        Ok(version) => answered.push((format!("{writer}.{n}"), version)),
                        Err(WriteError::Unavailable(Unavailable::Closed)) => break,
                        Err(other) => panic!("expected the node to be closed, found {other}"),
                    }
                }
                answered
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_millis(50)).await;
    a.shutdown().await?;

    let a = serve_a(&path, any_port()).await?;
    for writer in writers {
        for (name, version) in writer.await? {
            let entry = a.handle().get(key(&name)).await?.expect("it was answered");
            assert_eq!(entry.version, version);
        }
    }
    Ok(a.shutdown().await?)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscriber_of_the_follower_sees_each_change_of_the_authority_once() -> Result {
    let folder = tempfile::tempdir()?;
    let a = serve_a(&folder.path().join("a"), any_port()).await?;
    let b = serve_b(&folder.path().join("b"), a.local_addr(), TOKEN_OF_B).await?;
    let mut subscription = b.handle().subscribe(b.handle().cursor().await?).await?;
    assert!(subscription.verdict().is_complete());
    let mut written = Vec::new();
    for n in 0..50 {
        written.push(a.handle().put(key(&format!("k{n}")), format!("v{n}")).await?);
    }
    let mut given = Vec::new();
    while given.len() < written.len() {
        // A future that is dropped before it ends loses no page.
        let soon = tokio::time::timeout(Duration::from_millis(1), subscription.next()).await;
        let Ok(page) = soon else { continue };
        let Some(Page::Changes { records, .. }) = page else { panic!("changes follow, found {page:?}") };
        given.extend(records.into_iter().map(|record| record.version));
    }
    assert_eq!(given, written);
    b.shutdown().await?;
    assert!(matches!(subscription.next().await, Some(Page::Ended(_))));
    assert_eq!(subscription.next().await, None);
    Ok(a.shutdown().await?)
}
