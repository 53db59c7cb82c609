//! Executes a hub's commands at a server.

use crate::asking::{self, Answered, Failed, Question};
use crate::connection::Subscriptions;
use crate::history;
use crate::names::HubNames;
use crate::orders::{Begin, End, Order, Orders, Received, orders};
use crate::reach::Reach;
use crate::script::{Asked, HubScripts, Keeping, Offer, PubSub, fault, minted, standing};
use crate::server::{Commands, Server};
use redis::cluster::ClusterClient;
use redis::{
    AsyncConnectionConfig, Client, ConnectionInfo, IntoConnectionInfo as _, ProtocolVersion, RedisError,
};
use std::sync::Arc;
use std::time::Duration;
use strandline_core::coverage::{Command, Minted};
use strandline_core::error::{StorageCause, StorageFault};
use strandline_core::seed::Seed;
use strandline_hub::{Backend, HubHandle, ShardId};
use tokio::runtime;

/// How a server is used.
#[derive(Clone, Debug)]
pub struct RedisOptions {
    /// The names of this installation.
    pub names: HubNames,
    /// How long the state of a topic outlives its last use. Its end is a new incarnation.
    pub topic_state_ms: u64,
    /// How long a publish token is remembered: the longest that a repeat may come late.
    pub token_ms: u64,
    /// Events of each topic that the server keeps for those whom no buffer reaches, as a hub that has
    /// just started; zero keeps none. Used with
    /// [`HubConfig::history`](strandline_core::coverage::HubConfig::history). Of the instances that publish
    /// to a topic the last one decides.
    pub history_events_max: u64,
    /// How long the server may take to connect or answer. For as long what it did not do is asked again,
    /// over another connection if need be, so that an answer may take twice as long.
    pub answer_ms: u64,
}

impl RedisOptions {
    /// With a day for topics, a minute for tokens, 1,000 events of history, and two seconds for answers.
    #[must_use]
    pub const fn new(names: HubNames) -> Self {
        Self {
            names,
            topic_state_ms: 86_400_000,
            token_ms: 60_000,
            history_events_max: 1_000,
            answer_ms: 2_000,
        }
    }
}

/// A server, for [`HubHandle::new`] with a configuration of
/// [`HubConfig::broker`](strandline_core::coverage::HubConfig::broker).
pub struct RedisBackend {
    runtime: runtime::Handle,
    scripts: Arc<HubScripts>,
    reach: Arc<Reach>,
    answer: Duration,
    orders: Orders,
}

impl RedisBackend {
    /// Prepares to use the server at `url`; it is reached when it is needed. Where it says that it is a
    /// replica, as one does that was the master before, the address is asked for anew: commands go to
    /// whomever it leads to then, and subscriptions follow. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// If `url` cannot be read, or the system has no entropy.
    pub fn new(url: &str, options: &RedisOptions) -> Result<Self, RedisError> {
        let seed = resp3(url)?;
        let wait = Some(Duration::from_millis(options.answer_ms));
        let config = AsyncConnectionConfig::new().set_connection_timeout(wait).set_response_timeout(wait);
        let server = Server::One { client: Client::open(seed.clone())?, config };
        Self::start(server, PubSub::Plain, vec![seed], options)
    }

    /// Prepares to use the cluster that the servers at `urls` belong to: any of its masters, best several.
    /// Each topic lives on the master of its slot, its events too (sharded pub/sub, from Redis 7.0 on).
    /// Must be called within a tokio runtime.
    ///
    /// # Errors
    /// If there is no URL, or one cannot be read, or the system has no entropy.
    pub fn cluster(urls: &[String], options: &RedisOptions) -> Result<Self, RedisError> {
        let seeds: Vec<ConnectionInfo> = urls.iter().map(|url| resp3(url)).collect::<Result<_, _>>()?;
        let wait = Duration::from_millis(options.answer_ms);
        let client = ClusterClient::builder(urls.iter().map(String::as_str))
            .connection_timeout(wait)
            .response_timeout(wait)
            .overall_response_timeout(Some(2 * wait))
            .build()?;
        Self::start(Server::Cluster(client), PubSub::Sharded, seeds, options)
    }

    fn start(
        server: Server,
        pubsub: PubSub,
        seeds: Vec<ConnectionInfo>,
        options: &RedisOptions,
    ) -> Result<Self, RedisError> {
        let mut random = [0; 32];
        getrandom::fill(&mut random).map_err(|error| std::io::Error::other(error.to_string()))?;
        let runtime = runtime::Handle::current();
        let (orders, received) = orders();
        let subscriptions = Subscriptions::new(pubsub, seeds, options.answer_ms);
        runtime.spawn(execute(subscriptions, options.names.clone(), received));
        let RedisOptions { topic_state_ms, token_ms, history_events_max, .. } = *options;
        let keeping = Keeping { topic_state_ms, token_ms, history_events_max };
        let scripts = Arc::new(HubScripts::new(options.names.clone(), keeping, pubsub));
        let reach = Arc::new(Reach::new(server, Seed::new(random)));
        let answer = Duration::from_millis(options.answer_ms);
        Ok(Self { runtime, scripts, reach, answer, orders })
    }

    /// Asks, and hands the answer on. Subscriptions follow where commands have gone.
    fn run<T, F>(
        &self,
        handle: &HubHandle,
        question: Question,
        ask: impl Fn(Arc<HubScripts>, Commands) -> F + Send + Sync + 'static,
        answer: impl FnOnce(&HubHandle, Result<T, Failed>) + Send + 'static,
    ) where
        T: Send + 'static,
        F: Future<Output = Result<T, RedisError>> + Send,
    {
        let (reach, scripts, orders) = (self.reach.clone(), self.scripts.clone(), self.orders.clone());
        let (within, handle) = (self.answer, handle.clone());
        self.runtime.spawn(async move {
            let send = |commands| ask(scripts.clone(), commands);
            let result = asking::ask(&reach, within, question, send).await;
            let result = result.map(|Answered { value, moved }| {
                if moved {
                    orders.leave(handle.clone());
                }
                value
            });
            answer(&handle, result);
        });
    }
}

/// Push messages come with this version of the protocol only.
fn resp3(url: &str) -> Result<ConnectionInfo, RedisError> {
    let info = url.into_connection_info()?;
    let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
    Ok(info.set_redis_settings(settings))
}

async fn execute(mut to: Subscriptions, names: HubNames, mut received: Received) {
    while let Some(order) = received.next().await {
        match order {
            Order::Leave(handle) => to.leave(&handle),
            Order::Topic(topic, end, begin) => {
                let channel = names.channel(&topic);
                if let Some(End { handle, id, silent }) = end {
                    if silent {
                        to.abandon(&handle, id, &channel).await;
                    } else {
                        to.unsubscribe(&handle, id, &channel).await;
                    }
                }
                if let Some(Begin { handle, shard, id }) = begin {
                    to.subscribe(&handle, shard, id, channel).await;
                }
            }
        }
    }
}

impl Backend for RedisBackend {
    fn start(&self, handle: &HubHandle, shard: ShardId, command: Command) {
        let handle = handle.clone();
        match command {
            Command::Subscribe { id, topic } => self.orders.begin(topic, Begin { handle, shard, id }),
            Command::Unsubscribe { id, topic } => self.orders.end(topic, End { handle, id, silent: false }),
            Command::Abandon { id, topic } => self.orders.end(topic, End { handle, id, silent: true }),
            Command::Position { ticket, topic, seen, nonce } => self.run(
                &handle,
                Question::Position,
                move |scripts, mut commands| {
                    let topic = topic.clone();
                    async move { commands.call(&scripts.position(Asked { topic: &topic, seen, nonce })).await }
                },
                move |handle, result| {
                    let result = result.map_err(StorageFault::from).and_then(|value| standing(&value));
                    handle.complete(shard, ticket.complete(result));
                },
            ),
            Command::Publish { ticket, topic, seen, nonce, token, kind, payload, at } => {
                let offered = Arc::new((topic, token, kind, payload));
                self.run(
                    &handle,
                    Question::Publish,
                    move |scripts, mut commands| {
                        let offered = offered.clone();
                        async move {
                            let (topic, token, kind, payload) = &*offered;
                            let asked = Asked { topic, seen, nonce };
                            commands.call(&scripts.publish(asked, Offer { token, at, kind, payload })).await
                        }
                    },
                    move |handle, result| {
                        let result = match result {
                            Ok(value) => minted(&value),
                            Err(Failed::Refused(fault)) => Ok(Minted::Refused(fault)),
                            Err(Failed::Open(fault)) => Err(fault),
                        };
                        handle.complete(shard, ticket.complete(result));
                    },
                );
            }
            Command::History { ticket, .. } if self.scripts.keeping().history_events_max == 0 => {
                let none = "expected a shared history, found a hub without one".to_owned();
                handle.complete(shard, ticket.complete(Err(fault(StorageCause::Missing, none))));
            }
            Command::History { ticket, topic, after, events_max } => self.run(
                &handle,
                Question::History,
                move |scripts, mut commands| {
                    let topic = topic.clone();
                    async move { history::read(&scripts, &mut commands, (&topic, after, events_max)).await }
                },
                move |handle, result| {
                    let result = result.map_err(StorageFault::from).and_then(|read| read);
                    handle.complete(shard, ticket.complete(result));
                },
            ),
        }
    }
}
