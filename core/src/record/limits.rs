//! What a record may be.

use super::printable::is_printable;
use super::{AuthorityId, BlobKey, Key, Record, RecordError, State, Version};

/// Bounds of a record. The defaults are the reference's.
///
/// ```
/// use strandline_core::record::{RecordError, RecordLimits};
/// let limits = RecordLimits::default();
/// assert!(limits.key(b"documents", b"readme.md").is_ok());
/// assert_eq!(limits.key(b"documents", b""), Err(RecordError::LogicalKeyEmpty { bytes_max: 1024 }));
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RecordLimits {
    /// Longest namespace in bytes; never more than 65,535.
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

/// The parts of a record as they came in, before anything was judged.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct RawRecord<'a> {
    /// The namespace.
    pub namespace: &'a [u8],
    /// The key within the namespace.
    pub logical_key: &'a [u8],
    /// "present" or "deleted".
    pub state: &'a str,
    /// SHA-256 of the blob, empty when deleted.
    pub blob_key: &'a [u8],
    /// The version.
    pub version: Version,
    /// The authority identity.
    pub authority: &'a str,
}

impl RecordLimits {
    /// Judges a namespace and a logical key, in this order.
    ///
    /// # Errors
    /// Either is empty or too long.
    pub fn key(&self, namespace: &[u8], logical_key: &[u8]) -> Result<Key, RecordError> {
        let bytes_max = self.namespace_bytes_max.min(u32::from(u16::MAX));
        let too_large = RecordError::NamespaceTooLarge { bytes: namespace.len(), bytes_max };
        if namespace.is_empty() {
            return Err(RecordError::NamespaceEmpty { bytes_max });
        }
        if exceeds(namespace.len(), bytes_max) {
            return Err(too_large);
        }
        let bytes_max = self.logical_key_bytes_max;
        if logical_key.is_empty() {
            return Err(RecordError::LogicalKeyEmpty { bytes_max });
        }
        if exceeds(logical_key.len(), bytes_max) {
            return Err(RecordError::LogicalKeyTooLarge { bytes: logical_key.len(), bytes_max });
        }
        Key::from_parts(namespace, logical_key).ok_or(too_large)
    }

    /// Judges an authority identity.
    ///
    /// # Errors
    /// It is empty, too long or not printable, in this order.
    pub fn authority(&self, text: &str) -> Result<AuthorityId, RecordError> {
        self.check_authority(text)?;
        Ok(AuthorityId::from_text(text))
    }

    /// Judges a whole record of parts already judged.
    ///
    /// # Errors
    /// The version is zero, or the record is too long as JSON, in this order.
    pub fn record(
        &self,
        key: Key,
        state: State,
        version: Version,
        authority: AuthorityId,
    ) -> Result<Record, RecordError> {
        let record = Record { key, state, version, authority };
        self.check_whole(&record)?;
        Ok(record)
    }

    fn check_whole(&self, record: &Record) -> Result<(), RecordError> {
        if record.version.is_zero() {
            return Err(RecordError::VersionZero);
        }
        let (bytes, bytes_max) = (record.json_bytes(), self.record_bytes_max);
        if exceeds(bytes, bytes_max) {
            return Err(RecordError::RecordTooLarge { bytes, bytes_max });
        }
        Ok(())
    }

    /// Judges a record's parts in the reference's order: namespace, logical key, authority, version,
    /// state and blob key, length as JSON.
    ///
    /// `shared` is an authority identity to share if the text is the same, so that records of one
    /// authority need not each own its text.
    ///
    /// # Errors
    /// The first part that is not a record's.
    pub fn judge(&self, raw: &RawRecord<'_>, shared: Option<&AuthorityId>) -> Result<Record, RecordError> {
        let key = self.key(raw.namespace, raw.logical_key)?;
        self.check_authority(raw.authority)?;
        let authority = match shared {
            Some(shared) if shared.as_str() == raw.authority => shared.clone(),
            Some(_) | None => AuthorityId::from_text(raw.authority),
        };
        if raw.version.is_zero() {
            return Err(RecordError::VersionZero);
        }
        let state = parse_state(raw.state, raw.blob_key)?;
        self.record(key, state, raw.version, authority)
    }

    /// Judges a record that was read from bytes which do not hold to these limits by themselves.
    ///
    /// # Errors
    /// The first part that is beyond them.
    pub fn check(&self, record: &Record) -> Result<(), RecordError> {
        self.key(record.key.namespace(), record.key.logical_key())?;
        self.check_authority(record.authority.as_str())?;
        self.check_whole(record)
    }

    fn check_authority(&self, text: &str) -> Result<(), RecordError> {
        let bytes_max = self.authority_bytes_max;
        if text.is_empty() {
            return Err(RecordError::AuthorityEmpty { bytes_max });
        }
        if exceeds(text.len(), bytes_max) {
            return Err(RecordError::AuthorityTooLarge { bytes: text.len(), bytes_max });
        }
        match text.char_indices().find(|&(_, c)| !is_printable(c)) {
            Some((offset, character)) => Err(RecordError::AuthorityNotPrintable { character, offset }),
            None => Ok(()),
        }
    }
}

/// Whether a length is above a limit, whatever the platform's `usize`.
fn exceeds(bytes: usize, bytes_max: u32) -> bool {
    u32::try_from(bytes).map_or(true, |bytes| bytes > bytes_max)
}

/// Reads a state and the blob key that belongs to it.
pub(super) fn parse_state(state: &str, blob_key: &[u8]) -> Result<State, RecordError> {
    let invalid =
        |state, bytes_expected| RecordError::BlobKeyInvalid { state, bytes: blob_key.len(), bytes_expected };
    match state {
        "present" => {
            let blob = blob_key.try_into().map_err(|_| invalid("present", 32))?;
            Ok(State::Present { blob: BlobKey(blob) })
        }
        "deleted" if blob_key.is_empty() => Ok(State::Deleted),
        "deleted" => Err(invalid("deleted", 0)),
        other => Err(RecordError::StateInvalid { found: other.chars().take(32).collect() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BLOB: [u8; 32] = [7; 32];

    fn good() -> RawRecord<'static> {
        RawRecord {
            namespace: b"n",
            logical_key: b"k",
            state: "present",
            blob_key: &BLOB,
            version: Version::new(1, 1),
            authority: "a",
        }
    }

    fn refused(raw: RawRecord<'_>) -> RecordError {
        RecordLimits::default().judge(&raw, None).unwrap_err()
    }

    #[test]
    fn namespace_empty() {
        assert_eq!(refused(RawRecord::default()), RecordError::NamespaceEmpty { bytes_max: 128 });
    }

    #[test]
    fn namespace_too_large() {
        assert_eq!(
            refused(RawRecord { namespace: &[1; 129], ..good() }),
            RecordError::NamespaceTooLarge { bytes: 129, bytes_max: 128 }
        );
    }

    #[test]
    fn namespace_limit_never_exceeds_what_a_key_can_hold() {
        let limits = RecordLimits { namespace_bytes_max: u32::MAX, ..RecordLimits::default() };
        assert_eq!(
            limits.key(&[1; 65_536], b"k"),
            Err(RecordError::NamespaceTooLarge { bytes: 65_536, bytes_max: 65_535 })
        );
    }

    #[test]
    fn logical_key_empty() {
        assert_eq!(
            refused(RawRecord { logical_key: b"", ..good() }),
            RecordError::LogicalKeyEmpty { bytes_max: 1024 }
        );
    }

    #[test]
    fn logical_key_too_large() {
        assert_eq!(
            refused(RawRecord { logical_key: &[1; 1025], ..good() }),
            RecordError::LogicalKeyTooLarge { bytes: 1025, bytes_max: 1024 }
        );
    }

    #[test]
    fn authority_empty() {
        assert_eq!(
            refused(RawRecord { authority: "", ..good() }),
            RecordError::AuthorityEmpty { bytes_max: 128 }
        );
    }

    #[test]
    fn authority_too_large_counts_bytes_not_characters() {
        let text = "\u{e9}".repeat(65);
        assert_eq!(
            refused(RawRecord { authority: &text, ..good() }),
            RecordError::AuthorityTooLarge { bytes: 130, bytes_max: 128 }
        );
    }

    #[test]
    fn authority_not_printable_names_the_character() {
        assert_eq!(
            refused(RawRecord { authority: "\u{e9}\u{a0}", ..good() }),
            RecordError::AuthorityNotPrintable { character: '\u{a0}', offset: 2 }
        );
    }

    #[test]
    fn state_invalid() {
        assert_eq!(
            refused(RawRecord { state: "Present", ..good() }),
            RecordError::StateInvalid { found: "Present".into() }
        );
    }

    #[test]
    fn present_without_a_whole_blob_key() {
        assert_eq!(
            refused(RawRecord { blob_key: &BLOB[1..], ..good() }),
            RecordError::BlobKeyInvalid { state: "present", bytes: 31, bytes_expected: 32 }
        );
    }

    #[test]
    fn deleted_with_a_blob_key() {
        assert_eq!(
            refused(RawRecord { state: "deleted", ..good() }),
            RecordError::BlobKeyInvalid { state: "deleted", bytes: 32, bytes_expected: 0 }
        );
    }

    #[test]
    fn version_zero() {
        assert_eq!(refused(RawRecord { version: Version::ZERO, ..good() }), RecordError::VersionZero);
    }

    #[test]
    fn version_is_judged_after_the_authority_and_before_the_state() {
        let zero = RawRecord { version: Version::ZERO, state: "gone", ..good() };
        assert_eq!(refused(zero), RecordError::VersionZero);
        assert_eq!(
            refused(RawRecord { authority: "", ..zero }),
            RecordError::AuthorityEmpty { bytes_max: 128 }
        );
    }

    #[test]
    fn record_too_large_is_measured_as_json() {
        let exact = RecordLimits { record_bytes_max: 171, ..RecordLimits::default() };
        assert!(exact.judge(&good(), None).is_ok());
        let less = RecordLimits { record_bytes_max: 170, ..exact };
        assert_eq!(
            less.judge(&good(), None),
            Err(RecordError::RecordTooLarge { bytes: 171, bytes_max: 170 })
        );
    }
}
