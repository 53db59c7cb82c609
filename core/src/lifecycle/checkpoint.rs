//! The native checkpoint: what a log was at one version, immutable, sorted by key, read and written
//! as a stream. A chunked snapshot between peers has the same bytes.
//!
//! All numbers are big endian; a CRC is CRC-32 as `crc32fast` computes it.
//!
//! | part | bytes |
//! |---|---|
//! | header | magic `STRNDCKP`, u32 format version, u32 length of the body, body, u32 CRC of all before |
//! | body | log ID (16), cut (u64 epoch, u64 sequence), digest of the history up to the cut (32), u32 number of epochs, per epoch {u64 epoch, start (u64, u64), previous end (u64, u64), u32 length, authority} |
//! | block | u32 length of the content (at least 1), u32 CRC of length and content, content: per record {u32 length, canonical bytes} |
//! | end | u32 zero, u32 CRC of that zero and the count, u64 number of records |

use super::checkpoint_header::encode_header;
pub use super::checkpoint_header::{CHECKPOINT_FORMAT, CheckpointHeader};
pub use super::checkpoint_read::{
    CheckpointItem, CheckpointLimits, CheckpointReader, CheckpointSummary, Visit,
};
use crate::error::{StorageCause, StorageFault};
use crate::journal::command::FileName;
use crate::limits::PIECE_BYTES_MAX;
use crate::record::{Record, RecordView, Version};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use sha2::{Digest, Sha256};

/// Head of a block: length and CRC.
pub(super) const BLOCK_HEAD_BYTES: usize = 8;
/// Longest content of a block: with its head it is one piece.
pub(super) const BLOCK_BYTES_MAX: usize = PIECE_BYTES_MAX as usize - BLOCK_HEAD_BYTES;

/// Which rule a checkpoint breaks.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum CheckpointRule {
    /// It begins with the magic.
    Magic,
    /// Its format is known.
    Format,
    /// The header is what was written.
    Header,
    /// It belongs to the log it is read for.
    Log,
    /// A block is what was written.
    Block,
    /// A record is canonical bytes.
    Record,
    /// Records are sorted by key, none twice.
    Order,
    /// No record is above the cut.
    Cut,
    /// There are as many records as the end says.
    Count,
    /// It ends with its end, not before.
    End,
    /// Nothing follows the end.
    Trailing,
    /// A limit.
    Limit,
    /// What the reader of the records asks for.
    Use,
}

impl fmt::Display for CheckpointRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Magic => "magic",
            Self::Format => "format version",
            Self::Header => "header",
            Self::Log => "log",
            Self::Block => "block",
            Self::Record => "record",
            Self::Order => "key order",
            Self::Cut => "cut",
            Self::Count => "record count",
            Self::End => "end",
            Self::Trailing => "bytes after the end",
            Self::Limit => "limit",
            Self::Use => "content",
        })
    }
}

/// Bytes that are not the checkpoint asked for. Whose fault that is depends on where they come
/// from: [`CheckpointError::into_fault`] makes it the disk's.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("checkpoint {rule} at offset {offset}: expected {expected}, found {found}")]
pub struct CheckpointError {
    /// Which rule.
    pub rule: CheckpointRule,
    /// What the rule asks for.
    pub expected: String,
    /// What is there.
    pub found: String,
    /// Where the part that breaks the rule begins.
    pub offset: u64,
}

impl CheckpointError {
    /// An error of the part that begins at `offset`.
    #[must_use]
    pub fn new(
        rule: CheckpointRule,
        offset: u64,
        expected: impl fmt::Display,
        found: impl fmt::Display,
    ) -> Self {
        Self { rule, expected: expected.to_string(), found: found.to_string(), offset }
    }

    /// The same error as the fault of the disk that holds `file`.
    #[must_use]
    pub fn into_fault(self, file: FileName) -> StorageFault {
        let cause = match self.rule {
            CheckpointRule::Format => StorageCause::Newer,
            CheckpointRule::Magic
            | CheckpointRule::Header
            | CheckpointRule::Log
            | CheckpointRule::Block
            | CheckpointRule::Record
            | CheckpointRule::Order
            | CheckpointRule::Cut
            | CheckpointRule::Count
            | CheckpointRule::End
            | CheckpointRule::Trailing
            | CheckpointRule::Limit
            | CheckpointRule::Use => StorageCause::Damaged,
        };
        let detail = format!("{}: expected {}, found {}", self.rule, self.expected, self.found);
        StorageFault { cause, ..StorageFault::damaged(file, self.offset, detail) }
    }
}

/// What a finished checkpoint is, as `current` names it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CheckpointWritten {
    /// Its length.
    pub bytes: u64,
    /// SHA-256 of its bytes.
    pub sha256: [u8; 32],
    /// How many records it holds.
    pub records: u64,
}

/// Writes a checkpoint record by record; at most two pieces are held if the output is taken after
/// every push.
///
/// ```
/// use strandline_core::id::LogId;
/// use strandline_core::lifecycle::checkpoint::*;
/// use strandline_core::record::{AuthorityId, Key, Record, State, Version};
/// let cut = Version::new(1, 9);
/// let header = CheckpointHeader { log: LogId([1; 16]), cut, cut_digest: [2; 32], epochs: vec![] };
/// let mut writer = CheckpointWriter::new(&header);
/// let key = Key::from_parts(b"documents", b"a").expect("short");
/// let authority = AuthorityId::from_text("node-a");
/// writer.push(&Record { key, state: State::Deleted, version: cut, authority })?;
/// let (_, bytes, written) = writer.finish();
///
/// let mut reader = CheckpointReader::new(CheckpointLimits::of(header.log));
/// reader.push(&bytes, &mut |item| {
///     if let CheckpointItem::Record { view, .. } = item {
///         assert_eq!(view.logical_key, b"a");
///     }
///     Ok(())
/// })?;
/// assert_eq!(reader.finish()?.sha256, written.sha256);
/// # Ok::<(), CheckpointError>(())
/// ```
#[derive(Debug)]
pub struct CheckpointWriter {
    out: Vec<u8>,
    taken: u64,
    block: Option<usize>,
    sorted: Sorted,
    records: u64,
    canonical: Vec<u8>,
    hash: Sha256,
}

impl CheckpointWriter {
    /// Begins with the header.
    ///
    /// # Panics
    /// If the header has more than 64 epochs or their authorities are longer than any limit allows.
    #[must_use]
    pub fn new(header: &CheckpointHeader) -> Self {
        Self {
            out: encode_header(header),
            taken: 0,
            block: None,
            sorted: Sorted::new(header.cut),
            records: 0,
            canonical: Vec::new(),
            hash: Sha256::new(),
        }
    }

    /// Adds the record of the next key.
    ///
    /// # Errors
    /// The key is not above the one before, the version is above the cut, or the record is longer
    /// than a block. Nothing is written then.
    pub fn push(&mut self, record: &Record) -> Result<(), CheckpointError> {
        let mut canonical = core::mem::take(&mut self.canonical);
        canonical.clear();
        record.encode_canonical(&mut canonical);
        let key = (record.key.namespace(), record.key.logical_key());
        let pushed = self.append(key, record.version, &canonical);
        self.canonical = canonical;
        pushed
    }

    /// Adds the record of the next key, whose canonical bytes are at hand.
    ///
    /// # Errors
    /// As [`CheckpointWriter::push`].
    pub fn push_canonical(&mut self, view: &RecordView<'_>, canonical: &[u8]) -> Result<(), CheckpointError> {
        self.append((view.namespace, view.logical_key), view.version, canonical)
    }

    fn append(
        &mut self,
        key: (&[u8], &[u8]),
        version: Version,
        canonical: &[u8],
    ) -> Result<(), CheckpointError> {
        let bytes = 4 + canonical.len();
        if bytes > BLOCK_BYTES_MAX {
            let expected = format!("a record of at most {} bytes", BLOCK_BYTES_MAX - 4);
            return Err(CheckpointError::new(
                CheckpointRule::Limit,
                self.end(),
                expected,
                format!("{} bytes", canonical.len()),
            ));
        }
        let at = self.end();
        self.sorted.admit(key, version, at)?;
        if self.block.is_some_and(|start| self.out.len() - start + bytes > PIECE_BYTES_MAX as usize) {
            self.close_block();
        }
        if self.block.is_none() {
            self.block = Some(self.out.len());
            self.out.extend_from_slice(&[0; BLOCK_HEAD_BYTES]);
        }
        self.out.extend_from_slice(&be32(canonical.len()));
        self.out.extend_from_slice(canonical);
        self.records += 1;
        Ok(())
    }

    fn end(&self) -> u64 {
        self.taken + self.out.len() as u64
    }

    fn close_block(&mut self) {
        let Some(start) = self.block.take() else { return };
        let content = start + BLOCK_HEAD_BYTES;
        let bytes = be32(self.out.len() - content);
        let crc = block_crc(bytes, &self.out[content..]);
        self.out[start..start + 4].copy_from_slice(&bytes);
        self.out[start + 4..content].copy_from_slice(&crc.to_be_bytes());
    }

    /// The next piece of exactly [`PIECE_BYTES_MAX`] bytes and its offset in the file, once it is
    /// complete.
    #[must_use]
    pub fn take_output(&mut self) -> Option<(u64, Vec<u8>)> {
        let piece_bytes = PIECE_BYTES_MAX as usize;
        if self.block.unwrap_or(self.out.len()) < piece_bytes {
            return None;
        }
        let rest = self.out.split_off(piece_bytes);
        let piece = core::mem::replace(&mut self.out, rest);
        self.block = self.block.map(|start| start - piece_bytes);
        Some(self.hand_out(piece))
    }

    fn hand_out(&mut self, piece: Vec<u8>) -> (u64, Vec<u8>) {
        self.hash.update(&piece);
        let offset = self.taken;
        self.taken += piece.len() as u64;
        (offset, piece)
    }

    /// Ends the checkpoint: the offset and bytes of its last piece (at most two pieces and the end
    /// long if the output was taken before), and what the whole is.
    #[must_use]
    pub fn finish(mut self) -> (u64, Vec<u8>, CheckpointWritten) {
        self.close_block();
        let count = self.records.to_be_bytes();
        self.out.extend_from_slice(&[0; 4]);
        self.out.extend_from_slice(&block_crc([0; 4], &count).to_be_bytes());
        self.out.extend_from_slice(&count);
        let last = core::mem::take(&mut self.out);
        let (offset, last) = self.hand_out(last);
        let written = CheckpointWritten {
            bytes: self.taken,
            sha256: self.hash.finalize().into(),
            records: self.records,
        };
        (offset, last, written)
    }
}

/// The rules every record of a checkpoint keeps, for writer and reader alike.
#[derive(Debug)]
pub(super) struct Sorted {
    cut: Version,
    last: Option<(Vec<u8>, Vec<u8>)>,
}

impl Sorted {
    pub(super) const fn new(cut: Version) -> Self {
        Self { cut, last: None }
    }

    pub(super) fn admit(
        &mut self,
        (namespace, logical_key): (&[u8], &[u8]),
        version: Version,
        offset: u64,
    ) -> Result<(), CheckpointError> {
        let refuse =
            |rule, expected: String, found: String| Err(CheckpointError::new(rule, offset, expected, found));
        if version > self.cut {
            let expected = format!("a version at most {}", self.cut);
            return refuse(CheckpointRule::Cut, expected, version.to_string());
        }
        let (last_namespace, last_key) = self.last.get_or_insert_default();
        if (namespace, logical_key) <= (last_namespace, last_key) {
            let name = |n: &[u8], k: &[u8]| format!("{}/{}", n.escape_ascii(), k.escape_ascii());
            let expected = format!("a key above {}", name(last_namespace, last_key));
            return refuse(CheckpointRule::Order, expected, name(namespace, logical_key));
        }
        for (last, now) in [(last_namespace, namespace), (last_key, logical_key)] {
            last.clear();
            last.extend_from_slice(now);
        }
        Ok(())
    }
}

pub(super) fn block_crc(bytes: [u8; 4], content: &[u8]) -> u32 {
    let mut crc = crc32fast::Hasher::new();
    crc.update(&bytes);
    crc.update(content);
    crc.finalize()
}

pub(super) fn be32(bytes: usize) -> [u8; 4] {
    u32::try_from(bytes).expect("a part of a checkpoint is shorter than 4 GiB").to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::LogId;
    use crate::record::{AuthorityId, Key, State};

    fn writer() -> CheckpointWriter {
        let cut = Version::new(1, 9);
        let header = CheckpointHeader { log: LogId([1; 16]), cut, cut_digest: [2; 32], epochs: Vec::new() };
        CheckpointWriter::new(&header)
    }

    fn record(key: &[u8], sequence: u64) -> Record {
        Record {
            key: Key::from_parts(b"n", key).expect("short"),
            state: State::Deleted,
            version: Version::new(1, sequence),
            authority: AuthorityId::from_text("a"),
        }
    }

    fn refused(key: &[u8], sequence: u64) -> (CheckpointRule, u64) {
        let mut writer = writer();
        writer.push(&record(b"b", 9)).expect("first");
        let refused = writer.push(&record(key, sequence)).expect_err("refused").rule;
        (refused, writer.finish().2.records)
    }

    #[test]
    fn a_lower_key_is_refused() {
        assert_eq!(refused(b"a", 1), (CheckpointRule::Order, 1));
    }

    #[test]
    fn the_same_key_is_refused() {
        assert_eq!(refused(b"b", 1), (CheckpointRule::Order, 1));
    }

    #[test]
    fn a_version_above_the_cut_is_refused() {
        assert_eq!(refused(b"c", 10), (CheckpointRule::Cut, 1));
    }

    #[test]
    fn a_record_longer_than_a_block_is_refused() {
        assert_eq!(refused(&alloc::vec![b'x'; 300_000], 1), (CheckpointRule::Limit, 1));
    }

    #[test]
    fn pieces_are_whole_and_lie_one_after_the_other() {
        let mut writer = writer();
        let (mut bytes, mut held) = (Vec::new(), 0);
        for i in 0..4000u32 {
            let mut key = i.to_be_bytes().to_vec();
            key.resize(300, b'k');
            writer.push(&record(&key, 1)).expect("sorted");
            held = held.max(writer.out.len());
            if let Some((offset, piece)) = writer.take_output() {
                assert_eq!((offset, piece.len()), (bytes.len() as u64, PIECE_BYTES_MAX as usize));
                bytes.extend(piece);
            }
        }
        let (offset, last, written) = writer.finish();
        assert_eq!(offset, bytes.len() as u64);
        bytes.extend(last);
        assert!(held <= 2 * PIECE_BYTES_MAX as usize + 400, "{held}");
        let expected: [u8; 32] = Sha256::digest(&bytes).into();
        assert_eq!(written, CheckpointWritten { bytes: bytes.len() as u64, sha256: expected, records: 4000 });
    }

    #[test]
    fn the_disk_is_told_the_rule_and_a_newer_format() {
        let fault = |rule| CheckpointError::new(rule, 8, 1, 2).into_fault(FileName::Checkpoint(3));
        assert_eq!(
            fault(CheckpointRule::Count).to_string(),
            "cannot decode checkpoint-0000000000000003 at offset 8: damaged: record count: expected 1, found 2"
        );
        assert_eq!(fault(CheckpointRule::Format).cause, StorageCause::Newer);
    }
}
