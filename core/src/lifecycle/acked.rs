//! The book of what peers acknowledged.

use super::membership::{ContentError, IDENTITY_BYTES_MAX, MEMBERS_MAX, identity_fault};
use crate::error::{Classified, Family};
use crate::id::Incarnation;
use crate::record::Version;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Most peers in the book.
pub const ACKED_PEERS_MAX: usize = 1024;

const _: () = assert!(MEMBERS_MAX <= ACKED_PEERS_MAX, "every member has a place in the book");

/// What one peer acknowledged.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct AckedMark {
    /// Up to here it has every record durably.
    pub version: Version,
    /// The life of its data that said so, if it names one.
    pub incarnation: Option<Incarnation>,
    /// Up to here it has every blob, too.
    pub complete: Version,
}

/// An acknowledgement that is not entered (family: peer).
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Regression {
    /// Lower than one before on the same session.
    #[error("peer {identity} acknowledged {found}: expected at least {acked}, as before")]
    Version {
        /// Who.
        identity: String,
        /// What is in the book.
        acked: Version,
        /// What came.
        found: Version,
    },
    /// Of a life of the peer's data whose startup mark was never taken.
    #[error("peer {identity} acknowledged as another incarnation: expected its startup mark first")]
    Incarnation {
        /// Who.
        identity: String,
    },
    /// No blob can be complete above the records.
    #[error("peer {identity} has blobs up to {found}: expected at most its records, {acked}")]
    Complete {
        /// Who.
        identity: String,
        /// What is in the book.
        acked: Version,
        /// What came.
        found: Version,
    },
    /// The book is full, or the name is none.
    #[error("peer {identity:?} has no place in the book: {reason}")]
    Place {
        /// Who.
        identity: String,
        /// Why.
        reason: String,
    },
}

impl Classified for Regression {
    const FAMILY: Family = Family::Peer;
}

type Book = BTreeMap<String, AckedMark>;

/// What peers acknowledged, twice: as heard, and as durably stored. Compaction may use only what is
/// in both, because a mark that a crash forgets would have to be believed a second time.
///
/// ```
/// use strandline_core::{lifecycle::acked::Acked, record::Version};
/// let mut acked = Acked::default();
/// acked.reconcile("node-b", None, Version::new(1, 7))?;
/// assert_eq!(acked.durable("node-b", None), Version::ZERO);
/// let content = acked.begin_save().expect("something to save");
/// acked.saved(true);
/// assert_eq!(acked.durable("node-b", None), Version::new(1, 7));
/// assert_eq!(Acked::decode(&content).expect("just written").durable("node-b", None), Version::new(1, 7));
/// # Ok::<(), strandline_core::lifecycle::acked::Regression>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Acked {
    heard: Book,
    stored: Book,
    saving: Option<Book>,
    dirty: bool,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Sidecar {
    acked: Vec<SidecarMark>,
}

#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct SidecarMark {
    identity: String,
    version: (u64, u64),
    #[serde(default, skip_serializing_if = "Option::is_none")]
    incarnation: Option<String>,
    complete: (u64, u64),
}

impl Acked {
    /// Enters what a peer acknowledged; the same again changes nothing.
    ///
    /// # Errors
    /// It is lower than before, of another incarnation than its startup mark, or there is no place
    /// for the peer.
    pub fn acknowledge(
        &mut self,
        identity: &str,
        incarnation: Option<Incarnation>,
        version: Version,
    ) -> Result<(), Regression> {
        let Some(mark) = self.heard.get_mut(identity) else {
            return self.reconcile(identity, incarnation, version);
        };
        if mark.incarnation != incarnation {
            return Err(Regression::Incarnation { identity: identity.into() });
        }
        if version < mark.version {
            return Err(Regression::Version {
                identity: identity.into(),
                acked: mark.version,
                found: version,
            });
        }
        self.dirty |= version > mark.version;
        mark.version = version;
        Ok(())
    }

    /// Enters up to where a peer has the blobs as well; lower than before changes nothing.
    ///
    /// # Errors
    /// It is above what the peer acknowledged, or of another incarnation.
    pub fn complete(
        &mut self,
        identity: &str,
        incarnation: Option<Incarnation>,
        complete: Version,
    ) -> Result<(), Regression> {
        let Some(mark) = self.heard.get_mut(identity).filter(|mark| mark.incarnation == incarnation) else {
            return Err(Regression::Incarnation { identity: identity.into() });
        };
        if complete > mark.version {
            let acked = mark.version;
            return Err(Regression::Complete { identity: identity.into(), acked, found: complete });
        }
        self.dirty |= complete > mark.complete;
        mark.complete = mark.complete.max(complete);
        Ok(())
    }

    /// Takes a peer's startup mark, which may be lower than before, even zero: it says what the
    /// peer really has.
    ///
    /// # Errors
    /// There is no place for the peer.
    pub fn reconcile(
        &mut self,
        identity: &str,
        incarnation: Option<Incarnation>,
        version: Version,
    ) -> Result<(), Regression> {
        let before = self.heard.get(identity).copied();
        if before.is_none() {
            self.admit(identity)?;
        }
        let complete = before
            .filter(|mark| mark.incarnation == incarnation)
            .map_or(Version::ZERO, |mark| mark.complete.min(version));
        let mark = AckedMark { version, incarnation, complete };
        if before != Some(mark) {
            self.heard.insert(identity.into(), mark);
            self.dirty = true;
        }
        Ok(())
    }

    fn admit(&self, identity: &str) -> Result<(), Regression> {
        let full = (self.heard.len() >= ACKED_PEERS_MAX)
            .then(|| alloc::format!("it holds {ACKED_PEERS_MAX} peers, which is the limit"));
        match identity_fault(identity).or(full) {
            Some(reason) => {
                let identity = identity.chars().take(IDENTITY_BYTES_MAX).collect();
                Err(Regression::Place { identity, reason })
            }
            None => Ok(()),
        }
    }

    /// Forgets a peer, at once: what it had acknowledged counts no more.
    pub fn forget(&mut self, identity: &str) {
        self.dirty |= self.heard.remove(identity).is_some();
    }

    /// What a peer was last heard to have.
    #[must_use]
    pub fn get(&self, identity: &str) -> Option<AckedMark> {
        self.heard.get(identity).copied()
    }

    /// All peers, sorted by identity.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &AckedMark)> {
        self.heard.iter().map(|(identity, mark)| (identity.as_str(), mark))
    }

    /// What a peer, in this life of its data, is durably known to have and has not taken back:
    /// the only mark that compaction may use. Zero if there is none.
    #[must_use]
    pub fn durable(&self, identity: &str, incarnation: Option<Incarnation>) -> Version {
        let of = |book: &Book| {
            let mark = book.get(identity).filter(|mark| mark.incarnation == incarnation);
            mark.map_or(Version::ZERO, |mark| mark.version)
        };
        of(&self.heard).min(of(&self.stored))
    }

    /// As [`Acked::durable`], for what a peer has with its blobs: collecting blobs goes by it.
    #[must_use]
    pub fn durable_complete(&self, identity: &str, incarnation: Option<Incarnation>) -> Version {
        let of = |book: &Book| {
            let mark = book.get(identity).filter(|mark| mark.incarnation == incarnation);
            mark.map_or(Version::ZERO, |mark| mark.complete)
        };
        of(&self.heard).min(of(&self.stored))
    }

    /// The content the sidecar must be replaced with, if something changed and no write is under
    /// way. Answer it with [`Acked::saved`].
    #[must_use]
    pub fn begin_save(&mut self) -> Option<Vec<u8>> {
        if !self.dirty || self.saving.is_some() {
            return None;
        }
        self.dirty = false;
        let book = self.heard.clone();
        let content = encode(&book);
        self.saving = Some(book);
        Some(content)
    }

    /// Takes the answer to the write: `durable` if the replaced sidecar survives power loss. What
    /// was not stored is offered again with the next change.
    ///
    /// # Panics
    /// If no write is under way.
    pub fn saved(&mut self, durable: bool) {
        let book = self.saving.take().expect("a save is under way");
        if durable {
            self.stored = book;
        }
    }

    /// Whether something is not stored yet and no write is under way.
    #[must_use]
    pub const fn dirty(&self) -> bool {
        self.dirty && self.saving.is_none()
    }

    /// Reads the content of a sidecar that is there.
    ///
    /// # Errors
    /// It is not what [`Acked::begin_save`] gave.
    pub fn decode(content: &[u8]) -> Result<Self, ContentError> {
        let wrong = |expected, found: &str| ContentError { expected, found: found.to_string() };
        let sidecar: Sidecar = serde_json::from_slice(content)
            .map_err(|error| wrong("an object with a list of marks", &error.to_string()))?;
        if sidecar.acked.len() > ACKED_PEERS_MAX {
            return Err(wrong("at most 1024 peers", &sidecar.acked.len().to_string()));
        }
        let mut book = Book::new();
        for mark in sidecar.acked {
            if let Some(found) = identity_fault(&mark.identity) {
                return Err(wrong("identities of 1 to 128 printable bytes", &found));
            }
            let incarnation = match &mark.incarnation {
                Some(text) => Some(
                    Incarnation::parse(text).ok_or_else(|| wrong("an incarnation of 24 hex digits", text))?,
                ),
                None => None,
            };
            let version = |(epoch, sequence)| Version::new(epoch, sequence);
            let (version, complete) = (version(mark.version), version(mark.complete));
            if complete > version {
                return Err(wrong("blobs complete up to the records at most", &mark.identity));
            }
            if let Some((last, _)) = book.last_key_value().filter(|(last, _)| **last >= mark.identity) {
                return Err(wrong("peers sorted by identity", last));
            }
            book.insert(mark.identity, AckedMark { version, incarnation, complete });
        }
        Ok(Self { heard: book.clone(), stored: book, saving: None, dirty: false })
    }
}

fn encode(book: &Book) -> Vec<u8> {
    let marks = book.iter().map(|(identity, mark)| SidecarMark {
        identity: identity.clone(),
        version: (mark.version.epoch, mark.version.sequence),
        incarnation: mark.incarnation.map(|incarnation| incarnation.to_string()),
        complete: (mark.complete.epoch, mark.complete.sequence),
    });
    serde_json::to_vec(&Sidecar { acked: marks.collect() }).expect("strings and numbers are JSON")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFE: Option<Incarnation> = Some(Incarnation { counter: 1, nonce: [1; 8] });
    const OTHER: Option<Incarnation> = Some(Incarnation { counter: 2, nonce: [2; 8] });

    fn v(sequence: u64) -> Version {
        Version::new(1, sequence)
    }

    fn acked_at_9() -> Acked {
        let mut acked = Acked::default();
        acked.reconcile("b", LIFE, v(9)).expect("new");
        acked.complete("b", LIFE, v(8)).expect("below");
        let _ = acked.begin_save().expect("dirty");
        acked.saved(true);
        acked
    }

    #[test]
    fn acknowledge_grows() {
        let mut acked = acked_at_9();
        assert_eq!(acked.acknowledge("b", LIFE, v(9)), Ok(()));
        assert!(!acked.dirty());
        assert_eq!(acked.acknowledge("b", LIFE, v(12)), Ok(()));
        assert!(acked.dirty());
        assert_eq!(acked.get("b").map(|mark| (mark.version, mark.complete)), Some((v(12), v(8))));
        assert_eq!(acked.durable("b", LIFE), v(9));
    }

    #[test]
    fn acknowledge_lower() {
        let refused = acked_at_9().acknowledge("b", LIFE, v(3));
        assert_eq!(refused, Err(Regression::Version { identity: "b".into(), acked: v(9), found: v(3) }));
    }

    #[test]
    fn acknowledge_another_incarnation() {
        let refused = acked_at_9().acknowledge("b", OTHER, v(12));
        assert_eq!(refused, Err(Regression::Incarnation { identity: "b".into() }));
    }

    #[test]
    fn acknowledge_without_a_place() {
        let mut acked = Acked::default();
        for name in ["", "a\u{7}", &"x".repeat(129)] {
            let refused = acked.acknowledge(name, None, v(1));
            assert!(matches!(refused, Err(Regression::Place { .. })), "{name:?}");
        }
        for i in 0..ACKED_PEERS_MAX {
            acked.acknowledge(&alloc::format!("p{i}"), None, v(1)).expect("a place");
        }
        assert!(matches!(acked.acknowledge("one-more", None, v(1)), Err(Regression::Place { .. })));
    }

    #[test]
    fn complete_is_at_most_the_records() {
        let mut acked = acked_at_9();
        assert!(matches!(acked.complete("b", LIFE, v(10)), Err(Regression::Complete { .. })));
        assert!(matches!(acked.complete("b", OTHER, v(1)), Err(Regression::Incarnation { .. })));
        acked.complete("b", LIFE, v(2)).expect("lower changes nothing");
        assert_eq!(acked.get("b").map(|mark| mark.complete), Some(v(8)));
    }

    #[test]
    fn reconcile_lower_counts_at_once() {
        let mut acked = acked_at_9();
        acked.reconcile("b", LIFE, v(4)).expect("known");
        assert_eq!(acked.durable("b", LIFE), v(4));
        assert_eq!(acked.get("b").map(|mark| mark.complete), Some(v(4)));
        acked.reconcile("b", LIFE, Version::ZERO).expect("known");
        assert_eq!(acked.durable("b", LIFE), Version::ZERO);
    }

    #[test]
    fn reconcile_another_incarnation_starts_over() {
        let mut acked = acked_at_9();
        acked.reconcile("b", OTHER, v(9)).expect("known");
        assert_eq!((acked.durable("b", LIFE), acked.durable("b", OTHER)), (Version::ZERO, Version::ZERO));
        assert_eq!(acked.get("b").map(|mark| mark.complete), Some(Version::ZERO));
    }

    #[test]
    fn forget_counts_at_once() {
        let mut acked = acked_at_9();
        acked.forget("b");
        assert_eq!((acked.durable("b", LIFE), acked.dirty()), (Version::ZERO, true));
    }

    #[test]
    fn one_save_at_a_time_and_changes_meanwhile_are_saved_next() {
        let mut acked = Acked::default();
        assert_eq!(acked.begin_save(), None);
        acked.acknowledge("b", LIFE, v(1)).expect("new");
        let _ = acked.begin_save().expect("dirty");
        acked.acknowledge("b", LIFE, v(2)).expect("grows");
        assert_eq!(acked.begin_save(), None);
        acked.saved(true);
        assert_eq!(acked.durable("b", LIFE), v(1));
        assert!(acked.begin_save().is_some());
    }

    #[test]
    fn a_failed_save_counts_nothing() {
        let mut acked = Acked::default();
        acked.acknowledge("b", LIFE, v(1)).expect("new");
        let _ = acked.begin_save().expect("dirty");
        acked.saved(false);
        assert_eq!(acked.durable("b", LIFE), Version::ZERO);
    }

    #[test]
    fn the_sidecar_round_trips() {
        let mut acked = acked_at_9();
        acked.acknowledge("a", None, v(3)).expect("new");
        let content = acked.begin_save().expect("dirty");
        let read = Acked::decode(&content).expect("just written");
        assert!(read.iter().eq(acked.iter()));
        assert_eq!((read.durable("b", LIFE), read.durable("a", None), read.dirty()), (v(9), v(3), false));
    }

    #[test]
    fn what_is_no_book() {
        for content in [
            "",
            "{}",
            "null",
            r#"{"acked":[],"more":1}"#,
            r#"{"acked":[{"identity":"","version":[1,1],"complete":[0,0]}]}"#,
            r#"{"acked":[{"identity":"a","version":[1,1],"complete":[1,2]}]}"#,
            r#"{"acked":[{"identity":"a","version":[1,1],"complete":[0,0],"incarnation":"zz"}]}"#,
            r#"{"acked":[{"identity":"b","version":[1,1],"complete":[0,0]},{"identity":"a","version":[1,1],"complete":[0,0]}]}"#,
        ] {
            assert!(Acked::decode(content.as_bytes()).is_err(), "{content}");
        }
    }
}
