//! Protocol A: replicas of a versioned key space.

pub mod apply;
pub mod command;
pub mod delivery;
