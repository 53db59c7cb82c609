//! The v1 watermark file: one envelope around `{watermarks:{peer:{epoch,sequence}}}`, what each peer
//! acknowledged; and the reference's operations on it.

use super::envelope::{self, ENVELOPE_BYTES, EnvelopeError};
use super::payload::{self, PayloadError};
use super::peer::{PeerName, PeerNameError};
use super::{ReferenceNames, Rule};
use crate::error::{Classified, Family};
use crate::record::Version;
use crate::wire::json_write::{write_string, write_version};
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Ordering;

/// Bounds of a v1 watermark file. The defaults are the reference's.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct WatermarkLimits {
    /// Most peers.
    pub peers_max: u32,
    /// Longest name of a peer.
    pub name_bytes_max: u32,
    /// Longest file.
    pub watermark_file_bytes_max: u64,
}

impl Default for WatermarkLimits {
    fn default() -> Self {
        Self { peers_max: 1024, name_bytes_max: 128, watermark_file_bytes_max: 1 << 20 }
    }
}

impl WatermarkLimits {
    /// Judges a peer's name.
    ///
    /// # Errors
    /// It is none.
    pub fn peer(&self, name: &[u8]) -> Result<PeerName, WatermarkError> {
        Ok(PeerName::parse(name, self.name_bytes_max)?)
    }
}

/// Why an operation on watermarks is refused.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum WatermarkError {
    /// The peer's name is none.
    #[error(transparent)]
    Name(#[from] PeerNameError),
    /// An acknowledgement below the one before.
    #[error("peer {name} acknowledged {found}: expected at least {previous}")]
    Regression {
        /// Which peer.
        name: Box<PeerName>,
        /// What it acknowledged before.
        previous: Version,
        /// What it acknowledges now.
        found: Version,
    },
    /// More peers than the limit.
    #[error("watermarks of {peers} peers: expected at most {peers_max}")]
    TooMany {
        /// What was found, or would be.
        peers: usize,
        /// The limit.
        peers_max: u32,
    },
    /// More bytes than the limit.
    #[error("watermark file has {bytes} bytes: expected at most {bytes_max}")]
    TooLong {
        /// What was found, or would be written.
        bytes: u64,
        /// The limit.
        bytes_max: u64,
    },
}

impl Classified for WatermarkError {
    const FAMILY: Family = Family::Caller;
}

impl ReferenceNames for WatermarkError {
    fn reference_names(&self) -> Vec<&'static str> {
        alloc::vec![match self {
            Self::Name(_) => "ErrWatermarkPeerInvalid",
            Self::Regression { .. } => "ErrWatermarkRegression",
            Self::TooMany { .. } | Self::TooLong { .. } => "ErrWatermarkLimit",
        }]
    }
}

/// Why a watermark file is refused.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum WatermarkFileError {
    /// Over a limit.
    #[error(transparent)]
    Limit(WatermarkError),
    /// Not one whole envelope.
    #[error("watermark file: {0}")]
    Envelope(#[from] EnvelopeError),
    /// Not the JSON of watermarks.
    #[error("watermark file: {0}")]
    Payload(#[from] PayloadError),
    /// A peer whose name is none.
    #[error("watermark file: {0}")]
    Name(#[from] PeerNameError),
    /// A mark of zero, which is written by leaving the peer out.
    #[error("watermark file holds zero for peer {name}: expected the peer to be left out")]
    Zero {
        /// Which peer.
        name: Box<PeerName>,
    },
}

impl WatermarkFileError {
    /// The rule under which the reference answers otherwise, if there is one.
    #[must_use]
    pub fn rule(&self) -> Option<Rule> {
        match self {
            Self::Payload(payload) => payload.rule(),
            Self::Limit(_) | Self::Envelope(_) | Self::Name(_) | Self::Zero { .. } => None,
        }
    }
}

impl Classified for WatermarkFileError {
    const FAMILY: Family = Family::Storage;
}

impl ReferenceNames for WatermarkFileError {
    fn reference_names(&self) -> Vec<&'static str> {
        match self {
            Self::Limit(error) => error.reference_names(),
            Self::Envelope(EnvelopeError::Checksum { .. }) => alloc::vec!["ErrWatermarkChecksum"],
            Self::Envelope(_) | Self::Payload(_) | Self::Zero { .. } => alloc::vec!["ErrWatermarkCorrupt"],
            Self::Name(_) => alloc::vec!["ErrWatermarkCorrupt", "ErrWatermarkPeerInvalid"],
        }
    }
}

/// Whether an operation changed anything, so that the file must be written.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use]
pub enum Changed {
    /// Write the file.
    Yes,
    /// The file is as it was.
    No,
}

/// What each peer acknowledged; zero for a peer that is not in it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Watermarks {
    marks: BTreeMap<PeerName, Version>,
}

impl Watermarks {
    /// What `peer` acknowledged; zero if nothing.
    #[must_use]
    pub fn of(&self, peer: &PeerName) -> Version {
        self.marks.get(peer).copied().unwrap_or(Version::ZERO)
    }

    /// All peers and their marks, bytewise by name; no mark is zero.
    pub fn iter(&self) -> impl Iterator<Item = (&PeerName, Version)> {
        self.marks.iter().map(|(name, mark)| (name, *mark))
    }

    /// Takes an acknowledgement, which never moves back. Zero says nothing. On an error nothing has
    /// changed.
    ///
    /// # Errors
    /// In this order: below the one before; too many peers; the file would be too long.
    pub fn acknowledge(
        &mut self,
        peer: &PeerName,
        version: Version,
        limits: &WatermarkLimits,
    ) -> Result<Changed, WatermarkError> {
        if version.is_zero() {
            return Ok(Changed::No);
        }
        let previous = self.of(peer);
        match version.cmp(&previous) {
            Ordering::Less => {
                let name = Box::new(peer.clone());
                Err(WatermarkError::Regression { name, previous, found: version })
            }
            Ordering::Equal => Ok(Changed::No),
            Ordering::Greater => self.replace(peer, version, limits),
        }
    }

    /// Takes the mark an authenticated peer starts with, which may be lower than before; zero forgets
    /// the peer. On an error nothing has changed.
    ///
    /// # Errors
    /// In this order: too many peers; the file would be too long.
    pub fn reconcile(
        &mut self,
        peer: &PeerName,
        version: Version,
        limits: &WatermarkLimits,
    ) -> Result<Changed, WatermarkError> {
        if version.is_zero() {
            return Ok(self.forget(peer));
        }
        if version == self.of(peer) { Ok(Changed::No) } else { self.replace(peer, version, limits) }
    }

    /// Forgets a peer.
    pub fn forget(&mut self, peer: &PeerName) -> Changed {
        if self.marks.remove(peer).is_some() { Changed::Yes } else { Changed::No }
    }

    fn replace(
        &mut self,
        peer: &PeerName,
        version: Version,
        limits: &WatermarkLimits,
    ) -> Result<Changed, WatermarkError> {
        let mut next = self.clone();
        next.marks.insert(peer.clone(), version);
        check_count(next.marks.len(), limits)?;
        next.encode(limits)?;
        *self = next;
        Ok(Changed::Yes)
    }

    /// Reads a whole file.
    ///
    /// # Errors
    /// It is too long, not one whole envelope, not strictly watermarks, names too many peers or one
    /// that is none, or holds a zero. Peers out of order are refused, where the reference sorts them.
    pub fn decode(file: &[u8], limits: &WatermarkLimits) -> Result<Self, WatermarkFileError> {
        check_length(file.len(), limits).map_err(WatermarkFileError::Limit)?;
        let text = envelope::whole(file, limits.watermark_file_bytes_max)?;
        let entries = payload::watermarks(text)?;
        check_count(entries.len(), limits).map_err(WatermarkFileError::Limit)?;
        let mut marks = BTreeMap::new();
        for (name, mark) in &entries {
            let name = PeerName::parse(name.as_bytes(), limits.name_bytes_max)?;
            if mark.is_zero() {
                return Err(WatermarkFileError::Zero { name: Box::new(name) });
            }
            marks.insert(name, *mark);
        }
        Ok(Self { marks })
    }

    /// The file, as the reference writes it.
    ///
    /// # Errors
    /// It would be too long.
    pub fn encode(&self, limits: &WatermarkLimits) -> Result<Vec<u8>, WatermarkError> {
        let mut text = Vec::from(br#"{"watermarks":{"#);
        for (index, (name, mark)) in self.iter().enumerate() {
            if index > 0 {
                text.push(b',');
            }
            write_string(name.as_str(), &mut text);
            text.push(b':');
            write_version(mark, &mut text);
        }
        text.extend_from_slice(b"}}");
        check_length(text.len() + ENVELOPE_BYTES, limits)?;
        let mut file = Vec::with_capacity(text.len() + ENVELOPE_BYTES);
        envelope::put(&mut file, &text);
        Ok(file)
    }
}

fn check_length(bytes: usize, limits: &WatermarkLimits) -> Result<(), WatermarkError> {
    let (bytes, bytes_max) = (bytes as u64, limits.watermark_file_bytes_max);
    if bytes > bytes_max {
        return Err(WatermarkError::TooLong { bytes, bytes_max });
    }
    Ok(())
}

fn check_count(peers: usize, limits: &WatermarkLimits) -> Result<(), WatermarkError> {
    let peers_max = limits.peers_max;
    if u32::try_from(peers).map_or(true, |peers| peers > peers_max) {
        return Err(WatermarkError::TooMany { peers, peers_max });
    }
    Ok(())
}

/// Why a source does not take a peer's acknowledgement.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum AcknowledgeError {
    /// Beyond what the source has.
    #[error("peer {name} acknowledged {found}: expected at most the source's last version {last}")]
    BeyondLast {
        /// Which peer.
        name: Box<PeerName>,
        /// What it acknowledges.
        found: Version,
        /// The source's last version.
        last: Version,
    },
    /// The book refuses it.
    #[error(transparent)]
    Book(#[from] WatermarkError),
}

impl Classified for AcknowledgeError {
    const FAMILY: Family = Family::Peer;
}

impl ReferenceNames for AcknowledgeError {
    fn reference_names(&self) -> Vec<&'static str> {
        match self {
            Self::BeyondLast { .. } => alloc::vec!["ErrRepairAcknowledgement"],
            Self::Book(error) => error.reference_names(),
        }
    }
}

/// The reference's check before a source whose journal ends at `last` takes a mark: any version up to
/// it, whether it holds that version or not (finding j7; our own sessions ask for more).
///
/// # Errors
/// The mark lies beyond `last`.
pub fn check_acknowledged(peer: &PeerName, found: Version, last: Version) -> Result<(), AcknowledgeError> {
    if found > last {
        return Err(AcknowledgeError::BeyondLast { name: Box::new(peer.clone()), found, last });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: WatermarkLimits =
        WatermarkLimits { peers_max: 2, name_bytes_max: 8, watermark_file_bytes_max: 1 << 20 };

    fn peer(name: &str) -> PeerName {
        LIMITS.peer(name.as_bytes()).unwrap()
    }

    fn v(sequence: u64) -> Version {
        Version::new(1, sequence)
    }

    #[test]
    fn zero_says_nothing() {
        let mut book = Watermarks::default();
        assert_eq!(book.acknowledge(&peer("a"), Version::ZERO, &LIMITS), Ok(Changed::No));
        assert_eq!(book, Watermarks::default());
    }

    #[test]
    fn regression_changes_nothing() {
        let mut book = Watermarks::default();
        assert_eq!(book.acknowledge(&peer("a"), v(4), &LIMITS), Ok(Changed::Yes));
        assert_eq!(book.acknowledge(&peer("a"), v(4), &LIMITS), Ok(Changed::No));
        let refused = book.acknowledge(&peer("a"), v(3), &LIMITS);
        assert!(matches!(refused, Err(WatermarkError::Regression { .. })));
        assert_eq!(book.of(&peer("a")), v(4));
    }

    #[test]
    fn reconcile_may_go_back_and_forgets_at_zero() {
        let mut book = Watermarks::default();
        assert_eq!(book.reconcile(&peer("a"), v(4), &LIMITS), Ok(Changed::Yes));
        assert_eq!(book.reconcile(&peer("a"), v(1), &LIMITS), Ok(Changed::Yes));
        assert_eq!(book.reconcile(&peer("a"), Version::ZERO, &LIMITS), Ok(Changed::Yes));
        assert_eq!(book.reconcile(&peer("a"), Version::ZERO, &LIMITS), Ok(Changed::No));
    }

    #[test]
    fn too_many_and_too_long_change_nothing() {
        let mut book = Watermarks::default();
        let short = WatermarkLimits { watermark_file_bytes_max: 60, ..LIMITS };
        assert_eq!(book.acknowledge(&peer("a"), v(1), &short), Ok(Changed::Yes));
        let refused = book.acknowledge(&peer("b"), v(1), &short);
        assert!(matches!(refused, Err(WatermarkError::TooLong { .. })));
        assert_eq!(book.acknowledge(&peer("b"), v(1), &LIMITS), Ok(Changed::Yes));
        let refused = book.reconcile(&peer("c"), v(1), &LIMITS);
        assert_eq!(refused, Err(WatermarkError::TooMany { peers: 3, peers_max: 2 }));
        assert_eq!(book.iter().count(), 2);
    }

    #[test]
    fn what_is_written_is_read() {
        let mut book = Watermarks::default();
        let _ = book.acknowledge(&peer("<b>"), v(7), &LIMITS).unwrap();
        let _ = book.acknowledge(&peer("Z"), v(9), &LIMITS).unwrap();
        let file = book.encode(&LIMITS).unwrap();
        assert_eq!(Watermarks::decode(&file, &LIMITS), Ok(book));
    }

    #[test]
    fn beyond_last() {
        assert_eq!(check_acknowledged(&peer("p"), v(5), v(5)), Ok(()));
        let refused = check_acknowledged(&peer("p"), v(6), v(5));
        assert!(matches!(refused, Err(AcknowledgeError::BeyondLast { .. })));
    }
}
