//! The network of one node: its listener, its dialers, and their end.

use crate::config::{NetConfig, ms};
use crate::gate::Gate;
use crate::greet::{Introduction, IntroductionError};
use crate::handle::Handle;
use crate::peers::Peer;
use crate::runtime::{Runtime, within};
use crate::stop::{Stop, Stopper, stopper};
use crate::{dial, listen};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use strandline_core::error::StorageFault;
use strandline_core::lifecycle::replica::Replica;
use strandline_core::seed::Seed;
use strandline_file::node::{NodeHandle, Unavailable};

/// What a network is started with.
#[derive(Debug)]
pub struct NetworkConfig {
    /// Limits and periods.
    pub limits: NetConfig,
    /// Where to listen; absent if this node only calls others.
    pub listen: Option<SocketAddr>,
    /// Who may link with this node, and whom it calls.
    pub peers: Vec<Peer>,
    /// What this node proves its name with when it calls others.
    pub token: String,
    /// Random bytes of this start: they spread the delays of dialers.
    pub seed: Seed,
}

/// Why a network did not start.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// The node cannot be asked who it is.
    #[error(transparent)]
    Node(#[from] Unavailable),
    /// This node, or a peer, has no proper name.
    #[error(transparent)]
    Introduction(#[from] IntroductionError),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's words.
        error: io::Error,
    },
    /// Two peers have one name.
    #[error("peer {identity:?} is named twice: expected each identity once")]
    PeerTwice {
        /// The name.
        identity: String,
    },
}

/// What every task of a network shares.
pub(crate) struct Context<R, N> {
    pub(crate) runtime: R,
    pub(crate) config: NetConfig,
    pub(crate) node: N,
    pub(crate) introduction: Introduction,
    pub(crate) peers: Vec<Peer>,
    pub(crate) gate: Gate,
    pub(crate) seed: Seed,
}

/// A running network. Dropping it ends its tasks and all links, without waiting; the node runs on.
pub struct Network<R> {
    runtime: R,
    handle: Handle,
    local: Option<SocketAddr>,
    stopper: Stopper,
    shutdown_ms: u64,
}

impl<R: Runtime> Network<R> {
    /// Listens, and calls every peer that has an address. Ends once it listens.
    ///
    /// # Errors
    /// The node is closed, the address is taken, or a peer is named twice.
    pub async fn start(runtime: R, node: NodeHandle, config: NetworkConfig) -> Result<Self, NetworkError> {
        let NetworkConfig { limits, listen, peers, token, seed } = config;
        no_peer_twice(&peers)?;
        let handle = Handle::new(node.clone(), runtime.clone());
        let declared = |replica: &Replica| (replica.identity().to_owned(), replica.capabilities());
        let (name, capabilities) = handle.read(declared).await?;
        let introduction = Introduction::new(&name, capabilities, token, &peers)?;
        let (stopper, stop) = stopper();
        let gate = Gate::new(limits.connections_max, limits.connections_per_address_max);
        let shutdown_ms = limits.shutdown_ms;
        let context =
            Context { runtime: runtime.clone(), config: limits, node, introduction, peers, gate, seed };
        let context = Arc::new(context);
        let local = match listen {
            Some(address) => Some(start_listener(&context, address, &stop).await?),
            None => None,
        };
        for peer in &context.peers {
            if let Some(address) = peer.address.clone() {
                let task = dial::run(Arc::clone(&context), peer.clone(), address, stop.clone());
                runtime.spawn(Box::pin(task));
            }
        }
        Ok(Self { runtime, handle, local, stopper, shutdown_ms })
    }

    /// Where it listens.
    #[must_use]
    pub const fn local_addr(&self) -> Option<SocketAddr> {
        self.local
    }

    /// The handle of its node.
    #[must_use]
    pub const fn handle(&self) -> &Handle {
        &self.handle
    }

    /// Takes no more connections, closes the node (what was submitted becomes durable, peers are
    /// told), and waits up to `shutdown_ms` for the connections to end; what is left then is cut.
    /// Dropped before its end, it cuts them at once; the node closes all the same, once it was asked.
    ///
    /// # Errors
    /// The fault that had stopped the journal.
    pub async fn shutdown(self) -> Result<(), StorageFault> {
        let stopped = self.stopper.stop();
        let closed = self.handle.close().await;
        if within(&self.runtime, ms(self.shutdown_ms), stopped).await.is_none() {
            tracing::warn!(shutdown_ms = self.shutdown_ms, "connections did not end in time and are cut");
        }
        closed
    }
}

impl<R> std::fmt::Debug for Network<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Network").field("local", &self.local).finish_non_exhaustive()
    }
}

async fn start_listener<R: Runtime>(
    context: &Arc<Context<R, NodeHandle>>,
    address: SocketAddr,
    stop: &Stop,
) -> Result<SocketAddr, NetworkError> {
    let listening = context.runtime.listen(address).await;
    let (incoming, local) = listening.map_err(|error| NetworkError::Listen { address, error })?;
    tracing::info!(%local, "listening");
    context.runtime.spawn(Box::pin(listen::run(Arc::clone(context), incoming, stop.clone())));
    Ok(local)
}

fn no_peer_twice(peers: &[Peer]) -> Result<(), NetworkError> {
    let mut seen = std::collections::BTreeSet::new();
    match peers.iter().find(|peer| !seen.insert(&peer.identity)) {
        Some(peer) => Err(NetworkError::PeerTwice { identity: peer.identity.clone() }),
        None => Ok(()),
    }
}
