//! Protocol B: generation-qualified streams.
//!
//! Handles can never touch a later incarnation of a stream, a publication with a key happens exactly
//! once, metadata cannot outlive or resurrect its data, and the recovery of stale consumers is
//! fenced. Every operation is one atomic step on the server's state; [`keyspace::Keyspace::apply`] is
//! that step: the specification, the embedded backend, and what the scripts on Redis are held to.

pub mod client;
pub mod contract;
pub mod embedded;
pub mod error;
pub mod event;
pub mod eviction;
pub mod failover;
pub mod fence;
pub mod filter;
pub mod group;
pub mod handle;
pub mod judge;
pub mod keyspace;
pub mod layout;
pub mod limits;
pub mod listing;
pub mod name;
pub mod op;
pub mod reader;
pub mod reply;
mod resting;
pub mod retention;
pub mod settings;
pub mod time;
pub mod unready;
pub mod vouching;
pub mod word;

pub use contract::{GroupContract, Start};
pub use embedded::Embedded;
pub use error::{CallerError, ForeignFault, ServerFault, StreamError};
pub use event::{Event, EventId, Ids, OnceKey};
pub use handle::Handle;
pub use keyspace::Keyspace;
pub use layout::Layout;
pub use name::{ConsumerName, GroupName, StreamName};
pub use op::{StreamOp, Verb};
pub use reply::{Outcome, StreamReply};
pub use retention::{Contract, Expiry, Wanted};
pub use time::ServerTime;
