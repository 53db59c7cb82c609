//! Taking a v1 directory over, and giving one back. What a v1 directory holds becomes a history
//! ([`History`]); [`Feed`] brings it to a replica over a link, as any peer would; [`export`] writes a
//! replica's state as v1 files. Nothing here touches a file.

mod export;
mod feed;
mod history;

pub use export::{ExportError, Exported, Member, export};
pub use feed::{Feed, FeedError};
pub use history::{Files, History, MigrateError};

use crate::record::{Key, Record};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use sha2::{Digest, Sha256};

/// SHA-256 of a state: the canonical bytes of the last record of each key, tombstones included, in the
/// order of the keys. The same for a v1 directory and for the replica that took it over.
#[must_use]
pub fn state_digest<'a>(records: impl IntoIterator<Item = &'a Record>) -> [u8; 32] {
    let mut hash = Sha256::new();
    let mut bytes = Vec::new();
    for record in records {
        bytes.clear();
        record.encode_canonical(&mut bytes);
        hash.update(&bytes);
    }
    hash.finalize().into()
}

/// The last record of each key.
pub(super) type State = BTreeMap<Key, Record>;
