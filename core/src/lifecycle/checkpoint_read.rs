//! Reading a checkpoint from bytes that come in pieces of any size.

use super::checkpoint::{
    BLOCK_BYTES_MAX, BLOCK_HEAD_BYTES, BODY_BYTES_MAX, CHECKPOINT_FORMAT, CheckpointError, CheckpointHeader,
    CheckpointRule, MAGIC, Sorted, block_crc,
};
use super::history::{EPOCHS_MAX, EpochMark};
use crate::id::LogId;
use crate::record::{AuthorityId, RecordView, Version};
use alloc::format;
use alloc::vec::Vec;
use sha2::{Digest, Sha256};

/// Magic, format version and length of the body.
const HEAD_BYTES: usize = 16;
const COUNT_BYTES: usize = 8;
const CRC_BYTES: usize = 4;

/// What a checkpoint must be to be read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CheckpointLimits {
    /// The log it must belong to.
    pub log: LogId,
    /// Longest checkpoint.
    pub bytes_max: u64,
    /// Most records.
    pub records_max: u64,
}

impl CheckpointLimits {
    /// A checkpoint of `log` of any size, for files this replica wrote itself.
    #[must_use]
    pub const fn of(log: LogId) -> Self {
        Self { log, bytes_max: u64::MAX, records_max: u64::MAX }
    }
}

/// A part of a checkpoint, as it is read.
#[derive(Debug)]
pub enum CheckpointItem<'a> {
    /// The header; comes first, once.
    Header(&'a CheckpointHeader),
    /// A record; they come sorted by key, no key twice, none above the cut.
    Record {
        /// The record.
        view: RecordView<'a>,
        /// Its canonical bytes.
        canonical: &'a [u8],
    },
}

/// What a checkpoint was, once all of it was read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct CheckpointSummary {
    /// Its header.
    pub header: CheckpointHeader,
    /// How many records it holds.
    pub records: u64,
    /// Its length.
    pub bytes: u64,
    /// SHA-256 of its bytes.
    pub sha256: [u8; 32],
}

/// Reads a checkpoint as its bytes come, split anywhere. Holds at most one block.
///
/// Records are shown before the whole is known to be good: nothing built from them may count until
/// [`CheckpointReader::finish`] succeeds and its `sha256` is the one expected. An error is final.
#[derive(Debug)]
pub struct CheckpointReader {
    limits: CheckpointLimits,
    expects: Expects,
    part: Vec<u8>,
    /// Where the part that is expected begins.
    offset: u64,
    header: Option<CheckpointHeader>,
    sorted: Sorted,
    records: u64,
    hash: Sha256,
    failed: Option<CheckpointError>,
}

/// Which part comes next.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Expects {
    Head,
    Body { bytes: usize },
    BlockHead,
    Block { bytes: usize, crc: u32 },
    Count { crc: u32 },
    Nothing,
}

impl Expects {
    const fn bytes(self) -> usize {
        match self {
            Self::Head => HEAD_BYTES,
            Self::Body { bytes } => bytes + CRC_BYTES,
            Self::BlockHead => BLOCK_HEAD_BYTES,
            Self::Block { bytes, .. } => bytes,
            Self::Count { .. } => COUNT_BYTES,
            Self::Nothing => 0,
        }
    }
}

/// Sees the parts of a checkpoint; an error of it ends the reading.
pub type Visit<'v> = dyn FnMut(CheckpointItem<'_>) -> Result<(), CheckpointError> + 'v;

impl CheckpointReader {
    /// Expects a whole checkpoint within `limits`.
    #[must_use]
    pub fn new(limits: CheckpointLimits) -> Self {
        Self {
            limits,
            expects: Expects::Head,
            part: Vec::new(),
            offset: 0,
            header: None,
            sorted: Sorted::new(Version::ZERO),
            records: 0,
            hash: Sha256::new(),
            failed: None,
        }
    }

    /// Takes the next bytes and shows `visit` every part they complete.
    ///
    /// # Errors
    /// The bytes break a rule or a limit, or `visit` refuses a part. Every later call gives the same
    /// error.
    pub fn push(&mut self, bytes: &[u8], visit: &mut Visit<'_>) -> Result<(), CheckpointError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        self.hash.update(bytes);
        self.take_parts(bytes, visit).inspect_err(|error| self.failed = Some(error.clone()))
    }

    fn take_parts(&mut self, mut bytes: &[u8], visit: &mut Visit<'_>) -> Result<(), CheckpointError> {
        while !bytes.is_empty() {
            if self.expects == Expects::Nothing {
                return Err(self.error(CheckpointRule::Trailing, "none", format!("{} or more", bytes.len())));
            }
            let wanted = self.expects.bytes() - self.part.len();
            let (now, rest) = bytes.split_at(wanted.min(bytes.len()));
            bytes = rest;
            if self.part.is_empty() && now.len() == wanted {
                self.take_part(now, visit)?;
            } else {
                self.part.extend_from_slice(now);
                if now.len() == wanted {
                    let part = core::mem::take(&mut self.part);
                    self.take_part(&part, visit)?;
                    self.part = part;
                    self.part.clear();
                }
            }
        }
        Ok(())
    }

    fn take_part(&mut self, part: &[u8], visit: &mut Visit<'_>) -> Result<(), CheckpointError> {
        let end = self.offset + part.len() as u64;
        if end > self.limits.bytes_max {
            let expected = format!("at most {} bytes", self.limits.bytes_max);
            return Err(self.error(CheckpointRule::Limit, expected, format!("at least {end}")));
        }
        self.expects = match self.expects {
            Expects::Head => self.take_head(part)?,
            Expects::Body { .. } => self.take_body(part, visit)?,
            Expects::BlockHead => self.take_block_head(part)?,
            Expects::Block { crc, .. } => self.take_block(part, crc, visit)?,
            Expects::Count { crc } => self.take_count(part, crc)?,
            Expects::Nothing => Expects::Nothing,
        };
        self.offset = end;
        Ok(())
    }

    fn take_head(&self, part: &[u8]) -> Result<Expects, CheckpointError> {
        let (magic, numbers) = part.split_at(MAGIC.len());
        if magic != MAGIC {
            let found = magic.escape_ascii();
            return Err(self.error(CheckpointRule::Magic, MAGIC.escape_ascii(), found));
        }
        let (format, bytes) = (u32_at(numbers, 0), u32_at(numbers, 4));
        if format != CHECKPOINT_FORMAT {
            return Err(self.error(CheckpointRule::Format, CHECKPOINT_FORMAT, format));
        }
        if bytes > BODY_BYTES_MAX {
            let expected = format!("a header of at most {BODY_BYTES_MAX} bytes");
            return Err(self.error(CheckpointRule::Limit, expected, bytes));
        }
        Ok(Expects::Body { bytes: bytes as usize })
    }

    fn take_body(&mut self, part: &[u8], visit: &mut Visit<'_>) -> Result<Expects, CheckpointError> {
        let (body, crc) = part.split_at(part.len() - CRC_BYTES);
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(MAGIC);
        hasher.update(&CHECKPOINT_FORMAT.to_be_bytes());
        hasher.update(&u32::try_from(body.len()).expect("limited").to_be_bytes());
        hasher.update(body);
        self.check_crc(CheckpointRule::Header, u32_at(crc, 0), hasher.finalize())?;
        let header = parse_body(body).ok_or_else(|| {
            self.error(CheckpointRule::Header, "a body this format writes", "other bytes with a good CRC")
        })?;
        if header.log != self.limits.log {
            return Err(self.error(CheckpointRule::Log, self.limits.log, header.log));
        }
        self.sorted = Sorted::new(header.cut);
        visit(CheckpointItem::Header(&header))?;
        self.header = Some(header);
        Ok(Expects::BlockHead)
    }

    fn take_block_head(&self, part: &[u8]) -> Result<Expects, CheckpointError> {
        let (bytes, crc) = (u32_at(part, 0) as usize, u32_at(part, 4));
        if bytes > BLOCK_BYTES_MAX {
            let expected = format!("a block of at most {BLOCK_BYTES_MAX} bytes");
            return Err(self.error(CheckpointRule::Block, expected, bytes));
        }
        Ok(if bytes == 0 { Expects::Count { crc } } else { Expects::Block { bytes, crc } })
    }

    fn take_block(
        &mut self,
        block: &[u8],
        crc: u32,
        visit: &mut Visit<'_>,
    ) -> Result<Expects, CheckpointError> {
        let length = u32::try_from(block.len()).expect("limited");
        self.check_crc(CheckpointRule::Block, crc, block_crc(length.to_be_bytes(), block))?;
        let mut rest = block;
        while !rest.is_empty() {
            let at = self.offset + (block.len() - rest.len()) as u64;
            let broken = |found: &dyn core::fmt::Display| {
                CheckpointError::new(CheckpointRule::Record, at, "a record's canonical bytes", found)
            };
            let canonical = take_sized(&mut rest).ok_or_else(|| broken(&"a length beyond its block"))?;
            let view = RecordView::parse(canonical).map_err(|error| broken(&error))?;
            self.sorted.admit((view.namespace, view.logical_key), view.version, at)?;
            if self.records == self.limits.records_max {
                let expected = format!("at most {} records", self.limits.records_max);
                return Err(CheckpointError::new(CheckpointRule::Limit, at, expected, "more"));
            }
            self.records += 1;
            visit(CheckpointItem::Record { view, canonical })?;
        }
        Ok(Expects::BlockHead)
    }

    fn take_count(&self, part: &[u8], crc: u32) -> Result<Expects, CheckpointError> {
        self.check_crc(CheckpointRule::End, crc, block_crc([0; 4], part))?;
        let count = u64::from_be_bytes(part.try_into().expect("eight bytes"));
        if count != self.records {
            return Err(self.error(CheckpointRule::Count, count, self.records));
        }
        Ok(Expects::Nothing)
    }

    /// What was read, once it is whole.
    ///
    /// # Errors
    /// The error of [`CheckpointReader::push`], or the bytes end before the checkpoint does.
    pub fn finish(self) -> Result<CheckpointSummary, CheckpointError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        match (self.expects, self.header) {
            (Expects::Nothing, Some(header)) => Ok(CheckpointSummary {
                header,
                records: self.records,
                bytes: self.offset,
                sha256: self.hash.finalize().into(),
            }),
            (expects, _) => Err(CheckpointError::new(
                CheckpointRule::End,
                self.offset,
                format!("{} more bytes", expects.bytes()),
                format!("{}, then nothing", self.part.len()),
            )),
        }
    }

    fn check_crc(&self, rule: CheckpointRule, stored: u32, computed: u32) -> Result<(), CheckpointError> {
        if stored == computed {
            return Ok(());
        }
        let found = format!("CRC {computed:08x} of the bytes");
        Err(self.error(rule, format!("CRC {stored:08x} as stored"), found))
    }

    fn error(
        &self,
        rule: CheckpointRule,
        expected: impl core::fmt::Display,
        found: impl core::fmt::Display,
    ) -> CheckpointError {
        CheckpointError::new(rule, self.offset, expected, found)
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn take<'a>(rest: &mut &'a [u8], bytes: usize) -> Option<&'a [u8]> {
    let (taken, left) = rest.split_at_checked(bytes)?;
    *rest = left;
    Some(taken)
}

fn take_sized<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let bytes = take(rest, 4)?;
    take(rest, u32_at(bytes, 0) as usize)
}

fn take_u64(rest: &mut &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(take(rest, 8)?.try_into().ok()?))
}

fn take_version(rest: &mut &[u8]) -> Option<Version> {
    Some(Version::new(take_u64(rest)?, take_u64(rest)?))
}

fn parse_body(mut rest: &[u8]) -> Option<CheckpointHeader> {
    let rest = &mut rest;
    let log = LogId(take(rest, 16)?.try_into().ok()?);
    let cut = take_version(rest)?;
    let cut_digest = take(rest, 32)?.try_into().ok()?;
    let count = u32_at(take(rest, 4)?, 0) as usize;
    if count > EPOCHS_MAX {
        return None;
    }
    let mut epochs = Vec::with_capacity(count);
    for _ in 0..count {
        let (epoch, start) = (take_u64(rest)?, take_version(rest)?);
        let authority = AuthorityId::from_text(core::str::from_utf8(take_sized(rest)?).ok()?);
        epochs.push(EpochMark { epoch, start, authority });
    }
    rest.is_empty().then_some(CheckpointHeader { log, cut, cut_digest, epochs })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::checkpoint::{CheckpointWriter, CheckpointWritten};
    use crate::record::{BlobKey, Key, Record, State};
    use proptest::prelude::*;

    const LOG: LogId = LogId([7; 16]);

    fn header() -> CheckpointHeader {
        let authority = AuthorityId::from_text("node-a");
        let epochs = alloc::vec![EpochMark { epoch: 1, start: Version::new(1, 1), authority }];
        CheckpointHeader { log: LOG, cut: Version::new(1, 99), cut_digest: [3; 32], epochs }
    }

    fn record(key: &[u8], sequence: u64) -> Record {
        let state = if sequence.is_multiple_of(2) {
            State::Deleted
        } else {
            State::Present { blob: BlobKey([5; 32]) }
        };
        Record {
            key: Key::from_parts(b"n", key).expect("short"),
            state,
            version: Version::new(1, sequence),
            authority: AuthorityId::from_text("node-a"),
        }
    }

    fn written(records: &[Record]) -> (Vec<u8>, CheckpointWritten) {
        let mut writer = CheckpointWriter::new(&header());
        for record in records {
            writer.push(record).expect("sorted");
        }
        let (_, bytes, written) = writer.finish();
        (bytes, written)
    }

    fn small() -> Vec<u8> {
        written(&[record(b"a", 1), record(b"b", 2)]).0
    }

    fn read(
        bytes: &[u8],
        piece: usize,
        limits: CheckpointLimits,
    ) -> Result<CheckpointSummary, CheckpointError> {
        let mut reader = CheckpointReader::new(limits);
        for piece in bytes.chunks(piece.max(1)) {
            reader.push(piece, &mut |_| Ok(()))?;
        }
        reader.finish()
    }

    fn broken(bytes: &[u8]) -> CheckpointRule {
        read(bytes, 7, CheckpointLimits::of(LOG)).expect_err("refused").rule
    }

    /// Bytes of a file whose only block holds `content`, with every CRC right.
    fn crafted(content: &[u8], count: u64) -> Vec<u8> {
        let mut bytes = written(&[]).0;
        bytes.truncate(bytes.len() - 16);
        for (length, part) in [(content.len() as u32, content), (0, &count.to_be_bytes())] {
            bytes.extend(length.to_be_bytes());
            bytes.extend(block_crc(length.to_be_bytes(), part).to_be_bytes());
            bytes.extend(part);
        }
        bytes
    }

    fn content(records: &[Record]) -> Vec<u8> {
        let mut out = Vec::new();
        for record in records {
            out.extend((record.canonical_bytes() as u32).to_be_bytes());
            record.encode_canonical(&mut out);
        }
        out
    }

    #[test]
    fn magic() {
        let mut bytes = small();
        bytes[0] ^= 1;
        assert_eq!(broken(&bytes), CheckpointRule::Magic);
    }

    #[test]
    fn newer_format() {
        let mut bytes = small();
        bytes[11] = 2;
        assert_eq!(broken(&bytes), CheckpointRule::Format);
    }

    #[test]
    fn header_limit() {
        let mut bytes = small();
        bytes[12] = 1;
        assert_eq!(broken(&bytes), CheckpointRule::Limit);
    }

    #[test]
    fn header_damaged() {
        let mut bytes = small();
        bytes[HEAD_BYTES + 40] ^= 1;
        assert_eq!(broken(&bytes), CheckpointRule::Header);
    }

    #[test]
    fn another_log() {
        let limits = CheckpointLimits::of(LogId([8; 16]));
        assert_eq!(read(&small(), 99, limits).expect_err("refused").rule, CheckpointRule::Log);
    }

    #[test]
    fn block_damaged() {
        let mut bytes = small();
        let at = bytes.len() - 40;
        bytes[at] ^= 1;
        assert_eq!(broken(&bytes), CheckpointRule::Block);
    }

    #[test]
    fn block_limit() {
        let mut bytes = written(&[]).0;
        let at = bytes.len() - 16;
        bytes[at] = 0xff;
        assert_eq!(broken(&bytes), CheckpointRule::Block);
    }

    #[test]
    fn record_beyond_its_block() {
        assert_eq!(broken(&crafted(&[0, 0, 0, 9, 1], 1)), CheckpointRule::Record);
    }

    #[test]
    fn record_not_canonical() {
        assert_eq!(broken(&crafted(&[0, 0, 0, 1, 1], 1)), CheckpointRule::Record);
    }

    #[test]
    fn keys_out_of_order() {
        let bytes = crafted(&content(&[record(b"b", 1), record(b"a", 2)]), 2);
        assert_eq!(broken(&bytes), CheckpointRule::Order);
    }

    #[test]
    fn a_key_twice() {
        let bytes = crafted(&content(&[record(b"a", 1), record(b"a", 2)]), 2);
        assert_eq!(broken(&bytes), CheckpointRule::Order);
    }

    #[test]
    fn a_record_above_the_cut() {
        assert_eq!(broken(&crafted(&content(&[record(b"a", 100)]), 1)), CheckpointRule::Cut);
    }

    #[test]
    fn another_count() {
        assert_eq!(broken(&crafted(&content(&[record(b"a", 1)]), 2)), CheckpointRule::Count);
    }

    #[test]
    fn end_damaged() {
        let mut bytes = small();
        *bytes.last_mut().expect("not empty") ^= 1;
        assert_eq!(broken(&bytes), CheckpointRule::End);
    }

    #[test]
    fn every_shorter_file_has_no_end() {
        let bytes = small();
        for end in 0..bytes.len() {
            assert_eq!(broken(&bytes[..end]), CheckpointRule::End, "{end}");
        }
    }

    #[test]
    fn trailing_bytes() {
        let mut bytes = small();
        bytes.push(0);
        assert_eq!(broken(&bytes), CheckpointRule::Trailing);
    }

    #[test]
    fn size_limits() {
        let bytes = small();
        let exact = CheckpointLimits { log: LOG, bytes_max: bytes.len() as u64, records_max: 2 };
        assert!(read(&bytes, 5, exact).is_ok());
        for limits in [
            CheckpointLimits { bytes_max: exact.bytes_max - 1, ..exact },
            CheckpointLimits { records_max: 1, ..exact },
        ] {
            assert_eq!(read(&bytes, 5, limits).expect_err("refused").rule, CheckpointRule::Limit);
        }
    }

    #[test]
    fn a_refusal_of_the_visitor_is_final() {
        let mut reader = CheckpointReader::new(CheckpointLimits::of(LOG));
        let refusal = CheckpointError::new(CheckpointRule::Use, 0, "nothing", "something");
        let refused = reader.push(&small(), &mut |_| Err(refusal.clone()));
        assert_eq!(refused, Err(refusal.clone()));
        assert_eq!(reader.push(&[], &mut |_| Ok(())), Err(refusal.clone()));
        assert_eq!(reader.finish(), Err(refusal));
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let bytes = small();
        for i in 0..bytes.len() * 8 {
            let mut bytes = bytes.clone();
            bytes[i / 8] ^= 1 << (i % 8);
            assert!(read(&bytes, 64, CheckpointLimits::of(LOG)).is_err(), "bit {i}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]
        #[test]
        fn what_was_written_is_read_in_pieces_of_any_size(
            keys in proptest::collection::btree_set(proptest::collection::vec(any::<u8>(), 1..1500), 0..300),
            piece in 1usize..5000,
        ) {
            let records: Vec<Record> =
                keys.iter().enumerate().map(|(i, key)| record(key, 1 + i as u64 % 99)).collect();
            let (bytes, written) = written(&records);
            let mut found = Vec::new();
            let mut headers = 0;
            let mut reader = CheckpointReader::new(CheckpointLimits::of(LOG));
            for piece in bytes.chunks(piece) {
                reader.push(piece, &mut |item| {
                    match item {
                        CheckpointItem::Header(_) => headers += 1,
                        CheckpointItem::Record { view, .. } => found.push(view.to_record()),
                    }
                    Ok(())
                })?;
            }
            let summary = reader.finish()?;
            prop_assert_eq!((headers, &found), (1, &records));
            let expected = CheckpointSummary {
                header: header(), records: written.records, bytes: written.bytes, sha256: written.sha256,
            };
            prop_assert_eq!(summary, expected);
        }
    }
}
