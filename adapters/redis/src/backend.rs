//! A server as the backend of streams: connections that are made anew when they end.

use crate::connect::{ANSWER_MS_DEFAULT, Waiter, connect};
use crate::names::Names;
use crate::server::Server;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use futures::lock::Mutex;
use redis::Client;
use redis::aio::MultiplexedConnection;
use std::sync::Arc;
use strandline_core::stream::client::{LogPosition, Waited};
use strandline_core::stream::{Layout, Outcome, ServerFault, StreamError, StreamOp};
use strandline_streams::{Backend, Streams};

/// Most idle connections for waiting that are kept.
const WAITERS_MAX: usize = 64;

/// One standalone server. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Redis {
    way: Arc<Way>,
}

#[derive(Debug)]
struct Way {
    client: Client,
    names: Names,
    answer_ms_max: u64,
    asking: Mutex<Asking>,
    waiters: std::sync::Mutex<Vec<(u64, Waiter)>>,
}

/// The connection that asks, and how often it was made.
#[derive(Debug, Default)]
struct Asking {
    made: u64,
    server: Option<Server<MultiplexedConnection>>,
}

impl Redis {
    /// The way to `redis://…` or `rediss://…`. The first operation connects.
    ///
    /// # Errors
    /// An address that is none.
    pub fn new(url: &str, names: Names) -> Result<Self, StreamError> {
        let client = Client::open(url).map_err(|error| ServerFault::Answer {
            detail: format!("expected an address like redis://host/, found {error}"),
        })?;
        Ok(Self::of(client, names, ANSWER_MS_DEFAULT))
    }

    /// The way by a client; every answer is given up after `answer_ms_max`, as uncertain.
    #[must_use]
    pub fn of(client: Client, names: Names, answer_ms_max: u64) -> Self {
        let (asking, waiters) = (Mutex::default(), std::sync::Mutex::default());
        Self { way: Arc::new(Way { client, names, answer_ms_max, asking, waiters }) }
    }

    /// Connects, so that a server that is not there is found out at once.
    ///
    /// # Errors
    /// What kept the connection from being made.
    pub async fn reach(&self) -> Result<(), StreamError> {
        self.way.server().await.map(|_| ())
    }
}

impl Way {
    async fn server(&self) -> Result<(u64, Server<MultiplexedConnection>), StreamError> {
        let mut asking = self.asking.lock().await;
        if let Some(server) = &asking.server {
            return Ok((asking.made, server.clone()));
        }
        let server = connect(&self.client, self.names.clone(), self.answer_ms_max).await?;
        asking.made += 1;
        asking.server = Some(server.clone());
        Ok((asking.made, server))
    }

    async fn apply(&self, op: &StreamOp) -> Outcome {
        let (made, mut server) = match self.server().await {
            Ok(made) => made,
            // Nothing was asked.
            Err(error) => return Outcome::Answered { at: None, result: Err(error) },
        };
        let outcome = server.apply(op).await;
        if let Outcome::Uncertain(_) = outcome {
            let mut asking = self.asking.lock().await;
            if asking.made == made {
                asking.server = None;
            }
        }
        outcome
    }

    /// Waits on a connection that is taken out meanwhile: a dropped wait leaves none that is half used.
    async fn wait(&self, logs: &[LogPosition], wait_ms: u64) -> Waited {
        let Some(mut waiter) = self.waiter(wait_ms).await else { return Waited::Broken };
        let waited = waiter.wait(logs).await;
        match waited {
            Waited::Rung | Waited::TimeOut => {
                let mut idle = self.waiters.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                if idle.len() < WAITERS_MAX {
                    idle.push((wait_ms, waiter));
                }
            }
            Waited::Broken => {}
        }
        waited
    }

    async fn waiter(&self, wait_ms: u64) -> Option<Waiter> {
        let kept = {
            let mut idle = self.waiters.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let at = idle.iter().position(|(ms, _)| *ms == wait_ms);
            at.map(|at| idle.swap_remove(at).1)
        };
        match kept {
            Some(waiter) => Some(waiter),
            None => Waiter::connect(&self.client, self.names.clone(), wait_ms).await.ok(),
        }
    }
}

impl Backend for Redis {
    fn layout(&self) -> Layout {
        self.way.names.layout()
    }

    fn apply(&self, op: StreamOp) -> BoxFuture<'static, Outcome> {
        let way = self.way.clone();
        async move { way.apply(&op).await }.boxed()
    }

    fn wait(&self, logs: Vec<LogPosition>, wait_ms: u64) -> BoxFuture<'static, Waited> {
        let way = self.way.clone();
        async move { way.wait(&logs, wait_ms).await }.boxed()
    }
}

/// [`Streams`] on a server, run by the current tokio runtime.
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

impl Connect for Streams {
    async fn connect(url: &str, names: Names) -> Result<Self, StreamError> {
        let redis = Redis::new(url, names)?;
        redis.reach().await?;
        let (streams, driver) = Self::new(redis)?;
        drop(tokio::spawn(driver.run(tokio::time::sleep)));
        Ok(streams)
    }
}
