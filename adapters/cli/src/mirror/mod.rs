//! A directory as keys, again and again: what changed becomes puts, what vanished tombstones.

pub(crate) mod apply;
pub(crate) mod plan;
