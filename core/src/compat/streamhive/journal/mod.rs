//! The v1 journal: a header, then an envelope for every record, versions strictly increasing from
//! the header's floor.

pub mod error;
pub mod header;
mod tail;

pub use error::JournalError;
pub use header::{HEADER_BYTES, HeaderError};

use super::Improvement;
use super::envelope::{self, ENVELOPE_BYTES, EnvelopeError};
use super::payload;
use crate::record::{Record, RecordLimits, Version};
use crate::wire::batch_builder::BatchBuilder;
use crate::wire::json_write::write_record;
use crate::wire::limits::RepairLimits;
use alloc::borrow::Cow;
use alloc::vec::Vec;
use tail::Tail;

/// Bounds of a v1 journal. The defaults are the reference's.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct JournalLimits {
    /// Of each record; its JSON bound is also the longest entry.
    pub record: RecordLimits,
    /// Longest file.
    pub journal_bytes_max: u64,
    /// Most entries.
    pub entries_max: u32,
    /// Of the repair message that must be able to carry each record appended.
    pub repair: RepairLimits,
}

impl Default for JournalLimits {
    fn default() -> Self {
        Self {
            record: RecordLimits::default(),
            journal_bytes_max: 64 << 20,
            entries_max: 65_536,
            repair: RepairLimits::default(),
        }
    }
}

/// What follows the last whole entry.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum End {
    /// Nothing.
    Clean,
    /// A prefix of an entry: it was never acknowledged.
    Torn {
        /// Where it starts.
        offset: u64,
        /// How long it is.
        bytes: u64,
    },
    /// Zeros, as some file systems leave behind a write that never happened.
    Zeros {
        /// Where they start.
        offset: u64,
        /// How many; at least 4 (up to 3 are a torn length).
        bytes: u64,
    },
}

impl End {
    /// The rule under which the reference answers otherwise, if there is one.
    #[must_use]
    pub const fn improvement(self) -> Option<Improvement> {
        match self {
            Self::Zeros { .. } => Some(Improvement::ZeroTail),
            Self::Clean | Self::Torn { .. } => None,
        }
    }
}

/// A v1 journal, read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Journal {
    /// What its entries follow: what was compacted away, or zero.
    pub floor: Version,
    /// Its entries, versions strictly increasing.
    pub records: Vec<Record>,
    /// What was found behind them.
    pub end: End,
}

impl Journal {
    /// The version of the last entry, or the floor.
    #[must_use]
    pub fn last(&self) -> Version {
        self.records.last().map_or(self.floor, |record| record.version)
    }

    /// Reads a whole file. It is never written in place: what is torn is reported in
    /// [`Journal::end`] and left where it is.
    ///
    /// Memory is bounded by the file's length and the entry limit, whatever its bytes claim.
    ///
    /// # Errors
    /// Anything but a clean end, a torn last entry, or trailing zeros.
    pub fn decode(file: &[u8], limits: &JournalLimits) -> Result<Self, JournalError> {
        check_length(file.len() as u64, limits)?;
        if file.is_empty() {
            return Err(JournalError::Empty);
        }
        let floor = header::decode(file)?;
        let mut journal = Self { floor, records: Vec::new(), end: End::Clean };
        let mut entries = 0u64;
        let mut last = floor;
        let mut at = HEADER_BYTES;
        while at < file.len() {
            let offset = at as u64;
            let text = match envelope::first(&file[at..], u64::from(limits.record.record_bytes_max)) {
                Ok(text) => text,
                Err(error) => {
                    journal.end = judge_end(&file[at..], offset, error, last, &limits.record)?;
                    break;
                }
            };
            let shared = journal.records.last().map(|record| &record.authority);
            let record = payload::record(text, &limits.record, shared)
                .map_err(|source| JournalError::Payload { offset, source })?;
            check_order(offset, last, record.version)?;
            last = record.version;
            entries += 1;
            if entries <= u64::from(limits.entries_max) {
                journal.records.push(record);
            }
            at += text.len() + ENVELOPE_BYTES;
        }
        check_entries(entries, limits)?;
        Ok(journal)
    }

    /// The file of this floor and these records, as the reference writes it.
    ///
    /// # Errors
    /// Whatever [`Writer::append`] refuses, but for what cannot be sent: that is in a log already.
    pub fn encode(&self, limits: &JournalLimits) -> Result<Vec<u8>, JournalError> {
        let mut writer = Writer::new(self.floor, *limits)?;
        for record in &self.records {
            writer.check_fits(record)?;
            writer.push(record);
        }
        Ok(writer.into_bytes())
    }
}

/// What stands at an entry's place that is no whole entry: the end of the journal, or damage.
fn judge_end(
    rest: &[u8],
    offset: u64,
    error: EnvelopeError,
    last: Version,
    limits: &RecordLimits,
) -> Result<End, JournalError> {
    let bytes = rest.len() as u64;
    match error {
        EnvelopeError::Empty { .. } if rest.iter().all(|&byte| byte == 0) => Ok(End::Zeros { offset, bytes }),
        EnvelopeError::Cut { expected, .. } => match tail::judge(rest, last, limits) {
            Tail::Torn => Ok(End::Torn { offset, bytes }),
            Tail::Damaged { at } => Err(JournalError::Damaged {
                offset,
                claimed: expected - ENVELOPE_BYTES as u64,
                left: bytes,
                proof: offset + at as u64,
            }),
            Tail::Undecided => Err(JournalError::Undecided { offset, bytes_max: tail::PROOF_BYTES_MAX }),
        },
        EnvelopeError::Empty { .. }
        | EnvelopeError::TooLong { .. }
        | EnvelopeError::Checksum { .. }
        | EnvelopeError::Trailing { .. } => Err(JournalError::Envelope { offset, source: error }),
    }
}

fn check_length(bytes: u64, limits: &JournalLimits) -> Result<(), JournalError> {
    let bytes_max = limits.journal_bytes_max;
    if bytes > bytes_max || bytes_max < HEADER_BYTES as u64 {
        return Err(JournalError::TooLong { bytes: bytes.max(HEADER_BYTES as u64), bytes_max });
    }
    Ok(())
}

fn check_entries(entries: u64, limits: &JournalLimits) -> Result<(), JournalError> {
    if entries > u64::from(limits.entries_max) {
        return Err(JournalError::TooMany { entries, entries_max: limits.entries_max });
    }
    Ok(())
}

fn check_order(offset: u64, previous: Version, found: Version) -> Result<(), JournalError> {
    if found > previous { Ok(()) } else { Err(JournalError::Order { offset, previous, found }) }
}

/// Whether a repair message of this record alone is within bounds.
fn check_sendable(record: &Record, limits: &RepairLimits) -> Result<(), JournalError> {
    BatchBuilder::new(Version::ZERO, *limits).push(record, false).map_err(JournalError::Unsendable)
}

/// A v1 journal being written: its bytes so far, and what may come next. Every record it takes can
/// be read again and sent.
#[derive(Clone, Debug)]
pub struct Writer {
    bytes: Vec<u8>,
    entries: u64,
    last: Version,
    limits: JournalLimits,
}

impl Writer {
    /// A journal whose entries will follow `floor`.
    ///
    /// # Errors
    /// The limit does not even hold a header.
    pub fn new(floor: Version, limits: JournalLimits) -> Result<Self, JournalError> {
        check_length(HEADER_BYTES as u64, &limits)?;
        Ok(Self { bytes: header::encode(floor).to_vec(), entries: 0, last: floor, limits })
    }

    /// Adds one entry. On an error nothing has changed.
    ///
    /// # Errors
    /// In this order: the version is not above the last one; the file would hold too many entries,
    /// or too many bytes; a repair message could not carry the record.
    pub fn append(&mut self, record: &Record) -> Result<(), JournalError> {
        self.check_fits(record)?;
        check_sendable(record, &self.limits.repair)?;
        self.push(record);
        Ok(())
    }

    fn check_fits(&self, record: &Record) -> Result<(), JournalError> {
        check_order(self.bytes.len() as u64, self.last, record.version)?;
        check_entries(self.entries + 1, &self.limits)?;
        check_length((self.bytes.len() + record.json_bytes() + ENVELOPE_BYTES) as u64, &self.limits)
    }

    fn push(&mut self, record: &Record) {
        let mut text = Vec::new();
        write_record(record, &mut text);
        envelope::put(&mut self.bytes, &text);
        self.entries += 1;
        self.last = record.version;
    }

    /// The file so far.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// How many entries it holds.
    #[must_use]
    pub const fn entries(&self) -> u64 {
        self.entries
    }

    /// The version of the last entry, or the floor.
    #[must_use]
    pub const fn last(&self) -> Version {
        self.last
    }

    /// The whole file.
    #[must_use]
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }
}

/// The bytes the reference leaves on disk when it opens `file`: a new header for an empty file, a
/// torn tail cut off (before it looks at the entry limit), else the file as it is.
#[must_use]
pub fn after_open<'a>(file: &'a [u8], limits: &JournalLimits) -> Cow<'a, [u8]> {
    if check_length(file.len() as u64, limits).is_err() {
        return Cow::Borrowed(file);
    }
    if file.is_empty() {
        return Cow::Owned(header::encode(Version::ZERO).to_vec());
    }
    let Ok(mut last) = header::decode_lenient(file) else {
        return Cow::Borrowed(file);
    };
    let mut at = HEADER_BYTES;
    while at < file.len() {
        let text = match envelope::first(&file[at..], u64::from(limits.record.record_bytes_max)) {
            Ok(text) => text,
            Err(EnvelopeError::Cut { .. }) => return Cow::Borrowed(&file[..at]),
            Err(_) => break,
        };
        match payload::record(text, &limits.record, None) {
            Ok(record) if record.version > last => last = record.version,
            // What we refuse for its leniency alone, the reference reads on past.
            Err(error) if error.rule().is_some() => {}
            Ok(_) | Err(_) => break,
        }
        at += text.len() + ENVELOPE_BYTES;
    }
    Cow::Borrowed(file)
}

#[cfg(test)]
mod tests {
    use super::super::ReferenceNames as _;
    use super::*;
    use crate::record::State;

    const LIMITS: JournalLimits = JournalLimits {
        record: RecordLimits {
            namespace_bytes_max: 128,
            logical_key_bytes_max: 60_000,
            authority_bytes_max: 128,
            record_bytes_max: 128 << 10,
        },
        journal_bytes_max: 1 << 20,
        entries_max: 4,
        repair: RepairLimits {
            records_max: 128,
            key_bytes_max: 64 << 10,
            record_json_bytes_max: 64 << 10,
            payload_bytes_max: 128 << 10,
        },
    };

    fn record(key: &[u8], sequence: u64) -> Record {
        let key = LIMITS.record.key(b"documents", key).unwrap();
        let authority = LIMITS.record.authority("node-a").unwrap();
        LIMITS.record.record(key, State::Deleted, Version::new(1, sequence), authority).unwrap()
    }

    /// A journal of entries 1 to `count`, and where each entry starts.
    fn file(count: u64) -> (Vec<u8>, Vec<usize>) {
        let mut writer = Writer::new(Version::ZERO, LIMITS).unwrap();
        let mut starts = Vec::new();
        for sequence in 1..=count {
            starts.push(writer.bytes().len());
            writer.append(&record(b"key", sequence)).unwrap();
        }
        (writer.into_bytes(), starts)
    }

    fn decode(file: &[u8]) -> Result<Journal, JournalError> {
        Journal::decode(file, &LIMITS)
    }

    #[test]
    fn clean_end() {
        let (bytes, _) = file(3);
        let journal = decode(&bytes).unwrap();
        assert_eq!((journal.records.len(), journal.end, journal.last()), (3, End::Clean, Version::new(1, 3)));
        assert_eq!(journal.encode(&LIMITS), Ok(bytes));
    }

    #[test]
    fn torn_end_keeps_every_whole_entry() {
        let (bytes, starts) = file(3);
        for end in starts[2] + 1..bytes.len() {
            let journal = decode(&bytes[..end]).unwrap();
            let (offset, left) = (starts[2] as u64, (end - starts[2]) as u64);
            assert_eq!((journal.records.len(), journal.end), (2, End::Torn { offset, bytes: left }));
            assert_eq!(after_open(&bytes[..end], &LIMITS), &bytes[..starts[2]]);
        }
    }

    #[test]
    fn finding_j3_zeros_at_the_end_are_torn_however_many() {
        let (mut bytes, _) = file(3);
        let offset = bytes.len() as u64;
        for zeros in 1..=4096 {
            bytes.push(0);
            let journal = decode(&bytes).unwrap();
            let torn = if zeros < 4 {
                End::Torn { offset, bytes: zeros }
            } else {
                End::Zeros { offset, bytes: zeros }
            };
            assert_eq!((journal.records.len(), journal.end), (3, torn));
        }
        bytes.push(1);
        assert!(matches!(decode(&bytes), Err(JournalError::Envelope { .. })), "zeros and then anything");
    }

    #[test]
    fn finding_a_a_damaged_length_is_never_a_torn_tail() {
        let (bytes, starts) = file(4);
        for start in starts {
            for bit in 0..32 {
                let mut bad = bytes.clone();
                bad[start + bit / 8] ^= 1 << (bit % 8);
                assert!(decode(&bad).is_err(), "entry at {start}, bit {bit}");
            }
        }
    }

    #[test]
    fn finding_j2_an_empty_file_is_no_journal_and_a_cut_header_says_so() {
        assert_eq!(decode(b""), Err(JournalError::Empty));
        let (bytes, _) = file(1);
        for end in 1..HEADER_BYTES {
            assert_eq!(decode(&bytes[..end]), Err(JournalError::Header(HeaderError::Cut { found: end })));
        }
    }

    #[test]
    fn checksum_names_the_entry() {
        let (mut bytes, starts) = file(3);
        bytes[starts[1] + 9] ^= 1;
        let refused = decode(&bytes).unwrap_err();
        assert_eq!(refused.offset(), Some(starts[1] as u64));
        assert_eq!(refused.reference_names(), ["ErrJournalChecksum"]);
    }

    #[test]
    fn order_is_judged_from_the_floor() {
        let mut writer = Writer::new(Version::new(1, 5), LIMITS).unwrap();
        assert!(matches!(writer.append(&record(b"key", 5)), Err(JournalError::Order { .. })));
        let (bytes, _) = file(1);
        let mut bad = header::encode(Version::new(1, 1)).to_vec();
        bad.extend_from_slice(&bytes[HEADER_BYTES..]);
        assert!(matches!(decode(&bad), Err(JournalError::Order { .. })));
    }

    #[test]
    fn finding_j11_too_many_entries_change_nothing_on_disk_here() {
        let (mut bytes, starts) = file(4);
        bytes.extend_from_slice(&[0, 0]);
        let limits = JournalLimits { entries_max: 3, ..LIMITS };
        let refused = Journal::decode(&bytes, &limits);
        assert_eq!(refused, Err(JournalError::TooMany { entries: 4, entries_max: 3 }));
        assert_eq!(after_open(&bytes, &limits).len(), bytes.len() - 2, "the reference cuts all the same");
        assert_eq!(starts.len(), 4);
    }

    #[test]
    fn too_long_and_too_many_are_refused_before_anything_is_added() {
        let (bytes, _) = file(2);
        let limits = JournalLimits { journal_bytes_max: bytes.len() as u64, entries_max: 3, ..LIMITS };
        let mut writer = Writer::new(Version::ZERO, limits).unwrap();
        writer.append(&record(b"key", 1)).unwrap();
        writer.append(&record(b"key", 2)).unwrap();
        assert!(matches!(writer.append(&record(b"key", 3)), Err(JournalError::TooLong { .. })));
        assert_eq!(writer.bytes(), bytes);
        let few = JournalLimits { entries_max: 1, ..LIMITS };
        assert!(matches!(Journal::decode(&bytes, &few), Err(JournalError::TooMany { .. })));
    }

    #[test]
    fn finding_i_a_record_that_cannot_be_sent_is_refused_at_append() {
        let mut writer = Writer::new(Version::ZERO, LIMITS).unwrap();
        let large = record(&[7; 60_000], 1);
        assert!(large.json_bytes() > 64 << 10);
        assert!(matches!(writer.append(&large), Err(JournalError::Unsendable(_))));
        assert_eq!((writer.entries(), writer.bytes().len()), (0, HEADER_BYTES));
        writer.append(&record(b"key", 1)).unwrap();
        let stored = Journal { floor: Version::ZERO, records: [large].to_vec(), end: End::Clean };
        let bytes = stored.encode(&LIMITS).unwrap();
        assert_eq!(decode(&bytes), Ok(stored), "what is in a log already is still read and written");
    }

    #[test]
    fn any_bytes_are_read_or_refused() {
        let (bytes, _) = file(3);
        for at in 0..bytes.len() {
            for flip in [1, 0x80, 0xff] {
                let mut bad = bytes.clone();
                bad[at] ^= flip;
                assert!(decode(&bad).is_err(), "byte {at} ^ {flip}");
                let _ = after_open(&bad, &LIMITS);
            }
        }
    }
}
