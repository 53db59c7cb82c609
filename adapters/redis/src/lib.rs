//! Streams of Strandline on Redis and Valkey.
//!
//! What an operation does is decided by [`strandline_core::stream::keyspace`]; here each is one script that does
//! the same on a server, and whose answer is read into the same reply. Redis 7.0 and later.
//!
//! ```no_run
//! use strandline_core::stream::op::{Nonce, Verb};
//! use strandline_core::stream::{Handle, Layout, StreamName, Wanted};
//! use strandline_redis::{ANSWER_MS_DEFAULT, Names, connect};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let client = redis::Client::open("redis://127.0.0.1/")?;
//! let mut server = connect(&client, Names::tagged_below("app")?, ANSWER_MS_DEFAULT).await?;
//! let handle = Handle::new(StreamName::new("orders")?, Wanted::default(), Layout::Tagged)?;
//! let outcome = server.apply(&handle.op(Verb::Open, Nonce([7; 16]))).await;
//! # let _ = outcome;
//! # Ok(())
//! # }
//! ```

mod connect;
mod decode;
mod encode;
mod names;
mod script;
mod server;

pub use connect::{ANSWER_MS_DEFAULT, Waited, Waiter, connect};
pub use names::Names;
pub use server::Server;
