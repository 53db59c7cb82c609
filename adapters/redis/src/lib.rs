//! Streams of Strandline on Redis and Valkey.
//!
//! What an operation does is decided by [`strandline_core::stream::keyspace`]; here each is one script that does
//! the same on a server, and whose answer is read into the same reply. Redis 7.0 and later.
//!
//! ```no_run
//! use strandline_core::stream::retention::Settings;
//! use strandline_core::stream::{Event, OnceKey};
//! use strandline_redis::{Names, Streams};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let streams = Streams::connect("redis://127.0.0.1/", Names::tagged_below("app")?).await?;
//! let mut orders = streams.stream("orders", Settings::new().max_len(10_000))?;
//! let event = Event::new("created", "order 17")?;
//! // However often it is asked, it is published once.
//! let (id, published) = orders.add_once(OnceKey::new("order-17-created")?, event).await?;
//! # let _ = (id, published);
//! # Ok(())
//! # }
//! ```

mod address;
mod bell;
mod connect;
mod connection;
mod decode;
mod encode;
mod names;
mod remote;
mod script;
mod server;
mod streams;
mod timer;

pub use address::Address;
pub use bell::Bell;
pub use connect::{ANSWER_MS_DEFAULT, Waited, Waiter, connect};
pub use connection::{Connection, Together};
pub use names::Names;
pub use redis::{ClientTlsConfig, TlsCertificates};
pub use remote::{Bounds, Remote};
pub use server::Server;
pub use streams::{Failure, Stream, Streams, Tail};
