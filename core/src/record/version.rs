//! The total order of mutations.

use core::fmt;

/// Token given to a mutation by its authority: ordered by epoch, then by sequence.
/// (0,0) is "nothing yet".
#[derive(Clone, Copy, Debug, Default, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Version {
    /// Term of the authority.
    pub epoch: u64,
    /// Number within the term.
    pub sequence: u64,
}

impl Version {
    /// "Nothing yet": below every version a record can have.
    pub const ZERO: Self = Self { epoch: 0, sequence: 0 };

    /// A version from its two parts.
    #[must_use]
    pub const fn new(epoch: u64, sequence: u64) -> Self {
        Self { epoch, sequence }
    }

    /// Whether this is "nothing yet".
    #[must_use]
    pub const fn is_zero(self) -> bool {
        self.epoch == 0 && self.sequence == 0
    }

    /// Reads the text `EPOCH.SEQUENCE` that [`fmt::Display`] writes; anything else, leading zeros and
    /// signs included, is `None`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (epoch, sequence) = text.split_once('.')?;
        let number = |digits: &str| {
            let plain =
                digits.bytes().all(|b| b.is_ascii_digit()) && (digits == "0" || !digits.starts_with('0'));
            digits.parse().ok().filter(|_| plain)
        };
        Some(Self::new(number(epoch)?, number(sequence)?))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.epoch, self.sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn the_text_of_a_version_is_read_back_and_nothing_else_is() {
        for version in [Version::ZERO, Version::new(1, 7), Version::new(u64::MAX, u64::MAX)] {
            assert_eq!(Version::parse(&version.to_string()), Some(version));
        }
        for text in
            ["", ".", "1", "1.", ".1", "+1.2", "1.-2", "01.2", "1.02", "1.2.3", "18446744073709551616.0"]
        {
            assert_eq!(Version::parse(text), None, "{text:?}");
        }
    }
}
