//! Entries that wait to be submitted, already encoded as the payloads of batches.

use crate::id::Lsn;
use crate::journal::batch::{self, ENTRY_PREFIX_BYTES, HEADER_BYTES};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// A queue of batches under construction. Only the last one still grows.
#[derive(Debug)]
pub(super) struct Pending {
    batches: VecDeque<Building>,
    next: Lsn,
    bytes: u64,
    entries: u64,
    batch_bytes_max: u32,
    closed: bool,
    spare_groups: Vec<Group>,
    last_buf_bytes: usize,
}

#[derive(Debug)]
struct Building {
    /// Reserved header bytes, then the payload.
    buf: Vec<u8>,
    first: Lsn,
    groups: Vec<Group>,
}

/// A group that must stay in one batch: where it ends, counted from the start of its batch.
#[derive(Clone, Copy, Debug)]
struct Group {
    end: u32,
    entries: u32,
}

/// A payload behind its reserved header bytes, ready to be sealed.
#[derive(Debug)]
pub(super) struct Built {
    pub(super) buf: Vec<u8>,
    pub(super) first: Lsn,
    pub(super) count: u32,
}

impl Building {
    fn payload_bytes(&self) -> u32 {
        self.groups.last().map_or(0, |g| g.end)
    }

    fn count(&self) -> u32 {
        self.groups.last().map_or(0, |g| g.entries)
    }
}

/// What entries occupy in a payload. Saturates, so that no sum can wrap below a limit.
pub(super) fn payload_bytes(entries: &[(u8, &[u8])]) -> u64 {
    entries
        .iter()
        .fold(0, |sum: u64, (_, bytes)| sum.saturating_add((bytes.len() + ENTRY_PREFIX_BYTES) as u64))
}

impl Pending {
    pub(super) const fn new(next: Lsn, batch_bytes_max: u32) -> Self {
        Self {
            batches: VecDeque::new(),
            next,
            bytes: 0,
            entries: 0,
            batch_bytes_max,
            closed: false,
            spare_groups: Vec::new(),
            last_buf_bytes: 0,
        }
    }

    /// The LSN the next entry gets.
    pub(super) const fn next_lsn(&self) -> Lsn {
        self.next
    }

    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) const fn entries(&self) -> u64 {
        self.entries
    }

    /// The first entry that waits.
    pub(super) fn first(&self) -> Option<Lsn> {
        self.batches.front().map(|b| b.first)
    }

    /// Appends a group, whose `bytes` the caller has measured and checked against a batch.
    pub(super) fn push(&mut self, entries: &[(u8, &[u8])], bytes: u32) -> Lsn {
        let first = self.next;
        let count = u32::try_from(entries.len()).expect("a group is bounded by its bytes");
        let fits = |b: &Building| bytes <= self.batch_bytes_max - b.payload_bytes();
        if self.closed || !self.batches.back().is_some_and(fits) {
            self.open();
        }
        let batch = self.batches.back_mut().expect("one is open");
        for (kind, entry) in entries {
            batch::push_entry(&mut batch.buf, *kind, entry);
        }
        let group = Group { end: batch.payload_bytes() + bytes, entries: batch.count() + count };
        debug_assert_eq!(batch.buf.len(), HEADER_BYTES + group.end as usize);
        batch.groups.push(group);
        self.next = first.plus(u64::from(count));
        self.bytes += u64::from(bytes);
        self.entries += u64::from(count);
        first
    }

    /// The next group starts a batch of its own.
    pub(super) const fn close(&mut self) {
        self.closed = true;
    }

    /// Payload length of the batch [`Pending::take`] would give: the first one, cut in two before
    /// the first group that reaches above `gate`.
    pub(super) fn front(&mut self, gate: Option<Lsn>) -> Option<u32> {
        let front = self.batches.front_mut()?;
        if let Some(gate) = gate {
            let allowed = (gate.get() + 1).saturating_sub(front.first.get());
            let groups = front.groups.partition_point(|g| u64::from(g.entries) <= allowed);
            if groups == 0 {
                return None;
            }
            if groups < front.groups.len() {
                let rest = split(front, groups);
                self.batches.insert(1, rest);
            }
        }
        self.batches.front().map(Building::payload_bytes)
    }

    /// Takes the first batch.
    pub(super) fn take(&mut self) -> Option<Built> {
        let mut batch = self.batches.pop_front()?;
        let count = batch.count();
        self.bytes -= u64::from(batch.payload_bytes());
        self.entries -= u64::from(count);
        self.last_buf_bytes = batch.buf.len();
        batch.groups.clear();
        self.spare_groups = batch.groups;
        Some(Built { buf: batch.buf, first: batch.first, count })
    }

    /// The buffer leaves with its batch, so a new one starts at the size the last one reached.
    fn open(&mut self) {
        let mut buf = Vec::with_capacity(self.last_buf_bytes.max(HEADER_BYTES));
        buf.resize(HEADER_BYTES, 0);
        let groups = core::mem::take(&mut self.spare_groups);
        self.batches.push_back(Building { buf, first: self.next, groups });
        self.closed = false;
    }
}

/// Moves the groups from `keep` on into a batch of their own.
fn split(batch: &mut Building, keep: usize) -> Building {
    let Group { end, entries } = batch.groups[keep - 1];
    let at = HEADER_BYTES + end as usize;
    let mut buf = Vec::with_capacity(HEADER_BYTES + batch.buf.len() - at);
    buf.resize(HEADER_BYTES, 0);
    buf.extend_from_slice(&batch.buf[at..]);
    batch.buf.truncate(at);
    let mut groups = batch.groups.split_off(keep);
    for group in &mut groups {
        group.end -= end;
        group.entries -= entries;
    }
    Building { buf, first: batch.first.plus(u64::from(entries)), groups }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(pending: &mut Pending, count: usize) -> u64 {
        let group = [(1u8, &b"12345"[..])];
        let entries: Vec<_> = group.iter().copied().cycle().take(count).collect();
        let bytes = u32::try_from(payload_bytes(&entries)).unwrap();
        pending.push(&entries, bytes).get()
    }

    fn take(pending: &mut Pending, gate: u64) -> Option<(u64, u32)> {
        let bytes = pending.front(Lsn::new(gate))?;
        let built = pending.take().unwrap();
        assert_eq!(built.buf.len(), HEADER_BYTES + bytes as usize);
        Some((built.first.get(), built.count))
    }

    #[test]
    fn batches_fill_up_to_the_limit() {
        let mut pending = Pending::new(Lsn::FIRST, 50);
        for lsn in 1..=11 {
            assert_eq!(push(&mut pending, 1), lsn);
        }
        assert_eq!((pending.bytes(), pending.entries()), (110, 11));
        assert_eq!([0; 4].map(|g| take(&mut pending, g)), [Some((1, 5)), Some((6, 5)), Some((11, 1)), None]);
        assert_eq!((pending.bytes(), pending.entries()), (0, 0));
    }

    #[test]
    fn a_gate_splits_between_groups_only() {
        let mut pending = Pending::new(Lsn::FIRST, 100);
        for count in [1, 3, 1, 2] {
            push(&mut pending, count);
        }
        assert_eq!(take(&mut pending, 3), Some((1, 1)), "the group of three reaches above the gate");
        assert_eq!(take(&mut pending, 3), None);
        push(&mut pending, 1);
        assert_eq!(take(&mut pending, 5), Some((2, 4)));
        assert_eq!(take(&mut pending, 7), Some((6, 2)));
        assert_eq!(take(&mut pending, 0), Some((8, 1)));
    }

    #[test]
    fn a_closed_batch_grows_no_more() {
        let mut pending = Pending::new(Lsn::FIRST, 100);
        push(&mut pending, 1);
        pending.close();
        push(&mut pending, 1);
        push(&mut pending, 1);
        assert_eq!([0; 2].map(|g| take(&mut pending, g)), [Some((1, 1)), Some((2, 2))]);
    }
}
