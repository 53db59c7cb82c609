//! `strandline.digest.*`: the digest of a history at one version, asked for or vouched for.

use super::{OwnFault, digest, write_digest, write_name};
use crate::record::Version;
use crate::wire::json_read::{Filled, json_object};
use crate::wire::json_write::write_version;
use alloc::borrow::Cow;
use alloc::vec::Vec;

/// Asks for the digest of the peer's history up to a version.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DigestGet {
    /// Which version; never zero, whose digest everyone knows.
    pub version: Version,
}

/// The digest of the sender's history up to a version: the answer to a [`DigestGet`], or evidence
/// that goes ahead of an acknowledgement of records that this link did not bring.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct DigestAt {
    /// Which version.
    pub version: Version,
    /// The digest chain's value there; absent if the sender's log has no record of this version, or
    /// does not keep what would tell.
    pub digest: Option<[u8; 32]>,
    /// The sender waits for the receiver's digest there, and takes none of its records before. An answer
    /// never asks, so that no answer is answered.
    pub asks: bool,
}

fn not_zero(version: Version) -> Result<(), OwnFault> {
    if version.is_zero() {
        let (value, value_min, value_max) = (0, 1, u64::MAX);
        return Err(OwnFault::Number { field: "version", value, value_min, value_max });
    }
    Ok(())
}

impl DigestGet {
    pub(super) fn check(&self) -> Result<(), OwnFault> {
        not_zero(self.version)
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        write_name("version", out);
        write_version(self.version, out);
    }

    pub(super) const fn from_object(object: &DigestGetObject<'_>) -> Self {
        Self { version: object.version }
    }
}

impl DigestAt {
    pub(super) fn check(&self) -> Result<(), OwnFault> {
        not_zero(self.version)
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        write_name("version", out);
        write_version(self.version, out);
        if let Some(digest) = &self.digest {
            write_digest("digest", digest, out);
        }
        if self.asks {
            write_name("asks", out);
            out.extend_from_slice(b"true");
        }
    }

    pub(super) fn from_object(object: DigestObject<'_>) -> Result<Self, OwnFault> {
        let digest = match &*object.digest.0 {
            "" => None,
            text => Some(digest("digest", text)?),
        };
        Ok(Self { version: object.version, digest, asks: object.asks.0 })
    }
}

json_object! {
    pub(super) struct DigestGetObject<'de> = "strandline.digest.get" {
        kind: Cow<'de, str> = always "type",
        version: Version = always "version",
    }
}

json_object! {
    pub(super) struct DigestObject<'de> = "strandline.digest" {
        kind: Cow<'de, str> = always "type",
        version: Version = always "version",
        digest: Filled<Cow<'de, str>> = unless_empty "digest",
        asks: Filled<bool> = unless_empty "asks",
    }
}

#[cfg(test)]
mod tests {
    use super::super::OwnMessage;
    use super::super::testing::{both_ways, decode, refused_both_ways};
    use super::*;
    use crate::wire::error::WireError;
    use crate::wire::json_read::Refusal;
    use alloc::format;

    #[test]
    fn a_question_and_both_answers() {
        let version = Version::new(1, 7);
        both_ways(
            &OwnMessage::DigestGet(DigestGet { version }),
            r#"{"type":"strandline.digest.get","version":{"epoch":1,"sequence":7}}"#,
        );
        both_ways(
            &OwnMessage::Digest(DigestAt { version, digest: None, asks: false }),
            r#"{"type":"strandline.digest","version":{"epoch":1,"sequence":7}}"#,
        );
        let hex = "ab".repeat(32);
        both_ways(
            &OwnMessage::Digest(DigestAt { version, digest: Some([0xab; 32]), asks: false }),
            &format!(
                r#"{{"type":"strandline.digest","version":{{"epoch":1,"sequence":7}},"digest":"{hex}"}}"#
            ),
        );
        both_ways(
            &OwnMessage::Digest(DigestAt { version, digest: None, asks: true }),
            r#"{"type":"strandline.digest","version":{"epoch":1,"sequence":7},"asks":true}"#,
        );
    }

    #[test]
    fn what_asks_nothing_leaves_it_out() {
        let payload = r#"{"type":"strandline.digest","version":{"epoch":1,"sequence":7},"asks":false}"#;
        let Err(WireError::OwnMalformed { fault, .. }) = decode(payload) else { panic!("false for nothing") };
        assert_eq!(fault.refusal, Some(Refusal::EmptyForAbsent));
    }

    #[test]
    fn zero_is_no_question() {
        let fault = OwnFault::Number { field: "version", value: 0, value_min: 1, value_max: u64::MAX };
        refused_both_ways(
            &OwnMessage::DigestGet(DigestGet { version: Version::ZERO }),
            r#"{"type":"strandline.digest.get","version":{"epoch":0,"sequence":0}}"#,
            &fault,
        );
    }

    #[test]
    fn a_digest_is_64_digits() {
        let short = r#"{"type":"strandline.digest","version":{"epoch":1,"sequence":7},"digest":"abab"}"#;
        let fault = OwnFault::Digest { field: "digest" };
        assert_eq!(decode(short), Err(WireError::Own { message: "strandline.digest", fault }));
    }
}
