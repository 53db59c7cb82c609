//! What the fuzz targets check, apart from the fuzzer, so that tests can replay a corpus.
//!
//! Each module has one function `check(data) -> bool`: it panics if a promise is broken, and says
//! whether the input was accepted, so that a corpus of nothing but refusals can be told.
#![forbid(unsafe_code)]
#![warn(missing_docs)]

#[path = "../../core/tests/common/blobs.rs"]
#[allow(dead_code, reason = "shared with the tests of the core")]
mod blobs;
pub mod checkpoint;
#[path = "../../core/tests/common/disk.rs"]
#[allow(dead_code, reason = "shared with the tests of the core")]
mod disk;
pub mod frames;
pub mod handshake;
mod input;
pub mod journal;
pub mod journal_log;
pub mod messages;
pub mod records;
pub mod recovery;
pub mod replica;
pub mod streams;
