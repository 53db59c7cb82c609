//! Limits and periods of the network.

use crate::gate::GateLimits;
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
    /// Longest time in which what a peer still sends is read off after the replica closed its link. Without
    /// it the connection would be reset, and the peer could lose the frame that says why.
    pub linger_ms: u64,
    /// Bytes of frames waiting for a peer at which the replica is asked to wait.
    pub outbox_bytes_max: usize,
    /// Chunks read from a peer and not yet taken by the replica.
    pub chunks_outstanding_max: usize,
    /// Connections of others that are not authenticated yet, over all addresses. One more displaces the
    /// oldest one of the address that has the most.
    pub handshakes_max: usize,
    /// Connections from one address that are not authenticated yet. One more displaces the oldest. Of
    /// IPv6, a network of 64 bits counts as one address.
    pub handshakes_per_address_max: usize,
    /// Bytes read of a connection before it is authenticated, those of TLS included.
    pub handshake_bytes_max: u64,
    /// Links that others called for, over all addresses.
    pub links_max: usize,
    /// Links that were called for from one address.
    pub links_per_address_max: usize,
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
            linger_ms: 1_000,
            outbox_bytes_max: 256 << 10,
            chunks_outstanding_max: 4,
            handshakes_max: 64,
            handshakes_per_address_max: 16,
            handshake_bytes_max: 64 << 10,
            links_max: 256,
            links_per_address_max: 16,
            retry_ms: 250,
            retry_ms_max: 30_000,
            settled_ms: 10_000,
            shutdown_ms: 10_000,
        }
    }
}

impl NetConfig {
    pub(crate) const fn gate(&self) -> GateLimits {
        GateLimits {
            handshakes_max: self.handshakes_max,
            handshakes_per_address_max: self.handshakes_per_address_max,
            links_max: self.links_max,
            links_per_address_max: self.links_per_address_max,
        }
    }
}

pub(crate) const fn ms(value: u64) -> Duration {
    Duration::from_millis(value)
}
