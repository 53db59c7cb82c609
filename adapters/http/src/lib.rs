//! Strandline over HTTP, on axum.
//!
//! - [`ops`]: what those who run a node look at: whether it is ready, whether it is well, its metrics.

pub mod ops;
