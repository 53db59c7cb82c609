//! A record's canonical bytes: what the journal, checkpoints and snapshots store, and what the digest
//! chain hashes.
//!
//! The format is the conformance manifest's `records_digest` convention: be32 length and namespace,
//! be32 length and logical key, be32 length and state word, be32 length and blob key (empty when
//! deleted), be64 epoch, be64 sequence, be32 length and authority identity. One record has exactly one
//! such encoding.

use super::limits::parse_state;
use super::{AuthorityId, Key, Record, RecordError, State, Version};
use alloc::vec::Vec;

/// Why bytes are not a record's canonical bytes.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CanonicalError {
    /// The bytes end inside a part.
    #[error("{part} needs {bytes_expected} bytes, {bytes} are left")]
    Short {
        /// Which part.
        part: &'static str,
        /// What it needs.
        bytes_expected: u64,
        /// What is left.
        bytes: usize,
    },
    /// Bytes follow the record.
    #[error("{bytes} bytes follow the record, expected none")]
    Trailing {
        /// How many.
        bytes: usize,
    },
    /// A part that is never empty is.
    #[error("{part} is empty, expected at least one byte")]
    Empty {
        /// Which part.
        part: &'static str,
    },
    /// The namespace is longer than any key can hold.
    #[error("namespace has {bytes} bytes, expected at most 65535")]
    NamespaceTooLarge {
        /// What was found.
        bytes: usize,
    },
    /// The authority identity is not UTF-8.
    #[error("authority identity is not UTF-8 after its first {valid_bytes} bytes")]
    AuthorityNotUtf8 {
        /// How many bytes are.
        valid_bytes: usize,
    },
    /// The state, its blob key or the version is no record's.
    #[error(transparent)]
    Value(RecordError),
}

/// A record borrowed from its canonical bytes: parsed once, nothing copied.
///
/// ```
/// use strandline_core::record::{RecordLimits, RecordView, State, Version};
/// let limits = RecordLimits::default();
/// let record = limits.record(
///     limits.key(b"documents", b"a")?,
///     State::Deleted,
///     Version::new(1, 7),
///     limits.authority("node-a")?,
/// )?;
/// let mut bytes = Vec::new();
/// record.encode_canonical(&mut bytes);
/// let view = RecordView::parse(&bytes).expect("just written");
/// assert_eq!(view.logical_key, b"a");
/// assert_eq!(view.to_record(), record);
/// # Ok::<(), strandline_core::record::RecordError>(())
/// ```
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct RecordView<'a> {
    /// The namespace, 1 to 65,535 bytes.
    pub namespace: &'a [u8],
    /// The key within the namespace, never empty.
    pub logical_key: &'a [u8],
    /// What the key is.
    pub state: State,
    /// Never zero.
    pub version: Version,
    /// Who gave it the version, never empty.
    pub authority: &'a str,
}

impl<'a> RecordView<'a> {
    /// Reads one record that takes all of `bytes`. Configured limits are not applied: what was
    /// accepted once stays readable when limits shrink.
    ///
    /// # Errors
    /// The bytes are not exactly what [`Record::encode_canonical`] writes for some record.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, CanonicalError> {
        let mut rest = Rest(bytes);
        let namespace = rest.filled("namespace")?;
        if namespace.len() > usize::from(u16::MAX) {
            return Err(CanonicalError::NamespaceTooLarge { bytes: namespace.len() });
        }
        let logical_key = rest.filled("logical key")?;
        let state = rest.part("state")?;
        let blob_key = rest.part("blob key")?;
        let version = Version::new(rest.be64("epoch")?, rest.be64("sequence")?);
        let authority = rest.filled("authority identity")?;
        if !rest.0.is_empty() {
            return Err(CanonicalError::Trailing { bytes: rest.0.len() });
        }
        let authority = core::str::from_utf8(authority)
            .map_err(|e| CanonicalError::AuthorityNotUtf8 { valid_bytes: e.valid_up_to() })?;
        let state = match core::str::from_utf8(state) {
            Ok(state) => parse_state(state, blob_key),
            Err(_) => Err(RecordError::StateInvalid {
                found: state.escape_ascii().take(32).map(char::from).collect(),
            }),
        }
        .map_err(CanonicalError::Value)?;
        if version.is_zero() {
            return Err(CanonicalError::Value(RecordError::VersionZero));
        }
        Ok(Self { namespace, logical_key, state, version, authority })
    }

    /// An owned copy.
    #[must_use]
    pub fn to_record(&self) -> Record {
        self.owned_with(&AuthorityId::from_text(self.authority))
    }

    /// An owned copy that shares `authority` if the text is the same, so that a scan of many records
    /// need not own the text once for each.
    #[must_use]
    pub fn to_record_sharing(&self, authority: &AuthorityId) -> Record {
        if authority.as_str() == self.authority { self.owned_with(authority) } else { self.to_record() }
    }

    fn owned_with(&self, authority: &AuthorityId) -> Record {
        let key = Key::from_parts(self.namespace, self.logical_key).expect("parse bounded the namespace");
        Record { key, state: self.state, version: self.version, authority: authority.clone() }
    }
}

/// Appends the canonical bytes of a record whose parts are kept apart.
pub(crate) fn encode_parts(
    key: &Key,
    state: &State,
    version: Version,
    authority: &AuthorityId,
    out: &mut Vec<u8>,
) {
    put(out, key.namespace());
    put(out, key.logical_key());
    put(out, state.name().as_bytes());
    put(out, state.blob_bytes());
    out.extend_from_slice(&version.epoch.to_be_bytes());
    out.extend_from_slice(&version.sequence.to_be_bytes());
    put(out, authority.as_str().as_bytes());
}

impl Record {
    /// Length of the canonical bytes.
    #[must_use]
    pub fn canonical_bytes(&self) -> usize {
        let parts = [
            self.key.namespace().len(),
            self.key.logical_key().len(),
            self.state.name().len(),
            self.state.blob_bytes().len(),
            self.authority.as_str().len(),
        ];
        parts.iter().map(|bytes| 4 + bytes).sum::<usize>() + 16
    }

    /// Appends the canonical bytes.
    ///
    /// # Panics
    /// If a part is longer than 4 GiB, which no limit allows.
    pub fn encode_canonical(&self, out: &mut Vec<u8>) {
        out.reserve(self.canonical_bytes());
        encode_parts(&self.key, &self.state, self.version, &self.authority, out);
    }

    /// Reads one record that takes all of `bytes`; see [`RecordView::parse`].
    ///
    /// # Errors
    /// The bytes are not exactly what [`Record::encode_canonical`] writes for some record.
    pub fn decode_canonical(bytes: &[u8]) -> Result<Self, CanonicalError> {
        RecordView::parse(bytes).map(|view| view.to_record())
    }
}

fn put(out: &mut Vec<u8>, part: &[u8]) {
    let bytes = u32::try_from(part.len()).expect("a part of a record is shorter than 4 GiB");
    out.extend_from_slice(&bytes.to_be_bytes());
    out.extend_from_slice(part);
}

/// What is left to read.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn take(&mut self, part: &'static str, bytes: u64) -> Result<&'a [u8], CanonicalError> {
        let split = usize::try_from(bytes).ok().and_then(|bytes| self.0.split_at_checked(bytes));
        let (taken, rest) =
            split.ok_or(CanonicalError::Short { part, bytes_expected: bytes, bytes: self.0.len() })?;
        self.0 = rest;
        Ok(taken)
    }

    fn part(&mut self, part: &'static str) -> Result<&'a [u8], CanonicalError> {
        let length = self.take(part, 4)?.try_into().expect("four bytes");
        self.take(part, u64::from(u32::from_be_bytes(length)))
    }

    fn filled(&mut self, part: &'static str) -> Result<&'a [u8], CanonicalError> {
        let taken = self.part(part)?;
        if taken.is_empty() { Err(CanonicalError::Empty { part }) } else { Ok(taken) }
    }

    fn be64(&mut self, part: &'static str) -> Result<u64, CanonicalError> {
        Ok(u64::from_be_bytes(self.take(part, 8)?.try_into().expect("eight bytes")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::BlobKey;
    use alloc::vec;

    fn record(state: State) -> Record {
        Record {
            key: Key::from_parts(b"ns", b"key").expect("short"),
            state,
            version: Version::new(1, 2),
            authority: AuthorityId::from_text("a"),
        }
    }

    fn encoded(state: State) -> Vec<u8> {
        let mut out = Vec::new();
        record(state).encode_canonical(&mut out);
        out
    }

    /// Canonical bytes of the deleted record with one part replaced.
    fn with(part: usize, bytes: &[u8]) -> Vec<u8> {
        let mut parts: Vec<Vec<u8>> =
            vec![b"ns".into(), b"key".into(), b"deleted".into(), vec![], vec![], b"a".into()];
        parts[part] = bytes.into();
        let mut out = Vec::new();
        for (i, part) in parts.iter().enumerate() {
            match i {
                4 if part.is_empty() => {
                    out.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2])
                }
                4 => out.extend_from_slice(part),
                _ => put(&mut out, part),
            }
        }
        out
    }

    #[test]
    fn both_states_round_trip_in_the_promised_length() {
        for state in [State::Deleted, State::Present { blob: BlobKey([9; 32]) }] {
            let bytes = encoded(state);
            assert_eq!(bytes.len(), record(state).canonical_bytes());
            assert_eq!(Record::decode_canonical(&bytes), Ok(record(state)));
        }
    }

    #[test]
    fn layout_is_the_manifests() {
        assert_eq!(encoded(State::Deleted), with(4, b""));
        assert_eq!(&encoded(State::Deleted)[..6], b"\0\0\0\x02ns");
    }

    #[test]
    fn every_cut_is_short() {
        let bytes = encoded(State::Present { blob: BlobKey([9; 32]) });
        for end in 0..bytes.len() {
            let cut = RecordView::parse(&bytes[..end]);
            assert!(matches!(cut, Err(CanonicalError::Short { .. })), "{end}: {cut:?}");
        }
    }

    #[test]
    fn trailing_bytes() {
        let mut bytes = encoded(State::Deleted);
        bytes.push(0);
        assert_eq!(RecordView::parse(&bytes), Err(CanonicalError::Trailing { bytes: 1 }));
    }

    #[test]
    fn empty_parts() {
        for (part, name) in [(0, "namespace"), (1, "logical key"), (5, "authority identity")] {
            assert_eq!(RecordView::parse(&with(part, b"")), Err(CanonicalError::Empty { part: name }));
        }
    }

    #[test]
    fn namespace_too_large() {
        assert_eq!(
            RecordView::parse(&with(0, &[1; 65_536])),
            Err(CanonicalError::NamespaceTooLarge { bytes: 65_536 })
        );
    }

    #[test]
    fn authority_not_utf8() {
        assert_eq!(
            RecordView::parse(&with(5, b"a\xff")),
            Err(CanonicalError::AuthorityNotUtf8 { valid_bytes: 1 })
        );
    }

    #[test]
    fn unknown_state_even_if_not_text() {
        for (state, found) in [(&b"gone"[..], "gone"), (b"\xff", "\\xff")] {
            assert_eq!(
                RecordView::parse(&with(2, state)),
                Err(CanonicalError::Value(RecordError::StateInvalid { found: found.into() }))
            );
        }
    }

    #[test]
    fn blob_key_of_a_deleted_record() {
        let expected = RecordError::BlobKeyInvalid { state: "deleted", bytes: 1, bytes_expected: 0 };
        assert_eq!(RecordView::parse(&with(3, b"x")), Err(CanonicalError::Value(expected)));
    }

    #[test]
    fn version_zero() {
        assert_eq!(
            RecordView::parse(&with(4, &[0; 16])),
            Err(CanonicalError::Value(RecordError::VersionZero))
        );
    }

    #[test]
    fn a_claimed_length_allocates_nothing() {
        assert_eq!(
            RecordView::parse(&[0xff; 8]),
            Err(CanonicalError::Short { part: "namespace", bytes_expected: 0xffff_ffff, bytes: 4 })
        );
    }

    #[test]
    fn authority_text_is_shared_if_it_is_the_same() {
        let bytes = encoded(State::Deleted);
        let view = RecordView::parse(&bytes).expect("valid");
        let shared = AuthorityId::from_text("a");
        let first = view.to_record_sharing(&shared);
        assert!(core::ptr::eq(first.authority.as_str(), shared.as_str()));
        assert_eq!(view.to_record_sharing(&AuthorityId::from_text("b")), record(State::Deleted));
    }
}
