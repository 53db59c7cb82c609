//! Strandline on tokio: tasks, timers and TCP for [`strandline_net`], and [`serve`].

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{FutureExt, StreamExt, stream};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use strandline_core::error::StorageFault;
use strandline_core::seed::Seed;
use strandline_file::node::Node;
use strandline_net::{Handle, NetConfig, Network, NetworkConfig, NetworkError, Peer, Runtime};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::compat::{Compat, TokioAsyncReadCompatExt};

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

/// What a server is made of.
#[derive(Debug)]
pub struct ServeConfig {
    /// The running node; the server closes it.
    pub node: Node,
    /// Where to listen. Port 0 asks for any free one.
    pub listen: SocketAddr,
    /// Who may link with this node, and whom it calls.
    pub peers: Vec<Peer>,
    /// What this node proves its name with when it calls others.
    pub token: String,
    /// Limits and periods.
    pub limits: NetConfig,
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The network did not start.
    #[error(transparent)]
    Network(#[from] NetworkError),
    /// The system gave no random bytes.
    #[error("expected 32 random bytes from the system, found: {0}")]
    Entropy(getrandom::Error),
}

/// A node that listens on TCP and calls its peers.
#[derive(Debug)]
pub struct Server {
    network: Network<Tokio>,
    local: SocketAddr,
    node: Node,
}

/// Serves a node on the current tokio runtime. Ends once it listens.
///
/// ```
/// use strandline_core::id::LogId;
/// use strandline_core::lifecycle::recovery::Init;
/// use strandline_core::record::AuthorityId;
/// use strandline_file::node::{Node, NodeConfig};
/// use strandline_net::NetConfig;
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
///     peers: Vec::new(),
///     token: "known to those we call".into(),
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
/// # Errors
/// The node is closed, the address is taken, or a peer is named twice.
///
/// # Panics
/// Outside a tokio runtime.
pub async fn serve(config: ServeConfig) -> Result<Server, ServeError> {
    let ServeConfig { node, listen, peers, token, limits } = config;
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(ServeError::Entropy)?;
    let config = NetworkConfig { limits, listen: Some(listen), peers, token, seed: Seed::new(seed) };
    let network = Network::start(Tokio::current(), node.handle().clone(), config).await?;
    let local = network.local_addr().expect("it was asked to listen");
    Ok(Server { network, local, node })
}

impl Server {
    /// Where it listens.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The handle of its node.
    #[must_use]
    pub const fn handle(&self) -> &Handle {
        self.network.handle()
    }

    /// Takes no more connections, writes what was submitted, tells the peers, releases the
    /// directory.
    ///
    /// # Errors
    /// The fault that had stopped the journal.
    pub async fn shutdown(self) -> Result<(), StorageFault> {
        let Self { network, node, .. } = self;
        let closed = network.shutdown().await;
        drop(node);
        closed
    }
}
