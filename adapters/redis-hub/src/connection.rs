//! The connections that events come over: one to a server, one to each master of a cluster.
//!
//! A server's push messages are handed to the hub in the order of their connection, by the task that
//! reads it: nothing lies between them. A connection is used until it ends; its end is told for every
//! subscription on it, and the next request makes another one. One that a topic was silent on takes no
//! further subscription: it stays for those that it still carries.

use crate::script::PubSub;
use crate::wire::decode;
use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, Client, ConnectionAddr, ConnectionInfo, PushInfo, PushKind, RedisError, Value,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use strandline_core::coverage::{SubscriptionId, Upstream};
use strandline_hub::{HubHandle, ShardId};

/// Redirections followed for one subscription: from anywhere to the owner, and once more while slots move.
const HOPS_MAX: usize = 4;

/// Connections that are kept for what they carry and take nothing new. Beyond that the one that carries the
/// least is given up.
const RETIRED_MAX: usize = 8;

/// Whose a channel is: one subscription at a time. `None` once the connection has ended.
type Routes = Option<BTreeMap<Vec<u8>, (ShardId, SubscriptionId)>>;

/// A connection that is used, or has ended.
struct Live {
    connection: MultiplexedConnection,
    routes: Arc<Mutex<Routes>>,
}

impl Live {
    /// How many subscriptions it carries; `None` once it has ended.
    fn carries(&self) -> Option<usize> {
        lock(&self.routes).as_ref().map(BTreeMap::len)
    }

    /// Takes the way of a channel away, if it is this subscription's.
    fn forget(&self, id: SubscriptionId, channel: &str) -> bool {
        let mut routes = lock(&self.routes);
        let Some(open) = routes.as_mut() else { return false };
        let ours = open.get(channel.as_bytes()).is_some_and(|(_, current)| *current == id);
        ours && open.remove(channel.as_bytes()).is_some()
    }
}

/// The subscriptions of one backend.
pub(crate) struct Subscriptions {
    pubsub: PubSub,
    seeds: Vec<ConnectionInfo>,
    answer_ms: u64,
    live: BTreeMap<String, Live>,
    retired: Vec<Live>,
    /// Servers that did not answer, and until when they are not asked again: whoever else waits for its
    /// turn has it meanwhile.
    silent: BTreeMap<String, Instant>,
}

fn lock(routes: &Mutex<Routes>) -> MutexGuard<'_, Routes> {
    routes.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Subscriptions {
    pub(crate) const fn new(pubsub: PubSub, seeds: Vec<ConnectionInfo>, answer_ms: u64) -> Self {
        Self { pubsub, seeds, answer_ms, live: BTreeMap::new(), retired: Vec::new(), silent: BTreeMap::new() }
    }

    /// Asks for a channel. The hub hears of its confirmation in the order of the connection, or that
    /// the connection is lost.
    pub(crate) async fn subscribe(
        &mut self,
        handle: &HubHandle,
        shard: ShardId,
        id: SubscriptionId,
        channel: String,
    ) {
        let mut asked = 0;
        let mut next = self.seeds.clone();
        next.reverse();
        while let Some(at) = next.pop() {
            match self.ask(&at, handle, (shard, id), &channel).await {
                Ok(()) => return,
                Err(error) => {
                    asked += 1;
                    let owner = error.and_then(|error| moved(&at, &error));
                    if owner.is_none() {
                        self.ask_last(&at);
                    }
                    next.extend(owner.filter(|_| asked <= HOPS_MAX));
                }
            }
        }
        handle.upstream(shard, id, Upstream::Lost);
    }

    /// Asks a seed that failed after all others.
    fn ask_last(&mut self, at: &ConnectionInfo) {
        if let Some(index) = self.seeds.iter().position(|seed| seed.addr() == at.addr()) {
            self.seeds[index..].rotate_left(1);
        }
    }

    /// Asks one server. The error is what it said, if it said anything.
    async fn ask(
        &mut self,
        at: &ConnectionInfo,
        handle: &HubHandle,
        route: (ShardId, SubscriptionId),
        channel: &str,
    ) -> Result<(), Option<RedisError>> {
        let live = self.connection(at, handle).await.map_err(Some)?;
        let (routes, mut connection) = (live.routes.clone(), live.connection.clone());
        match &mut *lock(&routes) {
            Some(open) => _ = open.insert(channel.as_bytes().to_vec(), route),
            None => return Err(None),
        }
        let command = redis::cmd(self.pubsub.subscribe()).arg(channel).clone();
        let Err(error) = command.exec_async(&mut connection).await else { return Ok(()) };
        let ours = lock(&routes).as_mut().and_then(|open| open.remove(channel.as_bytes())).is_some();
        if error.code().is_none() {
            // It does not answer: given up with all that is on it.
            lose(handle, &routes);
        }
        // Where the end of the connection took the route, the hub has been told.
        if ours { Err(Some(error)) } else { Ok(()) }
    }

    /// Ends a subscription, unless the channel is another one's already.
    pub(crate) async fn unsubscribe(&mut self, handle: &HubHandle, id: SubscriptionId, channel: &str) {
        let mut all = self.live.values().chain(&self.retired);
        let Some(live) = all.find(|live| live.forget(id, channel)) else { return };
        let command = redis::cmd(self.pubsub.unsubscribe()).arg(channel).clone();
        if command.exec_async(&mut live.connection.clone()).await.is_err() {
            lose(handle, &live.routes);
        }
    }

    /// Ends a subscription that is silent. The next one goes over another connection: it may be that this
    /// one leads to a server that nobody publishes to any more.
    pub(crate) async fn abandon(&mut self, handle: &HubHandle, id: SubscriptionId, channel: &str) {
        let carries = |live: &Live| {
            let routes = lock(&live.routes);
            let route = routes.as_ref().and_then(|open| open.get(channel.as_bytes()));
            route.is_some_and(|(_, current)| *current == id)
        };
        let address = self.live.iter().find(|(_, live)| carries(live)).map(|(address, _)| address.clone());
        self.retired.extend(address.and_then(|address| self.live.remove(&address)));
        self.unsubscribe(handle, id, channel).await;
        self.retired.retain(|live| live.carries().is_some_and(|count| count > 0));
        while self.retired.len() > RETIRED_MAX {
            let least = (0..self.retired.len()).min_by_key(|at| self.retired[*at].carries());
            let least = self.retired.swap_remove(least.expect("more than the bound"));
            lose(handle, &least.routes);
        }
    }

    /// Gives every connection up: what they carried is asked for where the addresses lead now.
    pub(crate) fn leave(&mut self, handle: &HubHandle) {
        let retired = std::mem::take(&mut self.retired);
        for live in std::mem::take(&mut self.live).into_values().chain(retired) {
            lose(handle, &live.routes);
        }
    }

    async fn connection(&mut self, at: &ConnectionInfo, handle: &HubHandle) -> Result<&Live, RedisError> {
        let address = at.addr().to_string();
        // Whatever was on a connection that ended was told at its end.
        self.live.retain(|_, live| lock(&live.routes).is_some());
        if !self.live.contains_key(&address) {
            let routes: Arc<Mutex<Routes>> = Arc::new(Mutex::new(Some(BTreeMap::new())));
            // The hub has the backend, whose connections these are: none of them may keep it.
            let (pushed_to, hub) = (routes.clone(), handle.downgrade());
            let wait = Duration::from_millis(self.answer_ms);
            let config = AsyncConnectionConfig::new()
                .set_connection_timeout(Some(wait))
                .set_response_timeout(Some(wait))
                .set_push_sender(move |push: PushInfo| -> Result<(), std::convert::Infallible> {
                    if let Some(handle) = hub.upgrade() {
                        pushed(&handle, &pushed_to, push);
                    }
                    Ok(())
                });
            let now = Instant::now();
            self.silent.retain(|_, until| *until > now);
            if self.silent.contains_key(&address) {
                return Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into());
            }
            let client = Client::open(at.clone())?;
            let connected = client.get_multiplexed_async_connection_with_config(&config).await;
            if connected.as_ref().is_err_and(RedisError::is_timeout) {
                self.silent.insert(address.clone(), Instant::now() + wait);
            }
            let connection = connected?;
            self.live.insert(address.clone(), Live { connection, routes });
        }
        Ok(&self.live[&address])
    }
}

/// Where a server says that a channel is, reached as that server was.
fn moved(from: &ConnectionInfo, error: &RedisError) -> Option<ConnectionInfo> {
    let (address, _) = error.redirect_node()?;
    let (host, port) = address.rsplit_once(':')?;
    let port = port.parse().ok()?;
    let host_of = |ours: &str| if host.is_empty() { ours.to_owned() } else { host.to_owned() };
    let addr = match from.addr() {
        ConnectionAddr::Tcp(ours, _) => ConnectionAddr::Tcp(host_of(ours), port),
        ConnectionAddr::TcpTls { host: ours, insecure, tls_params, .. } => ConnectionAddr::TcpTls {
            host: host_of(ours),
            port,
            insecure: *insecure,
            tls_params: tls_params.clone(),
        },
        // Clusters are reached by addresses only.
        ConnectionAddr::Unix(_) => return None,
        _ => return None,
    };
    Some(from.clone().set_addr(addr))
}

/// A connection is over: it is told for every subscription on it.
fn lose(handle: &HubHandle, routes: &Mutex<Routes>) {
    let all = lock(routes).take().unwrap_or_default();
    for (shard, id) in all.into_values() {
        handle.upstream(shard, id, Upstream::Lost);
    }
}

/// What a push message means.
enum Pushed {
    Confirmed,
    Message,
    /// A slot left this server with all its channels. The client library takes that word for the answer to
    /// whatever is under way, so that no answer of this connection means anything any more.
    Taken,
    Ended,
    Nothing,
}

const fn meaning(kind: &PushKind) -> Pushed {
    match kind {
        PushKind::Subscribe | PushKind::SSubscribe => Pushed::Confirmed,
        PushKind::Message | PushKind::SMessage => Pushed::Message,
        PushKind::SUnsubscribe => Pushed::Taken,
        PushKind::Disconnection => Pushed::Ended,
        PushKind::Other(_)
        | PushKind::Invalidate
        | PushKind::PMessage
        | PushKind::Unsubscribe
        | PushKind::PUnsubscribe
        | PushKind::PSubscribe => Pushed::Nothing,
        _ => Pushed::Nothing,
    }
}

fn pushed(handle: &HubHandle, routes: &Mutex<Routes>, push: PushInfo) {
    let meant = meaning(&push.kind);
    let route = match push.data.first() {
        Some(Value::BulkString(channel)) => lock(routes).as_ref().and_then(|open| open.get(channel).copied()),
        Some(_) | None => None,
    };
    let tell = |input| {
        if let Some((shard, id)) = route {
            handle.upstream(shard, id, input);
        }
    };
    match meant {
        Pushed::Ended => lose(handle, routes),
        // Who unsubscribes takes the route away first.
        Pushed::Taken if route.is_some() => lose(handle, routes),
        Pushed::Taken | Pushed::Nothing => {}
        Pushed::Confirmed => tell(Upstream::Confirmed),
        Pushed::Message => tell(match push.data.get(1) {
            Some(Value::BulkString(bytes)) => decode(bytes).unwrap_or(Upstream::Undecodable),
            Some(_) | None => Upstream::Undecodable,
        }),
    }
}
