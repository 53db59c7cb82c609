//! The native journal: opaque entries under consecutive LSNs, in segments of checksummed batches.

pub mod command;
