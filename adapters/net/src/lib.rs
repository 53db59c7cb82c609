//! Strandline over connections: links between nodes on any asynchronous runtime that gives
//! `futures` readers and writers, and the asynchronous [`Handle`].
//!
//! What a link says is decided in the core. This crate carries bytes, keeps time and counts.

mod access;
mod backoff;
mod calling;
mod config;
mod connection;
mod counters;
mod dial;
mod door;
mod gate;
mod greet;
mod handle;
mod hold;
mod listen;
mod network;
mod outbox;
mod peers;
mod runtime;
mod server;
mod session;
mod stop;
mod subscription;
#[cfg(test)]
mod testing;
mod tls;

pub use access::{Access, AccessError};
pub use config::NetConfig;
pub use counters::{NetStatus, Refusal};
pub use handle::{EpochTaken, Handle, TakeEpochError};
pub use network::{Network, NetworkConfig, NetworkError, Replaced, Steer};
pub use peers::{Peer, TokenDigest};
pub use runtime::Runtime;
pub use server::{ServeConfig, ServeError, Server};
pub use subscription::Subscription;
pub use tls::{TlsError, TlsIdentity};
