//! What a record may be, and how it is refused.

use super::{AuthorityId, Key, Record, State, Version};

/// Bounds of a record. The defaults are the reference's.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RecordLimits {
    /// Longest namespace in bytes.
    pub namespace_bytes_max: u32,
    /// Longest logical key in bytes.
    pub logical_key_bytes_max: u32,
    /// Longest authority identity in bytes of UTF-8.
    pub authority_bytes_max: u32,
    /// Longest record, encoded as JSON.
    pub record_bytes_max: u32,
}

impl Default for RecordLimits {
    fn default() -> Self {
        Self {
            namespace_bytes_max: 128,
            logical_key_bytes_max: 1024,
            authority_bytes_max: 128,
            record_bytes_max: 64 << 10,
        }
    }
}

/// Why a value is not a record.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum RecordError {
    /// The namespace has no bytes.
    #[error("namespace is empty: expected 1 to {bytes_max} bytes")]
    NamespaceEmpty {
        /// The limit.
        bytes_max: u32,
    },
    /// A version of (0,0).
    #[error("version is zero, which means \"nothing yet\" and is no record's version")]
    VersionZero,
}

impl RecordLimits {
    /// Judges a namespace and a logical key.
    pub fn key(&self, namespace: &[u8], logical_key: &[u8]) -> Result<Key, RecordError> {
        if namespace.is_empty() {
            return Err(RecordError::NamespaceEmpty { bytes_max: self.namespace_bytes_max });
        }
        Key::from_parts(namespace, logical_key)
            .ok_or(RecordError::NamespaceEmpty { bytes_max: self.namespace_bytes_max })
    }

    /// Judges an authority identity.
    pub fn authority(&self, text: &str) -> Result<AuthorityId, RecordError> {
        Ok(AuthorityId::from_text(text))
    }

    /// Judges a whole record.
    pub fn record(
        &self,
        key: Key,
        state: State,
        version: Version,
        authority: AuthorityId,
    ) -> Result<Record, RecordError> {
        if version.is_zero() {
            return Err(RecordError::VersionZero);
        }
        Ok(Record { key, state, version, authority })
    }
}
