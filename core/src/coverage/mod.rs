//! Protocol C: honest resume coverage.
//!
//! Live subscribers disconnect and come back with a cursor. They are given everything they missed, or
//! told to synchronise; never left believing that they are current. [`Hub`] is the root; the table that
//! decides is [`decide`].
//!
//! A cursor is [`Complete`](crate::verdict::Verdict::Complete) only if it is of the same incarnation, not
//! above the head, not below the first position from which nothing was missed (less one), and not below
//! the highest position pushed out of the buffer. Over a server the position script says first what was
//! given out, and what of it came here is waited for, a little.

mod admission;
mod api;
mod arrival;
mod buffer;
mod config;
mod cursor;
mod decide;
mod feed;
mod hub;
#[cfg(feature = "lifecycle")]
pub mod log;
mod owed;
mod position;
mod publish;
mod report;
mod shared;
pub mod sse;
mod subscriber;
mod tier;
mod tokens;
mod topic;
mod topic_name;
mod upstream;

pub use admission::{Admission, NotAdmitted};
pub use api::{
    Accepted, Command, CommandOutcome, Event, From, History, How, HubCompletion, Item, Message, Minted,
    Opened, Outcome, Publish, PublishError, PublishId, Publishing, Standing, Subscribe, SubscribeError,
    SubscriberId, SubscriptionId, Upstream, op,
};
pub use buffer::{BufferLimits, Entry};
pub use config::{HubConfig, HubLimits, HubTimes, Sequencing, Source};
pub use cursor::{
    CURSOR_CHARS_MAX, CURSORS_MAX, CursorCodec, CursorSet, CursorText, ID_CHARS_MAX, Width, join,
};
pub use decide::{Claim, Coverage, CoverageVerdict, Reason, decide};
pub use hub::{Hub, TopicStatus};
pub use position::{Mark, Position};
pub use report::{Counters, EndReason, LostReason};
pub use topic_name::{BadTopic, TOPIC_BYTES_MAX, TopicName};
