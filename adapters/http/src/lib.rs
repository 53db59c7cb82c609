//! Strandline over HTTP, on axum.
//!
//! - [`ops`]: what those who run a node look at: whether it is ready, whether it is well, its metrics.
//! - [`events`]: live topics for browsers and services: subscribe over server-sent events, publish,
//!   position.

pub mod events;
pub mod ops;
