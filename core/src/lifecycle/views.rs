//! The two views of the key space: what was submitted, and what is durable and may be seen.

use super::api::{Entry, Scan, ScanPage};
use crate::id::Lsn;
use crate::record::{AuthorityId, Key, State, Version};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::ops::Bound;

/// Most entries of one page of a scan.
pub const SCAN_ENTRIES_MAX: u32 = 4096;

/// Most keys one page of a scan looks at, so that a stretch of tombstones ends a page instead of
/// holding up everything else.
pub const SCAN_LOOKED_MAX: u32 = 16_384;

/// Most authority texts that are shared between entries; further ones are kept once per entry.
const SHARED_AUTHORITIES_MAX: usize = 64;

/// How many keys come in order before the tree may be built anew.
const LOOSE_KEYS_MIN: usize = 65_536;

/// What every key is, twice: as submitted (decides order, conflicts and preconditions) and as
/// visible (the durable prefix; the only one that is read).
///
/// A submitted entry holds memory twice until it is published; how many may wait is the caller's
/// bound.
///
/// ```
/// use strandline_core::id::Lsn;
/// use strandline_core::lifecycle::{api::Entry, views::Views};
/// use strandline_core::record::{AuthorityId, Key, State, Version};
/// let mut views = Views::default();
/// let key = Key::from_parts(b"documents", b"a").expect("short");
/// let authority = AuthorityId::from_text("node-a");
/// let entry = Entry { state: State::Deleted, version: Version::new(1, 1), authority };
/// views.submit(Lsn::FIRST, key.clone(), entry);
/// assert!(views.latest(&key).is_some() && views.visible(&key).is_none());
/// views.publish(Lsn::FIRST, &mut |_, _, _| {});
/// assert!(views.visible(&key).is_some());
/// ```
#[derive(Debug, Default)]
pub struct Views {
    visible: BTreeMap<Key, Entry>,
    latest: BTreeMap<Key, (Lsn, Entry)>,
    submitted: VecDeque<(Lsn, Key, Entry)>,
    authorities: BTreeSet<AuthorityId>,
    present: u64,
    tombstones: u64,
    /// Keys loaded since the tree was packed.
    loose: usize,
}

impl Views {
    /// What the key is once everything submitted is durable.
    #[must_use]
    pub fn latest(&self, key: &Key) -> Option<&Entry> {
        self.latest.get(key).map(|(_, entry)| entry).or_else(|| self.visible(key))
    }

    /// What the key durably is.
    #[must_use]
    pub fn visible(&self, key: &Key) -> Option<&Entry> {
        self.visible.get(key)
    }

    /// Takes a change that has its place in the journal and is not durable yet.
    ///
    /// # Panics
    /// If `lsn` is not above those submitted before: the journal gives places in order.
    pub fn submit(&mut self, lsn: Lsn, key: Key, mut entry: Entry) {
        assert!(
            self.submitted.back().is_none_or(|(last, ..)| *last < lsn),
            "LSN {lsn} is not above the last"
        );
        self.share_authority(&mut entry);
        self.latest.insert(key.clone(), (lsn, entry.clone()));
        self.submitted.push_back((lsn, key, entry));
    }

    /// Makes visible what was submitted up to `upto`, in journal order, and shows each change to
    /// `visit`.
    pub fn publish(&mut self, upto: Lsn, visit: &mut dyn FnMut(Lsn, &Key, &Entry)) {
        while self.submitted.front().is_some_and(|(lsn, ..)| *lsn <= upto) {
            let (lsn, key, entry) = self.submitted.pop_front().expect("a front was seen");
            visit(lsn, &key, &entry);
            if self.latest.get(&key).is_some_and(|(latest, _)| *latest == lsn) {
                self.latest.remove(&key);
            }
            self.replace(key, entry);
        }
    }

    /// Takes a durable entry as it is read back from storage; a later call for a key wins.
    pub fn load(&mut self, key: Key, mut entry: Entry) {
        self.share_authority(&mut entry);
        let before = self.visible.len();
        self.replace(key, entry);
        self.loose += self.visible.len() - before;
        if self.loose >= LOOSE_KEYS_MIN && self.loose >= self.visible.len() / 4 {
            self.pack();
        }
    }

    /// Keys that come in order leave the nodes of the tree half empty. It is built anew, with full ones: a
    /// third less memory for a walk through all keys, which the keys loaded since the last one pay for.
    fn pack(&mut self) {
        self.loose = 0;
        let Some(last) = self.visible.pop_last() else { return };
        // Joining two trees that are not empty builds the whole one in order.
        self.visible.append(&mut BTreeMap::from([last]));
    }

    /// One page of the visible keys. Only keys inside the asked range are looked at, at most
    /// [`SCAN_LOOKED_MAX`] of them, and at most [`SCAN_ENTRIES_MAX`] returned (at least one is
    /// asked for). A page may therefore be short, even empty, and still name a `next`.
    #[must_use]
    pub fn scan(&self, scan: &Scan, at: Version) -> ScanPage {
        let entries_max = scan.entries_max.clamp(1, SCAN_ENTRIES_MAX) as usize;
        let mut page = ScanPage { entries: Vec::new(), next: None, at };
        let mut looked: Option<&Key> = None;
        for (count, (key, entry)) in Walk::new(&self.visible, scan).enumerate() {
            let wanted = scan.deleted || matches!(entry.state, State::Present { .. });
            if count == SCAN_LOOKED_MAX as usize || (wanted && page.entries.len() == entries_max) {
                page.next = looked.cloned();
                break;
            }
            if wanted {
                page.entries.push((key.clone(), entry.clone()));
            }
            looked = Some(key);
        }
        page
    }

    /// Drops those of `keys` that are visible tombstones at or below `floor`, and says how many.
    pub fn purge(&mut self, keys: &[Key], floor: Version) -> u64 {
        let before = self.tombstones;
        for key in keys {
            let gone = self
                .visible(key)
                .is_some_and(|entry| entry.state == State::Deleted && entry.version <= floor);
            if gone {
                self.visible.remove(key);
                self.tombstones -= 1;
            }
        }
        before - self.tombstones
    }

    /// The blobs that changes name which are submitted and not visible.
    pub(super) fn submitted_blobs(&self) -> impl Iterator<Item = crate::record::BlobKey> {
        self.submitted.iter().filter_map(|(_, _, entry)| match entry.state {
            State::Present { blob } => Some(blob),
            State::Deleted => None,
        })
    }

    /// The changes that put this blob and are submitted and not visible.
    pub(super) fn submitted_naming(
        &self,
        blob: crate::record::BlobKey,
    ) -> impl Iterator<Item = (&Key, Version)> {
        let names = move |entry: &Entry| entry.state == State::Present { blob };
        self.submitted.iter().filter(move |(_, _, entry)| names(entry)).map(|(_, key, e)| (key, e.version))
    }

    /// The visible entries in key order, those after `after` only if it is given.
    pub fn visible_from(&self, after: Option<&Key>) -> impl Iterator<Item = (&Key, &Entry)> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.visible.range::<Key, _>((start, Bound::Unbounded))
    }

    /// How many visible keys are present; constant time.
    #[must_use]
    pub const fn present(&self) -> u64 {
        self.present
    }

    /// How many visible keys are deleted; constant time.
    #[must_use]
    pub const fn tombstones(&self) -> u64 {
        self.tombstones
    }

    /// How many changes are submitted and not visible.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.submitted.len()
    }

    /// Forgets everything, for a snapshot that replaces it.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    fn replace(&mut self, key: Key, entry: Entry) {
        *self.counter(entry.state) += 1;
        if let Some(previous) = self.visible.insert(key, entry) {
            *self.counter(previous.state) -= 1;
        }
    }

    fn counter(&mut self, state: State) -> &mut u64 {
        match state {
            State::Present { .. } => &mut self.present,
            State::Deleted => &mut self.tombstones,
        }
    }

    fn share_authority(&mut self, entry: &mut Entry) {
        if let Some(known) = self.authorities.get(&entry.authority) {
            entry.authority = known.clone();
        } else if self.authorities.len() < SHARED_AUTHORITIES_MAX {
            self.authorities.insert(entry.authority.clone());
        }
    }
}

/// Walks the keys a scan asks for, seeking over what lies between them.
struct Walk<'a> {
    entries: &'a BTreeMap<Key, Entry>,
    scan: &'a Scan,
    range: alloc::collections::btree_map::Range<'a, Key, Entry>,
}

impl<'a> Walk<'a> {
    fn new(entries: &'a BTreeMap<Key, Entry>, scan: &'a Scan) -> Self {
        let first = scan.namespace.as_ref().and_then(|namespace| Key::from_parts(namespace, &scan.prefix));
        let start = match (&first, &scan.after) {
            (Some(first), Some(after)) if after < first => Bound::Included(first),
            (_, Some(after)) => Bound::Excluded(after),
            (Some(first), None) => Bound::Included(first),
            (None, None) => Bound::Unbounded,
        };
        let range = entries.range::<Key, _>((start, Bound::Unbounded));
        // No key can have a namespace that is too long for one.
        let nothing = scan.namespace.is_some() && first.is_none();
        Self { entries, scan, range: if nothing { Default::default() } else { range } }
    }

    fn seek(&mut self, to: &Key) {
        self.range = self.entries.range(to..);
    }
}

impl<'a> Iterator for Walk<'a> {
    type Item = (&'a Key, &'a Entry);

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let (key, entry) = self.range.next()?;
            if self.scan.namespace.as_ref().is_some_and(|namespace| key.namespace() != namespace) {
                return None;
            }
            if key.logical_key().starts_with(&self.scan.prefix) {
                return Some((key, entry));
            }
            if key.logical_key() < self.scan.prefix.as_slice() {
                self.seek(&Key::from_parts(key.namespace(), &self.scan.prefix)?);
            } else if self.scan.namespace.is_some() {
                return None;
            } else {
                self.seek(&after_namespace(key.namespace())?);
            }
        }
    }
}

/// The lowest key any namespace above `namespace` can have; `None` above the last one.
fn after_namespace(namespace: &[u8]) -> Option<Key> {
    let mut next = namespace.to_vec();
    next.push(0);
    if let Some(key) = Key::from_parts(&next, b"") {
        return Some(key);
    }
    next.pop();
    while next.last() == Some(&u8::MAX) {
        next.pop();
    }
    *next.last_mut()? += 1;
    Key::from_parts(&next, b"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::BlobKey;
    use proptest::prelude::*;

    fn key(namespace: &[u8], logical: &[u8]) -> Key {
        Key::from_parts(namespace, logical).expect("short")
    }

    fn entry(sequence: u64, present: bool) -> Entry {
        let state = if present { State::Present { blob: BlobKey([1; 32]) } } else { State::Deleted };
        Entry { state, version: Version::new(1, sequence), authority: AuthorityId::from_text("a") }
    }

    fn lsn(value: u64) -> Lsn {
        Lsn::new(value).expect("not zero")
    }

    fn all(prefix: &[u8]) -> Scan {
        Scan { namespace: None, prefix: prefix.to_vec(), after: None, entries_max: 100, deleted: false }
    }

    fn keys(page: &ScanPage) -> Vec<Key> {
        page.entries.iter().map(|(key, _)| key.clone()).collect()
    }

    #[test]
    fn what_is_packed_while_it_is_loaded_is_all_there() {
        let mut views = Views::default();
        let keys = LOOSE_KEYS_MIN as u64 * 2 + 5;
        for i in 0..keys {
            views.load(key(b"n", &i.to_be_bytes()), entry(i + 1, i % 2 == 0));
        }
        assert!(views.loose < LOOSE_KEYS_MIN, "it was packed");
        assert_eq!(views.present() + views.tombstones(), keys);
        for i in 0..keys {
            assert_eq!(views.visible(&key(b"n", &i.to_be_bytes())).map(|e| e.version.sequence), Some(i + 1));
        }
        // A key that comes again makes the tree no larger.
        let loose = views.loose;
        views.load(key(b"n", &0u64.to_be_bytes()), entry(keys + 1, false));
        assert_eq!(views.loose, loose);
    }

    #[test]
    fn submitted_is_latest_and_not_visible() {
        let mut views = Views::default();
        let k = key(b"n", b"k");
        views.load(k.clone(), entry(1, true));
        views.submit(lsn(5), k.clone(), entry(2, false));
        views.submit(lsn(6), k.clone(), entry(3, true));
        assert_eq!(views.latest(&k).map(|e| e.version.sequence), Some(3));
        assert_eq!(views.visible(&k).map(|e| e.version.sequence), Some(1));
        let mut seen = Vec::new();
        views.publish(lsn(5), &mut |lsn, _, entry| seen.push((lsn.get(), entry.version.sequence)));
        assert_eq!(views.latest(&k).map(|e| e.version.sequence), Some(3));
        assert_eq!(views.visible(&k).map(|e| e.version.sequence), Some(2));
        assert_eq!((views.present(), views.tombstones(), views.pending()), (0, 1, 1));
        views.publish(lsn(9), &mut |lsn, _, entry| seen.push((lsn.get(), entry.version.sequence)));
        assert_eq!(seen, [(5, 2), (6, 3)]);
        assert_eq!((views.present(), views.tombstones(), views.pending()), (1, 0, 0));
    }

    #[test]
    fn purge_drops_only_tombstones_at_or_below_the_floor() {
        let mut views = Views::default();
        let named = [key(b"n", b"old"), key(b"n", b"new"), key(b"n", b"live"), key(b"n", b"none")];
        views.load(named[0].clone(), entry(5, false));
        views.load(named[1].clone(), entry(6, false));
        views.load(named[2].clone(), entry(1, true));
        assert_eq!(views.purge(&named, Version::new(1, 5)), 1);
        assert_eq!((views.present(), views.tombstones()), (1, 1));
        assert!(views.visible(&named[0]).is_none() && views.visible(&named[1]).is_some());
    }

    #[test]
    fn one_authority_text_is_shared() {
        let mut views = Views::default();
        let (a, b) = (key(b"n", b"a"), key(b"n", b"b"));
        views.load(a.clone(), entry(1, true));
        views.load(b.clone(), entry(2, true));
        let text = |key| views.visible(key).expect("loaded").authority.as_str().as_ptr();
        assert_eq!(text(&a), text(&b));
    }

    #[test]
    fn a_page_over_tombstones_ends_and_resumes() {
        let mut views = Views::default();
        for i in 0..=u64::from(SCAN_LOOKED_MAX) {
            views.load(key(b"n", &i.to_be_bytes()), entry(i + 1, false));
        }
        let last = key(b"n", &u64::MAX.to_be_bytes());
        views.load(last.clone(), entry(1, true));
        let first = views.scan(&all(b""), Version::new(1, 9));
        assert_eq!((first.entries.len(), first.at), (0, Version::new(1, 9)));
        let resumed = views.scan(&Scan { after: first.next, ..all(b"") }, Version::ZERO);
        assert_eq!((keys(&resumed), resumed.next), (alloc::vec![last], None));
    }

    #[test]
    fn a_full_page_at_the_end_names_no_next() {
        let mut views = Views::default();
        views.load(key(b"n", b"a"), entry(1, true));
        views.load(key(b"n", b"b"), entry(2, false));
        let page = views.scan(&Scan { entries_max: 0, ..all(b"") }, Version::ZERO);
        assert_eq!((page.entries.len(), page.next), (1, None));
    }

    #[test]
    fn a_namespace_no_key_can_have() {
        let mut views = Views::default();
        views.load(key(b"n", b"a"), entry(1, true));
        let page = views.scan(&Scan { namespace: Some(alloc::vec![1; 70_000]), ..all(b"") }, Version::ZERO);
        assert_eq!((page.entries.len(), page.next), (0, None));
    }

    #[test]
    fn the_key_after_the_longest_namespace() {
        let mut longest = alloc::vec![u8::MAX; 65_535];
        assert_eq!(after_namespace(&longest), None);
        longest[0] = 7;
        assert_eq!(after_namespace(&longest), Some(key(&[8], b"")));
        assert_eq!(after_namespace(b"n"), Some(key(b"n\0", b"")));
    }

    fn part() -> impl Strategy<Value = Vec<u8>> {
        proptest::collection::vec(prop_oneof![Just(0u8), Just(b'a'), Just(255)], 1..4)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]
        #[test]
        fn pages_together_are_the_filtered_view(
            stored in proptest::collection::btree_map((part(), part()), any::<bool>(), 0..40),
            namespace in proptest::option::of(part()),
            prefix in proptest::collection::vec(prop_oneof![Just(0u8), Just(b'a'), Just(255)], 0..3),
            entries_max in 1u32..5,
            deleted: bool,
        ) {
            let mut views = Views::default();
            for ((n, k), present) in &stored {
                views.load(key(n, k), entry(1, *present));
            }
            let expected: Vec<Key> = stored
                .iter()
                .filter(|((n, k), present)| {
                    namespace.as_ref().is_none_or(|wanted| wanted == n)
                        && k.starts_with(&prefix)
                        && (deleted || **present)
                })
                .map(|((n, k), _)| key(n, k))
                .collect();
            let mut found = Vec::new();
            let mut scan = Scan { namespace, prefix, after: None, entries_max, deleted };
            loop {
                let page = views.scan(&scan, Version::ZERO);
                prop_assert!(page.entries.len() <= entries_max as usize);
                found.extend(keys(&page));
                scan.after = page.next;
                if scan.after.is_none() {
                    break;
                }
            }
            prop_assert_eq!(found, expected);
        }
    }
}
