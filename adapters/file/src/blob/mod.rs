//! Content-addressed blobs: a blob's name is the SHA-256 of its bytes.

mod executor;
mod group;
mod keep;
mod store;
mod upload;

pub use executor::BlobExecutor;
pub use group::{StoreError, StoreGroup};
pub use store::{BlobStore, StoredBlob};
