//! Live topics over Redis or Valkey: several hubs share what is published, and each answers for what
//! came to it.
//!
//! A topic's state is one hash, its events go over one channel; both are touched only by two scripts.
//! What the answers mean is decided by the core's hub. The client library is kept from subscribing
//! again by itself: a lost connection is told to the hub, which asks anew.

mod backend;
mod connection;
mod names;
mod script;
mod wire;

pub use backend::{RedisBackend, RedisOptions};
pub use names::{BadNamespace, HubNames};
pub use script::{Asked, HubScripts, Offer};
pub use wire::{Malformed, decode};
