//! Identities: of positions, links, logs, incarnations and runs.

use alloc::string::String;
use core::fmt;
use core::num::NonZeroU64;

/// Position of an entry in a journal. The first entry has LSN 1; every entry takes the next one.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Lsn(NonZeroU64);

impl Lsn {
    /// The LSN of a journal's first entry.
    pub const FIRST: Self = Self(NonZeroU64::MIN);

    /// `None` for zero, which no entry has.
    #[must_use]
    pub const fn new(value: u64) -> Option<Self> {
        match NonZeroU64::new(value) {
            Some(v) => Some(Self(v)),
            None => None,
        }
    }

    /// The number itself, at least 1.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0.get()
    }

    /// The LSN `count` entries later.
    ///
    /// # Panics
    /// Past 2^64 entries, which no disk can hold.
    #[must_use]
    pub const fn plus(self, count: u64) -> Self {
        match self.0.checked_add(count) {
            Some(v) => Self(v),
            None => panic!("2^64 journal entries"),
        }
    }

    /// The entry before this one; `None` for the first.
    #[must_use]
    pub const fn before(self) -> Option<Self> {
        Self::new(self.get() - 1)
    }
}

impl fmt::Display for Lsn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// One run of a process's tickets. Unique across restarts of one directory.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct Run(pub u64);

/// A live link: slot and use count, so that a closed link can never name its successor.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct LinkId {
    /// Position in the link table.
    pub slot: u32,
    /// How often the slot has been used.
    pub uses: u32,
}

impl fmt::Display for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.slot, self.uses)
    }
}

/// Writes `bytes` as lower-case hexadecimal.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len() * 2);
    for b in bytes {
        for nibble in [b >> 4, b & 15] {
            out.push(char::from_digit(u32::from(nibble), 16).expect("a nibble"));
        }
    }
    out
}

/// Reads exactly `N` bytes of hexadecimal, lower case only; anything else is `None`.
#[must_use]
pub fn unhex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let digits = text.as_bytes();
    if digits.len() != 2 * N {
        return None;
    }
    let nibble = |d: u8| match d {
        b'0'..=b'9' => Some(d - b'0'),
        b'a'..=b'f' => Some(d - b'a' + 10),
        _ => None,
    };
    let mut out = [0; N];
    for (byte, pair) in out.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
    }
    Some(out)
}

/// One authority lineage of records, fixed when the log is created.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct LogId(pub [u8; 16]);

impl LogId {
    /// Reads 32 lower-case hexadecimal digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        unhex(text).map(Self)
    }

    /// The ID space of the log's versions, as cursors name it: its first 12 bytes, as many as an
    /// incarnation has.
    #[must_use]
    pub const fn id_space(self) -> [u8; 12] {
        let mut space = [0; 12];
        let mut at = 0;
        while at < space.len() {
            space[at] = self.0[at];
            at += 1;
        }
        space
    }
}

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LogId({self})")
    }
}

/// Identity of one life of a replica's data: a counter and a random nonce. A restored backup or a
/// wiped and refilled directory is another incarnation under the same name.
#[derive(Clone, Copy, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Incarnation {
    /// Grows by one each time the same data gets a new life.
    pub counter: u32,
    /// Random, so that two lives with one counter differ.
    pub nonce: [u8; 8],
}

impl Incarnation {
    /// Counter (big endian) and nonce, as the capability carries them.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 12] {
        let mut out = [0; 12];
        out[..4].copy_from_slice(&self.counter.to_be_bytes());
        out[4..].copy_from_slice(&self.nonce);
        out
    }

    /// The inverse of [`Incarnation::to_bytes`].
    #[must_use]
    pub fn from_bytes(bytes: [u8; 12]) -> Self {
        let (counter, nonce) = bytes.split_at(4);
        Self {
            counter: u32::from_be_bytes(counter.try_into().expect("four bytes")),
            nonce: nonce.try_into().expect("eight bytes"),
        }
    }

    /// Reads 24 lower-case hexadecimal digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        unhex(text).map(Self::from_bytes)
    }
}

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.to_bytes()))
    }
}

impl fmt::Debug for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Incarnation({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hex_round_trips_and_refuses_upper_case() {
        assert_eq!(unhex::<2>("0aff"), Some([10, 255]));
        assert_eq!(unhex::<2>("0AFF"), None);
        assert_eq!(unhex::<2>("0af"), None);
        let inc = Incarnation { counter: 7, nonce: [1; 8] };
        assert_eq!(Incarnation::parse(&alloc::format!("{inc}")), Some(inc));
    }

    #[test]
    fn lsn_starts_at_one() {
        assert_eq!(Lsn::new(0), None);
        assert_eq!(Lsn::FIRST.before(), None);
        assert_eq!(Lsn::FIRST.plus(2).get(), 3);
    }
}
