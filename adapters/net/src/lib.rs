//! Strandline over connections: links between nodes on any asynchronous runtime that gives
//! `futures` readers and writers, and the asynchronous [`Handle`].
//!
//! What a link says is decided in the core. This crate carries bytes, keeps time and counts.

mod backoff;
mod config;
mod dial;
mod gate;
mod greet;
mod handle;
mod listen;
mod network;
mod outbox;
mod peers;
mod runtime;
mod session;
mod stop;
mod subscription;
#[cfg(test)]
mod testing;

pub use config::NetConfig;
pub use greet::IntroductionError;
pub use handle::Handle;
pub use network::{Network, NetworkConfig, NetworkError};
pub use peers::Peer;
pub use runtime::Runtime;
pub use subscription::Subscription;
