//! The authority of a log: who gives versions, which it may give, and how the right moves.

use crate::record::{AuthorityId, Version};
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// How many versions one write of the sidecar reserves.
pub const RESERVED_PER_WRITE: u64 = 1024;

/// With fewer reserved versions left than this the next reservation is asked for.
pub const RESERVED_LEFT_MIN: u64 = 512;

/// The right to give a log's versions.
///
/// The sidecar holds an upper bound of the versions given, written ahead, so that a version is
/// never given twice: after a restart the rest of the reservation is burned. Versions may be
/// allocated above the reservation; only [`Authority::gate`] says what may go to the journal.
///
/// ```
/// use strandline_core::lifecycle::authority::Authority;
/// use strandline_core::record::{AuthorityId, Version};
/// let mut authority = Authority::create(AuthorityId::from_text("node-a"), 1);
/// let version = authority.allocate(3)?;
/// assert!(version > authority.gate());
/// let sidecar = authority.wants_reservation().expect("nothing is reserved yet");
/// authority.reserved(true);
/// assert!(version <= authority.gate());
///
/// let tail = Version::new(1, 3);
/// let id = AuthorityId::from_text("node-a");
/// let mut restarted = Authority::open(Some(&sidecar), id, tail, tail.epoch)?;
/// assert_eq!(restarted.allocate(1)?, Version::new(1, 1028));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Authority {
    id: AuthorityId,
    epoch: u64,
    next: Next,
    reserved: u64,
    write: Write,
}

/// The next sequence to give.
#[derive(Clone, Copy, Debug)]
enum Next {
    Free(u64),
    /// The last sequence there is was given.
    Spent,
}

/// How the write of the sidecar stands.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Write {
    Idle,
    InFlight {
        bound: u64,
    },
    /// A write failed, which is final: what the sidecar holds is not known.
    Failed,
}

/// The content of the sidecar: JSON, exactly these members.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Sidecar {
    authority: String,
    epoch: u64,
    reserved: u64,
    /// A later epoch that was heard of: this one gives no more versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    superseded_by: Option<u64>,
}

/// Why this replica may not write its log until a person fences the authority (family: caller).
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum AuthorityRefusal {
    /// There is no sidecar: lost, or this is a copy of another replica's data.
    #[error(
        "the authority sidecar is missing and the log ends at {tail}: fence with an epoch above all peers'"
    )]
    Lost {
        /// Where the log ends.
        tail: Version,
    },
    /// The sidecar is no sidecar.
    #[error("the authority sidecar is not what was written: expected its three members, found: {found}")]
    Unreadable {
        /// What the decoder said.
        found: String,
    },
    /// The sidecar belongs to another identity.
    #[error("the authority sidecar belongs to {found}, expected {expected}")]
    Identity {
        /// Who was configured.
        expected: AuthorityId,
        /// Whose it is.
        found: String,
    },
    /// The log holds a later epoch than the sidecar: somebody fenced this authority.
    #[error("the authority holds epoch {epoch}, the log ends at {tail}: expected no later epoch")]
    Superseded {
        /// What the sidecar says.
        epoch: u64,
        /// Where the log ends.
        tail: Version,
    },
    /// A later epoch was heard of, in this life or before: somebody fenced this authority.
    #[error(
        "the authority holds epoch {epoch}, which was fenced by epoch {by}: fence with one above it to write again"
    )]
    Fenced {
        /// What the sidecar says.
        epoch: u64,
        /// The later one.
        by: u64,
    },
    /// The log holds versions that the sidecar never reserved: it is an old copy.
    #[error(
        "the authority reserved up to {reserved}, the log ends at {tail}: the sidecar is older than the log"
    )]
    Older {
        /// What the sidecar says.
        reserved: Version,
        /// Where the log ends.
        tail: Version,
    },
}

/// Why an epoch cannot be taken (family: caller).
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
#[error("cannot fence with epoch {found}: expected one above {known}")]
pub struct FenceRefusal {
    /// The highest epoch known here or at peers.
    pub known: u64,
    /// What was asked for.
    pub found: u64,
}

/// Why no version can be given (family: caller).
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum AuthorityExhausted {
    /// The epoch has no more sequences.
    #[error("epoch {epoch} has fewer than {count} versions left: fence with a new one")]
    Sequences {
        /// The epoch.
        epoch: u64,
        /// How many were wanted.
        count: u64,
    },
    /// The sidecar could not be written.
    #[error("no version can be reserved: writing the authority sidecar failed, recover from storage")]
    Reservation,
}

impl crate::error::Classified for AuthorityRefusal {
    const FAMILY: crate::error::Family = crate::error::Family::Caller;
}

impl crate::error::Classified for FenceRefusal {
    const FAMILY: crate::error::Family = crate::error::Family::Caller;
}

impl crate::error::Classified for AuthorityExhausted {
    const FAMILY: crate::error::Family = crate::error::Family::Caller;
}

impl Authority {
    /// The authority of a log that never had one. Only for a log that was created just now: for any
    /// other a version could be given twice.
    #[must_use]
    pub const fn create(id: AuthorityId, epoch: u64) -> Self {
        Self { id, epoch, next: Next::Free(1), reserved: 0, write: Write::Idle }
    }

    /// Takes the right to write, in a new epoch.
    ///
    /// # Errors
    /// `epoch` is not above `known`, the highest epoch of this log anywhere: in the journal, in the
    /// sidecar, at peers.
    pub fn fence(id: AuthorityId, epoch: u64, known: u64) -> Result<Self, FenceRefusal> {
        if epoch <= known {
            return Err(FenceRefusal { known, found: epoch });
        }
        Ok(Self::create(id, epoch))
    }

    /// Goes on after a restart with the sidecar's content, if there is one, over a log that ends at
    /// `tail` and knows of epochs up to `epoch_known`. What was reserved and not used is burned.
    ///
    /// # Errors
    /// The sidecar does not prove that no version above the tail was given.
    pub fn open(
        sidecar: Option<&[u8]>,
        id: AuthorityId,
        tail: Version,
        epoch_known: u64,
    ) -> Result<Self, AuthorityRefusal> {
        let Some(bytes) = sidecar else {
            return Err(AuthorityRefusal::Lost { tail });
        };
        let Sidecar { authority, epoch, reserved, superseded_by } = serde_json::from_slice(bytes)
            .map_err(|error| AuthorityRefusal::Unreadable { found: error.to_string() })?;
        if authority != id.as_str() {
            return Err(AuthorityRefusal::Identity { expected: id, found: authority });
        }
        if tail.epoch > epoch {
            return Err(AuthorityRefusal::Superseded { epoch, tail });
        }
        if let Some(by) = superseded_by.max(Some(epoch_known)).filter(|by| *by > epoch) {
            return Err(AuthorityRefusal::Fenced { epoch, by });
        }
        let bound = Version::new(epoch, reserved);
        if tail > bound {
            return Err(AuthorityRefusal::Older { reserved: bound, tail });
        }
        let next = reserved.checked_add(1).map_or(Next::Spent, Next::Free);
        Ok(Self { id, epoch, next, reserved, write: Write::Idle })
    }

    /// Who gives the versions.
    #[must_use]
    pub const fn id(&self) -> &AuthorityId {
        &self.id
    }

    /// The epoch of all versions given here.
    #[must_use]
    pub const fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Gives `count` consecutive versions, and answers the first. `count` is at least 1.
    ///
    /// # Errors
    /// The epoch is used up, or a reservation failed. Nothing is given then.
    pub fn allocate(&mut self, count: u64) -> Result<Version, AuthorityExhausted> {
        if self.write == Write::Failed {
            return Err(AuthorityExhausted::Reservation);
        }
        let exhausted = AuthorityExhausted::Sequences { epoch: self.epoch, count };
        let Next::Free(first) = self.next else {
            return Err(exhausted);
        };
        let last = first.checked_add(count.max(1) - 1).ok_or(exhausted)?;
        self.next = last.checked_add(1).map_or(Next::Spent, Next::Free);
        Ok(Version::new(self.epoch, first))
    }

    /// The highest version whose reservation is durable. A record above it must not be handed to
    /// the journal yet.
    #[must_use]
    pub const fn gate(&self) -> Version {
        Version::new(self.epoch, self.reserved)
    }

    /// The content the sidecar must be replaced with, if more versions are to be reserved and no
    /// write is under way. Answer it with [`Authority::reserved`].
    #[must_use]
    pub fn wants_reservation(&mut self) -> Option<Vec<u8>> {
        let given = match self.next {
            Next::Free(next) => next - 1,
            Next::Spent => u64::MAX,
        };
        let enough = given.saturating_add(RESERVED_LEFT_MIN) <= self.reserved || self.reserved == u64::MAX;
        if self.write != Write::Idle || enough {
            return None;
        }
        let bound = given.max(self.reserved).saturating_add(RESERVED_PER_WRITE);
        self.write = Write::InFlight { bound };
        Some(self.content(bound, None))
    }

    /// The sidecar's content for a log that is being created: nothing is reserved yet.
    #[must_use]
    pub fn initial_content(&self) -> Vec<u8> {
        self.content(self.reserved, None)
    }

    /// The sidecar's content once a later epoch was heard of: it opens no more.
    #[must_use]
    pub fn superseded_content(&self, by: u64) -> Vec<u8> {
        self.content(self.reserved, Some(by))
    }

    /// Whether a reservation is under way.
    #[must_use]
    pub const fn reserving(&self) -> bool {
        matches!(self.write, Write::InFlight { .. })
    }

    fn content(&self, reserved: u64, superseded_by: Option<u64>) -> Vec<u8> {
        let authority = self.id.as_str().to_string();
        let content = Sidecar { authority, epoch: self.epoch, reserved, superseded_by };
        serde_json::to_vec(&content).expect("a string and two numbers are JSON")
    }

    /// Takes the answer to the write: `durable` if the replaced sidecar survives power loss. A
    /// failure is final; the gate moves no more.
    ///
    /// # Panics
    /// If no write is under way.
    pub fn reserved(&mut self, durable: bool) {
        let Write::InFlight { bound } = self.write else {
            panic!("no reservation is under way");
        };
        if durable {
            self.reserved = bound;
            self.write = Write::Idle;
        } else {
            self.write = Write::Failed;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    fn id() -> AuthorityId {
        AuthorityId::from_text("node-a")
    }

    fn sidecar(epoch: u64, reserved: u64) -> Vec<u8> {
        format!(r#"{{"authority":"node-a","epoch":{epoch},"reserved":{reserved}}}"#).into_bytes()
    }

    fn open(sidecar: &[u8], tail: Version) -> Result<Authority, AuthorityRefusal> {
        Authority::open(Some(sidecar), id(), tail, tail.epoch)
    }

    #[test]
    fn open_lost() {
        for tail in [Version::ZERO, Version::new(1, 5)] {
            let refused = Authority::open(None, id(), tail, tail.epoch).expect_err("refused");
            assert_eq!(refused, AuthorityRefusal::Lost { tail });
        }
    }

    #[test]
    fn open_unreadable() {
        for bytes in ["", "{}", "null", r#"{"authority":"node-a","epoch":1,"reserved":1,"more":1}"#] {
            let refused = open(bytes.as_bytes(), Version::ZERO).expect_err(bytes);
            assert!(matches!(refused, AuthorityRefusal::Unreadable { .. }), "{refused}");
        }
    }

    #[test]
    fn open_another_identity() {
        let other = AuthorityId::from_text("b");
        let refused = Authority::open(Some(&sidecar(1, 9)), other, Version::ZERO, 0);
        assert!(matches!(refused, Err(AuthorityRefusal::Identity { .. })));
    }

    #[test]
    fn open_superseded() {
        let tail = Version::new(2, 1);
        assert_eq!(
            open(&sidecar(1, 9), tail).expect_err("refused"),
            AuthorityRefusal::Superseded { epoch: 1, tail }
        );
    }

    #[test]
    fn open_fenced() {
        let tail = Version::new(3, 1);
        let known = Authority::open(Some(&sidecar(3, 9)), id(), tail, 4).expect_err("refused");
        assert_eq!(known, AuthorityRefusal::Fenced { epoch: 3, by: 4 });
        let stored = open(&sidecar(3, 9), tail).expect("opens").superseded_content(7);
        let stored = open(&stored, tail).expect_err("refused");
        assert_eq!(stored, AuthorityRefusal::Fenced { epoch: 3, by: 7 });
    }

    #[test]
    fn open_older() {
        let (reserved, tail) = (Version::new(1, 9), Version::new(1, 10));
        assert_eq!(
            open(&sidecar(1, 9), tail).expect_err("refused"),
            AuthorityRefusal::Older { reserved, tail }
        );
    }

    #[test]
    fn open_burns_the_rest_of_the_reservation() {
        let mut authority = open(&sidecar(3, 1024), Version::new(3, 7)).expect("opens");
        assert_eq!(authority.allocate(1), Ok(Version::new(3, 1025)));
        assert_eq!(authority.gate(), Version::new(3, 1024));
        assert!(authority.wants_reservation().is_some());
    }

    #[test]
    fn a_reservation_is_asked_for_once_and_ahead() {
        let mut authority = Authority::create(id(), 1);
        assert_eq!(authority.wants_reservation(), Some(sidecar(1, 1024)));
        assert_eq!(authority.wants_reservation(), None);
        authority.reserved(true);
        assert_eq!(authority.allocate(512), Ok(Version::new(1, 1)));
        assert_eq!(authority.wants_reservation(), None);
        assert_eq!(authority.allocate(1), Ok(Version::new(1, 513)));
        assert_eq!(authority.wants_reservation(), Some(sidecar(1, 2048)));
        assert_eq!(authority.gate(), Version::new(1, 1024));
        authority.reserved(true);
        assert_eq!(authority.gate(), Version::new(1, 2048));
    }

    #[test]
    fn one_write_covers_a_batch_larger_than_a_reservation() {
        let mut authority = Authority::create(id(), 1);
        authority.allocate(5000).expect("free");
        assert_eq!(authority.wants_reservation(), Some(sidecar(1, 6024)));
    }

    #[test]
    fn a_failed_reservation_is_final() {
        let mut authority = Authority::create(id(), 1);
        let _ = authority.wants_reservation().expect("nothing is reserved");
        authority.reserved(false);
        assert_eq!(authority.allocate(1), Err(AuthorityExhausted::Reservation));
        assert_eq!((authority.wants_reservation(), authority.gate()), (None, Version::new(1, 0)));
    }

    #[test]
    fn the_last_sequence_is_given_once() {
        let mut authority = open(&sidecar(1, u64::MAX - 1), Version::ZERO).expect("opens");
        assert!(authority.allocate(2).is_err());
        assert_eq!(authority.allocate(1), Ok(Version::new(1, u64::MAX)));
        assert!(authority.allocate(1).is_err());
        assert_eq!(authority.wants_reservation(), Some(sidecar(1, u64::MAX)));
        authority.reserved(true);
        assert_eq!(authority.wants_reservation(), None);
    }

    #[test]
    fn a_fence_is_above_all_that_is_known() {
        let refused = Authority::fence(id(), 4, 4).expect_err("refused");
        assert_eq!(refused, FenceRefusal { known: 4, found: 4 });
        let mut fenced = Authority::fence(id(), 5, 4).expect("above");
        assert_eq!(fenced.allocate(1), Ok(Version::new(5, 1)));
    }
}
