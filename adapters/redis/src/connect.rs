//! Connections: one that asks and never waits, one that waits and never asks.

use crate::address::unreachable;
use crate::names::Names;
use crate::server::Server;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client};
use std::time::Duration;
use strandline_core::stream::error::{CallerError, StreamError};
use strandline_core::stream::layout::PulseKeys;
use strandline_core::stream::{EventId, Layout, StreamName};

/// Longest wait for one answer when nothing else is said.
pub const ANSWER_MS_DEFAULT: u64 = 5_000;

/// Extra time that the answer to a blocking read may take beyond what the read waits.
const MARGIN_MS: u64 = 2_000;

/// Connects for operations. Each is given up after `answer_ms_max`, as uncertain.
///
/// # Errors
/// What kept the connection from being made. Nothing was asked.
pub async fn connect(
    client: &Client,
    names: Names,
    answer_ms_max: u64,
) -> Result<Server<MultiplexedConnection>, StreamError> {
    let connection = connection(client, answer_ms_max).await?;
    Ok(Server::new(connection, names))
}

async fn connection(client: &Client, answer_ms_max: u64) -> Result<MultiplexedConnection, StreamError> {
    let limit = Duration::from_millis(answer_ms_max);
    let config =
        AsyncConnectionConfig::new().set_response_timeout(Some(limit)).set_connection_timeout(Some(limit));
    let connection = client.get_multiplexed_async_connection_with_config(&config).await;
    connection.map_err(|error| unreachable(&error))
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Waited {
    /// There is something to read, or there was.
    Rung,
    /// Time ran out. Look anyway: an end of the generation rings no bell.
    TimeOut,
    /// The connection ended or did not answer. It was given up: connect anew.
    Broken,
}

/// A connection that does nothing but wait for news of logs.
///
/// It holds no operation and gives out no events: those come by [`Server::apply`], in a step that checks
/// the generation. So a blocking read can neither hold up an operation nor hand out what was ended
/// meanwhile. Dropping a wait is safe; the connection is then to be dropped too, as a server answers in
/// order.
#[derive(Debug)]
pub struct Waiter {
    connection: MultiplexedConnection,
    names: Names,
    block_ms: u64,
}

impl Waiter {
    /// Connects; every wait lasts at most `block_ms`, which is not zero (that would be for ever).
    ///
    /// # Errors
    /// `InvalidOption` for a wait of zero; what kept the connection from being made.
    pub async fn connect(client: &Client, names: Names, block_ms: u64) -> Result<Self, StreamError> {
        if block_ms == 0 {
            let setting = strandline_core::stream::error::Setting::Block;
            return Err(CallerError::InvalidOption { setting }.into());
        }
        let connection = connection(client, block_ms.saturating_add(MARGIN_MS)).await?;
        Ok(Self { connection, names, block_ms })
    }

    /// Waits for an entry behind the given position of any of these logs: stream, generation, position.
    /// In a cluster all of them must share a slot.
    pub async fn wait(&mut self, logs: &[(StreamName, u64, EventId)]) -> Waited {
        let mut read = redis::cmd("XREAD");
        read.arg("COUNT").arg(1).arg("BLOCK").arg(self.block_ms).arg("STREAMS");
        for (stream, generation, _) in logs {
            read.arg(self.log(stream, *generation));
        }
        for (_, _, after) in logs {
            read.arg(after.to_string());
        }
        match read.query_async::<redis::Value>(&mut self.connection).await {
            Ok(redis::Value::Nil) => Waited::TimeOut,
            Ok(_) => Waited::Rung,
            // A key of another type is the operation's to report.
            Err(error) if error.code().is_some() => Waited::TimeOut,
            Err(_) => Waited::Broken,
        }
    }

    fn log(&self, stream: &StreamName, generation: u64) -> String {
        match self.names.layout() {
            Layout::Pulse => PulseKeys { stream, generation }.log(),
            Layout::Tagged => {
                let [log, ..] = self.names.tagged(stream).generation(generation);
                log
            }
        }
    }
}
