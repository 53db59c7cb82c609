//! A node that listens and calls its peers, on any runtime.

use crate::access::Access;
use crate::config::NetConfig;
use crate::handle::Handle;
use crate::network::{Network, NetworkConfig, NetworkError, Steer};
use crate::runtime::Runtime;
use std::net::SocketAddr;
use strandline_core::error::StorageFault;
use strandline_core::seed::Seed;
use strandline_file::node::Node;

/// What a server is made of.
#[derive(Debug)]
pub struct ServeConfig {
    /// The running node; the server closes it.
    pub node: Node,
    /// Where to listen. Port 0 asks for any free one.
    pub listen: SocketAddr,
    /// Who this node is to others, who may link with it, and whom it calls.
    pub access: Access,
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

/// A node that listens and calls its peers. Dropping it ends its links, and closes the node.
pub struct Server<R: Runtime> {
    network: Network<R>,
    local: SocketAddr,
    node: Node,
}

impl<R: Runtime> std::fmt::Debug for Server<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("local", &self.local).finish_non_exhaustive()
    }
}

impl<R: Runtime> Server<R> {
    /// Serves a node on `runtime`. Ends once it listens.
    ///
    /// Dropped: nothing runs, and the node is closed.
    ///
    /// # Errors
    /// The node is closed, the address is taken, or the access cannot be used.
    pub async fn start(runtime: R, config: ServeConfig) -> Result<Self, ServeError> {
        let ServeConfig { node, listen, access, limits } = config;
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(ServeError::Entropy)?;
        let config = NetworkConfig { limits, listen: Some(listen), access, seed: Seed::new(seed) };
        let network = match Network::start(runtime.clone(), node.handle().clone(), config).await {
            Ok(network) => network,
            Err(error) => {
                // The directory is free by the time that the caller learns why. A fault of the journal
                // is told again by the next recovery.
                let _ = Handle::new(node.handle().clone(), runtime).close().await;
                return Err(error.into());
            }
        };
        let local = network.local_addr().expect("it was asked to listen");
        Ok(Self { network, local, node })
    }

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

    /// What replaces its access, and tells how its network stands.
    #[must_use]
    pub fn steer(&self) -> Steer<R> {
        self.network.steer()
    }

    /// Takes no more connections, writes what was submitted, tells the peers, releases the directory.
    ///
    /// Dropped: the node goes on closing; the connections end at once.
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
