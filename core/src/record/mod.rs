//! The values of protocol A, parsed once.

pub mod canonical;
pub mod error;
pub mod json_size;
pub mod key;
pub mod limits;
pub mod printable;
pub mod value;
pub mod version;

pub use canonical::{CanonicalError, RecordView};
pub use error::RecordError;
pub use key::{AuthorityId, BlobKey, Key};
pub use limits::{RawRecord, RecordLimits};
pub use printable::is_printable;
pub use value::{Record, State};
pub use version::Version;
