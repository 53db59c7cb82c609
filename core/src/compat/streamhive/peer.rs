//! Names of peers in membership and watermark files.

use crate::record::is_printable;
use alloc::borrow::ToOwned;
use alloc::string::String;
use core::fmt;

/// The name of a peer: printable UTF-8 without a length of its own to check again. Ordered bytewise.
#[derive(Clone, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct PeerName(String);

/// Why bytes are not the name of a peer.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PeerNameError {
    /// No bytes.
    #[error("peer name is empty: expected 1 to {bytes_max} bytes")]
    Empty {
        /// The limit.
        bytes_max: u32,
    },
    /// Too many bytes.
    #[error("peer name has {bytes} bytes: expected 1 to {bytes_max}")]
    TooLong {
        /// What was found.
        bytes: usize,
        /// The limit.
        bytes_max: u32,
    },
    /// Not UTF-8.
    #[error("peer name is not UTF-8 after its first {valid_bytes} bytes")]
    NotUtf8 {
        /// How many bytes are.
        valid_bytes: usize,
    },
    /// A character that does not print.
    #[error("peer name holds {character:?}, which does not print")]
    NotPrintable {
        /// The first such character.
        character: char,
    },
}

impl PeerName {
    /// Judges a name, in the order of [`PeerNameError`]. Printable means by the table records use.
    ///
    /// # Errors
    /// The first rule it breaks.
    pub fn parse(bytes: &[u8], bytes_max: u32) -> Result<Self, PeerNameError> {
        if bytes.is_empty() {
            return Err(PeerNameError::Empty { bytes_max });
        }
        if u32::try_from(bytes.len()).map_or(true, |found| found > bytes_max) {
            return Err(PeerNameError::TooLong { bytes: bytes.len(), bytes_max });
        }
        let text = core::str::from_utf8(bytes)
            .map_err(|error| PeerNameError::NotUtf8 { valid_bytes: error.valid_up_to() })?;
        match text.chars().find(|&character| !is_printable(character)) {
            Some(character) => Err(PeerNameError::NotPrintable { character }),
            None => Ok(Self(text.to_owned())),
        }
    }

    /// The name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PeerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty() {
        assert_eq!(PeerName::parse(b"", 8), Err(PeerNameError::Empty { bytes_max: 8 }));
    }

    #[test]
    fn too_long_counts_bytes() {
        let found = PeerName::parse("\u{e9}".repeat(5).as_bytes(), 8);
        assert_eq!(found, Err(PeerNameError::TooLong { bytes: 10, bytes_max: 8 }));
    }

    #[test]
    fn not_utf8() {
        assert_eq!(PeerName::parse(b"a\xff", 8), Err(PeerNameError::NotUtf8 { valid_bytes: 1 }));
    }

    #[test]
    fn not_printable() {
        assert_eq!(PeerName::parse(b"x\n", 8), Err(PeerNameError::NotPrintable { character: '\n' }));
    }

    #[test]
    fn spaces_and_other_scripts_are_fine() {
        assert_eq!(PeerName::parse("a \u{e9}".as_bytes(), 8).unwrap().as_str(), "a \u{e9}");
    }
}
