//! How servers are reached: connections that end, failovers, clusters, Sentinels, TLS, other runtimes.

mod cluster;
mod failover;
#[path = "../../adapters/cli/tests/faults/proxy.rs"]
mod proxy;
mod reconnect;
mod rights;
mod sentinel;
mod smol;
mod storm;
mod support;
mod tls;
mod told;
mod waiting;
