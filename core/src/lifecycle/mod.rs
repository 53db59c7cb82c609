//! Protocol A: replicas of a versioned key space.

pub mod api;
pub mod checkpoint;
mod checkpoint_read;
pub mod command;
pub mod history;
pub mod views;
