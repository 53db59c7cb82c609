//! The server, or the cluster, that commands go to.

use crate::script::{Call, unknown};
use redis::aio::MultiplexedConnection;
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, RedisError, Value};

/// Where connections come from.
#[derive(Clone)]
pub(crate) enum Server {
    One { client: Client, config: AsyncConnectionConfig },
    Cluster(ClusterClient),
}

impl Server {
    pub(crate) async fn connect(&self) -> Result<Commands, RedisError> {
        Ok(match self {
            Self::One { client, config } => {
                Commands::One(client.get_multiplexed_async_connection_with_config(config).await?)
            }
            Self::Cluster(client) => Commands::Cluster(client.get_async_connection().await?),
        })
    }
}

/// A connection for commands. Clones share it.
#[derive(Clone)]
pub(crate) enum Commands {
    One(MultiplexedConnection),
    Cluster(ClusterConnection),
}

impl Commands {
    pub(crate) async fn query(&mut self, command: &Cmd) -> Result<Value, RedisError> {
        match self {
            Self::One(connection) => command.query_async(connection).await,
            Self::Cluster(connection) => command.query_async(connection).await,
        }
    }

    /// Runs a script, and tells its text to a server that does not know it.
    pub(crate) async fn call(&mut self, call: &Call<'_>) -> Result<Value, RedisError> {
        match self.query(&call.short()).await {
            Err(error) if unknown(&error) => self.query(&call.whole()).await,
            answer => answer,
        }
    }
}
