//! Streams of Strandline on Redis and Valkey.
//!
//! What an operation does is decided by [`strandline_core::stream::keyspace`]; here each is one script that does
//! the same on a server, and whose answer is read into the same reply. Redis 7.0 and later.
//!
//! ```no_run
//! use strandline_redis::{Connect as _, Names};
//! use strandline_streams::{Event, OnceKey, Streams};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let streams = Streams::connect("redis://127.0.0.1/", Names::tagged_below("app")?).await?;
//! let orders = streams.stream("orders").max_len(10_000).handle()?;
//! let event = Event::new("created", "order 17")?;
//! // However often it is asked, it is published once.
//! let (id, published) = orders.add_once(OnceKey::new("order-17-created")?, event).await?;
//! # let _ = (id, published);
//! # Ok(())
//! # }
//! ```

mod address;
mod backend;
mod bell;
mod connection;
mod decode;
mod encode;
mod listed;
mod names;
mod parts;
mod remote;
mod script;
mod server;
mod timer;

pub use address::{ANSWER_MS_DEFAULT, Address};
#[cfg(feature = "tokio")]
pub use backend::Connect;
pub use backend::Redis;
pub use bell::Bell;
pub use connection::{Connection, Together};
pub use names::Names;
pub use redis::{ClientTlsConfig, TlsCertificates};
pub use remote::{Bounds, Remote};
pub use server::Server;
