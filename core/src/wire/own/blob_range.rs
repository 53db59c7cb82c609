//! `strandline.blob.*`: a blob of any size, in pieces that can be asked for again.

use super::{OwnFault, write_name, write_number_field};
use crate::limits::PIECE_BYTES_MAX;
use crate::record::BlobKey;
use crate::wire::json_read::{Filled, json_object};
use crate::wire::json_write::write_bytes;
use alloc::borrow::Cow;
use alloc::vec::Vec;

/// Asks for a piece of a blob.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct BlobRangeGet {
    /// Which blob.
    pub key: BlobKey,
    /// Where to start.
    pub offset: u64,
    /// How many bytes: 1 to 256 KiB.
    pub bytes: u64,
}

/// A piece of a blob, shorter than asked for only where the blob ends.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct BlobRange {
    /// Which blob.
    pub key: BlobKey,
    /// Where the piece starts.
    pub offset: u64,
    /// Length of the whole blob.
    pub total: u64,
    /// At most 256 KiB; left out of the message when empty.
    pub data: Vec<u8>,
}

impl BlobRangeGet {
    pub(super) fn check(&self) -> Result<(), OwnFault> {
        let (value, value_min, value_max) = (self.bytes, 1, u64::from(PIECE_BYTES_MAX));
        if (value_min..=value_max).contains(&value) {
            return Ok(());
        }
        Err(OwnFault::Number { field: "bytes", value, value_min, value_max })
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        write_key(&self.key, out);
        write_number_field("offset", self.offset, out);
        write_number_field("bytes", self.bytes, out);
    }

    pub(super) fn from_object(object: GetObject<'_>) -> Result<Self, OwnFault> {
        Ok(Self { key: key(&object.key)?, offset: object.offset, bytes: object.bytes })
    }
}

impl BlobRange {
    pub(super) fn check(&self) -> Result<(), OwnFault> {
        let bytes = self.data.len() as u64;
        if bytes > u64::from(PIECE_BYTES_MAX) {
            let (value_min, value_max) = (0, u64::from(PIECE_BYTES_MAX));
            return Err(OwnFault::Number { field: "length of data", value: bytes, value_min, value_max });
        }
        match self.offset.checked_add(bytes) {
            Some(end) if end <= self.total => Ok(()),
            Some(_) | None => {
                Err(OwnFault::PieceBeyondTotal { offset: self.offset, bytes, total: self.total })
            }
        }
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        write_key(&self.key, out);
        write_number_field("offset", self.offset, out);
        write_number_field("total", self.total, out);
        if !self.data.is_empty() {
            write_name("data", out);
            write_bytes(&self.data, out);
        }
    }

    pub(super) fn from_object(object: RangeObject<'_>) -> Result<Self, OwnFault> {
        let key = key(&object.key)?;
        Ok(Self { key, offset: object.offset, total: object.total, data: object.data.0 })
    }
}

pub(super) fn absent_key(object: AbsentObject<'_>) -> Result<BlobKey, OwnFault> {
    key(&object.key)
}

pub(super) fn write_key(key: &BlobKey, out: &mut Vec<u8>) {
    write_name("key", out);
    write_bytes(&key.0, out);
}

fn key(bytes: &[u8]) -> Result<BlobKey, OwnFault> {
    bytes.try_into().map(BlobKey).map_err(|_| OwnFault::Key { bytes: bytes.len() })
}

json_object! {
    pub(super) struct GetObject<'de> = "strandline.blob.get" {
        kind: Cow<'de, str> = always "type",
        key: Vec<u8> = always "key",
        offset: u64 = always "offset",
        bytes: u64 = always "bytes",
    }
}

json_object! {
    pub(super) struct RangeObject<'de> = "strandline.blob.range" {
        kind: Cow<'de, str> = always "type",
        key: Vec<u8> = always "key",
        offset: u64 = always "offset",
        total: u64 = always "total",
        data: Filled<Vec<u8>> = unless_empty "data",
    }
}

json_object! {
    pub(super) struct AbsentObject<'de> = "strandline.blob.absent" {
        kind: Cow<'de, str> = always "type",
        key: Vec<u8> = always "key",
    }
}

#[cfg(test)]
mod tests {
    use super::super::OwnMessage;
    use super::super::testing::{both_ways, decode, refused_both_ways};
    use super::*;
    use crate::wire::error::WireError;
    use alloc::format;
    use alloc::vec;

    const KEY: BlobKey = BlobKey([0; 32]);
    const KEY_TEXT: &str = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

    #[test]
    fn get() {
        let get = |bytes| OwnMessage::BlobRangeGet(BlobRangeGet { key: KEY, offset: 4, bytes });
        let text = |bytes| {
            format!(r#"{{"type":"strandline.blob.get","key":"{KEY_TEXT}","offset":4,"bytes":{bytes}}}"#)
        };
        both_ways(&get(256 << 10), &text(256 << 10));
        for value in [0, (256 << 10) + 1] {
            let fault = OwnFault::Number { field: "bytes", value, value_min: 1, value_max: 256 << 10 };
            refused_both_ways(&get(value), &text(value), &fault);
        }
    }

    #[test]
    fn range() {
        let range = |offset, data: &[u8]| {
            OwnMessage::BlobRange(BlobRange { key: KEY, offset, total: 5, data: data.to_vec() })
        };
        let text = |offset: u64, data: &str| {
            format!(
                r#"{{"type":"strandline.blob.range","key":"{KEY_TEXT}","offset":{offset},"total":5{data}}}"#
            )
        };
        both_ways(&range(4, b"a"), &text(4, r#","data":"YQ==""#));
        both_ways(&range(5, b""), &text(5, ""));
        for offset in [5, u64::MAX] {
            let fault = OwnFault::PieceBeyondTotal { offset, bytes: 1, total: 5 };
            refused_both_ways(&range(offset, b"a"), &text(offset, r#","data":"YQ==""#), &fault);
        }
    }

    #[test]
    fn a_piece_is_bounded() {
        let data = vec![0; (256 << 10) + 1];
        let range = BlobRange { key: KEY, offset: 0, total: 1 << 30, data };
        let value = (256 << 10) + 1;
        let fault = OwnFault::Number { field: "length of data", value, value_min: 0, value_max: 256 << 10 };
        assert_eq!(range.check(), Err(fault));
    }

    #[test]
    fn absent() {
        let text = format!(r#"{{"type":"strandline.blob.absent","key":"{KEY_TEXT}"}}"#);
        both_ways(&OwnMessage::BlobAbsent { key: KEY }, &text);
    }

    #[test]
    fn a_key_is_a_sha256() {
        let fault = OwnFault::Key { bytes: 1 };
        assert_eq!(
            decode(r#"{"type":"strandline.blob.absent","key":"YQ=="}"#),
            Err(WireError::Own { message: "strandline.blob.absent", fault })
        );
    }
}
