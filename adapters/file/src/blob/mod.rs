//! Content-addressed blobs: a blob's name is the SHA-256 of its bytes.

mod executor;
mod fans;
mod group;
mod keep;
mod share;
mod store;
mod upload;

pub use executor::BlobExecutor;
pub use group::{StoreError, StoreGroup};
pub use share::{BlobHold, BlobsKept};
pub use store::{BlobStore, StoredBlob};

/// Where a blob is, below a store's folder.
pub(crate) fn blob_path(key: strandline_core::record::BlobKey) -> String {
    store::name(key)
}
