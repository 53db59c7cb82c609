//! Whether an entry that reaches beyond the end of the file was torn or damaged.
//!
//! A write that was torn leaves a prefix of what was to be written. So nothing whole can follow the
//! torn entry, and the entry itself cannot be whole under another length. Either is proof that its
//! length was damaged after it was written.

use super::super::envelope::{ENVELOPE_BYTES, checksum, lengths_with_sum};
use super::super::payload;
use crate::record::{RecordLimits, Version};

/// Most bytes summed while looking for proof, whatever the bytes claim. Honest files stay far below:
/// hardly any offset of a record's text reads as a length that fits.
pub(super) const PROOF_BYTES_MAX: u64 = 64 << 20;

/// What the bytes of an entry that reaches beyond the end of the file are.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Tail {
    /// A prefix of what was to be written, as far as anyone can tell.
    Torn,
    /// More was written: a whole entry starts at this offset of the tail.
    Damaged { at: usize },
    /// The work limit was reached first.
    Undecided,
}

/// Judges `tail`, which starts with the entry's length field and ends with the file. `last` is the
/// version before it.
pub(super) fn judge(tail: &[u8], last: Version, limits: &RecordLimits) -> Tail {
    if is_entry_of_another_length(tail, last, limits) {
        return Tail::Damaged { at: 0 };
    }
    let mut budget = PROOF_BYTES_MAX;
    for at in 1..tail.len() {
        let Some(text) = candidate(&tail[at..]) else {
            continue;
        };
        let Some(left) = budget.checked_sub(text.len() as u64) else {
            return Tail::Undecided;
        };
        budget = left;
        let end = at + 4 + text.len();
        if tail[end..end + 4] == checksum(text).to_be_bytes() && is_later(text, last, limits) {
            return Tail::Damaged { at };
        }
    }
    Tail::Torn
}

/// Whether `tail` starts with an entry that is whole but for its length.
fn is_entry_of_another_length(tail: &[u8], last: Version, limits: &RecordLimits) -> bool {
    let text = tail.get(4..).unwrap_or_default();
    let mut lengths = lengths_with_sum(text, b'}');
    lengths.any(|length| is_later(&text[..length], last, limits))
}

/// The payload that starts here, if the bytes can be an entry: the length fits, and what it spans
/// begins and ends as a record's JSON does. Cheap, because it is asked at every offset.
fn candidate(bytes: &[u8]) -> Option<&[u8]> {
    let (length, rest) = bytes.split_first_chunk::<4>()?;
    let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
    let text = rest.get(..length).filter(|text| rest.len() - text.len() >= ENVELOPE_BYTES - 4)?;
    (text.first() == Some(&b'{') && text.last() == Some(&b'}')).then_some(text)
}

fn is_later(text: &[u8], last: Version, limits: &RecordLimits) -> bool {
    payload::record(text, limits, None).is_ok_and(|record| record.version > last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compat::streamhive::envelope;
    use crate::record::State;
    use crate::wire::json_write::write_record;
    use alloc::vec::Vec;

    fn entry(sequence: u64) -> Vec<u8> {
        let limits = RecordLimits::default();
        let key = limits.key(b"documents", b"a").unwrap();
        let authority = limits.authority("node-a").unwrap();
        let record = limits.record(key, State::Deleted, Version::new(1, sequence), authority).unwrap();
        let (mut text, mut bytes) = (Vec::new(), Vec::new());
        write_record(&record, &mut text);
        envelope::put(&mut bytes, &text);
        bytes
    }

    fn judged(tail: &[u8]) -> Tail {
        judge(tail, Version::new(1, 1), &RecordLimits::default())
    }

    #[test]
    fn torn_is_every_prefix_of_an_entry() {
        let whole = entry(2);
        for end in 1..whole.len() {
            assert_eq!(judged(&whole[..end]), Tail::Torn, "{end}");
        }
    }

    #[test]
    fn damaged_is_a_length_with_its_own_entry_whole() {
        let mut tail = entry(2);
        tail[2] ^= 0x10;
        assert_eq!(judged(&tail), Tail::Damaged { at: 0 });
        tail.extend(&entry(3)[..9]);
        assert_eq!(judged(&tail), Tail::Damaged { at: 0 }, "a torn entry behind it changes nothing");
    }

    #[test]
    fn damaged_is_a_length_with_a_whole_entry_later() {
        let mut tail = entry(2);
        let first = tail.len();
        (tail[2], tail[20]) = (0x10, 0);
        tail.extend(entry(3));
        tail.extend(&entry(4)[..20]);
        assert_eq!(judged(&tail), Tail::Damaged { at: first });
    }

    #[test]
    fn torn_is_what_holds_an_older_entry_only() {
        let mut tail = Vec::from([0, 0, 0x10, 0]);
        tail.extend(entry(1));
        tail.push(0);
        assert_eq!(judged(&tail), Tail::Torn, "an entry at or below the last version proves nothing");
    }

    #[test]
    fn undecided_when_the_bytes_make_too_much_work() {
        let mut tail = Vec::new();
        for _ in 0..(96 << 10) / 8 {
            tail.extend([0, 0, 0x7f, 0xfa, b'{', b'}', b'}', b'}']);
        }
        assert_eq!(judged(&tail), Tail::Undecided);
    }
}
