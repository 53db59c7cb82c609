//! Limits and periods of the network.

use std::time::Duration;

/// Limits and periods of links, of the listener and of dialers.
///
/// One link holds at most `outbox_bytes_max` and one frame waiting, as much again being written,
/// and `chunks_outstanding_max` chunks of 64 KiB read and not yet taken.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct NetConfig {
    /// Longest time to make a connection.
    pub connect_ms: u64,
    /// Longest time from connection to authentication.
    pub handshake_ms: u64,
    /// Longest time in which a link may make no progress in either direction.
    pub idle_ms: u64,
    /// Longest time one write to a peer may take.
    pub write_ms: u64,
    /// Bytes of frames waiting for a peer at which the replica is asked to wait.
    pub outbox_bytes_max: usize,
    /// Chunks read from a peer and not yet taken by the replica.
    pub chunks_outstanding_max: usize,
    /// Open connections the listener accepts, over all addresses.
    pub connections_max: usize,
    /// Open connections the listener accepts from one address.
    pub connections_per_address_max: usize,
    /// First delay before a dialer tries again.
    pub retry_ms: u64,
    /// Longest delay before a dialer tries again.
    pub retry_ms_max: u64,
    /// How long a link must have stood for the delays to start over.
    pub settled_ms: u64,
    /// Longest time `shutdown` waits for connections to end.
    pub shutdown_ms: u64,
}

impl Default for NetConfig {
    fn default() -> Self {
        Self {
            connect_ms: 10_000,
            handshake_ms: 10_000,
            idle_ms: 120_000,
            write_ms: 30_000,
            outbox_bytes_max: 256 << 10,
            chunks_outstanding_max: 4,
            connections_max: 256,
            connections_per_address_max: 16,
            retry_ms: 250,
            retry_ms_max: 30_000,
            settled_ms: 10_000,
            shutdown_ms: 10_000,
        }
    }
}

pub(crate) const fn ms(value: u64) -> Duration {
    Duration::from_millis(value)
}
