//! The leniencies of the reference's JSON decoder that we refuse.

use core::fmt;

/// A leniency of the reference that we refuse, because two parsers that disagree about a message are
/// a hole. Everything the reference can write decodes; these are things it only reads.
///
/// A decoder that refuses what the reference accepts names one of these; the conformance tests judge
/// differences by it.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Refusal {
    /// A field name in another case, or with a letter that folds to the right one.
    FoldedCase,
    /// A field name twice in one object.
    DuplicateName,
    /// `null` where a value belongs.
    Null,
    /// A field that is always written is not there.
    AbsentField,
    /// Entries that are always written sorted are not.
    Unsorted,
    /// Bytes as an array of numbers.
    NumberArray,
    /// Base64 with line breaks or stray bits after its end.
    LooseBase64,
    /// Bytes that are not UTF-8.
    InvalidUtf8,
    /// Half of a surrogate pair as an escape.
    LoneSurrogate,
    /// An empty value where the field is left out when empty.
    EmptyForAbsent,
    /// A field the message does not have.
    UnknownField,
    /// A reserved byte that is not zero.
    ReservedByte,
}

impl Refusal {
    /// Every refusal, in the order of the design's list.
    pub const ALL: [Self; 12] = [
        Self::FoldedCase,
        Self::DuplicateName,
        Self::Null,
        Self::AbsentField,
        Self::Unsorted,
        Self::NumberArray,
        Self::LooseBase64,
        Self::InvalidUtf8,
        Self::LoneSurrogate,
        Self::EmptyForAbsent,
        Self::UnknownField,
        Self::ReservedByte,
    ];

    /// Its name in tables and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::FoldedCase => "folded-case",
            Self::DuplicateName => "duplicate-name",
            Self::Null => "null",
            Self::AbsentField => "absent-field",
            Self::Unsorted => "unsorted",
            Self::NumberArray => "number-array",
            Self::LooseBase64 => "loose-base64",
            Self::InvalidUtf8 => "invalid-utf8",
            Self::LoneSurrogate => "lone-surrogate",
            Self::EmptyForAbsent => "empty-for-absent",
            Self::UnknownField => "unknown-field",
            Self::ReservedByte => "reserved-byte",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    #[test]
    fn names_are_distinct() {
        let names: BTreeSet<_> = Refusal::ALL.iter().map(|r| r.name()).collect();
        assert_eq!(names.len(), Refusal::ALL.len());
    }
}
