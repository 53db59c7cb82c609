//! Live topics over Redis or Valkey: several hubs share what is published, and each answers for what
//! came to it.
//!
//! A topic's state is one hash, its latest events are kept in one stream and go over one channel; all are
//! touched only by two scripts. In a cluster each topic lives on the master of its slot.
//! What the answers mean is decided by the core's hub. The client library is kept from subscribing
//! again by itself: a lost connection is told to the hub, which asks anew.

mod asking;
mod backend;
mod connection;
mod history;
mod names;
mod orders;
mod reach;
mod script;
mod server;
mod wire;

pub use backend::{RedisBackend, RedisOptions};
pub use names::{BadNamespace, HubNames};
pub use script::{Asked, HubScripts, Keeping, Offer, PubSub};
pub use wire::{Malformed, decode};
