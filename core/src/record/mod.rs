//! The values of protocol A, parsed once.

pub mod key;
pub mod limits;
pub mod value;
pub mod version;

pub use key::{AuthorityId, BlobKey, Key};
pub use limits::{RecordError, RecordLimits};
pub use value::{Record, State};
pub use version::Version;
