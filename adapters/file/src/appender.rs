//! Appends and cuts: the only writes that a journal acknowledges.

use crate::directory::Directory;
use crate::fault::{OrFault, refused};
use crate::folder::{Access, linked, read_full_at, write_zeros_at};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use strandline_core::error::{StorageAction, StorageCause, StorageFault};
use strandline_core::id::hex;
use strandline_core::journal::command::{FileName, SegmentNumber};

/// Bytes in memory while a tail is looked at and copied.
const PIECE_BYTES: usize = 256 << 10;

/// Appends and cuts of one directory, one after the other. The first that fails is the last that
/// is tried: after a failed sync the system may call lost bytes written, so a second sync that
/// succeeds would prove nothing.
#[derive(Debug)]
pub(crate) struct Appender {
    directory: Arc<Directory>,
    open: Option<(SegmentNumber, File)>,
    failed: Option<StorageFault>,
}

impl Appender {
    pub(crate) const fn new(directory: Arc<Directory>) -> Self {
        Self { directory, open: None, failed: None }
    }

    /// Writes `bytes` at `offset` and makes them durable.
    pub(crate) fn append(
        &mut self,
        segment: SegmentNumber,
        offset: u64,
        bytes: &[u8],
    ) -> Result<(), StorageFault> {
        self.once(segment, StorageAction::Write, |_, file, name| {
            file.write_all_at(bytes, offset).or_fault(StorageAction::Write, name, Some(offset))?;
            file.sync_data().or_fault(StorageAction::Sync, name, Some(offset))
        })
    }

    /// Copies what is not trailing zeros from `offset` on into the folder for cuts, then overwrites
    /// it with zeros; both durable. Answers with the length of the copy.
    pub(crate) fn cut(&mut self, segment: SegmentNumber, offset: u64) -> Result<u64, StorageFault> {
        self.once(segment, StorageAction::Cut, |directory, file, name| {
            let at = Some(offset);
            let end = end_of_data(file, offset).or_fault(StorageAction::Cut, name, at)?;
            let bytes = end.saturating_sub(offset);
            if bytes > 0 {
                copy(directory, file, name, offset, end)?;
                write_zeros_at(file, offset, bytes).or_fault(StorageAction::Cut, name, at)?;
            }
            // Zeros found here may be those of an earlier cut that did not get as far as this.
            file.sync_data().or_fault(StorageAction::Sync, name, at)?;
            Ok(bytes)
        })
    }

    /// Runs `work` on the segment, unless something failed before. Success is only told of a
    /// segment that still has its name: bytes in an unlinked file do not survive.
    fn once<T>(
        &mut self,
        segment: SegmentNumber,
        action: StorageAction,
        work: impl FnOnce(&Directory, &File, &str) -> Result<T, StorageFault>,
    ) -> Result<T, StorageFault> {
        if let Some(fault) = &self.failed {
            return Err(fault.clone());
        }
        let name = FileName::Segment(segment).to_string();
        let result = self.handle(segment, &name, action).and_then(|file| {
            let output = work(&self.directory, &file, &name)?;
            if !linked(&file).or_fault(action, &name, None)? {
                let detail = "expected the segment to stay in place, found it removed or replaced meanwhile";
                return Err(refused(action, &name, None, StorageCause::Missing, detail));
            }
            self.open = Some((segment, file));
            Ok(output)
        });
        if let Err(fault) = &result {
            self.failed = Some(fault.clone());
        }
        result
    }

    fn handle(
        &mut self,
        segment: SegmentNumber,
        name: &str,
        action: StorageAction,
    ) -> Result<File, StorageFault> {
        match self.open.take() {
            Some((number, file)) if number == segment && linked(&file).or_fault(action, name, None)? => {
                Ok(file)
            }
            _ => self.directory.file(FileName::Segment(segment), Access::Change, action),
        }
    }
}

/// Where the last byte at or after `offset` that is not zero ends; `offset` if there is none.
fn end_of_data(file: &File, offset: u64) -> std::io::Result<u64> {
    let mut end = file.metadata()?.len();
    let mut piece = vec![0; PIECE_BYTES];
    while end > offset {
        let start = end.saturating_sub(PIECE_BYTES as u64).max(offset);
        let bytes = usize::try_from(end - start).map_err(std::io::Error::other)?;
        let count = read_full_at(file, &mut piece[..bytes], start)?;
        if let Some(last) = piece[..count].iter().rposition(|byte| *byte != 0) {
            return Ok(start + last as u64 + 1);
        }
        end = start;
    }
    Ok(offset)
}

/// Makes a durable copy of `offset..end`, named by segment, offset and content, so that a cut that
/// is done again neither overwrites the copy of the first one nor makes another.
fn copy(
    directory: &Directory,
    segment: &File,
    name: &str,
    offset: u64,
    end: u64,
) -> Result<(), StorageFault> {
    let folder = directory.cut();
    let temporary = directory.temporary(name);
    let in_cut = |error| Err::<(), _>(error).or_fault(StorageAction::Cut, &format!("cut/{temporary}"), None);
    let copied = (|| {
        let copy = folder.file(&temporary, Access::New)?;
        let mut hash = Sha256::new();
        let mut piece = vec![0; PIECE_BYTES];
        let mut at = offset;
        while at < end {
            let bytes = usize::try_from(end - at).map_or(PIECE_BYTES, |left| left.min(PIECE_BYTES));
            segment.read_exact_at(&mut piece[..bytes], at)?;
            hash.update(&piece[..bytes]);
            copy.write_all_at(&piece[..bytes], at - offset)?;
            at += bytes as u64;
        }
        copy.sync_all()?;
        let digest = hex(&hash.finalize()[..8]);
        folder.rename(&temporary, folder, &format!("{name}-{offset:016x}-{digest}"))
    })();
    if let Err(error) = copied {
        // The first fault is the one to tell; a leftover is removed by the next open.
        let _ = folder.remove(&temporary);
        return in_cut(error);
    }
    folder.sync().or_fault(StorageAction::Sync, "cut", None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::directory::OpenMode;
    use std::path::Path;

    const SEGMENT: SegmentNumber = SegmentNumber(1);

    fn prepared(root: &Path, bytes: u64) -> (Arc<Directory>, Appender) {
        let directory = Arc::new(Directory::open(root, OpenMode::Existing).unwrap());
        directory.prepare(SEGMENT, bytes).unwrap();
        (Arc::clone(&directory), Appender::new(directory))
    }

    fn content(root: &Path) -> Vec<u8> {
        std::fs::read(root.join(FileName::Segment(SEGMENT).to_string())).unwrap()
    }

    fn copies(root: &Path) -> Vec<Vec<u8>> {
        let entries = std::fs::read_dir(root.join("cut")).unwrap();
        let mut copies: Vec<_> = entries.map(|entry| std::fs::read(entry.unwrap().path()).unwrap()).collect();
        copies.sort();
        copies
    }

    #[test]
    fn an_append_writes_in_place_and_may_grow_the_segment() {
        let root = tempfile::tempdir().unwrap();
        let (_, mut appender) = prepared(root.path(), 8);
        appender.append(SEGMENT, 2, b"ab").unwrap();
        assert_eq!(content(root.path()), b"\0\0ab\0\0\0\0");
        appender.append(SEGMENT, 6, b"cdef").unwrap();
        assert_eq!(content(root.path()), b"\0\0ab\0\0cdef");
    }

    #[test]
    fn a_missing_segment_is_not_created_and_ends_the_appender() {
        let root = tempfile::tempdir().unwrap();
        let (_, mut appender) = prepared(root.path(), 8);
        let fault = appender.append(SegmentNumber(2), 0, b"x").unwrap_err();
        assert_eq!(fault.cause, StorageCause::Missing);
        assert!(!root.path().join(FileName::Segment(SegmentNumber(2)).to_string()).exists());
        assert_eq!(appender.append(SEGMENT, 0, b"x").unwrap_err(), fault);
        assert_eq!(appender.cut(SEGMENT, 0).unwrap_err(), fault);
        assert_eq!(content(root.path()), [0; 8]);
    }

    #[test]
    fn a_segment_replaced_between_appends_is_opened_again() {
        let root = tempfile::tempdir().unwrap();
        let (directory, mut appender) = prepared(root.path(), 4);
        appender.append(SEGMENT, 0, b"old!").unwrap();
        directory.prepare(SEGMENT, 4).unwrap();
        appender.append(SEGMENT, 1, b"new").unwrap();
        assert_eq!(content(root.path()), b"\0new");
    }

    #[test]
    fn an_append_to_a_file_that_lost_its_name_is_no_success() {
        let root = tempfile::tempdir().unwrap();
        let (directory, mut appender) = prepared(root.path(), 4);
        let fault = appender
            .once(SEGMENT, StorageAction::Write, |_, _, _| directory.remove(&[FileName::Segment(SEGMENT)]))
            .unwrap_err();
        assert_eq!(fault.cause, StorageCause::Missing);
        assert_eq!(appender.append(SEGMENT, 0, b"x").unwrap_err(), fault);
    }

    #[test]
    fn a_cut_copies_the_tail_and_zeroes_it() {
        let root = tempfile::tempdir().unwrap();
        let (_, mut appender) = prepared(root.path(), 12);
        appender.append(SEGMENT, 0, b"keptt\0rn").unwrap();
        assert_eq!(appender.cut(SEGMENT, 4).unwrap(), 4);
        assert_eq!(content(root.path()), b"kept\0\0\0\0\0\0\0\0");
        assert_eq!(copies(root.path()), [b"t\0rn"]);
    }

    #[test]
    fn a_cut_done_twice_is_harmless() {
        let root = tempfile::tempdir().unwrap();
        let (_, mut appender) = prepared(root.path(), 8);
        appender.append(SEGMENT, 0, b"torn").unwrap();
        assert_eq!(appender.cut(SEGMENT, 1).unwrap(), 3);
        assert_eq!(appender.cut(SEGMENT, 1).unwrap(), 0);
        // As after a crash between the copy and the zeros.
        appender.append(SEGMENT, 0, b"torn").unwrap();
        assert_eq!(appender.cut(SEGMENT, 1).unwrap(), 3);
        assert_eq!(copies(root.path()), [b"orn"]);
        // As after a crash among the zeros: the first copy stays.
        appender.append(SEGMENT, 0, b"t\0rn").unwrap();
        assert_eq!(appender.cut(SEGMENT, 1).unwrap(), 3);
        assert_eq!(copies(root.path()), [b"\0rn", b"orn"]);
        assert_eq!(content(root.path()), b"t\0\0\0\0\0\0\0");
    }

    #[test]
    fn a_cut_beyond_the_end_copies_nothing() {
        let root = tempfile::tempdir().unwrap();
        let (_, mut appender) = prepared(root.path(), 8);
        assert_eq!(appender.cut(SEGMENT, 100).unwrap(), 0);
        assert!(copies(root.path()).is_empty());
    }

    #[test]
    fn a_long_tail_is_cut_in_pieces() {
        let root = tempfile::tempdir().unwrap();
        let bytes = 3 * PIECE_BYTES + 17;
        let (_, mut appender) = prepared(root.path(), 2 * bytes as u64);
        appender.append(SEGMENT, 1, &vec![7; bytes]).unwrap();
        assert_eq!(appender.cut(SEGMENT, 3).unwrap(), bytes as u64 - 2);
        assert_eq!(copies(root.path()), [vec![7; bytes - 2]]);
        assert_eq!(content(root.path()).iter().filter(|byte| **byte != 0).count(), 2);
    }
}
