//! The reference model: every record that was ever submitted, as a tree, and what a replica must
//! show for each node of it.

use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use strandline_core::record::{Key, Record, State, Version};

/// Names a history: the digest chain up to a record. All zeros for the empty one.
pub type Digest = [u8; 32];

/// What reads must see: state and version by key, tombstones included.
pub type Mirror = BTreeMap<Key, (State, Version)>;

/// A record that was submitted.
#[derive(Clone, Debug)]
pub struct Submitted {
    /// The history before it.
    pub parent: Digest,
    /// Its key.
    pub key: Key,
    /// What the key became.
    pub state: State,
    /// Its version.
    pub version: Version,
    /// Whether it ends a batch that is taken whole or not at all.
    pub ends_group: bool,
    /// Whether its writer vouched for it.
    pub durable: bool,
}

/// Every record that was submitted.
#[derive(Clone, Debug, Default)]
pub struct Tree {
    records: BTreeMap<Digest, Submitted>,
}

impl Tree {
    /// Adds a record after `parent`; says what the history is called then.
    pub fn submit(&mut self, parent: Digest, record: &Record, ends_group: bool) -> Digest {
        let mut canonical = Vec::new();
        record.encode_canonical(&mut canonical);
        let digest = Sha256::new().chain_update(parent).chain_update(&canonical).finalize().into();
        let submitted = Submitted {
            parent,
            key: record.key.clone(),
            state: record.state,
            version: record.version,
            ends_group,
            durable: false,
        };
        self.records.insert(digest, submitted);
        digest
    }

    /// The record that ends this history.
    #[must_use]
    pub fn get(&self, digest: &Digest) -> Option<&Submitted> {
        self.records.get(digest)
    }

    /// The version a history ends at; `None` if there is no such history.
    #[must_use]
    pub fn version(&self, digest: &Digest) -> Option<Version> {
        if *digest == Digest::default() {
            return Some(Version::ZERO);
        }
        self.records.get(digest).map(|record| record.version)
    }

    /// Its writer vouches for this history.
    pub fn vouch(&mut self, mut digest: Digest) {
        while let Some(record) = self.records.get_mut(&digest) {
            if record.durable {
                return;
            }
            record.durable = true;
            digest = record.parent;
        }
    }

    /// The records after `from` that end with `to`, oldest first; `None` if `from` is no part of it.
    #[must_use]
    pub fn path(&self, from: &Digest, to: &Digest) -> Option<Vec<Digest>> {
        let floor = self.version(from)?;
        let (mut path, mut at) = (Vec::new(), *to);
        while at != *from {
            let record = self.records.get(&at)?;
            if record.version <= floor {
                return None;
            }
            path.push(at);
            at = record.parent;
        }
        path.reverse();
        Some(path)
    }

    /// What reads must see at the end of a history.
    #[must_use]
    pub fn mirror(&self, digest: &Digest) -> Option<Mirror> {
        let mut mirror = Mirror::new();
        for at in self.path(&Digest::default(), digest)? {
            let record = &self.records[&at];
            mirror.insert(record.key.clone(), (record.state, record.version));
        }
        Some(mirror)
    }

    /// How many records were submitted.
    #[must_use]
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Whether nothing was submitted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.records.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use strandline_core::record::{AuthorityId, RecordLimits};

    #[test]
    fn two_histories_share_what_came_before() {
        let mut tree = Tree::default();
        let record = |key: &str, sequence| Record {
            key: RecordLimits::default().key(b"files", key.as_bytes()).expect("a key"),
            state: State::Deleted,
            version: Version::new(1, sequence),
            authority: AuthorityId::from_text("a"),
        };
        let first = tree.submit(Digest::default(), &record("x", 1), true);
        let second = tree.submit(first, &record("y", 2), true);
        let other = tree.submit(first, &record("z", 2), true);
        assert_eq!(tree.path(&first, &second), Some(vec![second]));
        assert_eq!(tree.path(&other, &second), None);
        assert_eq!(tree.mirror(&other).expect("known").len(), 2);
        tree.vouch(second);
        assert!(tree.get(&first).expect("known").durable);
        assert!(!tree.get(&other).expect("known").durable);
    }
}
