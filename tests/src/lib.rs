//! Tests that are about more than one part of Strandline.

pub mod conformance;
pub mod coverage;
pub mod redis_cluster;
pub mod streams;
