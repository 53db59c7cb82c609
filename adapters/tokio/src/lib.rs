//! Strandline on tokio: tasks, timers and TCP for [`strandline_net`], and [`serve`].

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, stream};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use strandline_net::Runtime;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::compat::{Compat, TokioAsyncReadCompatExt};

pub use strandline_net::{ServeConfig, ServeError};

/// The tokio runtime that is current where it is made.
#[derive(Clone, Debug)]
pub struct Tokio(tokio::runtime::Handle);

impl Tokio {
    /// The current runtime.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    #[must_use]
    pub fn current() -> Self {
        Self(tokio::runtime::Handle::current())
    }
}

impl Runtime for Tokio {
    type Connection = Compat<TcpStream>;
    type Incoming = BoxStream<'static, io::Result<(Self::Connection, SocketAddr)>>;

    fn spawn(&self, task: BoxFuture<'static, ()>) {
        drop(self.0.spawn(task));
    }

    fn run_blocking(&self, work: Box<dyn FnOnce() + Send>) {
        drop(self.0.spawn_blocking(work));
    }

    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        // Whoever waits for it may be no task of a runtime.
        let _entered = self.0.enter();
        tokio::time::sleep(time).boxed()
    }

    fn connect(&self, address: &str) -> BoxFuture<'static, io::Result<Self::Connection>> {
        let address = address.to_owned();
        async move { compat(TcpStream::connect(address).await?) }.boxed()
    }

    fn listen(&self, address: SocketAddr) -> BoxFuture<'static, io::Result<(Self::Incoming, SocketAddr)>> {
        async move {
            let listener = TcpListener::bind(address).await?;
            let local = listener.local_addr()?;
            let incoming = stream::unfold(listener, |listener| async {
                let arrived = listener.accept().await;
                let arrived = arrived.and_then(|(connection, from)| Ok((compat(connection)?, from)));
                Some((arrived, listener))
            });
            Ok((incoming.boxed(), local))
        }
        .boxed()
    }
}

/// Frames are written whole, so waiting to join small pieces only delays them.
fn compat(connection: TcpStream) -> io::Result<Compat<TcpStream>> {
    connection.set_nodelay(true)?;
    Ok(connection.compat())
}

/// A node that listens on TCP and calls its peers.
pub type Server = strandline_net::Server<Tokio>;

/// Serves a node on the current tokio runtime. Ends once it listens.
///
/// ```
/// use strandline_core::id::LogId;
/// use strandline_core::lifecycle::recovery::Init;
/// use strandline_core::record::AuthorityId;
/// use strandline_file::node::{Node, NodeConfig};
/// use strandline_net::{Access, NetConfig};
/// use strandline_tokio::{ServeConfig, serve};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let folder = tempfile::tempdir()?;
/// let init = Init {
///     log: LogId([7; 16]),
///     identity: "a".into(),
///     namespaces: vec![b"files".to_vec()],
///     authority: Some(AuthorityId::from_text("a")),
/// };
/// let (node, _) = Node::create(folder.path().join("log"), init, NodeConfig::default())?;
/// let server = serve(ServeConfig {
///     node,
///     listen: "127.0.0.1:0".parse()?,
///     access: Access { token: "known to those we call".into(), ..Access::default() },
///     limits: NetConfig::default(),
/// })
/// .await?;
/// let handle = server.handle().clone();
/// let key = handle.key(b"files", b"greeting").await??;
/// let version = handle.put(key.clone(), "hello").await?;
/// assert_eq!(handle.get(key).await?.expect("it is durable").version, version);
/// server.shutdown().await?;
/// # Ok(())
/// # }
/// ```
///
/// Dropped: nothing runs, and the node is closed.
///
/// # Errors
/// The node is closed, the address is taken, or the access cannot be used.
///
/// # Panics
/// Outside a tokio runtime.
pub async fn serve(config: ServeConfig) -> Result<Server, ServeError> {
    Server::start(Tokio::current(), config).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use strandline_core::id::LogId;
    use strandline_core::lifecycle::recovery::Init;
    use strandline_file::node::{Node, NodeConfig};
    use strandline_net::{Access, NetConfig};

    #[test]
    fn a_server_may_be_shut_down_off_its_runtime() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("starts");
        let folder = tempfile::tempdir().expect("a folder");
        let namespaces = vec![b"files".to_vec()];
        let init = Init { log: LogId([7; 16]), identity: "a".into(), namespaces, authority: None };
        let (node, _) =
            Node::create(folder.path().join("log"), init, NodeConfig::default()).expect("a new log");
        let config = ServeConfig {
            node,
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            access: Access { token: "known to those we call".into(), ..Access::default() },
            limits: NetConfig::default(),
        };
        let server = runtime.block_on(serve(config)).expect("listens");
        futures::executor::block_on(server.shutdown()).expect("closes");
    }
}
