//! How the reference makes one received record durable, as a pure function: its checks in its order.

use super::ReferenceNames;
use super::capability::{self, CapabilityRequired};
use super::journal::{JournalError, Writer};
use crate::error::{Classified, Family};
use crate::lifecycle::apply::{Application, classify};
use crate::record::{BlobKey, Key, Record, RecordError, Version};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use sha2::{Digest as _, Sha256};

/// Why a record is not applied.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ApplierError {
    /// The peer may not send records.
    #[error(transparent)]
    Capability(#[from] CapabilityRequired),
    /// It is no record.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The key holds another body under the same version.
    #[error("key {key} holds another record of version {version}")]
    Conflict {
        /// Which key.
        key: Box<Key>,
        /// The version given out twice.
        version: Version,
    },
    /// There is no blob store to look in.
    #[error("blob {key} is needed and there is no blob store")]
    NoBlobStore {
        /// Which blob.
        key: BlobKey,
    },
    /// The blob was neither sent nor stored.
    #[error("blob {key} is needed, was not sent and is not stored")]
    BlobMissing {
        /// Which blob.
        key: BlobKey,
    },
    /// The bytes are another blob's.
    #[error("blob {key} is needed, the bytes are of {found}")]
    BlobMismatch {
        /// Which blob was needed.
        key: BlobKey,
        /// Which blob the bytes are.
        found: BlobKey,
    },
    /// The journal refuses it.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

impl Classified for ApplierError {
    const FAMILY: Family = Family::Peer;
}

impl ReferenceNames for ApplierError {
    fn reference_names(&self) -> Vec<&'static str> {
        match self {
            Self::Capability(error) => error.reference_names(),
            Self::Record(error) => error.reference_names(),
            Self::Conflict { .. } => alloc::vec!["ErrConflict"],
            Self::NoBlobStore { .. } => alloc::vec!["ErrNilApplierBlobStore"],
            Self::BlobMissing { .. } => alloc::vec!["ErrLifecycleBlobMissing", "storage.ErrNotFound"],
            Self::BlobMismatch { .. } => alloc::vec!["storage.ErrSHA256Mismatch"],
            Self::Journal(error) => error.reference_names(),
        }
    }
}

/// A replica of the reference, as far as one record touches it.
#[derive(Clone, Debug)]
pub struct Replica {
    /// The journal it appends to.
    pub journal: Writer,
    /// What each key holds.
    pub state: BTreeMap<Key, Record>,
    /// Its blobs; `None` if it has no store.
    pub blobs: Option<BTreeMap<BlobKey, Vec<u8>>>,
}

impl Replica {
    /// Applies one received record. `supplied` is the blob sent with it, if one was.
    ///
    /// A blob that was sent and verified stays stored even if the journal then refuses the record.
    ///
    /// # Errors
    /// In this order: no capability, no record, a conflict, no blob store, blob missing, bytes of
    /// another blob, refused by the journal. But for the blob nothing has changed.
    pub fn apply(
        &mut self,
        capabilities: &[impl AsRef<str>],
        incoming: Result<Record, RecordError>,
        supplied: Option<&[u8]>,
    ) -> Result<(Application, Version), ApplierError> {
        capability::gate(capabilities)?;
        let record = incoming?;
        let application = classify(self.state.get(&record.key), &record);
        match application {
            Application::Applied => {}
            Application::Duplicate => return Ok((application, record.version)),
            Application::Stale { previous } => return Ok((application, previous)),
            Application::Conflict => {
                let (key, version) = (Box::new(record.key), record.version);
                return Err(ApplierError::Conflict { key, version });
            }
        }
        if let Some(blob) = record.state.blob() {
            self.ensure_blob(blob, supplied)?;
        }
        self.journal.append(&record)?;
        let version = record.version;
        self.state.insert(record.key.clone(), record);
        Ok((application, version))
    }

    fn ensure_blob(&mut self, key: BlobKey, supplied: Option<&[u8]>) -> Result<(), ApplierError> {
        let store = self.blobs.as_mut().ok_or(ApplierError::NoBlobStore { key })?;
        let bytes = match supplied {
            Some(bytes) => bytes,
            None => store.get(&key).ok_or(ApplierError::BlobMissing { key })?,
        };
        let found = BlobKey(Sha256::digest(bytes).into());
        if found != key {
            return Err(ApplierError::BlobMismatch { key, found });
        }
        if let Some(bytes) = supplied {
            store.insert(key, bytes.to_vec());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::journal::JournalLimits;
    use super::*;
    use crate::record::{RecordLimits, State};

    const LIFECYCLE: &str = "lifecycle.v1";

    fn replica() -> Replica {
        let journal = Writer::new(Version::ZERO, JournalLimits::default()).unwrap();
        Replica { journal, state: BTreeMap::new(), blobs: Some(BTreeMap::new()) }
    }

    fn record(key: &str, blob: Option<&[u8]>, sequence: u64) -> Result<Record, RecordError> {
        let limits = RecordLimits::default();
        let state = blob
            .map_or(State::Deleted, |bytes| State::Present { blob: BlobKey(Sha256::digest(bytes).into()) });
        let key = limits.key(b"documents", key.as_bytes())?;
        limits.record(key, state, Version::new(1, sequence), limits.authority("node-a")?)
    }

    #[test]
    fn capability_comes_before_the_record() {
        let refused = replica().apply(&["other"], record("", None, 1), None);
        assert!(matches!(refused, Err(ApplierError::Capability(_))));
    }

    #[test]
    fn blob_missing_mismatch_and_no_store_leave_the_journal_alone() {
        let mut replica = replica();
        let refused = replica.apply(&[LIFECYCLE], record("k", Some(b"x"), 1), None);
        assert!(matches!(refused, Err(ApplierError::BlobMissing { .. })));
        let refused = replica.apply(&[LIFECYCLE], record("k", Some(b"x"), 1), Some(b"y"));
        assert!(matches!(refused, Err(ApplierError::BlobMismatch { .. })));
        replica.blobs = None;
        let refused = replica.apply(&[LIFECYCLE], record("k", Some(b"x"), 1), Some(b"x"));
        assert!(matches!(refused, Err(ApplierError::NoBlobStore { .. })));
        assert_eq!(replica.journal.entries(), 0);
    }

    #[test]
    fn applied_then_duplicate_needs_no_blob_then_stale_then_conflict() {
        let mut replica = replica();
        let applied = replica.apply(&[LIFECYCLE], record("k", Some(b"x"), 2), Some(b"x"));
        assert_eq!(applied, Ok((Application::Applied, Version::new(1, 2))));
        replica.blobs = None;
        let again = replica.apply(&[LIFECYCLE], record("k", Some(b"x"), 2), None);
        assert_eq!(again, Ok((Application::Duplicate, Version::new(1, 2))));
        let older = replica.apply(&[LIFECYCLE], record("k", None, 1), None);
        assert!(matches!(older, Ok((Application::Stale { .. }, _))));
        let other = replica.apply(&[LIFECYCLE], record("k", None, 2), None);
        assert!(matches!(other, Err(ApplierError::Conflict { .. })));
        assert_eq!(replica.journal.entries(), 1);
    }

    #[test]
    fn journal_refuses_what_the_state_would_take() {
        let mut replica = replica();
        let _ = replica.apply(&[LIFECYCLE], record("other", None, 5), None).unwrap();
        let refused = replica.apply(&[LIFECYCLE], record("k", None, 5), None);
        assert!(matches!(refused, Err(ApplierError::Journal(JournalError::Order { .. }))));
    }
}
