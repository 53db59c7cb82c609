//! Finding (d): two writers with a log each, over one blob store, and followers of both over another one.
//! Both logs converge over real sockets, lose nothing, and no blob is collected on the word of one of them.

use std::error::Error;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use strandline_core::id::LogId;
use strandline_core::lifecycle::api::{Collect, LinkRole, MembersChange};
use strandline_core::lifecycle::recovery::Init;
use strandline_core::record::{AuthorityId, Key, State, Version};
use strandline_core::wire::admission::Terms;
use strandline_file::node::{Node, NodeConfig, RequestFailed};
use strandline_file::{BlobStore, BlobsKept};
use strandline_net::{Access, Handle, NetConfig, Peer};
use strandline_tokio::{ServeConfig, Server, serve};

type Result<T = ()> = std::result::Result<T, Box<dyn Error>>;

const TOKEN: &str = "of the follower";
/// Longest wait for one step; only one that hangs reaches it.
const WAIT: Duration = Duration::from_secs(60);

/// A node of the log with this number, over `blobs`.
fn node(folder: &Path, log: u8, identity: &str, blobs: &Arc<BlobStore>) -> Result<Node> {
    let authority = (identity == "writer").then(|| AuthorityId::from_text(identity));
    let namespaces = vec![b"n".to_vec()];
    let init = Init { log: LogId([log; 16]), identity: identity.into(), namespaces, authority };
    let config = NodeConfig { blobs: Some(Arc::clone(blobs)), ..NodeConfig::default() };
    Ok(Node::create(folder.join(format!("{identity}-{log}")), init, config)?.0)
}

async fn start(node: Node, peer: Peer, token: &str) -> Result<Server> {
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let limits = NetConfig { retry_ms: 10, retry_ms_max: 50, ..NetConfig::default() };
    let access = Access { token: token.into(), peers: vec![peer], ..Access::default() };
    Ok(serve(ServeConfig { node, listen, access, limits }).await?)
}

fn peer(identity: &str, address: Option<SocketAddr>) -> Peer {
    let token = address.is_none().then(|| TOKEN.into());
    let address = address.map(|at| at.to_string());
    Peer { identity: identity.into(), address, token, role: LinkRole::Both, terms: Terms::default() }
}

fn key(n: u32) -> Key {
    Key::from_parts(b"n", format!("k{n}").as_bytes()).expect("short")
}

/// What a log puts under a key: every other content is the same in both.
fn content(log: u8, n: u32) -> Vec<u8> {
    if n.is_multiple_of(2) { format!("shared {n}") } else { format!("of {log}: {n}") }.into_bytes()
}

async fn holds_all(handle: &Handle, log: u8, tail: Version) -> Result {
    let reached = async {
        while handle.status().await?.complete < tail {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok::<_, Box<dyn Error>>(())
    };
    tokio::time::timeout(WAIT, reached).await??;
    for n in 0..40 {
        let State::Present { blob } = handle.get(key(n)).await?.ok_or("no record")?.state else {
            return Err("it was put".into());
        };
        let piece = handle.read_blob(blob, 0, 100).await?.ok_or("no blob")?;
        assert_eq!(piece.bytes, content(log, n));
    }
    Ok(())
}

async fn collect(handle: &Handle) -> std::result::Result<(), RequestFailed> {
    let (tx, rx) = tokio::sync::oneshot::channel();
    let everything = Collect { dry_run: false, untouched_ms: 0 };
    handle.node().collect(everything, move |done| drop(tx.send(done)));
    rx.await.expect("the node answers every call").map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn two_logs_over_one_blob_store_converge_and_neither_collects_what_the_other_needs() -> Result {
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    let ours = Arc::new(BlobStore::open(folder.join("blobs of the writers"))?);
    let theirs = Arc::new(BlobStore::open(folder.join("blobs of the followers"))?);
    let mut servers = Vec::new();
    for log in [1, 2] {
        let writer = start(node(folder, log, "writer", &ours)?, peer("follower", None), "of w").await?;
        let called = peer("writer", Some(writer.local_addr()));
        let follower = start(node(folder, log, "follower", &theirs)?, called, TOKEN).await?;
        servers.push((log, writer, follower));
    }
    for n in 0..40 {
        for (log, writer, _) in &servers {
            writer.handle().put(key(n), content(*log, n)).await?;
        }
    }
    for (log, writer, follower) in &servers {
        let tail = writer.handle().status().await?.tail;
        for handle in [writer.handle(), follower.handle()] {
            handle.members(MembersChange::Clear).await?;
            holds_all(handle, *log, tail).await?;
            let refused = collect(handle).await;
            assert!(
                matches!(refused, Err(RequestFailed::BlobsKept(BlobsKept::Shared { ref logs })) if logs.len() == 2),
                "found {refused:?}"
            );
            holds_all(handle, *log, tail).await?;
        }
    }
    for (_, writer, follower) in servers {
        follower.shutdown().await?;
        writer.shutdown().await?;
    }
    Ok(())
}
