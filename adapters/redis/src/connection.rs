//! One connection: to a server, or to all nodes of a cluster.

use redis::aio::{ConnectionLike, MultiplexedConnection};
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr};
use redis::{Cmd, Pipeline, RedisError, RedisFuture, RedisResult, Value};

/// How often one command follows a slot that has moved on.
const HOPS_MAX: u32 = 5;

/// A connection. Clones share it.
#[derive(Clone)]
pub enum Connection {
    /// To one server.
    One(MultiplexedConnection),
    /// To the nodes of a cluster, each command to the node of its keys. It mends itself.
    Cluster(Box<ClusterConnection>),
}

impl core::fmt::Debug for Connection {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(match self {
            Self::One(_) => "One",
            Self::Cluster(_) => "Cluster",
        })
    }
}

/// A connection that sends commands together, so that nothing comes between them and they meet the same
/// server.
pub trait Together: ConnectionLike + Clone + Send {
    /// Sends commands to the server of a key, and gives their answers, refusals among them.
    ///
    /// # Errors
    /// No answers, or in a cluster one refusal in the place of all.
    fn together(
        &mut self,
        commands: &Pipeline,
        key: &str,
    ) -> impl Future<Output = RedisResult<Vec<Value>>> + Send;

    /// Whether all that is sent over it and its clones reaches one process, in order, and it ends with that:
    /// what was told over it is then older than what is sent after. No, unless a connection says so.
    fn is_to_one_process(&self) -> bool {
        false
    }
}

impl Together for MultiplexedConnection {
    async fn together(&mut self, commands: &Pipeline, _key: &str) -> RedisResult<Vec<Value>> {
        self.req_packed_commands(commands, 0, commands.len()).await
    }

    /// It is never made anew.
    fn is_to_one_process(&self) -> bool {
        true
    }
}

impl Together for Connection {
    async fn together(&mut self, commands: &Pipeline, key: &str) -> RedisResult<Vec<Value>> {
        let cluster = match self {
            Self::One(one) => return one.together(commands, key).await,
            Self::Cluster(cluster) => cluster,
        };
        let mut to = SingleNodeRoutingInfo::SpecificNode(Route::with_key(key, SlotAddr::Master));
        let mut asking = false;
        for _ in 0..HOPS_MAX {
            let mut sent = Pipeline::new();
            if asking {
                sent.cmd("ASKING").ignore();
            }
            commands.cmd_iter().for_each(|command| _ = sent.add_command(command.clone()));
            let (skipped, count) = (usize::from(asking), commands.len());
            let error = match cluster.route_pipeline(sent, skipped, count, to.clone()).await {
                Ok(values) => match values.iter().find_map(sent_on) {
                    Some(error) => error,
                    None => return Ok(values),
                },
                Err(error) => error,
            };
            let Some((node, for_once)) = redirection(&error) else { return Err(error) };
            (to, asking) = (node, for_once);
        }
        Err(too_many_hops())
    }

    fn is_to_one_process(&self) -> bool {
        match self {
            Self::One(one) => one.is_to_one_process(),
            Self::Cluster(_) => false,
        }
    }
}

/// The refusal of a node that has not the key. Whatever went with it asks only, or was refused too.
fn sent_on(value: &Value) -> Option<RedisError> {
    let error =
        if matches!(value, Value::ServerError(_)) { value.clone().extract_error().err() } else { None };
    error.filter(|error| error.redirect_node().is_some())
}

/// Where a command is to be sent instead, and whether for this once only. Whoever answers so did nothing.
fn redirection(error: &RedisError) -> Option<(SingleNodeRoutingInfo, bool)> {
    let (address, _) = error.redirect_node()?;
    let (host, port) = split(address)?;
    Some((SingleNodeRoutingInfo::ByAddress { host, port }, error.code() == Some("ASK")))
}

/// Host and port of an address as a cluster names it.
pub(crate) fn split(address: &str) -> Option<(String, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    let host = host.trim_start_matches('[').trim_end_matches(']');
    // A node that does not know its own name leaves it out: nobody can follow there.
    if host.is_empty() { None } else { Some((host.to_string(), port.parse().ok()?)) }
}

fn too_many_hops() -> RedisError {
    let text = format!("slot moved on for {HOPS_MAX} tries");
    RedisError::from((redis::ErrorKind::Server(redis::ServerErrorKind::TryAgain), "moved", text))
}

async fn followed(cluster: &mut ClusterConnection, command: &Cmd) -> RedisResult<Value> {
    let mut error = match cluster.req_packed_command(command).await.and_then(Value::extract_error) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    for _ in 0..HOPS_MAX {
        let Some((to, for_once)) = redirection(&error) else { return Err(error) };
        let answer = if for_once {
            let mut asking = Pipeline::new();
            asking.cmd("ASKING").ignore().add_command(command.clone());
            cluster.route_pipeline(asking, 1, 1, to).await.map(|mut values| values.remove(0))
        } else {
            cluster.route_command(command.clone(), RoutingInfo::SingleNode(to)).await
        };
        error = match answer.and_then(Value::extract_error) {
            Ok(value) => return Ok(value),
            Err(error) => error,
        };
    }
    Err(too_many_hops())
}

impl ConnectionLike for Connection {
    fn req_packed_command<'a>(&'a mut self, command: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            Self::One(one) => one.req_packed_command(command),
            Self::Cluster(cluster) => Box::pin(followed(cluster, command)),
        }
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        commands: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        match self {
            Self::One(one) => one.req_packed_commands(commands, offset, count),
            Self::Cluster(cluster) => cluster.req_packed_commands(commands, offset, count),
        }
    }

    fn get_db(&self) -> i64 {
        match self {
            Self::One(one) => one.get_db(),
            Self::Cluster(cluster) => cluster.get_db(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_nodes_are_taken_apart() {
        assert_eq!(split("10.0.0.1:7000"), Some(("10.0.0.1".into(), 7000)));
        assert_eq!(split("[fe80::1]:7000"), Some(("fe80::1".into(), 7000)));
        assert_eq!(split("node-2.example:7000"), Some(("node-2.example".into(), 7000)));
        assert_eq!(split(":7000"), None);
        assert_eq!(split("10.0.0.1:"), None);
    }
}
