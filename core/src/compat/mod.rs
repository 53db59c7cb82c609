//! Other systems' formats: read, written, never used live.

#[cfg(feature = "coverage")]
pub mod pad;

#[cfg(feature = "lifecycle")]
pub mod streamhive;
