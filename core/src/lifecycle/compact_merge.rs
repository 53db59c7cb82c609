//! The streaming merge of a base checkpoint with the last writers of the prefix above it.

use super::api::Entry;
use super::checkpoint::{
    CheckpointError, CheckpointHeader, CheckpointItem, CheckpointLimits, CheckpointReader, CheckpointRule,
    CheckpointWriter, CheckpointWritten,
};
use crate::error::StorageFault;
use crate::id::hex;
use crate::journal::command::FileName;
use crate::journal::current::CheckpointRef;
use crate::limits::PIECE_BYTES_MAX;
use crate::record::{Key, Record, RecordView, State, Version};
use alloc::collections::BTreeMap;
use alloc::collections::btree_map::IntoIter;
use alloc::format;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::iter::Peekable;

/// Merges record by record: holds one piece of the base, the last writers and two pieces of output,
/// never the key space.
#[derive(Debug)]
pub(super) struct Merge {
    file: FileName,
    entries: Peekable<IntoIter<Key, Entry>>,
    base: Option<Base>,
    writer: CheckpointWriter,
    tombstones: Vec<Key>,
}

/// What the merge needs, or gives, next.
#[derive(Debug)]
pub(super) enum Progress {
    /// The base must be read on: hand the bytes to [`Merge::take_base`].
    Wants { file: FileName, offset: u64, bytes: u32 },
    /// A piece of the new checkpoint.
    Piece { offset: u64, bytes: Vec<u8> },
    /// Everything is merged: [`Merge::finish`] gives the last piece.
    End,
}

/// The last piece of the new checkpoint, and what the whole is.
#[derive(Debug)]
pub(super) struct Merged {
    pub(super) offset: u64,
    pub(super) bytes: Vec<u8>,
    pub(super) written: CheckpointWritten,
    /// The keys whose tombstones are not in the new checkpoint.
    pub(super) tombstones: Vec<Key>,
}

/// The checkpoint the floor stands on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct BaseRef {
    pub(super) named: CheckpointRef,
    pub(super) cut: Version,
    pub(super) cut_digest: [u8; 32],
}

impl Merge {
    pub(super) fn new(
        file: FileName,
        header: &CheckpointHeader,
        entries: BTreeMap<Key, Entry>,
        base: Option<BaseRef>,
    ) -> Self {
        Self {
            file,
            entries: entries.into_iter().peekable(),
            base: base.map(|base| Base::new(base, CheckpointLimits::of(header.log))),
            writer: CheckpointWriter::new(header),
            tombstones: Vec::new(),
        }
    }

    /// Takes the bytes that were asked for.
    pub(super) fn take_base(&mut self, bytes: &[u8]) -> Result<(), StorageFault> {
        self.base.as_mut().expect("only a base is asked for").take(bytes)
    }

    /// Merges until something is needed or ready.
    pub(super) fn advance(&mut self) -> Result<Progress, StorageFault> {
        loop {
            if let Some((offset, bytes)) = self.writer.take_output() {
                return Ok(Progress::Piece { offset, bytes });
            }
            let Some(base) = &mut self.base else {
                match self.entries.next() {
                    Some((key, entry)) => self.push_entry(key, entry)?,
                    None => return Ok(Progress::End),
                }
                continue;
            };
            let Some(canonical) = base.peek() else {
                if let Some((file, offset, bytes)) = base.wants() {
                    return Ok(Progress::Wants { file, offset, bytes });
                }
                self.base.take().expect("seen above").finish()?;
                continue;
            };
            let view = RecordView::parse(canonical).expect("the reader parsed it");
            let order = self.entries.peek().map_or(Ordering::Less, |(key, _)| {
                (view.namespace, view.logical_key).cmp(&(key.namespace(), key.logical_key()))
            });
            match (order, view.state) {
                (Ordering::Less, State::Present { .. }) => {
                    let pushed = self.writer.push_canonical(&view, canonical);
                    pushed.map_err(|error| error.into_fault(self.file))?;
                    base.pass();
                }
                (Ordering::Less, State::Deleted) => {
                    let key = Key::from_parts(view.namespace, view.logical_key);
                    self.tombstones.push(key.expect("a parsed record has a key"));
                    base.pass();
                }
                // The prefix wrote the key again.
                (Ordering::Equal, State::Present { .. } | State::Deleted) => base.pass(),
                (Ordering::Greater, State::Present { .. } | State::Deleted) => {
                    let (key, entry) = self.entries.next().expect("compared with it");
                    self.push_entry(key, entry)?;
                }
            }
        }
    }

    fn push_entry(&mut self, key: Key, entry: Entry) -> Result<(), StorageFault> {
        let Entry { state, version, authority } = entry;
        match state {
            State::Present { .. } => {
                let pushed = self.writer.push(&Record { key, state, version, authority });
                pushed.map_err(|error| error.into_fault(self.file))
            }
            State::Deleted => {
                self.tombstones.push(key);
                Ok(())
            }
        }
    }

    pub(super) fn finish(self) -> Merged {
        let (offset, bytes, written) = self.writer.finish();
        Merged { offset, bytes, written, tombstones: self.tombstones }
    }
}

/// Reads the base, and holds the records of one piece.
#[derive(Debug)]
struct Base {
    base: BaseRef,
    reader: CheckpointReader,
    read: u64,
    /// Canonical bytes of records that are read and not merged, each behind its be32 length.
    records: Vec<u8>,
    at: usize,
}

impl Base {
    fn new(base: BaseRef, limits: CheckpointLimits) -> Self {
        Self { base, reader: CheckpointReader::new(limits), read: 0, records: Vec::new(), at: 0 }
    }

    fn file(&self) -> FileName {
        FileName::Checkpoint(self.base.named.number)
    }

    fn wants(&self) -> Option<(FileName, u64, u32)> {
        let left = self.base.named.bytes - self.read;
        let bytes = left.min(u64::from(PIECE_BYTES_MAX)) as u32;
        (bytes > 0).then_some((self.file(), self.read, bytes))
    }

    fn take(&mut self, bytes: &[u8]) -> Result<(), StorageFault> {
        let wanted = self.wants().map_or(0, |(.., bytes)| bytes as usize);
        if bytes.len() != wanted {
            let detail = format!("expected {wanted} bytes, found {}", bytes.len());
            return Err(StorageFault::damaged(self.file(), self.read, detail));
        }
        self.read += bytes.len() as u64;
        self.records.clear();
        self.at = 0;
        let (base, records) = (self.base, &mut self.records);
        let taken = self.reader.push(bytes, &mut |item| match item {
            CheckpointItem::Header(header) => stands_for(header, &base),
            CheckpointItem::Record { canonical, .. } => {
                let bytes = u32::try_from(canonical.len()).expect("a block is limited");
                records.extend_from_slice(&bytes.to_be_bytes());
                records.extend_from_slice(canonical);
                Ok(())
            }
        });
        taken.map_err(|error| error.into_fault(self.file()))
    }

    fn peek(&self) -> Option<&[u8]> {
        let (length, rest) = self.records[self.at..].split_first_chunk::<4>()?;
        Some(&rest[..u32::from_be_bytes(*length) as usize])
    }

    fn pass(&mut self) {
        self.at += self.peek().map_or(0, |canonical| 4 + canonical.len());
    }

    /// Whether all of it was what `current` names.
    fn finish(self) -> Result<(), StorageFault> {
        let (file, named) = (self.file(), self.base.named);
        let summary = self.reader.finish().map_err(|error| error.into_fault(file))?;
        if summary.sha256 != named.sha256 {
            let detail = format!("expected SHA-256 {}, found {}", hex(&named.sha256), hex(&summary.sha256));
            return Err(StorageFault::damaged(file, 0, detail));
        }
        Ok(())
    }
}

fn stands_for(header: &CheckpointHeader, base: &BaseRef) -> Result<(), CheckpointError> {
    if (header.cut, header.cut_digest) == (base.cut, base.cut_digest) {
        return Ok(());
    }
    let name = |cut: Version, digest: &[u8; 32]| format!("{cut} with digest {}", hex(digest));
    let (expected, found) = (name(base.cut, &base.cut_digest), name(header.cut, &header.cut_digest));
    Err(CheckpointError::new(CheckpointRule::Cut, 0, expected, found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::LogId;
    use crate::record::{AuthorityId, BlobKey};

    const FILE: FileName = FileName::Checkpoint(2);

    fn header(sequence: u64) -> CheckpointHeader {
        let cut = Version::new(1, sequence);
        CheckpointHeader { log: LogId([1; 16]), cut, cut_digest: [2; 32], epochs: Vec::new() }
    }

    fn record(name: &str, present: bool, sequence: u64) -> Record {
        let state = if present { State::Present { blob: BlobKey([1; 32]) } } else { State::Deleted };
        Record {
            key: Key::from_parts(b"n", name.as_bytes()).expect("short"),
            state,
            version: Version::new(1, sequence),
            authority: AuthorityId::from_text("a"),
        }
    }

    /// Merges the records of a base (versions 1) with those of a prefix (versions 9): the names in
    /// the new checkpoint with their versions, and the tombstones dropped.
    fn merged(base: &[(&str, bool)], prefix: &[(&str, bool)]) -> (Vec<(Key, u64)>, Vec<Key>) {
        let mut writer = CheckpointWriter::new(&header(1));
        for (name, present) in base {
            writer.push(&record(name, *present, 1)).expect("sorted");
        }
        let (_, content, CheckpointWritten { bytes, sha256, .. }) = writer.finish();
        let named = CheckpointRef { number: 1, bytes, sha256 };
        let base = BaseRef { named, cut: header(1).cut, cut_digest: header(1).cut_digest };
        let entries = prefix.iter().map(|(name, present)| {
            let Record { key, state, version, authority } = record(name, *present, 9);
            (key, Entry { state, version, authority })
        });
        let mut merge = Merge::new(FILE, &header(9), entries.collect(), Some(base));
        while let Progress::Wants { offset, bytes, .. } = merge.advance().expect("sound") {
            let offset = usize::try_from(offset).expect("small");
            merge.take_base(&content[offset..][..bytes as usize]).expect("sound");
        }
        let Merged { bytes, tombstones, written, .. } = merge.finish();
        let mut found = Vec::new();
        let mut reader = CheckpointReader::new(CheckpointLimits::of(header(9).log));
        let read = reader.push(&bytes, &mut |item| {
            if let CheckpointItem::Record { view, .. } = item {
                let record = view.to_record();
                found.push((record.key, record.version.sequence));
            }
            Ok(())
        });
        read.expect("a checkpoint");
        assert_eq!(reader.finish().expect("whole").records, written.records);
        (found, tombstones)
    }

    fn names(names: &[&str]) -> Vec<Key> {
        names.iter().map(|name| record(name, true, 1).key).collect()
    }

    fn kept(names: &[(&str, u64)]) -> Vec<(Key, u64)> {
        names.iter().map(|(name, sequence)| (record(name, true, 1).key, *sequence)).collect()
    }

    #[test]
    fn present_in_the_base_alone_is_kept() {
        assert_eq!(merged(&[("a", true), ("c", true)], &[]), (kept(&[("a", 1), ("c", 1)]), names(&[])));
    }

    #[test]
    fn deleted_in_the_base_alone_is_dropped() {
        assert_eq!(merged(&[("a", false), ("c", true)], &[]), (kept(&[("c", 1)]), names(&["a"])));
    }

    #[test]
    fn written_again_takes_the_prefix() {
        let found =
            merged(&[("a", true), ("b", false), ("c", true)], &[("a", true), ("b", true), ("c", false)]);
        assert_eq!(found, (kept(&[("a", 9), ("b", 9)]), names(&["c"])));
    }

    #[test]
    fn in_the_prefix_alone_before_between_and_after() {
        let found = merged(&[("b", true), ("d", true)], &[("a", true), ("c", false), ("e", true)]);
        assert_eq!(found, (kept(&[("a", 9), ("b", 1), ("d", 1), ("e", 9)]), names(&["c"])));
    }

    #[test]
    fn nothing_is_left() {
        assert_eq!(merged(&[], &[("a", false)]), (kept(&[]), names(&["a"])));
    }
}
