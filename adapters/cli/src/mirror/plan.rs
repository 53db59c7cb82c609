//! What a tree and a namespace have in common, and how many keys may vanish at once.

use crate::exit::Failure;
use crate::tree::scan::Found;
use std::collections::BTreeMap;
use strandline_core::record::BlobKey;

/// A file or directory that is there now.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Candidate {
    /// What it is.
    pub(crate) found: Found,
    /// What its key names so far.
    pub(crate) known: Option<BlobKey>,
}

/// What to look at and what to delete, both in the order of keys.
#[derive(Debug, Default, Eq, PartialEq)]
pub(crate) struct Plan {
    pub(crate) candidates: Vec<Candidate>,
    /// Keys that are present and whose files are not.
    pub(crate) vanished: Vec<Vec<u8>>,
    /// How many keys were present before.
    pub(crate) present: usize,
}

/// Compares a tree with the keys present.
pub(crate) fn plan(found: Vec<Found>, mut present: BTreeMap<Vec<u8>, BlobKey>) -> Plan {
    let before = present.len();
    let candidates = found
        .into_iter()
        .map(|found| {
            let known = present.remove(&found.key);
            Candidate { found, known }
        })
        .collect();
    Plan { candidates, vanished: present.into_keys().collect(), present: before }
}

impl Plan {
    /// Refuses a tree from which more than half has vanished: more likely the wrong directory, or
    /// one that is not mounted, than a wish.
    pub(crate) fn check_vanished(&self) -> Result<(), Failure> {
        if self.vanished.len() * 2 <= self.present {
            return Ok(());
        }
        Err(Failure::refused(format!(
            "{} of {} keys would be deleted: expected at most half",
            self.vanished.len(),
            self.present
        ))
        .advise("make sure that this is the right directory, then give --force"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(keys: &[&str]) -> Vec<Found> {
        keys.iter().map(|key| Found { key: key.as_bytes().to_vec(), bytes: 1 }).collect()
    }

    fn present(keys: &[&str]) -> BTreeMap<Vec<u8>, BlobKey> {
        keys.iter().map(|key| (key.as_bytes().to_vec(), BlobKey([7; 32]))).collect()
    }

    #[test]
    fn what_is_there_is_looked_at_and_what_is_not_vanishes() {
        let plan = plan(found(&["a", "d/", "d/new"]), present(&["a", "d/", "d/old"]));
        let known: Vec<_> = plan.candidates.iter().map(|c| c.known.is_some()).collect();
        assert_eq!(known, [true, true, false]);
        assert_eq!(plan.vanished, [b"d/old".to_vec()]);
        assert_eq!(plan.present, 3);
    }

    #[test]
    fn half_may_vanish_and_more_may_not() {
        let half = plan(found(&["a", "b"]), present(&["a", "b", "c", "d"]));
        assert_eq!(half.check_vanished(), Ok(()));
        let more = plan(found(&["a"]), present(&["a", "b", "c"]));
        assert_eq!(more.check_vanished().expect_err("refused").exit, crate::exit::Exit::Refused);
        assert_eq!(plan(found(&["a"]), present(&[])).check_vanished(), Ok(()));
    }

    #[test]
    fn a_file_that_became_a_directory_is_both() {
        let plan = plan(found(&["a/", "a/b"]), present(&["a"]));
        assert_eq!((plan.candidates.len(), plan.vanished.len()), (2, 1));
    }
}
