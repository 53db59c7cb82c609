//! Streams of Strandline on Redis and Valkey.
//!
//! What an operation does is decided by [`strandline_core::stream::keyspace`]; here each is one script that does
//! the same on a server, and whose answer is read into the same reply. Redis 7.0 and later.

mod decode;
mod encode;
mod names;
mod script;
mod server;

pub use names::Names;
pub use server::Server;
