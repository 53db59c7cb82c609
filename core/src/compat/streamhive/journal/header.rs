//! The 28 bytes a v1 journal starts with: `SHLJ`, the format 1, three zero bytes, be64 floor epoch,
//! be64 floor sequence, be32 CRC-32C of the 24 bytes before.

use super::super::Rule;
use super::super::envelope::checksum;
use crate::record::Version;
use crate::wire::json_read::Refusal;

/// Length of the header.
pub const HEADER_BYTES: usize = 28;

const MAGIC: [u8; 4] = *b"SHLJ";
const FORMAT: u8 = 1;

/// Why bytes are not a journal's header.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum HeaderError {
    /// The file ends inside its header: it was cut while being created and never held an entry.
    #[error("has {found} bytes: expected 28; a file cut here never held an entry")]
    Cut {
        /// Length of the file.
        found: usize,
    },
    /// Not a v1 journal.
    #[error("magic is {found:02x?}: expected {MAGIC:02x?}")]
    Magic {
        /// What was found.
        found: [u8; 4],
    },
    /// Another format of the same system.
    #[error("format is {found}: expected {FORMAT}")]
    Format {
        /// What was found.
        found: u8,
    },
    /// The header is not what was written.
    #[error("CRC-32C is {found:08x}: expected {expected:08x}")]
    Checksum {
        /// The sum of the bytes that are there.
        expected: u32,
        /// The sum the header carries.
        found: u32,
    },
    /// A reserved byte is in use, by something that is not this format.
    #[error("reserved byte {offset} is {found}: expected 0")]
    Reserved {
        /// Which byte.
        offset: usize,
        /// What was found.
        found: u8,
    },
}

impl HeaderError {
    /// The rule under which the reference answers otherwise: it reads over reserved bytes.
    #[must_use]
    pub const fn rule(&self) -> Option<Rule> {
        match self {
            Self::Reserved { .. } => Some(Rule::Refusal(Refusal::ReservedByte)),
            Self::Cut { .. } | Self::Magic { .. } | Self::Format { .. } | Self::Checksum { .. } => None,
        }
    }

    pub(super) const fn reference_name(&self) -> &'static str {
        match self {
            Self::Checksum { .. } => "ErrJournalChecksum",
            Self::Cut { .. } | Self::Magic { .. } | Self::Format { .. } | Self::Reserved { .. } => {
                "ErrJournalCorrupt"
            }
        }
    }
}

/// The header of a journal whose entries follow `floor`.
#[must_use]
pub fn encode(floor: Version) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..4].copy_from_slice(&MAGIC);
    header[4] = FORMAT;
    header[8..16].copy_from_slice(&floor.epoch.to_be_bytes());
    header[16..24].copy_from_slice(&floor.sequence.to_be_bytes());
    let sum = checksum(&header[..24]);
    header[24..].copy_from_slice(&sum.to_be_bytes());
    header
}

/// Reads the header `file` starts with, and gives the floor. Checked in the order of
/// [`HeaderError`].
///
/// # Errors
/// The first rule it breaks.
pub fn decode(file: &[u8]) -> Result<Version, HeaderError> {
    let floor = decode_lenient(file)?;
    match file[5..8].iter().position(|&byte| byte != 0) {
        Some(at) => Err(HeaderError::Reserved { offset: 5 + at, found: file[5 + at] }),
        None => Ok(floor),
    }
}

/// As [`decode`], reading over reserved bytes as the reference does.
pub(super) fn decode_lenient(file: &[u8]) -> Result<Version, HeaderError> {
    let header = file.first_chunk::<HEADER_BYTES>().ok_or(HeaderError::Cut { found: file.len() })?;
    let four = |at: usize| [header[at], header[at + 1], header[at + 2], header[at + 3]];
    if four(0) != MAGIC {
        return Err(HeaderError::Magic { found: four(0) });
    }
    if header[4] != FORMAT {
        return Err(HeaderError::Format { found: header[4] });
    }
    let (expected, found) = (checksum(&header[..24]), u32::from_be_bytes(four(24)));
    if expected != found {
        return Err(HeaderError::Checksum { expected, found });
    }
    let eight = |at: usize| {
        u64::from(u32::from_be_bytes(four(at))) << 32 | u64::from(u32::from_be_bytes(four(at + 4)))
    };
    Ok(Version::new(eight(8), eight(16)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOOR: Version = Version::new(7, u64::MAX - 1);

    fn changed(at: usize, to: u8, seal: bool) -> HeaderError {
        let mut header = encode(FLOOR);
        header[at] = to;
        if seal {
            let sum = checksum(&header[..24]);
            header[24..].copy_from_slice(&sum.to_be_bytes());
        }
        decode(&header).unwrap_err()
    }

    #[test]
    fn the_floor_survives() {
        assert_eq!(decode(&encode(FLOOR)), Ok(FLOOR));
    }

    #[test]
    fn cut() {
        for end in 0..HEADER_BYTES {
            assert_eq!(decode(&encode(FLOOR)[..end]), Err(HeaderError::Cut { found: end }));
        }
    }

    #[test]
    fn magic() {
        assert_eq!(changed(0, b's', true), HeaderError::Magic { found: *b"sHLJ" });
    }

    #[test]
    fn format() {
        assert_eq!(changed(4, 2, true), HeaderError::Format { found: 2 });
    }

    #[test]
    fn sum() {
        assert!(matches!(changed(15, 0, false), HeaderError::Checksum { .. }));
        assert!(matches!(changed(6, 1, false), HeaderError::Checksum { .. }), "before the reserved bytes");
    }

    #[test]
    fn finding_j15_reserved_bytes_are_checked() {
        for at in 5..8 {
            assert_eq!(changed(at, 1, true), HeaderError::Reserved { offset: at, found: 1 });
        }
    }
}
