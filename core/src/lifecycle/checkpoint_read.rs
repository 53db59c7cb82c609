//! Reading a checkpoint from bytes that come in pieces of any size.

use super::checkpoint::{
    BLOCK_BYTES_MAX, BLOCK_HEAD_BYTES, CheckpointError, CheckpointRule, Sorted, block_crc,
};
use super::checkpoint_header::{
    BODY_BYTES_MAX, CHECKPOINT_FORMAT, CheckpointHeader, EPOCH_AUTHORITY_BYTES_MAX, MAGIC, check_header,
    parse_body, take_sized, u32_at,
};
use crate::id::LogId;
use crate::record::{RecordLimits, RecordView, Version};
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
    /// What the authorities of its epochs are held to. Records are their visitor's to judge.
    pub record: RecordLimits,
}

impl CheckpointLimits {
    /// A checkpoint of `log` of any size, for files this replica wrote itself, whatever its limits were
    /// then.
    #[must_use]
    pub const fn of(log: LogId) -> Self {
        let record = RecordLimits {
            namespace_bytes_max: u32::MAX,
            logical_key_bytes_max: u32::MAX,
            authority_bytes_max: EPOCH_AUTHORITY_BYTES_MAX,
            record_bytes_max: u32::MAX,
        };
        Self { log, bytes_max: u64::MAX, records_max: u64::MAX, record }
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
        if format > CHECKPOINT_FORMAT {
            let expected = format!("{CHECKPOINT_FORMAT} at most");
            return Err(self.error(CheckpointRule::Format, expected, format));
        }
        if format < CHECKPOINT_FORMAT {
            let expected = format!("format version {CHECKPOINT_FORMAT}");
            return Err(self.error(CheckpointRule::Header, expected, format));
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
        check_header(&header, &self.limits.record)
            .map_err(|(expected, found)| self.error(CheckpointRule::Header, expected, found))?;
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

#[cfg(test)]
mod tests;
