//! The header of a segment.
//!
//! 64 bytes, big endian: magic `SLSG` (4), format version (4), log (16), segment number (8), first
//! LSN (8), salt (8), end of the segment before (8), length it was prepared with in units of
//! 8 bytes (4), CRC-32 of the 60 bytes before (4).
//!
//! The header is written and synced after everything before it was durable. It is therefore
//! evidence: a segment that is entered proves that the one before it was durable up to
//! `previous_end`, and with every entry below `first_lsn`.

use super::command::SegmentNumber;
use crate::id::{LogId, Lsn};
use core::fmt;

/// Length of the header; the first batch starts behind it.
pub const HEADER_BYTES: u64 = 64;
/// Batches start at multiples of this.
pub const ALIGN: u64 = 8;
/// The format version this program writes, and the highest it reads.
pub const FORMAT: u32 = 1;

const MAGIC: [u8; 4] = *b"SLSG";
const LEN: usize = HEADER_BYTES as usize;

/// A place in the journal. Later bytes have the higher position.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Position {
    /// The segment.
    pub segment: SegmentNumber,
    /// Bytes from its start.
    pub offset: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.segment.0, self.offset)
    }
}

/// Random bytes of one segment, part of every CRC in it, so that bytes of another segment, or of
/// another life of the same disk blocks, never verify.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Salt(pub [u8; 8]);

/// What a segment says about itself.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SegmentHeader {
    /// The log it belongs to.
    pub log: LogId,
    /// Its number, also its name.
    pub number: SegmentNumber,
    /// The LSN its first entry has, or would have.
    pub first_lsn: Lsn,
    /// Its salt.
    pub salt: Salt,
    /// Where the bytes of the segment before ended; 0 if there was none.
    pub previous_end: u64,
    /// The length it was prepared with. A shorter file was cut by someone else.
    pub prepared_bytes: u64,
}

/// Why 64 bytes are not a header.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SegmentHeaderError {
    /// No header was written yet.
    #[error("expected a segment header, found zeros")]
    Blank,
    /// A format this program does not know.
    #[error("expected format version {FORMAT} at most, found {found}")]
    Newer {
        /// The version found.
        found: u32,
    },
    /// Not what was written.
    #[error("expected a segment header, found bytes that do not verify")]
    Damaged,
}

impl SegmentHeader {
    /// The bytes on disk.
    ///
    /// # Panics
    /// If `prepared_bytes` is not a multiple of 8 or beyond 32 GiB: limits rule both out.
    #[must_use]
    pub fn encode(&self) -> [u8; LEN] {
        assert_eq!(self.prepared_bytes % ALIGN, 0, "segments are prepared in units of 8 bytes");
        let units = u32::try_from(self.prepared_bytes / ALIGN).expect("at most 32 GiB");
        let mut out = [0; LEN];
        out[..4].copy_from_slice(&MAGIC);
        out[4..8].copy_from_slice(&FORMAT.to_be_bytes());
        out[8..24].copy_from_slice(&self.log.0);
        out[24..32].copy_from_slice(&self.number.0.to_be_bytes());
        out[32..40].copy_from_slice(&self.first_lsn.get().to_be_bytes());
        out[40..48].copy_from_slice(&self.salt.0);
        out[48..56].copy_from_slice(&self.previous_end.to_be_bytes());
        out[56..60].copy_from_slice(&units.to_be_bytes());
        let crc = crc32fast::hash(&out[..60]);
        out[60..].copy_from_slice(&crc.to_be_bytes());
        out
    }

    /// Reads a header. A newer version is recognised before the CRC, whose place it may have moved.
    ///
    /// # Errors
    /// Zeros, a newer format, or bytes that do not verify (a file shorter than the header too).
    pub fn decode(bytes: &[u8]) -> Result<Self, SegmentHeaderError> {
        if bytes.iter().all(|b| *b == 0) {
            return Err(SegmentHeaderError::Blank);
        }
        let bytes: &[u8; LEN] = bytes.try_into().map_err(|_| SegmentHeaderError::Damaged)?;
        if bytes[..4] != MAGIC {
            return Err(SegmentHeaderError::Damaged);
        }
        let format = u32::from_be_bytes(array(bytes, 4));
        if format > FORMAT {
            return Err(SegmentHeaderError::Newer { found: format });
        }
        if format == 0 || crc32fast::hash(&bytes[..60]) != u32::from_be_bytes(array(bytes, 60)) {
            return Err(SegmentHeaderError::Damaged);
        }
        Ok(Self {
            log: LogId(array(bytes, 8)),
            number: SegmentNumber(u64::from_be_bytes(array(bytes, 24))),
            first_lsn: Lsn::new(u64::from_be_bytes(array(bytes, 32))).ok_or(SegmentHeaderError::Damaged)?,
            salt: Salt(array(bytes, 40)),
            previous_end: u64::from_be_bytes(array(bytes, 48)),
            prepared_bytes: u64::from(u32::from_be_bytes(array(bytes, 56))) * ALIGN,
        })
    }
}

/// `N` bytes at `at`, which the caller's format guarantees to be there.
pub(super) fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("N bytes were sliced")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header() -> SegmentHeader {
        SegmentHeader {
            log: LogId([7; 16]),
            number: SegmentNumber(3),
            first_lsn: Lsn::FIRST.plus(41),
            salt: Salt([9; 8]),
            previous_end: 1000,
            prepared_bytes: 4096,
        }
    }

    #[test]
    fn a_header_round_trips() {
        assert_eq!(SegmentHeader::decode(&header().encode()), Ok(header()));
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        for bit in 0..LEN * 8 {
            let mut bytes = header().encode();
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(SegmentHeader::decode(&bytes).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn zeros_are_blank_and_a_newer_version_is_named() {
        assert_eq!(SegmentHeader::decode(&[0; LEN]), Err(SegmentHeaderError::Blank));
        let mut bytes = header().encode();
        bytes[7] = 9;
        assert_eq!(SegmentHeader::decode(&bytes), Err(SegmentHeaderError::Newer { found: 9 }));
    }
}
