//! Two nodes on smol: the same driver, with a runtime of some forty lines.
//!
//! `cargo run -p strandline-net --example smol`

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, stream};
use smol::net::{TcpListener, TcpStream};
use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;
use strandline_core::id::LogId;
use strandline_core::lifecycle::api::LinkRole;
use strandline_core::lifecycle::recovery::Init;
use strandline_core::record::{AuthorityId, Version};
use strandline_core::wire::admission::Terms;
use strandline_file::node::{Node, NodeConfig};
use strandline_net::{Access, NetConfig, Peer, Runtime, ServeConfig, Server};

/// The global executor of smol.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Smol;

impl Runtime for Smol {
    type Connection = TcpStream;
    type Incoming = BoxStream<'static, io::Result<(Self::Connection, SocketAddr)>>;

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        smol::spawn(task).detach();
    }

    fn run_blocking(&self, work: Box<dyn FnOnce() + Send>) {
        smol::unblock(work).detach();
    }

    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        async move {
            smol::Timer::after(time).await;
        }
        .boxed()
    }

    fn connect(&self, address: &str) -> BoxFuture<'static, io::Result<Self::Connection>> {
        let address = address.to_owned();
        async move { at_once(TcpStream::connect(address).await?) }.boxed()
    }

    fn listen(&self, address: SocketAddr) -> BoxFuture<'static, io::Result<(Self::Incoming, SocketAddr)>> {
        async move {
            let listener = TcpListener::bind(address).await?;
            let local = listener.local_addr()?;
            let incoming = stream::unfold(listener, |listener| async {
                let arrived = listener.accept().await;
                let arrived = arrived.and_then(|(connection, from)| Ok((at_once(connection)?, from)));
                Some((arrived, listener))
            });
            Ok((incoming.boxed(), local))
        }
        .boxed()
    }
}

/// Frames are written whole, so waiting to join small pieces only delays them.
fn at_once(connection: TcpStream) -> io::Result<TcpStream> {
    connection.set_nodelay(true)?;
    Ok(connection)
}

const TOKEN: &str = "the token of b";

async fn serve(folder: &Path, identity: &str, peer: Peer) -> Result<Server<Smol>, Box<dyn Error>> {
    let authority = (identity == "a").then(|| AuthorityId::from_text(identity));
    let namespaces = vec![b"files".to_vec()];
    let init = Init { log: LogId([7; 16]), identity: identity.into(), namespaces, authority };
    let (node, _) = Node::create(folder.join(identity), init, NodeConfig::default())?;
    let access = Access { token: TOKEN.into(), peers: vec![peer], ..Access::default() };
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    Ok(Server::start(Smol, ServeConfig { node, listen, access, limits: NetConfig::default() }).await?)
}

/// What `a` writes reaches `b`; the version they end at.
pub(crate) async fn replicate(folder: &Path) -> Result<Version, Box<dyn Error>> {
    let (role, terms) = (LinkRole::Both, Terms::default());
    let b =
        Peer { identity: "b".into(), address: None, token: Some(TOKEN.into()), role, terms: terms.clone() };
    let a = serve(folder, "a", b).await?;
    let address = Some(a.local_addr().to_string());
    let b = serve(folder, "b", Peer { identity: "a".into(), address, token: None, role, terms }).await?;
    let key = a.handle().key(b"files", b"greeting").await??;
    let version = a.handle().put(key, "hello").await?;
    while b.handle().status().await?.tail < version {
        smol::Timer::after(Duration::from_millis(5)).await;
    }
    a.shutdown().await?;
    b.shutdown().await?;
    Ok(version)
}

#[allow(dead_code, reason = "a test includes this file")]
fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::temp_dir().join(format!("strandline-smol-{}", std::process::id()));
    std::fs::create_dir(&folder)?;
    let version = smol::block_on(replicate(&folder))?;
    println!("both nodes are at {version}");
    Ok(std::fs::remove_dir_all(&folder)?)
}
