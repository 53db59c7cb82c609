//! The native journal: opaque entries under consecutive LSNs, in segments of checksummed batches.
//!
//! [`writer::Journal`] is the live part, [`recovery::JournalRecovery`] the part that makes one from
//! what is stored. [`index::Index`] knows where each batch lies, [`read::EntryReader`] reads
//! entries back. [`segment`] and [`batch`] are the formats on disk, [`sidecar`] and [`current`] the
//! small files beside them.

pub mod batch;
pub mod command;
pub mod current;
pub mod fields;
pub mod index;
pub mod limits;
pub mod log;
pub mod read;
pub mod recovery;
pub mod segment;
pub mod sidecar;
pub mod writer;
