//! What the prefix of the journal leaves behind when it is compacted: the last writer of each key.

use super::api::Entry;
use super::entry::JournalEntry;
use super::history::extend_digest;
use crate::id::Lsn;
use crate::record::{AuthorityId, Key, Version};
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::{String, ToString};
use core::ops::ControlFlow;

/// Collects the last writer of each key while the prefix is read in order, and the digest of the
/// history along the way. Stops before the key that would be one too many.
#[derive(Debug)]
pub(super) struct LastWriters {
    entries: BTreeMap<Key, Entry>,
    entries_max: usize,
    end: PrefixEnd,
    authority: Option<AuthorityId>,
    stopped: bool,
}

/// Where the collected prefix ends.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct PrefixEnd {
    /// The last record collected; the floor before the first.
    pub(super) version: Version,
    /// Digest of the history up to it.
    pub(super) digest: [u8; 32],
    /// Its place.
    pub(super) lsn: Option<Lsn>,
}

impl LastWriters {
    pub(super) fn new(floor: Version, floor_digest: [u8; 32], entries_max: u32) -> Self {
        Self {
            entries: BTreeMap::new(),
            entries_max: entries_max.max(1) as usize,
            end: PrefixEnd { version: floor, digest: floor_digest, lsn: None },
            authority: None,
            stopped: false,
        }
    }

    /// Takes the next entry of the journal. Breaks once this round takes no more; the entry is not
    /// taken then. An error says what was expected and found.
    pub(super) fn take(&mut self, lsn: Lsn, kind: u8, bytes: &[u8]) -> Result<ControlFlow<()>, String> {
        let entry = JournalEntry::parse(kind, bytes).map_err(|error| error.to_string())?;
        let JournalEntry::Record(view) = entry else {
            return Ok(ControlFlow::Continue(()));
        };
        if view.version <= self.end.version {
            return Err(format!("expected a version above {}, found {}", self.end.version, view.version));
        }
        let key = Key::from_parts(view.namespace, view.logical_key).expect("a parsed record has a key");
        if self.entries.len() == self.entries_max && !self.entries.contains_key(&key) {
            self.stopped = true;
            return Ok(ControlFlow::Break(()));
        }
        let authority = match self.authority.take().filter(|known| known.as_str() == view.authority) {
            Some(known) => known,
            None => AuthorityId::from_text(view.authority),
        };
        self.authority = Some(authority.clone());
        self.entries.insert(key, Entry { state: view.state, version: view.version, authority });
        let digest = extend_digest(&self.end.digest, bytes);
        self.end = PrefixEnd { version: view.version, digest, lsn: Some(lsn) };
        Ok(ControlFlow::Continue(()))
    }

    /// Whether this round takes no more, though the prefix goes on.
    pub(super) const fn stopped(&self) -> bool {
        self.stopped
    }

    pub(super) const fn end(&self) -> PrefixEnd {
        self.end
    }

    pub(super) fn into_entries(self) -> BTreeMap<Key, Entry> {
        self.entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lifecycle::entry::{ENTRY_EPOCH_START, ENTRY_RECORD, EpochStart};
    use crate::record::{Record, State};
    use alloc::vec::Vec;

    fn canonical(key: &[u8], sequence: u64) -> Vec<u8> {
        let record = Record {
            key: Key::from_parts(b"n", key).expect("short"),
            state: State::Deleted,
            version: Version::new(1, sequence),
            authority: AuthorityId::from_text("a"),
        };
        let mut out = Vec::new();
        record.encode_canonical(&mut out);
        out
    }

    fn lsn(value: u64) -> Lsn {
        Lsn::new(value).expect("not zero")
    }

    #[test]
    fn the_last_writer_wins_and_the_chain_grows() {
        let mut writers = LastWriters::new(Version::ZERO, [0; 32], 9);
        for (at, key) in [b"a", b"b", b"a"].into_iter().enumerate() {
            let at = at as u64 + 1;
            assert_eq!(
                writers.take(lsn(at), ENTRY_RECORD, &canonical(key, at)),
                Ok(ControlFlow::Continue(()))
            );
        }
        let digest = [(b"a", 1), (b"b", 2), (b"a", 3)]
            .iter()
            .fold([0; 32], |digest, (key, at)| extend_digest(&digest, &canonical(*key, *at)));
        assert_eq!(writers.end(), PrefixEnd { version: Version::new(1, 3), digest, lsn: Some(lsn(3)) });
        let versions: Vec<u64> = writers.into_entries().values().map(|e| e.version.sequence).collect();
        assert_eq!(versions, [3, 2]);
    }

    #[test]
    fn one_key_too_many_stops_before_it() {
        let mut writers = LastWriters::new(Version::ZERO, [0; 32], 1);
        writers.take(lsn(1), ENTRY_RECORD, &canonical(b"a", 1)).expect("fits").is_continue();
        assert_eq!(writers.take(lsn(2), ENTRY_RECORD, &canonical(b"a", 2)), Ok(ControlFlow::Continue(())));
        assert_eq!(writers.take(lsn(3), ENTRY_RECORD, &canonical(b"b", 3)), Ok(ControlFlow::Break(())));
        assert_eq!((writers.stopped(), writers.end().lsn), (true, Some(lsn(2))));
    }

    #[test]
    fn an_epoch_start_is_no_part_of_the_chain() {
        let start =
            EpochStart { epoch: 2, authority: AuthorityId::from_text("b"), previous_end: Version::new(1, 1) };
        let mut bytes = Vec::new();
        start.encode(&mut bytes);
        let mut writers = LastWriters::new(Version::new(1, 1), [4; 32], 1);
        assert_eq!(writers.take(lsn(5), ENTRY_EPOCH_START, &bytes), Ok(ControlFlow::Continue(())));
        assert_eq!((writers.end().digest, writers.end().lsn), ([4; 32], None));
    }

    #[test]
    fn what_is_no_entry_of_this_log() {
        let mut writers = LastWriters::new(Version::new(1, 5), [0; 32], 9);
        assert!(writers.take(lsn(1), ENTRY_RECORD, b"x").is_err());
        assert!(writers.take(lsn(1), 9, b"").is_err());
        let found = writers.take(lsn(1), ENTRY_RECORD, &canonical(b"a", 5));
        assert_eq!(found, Err("expected a version above 1.5, found 1.5".into()));
    }
}
