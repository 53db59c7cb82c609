//! What the fuzz targets check, apart from the fuzzer, so that tests can replay a corpus.
//!
//! Each module has one function `check(data) -> bool`: it panics if a promise is broken, and says
//! whether the input was accepted, so that a corpus of nothing but refusals can be told.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

pub mod checkpoint;
pub mod frames;
pub mod handshake;
pub mod journal;
pub mod messages;
pub mod records;
