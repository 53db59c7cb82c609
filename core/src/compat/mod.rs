//! Other systems' formats: read, written, never used live.

pub mod streamhive;
