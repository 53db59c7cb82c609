//! Records that are there before their blobs: which they are, what settles them, and up to where
//! everything is complete.

use crate::record::{BlobKey, Key, Version};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::ops::Bound;

/// A record whose blob is not stored here.
#[derive(Clone, Debug, Eq, PartialEq)]
struct Wants {
    key: Key,
    blob: BlobKey,
}

/// The records that want their blobs. Each is settled by its blob or by a later durable record of its
/// key. How many there may be is the caller's bound.
#[derive(Debug, Default)]
pub(super) struct Wanted {
    records: BTreeMap<Version, Wants>,
    by_key: BTreeMap<Key, BTreeSet<Version>>,
    by_blob: BTreeMap<BlobKey, BTreeSet<Version>>,
    /// Whether the blobs of all keys are still to be looked at since the start, because some were missing
    /// that no entry of the journal tells of: the key after which to look next.
    unlooked: Option<Option<Key>>,
    /// The answer that is out belongs to a look that was begun anew meanwhile.
    again: bool,
    /// The blob that was asked for last.
    asked: Option<BlobKey>,
}

/// The last version below another.
fn before(version: Version) -> Version {
    match version.sequence.checked_sub(1) {
        Some(sequence) => Version::new(version.epoch, sequence),
        None => version.epoch.checked_sub(1).map_or(Version::ZERO, |epoch| Version::new(epoch, u64::MAX)),
    }
}

impl Wanted {
    /// A record was appended without its blob, or its blob was found missing or damaged. An earlier one of
    /// the key that wants its blob goes on until this one is durable: it is what is seen. The caller names
    /// no record that a durable one has replaced.
    pub(super) fn want(&mut self, key: Key, version: Version, blob: BlobKey) {
        self.by_key.entry(key.clone()).or_default().insert(version);
        self.by_blob.entry(blob).or_default().insert(version);
        self.records.insert(version, Wants { key, blob });
    }

    /// A record of this key and version is durable: the earlier ones of the key want nothing any more.
    pub(super) fn settle(&mut self, key: &Key, version: Version) {
        let Some(versions) = self.by_key.get_mut(key) else { return };
        let later = versions.split_off(&version);
        let earlier = core::mem::replace(versions, later);
        if versions.is_empty() {
            self.by_key.remove(key);
        }
        for version in earlier {
            if let Some(wants) = self.records.remove(&version)
                && let Some(versions) = self.by_blob.get_mut(&wants.blob)
            {
                versions.remove(&version);
                if versions.is_empty() {
                    self.by_blob.remove(&wants.blob);
                }
            }
        }
    }

    /// A blob is stored. Whether any record wanted it.
    pub(super) fn stored(&mut self, blob: BlobKey) -> bool {
        let Some(versions) = self.by_blob.remove(&blob) else { return false };
        for version in versions {
            if let Some(wants) = self.records.remove(&version)
                && let Some(versions) = self.by_key.get_mut(&wants.key)
            {
                versions.remove(&version);
                if versions.is_empty() {
                    self.by_key.remove(&wants.key);
                }
            }
        }
        true
    }

    /// Whether the record of this key at this version waits for its blob.
    pub(super) fn pending(&self, key: &Key, version: Version) -> bool {
        self.by_key.get(key).is_some_and(|versions| versions.contains(&version))
    }

    /// Whether a record waits for this blob.
    pub(super) fn wants(&self, blob: &BlobKey) -> bool {
        self.by_blob.contains_key(blob)
    }

    /// How many records wait.
    pub(super) fn len(&self) -> usize {
        self.records.len()
    }

    /// Up to where every record that is the last of its key has its blob: at most `tail`.
    pub(super) fn complete(&self, tail: Version) -> Version {
        if self.unlooked.is_some() {
            return Version::ZERO;
        }
        self.records.first_key_value().map_or(tail, |(first, _)| before(*first).min(tail))
    }

    /// The next blobs to look for, at most `count`, each in its turn.
    pub(super) fn round(&mut self, count: usize) -> Vec<BlobKey> {
        let start = self.asked.map_or(Bound::Unbounded, Bound::Excluded);
        let later = self.by_blob.range((start, Bound::Unbounded));
        let first = self.by_blob.range(..=self.asked.unwrap_or(BlobKey([0; 32])));
        let taken = if self.asked.is_some() { count } else { count.min(self.by_blob.len()) };
        let round: Vec<BlobKey> = later.chain(first).map(|(blob, _)| *blob).take(taken).collect();
        self.asked = round.last().copied();
        round
    }

    /// The blobs of all keys must be looked at before anything counts as complete.
    /// Where an answer is `out`, it is of the look before.
    pub(super) fn begin_look(&mut self, out: bool) {
        self.unlooked = Some(None);
        self.again = out;
    }

    /// After which key to look on, while the look is not over.
    pub(super) const fn unlooked(&self) -> Option<&Option<Key>> {
        self.unlooked.as_ref()
    }

    /// The look went on up to this key; `None` says that it is over.
    pub(super) fn looked(&mut self, upto: Option<Key>) {
        self.unlooked = if core::mem::take(&mut self.again) { Some(None) } else { upto.map(Some) };
    }

    /// Forgets everything, for a snapshot that replaces all records.
    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v(sequence: u64) -> Version {
        Version::new(1, sequence)
    }

    fn key(name: &str) -> Key {
        Key::from_parts(b"n", name.as_bytes()).expect("short")
    }

    fn blob(n: u8) -> BlobKey {
        BlobKey([n; 32])
    }

    fn waiting() -> Wanted {
        let mut wanted = Wanted::default();
        wanted.want(key("a"), v(5), blob(1));
        wanted.want(key("b"), v(7), blob(1));
        wanted.want(key("c"), v(9), blob(2));
        wanted
    }

    #[test]
    fn complete_ends_below_the_first_that_waits() {
        let mut wanted = waiting();
        assert_eq!(wanted.complete(v(20)), v(4));
        assert_eq!(wanted.complete(v(2)), v(2));
        assert!(wanted.stored(blob(1)));
        assert_eq!(wanted.complete(v(20)), v(8));
        assert!(wanted.stored(blob(2)) && !wanted.stored(blob(2)));
        assert_eq!((wanted.complete(v(20)), wanted.len()), (v(20), 0));
        wanted.want(key("d"), Version::new(3, 0), blob(3));
        assert_eq!(wanted.complete(Version::new(3, 1)), Version::new(2, u64::MAX));
    }

    #[test]
    fn a_later_record_of_the_key_settles_and_an_earlier_one_does_not() {
        let mut wanted = waiting();
        wanted.settle(&key("a"), v(5));
        wanted.settle(&key("a"), v(3));
        assert!(wanted.pending(&key("a"), v(5)) && wanted.wants(&blob(1)));
        wanted.settle(&key("a"), v(6));
        assert!(!wanted.pending(&key("a"), v(5)));
        assert!(wanted.wants(&blob(1)), "b still waits for it");
    }

    #[test]
    fn what_is_seen_waits_until_the_later_record_is_durable() {
        let mut wanted = waiting();
        wanted.want(key("b"), v(12), blob(4));
        assert!(wanted.pending(&key("b"), v(7)) && wanted.pending(&key("b"), v(12)));
        wanted.settle(&key("b"), v(12));
        assert!(!wanted.pending(&key("b"), v(7)) && wanted.pending(&key("b"), v(12)));
        assert_eq!((wanted.len(), wanted.complete(v(20))), (3, v(4)));
        wanted.stored(blob(4));
        assert!(!wanted.pending(&key("b"), v(12)));
    }

    #[test]
    fn rounds_take_their_turns() {
        let mut wanted = waiting();
        wanted.want(key("d"), v(10), blob(3));
        assert_eq!(wanted.round(2), [blob(1), blob(2)]);
        assert_eq!(wanted.round(2), [blob(3), blob(1)]);
        assert_eq!(wanted.round(9), [blob(2), blob(3), blob(1)]);
        assert_eq!(Wanted::default().round(9), []);
    }

    #[test]
    fn nothing_is_complete_before_the_look_is_over() {
        let mut wanted = Wanted::default();
        wanted.begin_look(false);
        assert_eq!(wanted.complete(v(9)), Version::ZERO);
        wanted.looked(Some(key("a")));
        assert_eq!(wanted.unlooked(), Some(&Some(key("a"))));
        wanted.begin_look(true);
        wanted.looked(None);
        assert_eq!(wanted.unlooked(), Some(&None), "that was the look before");
        wanted.looked(None);
        assert_eq!(wanted.complete(v(9)), v(9));
    }
}
