//! The pure core of Strandline: a cursor, a floor, a generation: answer only what you can vouch for.
//!
//! Nothing here reads a clock, entropy, the environment, a file or a socket. Machines take inputs
//! (`handle_*`), hand out effects as plain data (`poll_*`), and are told how each effect ended.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(any(test, feature = "std"))]
extern crate std;

pub mod backoff;
pub mod error;
pub mod id;
pub mod limits;
pub mod machine;
pub mod seed;
pub mod ticket;
pub mod time;
pub mod verdict;

pub mod journal;

pub mod record;

#[cfg(feature = "lifecycle")]
pub mod wire;

#[cfg(feature = "lifecycle")]
pub mod lifecycle;

#[cfg(any(feature = "lifecycle", feature = "coverage"))]
pub mod compat;

#[cfg(feature = "coverage")]
pub mod coverage;
#[cfg(feature = "streams")]
pub mod stream;
