//! Protocol A: replicas of a versioned key space.

pub mod api;
pub mod command;
pub mod replica;
