//! Executes a hub's commands at a server.

use crate::connection::Subscriptions;
use crate::names::HubNames;
use crate::script::{Asked, HubScripts, Offer, failed, fault, minted, standing};
use futures::future::BoxFuture;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, ProtocolVersion, RedisError, Value};
use std::sync::Arc;
use std::time::Duration;
use strandline_core::coverage::{Command, SubscriptionId, TopicName};
use strandline_core::error::{StorageCause, StorageFault};
use strandline_hub::{Backend, HubHandle, ShardId};
use tokio::runtime;
use tokio::sync::{Mutex, mpsc};

/// How a server is used.
#[derive(Clone, Debug)]
pub struct RedisOptions {
    /// The names of this installation.
    pub names: HubNames,
    /// How long the state of a topic outlives its last use. Its end is a new incarnation.
    pub topic_state_ms: u64,
    /// How long a publish token is remembered: the longest that a repeat may come late.
    pub token_ms: u64,
    /// How long the server may take to connect or answer.
    pub answer_ms: u64,
}

impl RedisOptions {
    /// With a day for topics, a minute for tokens, and two seconds for answers.
    #[must_use]
    pub const fn new(names: HubNames) -> Self {
        Self { names, topic_state_ms: 86_400_000, token_ms: 60_000, answer_ms: 2_000 }
    }
}

/// One order of [`Subscriptions`], which executes them in turn.
enum Order {
    Subscribe(HubHandle, ShardId, SubscriptionId, TopicName),
    Unsubscribe(HubHandle, SubscriptionId, TopicName),
}

/// A server, for [`HubHandle::new`] with a configuration of
/// [`HubConfig::broker`](strandline_core::coverage::HubConfig::broker).
pub struct RedisBackend {
    runtime: runtime::Handle,
    scripts: Arc<HubScripts>,
    client: Client,
    config: AsyncConnectionConfig,
    commands: Arc<Mutex<Option<MultiplexedConnection>>>,
    // As many orders wait as the hub has topics, at most: one subscription each, and the end of one.
    orders: mpsc::UnboundedSender<Order>,
}

impl RedisBackend {
    /// Prepares to use the server at `url`; it is reached when it is needed. Must be called within a
    /// tokio runtime.
    ///
    /// # Errors
    /// If `url` cannot be read.
    pub fn new(url: &str, options: &RedisOptions) -> Result<Self, RedisError> {
        let client = Client::open(url)?;
        let info = client.get_connection_info().clone();
        let settings = info.redis_settings().clone().set_protocol(ProtocolVersion::RESP3);
        let client = Client::open(info.set_redis_settings(settings))?;
        let wait = Some(Duration::from_millis(options.answer_ms));
        let config = AsyncConnectionConfig::new().set_connection_timeout(wait).set_response_timeout(wait);
        let runtime = runtime::Handle::current();
        let (orders, received) = mpsc::unbounded_channel();
        let subscriptions = Subscriptions::new(client.clone(), options.answer_ms);
        runtime.spawn(execute(subscriptions, options.names.clone(), received));
        let scripts = HubScripts::new(options.names.clone(), options.topic_state_ms, options.token_ms);
        let commands = Arc::new(Mutex::new(None));
        Ok(Self { runtime, scripts: Arc::new(scripts), client, config, commands, orders })
    }

    /// Runs a script of `ask`, over a connection that is made anew if the last one ended.
    fn run(
        &self,
        ask: impl FnOnce(Arc<HubScripts>, MultiplexedConnection) -> Asking + Send + 'static,
        answer: impl FnOnce(Result<Value, StorageFault>) + Send + 'static,
    ) {
        let (client, config) = (self.client.clone(), self.config.clone());
        let (commands, scripts) = (self.commands.clone(), self.scripts.clone());
        self.runtime.spawn(async move {
            let result = match connected(&client, &config, &commands).await {
                Err(error) => Err(error),
                Ok(connection) => ask(scripts, connection).await,
            };
            if result.as_ref().is_err_and(RedisError::is_unrecoverable_error) {
                *commands.lock().await = None;
            }
            answer(result.map_err(|error| failed(&error)));
        });
    }
}

type Asking = BoxFuture<'static, Result<Value, RedisError>>;

async fn connected(
    client: &Client,
    config: &AsyncConnectionConfig,
    commands: &Mutex<Option<MultiplexedConnection>>,
) -> Result<MultiplexedConnection, RedisError> {
    let mut held = commands.lock().await;
    if let Some(connection) = &*held {
        return Ok(connection.clone());
    }
    let connection = client.get_multiplexed_async_connection_with_config(config).await?;
    Ok(held.insert(connection).clone())
}

async fn execute(mut to: Subscriptions, names: HubNames, mut orders: mpsc::UnboundedReceiver<Order>) {
    while let Some(order) = orders.recv().await {
        match order {
            Order::Subscribe(handle, shard, id, topic) => {
                to.subscribe(&handle, shard, id, names.channel(&topic)).await;
            }
            Order::Unsubscribe(handle, id, topic) => to.unsubscribe(&handle, id, names.channel(&topic)).await,
        }
    }
}

impl Backend for RedisBackend {
    fn start(&self, handle: &HubHandle, shard: ShardId, command: Command) {
        let handle = handle.clone();
        match command {
            Command::Subscribe { id, topic } => {
                // The receiver ends only with its runtime.
                let _ = self.orders.send(Order::Subscribe(handle, shard, id, topic));
            }
            Command::Unsubscribe { id, topic } => {
                let _ = self.orders.send(Order::Unsubscribe(handle, id, topic));
            }
            Command::Position { ticket, topic, seen, nonce } => self.run(
                move |scripts: Arc<HubScripts>, mut connection: MultiplexedConnection| {
                    Box::pin(async move {
                        scripts
                            .position(Asked { topic: &topic, seen, nonce })
                            .invoke_async(&mut connection)
                            .await
                    })
                },
                move |result| {
                    let result = result.and_then(|value| standing(&value));
                    handle.complete(shard, ticket.complete(result));
                },
            ),
            Command::Publish { ticket, topic, seen, nonce, token, kind, payload, at } => self.run(
                move |scripts: Arc<HubScripts>, mut connection: MultiplexedConnection| {
                    Box::pin(async move {
                        let asked = Asked { topic: &topic, seen, nonce };
                        let offer = Offer { token: &token, at, kind: &kind, payload: &payload };
                        scripts.publish(asked, offer).invoke_async(&mut connection).await
                    })
                },
                move |result| {
                    let result = result.and_then(|value| minted(&value));
                    handle.complete(shard, ticket.complete(result));
                },
            ),
            Command::History { ticket, .. } => {
                let none = "expected a shared history, found a hub without one".to_owned();
                handle.complete(shard, ticket.complete(Err(fault(StorageCause::Missing, none))));
            }
        }
    }
}
