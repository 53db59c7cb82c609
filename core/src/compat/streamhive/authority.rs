//! The v1 authority file: one envelope around `{authority_id, version}`, the last version given out
//! (sequence 0: none of its epoch yet); and how the reference gives out the next.

use super::envelope::{self, ENVELOPE_BYTES, EnvelopeError};
use super::payload::{self, PayloadError};
use super::{ReferenceNames, Rule};
use crate::error::{Classified, Family};
use crate::record::{AuthorityId, RecordError, RecordLimits, Version};
use crate::wire::json_write::{write_string, write_version};
use alloc::string::String;
use alloc::vec::Vec;
use core::num::NonZeroU64;

/// Bounds of a v1 authority file. The defaults are the reference's.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AuthorityLimits {
    /// Of the identity.
    pub record: RecordLimits,
    /// Longest file.
    pub authority_file_bytes_max: u64,
}

impl Default for AuthorityLimits {
    fn default() -> Self {
        Self { record: RecordLimits::default(), authority_file_bytes_max: 1 << 20 }
    }
}

/// Why an authority file is refused, or gives out nothing.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum AuthorityError {
    /// The identity is none.
    #[error(transparent)]
    Identity(#[from] RecordError),
    /// More bytes than the limit.
    #[error("authority file has {bytes} bytes: expected at most {bytes_max}")]
    TooLong {
        /// What was found, or would be written.
        bytes: u64,
        /// The limit.
        bytes_max: u64,
    },
    /// Not one whole envelope.
    #[error("authority file: {0}")]
    Envelope(#[from] EnvelopeError),
    /// Not the JSON of an authority.
    #[error("authority file: {0}")]
    Payload(#[from] PayloadError),
    /// Another authority's file.
    #[error("authority file is of {found:?}: expected {expected}")]
    Mismatch {
        /// Whose file was expected.
        expected: AuthorityId,
        /// Whose it is.
        found: String,
    },
    /// Epoch 0, in which no version is given out.
    #[error("authority version is {found}: expected an epoch of at least 1")]
    EpochZero {
        /// What was found.
        found: Version,
    },
    /// Every version has been given out.
    #[error("authority stands at {current}: no version is left")]
    Exhausted {
        /// The last version there is.
        current: Version,
    },
}

impl AuthorityError {
    /// The rule under which the reference answers otherwise, if there is one.
    #[must_use]
    pub fn rule(&self) -> Option<Rule> {
        match self {
            Self::Payload(payload) => payload.rule(),
            Self::Identity(_)
            | Self::TooLong { .. }
            | Self::Envelope(_)
            | Self::Mismatch { .. }
            | Self::EpochZero { .. }
            | Self::Exhausted { .. } => None,
        }
    }
}

impl Classified for AuthorityError {
    const FAMILY: Family = Family::Storage;
}

impl ReferenceNames for AuthorityError {
    fn reference_names(&self) -> Vec<&'static str> {
        alloc::vec![match self {
            Self::Identity(error) => return error.reference_names(),
            Self::TooLong { .. } => "ErrAuthorityLimit",
            Self::Envelope(EnvelopeError::Checksum { .. }) => "ErrAuthorityChecksum",
            Self::Envelope(_) | Self::Payload(_) => "ErrAuthorityCorrupt",
            Self::Mismatch { .. } => "ErrAuthorityMismatch",
            Self::EpochZero { .. } => "ErrAuthorityVersion",
            Self::Exhausted { .. } => "ErrAuthorityExhausted",
        }]
    }
}

/// Who gives out versions, and the last one given out.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Authority {
    identity: AuthorityId,
    current: Version,
}

impl Authority {
    /// An authority that has given out `current`, or nothing of its epoch if the sequence is 0.
    ///
    /// # Errors
    /// The epoch is 0.
    pub fn new(identity: AuthorityId, current: Version) -> Result<Self, AuthorityError> {
        if current.epoch == 0 {
            return Err(AuthorityError::EpochZero { found: current });
        }
        Ok(Self { identity, current })
    }

    /// A new authority: it goes on from what was observed, or starts `epoch` (drawn at random by the
    /// host) if nothing was.
    #[must_use]
    pub const fn create(identity: AuthorityId, observed: Version, epoch: NonZeroU64) -> Self {
        let current = if observed.epoch == 0 { Version::new(epoch.get(), 0) } else { observed };
        Self { identity, current }
    }

    /// Who it is.
    #[must_use]
    pub const fn identity(&self) -> &AuthorityId {
        &self.identity
    }

    /// The last version given out.
    #[must_use]
    pub const fn current(&self) -> Version {
        self.current
    }

    /// Reads a whole file of `identity`, and adopts `observed` if it is newer.
    ///
    /// # Errors
    /// In this order: the identity asked for is none; the file is too long, not one whole envelope,
    /// not strictly an authority, another authority's, or in epoch 0.
    pub fn open(
        file: &[u8],
        identity: &str,
        observed: Version,
        limits: &AuthorityLimits,
    ) -> Result<Self, AuthorityError> {
        let identity = limits.record.authority(identity)?;
        check_length(file.len(), limits)?;
        let text = envelope::whole(file, limits.authority_file_bytes_max)?;
        let (found, current) = payload::authority(text)?;
        if found != identity.as_str() {
            return Err(AuthorityError::Mismatch { expected: identity, found: found.into_owned() });
        }
        let mut opened = Self::new(identity, current)?;
        opened.observe(observed);
        Ok(opened)
    }

    /// The file, as the reference writes it.
    ///
    /// # Errors
    /// It would be too long.
    pub fn encode(&self, limits: &AuthorityLimits) -> Result<Vec<u8>, AuthorityError> {
        let mut text = Vec::from(br#"{"authority_id":"#);
        write_string(self.identity.as_str(), &mut text);
        text.extend_from_slice(br#","version":"#);
        write_version(self.current, &mut text);
        text.push(b'}');
        check_length(text.len() + ENVELOPE_BYTES, limits)?;
        let mut file = Vec::with_capacity(text.len() + ENVELOPE_BYTES);
        envelope::put(&mut file, &text);
        Ok(file)
    }

    /// Gives out the version after everything given out or observed. What was observed is kept in
    /// memory even if nothing is left to give out; the file is to be written only on `Ok`.
    ///
    /// # Errors
    /// Every version has been given out.
    pub fn next(&mut self, observed: Version) -> Result<Version, AuthorityError> {
        self.observe(observed);
        let current = self.current;
        self.current = if let Some(sequence) = current.sequence.checked_add(1) {
            Version::new(current.epoch, sequence)
        } else if let Some(epoch) = current.epoch.checked_add(1) {
            Version::new(epoch, 1)
        } else {
            return Err(AuthorityError::Exhausted { current });
        };
        Ok(self.current)
    }

    fn observe(&mut self, observed: Version) {
        self.current = self.current.max(observed);
    }
}

fn check_length(bytes: usize, limits: &AuthorityLimits) -> Result<(), AuthorityError> {
    let (bytes, bytes_max) = (bytes as u64, limits.authority_file_bytes_max);
    if bytes > bytes_max {
        return Err(AuthorityError::TooLong { bytes, bytes_max });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: u64 = u64::MAX;

    fn at(epoch: u64, sequence: u64) -> Authority {
        Authority::new(AuthorityId::from_text("node-a"), Version::new(epoch, sequence)).unwrap()
    }

    #[test]
    fn next_is_above_what_was_given_out_and_observed() {
        assert_eq!(at(9, 5).next(Version::ZERO), Ok(Version::new(9, 6)));
        assert_eq!(at(9, 5).next(Version::new(9, 8)), Ok(Version::new(9, 9)));
        assert_eq!(at(9, 5).next(Version::new(8, 999)), Ok(Version::new(9, 6)));
    }

    #[test]
    fn next_moves_to_the_next_epoch_when_the_sequence_ends() {
        assert_eq!(at(4, MAX).next(Version::ZERO), Ok(Version::new(5, 1)));
    }

    #[test]
    fn exhausted_remembers_what_it_observed() {
        let mut authority = at(1, 1);
        let last = Version::new(MAX, MAX);
        assert_eq!(authority.next(last), Err(AuthorityError::Exhausted { current: last }));
        assert_eq!(authority.current(), last);
    }

    #[test]
    fn create_goes_on_or_starts_an_epoch() {
        let create = |observed| {
            let epoch = NonZeroU64::new(77).unwrap();
            Authority::create(AuthorityId::from_text("a"), observed, epoch).current()
        };
        assert_eq!(create(Version::new(7, 7)), Version::new(7, 7));
        assert_eq!(create(Version::new(0, 9)), Version::new(77, 0));
    }

    #[test]
    fn what_is_written_is_read_and_a_newer_observation_adopted() {
        let limits = AuthorityLimits::default();
        let file = at(9, 2).encode(&limits).unwrap();
        let open = |observed| Authority::open(&file, "node-a", observed, &limits);
        assert_eq!(open(Version::new(9, 1)), Ok(at(9, 2)));
        assert_eq!(open(Version::new(12, 5)), Ok(at(12, 5)));
    }

    #[test]
    fn identity_is_judged_before_the_file() {
        let found = Authority::open(b"", "", Version::ZERO, &AuthorityLimits::default());
        assert!(matches!(found, Err(AuthorityError::Identity(RecordError::AuthorityEmpty { .. }))));
    }

    #[test]
    fn mismatch_names_both() {
        let limits = AuthorityLimits::default();
        let file = at(9, 2).encode(&limits).unwrap();
        let found = Authority::open(&file, "node-b", Version::ZERO, &limits).unwrap_err();
        assert!(matches!(&found, AuthorityError::Mismatch { found, .. } if found == "node-a"));
    }
}
