//! The connection that events come over.
//!
//! The server's push messages are handed to the hub in the order of the connection, by the task that
//! reads it: nothing lies between them. A connection is used until it ends; its end is told for every
//! subscription on it, and the next request makes another one.

use crate::wire::decode;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client, PushInfo, PushKind, Value};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use strandline_core::coverage::{SubscriptionId, Upstream};
use strandline_hub::{HubHandle, ShardId};

/// Whose a channel is: one subscription at a time.
type Routes = BTreeMap<Vec<u8>, (ShardId, SubscriptionId)>;

/// The subscriptions of one backend.
pub(crate) struct Subscriptions {
    client: Client,
    answer_ms: u64,
    live: Option<MultiplexedConnection>,
    routes: Arc<Mutex<Routes>>,
}

fn lock(routes: &Mutex<Routes>) -> MutexGuard<'_, Routes> {
    routes.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Subscriptions {
    pub(crate) fn new(client: Client, answer_ms: u64) -> Self {
        Self { client, answer_ms, live: None, routes: Arc::default() }
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
        let Some(mut connection) = self.connection(handle).await else {
            return handle.upstream(shard, id, Upstream::Lost);
        };
        lock(&self.routes).insert(channel.clone().into_bytes(), (shard, id));
        if connection.subscribe(&channel).await.is_err() {
            self.drop_connection(handle);
        }
    }

    /// Ends a subscription, unless the channel is another one's already.
    pub(crate) async fn unsubscribe(&mut self, handle: &HubHandle, id: SubscriptionId, channel: String) {
        let ours = lock(&self.routes).get(channel.as_bytes()).is_some_and(|(_, current)| *current == id);
        if !ours {
            return;
        }
        lock(&self.routes).remove(channel.as_bytes());
        if let Some(mut connection) = self.live.clone()
            && connection.unsubscribe(&channel).await.is_err()
        {
            self.drop_connection(handle);
        }
    }

    async fn connection(&mut self, handle: &HubHandle) -> Option<MultiplexedConnection> {
        // Whatever was on a connection that ended was told by its last push message.
        if self.live.is_none() || lock(&self.routes).is_empty() {
            self.routes = Arc::default();
            let (routes, handle) = (self.routes.clone(), handle.clone());
            let wait = Duration::from_millis(self.answer_ms);
            let config = AsyncConnectionConfig::new()
                .set_connection_timeout(Some(wait))
                .set_response_timeout(Some(wait))
                .set_push_sender(move |push: PushInfo| -> Result<(), std::convert::Infallible> {
                    pushed(&handle, &routes, push);
                    Ok(())
                });
            self.live = self.client.get_multiplexed_async_connection_with_config(&config).await.ok();
        }
        self.live.clone()
    }

    /// A connection that does not answer is given up with all that is on it.
    fn drop_connection(&mut self, handle: &HubHandle) {
        self.live = None;
        lose(handle, &self.routes);
    }
}

fn lose(handle: &HubHandle, routes: &Mutex<Routes>) {
    let all = std::mem::take(&mut *lock(routes));
    for (shard, id) in all.into_values() {
        handle.upstream(shard, id, Upstream::Lost);
    }
}

fn pushed(handle: &HubHandle, routes: &Mutex<Routes>, push: PushInfo) {
    if matches!(push.kind, PushKind::Disconnection) {
        return lose(handle, routes);
    }
    let input = if matches!(push.kind, PushKind::Subscribe | PushKind::SSubscribe) {
        Upstream::Confirmed
    } else if matches!(push.kind, PushKind::Message | PushKind::SMessage) {
        match push.data.get(1) {
            Some(Value::BulkString(bytes)) => decode(bytes).unwrap_or(Upstream::Undecodable),
            Some(_) | None => Upstream::Undecodable,
        }
    } else {
        return;
    };
    let Some(Value::BulkString(channel)) = push.data.first() else { return };
    let route = lock(routes).get(channel).copied();
    if let Some((shard, id)) = route {
        handle.upstream(shard, id, input);
    }
}
