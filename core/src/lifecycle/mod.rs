//! Protocol A: replicas of a versioned key space.

pub mod acked;
pub mod api;
pub mod authority;
mod bound;
pub mod checkpoint;
mod checkpoint_header;
mod checkpoint_read;
pub mod command;
pub mod compact;
mod compact_merge;
mod compact_prefix;
pub mod entry;
pub mod history;
pub mod membership;
pub mod views;
