//! What a record does to the key it names: the apply table.

use crate::record::{Record, Version};
use core::cmp::Ordering;

/// What an incoming record is to the record its key holds.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use]
pub enum Application {
    /// The key holds nothing yet, or something older: the record takes its place.
    Applied,
    /// The key holds something newer: nothing changes.
    Stale {
        /// Version of what the key holds.
        previous: Version,
    },
    /// The key holds this very record: nothing changes.
    Duplicate,
    /// The key holds another body under the same version: nothing changes, and somebody gave one
    /// version out twice.
    Conflict,
}

/// The apply table, row by row in the order of [`Application`].
///
/// The body of a record is its state (with the blob) and its authority. Both records must be of one
/// key; whether they are is the caller's look-up.
///
/// ```
/// use strandline_core::lifecycle::apply::{Application, classify};
/// # use strandline_core::record::{Key, Record, RecordLimits, State, Version};
/// # let limits = RecordLimits::default();
/// # let record = |sequence| {
/// #     let key = limits.key(b"documents", b"a").unwrap();
/// #     let authority = limits.authority("node-a").unwrap();
/// #     limits.record(key, State::Deleted, Version::new(1, sequence), authority).unwrap()
/// # };
/// let (older, newer): (Record, Record) = (record(3), record(4));
/// assert_eq!(classify(None, &older), Application::Applied);
/// assert_eq!(classify(Some(&newer), &older), Application::Stale { previous: newer.version });
/// ```
pub fn classify(previous: Option<&Record>, incoming: &Record) -> Application {
    let Some(previous) = previous else {
        return Application::Applied;
    };
    let same_body = incoming.state == previous.state && incoming.authority == previous.authority;
    match (incoming.version.cmp(&previous.version), same_body) {
        (Ordering::Greater, true | false) => Application::Applied,
        (Ordering::Less, true | false) => Application::Stale { previous: previous.version },
        (Ordering::Equal, true) => Application::Duplicate,
        (Ordering::Equal, false) => Application::Conflict,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{BlobKey, RecordLimits, State};

    fn record(state: State, sequence: u64, authority: &str) -> Record {
        let limits = RecordLimits::default();
        let key = limits.key(b"documents", b"a").unwrap();
        let authority = limits.authority(authority).unwrap();
        limits.record(key, state, Version::new(1, sequence), authority).unwrap()
    }

    fn present(blob: u8) -> State {
        State::Present { blob: BlobKey([blob; 32]) }
    }

    #[test]
    fn applied_to_an_absent_key() {
        assert_eq!(classify(None, &record(State::Deleted, 1, "a")), Application::Applied);
    }

    #[test]
    fn applied_over_an_older_record_whatever_its_body() {
        let older = record(present(1), 1, "a");
        assert_eq!(classify(Some(&older), &record(present(1), 2, "a")), Application::Applied);
        assert_eq!(classify(Some(&older), &record(State::Deleted, 2, "b")), Application::Applied);
    }

    #[test]
    fn stale_names_the_newer_version_held() {
        let newer = record(State::Deleted, 3, "a");
        let stale = Application::Stale { previous: Version::new(1, 3) };
        assert_eq!(classify(Some(&newer), &record(present(1), 2, "a")), stale);
        assert_eq!(classify(Some(&newer), &record(State::Deleted, 2, "a")), stale);
    }

    #[test]
    fn duplicate_of_the_same_version_and_body() {
        let held = record(present(1), 3, "a");
        assert_eq!(classify(Some(&held), &held.clone()), Application::Duplicate);
    }

    #[test]
    fn conflict_of_the_same_version_with_another_blob_state_or_authority() {
        let held = record(present(1), 3, "a");
        for other in [record(present(2), 3, "a"), record(State::Deleted, 3, "a"), record(present(1), 3, "b")]
        {
            assert_eq!(classify(Some(&held), &other), Application::Conflict);
        }
    }
}
