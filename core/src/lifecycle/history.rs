//! The durable prefix of a log: which version lies where, and the digest chain over it.

pub use crate::wire::own::EpochMark;

use crate::id::Lsn;
use crate::record::{AuthorityId, Version};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use sha2::{Digest, Sha256};

/// Every so many records the digest of the history is kept; between, it is recomputed.
pub const ANCHOR_RECORDS: u64 = 1024;

/// How many of the latest epochs are remembered.
pub const EPOCHS_MAX: usize = 64;

/// Extends the digest chain by one record: D(v) = SHA-256(D(previous) ‖ canonical bytes).
#[must_use]
pub fn extend_digest(previous: &[u8; 32], canonical: &[u8]) -> [u8; 32] {
    let mut hash = Sha256::new();
    hash.update(previous);
    hash.update(canonical);
    hash.finalize().into()
}

/// Consecutive entries whose LSNs and sequences both grow by one, in one epoch.
#[derive(Clone, Copy, Debug)]
struct Stretch {
    lsn: Lsn,
    version: Version,
    records: u64,
}

impl Stretch {
    fn last(&self) -> Version {
        Version::new(self.version.epoch, self.version.sequence + (self.records - 1))
    }

    fn at(&self, index: u64) -> (Lsn, Version) {
        let version = Version::new(self.version.epoch, self.version.sequence + index);
        (self.lsn.plus(index), version)
    }

    /// The first of it that is above `version`, if any is.
    fn first_above(&self, version: Version) -> Option<u64> {
        if version < self.version {
            Some(0)
        } else if version < self.last() {
            Some(version.sequence - self.version.sequence + 1)
        } else {
            None
        }
    }
}

/// A version, the digest of the history up to it.
#[derive(Clone, Copy, Debug)]
struct Anchor {
    version: Version,
    digest: [u8; 32],
}

/// What a log durably holds above its floor: an index from versions to journal positions, and the
/// digest of the history, kept every [`ANCHOR_RECORDS`] records.
///
/// Memory grows with the number of gaps in the versions, not with the number of records.
///
/// ```
/// use strandline_core::id::Lsn;
/// use strandline_core::lifecycle::history::History;
/// use strandline_core::record::{AuthorityId, Version};
/// let mut history = History::new(Version::ZERO, [0; 32]);
/// history.push(Lsn::FIRST, Version::new(1, 7), &AuthorityId::from_text("node-a"), b"canonical");
/// assert_eq!(history.lsn_of(Version::new(1, 7)), Some(Lsn::FIRST));
/// assert!(!history.contains(Version::new(1, 6)));
/// ```
#[derive(Clone, Debug)]
pub struct History {
    floor: Anchor,
    tail: Anchor,
    stretches: VecDeque<Stretch>,
    anchors: VecDeque<Anchor>,
    since_anchor: u64,
    records: u64,
    epochs: VecDeque<EpochMark>,
}

impl History {
    /// An empty history above `floor`, whose own history has `floor_digest` (zeros for
    /// [`Version::ZERO`]).
    #[must_use]
    pub fn new(floor: Version, floor_digest: [u8; 32]) -> Self {
        let floor = Anchor { version: floor, digest: floor_digest };
        Self {
            floor,
            tail: floor,
            stretches: VecDeque::new(),
            anchors: VecDeque::new(),
            since_anchor: 0,
            records: 0,
            epochs: VecDeque::new(),
        }
    }

    /// Takes the next durable record and extends the digest chain.
    ///
    /// # Panics
    /// If `version` is not above [`History::tail`] or `lsn` not above the last one: whoever reads
    /// records from storage or a peer checks this first.
    pub fn push(&mut self, lsn: Lsn, version: Version, authority: &AuthorityId, canonical: &[u8]) {
        assert!(version > self.tail.version, "version {version} is not above the tail {}", self.tail.version);
        self.index(lsn, version);
        self.records += 1;
        let previous_end = self.tail.version;
        self.tail = Anchor { version, digest: extend_digest(&self.tail.digest, canonical) };
        self.since_anchor += 1;
        if self.since_anchor == ANCHOR_RECORDS {
            self.anchors.push_back(self.tail);
            self.since_anchor = 0;
        }
        if let Some(last) =
            self.epochs.back_mut().filter(|last| last.epoch == version.epoch && last.start.sequence == 0)
        {
            last.start = version;
        }
        if self.epochs.back().is_none_or(|last| last.epoch < version.epoch) {
            let (epoch, authority) = (version.epoch, authority.clone());
            self.add_epoch(EpochMark { epoch, start: version, previous_end, authority });
        }
    }

    fn index(&mut self, lsn: Lsn, version: Version) {
        if let Some(last) = self.stretches.back_mut() {
            let (last_lsn, last_version) = last.at(last.records - 1);
            assert!(lsn > last_lsn, "LSN {lsn} is not above the last, {last_lsn}");
            if lsn == last_lsn.plus(1)
                && version.epoch == last_version.epoch
                && Some(version.sequence) == last_version.sequence.checked_add(1)
            {
                last.records += 1;
                return;
            }
        }
        self.stretches.push_back(Stretch { lsn, version, records: 1 });
    }

    fn add_epoch(&mut self, mark: EpochMark) {
        if self.epochs.len() == EPOCHS_MAX {
            self.epochs.pop_front();
        }
        self.epochs.push_back(mark);
    }

    /// An epoch begins behind the tail: `mark` has no first record yet, so its start is version zero of
    /// it.
    ///
    /// # Panics
    /// If it is not above [`History::epoch`].
    pub fn begin_epoch(&mut self, mark: EpochMark) {
        assert!(mark.epoch > self.epoch(), "epoch {} is not above {}", mark.epoch, self.epoch());
        self.add_epoch(mark);
    }

    /// The latest epoch that has begun; zero for none.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epochs.back().map_or(self.tail.version.epoch, |mark| mark.epoch)
    }

    /// What compaction kept: only versions above it have a place in the journal.
    #[must_use]
    pub const fn floor(&self) -> Version {
        self.floor.version
    }

    /// Digest of the history up to the floor.
    #[must_use]
    pub const fn floor_digest(&self) -> [u8; 32] {
        self.floor.digest
    }

    /// The last durable version; the floor if nothing lies above it.
    #[must_use]
    pub const fn tail(&self) -> Version {
        self.tail.version
    }

    /// Digest of the history up to the tail.
    #[must_use]
    pub const fn tail_digest(&self) -> [u8; 32] {
        self.tail.digest
    }

    /// How many records lie above the floor.
    #[must_use]
    pub const fn entries(&self) -> u64 {
        self.records
    }

    /// The place of exactly this version.
    #[must_use]
    pub fn lsn_of(&self, version: Version) -> Option<Lsn> {
        let i = self.stretches.partition_point(|s| s.last() < version);
        let stretch = self.stretches.get(i).filter(|s| s.version <= version)?;
        Some(stretch.lsn.plus(version.sequence - stretch.version.sequence))
    }

    /// The first record above `version`; one below the floor is answered as the floor is.
    #[must_use]
    pub fn first_after(&self, version: Version) -> Option<(Lsn, Version)> {
        let i = self.stretches.partition_point(|s| s.last() <= version);
        let stretch = self.stretches.get(i)?;
        stretch.first_above(version).map(|index| stretch.at(index))
    }

    /// The version of the record at exactly this place.
    #[must_use]
    pub fn version_at(&self, lsn: Lsn) -> Option<Version> {
        let i = self.stretches.partition_point(|s| s.lsn <= lsn);
        let stretch = self.stretches.get(i.checked_sub(1)?)?;
        let index = lsn.get() - stretch.lsn.get();
        (index < stretch.records).then(|| stretch.at(index).1)
    }

    /// How many records lie above `low`, up to and including `high`.
    #[must_use]
    pub fn records_between(&self, low: Version, high: Version) -> u64 {
        let upto = |stretch: &Stretch, version| stretch.first_above(version).unwrap_or(stretch.records);
        self.stretches.iter().map(|s| upto(s, high).saturating_sub(upto(s, low))).sum()
    }

    /// The version of the `nth` record above `low`, the first being number 1; `None` if there are
    /// fewer.
    #[must_use]
    pub fn nth_after(&self, low: Version, nth: u64) -> Option<Version> {
        let mut left = nth.checked_sub(1)?;
        for stretch in &self.stretches {
            let Some(first) = stretch.first_above(low) else { continue };
            let here = stretch.records - first;
            if left < here {
                return Some(stretch.at(first + left).1);
            }
            left -= here;
        }
        None
    }

    /// Whether this is exactly the floor or exactly the version of a record above it.
    #[must_use]
    pub fn contains(&self, version: Version) -> bool {
        version == self.floor.version || self.lsn_of(version).is_some()
    }

    /// The highest version at or below `version` whose digest is kept, the place of the record
    /// after it, and the digest. A version below the floor is answered with the floor.
    #[must_use]
    pub fn anchor_at_or_before(&self, version: Version) -> (Version, Option<Lsn>, [u8; 32]) {
        let anchor = if version >= self.tail.version {
            self.tail
        } else {
            let i = self.anchors.partition_point(|anchor| anchor.version <= version);
            i.checked_sub(1).map_or(self.floor, |i| self.anchors[i])
        };
        (anchor.version, self.first_after(anchor.version).map(|(lsn, _)| lsn), anchor.digest)
    }

    /// Forgets what lies at or below a new floor, after a compaction.
    ///
    /// # Panics
    /// If `floor` is not the present floor or the version of a record above it.
    pub fn raise_floor(&mut self, floor: Version, digest: [u8; 32]) {
        assert!(self.contains(floor), "new floor {floor} is none of the log's versions");
        while let Some(first) = self.stretches.front_mut() {
            let gone = first.first_above(floor).unwrap_or(first.records);
            self.records -= gone;
            if gone < first.records {
                let (lsn, version) = first.at(gone);
                *first = Stretch { lsn, version, records: first.records - gone };
                break;
            }
            self.stretches.pop_front();
        }
        while self.anchors.front().is_some_and(|anchor| anchor.version <= floor) {
            self.anchors.pop_front();
        }
        self.floor = Anchor { version: floor, digest };
    }

    /// Starts afresh above a snapshot's cut.
    pub fn reset(&mut self, floor: Version, digest: [u8; 32], epochs: &[EpochMark]) {
        *self = Self::new(floor, digest);
        self.load_epochs(epochs);
    }

    /// The latest epochs, at most [`EPOCHS_MAX`], oldest first.
    #[must_use]
    pub fn epochs(&self) -> Vec<EpochMark> {
        self.epochs.iter().cloned().collect()
    }

    /// The epochs that begin at or below `version`, for what is cut there.
    #[must_use]
    pub fn epochs_upto(&self, version: Version) -> Vec<EpochMark> {
        self.epochs.iter().filter(|mark| mark.start <= version).cloned().collect()
    }

    /// Takes the epochs of the history below the floor, oldest first, in place of those known; all
    /// but the last [`EPOCHS_MAX`] are left out.
    pub fn load_epochs(&mut self, epochs: &[EpochMark]) {
        self.epochs.clear();
        for mark in epochs {
            self.add_epoch(mark.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lsn(value: u64) -> Lsn {
        Lsn::new(value).expect("not zero")
    }

    fn authority() -> AuthorityId {
        AuthorityId::from_text("a")
    }

    fn filled(records: u64) -> History {
        let mut history = History::new(Version::ZERO, [0; 32]);
        for i in 1..=records {
            history.push(lsn(i), Version::new(1, i), &authority(), &i.to_be_bytes());
        }
        history
    }

    /// The reference keeps every record: 224 bytes of heap for each.
    #[test]
    fn finding_g_the_history_of_a_record_costs_less_than_a_byte() {
        let history = filled(65_536);
        assert_eq!(history.entries(), 65_536);
        let bytes = history.stretches.capacity() * size_of::<Stretch>()
            + history.anchors.capacity() * size_of::<Anchor>()
            + history.epochs.capacity() * size_of::<EpochMark>();
        assert!(bytes < 65_536, "{bytes}");
    }

    #[test]
    fn consecutive_records_take_one_stretch() {
        let mut history = filled(5000);
        assert_eq!((history.stretches.len(), history.anchors.len(), history.entries()), (1, 4, 5000));
        history.push(lsn(5001), Version::new(1, 6000), &authority(), b"after burned tokens");
        history.push(lsn(5003), Version::new(1, 6001), &authority(), b"after another kind of entry");
        history.push(lsn(5004), Version::new(2, 6002), &authority(), b"in another epoch");
        assert_eq!(history.stretches.len(), 4);
    }

    #[test]
    fn records_are_counted_and_found_by_their_number() {
        let mut history = filled(10);
        history.push(lsn(12), Version::new(2, 1), &authority(), b"x");
        let (low, high) = (Version::new(1, 4), Version::new(2, 1));
        assert_eq!((history.records_between(low, high), history.records_between(high, high)), (7, 0));
        assert_eq!(history.records_between(Version::ZERO, Version::new(1, 4)), 4);
        let nth = |n| history.nth_after(low, n);
        assert_eq!((nth(0), nth(1), nth(7), nth(8)), (None, Some(Version::new(1, 5)), Some(high), None));
    }

    #[test]
    fn the_chain_hashes_the_digest_before_and_the_record() {
        let history = filled(2);
        let one = extend_digest(&[0; 32], &1u64.to_be_bytes());
        let two: [u8; 32] = Sha256::digest([&one[..], &2u64.to_be_bytes()].concat()).into();
        assert_eq!(history.tail_digest(), two);
    }

    #[test]
    fn anchors_are_found_at_or_below() {
        let history = filled(3000);
        let v = |sequence| Version::new(1, sequence);
        assert_eq!(history.anchor_at_or_before(v(1023)), (Version::ZERO, Some(lsn(1)), [0; 32]));
        let (version, next, digest) = history.anchor_at_or_before(v(1024));
        assert_eq!((version, next), (v(1024), Some(lsn(1025))));
        assert_eq!(digest, filled(1024).tail_digest());
        assert_eq!(history.anchor_at_or_before(v(2900)).0, v(2048));
        assert_eq!(history.anchor_at_or_before(v(9999)), (v(3000), None, history.tail_digest()));
    }

    #[test]
    fn epochs_are_the_last_64() {
        let mut history = History::new(Version::ZERO, [0; 32]);
        for i in 1..=70 {
            history.push(lsn(i), Version::new(i, 3), &authority(), b"x");
        }
        let epochs = history.epochs();
        assert_eq!((epochs.len(), epochs[0].epoch, epochs[0].start), (64, 7, Version::new(7, 3)));
        assert_eq!(history.epochs_upto(Version::new(8, 3)).len(), 2);
    }

    #[test]
    fn an_epoch_known_from_below_the_floor_is_not_marked_again() {
        let mut history = History::new(Version::new(3, 9), [1; 32]);
        let (start, previous_end) = (Version::new(3, 1), Version::new(2, 5));
        let below = EpochMark { epoch: 3, start, previous_end, authority: authority() };
        history.load_epochs(core::slice::from_ref(&below));
        history.push(lsn(4), Version::new(3, 10), &authority(), b"x");
        assert_eq!(history.epochs(), [below]);
    }

    #[test]
    fn an_epoch_begins_before_its_first_record() {
        let mut history = filled(3);
        let (start, previous_end) = (Version::new(2, 0), history.tail());
        history.begin_epoch(EpochMark { epoch: 2, start, previous_end, authority: authority() });
        assert_eq!((history.epoch(), history.epochs_upto(history.tail()).len()), (2, 1));
        history.push(lsn(5), Version::new(2, 7), &authority(), b"x");
        assert_eq!(history.epochs().last().map(|mark| mark.start), Some(Version::new(2, 7)));
        assert_eq!(history.epochs().len(), 2);
    }

    #[test]
    fn a_reset_forgets_the_journal() {
        let mut history = filled(9);
        history.reset(Version::new(4, 4), [7; 32], &[]);
        assert_eq!(
            (history.floor(), history.tail(), history.entries()),
            (Version::new(4, 4), Version::new(4, 4), 0)
        );
        assert_eq!((history.floor_digest(), history.tail_digest()), ([7; 32], [7; 32]));
        assert_eq!(history.first_after(Version::ZERO), None);
        assert!(history.epochs().is_empty());
    }

    #[test]
    #[should_panic(expected = "not above the tail")]
    fn a_version_that_does_not_grow_is_a_broken_invariant() {
        filled(3).push(lsn(9), Version::new(1, 3), &authority(), b"x");
    }

    #[test]
    #[should_panic(expected = "none of the log's versions")]
    fn a_floor_that_is_no_version_is_a_broken_invariant() {
        filled(3).raise_floor(Version::new(1, 4), [0; 32]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]
        #[test]
        fn answers_as_a_list_of_all_records_does(
            steps in proptest::collection::vec((1u64..3, 0u64..2, 1u64..3), 1..60),
            asked in proptest::collection::vec((0u64..6, 0u64..40, 0u64..140), 1..20),
            floor in 0usize..60,
        ) {
            let mut history = History::new(Version::ZERO, [0; 32]);
            let mut model: Vec<(Lsn, Version, [u8; 32])> = Vec::new();
            let (mut at, mut version, mut digest) = (0, Version::new(1, 0), [0; 32]);
            for (lsn_step, epoch_step, sequence_step) in steps {
                at += lsn_step;
                version = if epoch_step == 1 && at % 7 == 0 {
                    Version::new(version.epoch + 1, sequence_step)
                } else {
                    Version::new(version.epoch, version.sequence + sequence_step)
                };
                digest = extend_digest(&digest, &at.to_be_bytes());
                history.push(lsn(at), version, &authority(), &at.to_be_bytes());
                model.push((lsn(at), version, digest));
            }
            if let Some((_, version, digest)) = model.get(floor).copied() {
                history.raise_floor(version, digest);
                model.drain(..=floor);
                prop_assert_eq!(history.floor(), version);
            }
            prop_assert_eq!(history.entries(), model.len() as u64);
            prop_assert_eq!(history.tail_digest(), digest);
            for (epoch, sequence, at) in asked {
                let v = Version::new(epoch, sequence);
                let exact = model.iter().find(|(_, version, _)| *version == v).map(|(lsn, ..)| *lsn);
                prop_assert_eq!(history.lsn_of(v), exact);
                let after = model.iter().find(|(_, version, _)| *version > v).map(|(lsn, v, _)| (*lsn, *v));
                prop_assert_eq!(history.first_after(v), after);
                if let Some(at) = Lsn::new(at) {
                    let there = model.iter().find(|(lsn, ..)| *lsn == at).map(|(_, v, _)| *v);
                    prop_assert_eq!(history.version_at(at), there);
                }
            }
        }
    }
}
