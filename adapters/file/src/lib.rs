//! Strandline on files: executes what the core's roots command, on `std::fs` and threads, and keeps
//! the content-addressed blob store. It decides nothing; each command's promise stands in
//! [`strandline_core::journal::command`] and [`strandline_core::lifecycle::command`].
//!
//! - [`Directory`]: a log's directory, open and locked.
//! - [`StorageExecutor`], [`BlobExecutor`], and [`Executor`], which is both.
//! - [`BlobStore`] and [`StoreGroup`]: blobs for programs on top, many of them in one round of syncs.
//! - [`node`]: the thread that owns a replica, and the handle to reach it with.
//! - [`BareJournal`]: opaque payloads without a replica, for programs without an asynchronous runtime.
//! - [`backup`]: backups of a running node, and putting them back.
//! - [`blocking`]: a replica for programs without an asynchronous runtime.
//!
//! Files are created with mode 0600 and folders with 0700. Below the path that the user names, no
//! symbolic link is followed. Linux and macOS only: elsewhere a folder cannot be synced.

/// The README's example, which must compile and run.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

mod appender;
pub mod backup;
mod blob;
pub mod blocking;
mod construction;
mod directory;
mod executor;
mod fault;
mod folder;
mod journal;
mod lock;
pub mod node;
mod owed;
mod reads;
mod reseed;
mod syncs;
mod threads;

pub use blob::{BlobExecutor, BlobHold, BlobStore, BlobsKept, StoreError, StoreGroup, StoredBlob};
pub use directory::{Directory, OpenMode};
pub use executor::{Executor, ExecutorConfig, StorageExecutor};
pub use journal::{BareJournal, JournalAppendError, JournalOpenError, JournalOptions, ReplayError};
pub use lock::{InUse, OpenError};
pub use node::Clock;
pub use reseed::{Reseed, ReseedError, reseed};
