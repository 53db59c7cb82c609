//! `strandline.snapshot.*`: a snapshot of any size, in pieces that can be asked for again.

use super::{OwnFault, digest, write_digest, write_name, write_number_field};
use crate::limits::PIECE_BYTES_MAX;
use crate::record::Version;
use crate::wire::json_read::{Filled, json_object};
use crate::wire::json_write::{write_bytes, write_version};
use alloc::borrow::Cow;
use alloc::vec::Vec;

/// What a snapshot is, before any of it is sent. Count and SHA-256 are verified before anything is
/// installed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SnapshotOffer {
    /// The version it stands for; never zero.
    pub cut: Version,
    /// The digest chain's value there, if it is known.
    pub cut_digest: Option<[u8; 32]>,
    /// How many bytes it has.
    pub bytes: u64,
    /// The SHA-256 of these bytes; also its name.
    pub sha256: [u8; 32],
    /// How many records it holds.
    pub records: u64,
}

/// Asks for a snapshot from an offset on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SnapshotGet {
    /// Which one.
    pub sha256: [u8; 32],
    /// Where to start: what was received before.
    pub offset: u64,
}

/// A piece of the snapshot asked for.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SnapshotChunk {
    /// Where it starts.
    pub offset: u64,
    /// 1 byte to 256 KiB.
    pub data: Vec<u8>,
}

impl SnapshotOffer {
    pub(super) fn check(&self) -> Result<(), OwnFault> {
        if self.cut.is_zero() {
            let (value, value_min, value_max) = (0, 1, u64::MAX);
            return Err(OwnFault::Number { field: "cut", value, value_min, value_max });
        }
        Ok(())
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        write_name("cut", out);
        write_version(self.cut, out);
        if let Some(digest) = &self.cut_digest {
            write_digest("cut_digest", digest, out);
        }
        write_number_field("bytes", self.bytes, out);
        write_digest("sha256", &self.sha256, out);
        write_number_field("records", self.records, out);
    }

    pub(super) fn from_object(object: OfferObject<'_>) -> Result<Self, OwnFault> {
        let cut_digest = match &*object.cut_digest.0 {
            "" => None,
            text => Some(digest("cut_digest", text)?),
        };
        Ok(Self {
            cut: object.cut,
            cut_digest,
            bytes: object.bytes,
            sha256: digest("sha256", &object.sha256)?,
            records: object.records,
        })
    }
}

impl SnapshotGet {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        write_digest("sha256", &self.sha256, out);
        write_number_field("offset", self.offset, out);
    }

    pub(super) fn from_object(object: GetObject<'_>) -> Result<Self, OwnFault> {
        Ok(Self { sha256: digest("sha256", &object.sha256)?, offset: object.offset })
    }
}

impl SnapshotChunk {
    pub(super) fn check(&self) -> Result<(), OwnFault> {
        let bytes = self.data.len() as u64;
        if bytes == 0 || bytes > u64::from(PIECE_BYTES_MAX) {
            let (value_min, value_max) = (1, u64::from(PIECE_BYTES_MAX));
            return Err(OwnFault::Number { field: "length of data", value: bytes, value_min, value_max });
        }
        if self.offset.checked_add(bytes).is_none() {
            return Err(OwnFault::PieceBeyondTotal { offset: self.offset, bytes, total: u64::MAX });
        }
        Ok(())
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        write_number_field("offset", self.offset, out);
        write_name("data", out);
        write_bytes(&self.data, out);
    }

    pub(super) fn from_object(object: ChunkObject<'_>) -> Self {
        Self { offset: object.offset, data: object.data }
    }
}

json_object! {
    pub(super) struct OfferObject<'de> = "strandline.snapshot.offer" {
        kind: Cow<'de, str> = always "type",
        cut: Version = always "cut",
        cut_digest: Filled<Cow<'de, str>> = unless_empty "cut_digest",
        bytes: u64 = always "bytes",
        sha256: Cow<'de, str> = always "sha256",
        records: u64 = always "records",
    }
}

json_object! {
    pub(super) struct GetObject<'de> = "strandline.snapshot.get" {
        kind: Cow<'de, str> = always "type",
        sha256: Cow<'de, str> = always "sha256",
        offset: u64 = always "offset",
    }
}

json_object! {
    pub(super) struct ChunkObject<'de> = "strandline.snapshot.chunk" {
        kind: Cow<'de, str> = always "type",
        offset: u64 = always "offset",
        data: Vec<u8> = always "data",
    }
}

#[cfg(test)]
mod tests {
    use super::super::OwnMessage;
    use super::super::testing::{both_ways, decode, encode, refused_both_ways};
    use super::*;
    use crate::wire::error::{EncodeError, WireError};
    use alloc::format;
    use alloc::vec;

    #[test]
    fn offer() {
        let mut offer = SnapshotOffer {
            cut: Version::new(1, 7),
            cut_digest: Some([0xcd; 32]),
            bytes: 10,
            sha256: [0xab; 32],
            records: 2,
        };
        let (cd, ab) = ("cd".repeat(32), "ab".repeat(32));
        let text = format!(
            r#"{{"type":"strandline.snapshot.offer","cut":{{"epoch":1,"sequence":7}},"cut_digest":"{cd}","bytes":10,"sha256":"{ab}","records":2}}"#
        );
        both_ways(&OwnMessage::SnapshotOffer(offer), &text);
        offer.cut_digest = None;
        let text = text.replace(&format!(r#","cut_digest":"{cd}""#), "");
        both_ways(&OwnMessage::SnapshotOffer(offer), &text);
        offer.cut = Version::ZERO;
        let text = text.replace(r#"{"epoch":1,"sequence":7}"#, r#"{"epoch":0,"sequence":0}"#);
        let fault = OwnFault::Number { field: "cut", value: 0, value_min: 1, value_max: u64::MAX };
        refused_both_ways(&OwnMessage::SnapshotOffer(offer), &text, &fault);
    }

    #[test]
    fn get() {
        let text =
            format!(r#"{{"type":"strandline.snapshot.get","sha256":"{}","offset":5}}"#, "00".repeat(32));
        both_ways(&OwnMessage::SnapshotGet(SnapshotGet { sha256: [0; 32], offset: 5 }), &text);
        let fault = OwnFault::Digest { field: "sha256" };
        let message = "strandline.snapshot.get";
        assert_eq!(decode(&text.replacen("00", "", 1)), Err(WireError::Own { message, fault }));
    }

    #[test]
    fn chunk() {
        let chunk = |data| OwnMessage::SnapshotChunk(SnapshotChunk { offset: 3, data });
        both_ways(&chunk(b"a".to_vec()), r#"{"type":"strandline.snapshot.chunk","offset":3,"data":"YQ=="}"#);
        assert!(encode(&chunk(vec![0; 256 << 10])).is_ok());
        let fault =
            |value| OwnFault::Number { field: "length of data", value, value_min: 1, value_max: 256 << 10 };
        refused_both_ways(
            &chunk(vec![]),
            r#"{"type":"strandline.snapshot.chunk","offset":3,"data":""}"#,
            &fault(0),
        );
        let message = "strandline.snapshot.chunk";
        let refused = encode(&chunk(vec![0; (256 << 10) + 1]));
        assert_eq!(refused, Err(EncodeError::Own { message, fault: fault((256 << 10) + 1) }));
    }

    #[test]
    fn a_chunk_ends_before_the_highest_offset() {
        let chunk = SnapshotChunk { offset: u64::MAX, data: vec![0] };
        let text = r#"{"type":"strandline.snapshot.chunk","offset":18446744073709551615,"data":"AA=="}"#;
        let fault = OwnFault::PieceBeyondTotal { offset: u64::MAX, bytes: 1, total: u64::MAX };
        refused_both_ways(&OwnMessage::SnapshotChunk(chunk), text, &fault);
    }
}
