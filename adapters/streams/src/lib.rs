//! Streams of Strandline for applications.
//!
//! One API over whatever a [`Backend`] stands for: a server, or a process's own memory or journal. What
//! is decided is decided in [`strandline_core::stream::client`]; this crate lets tasks of any runtime use
//! it. [`Streams::new`] gives the streams and a [`Driver`], which is to be run as a task.

mod alarm;
mod backend;
mod driver;
mod group;
mod party;
mod reader;
mod shared;
mod streams;

pub use backend::Backend;
pub use driver::Driver;
pub use group::{Consumer, GroupBuilder};
pub use reader::{Reader, ReaderBuilder};
pub use strandline_core::stream::client::{
    Delivery, End, Failover, Failovers, Failure, Fenced, Gap, GapReason, Item, LogPosition, Missing,
    StreamCounters, Waited,
};
pub use strandline_core::stream::failover::{Doubt, Survival};
pub use strandline_core::stream::listing::{GroupState, GroupTotals, Groups, MemberState, OldestPending};
pub use strandline_core::stream::reply::DeadLetter;
pub use strandline_core::stream::{Event, EventId, GroupName, Ids, OnceKey, Start};
pub use streams::{Stream, StreamBuilder, Streams};
