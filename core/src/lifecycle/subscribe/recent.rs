//! The latest durable changes, kept in memory for subscribers that keep up.

use crate::record::{Record, Version};
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// About what a record holds beside its key: lengths, state, blob key, version.
const FIXED_BYTES: u64 = 96;

/// The bytes that a change counts for, in memory and in a page.
pub(super) fn counted(record: &Record) -> u64 {
    let key = &record.key;
    FIXED_BYTES + (key.namespace().len() + key.logical_key().len()) as u64
}

/// The changes after `from`, up to the durable tail, without a hole.
#[derive(Debug)]
pub(in crate::lifecycle) struct Recent {
    records: VecDeque<Record>,
    bytes: u64,
    from: Version,
}

impl Recent {
    /// Nothing is held yet; `tail` is the last durable version.
    pub(in crate::lifecycle) const fn new(tail: Version) -> Self {
        Self { records: VecDeque::new(), bytes: 0, from: tail }
    }

    /// The next durable change. The oldest go when more than `bytes_max` are held.
    pub(in crate::lifecycle) fn push(&mut self, record: Record, bytes_max: u64) {
        self.bytes += counted(&record);
        self.records.push_back(record);
        while self.bytes > bytes_max {
            let Some(oldest) = self.records.pop_front() else { return };
            self.bytes -= counted(&oldest);
            self.from = oldest.version;
        }
    }

    /// The changes after `at`, about `bytes_max` bytes of them and at least one; `None` if memory does
    /// not reach so far back.
    pub(super) fn after(&self, at: Version, bytes_max: u64) -> Option<Vec<Record>> {
        if at < self.from {
            return None;
        }
        let first = self.records.partition_point(|record| record.version <= at);
        let mut bytes = 0;
        let page = self.records.range(first..).take_while(|record| {
            let fits = bytes == 0 || bytes + counted(record) <= bytes_max;
            bytes += counted(record);
            fits
        });
        Some(page.cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{AuthorityId, Key, State};

    fn record(sequence: u64) -> Record {
        Record {
            key: Key::from_parts(b"n", b"k").expect("short"),
            state: State::Deleted,
            version: Version::new(1, sequence),
            authority: AuthorityId::from_text("a"),
        }
    }

    fn sequences(page: Option<Vec<Record>>) -> Option<Vec<u64>> {
        page.map(|records| records.iter().map(|record| record.version.sequence).collect())
    }

    #[test]
    fn what_memory_does_not_reach_is_not_answered_from_it() {
        let each = counted(&record(1));
        let mut recent = Recent::new(Version::new(1, 10));
        for sequence in 11..=15 {
            recent.push(record(sequence), 3 * each);
        }
        let after = |at| sequences(recent.after(Version::new(1, at), u64::MAX));
        assert_eq!(after(11), None, "12 is gone");
        assert_eq!(after(12), Some(alloc::vec![13, 14, 15]));
        assert_eq!(after(15), Some(alloc::vec![]));
    }

    #[test]
    fn nothing_before_the_first_push_is_vouched_for() {
        let recent = Recent::new(Version::new(1, 10));
        assert_eq!(sequences(recent.after(Version::new(1, 9), 1)), None);
        assert_eq!(sequences(recent.after(Version::new(1, 10), 1)), Some(alloc::vec![]));
    }

    #[test]
    fn a_page_has_at_least_one_and_no_more_than_fit() {
        let each = counted(&record(1));
        let mut recent = Recent::new(Version::ZERO);
        for sequence in 1..=5 {
            recent.push(record(sequence), u64::MAX);
        }
        assert_eq!(sequences(recent.after(Version::ZERO, 1)), Some(alloc::vec![1]));
        assert_eq!(sequences(recent.after(Version::new(1, 1), 2 * each)), Some(alloc::vec![2, 3]));
    }

    #[test]
    fn a_change_larger_than_memory_is_not_held() {
        let mut recent = Recent::new(Version::ZERO);
        recent.push(record(1), 1);
        assert_eq!(sequences(recent.after(Version::ZERO, 9)), None);
        assert_eq!(sequences(recent.after(Version::new(1, 1), 9)), Some(alloc::vec![]));
    }
}
