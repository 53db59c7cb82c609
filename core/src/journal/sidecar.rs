//! The envelope of a sidecar: a small file that is replaced as a whole.
//!
//! Big endian: magic (4), format version (4), payload length (4), CRC-32 (4) of the 12 bytes
//! before and the payload, payload. Nothing follows it.

use super::command::FileName;
use super::segment::array;
use crate::error::{StorageAction, StorageCause, StorageFault};
use alloc::format;
use alloc::vec::Vec;

/// Length of the envelope before the payload.
pub const HEADER_BYTES: usize = 16;

/// The envelope of one kind of sidecar.
///
/// ```
/// use strandline_core::journal::{command::FileName, sidecar::Envelope};
/// const ACKED: Envelope =
///     Envelope { file: FileName::Acked, magic: *b"SLAK", format: 1, payload_bytes_max: 1 << 20 };
/// let bytes = ACKED.encode(b"payload");
/// assert_eq!(ACKED.decode(&bytes), Ok(&b"payload"[..]));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Envelope {
    /// The file's name, for errors.
    pub file: FileName,
    /// What the file starts with. No two kinds share it.
    pub magic: [u8; 4],
    /// The format version written, and the highest that is read.
    pub format: u32,
    /// Longest payload.
    pub payload_bytes_max: u32,
}

impl Envelope {
    /// Puts a payload into the envelope.
    ///
    /// # Panics
    /// If the payload is longer than the limit: the caller's own limits must rule that out.
    #[must_use]
    pub fn encode(&self, payload: &[u8]) -> Vec<u8> {
        let len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
        assert!(len <= self.payload_bytes_max, "{}: payload of {len} bytes is over its limit", self.file);
        let mut out = Vec::with_capacity(HEADER_BYTES + payload.len());
        out.extend_from_slice(&self.magic);
        out.extend_from_slice(&self.format.to_be_bytes());
        out.extend_from_slice(&len.to_be_bytes());
        let crc = checksum(&out, payload);
        out.extend_from_slice(&crc.to_be_bytes());
        out.extend_from_slice(payload);
        out
    }

    /// The longest file that can be right; a reader asks for one byte more and no further.
    #[must_use]
    pub const fn bytes_max(&self) -> u64 {
        HEADER_BYTES as u64 + self.payload_bytes_max as u64
    }

    /// Takes the payload out.
    ///
    /// # Errors
    /// [`StorageCause::Newer`] for a version this program does not know, else
    /// [`StorageCause::Damaged`], each with what was expected and found.
    pub fn decode<'a>(&self, bytes: &'a [u8]) -> Result<&'a [u8], StorageFault> {
        let damaged = |offset, detail| StorageFault::damaged(self.file, offset, detail);
        let Some((header, payload)) = bytes.split_at_checked(HEADER_BYTES) else {
            let found = bytes.len();
            return Err(damaged(0, format!("expected {HEADER_BYTES} bytes or more, found {found}")));
        };
        if header[..4] != self.magic {
            let (want, found) = (self.magic.escape_ascii(), header[..4].escape_ascii());
            return Err(damaged(0, format!("expected {want}, found {found}")));
        }
        let format = u32::from_be_bytes(array(header, 4));
        if format > self.format {
            return Err(self.newer(format));
        }
        let len = u32::from_be_bytes(array(header, 8));
        if len > self.payload_bytes_max {
            let max = self.payload_bytes_max;
            return Err(damaged(8, format!("expected a payload of {max} bytes at most, found {len}")));
        }
        if payload.len() != len as usize {
            let found = payload.len();
            return Err(damaged(8, format!("expected a payload of {len} bytes, found {found}")));
        }
        let (want, found) = (u32::from_be_bytes(array(header, 12)), checksum(&header[..12], payload));
        if want != found {
            return Err(damaged(12, format!("expected CRC {want:08x}, found {found:08x}")));
        }
        if format != self.format {
            return Err(damaged(4, format!("expected format version {}, found {format}", self.format)));
        }
        Ok(payload)
    }

    fn newer(&self, found: u32) -> StorageFault {
        StorageFault {
            action: StorageAction::Decode,
            file: self.file.into(),
            offset: Some(4),
            cause: StorageCause::Newer,
            detail: format!("expected format version {} at most, found {found}", self.format),
        }
    }
}

fn checksum(header: &[u8], payload: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(header);
    hasher.update(payload);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: Envelope =
        Envelope { file: FileName::Members, magic: *b"TEST", format: 2, payload_bytes_max: 8 };

    #[test]
    fn every_flipped_bit_and_every_length_is_noticed() {
        let bytes = KIND.encode(b"payload");
        assert_eq!(KIND.decode(&bytes), Ok(&b"payload"[..]));
        for bit in 0..bytes.len() * 8 {
            let mut bad = bytes.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(KIND.decode(&bad).is_err(), "bit {bit}");
        }
        for len in 0..bytes.len() {
            assert!(KIND.decode(&bytes[..len]).is_err(), "length {len}");
        }
        let mut long = bytes;
        long.push(0);
        assert!(KIND.decode(&long).is_err());
    }

    #[test]
    fn a_newer_version_is_named() {
        let newer = Envelope { format: 3, ..KIND }.encode(b"");
        let fault = KIND.decode(&newer).unwrap_err();
        assert_eq!(fault.cause, StorageCause::Newer);
        assert_eq!(fault.detail, "expected format version 2 at most, found 3");
    }

    #[test]
    fn a_length_over_the_limit_is_refused_by_name() {
        let long = Envelope { payload_bytes_max: 9, ..KIND }.encode(&[0; 9]);
        assert_eq!(
            KIND.decode(&long).map_err(|e| e.detail),
            Err("expected a payload of 8 bytes at most, found 9".into())
        );
    }
}
