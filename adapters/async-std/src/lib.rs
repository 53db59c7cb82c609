//! Strandline on async-std: tasks, timers and TCP for [`strandline_net`], and [`serve`].
//!
//! async-std was given up by its authors in favour of smol (RUSTSEC-2025-0052). This crate is for
//! programs that run on it today; it is not built unless it is asked for. `strandline_net` holds an
//! example of the same driver on smol, which is where to go.

use async_std::net::{TcpListener, TcpStream};
use async_std::task;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, stream};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use strandline_net::Runtime;

pub use strandline_net::{ServeConfig, ServeError};

/// The runtime of async-std: there is one in a process, and it starts by itself.
#[derive(Clone, Copy, Debug, Default)]
pub struct AsyncStd;

impl Runtime for AsyncStd {
    type Connection = TcpStream;
    type Incoming = BoxStream<'static, io::Result<(Self::Connection, SocketAddr)>>;

    fn spawn(&self, work: BoxFuture<'static, ()>) {
        // A task goes on when its handle is dropped.
        drop(task::spawn(work));
    }

    fn run_blocking(&self, work: Box<dyn FnOnce() + Send>) {
        drop(task::spawn_blocking(work));
    }

    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        task::sleep(time).boxed()
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

/// A node that listens on TCP and calls its peers.
pub type Server = strandline_net::Server<AsyncStd>;

/// Serves a node on async-std. Ends once it listens.
///
/// ```
/// use strandline_async_std::{ServeConfig, serve};
/// use strandline_core::id::LogId;
/// use strandline_core::lifecycle::recovery::Init;
/// use strandline_core::record::AuthorityId;
/// use strandline_file::node::{Node, NodeConfig};
/// use strandline_net::{Access, NetConfig};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let folder = tempfile::tempdir()?;
/// let init = Init {
///     log: LogId([7; 16]),
///     identity: "a".into(),
///     namespaces: vec![b"files".to_vec()],
///     authority: Some(AuthorityId::from_text("a")),
/// };
/// let (node, _) = Node::create(folder.path().join("log"), init, NodeConfig::default())?;
/// async_std::task::block_on(async {
///     let server = serve(ServeConfig {
///         node,
///         listen: "127.0.0.1:0".parse()?,
///         access: Access { token: "known to those we call".into(), ..Access::default() },
///         limits: NetConfig::default(),
///     })
///     .await?;
///     let handle = server.handle().clone();
///     let key = handle.key(b"files", b"greeting").await??;
///     let version = handle.put(key.clone(), "hello").await?;
///     assert_eq!(handle.get(key).await?.expect("it is durable").version, version);
///     Ok(server.shutdown().await?)
/// })
/// # }
/// ```
///
/// Dropped: nothing runs, and the node is closed.
///
/// # Errors
/// The node is closed, the address is taken, or the access cannot be used.
pub async fn serve(config: ServeConfig) -> Result<Server, ServeError> {
    Server::start(AsyncStd, config).await
}
