//! A server as the backend of streams.

use crate::address::Address;
use crate::bell::Bell;
use crate::names::Names;
use crate::remote::{Bounds, Remote};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use strandline_core::seed::Seed;
use strandline_core::stream::client::{LogPosition, Waited};
use strandline_core::stream::failover::Standing;
use strandline_core::stream::{Layout, Outcome, ServerFault, StreamError, StreamName, StreamOp};
use strandline_streams::Backend;

/// Most idle bells that are kept.
const BELLS_MAX: usize = 64;

/// A server, or a cluster, under the API of `strandline_streams`. Cheap to clone.
///
/// ```no_run
/// use strandline_redis::{Address, Bounds, Names, Redis};
/// use strandline_streams::Streams;
///
/// # fn run() -> Result<(), Box<dyn std::error::Error>> {
/// let nodes = Address::cluster(["redis://10.0.0.1/", "redis://10.0.0.2/"])?;
/// let redis = Redis::at(nodes, Names::tagged_below("app")?, Bounds::default())?;
/// let (streams, driver) = Streams::new(redis)?;
/// # let _ = (streams, driver);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Redis {
    remote: Remote,
    bells: Arc<Mutex<Vec<Bell>>>,
}

impl Redis {
    /// One server at `redis://…` or `rediss://…`. The first operation connects.
    ///
    /// # Errors
    /// An address that is none, or a machine without entropy.
    pub fn new(url: &str, names: Names) -> Result<Self, StreamError> {
        Self::at(Address::one(url)?, names, Bounds::default())
    }

    /// The server, the master that Sentinels name, or the cluster at an address.
    ///
    /// # Errors
    /// `InvalidOption` for the Pulse layout in a cluster; a machine without entropy.
    pub fn at(address: Address, names: Names, bounds: Bounds) -> Result<Self, StreamError> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(|error| ServerFault::NotSent {
            detail: format!("expected entropy of this machine, found {error}"),
        })?;
        Ok(Self { remote: Remote::new(address, names, bounds, Seed::new(seed))?, bells: Arc::default() })
    }

    /// The server itself: what it says of a failover, and writes that wait for replicas.
    #[must_use]
    pub const fn remote(&self) -> &Remote {
        &self.remote
    }

    /// Connects, so that a server that is not there is found out at once.
    ///
    /// # Errors
    /// What kept the connection from being made.
    pub async fn reach(&self) -> Result<(), StreamError> {
        self.remote.reach().await
    }

    fn bells(&self) -> MutexGuard<'_, Vec<Bell>> {
        self.bells.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The bell is taken out meanwhile: nobody else may ring it.
    async fn wait(&self, logs: &[LogPosition], wait_ms: u64) -> Waited {
        let Some(mut bell) = self.bell(logs, wait_ms) else { return Waited::Broken };
        let waited = bell.wait(logs).await;
        let mut idle = self.bells();
        if idle.len() >= BELLS_MAX {
            idle.remove(0);
        }
        idle.push(bell);
        waited
    }

    fn bell(&self, logs: &[LogPosition], wait_ms: u64) -> Option<Bell> {
        let mut idle = self.bells();
        let fits = |bell: &Bell| bell.block_ms() == wait_ms && !bell.is_busy_with_others(logs);
        match idle.iter().position(fits) {
            Some(at) => Some(idle.remove(at)),
            None => Bell::new(self.remote.address().clone(), self.remote.names().clone(), wait_ms).ok(),
        }
    }
}

impl Backend for Redis {
    fn layout(&self) -> Layout {
        self.remote.names().layout()
    }

    fn apply(&self, op: StreamOp) -> BoxFuture<'static, Outcome> {
        let remote = self.remote.clone();
        async move { remote.apply(&op).await }.boxed()
    }

    fn fails_over(&self) -> bool {
        true
    }

    fn apply_beside(&self, op: StreamOp) -> BoxFuture<'static, (Outcome, Option<Standing>)> {
        let remote = self.remote.clone();
        async move { remote.apply_beside(&op).await }.boxed()
    }

    fn standing(&self, stream: StreamName) -> BoxFuture<'static, Option<Standing>> {
        let remote = self.remote.clone();
        async move { remote.standing(&stream).await }.boxed()
    }

    fn wait(&self, logs: Vec<LogPosition>, wait_ms: u64) -> BoxFuture<'static, Waited> {
        let redis = self.clone();
        async move { redis.wait(&logs, wait_ms).await }.boxed()
    }
}

/// Streams on a server, run by the current tokio runtime.
#[cfg(feature = "tokio")]
pub trait Connect: Sized {
    /// Connects to `redis://…` or `rediss://…` and spawns the driver.
    ///
    /// Cancel safe: nothing is asked of the server.
    ///
    /// # Errors
    /// An address that is none, or a server that does not answer.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    fn connect(url: &str, names: Names) -> impl Future<Output = Result<Self, StreamError>> + Send;
}

#[cfg(feature = "tokio")]
impl Connect for strandline_streams::Streams {
    async fn connect(url: &str, names: Names) -> Result<Self, StreamError> {
        let redis = Redis::new(url, names)?;
        redis.reach().await?;
        let (streams, driver) = Self::new(redis)?;
        drop(tokio::spawn(driver.run(tokio::time::sleep)));
        Ok(streams)
    }
}
