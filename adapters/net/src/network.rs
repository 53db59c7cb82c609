//! The network of one node: its listener, its dialers, and their end.

use crate::access::{Access, AccessError, Rules};
use crate::calling::Callings;
use crate::config::{NetConfig, ms};
use crate::counters::{Counters, NetStatus};
use crate::door::Door;
use crate::gate::Gate;
use crate::handle::Handle;
use crate::runtime::{Runtime, within};
use crate::stop::{Stop, Stopper, stopper};
use crate::{dial, listen};
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError, Weak};
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
    /// Who this node is to others, who may link with it, and whom it calls.
    pub access: Access,
    /// Random bytes of this start: they spread the delays of dialers.
    pub seed: Seed,
}

/// Why a network did not start, or did not take another [`Access`].
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// The node cannot be asked who it is.
    #[error(transparent)]
    Node(#[from] Unavailable),
    /// The access cannot be used.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's words.
        error: io::Error,
    },
}

/// What every task of a network shares.
pub(crate) struct Context<R, N> {
    pub(crate) runtime: R,
    pub(crate) config: NetConfig,
    pub(crate) node: N,
    pub(crate) door: Door,
    pub(crate) gate: Gate,
    pub(crate) counters: Arc<Counters>,
    pub(crate) seed: Seed,
}

/// A running network. Dropping it ends its tasks and its links, without waiting; the node runs on.
pub struct Network<R: Runtime> {
    shared: Arc<Shared<R>>,
    handle: Handle,
    stopper: Option<Stopper>,
}

/// What the network shares with those who steer it.
struct Shared<R> {
    context: Arc<Context<R, NodeHandle>>,
    local: Option<SocketAddr>,
    callings: Callings,
    /// For tasks to come; absent once the network has ended.
    stop: Mutex<Option<Stop>>,
}

/// Replaces the [`Access`] of a running network, and tells how it stands. Clones reach the same one; none
/// of them keeps it, or its node, open.
pub struct Steer<R: Runtime> {
    shared: Weak<Shared<R>>,
    counters: Arc<Counters>,
    gate: Gate,
}

/// What another [`Access`] changed at once.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Replaced {
    /// Links ended, as it does not allow them.
    pub links_ended: usize,
    /// Peers called from now on, that were not called before.
    pub peers_called: usize,
}

impl<R: Runtime> Network<R> {
    /// Listens, and calls every peer that has an address. Ends once it listens.
    ///
    /// Dropped: nothing runs.
    ///
    /// # Errors
    /// The node is closed, the address is taken, or the access cannot be used.
    pub async fn start(runtime: R, node: NodeHandle, config: NetworkConfig) -> Result<Self, NetworkError> {
        let NetworkConfig { limits, listen, access, seed } = config;
        let handle = Handle::new(node.clone(), runtime.clone());
        let declared = |replica: &Replica| (replica.identity().to_owned(), replica.capabilities());
        let (name, capabilities) = handle.read(declared).await?;
        let rules = Rules::new(&name, &capabilities, access)?;
        if let Some(address) = listen {
            rules.0.judge_listen(address)?;
        }
        let (stopper, stop) = stopper();
        let context = Arc::new(Context {
            runtime,
            gate: Gate::new(limits.gate()),
            config: limits,
            node,
            door: Door::new(rules),
            counters: Arc::default(),
            seed,
        });
        let local = match listen {
            Some(address) => Some(start_listener(&context, address, &stop).await?),
            None => None,
        };
        let (callings, stop) = (Callings::default(), Mutex::new(Some(stop)));
        let shared = Arc::new(Shared { context, local, callings, stop });
        shared.call_all();
        Ok(Self { shared, handle, stopper: Some(stopper) })
    }

    /// Where it listens.
    #[must_use]
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.shared.local
    }

    /// The handle of its node.
    #[must_use]
    pub const fn handle(&self) -> &Handle {
        &self.handle
    }

    /// What replaces its access, and tells how it stands.
    #[must_use]
    pub fn steer(&self) -> Steer<R> {
        let Context { counters, gate, .. } = &*self.shared.context;
        let (counters, gate) = (Arc::clone(counters), gate.clone());
        Steer { shared: Arc::downgrade(&self.shared), counters, gate }
    }

    /// Takes no more connections, closes the node (what was submitted becomes durable, peers are
    /// told), waits up to `shutdown_ms` for the connections to end, and ends those that have not.
    ///
    /// Dropped: the node goes on closing; the connections end at once.
    ///
    /// # Errors
    /// The fault that had stopped the journal.
    pub async fn shutdown(mut self) -> Result<(), StorageFault> {
        self.shared.no_more_tasks();
        let mut stopping = self.stopper.take().expect("a network is shut down once").stop();
        let closed = self.handle.close().await;
        let Context { runtime, config, .. } = &*self.shared.context;
        if within(runtime, ms(config.shutdown_ms), stopping.ended()).await.is_none() {
            tracing::warn!(shutdown_ms = config.shutdown_ms, "links did not end in time: they are cut off");
            stopping.cut();
            stopping.ended().await;
        }
        closed
    }
}

impl<R: Runtime> Drop for Network<R> {
    fn drop(&mut self) {
        self.shared.no_more_tasks();
    }
}

impl<R: Runtime> std::fmt::Debug for Network<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Network").field("local", &self.shared.local).finish_non_exhaustive()
    }
}

impl<R: Runtime> Steer<R> {
    /// Puts another access in force. Links that it allows go on, with the certificates they began with;
    /// the others end. Connections from now on use its certificates. Peers that wait to be called again
    /// are called at once.
    ///
    /// # Errors
    /// The access cannot be used, or the network has ended: nothing has changed.
    pub fn replace(&self, access: Access) -> Result<Replaced, NetworkError> {
        let running = self.shared.upgrade().filter(|shared| shared.lock_stop().is_some());
        let shared = running.ok_or(NetworkError::Node(Unavailable::Closed))?;
        let Context { door, .. } = &*shared.context;
        let rules = door.rules();
        let name = rules.dial.identity.as_ref().expect("a node has a name");
        let replacing = Rules::new(name.as_str(), &rules.dial.capabilities, access)?;
        if let Some(local) = shared.local {
            replacing.0.judge_listen(local)?;
        }
        let links_ended = door.replace(replacing);
        let peers_called = shared.call_all();
        Ok(Replaced { links_ended, peers_called })
    }

    /// How the network stands.
    #[must_use]
    pub fn status(&self) -> NetStatus {
        self.counters.status(&self.gate)
    }
}

impl<R: Runtime> Clone for Steer<R> {
    fn clone(&self) -> Self {
        let Self { shared, counters, gate } = self;
        Self { shared: Weak::clone(shared), counters: Arc::clone(counters), gate: gate.clone() }
    }
}

impl<R: Runtime> std::fmt::Debug for Steer<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Steer").field("status", &self.status()).finish_non_exhaustive()
    }
}

impl<R: Runtime> Shared<R> {
    fn lock_stop(&self) -> std::sync::MutexGuard<'_, Option<Stop>> {
        self.stop.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn no_more_tasks(&self) {
        *self.lock_stop() = None;
    }

    /// Calls every peer that has an address and is not called yet: how many.
    fn call_all(&self) -> usize {
        let Some(stop) = self.lock_stop().clone() else { return 0 };
        let rules = self.context.door.rules();
        let mut begun = 0;
        for identity in rules.peers.keys().filter(|identity| rules.called(identity).is_some()) {
            let Some(calling) = self.callings.begin(identity) else { continue };
            let context = Arc::clone(&self.context);
            let task = dial::run(context, identity.clone(), calling, stop.clone());
            self.context.runtime.spawn(Box::pin(task));
            begun += 1;
        }
        begun
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
