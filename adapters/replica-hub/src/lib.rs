//! Live topics out of a replica's log: each namespace is a topic, each durable change an event at its
//! version.
//!
//! Cursors are places in the log. They outlive the process, and any replica of the log can answer for
//! them: from the hub's buffer, else from the log down to its floor, else with `sync_required`. Only what
//! is durable is shown, so no restart takes back what a client was given. What the log's verdicts mean is
//! decided in the core's [`log`](strandline_core::coverage::log).

mod feed;
mod history;

pub use feed::{Feed, ReplicaHub, serve};
pub use history::HistoryLimits;
