//! A hub of live topics that the tasks of one process share: [`HubHandle`] publishes and subscribes from
//! anywhere, [`Subscription`] is the stream of one subscriber. Nothing here belongs to one runtime: any
//! executor polls the streams, and [`Driver::run`] takes its way to sleep from the caller.
//!
//! What is decided is decided by the core's [`Hub`](strandline_core::coverage::Hub); this crate locks,
//! wakes and keeps time.

mod clock;
mod driver;
mod handle;
mod shard;
mod subscription;

pub use clock::Clock;
pub use driver::Driver;
pub use handle::{Backend, HandleOptions, HubHandle, NoBackend, Report, ShardId, Start, WeakHandle};
pub use subscription::{Delivery, Subscription};
