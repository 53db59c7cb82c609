//! The envelope around every v1 file's content and every v1 journal entry: be32 length of the
//! payload ‖ payload ‖ be32 CRC-32C (Castagnoli) of the payload.

use alloc::vec::Vec;
use crc::{CRC_32_ISCSI, Crc, Table};

static CASTAGNOLI: Crc<u32, Table<16>> = Crc::<u32, Table<16>>::new(&CRC_32_ISCSI);

/// Bytes an envelope adds to its payload.
pub const ENVELOPE_BYTES: usize = 8;

/// CRC-32C of `bytes`.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u32 {
    CASTAGNOLI.checksum(bytes)
}

/// The lengths at which a payload that starts with `bytes` would be followed by its own sum, whatever
/// its envelope says. Only lengths that end with the byte `last` are tried.
pub(super) fn lengths_with_sum(bytes: &[u8], last: u8) -> impl Iterator<Item = usize> {
    let mut digest = CASTAGNOLI.digest();
    bytes.iter().enumerate().filter_map(move |(at, byte)| {
        digest.update(core::slice::from_ref(byte));
        let sum = bytes.get(at + 1..at + 5).filter(|_| *byte == last)?;
        (sum == digest.clone().finalize().to_be_bytes()).then_some(at + 1)
    })
}

/// Why bytes are not the envelope they claim to be.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum EnvelopeError {
    /// The bytes end before the envelope does.
    #[error("envelope is cut: expected {expected} bytes, found {found}")]
    Cut {
        /// Bytes the envelope needs, as far as its length is known.
        expected: u64,
        /// Bytes that are there.
        found: u64,
    },
    /// A payload of no bytes, which nobody writes.
    #[error("envelope length is 0: expected 1 to {payload_bytes_max}")]
    Empty {
        /// The limit.
        payload_bytes_max: u64,
    },
    /// A payload longer than the limit.
    #[error("envelope length is {found}: expected 1 to {payload_bytes_max}")]
    TooLong {
        /// The length it claims.
        found: u64,
        /// The limit.
        payload_bytes_max: u64,
    },
    /// The payload is not what was written.
    #[error("envelope CRC-32C is {found:08x}: expected {expected:08x}")]
    Checksum {
        /// The sum of the payload that is there.
        expected: u32,
        /// The sum the envelope carries.
        found: u32,
    },
    /// Bytes after the envelope that must be the last thing in the file.
    #[error("{bytes} bytes follow the envelope: expected none")]
    Trailing {
        /// How many.
        bytes: u64,
    },
}

/// Appends an envelope around `payload`.
///
/// # Panics
/// On a payload of 4 GiB or more; every limit of this format is far below that.
pub fn put(out: &mut Vec<u8>, payload: &[u8]) {
    let length = u32::try_from(payload.len()).expect("a payload below 4 GiB");
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(payload);
    out.extend_from_slice(&checksum(payload).to_be_bytes());
}

/// The payload of the envelope that `bytes` start with; it and [`ENVELOPE_BYTES`] are its length.
/// A payload length of 0 or above the limit is refused before anything else is looked at.
pub fn first(bytes: &[u8], payload_bytes_max: u64) -> Result<&[u8], EnvelopeError> {
    let found = bytes.len() as u64;
    let Some((length, rest)) = bytes.split_first_chunk::<4>() else {
        return Err(EnvelopeError::Cut { expected: ENVELOPE_BYTES as u64 + 1, found });
    };
    let length = u64::from(u32::from_be_bytes(*length));
    if length == 0 {
        return Err(EnvelopeError::Empty { payload_bytes_max });
    }
    if length > payload_bytes_max {
        return Err(EnvelopeError::TooLong { found: length, payload_bytes_max });
    }
    let cut = EnvelopeError::Cut { expected: length + ENVELOPE_BYTES as u64, found };
    let (payload, rest) =
        usize::try_from(length).ok().and_then(|length| rest.split_at_checked(length)).ok_or(cut)?;
    let sum = rest.first_chunk::<4>().ok_or(cut)?;
    let (expected, found) = (checksum(payload), u32::from_be_bytes(*sum));
    if expected != found {
        return Err(EnvelopeError::Checksum { expected, found });
    }
    Ok(payload)
}

/// The payload of the one envelope that is all of `bytes`.
pub fn whole(bytes: &[u8], payload_bytes_max: u64) -> Result<&[u8], EnvelopeError> {
    let payload = first(bytes, payload_bytes_max)?;
    let trailing = bytes.len() - payload.len() - ENVELOPE_BYTES;
    if trailing > 0 {
        return Err(EnvelopeError::Trailing { bytes: trailing as u64 });
    }
    Ok(payload)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        put(&mut bytes, payload);
        bytes
    }

    #[test]
    fn the_check_value_of_the_algorithm() {
        assert_eq!(checksum(b"123456789"), 0xe306_9283);
    }

    #[test]
    fn what_is_put_is_found() {
        assert_eq!(whole(&sealed(b"{}"), 2), Ok(&b"{}"[..]));
    }

    #[test]
    fn cut_at_every_byte() {
        let bytes = sealed(b"abc");
        for end in 0..bytes.len() {
            assert!(matches!(first(&bytes[..end], 9), Err(EnvelopeError::Cut { .. })), "{end}");
        }
    }

    #[test]
    fn the_length_is_judged_before_the_bytes_are_there() {
        assert_eq!(first(&[0; 4], 9), Err(EnvelopeError::Empty { payload_bytes_max: 9 }));
        let too_long = EnvelopeError::TooLong { found: u64::from(u32::MAX), payload_bytes_max: 9 };
        assert_eq!(first(&[0xff; 4], 9), Err(too_long));
    }

    #[test]
    fn any_flipped_bit_of_payload_or_sum_is_seen() {
        let good = sealed(b"abc");
        for bit in 32..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(whole(&bad, 9), Err(EnvelopeError::Checksum { .. })), "bit {bit}");
        }
    }

    #[test]
    fn nothing_may_follow_a_whole_file() {
        let mut bytes = sealed(b"abc");
        bytes.push(0);
        assert_eq!(whole(&bytes, 9), Err(EnvelopeError::Trailing { bytes: 1 }));
    }
}
