//! Reading entries back: which bytes to ask for, and what they say.

use super::batch::{self, BatchHeader, HEADER_BYTES};
use super::command::FileName;
use super::index::Index;
use super::segment::{Position, Salt};
use crate::error::StorageFault;
use crate::id::Lsn;
use alloc::format;
use core::ops::ControlFlow;

/// A position in the entries of a journal: reads `next` to `through`, in order, each once.
///
/// Ask with [`EntryReader::request`], execute the read, hand the bytes to
/// [`EntryReader::accept`], and ask again.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct EntryReader {
    next: Lsn,
    through: Lsn,
}

/// Takes one entry; a break ends the visit behind it.
pub type Visit<'a> = &'a mut dyn FnMut(Lsn, u8, &[u8]) -> ControlFlow<()>;

/// Bytes of whole batches that an [`EntryReader`] wants.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ReadRequest {
    /// The file.
    pub file: FileName,
    /// The first byte.
    pub offset: u64,
    /// How many.
    pub bytes: u32,
    position: Position,
    salt: Salt,
    first_lsn: Lsn,
}

/// The entry asked for is no longer retained: the asker is behind what the journal keeps.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("entry {wanted} is gone: the first retained entry is {first}")]
pub struct Dropped {
    /// What was asked for.
    pub wanted: Lsn,
    /// What is still there.
    pub first: Lsn,
}

impl EntryReader {
    /// Reads the entries from `from` to `through`, both included.
    #[must_use]
    pub const fn new(from: Lsn, through: Lsn) -> Self {
        Self { next: from, through }
    }

    /// The entry that comes next.
    #[must_use]
    pub const fn next(&self) -> Lsn {
        self.next
    }

    /// The last entry to read.
    #[must_use]
    pub const fn through(&self) -> Lsn {
        self.through
    }

    /// Whether everything was visited.
    #[must_use]
    pub fn finished(&self) -> bool {
        self.next > self.through
    }

    /// What to read now: whole batches, adjacent ones joined up to `read_bytes_max`, a longer one
    /// alone. `None` when finished, or when what comes next is not durable yet.
    ///
    /// # Errors
    /// [`Dropped`] if the journal no longer holds the next entry.
    pub fn request(&self, index: &Index, read_bytes_max: u32) -> Result<Option<ReadRequest>, Dropped> {
        if self.finished() || self.next >= index.next_lsn() {
            return Ok(None);
        }
        let mut batches = index.run(self.next);
        let Some(first) = batches.next() else {
            return Err(Dropped { wanted: self.next, first: index.first_lsn() });
        };
        let start = first.position.offset;
        let mut end = start + first.bytes;
        for batch in batches.take_while(|b| b.first_lsn <= self.through) {
            let longer = batch.position.offset + batch.bytes;
            if longer - start > u64::from(read_bytes_max) {
                break;
            }
            end = longer;
        }
        Ok(Some(ReadRequest {
            file: FileName::Segment(first.position.segment),
            offset: start,
            bytes: u32::try_from(end - start).expect("one batch, or at most read_bytes_max"),
            position: first.position,
            salt: first.salt,
            first_lsn: first.first_lsn,
        }))
    }

    /// Verifies the bytes read and visits their entries from the next one on. When `visit`
    /// breaks, the entry it broke at counts as visited and the next request continues behind it.
    ///
    /// # Errors
    /// If the bytes are not the batches the journal wrote. Entries visited before stay visited.
    pub fn accept(
        &mut self,
        request: &ReadRequest,
        bytes: &[u8],
        visit: Visit<'_>,
    ) -> Result<(), StorageFault> {
        let mut expected = request.first_lsn;
        let mut rest = bytes;
        if bytes.len() != request.bytes as usize {
            return Err(self.damaged(request, 0, format!("{} bytes", request.bytes), bytes.len()));
        }
        while !rest.is_empty() {
            let at = bytes.len() - rest.len();
            let position = Position { offset: request.offset + at as u64, ..request.position };
            let (header, padded, behind) = split(rest, request.salt, position)
                .filter(|(header, _, _)| header.first_lsn == expected)
                .ok_or_else(|| {
                    self.damaged(request, at, format!("the batch of entry {expected}"), "other bytes")
                })?;
            let payload = &padded[..header.payload_bytes as usize];
            let mut lsn = expected;
            let flow = batch::entries(payload, header.count, |_, kind, entry| {
                let this = lsn;
                lsn = lsn.plus(1);
                if this < self.next {
                    return ControlFlow::Continue(());
                }
                if self.finished() {
                    return ControlFlow::Break(());
                }
                self.next = lsn;
                visit(this, kind, entry)
            })
            .map_err(|bad| self.damaged(request, at + HEADER_BYTES + bad.at, "an entry", "other bytes"))?;
            if flow.is_break() {
                return Ok(());
            }
            expected = header.next_lsn();
            rest = behind;
        }
        Ok(())
    }

    fn damaged(
        &self,
        request: &ReadRequest,
        at: usize,
        expected: impl core::fmt::Display,
        found: impl core::fmt::Display,
    ) -> StorageFault {
        let offset = request.offset + at as u64;
        StorageFault::damaged(
            request.file,
            offset,
            format!("while reading entry {}: expected {expected}, found {found}", self.next),
        )
    }
}

/// A batch whose checksums are right at the start of `bytes`: header, padded payload, what follows.
fn split(bytes: &[u8], salt: Salt, at: Position) -> Option<(BatchHeader, &[u8], &[u8])> {
    let (head, rest) = bytes.split_first_chunk::<HEADER_BYTES>()?;
    let header = BatchHeader::decode(head, salt, at)?;
    let padded = usize::try_from(header.bytes()).ok()? - HEADER_BYTES;
    let (padded, behind) = rest.split_at_checked(padded)?;
    header.verifies(padded, salt, at).then_some((header, padded, behind))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::batch::Sealing;
    use crate::journal::command::SegmentNumber;
    use alloc::vec;
    use alloc::vec::Vec;

    const SALT: Salt = Salt([5; 8]);

    /// Four batches of three entries with a seal between them, as the bytes of a segment.
    fn segment() -> (Vec<u8>, Index) {
        let mut file = vec![0; 64];
        let mut index = Index::new(Lsn::FIRST);
        index.enter(SegmentNumber(1), SALT);
        for batch in 0..5 {
            let at = Position { segment: SegmentNumber(1), offset: file.len() as u64 };
            let mut buf = vec![0; HEADER_BYTES];
            let count = if batch == 2 { 0 } else { 3 };
            for _ in 0..count {
                batch::push_entry(&mut buf, batch, &[batch; 7]);
            }
            let header = batch::seal(
                &mut buf,
                &Sealing {
                    salt: SALT,
                    at,
                    first_lsn: index.next_lsn(),
                    count,
                    durable: None,
                    durable_end: at,
                },
            );
            index.push(at.offset, &header);
            file.extend_from_slice(&buf);
        }
        (file, index)
    }

    fn bytes<'a>(file: &'a [u8], request: &ReadRequest) -> &'a [u8] {
        &file[request.offset as usize..][..request.bytes as usize]
    }

    fn lsn(n: u64) -> Lsn {
        Lsn::new(n).unwrap()
    }

    #[test]
    fn every_range_is_read_exactly_whatever_the_joining() {
        let (file, index) = segment();
        for (from, through, max) in (1..=12).flat_map(|f| (f..=12).map(move |t| (f, t, (f * t * 37) % 500))) {
            let mut reader = EntryReader::new(lsn(from), lsn(through));
            let mut seen = Vec::new();
            while let Some(request) = reader.request(&index, max as u32).unwrap() {
                let visit = &mut |at: Lsn, _: u8, _: &[u8]| {
                    seen.push(at.get());
                    if at.get().is_multiple_of(5) {
                        ControlFlow::Break(())
                    } else {
                        ControlFlow::Continue(())
                    }
                };
                reader.accept(&request, bytes(&file, &request), visit).unwrap();
            }
            assert_eq!(seen, (from..=through).collect::<Vec<_>>());
        }
    }

    #[test]
    fn batches_are_joined_up_to_the_limit() {
        let (_, index) = segment();
        let one = index.locate(lsn(1)).unwrap().bytes as u32;
        let reader = EntryReader::new(lsn(1), lsn(12));
        let bytes = |max| reader.request(&index, max).unwrap().unwrap().bytes;
        assert_eq!([bytes(1), bytes(2 * one), bytes(1 << 20)], [one, 2 * one, 4 * one + 48]);
    }

    #[test]
    fn damage_after_the_write_is_noticed() {
        let (file, index) = segment();
        let mut reader = EntryReader::new(lsn(2), lsn(12));
        let request = reader.request(&index, 1 << 20).unwrap().unwrap();
        for at in 0..request.bytes as usize {
            let mut bad = bytes(&file, &request).to_vec();
            bad[at] ^= 4;
            let fault = EntryReader::new(lsn(2), lsn(12))
                .accept(&request, &bad, &mut |_, _, _| ControlFlow::Continue(()))
                .unwrap_err();
            assert_eq!(fault.file, "segment-0000000000000001");
        }
        let short = &bytes(&file, &request)[1..];
        assert!(reader.accept(&request, short, &mut |_, _, _| ControlFlow::Continue(())).is_err());
    }

    #[test]
    fn what_was_dropped_is_an_error_and_what_is_not_durable_is_none() {
        let (_, mut index) = segment();
        index.enter(SegmentNumber(2), SALT);
        index.drop_before(SegmentNumber(2));
        let reader = EntryReader::new(lsn(4), lsn(12));
        assert_eq!(reader.request(&index, 100), Err(Dropped { wanted: lsn(4), first: lsn(13) }));
        assert_eq!(EntryReader::new(lsn(13), lsn(20)).request(&index, 100), Ok(None));
    }
}
