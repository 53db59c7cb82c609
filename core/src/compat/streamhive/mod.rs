//! StreamHive v0.14: its files and its decisions, for import, export and comparing answers. None of
//! this is ever the live format.
//!
//! # Envelope
//! be32 length of the payload ‖ payload ‖ be32 CRC-32C (Castagnoli) of the payload. A length of 0 or
//! above the limit is refused before anything is allocated. ([`envelope`])
//!
//! # Journal
//! A header of 28 bytes: `SHLJ`, the format byte 1, three zero bytes, be64 floor epoch, be64 floor
//! sequence, be32 CRC-32C of the 24 bytes before. Then one envelope for every record, its payload the
//! record's JSON, at most `record_bytes_max` (64 KiB) long. Versions strictly increase from the floor.
//! At most 64 MiB and 65,536 entries. ([`journal`])
//!
//! What may follow the last whole entry: nothing; a prefix of an entry (torn: it was never
//! acknowledged); four or more zeros and nothing else. Anything else is damage, and so is a "torn"
//! entry whose length is the only thing wrong with it or that has a whole entry behind it.
//!
//! # Checkpoint
//! One envelope around `{"watermark":{"epoch":…,"sequence":…},"records":[…]}`. Records are sorted
//! bytewise by namespace, then logical key; each key once; none above the watermark; none at all at
//! watermark zero. At most 64 MiB. ([`checkpoint`])
//!
//! # Authority
//! One envelope around `{"authority_id":…,"version":{…}}`: the last version given out, its epoch at
//! least 1; sequence 0 means none of this epoch yet. At most 1 MiB. ([`authority`])
//!
//! # Membership
//! One envelope around `{"members":[…]}`, sorted bytewise, each once: 1,024 names of 1 to 128 bytes
//! of printable UTF-8, at most 1 MiB. A missing file is not the empty list. ([`membership`])
//!
//! # Watermarks
//! One envelope around `{"watermarks":{"<peer>":{"epoch":…,"sequence":…}}}`, names as above, sorted
//! bytewise; no mark is zero. At most 1 MiB. ([`watermarks`])
//!
//! # JSON
//! Written byte for byte as the reference does ([`crate::wire::json_write`]), read strictly
//! ([`crate::wire::json_read`]). A v1 file is never written in place: reading gives a value and a
//! report.
//!
//! # Where we answer otherwise
//! Two tables, printed by [`tables_markdown`]: [`Refusal`] (what the reference's JSON decoder
//! tolerates and we do not) and [`Improvement`] (what was measured to be wrong). A difference falls
//! under exactly one row, by a rule on the bytes.
//!
//! ```
//! use strandline_core::compat::streamhive::journal::{End, Journal, JournalLimits, Writer};
//! use strandline_core::record::{RecordLimits, State, Version};
//!
//! let (limits, of) = (JournalLimits::default(), RecordLimits::default());
//! let key = of.key(b"documents", b"readme.md")?;
//! let record = of.record(key, State::Deleted, Version::new(1, 1), of.authority("node-a")?)?;
//! let mut writer = Writer::new(Version::ZERO, limits)?;
//! writer.append(&record)?;
//!
//! let file = writer.into_bytes();
//! assert_eq!(Journal::decode(&file, &limits)?.records, [record]);
//! let torn = Journal::decode(&file[..file.len() - 1], &limits)?;
//! assert_eq!(torn.end, End::Torn { offset: 28, bytes: file.len() as u64 - 29 });
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod applier;
pub mod authority;
pub mod capability;
pub mod checkpoint;
pub mod compaction;
pub mod envelope;
pub mod handshake;
pub mod improvement;
pub mod journal;
pub mod membership;
pub mod migrate;
pub mod payload;
pub mod peer;
pub mod plan;
pub mod reference;
pub mod watermarks;

pub use improvement::Improvement;
pub use reference::ReferenceNames;

use crate::wire::json_read::Refusal;
use alloc::format;
use alloc::string::String;
use core::fmt;

/// The row under which the reference and we answer otherwise.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Rule {
    /// A leniency of its JSON decoder that we refuse.
    Refusal(Refusal),
    /// A finding that we answer better.
    Improvement(Improvement),
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refusal(refusal) => refusal.fmt(f),
            Self::Improvement(improvement) => improvement.fmt(f),
        }
    }
}

/// Where a refusal shows and how it is recognised.
const fn recognised(refusal: Refusal) -> &'static str {
    match refusal {
        Refusal::FoldedCase => "a field name that differs from the right one in case only, by Go's folding",
        Refusal::DuplicateName => "a field or map name that stood in the same object before",
        Refusal::Null => "`null` where a value belongs",
        Refusal::AbsentField => "a field that every writer writes is missing",
        Refusal::Unsorted => "keys, members or peers that do not ascend bytewise",
        Refusal::NumberArray => "an array of numbers for bytes",
        Refusal::LooseBase64 => "base64 with CR, LF or bits set after its end",
        Refusal::InvalidUtf8 => "a byte sequence that is not UTF-8",
        Refusal::LoneSurrogate => "an escaped half of a surrogate pair",
        Refusal::EmptyForAbsent => "an empty value in a field that is left out when empty",
        Refusal::UnknownField => "a field the object does not have (handshake messages skip it)",
        Refusal::ReservedByte => {
            "(j15) a byte of the journal header at 5, 6 or 7 that is not zero, under a right CRC"
        }
    }
}

/// Both tables of differences, as Markdown.
#[must_use]
pub fn tables_markdown() -> String {
    let mut out = String::from("| refusal | how it is recognised |\n|---|---|\n");
    for refusal in Refusal::ALL {
        out += &format!("| `{refusal}` | {} |\n", recognised(refusal));
    }
    out += "\n| improvement | finding | how it is recognised | the reference | we |\n|---|---|---|---|---|\n";
    for row in Improvement::ALL {
        let finding = row.finding().unwrap_or("vectors");
        let (rule, reference, answer) = (row.rule(), row.reference(), row.answer());
        out += &format!("| `{row}` | {finding} | {rule} | {reference} | {answer} |\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_hold_every_row_once() {
        let text = tables_markdown();
        let rules = Refusal::ALL.map(Rule::Refusal).into_iter();
        for rule in rules.chain(Improvement::ALL.map(Rule::Improvement)) {
            assert_eq!(text.matches(&format!("| `{rule}` |")).count(), 1, "{rule}");
        }
    }
}
