//! Where each retained batch lies: 12 bytes a batch.

use super::batch::BatchHeader;
use super::command::SegmentNumber;
use super::segment::{ALIGN, HEADER_BYTES, Position, Salt};
use crate::id::Lsn;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Where the durable batches of a journal lie. Seals are not listed; they hold no entry.
#[derive(Clone, Debug)]
pub struct Index {
    segments: VecDeque<SegmentIndex>,
    next: Lsn,
    bytes: u64,
    entries: u64,
}

/// The batches of one segment.
#[derive(Clone, Debug)]
pub struct SegmentIndex {
    number: SegmentNumber,
    salt: Salt,
    first: Lsn,
    bytes: u64,
    entries: u64,
    batches: Vec<BatchEntry>,
}

/// Relative to the segment: limits keep all three within 32 bits.
#[derive(Clone, Copy, Debug)]
struct BatchEntry {
    lsn: u32,
    offset_units: u32,
    units: u32,
}

/// Where a batch lies and what it holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Located {
    /// Its first byte.
    pub position: Position,
    /// What it occupies.
    pub bytes: u64,
    /// Its first entry.
    pub first_lsn: Lsn,
    /// The entry after its last one.
    pub next_lsn: Lsn,
    /// Salt of its segment.
    pub salt: Salt,
}

impl SegmentIndex {
    /// The segment.
    #[must_use]
    pub const fn number(&self) -> SegmentNumber {
        self.number
    }

    /// The LSN its first entry has, or would have.
    #[must_use]
    pub const fn first_lsn(&self) -> Lsn {
        self.first
    }

    /// Payload bytes it holds.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Entries it holds.
    #[must_use]
    pub const fn entries(&self) -> u64 {
        self.entries
    }

    fn located(&self, batch: usize) -> Option<Located> {
        let entry = self.batches.get(batch)?;
        let next = self.batches.get(batch + 1).map_or(self.entries, |b| u64::from(b.lsn));
        Some(Located {
            position: Position { segment: self.number, offset: u64::from(entry.offset_units) * ALIGN },
            bytes: u64::from(entry.units) * ALIGN,
            first_lsn: self.first.plus(u64::from(entry.lsn)),
            next_lsn: self.first.plus(next),
            salt: self.salt,
        })
    }
}

impl Index {
    /// An index of no segments, whose first entry will have the LSN `next`.
    #[must_use]
    pub const fn new(next: Lsn) -> Self {
        Self { segments: VecDeque::new(), next, bytes: 0, entries: 0 }
    }

    /// Starts a segment.
    ///
    /// # Panics
    /// If its number is not above all others: the journal enters them in order.
    pub fn enter(&mut self, number: SegmentNumber, salt: Salt) {
        assert!(self.segments.back().is_none_or(|s| s.number < number), "segments are entered in order");
        self.segments.push_back(SegmentIndex {
            number,
            salt,
            first: self.next,
            bytes: 0,
            entries: 0,
            batches: Vec::new(),
        });
    }

    /// Adds the next batch of the newest segment.
    ///
    /// # Panics
    /// If no segment was entered, or the batch does not follow: the caller has checked both.
    pub fn push(&mut self, offset: u64, header: &BatchHeader) {
        if header.count == 0 {
            return;
        }
        assert_eq!(header.first_lsn, self.next, "LSNs are consecutive");
        let segment = self.segments.back_mut().expect("a segment was entered");
        segment.batches.push(BatchEntry {
            lsn: u32::try_from(segment.entries).expect("limits bound the entries of a segment"),
            offset_units: u32::try_from(offset / ALIGN).expect("limits bound a segment"),
            units: u32::try_from(header.bytes() / ALIGN).expect("limits bound a batch"),
        });
        let (bytes, count) = (u64::from(header.payload_bytes), u64::from(header.count));
        segment.bytes += bytes;
        segment.entries += count;
        self.bytes += bytes;
        self.entries += count;
        self.next = header.next_lsn();
    }

    /// The batch that holds `lsn`, if it is retained.
    #[must_use]
    pub fn locate(&self, lsn: Lsn) -> Option<Located> {
        let (segment, batch) = self.find(lsn)?;
        self.segments[segment].located(batch)
    }

    /// `first` and the batches after it in the same segment, in order.
    pub(super) fn run(&self, first: Lsn) -> impl Iterator<Item = Located> {
        let found = self.find(first);
        let segment = found.map(|(segment, _)| &self.segments[segment]);
        let start = found.map_or(0, |(_, batch)| batch);
        segment.into_iter().flat_map(move |s| (start..s.batches.len()).filter_map(|b| s.located(b)))
    }

    fn find(&self, lsn: Lsn) -> Option<(usize, usize)> {
        if lsn < self.first_lsn() || lsn >= self.next {
            return None;
        }
        let segment = self.segments.partition_point(|s| s.first <= lsn).checked_sub(1)?;
        let relative = lsn.get() - self.segments[segment].first.get();
        let batch = self.segments[segment].batches.partition_point(|b| u64::from(b.lsn) <= relative);
        Some((segment, batch.checked_sub(1)?))
    }

    /// The first retained entry, or the next one if none is.
    #[must_use]
    pub fn first_lsn(&self) -> Lsn {
        self.segments.front().map_or(self.next, |s| s.first)
    }

    /// The LSN after the last durable entry.
    #[must_use]
    pub const fn next_lsn(&self) -> Lsn {
        self.next
    }

    /// Bytes that the batches behind `lsn` occupy; a batch that holds it counts not. All of them for
    /// `None`.
    #[must_use]
    pub fn bytes_after(&self, lsn: Option<Lsn>) -> u64 {
        let mut sum = 0;
        for segment in self.segments.iter().rev() {
            if lsn.is_none_or(|lsn| segment.first > lsn) {
                sum += segment.bytes;
                continue;
            }
            let relative = lsn.map_or(0, |lsn| lsn.get() - segment.first.get());
            let behind = segment.batches.iter().rev().take_while(|batch| u64::from(batch.lsn) > relative);
            return sum + behind.map(|batch| u64::from(batch.units) * ALIGN).sum::<u64>();
        }
        sum
    }

    /// Payload bytes retained.
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Entries retained.
    #[must_use]
    pub const fn entries(&self) -> u64 {
        self.entries
    }

    /// The retained segments, oldest first.
    pub fn segments(&self) -> impl ExactSizeIterator<Item = &SegmentIndex> {
        self.segments.iter()
    }

    /// The first segment needed for entries above `floor`; `None` without segments. Everything
    /// before it may be dropped once nothing reads it.
    #[must_use]
    pub fn needed_after(&self, floor: Option<Lsn>) -> Option<SegmentNumber> {
        let wanted = floor.map_or(Lsn::FIRST, |lsn| lsn.plus(1));
        let at = self.segments.partition_point(|s| s.first <= wanted).saturating_sub(1);
        self.segments.get(at).map(|s| s.number)
    }

    /// Forgets the segments before `segment`; the newest is always kept. Returns the number of the
    /// entries forgotten.
    pub fn drop_before(&mut self, segment: SegmentNumber) -> u64 {
        let before = self.entries;
        while self.segments.len() > 1 && self.segments[0].number < segment {
            let gone = self.segments.pop_front().expect("two segments");
            self.bytes -= gone.bytes;
            self.entries -= gone.entries;
        }
        before - self.entries
    }
}

const _: () = assert!(HEADER_BYTES.is_multiple_of(ALIGN));

#[cfg(test)]
mod tests {
    use super::*;

    const SALT: Salt = Salt([0; 8]);

    fn index() -> Index {
        let mut index = Index::new(Lsn::FIRST);
        for number in 1..=3 {
            index.enter(SegmentNumber(number), SALT);
            for batch in 0..2 {
                let at = Position { segment: SegmentNumber(number), offset: 64 + batch * 100 / 8 * 8 };
                let header = BatchHeader {
                    payload_bytes: 30,
                    count: 3,
                    first_lsn: index.next_lsn(),
                    durable: None,
                    durable_end: at,
                    payload_crc: 0,
                };
                index.push(at.offset, &header);
            }
        }
        index
    }

    fn lsn(n: u64) -> Lsn {
        Lsn::new(n).unwrap()
    }

    #[test]
    fn every_entry_is_located() {
        let index = index();
        for n in 1..=18 {
            let found = index.locate(lsn(n)).unwrap();
            assert!(found.first_lsn <= lsn(n) && lsn(n) < found.next_lsn);
            assert_eq!(found.position.segment.0, (n - 1) / 6 + 1);
            assert_eq!(found.bytes, 80);
        }
        assert_eq!(index.locate(lsn(19)), None);
        assert_eq!((index.bytes(), index.entries(), index.next_lsn()), (180, 18, lsn(19)));
    }

    #[test]
    fn the_bytes_behind_an_entry() {
        let index = index();
        let after = |n: u64| index.bytes_after(Lsn::new(n));
        assert_eq!((index.bytes_after(None), after(18), after(12)), (180, 0, 60));
        assert_eq!((after(13), after(3), after(4)), (80, 80 + 120, 120));
    }

    /// The reference keeps every record: 224 bytes of heap for each.
    #[test]
    fn finding_g_a_record_costs_at_most_an_index_entry() {
        const RECORDS: u64 = 65_536;
        for of_batch in [1, 16, 128] {
            let mut index = Index::new(Lsn::FIRST);
            for batch in 0..RECORDS / of_batch {
                if batch % 1024 == 0 {
                    index.enter(SegmentNumber(1 + batch / 1024), SALT);
                }
                let at = Position { segment: SegmentNumber(1), offset: 64 + batch % 1024 * 256 };
                let header = BatchHeader {
                    payload_bytes: 184,
                    count: u32::try_from(of_batch).unwrap(),
                    first_lsn: index.next_lsn(),
                    durable: None,
                    durable_end: at,
                    payload_crc: 0,
                };
                index.push(at.offset, &header);
            }
            assert_eq!(index.entries(), RECORDS);
            let batches: usize = index.segments.iter().map(|s| s.batches.capacity()).sum();
            let bytes = batches * size_of::<BatchEntry>()
                + index.segments.capacity() * size_of::<SegmentIndex>()
                + size_of::<Index>();
            // A vector that grows may have room for as much again.
            let bytes_max = 2 * 12 * RECORDS / of_batch + 16 * 1024;
            assert!(bytes as u64 <= bytes_max, "{bytes} bytes for batches of {of_batch}");
        }
    }

    #[test]
    fn needed_segments_follow_the_floor() {
        let mut index = index();
        let needed = |index: &Index, n| index.needed_after(Lsn::new(n)).unwrap().0;
        assert_eq!([0, 5, 6, 11, 12, 18, 99].map(|n| needed(&index, n)), [1, 1, 2, 2, 3, 3, 3]);
        assert_eq!(index.drop_before(SegmentNumber(2)), 6);
        assert_eq!((index.first_lsn(), index.bytes(), index.entries()), (lsn(7), 120, 12));
        assert_eq!(index.locate(lsn(6)), None);
        assert_eq!(index.drop_before(SegmentNumber(99)), 6);
        assert_eq!(index.segments().len(), 1);
    }

    #[test]
    fn an_empty_segment_is_skipped() {
        let mut index = index();
        index.enter(SegmentNumber(4), SALT);
        index.enter(SegmentNumber(5), SALT);
        assert_eq!(index.needed_after(Some(lsn(18))), Some(SegmentNumber(5)));
        assert_eq!(index.needed_after(Some(lsn(17))), Some(SegmentNumber(3)));
        assert!(index.locate(lsn(18)).is_some());
    }
}
