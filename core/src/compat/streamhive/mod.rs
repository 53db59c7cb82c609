//! x
pub mod envelope;
