//! What a peer declares in the handshake that it can do, and which log and incarnation it serves.

use crate::error::{Classified, Family};
use crate::id::{Incarnation, LogId};
use alloc::collections::BTreeSet;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::fmt;

/// Most capabilities in one declaration. From the reference, like the two below.
pub const CAPABILITIES_MAX: usize = 16;

/// Longest capability.
pub const CAPABILITY_BYTES_MAX: usize = 64;

/// Most bytes of capabilities together.
pub const CAPABILITIES_BYTES_MAX: usize = 512;

/// A capability we know.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Capability {
    /// `lifecycle.v1`: reads and writes `lifecycle.*`.
    Lifecycle,
    /// `lifecycle.repair-reconcile.v1`: the first ack is the peer's startup mark.
    RepairReconcile,
    /// `strandline.log.<32 hex>`: the log this connection carries.
    Log(LogId),
    /// `strandline.inc.<24 hex>`: the incarnation of the peer's data.
    Incarnation(Incarnation),
    /// `strandline.snapshot-chunks.v1`: snapshots of any size in pieces.
    SnapshotChunks,
    /// `strandline.blob-ranges.v1`: blobs of any size in pieces.
    BlobRanges,
    /// `strandline.history.v1`: positions are exchanged and judged before repair.
    History,
    /// `strandline.blob-wait.v1`: a record may be ahead of its blob, and acknowledgements say so.
    BlobWait,
    /// `strandline.window.v1`: several batches may be out at a time.
    Window,
}

impl Capability {
    /// Reads a capability; `None` if it is not one of ours.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "lifecycle.v1" => Some(Self::Lifecycle),
            "lifecycle.repair-reconcile.v1" => Some(Self::RepairReconcile),
            "strandline.snapshot-chunks.v1" => Some(Self::SnapshotChunks),
            "strandline.blob-ranges.v1" => Some(Self::BlobRanges),
            "strandline.history.v1" => Some(Self::History),
            "strandline.blob-wait.v1" => Some(Self::BlobWait),
            "strandline.window.v1" => Some(Self::Window),
            other => {
                let log = other.strip_prefix("strandline.log.").and_then(LogId::parse);
                let incarnation = other.strip_prefix("strandline.inc.").and_then(Incarnation::parse);
                log.map(Self::Log).or(incarnation.map(Self::Incarnation))
            }
        }
    }
}

impl fmt::Display for Capability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lifecycle => f.write_str("lifecycle.v1"),
            Self::RepairReconcile => f.write_str("lifecycle.repair-reconcile.v1"),
            Self::Log(log) => write!(f, "strandline.log.{log}"),
            Self::Incarnation(incarnation) => write!(f, "strandline.inc.{incarnation}"),
            Self::SnapshotChunks => f.write_str("strandline.snapshot-chunks.v1"),
            Self::BlobRanges => f.write_str("strandline.blob-ranges.v1"),
            Self::History => f.write_str("strandline.history.v1"),
            Self::BlobWait => f.write_str("strandline.blob-wait.v1"),
            Self::Window => f.write_str("strandline.window.v1"),
        }
    }
}

/// Why a declaration is refused: the peer's fault.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum CapabilityError {
    /// Too many.
    #[error("{count} capabilities or more, expected at most {CAPABILITIES_MAX}")]
    TooMany {
        /// How many were counted.
        count: usize,
    },
    /// One is too long.
    #[error("capability has {bytes} bytes, expected 1 to {CAPABILITY_BYTES_MAX}")]
    TooLarge {
        /// What was found.
        bytes: usize,
    },
    /// All are too long together.
    #[error("capabilities have {bytes} bytes together, expected at most {CAPABILITIES_BYTES_MAX}")]
    TooLargeTogether {
        /// What was counted.
        bytes: usize,
    },
    /// One is empty or has other bytes than printable ASCII without space.
    #[error("capability {found:?} is invalid, expected printable ASCII without space")]
    Invalid {
        /// The capability found.
        found: String,
    },
    /// One stands twice.
    #[error("capability {found:?} is declared twice, expected once")]
    Duplicate {
        /// The capability found.
        found: String,
    },
    /// Two logs or two incarnations.
    #[error("capabilities name {kind} {first} and {second}, expected one")]
    Ambiguous {
        /// "log" or "incarnation".
        kind: &'static str,
        /// The first named.
        first: String,
        /// The other named.
        second: String,
    },
}

impl Classified for CapabilityError {
    const FAMILY: Family = Family::Peer;
}

/// A set of known capabilities, with at most one log and one incarnation.
///
/// ```
/// use strandline_core::wire::capability::{Capabilities, Capability};
/// let declared = Capabilities::parse(["lifecycle.v1", "future.v9"])?;
/// assert!(declared.has(Capability::Lifecycle));
/// assert_eq!(declared.log(), None);
/// # Ok::<(), strandline_core::wire::capability::CapabilityError>(())
/// ```
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Capabilities(BTreeSet<Capability>);

impl Capabilities {
    /// The set of the capabilities given.
    ///
    /// # Errors
    /// Two logs or two incarnations are named.
    pub fn new(capabilities: impl IntoIterator<Item = Capability>) -> Result<Self, CapabilityError> {
        let set: BTreeSet<_> = capabilities.into_iter().collect();
        let ambiguous =
            |kind, first: String, second: String| CapabilityError::Ambiguous { kind, first, second };
        let mut sorted = set.iter();
        while let Some(capability) = sorted.next() {
            match (capability, sorted.clone().next()) {
                (Capability::Log(a), Some(Capability::Log(b))) => {
                    return Err(ambiguous("log", a.to_string(), b.to_string()));
                }
                (Capability::Incarnation(a), Some(Capability::Incarnation(b))) => {
                    return Err(ambiguous("incarnation", a.to_string(), b.to_string()));
                }
                (_, _) => {}
            }
        }
        Ok(Self(set))
    }

    /// Reads a declaration. Unknown capabilities are ignored, but count and are judged like known
    /// ones, as the reference does.
    ///
    /// # Errors
    /// See [`CapabilityError`].
    pub fn parse<'a>(declared: impl IntoIterator<Item = &'a str>) -> Result<Self, CapabilityError> {
        let mut seen = BTreeSet::new();
        let mut bytes = 0;
        for text in declared {
            if seen.len() >= CAPABILITIES_MAX {
                return Err(CapabilityError::TooMany { count: seen.len() + 1 });
            }
            if text.len() > CAPABILITY_BYTES_MAX {
                return Err(CapabilityError::TooLarge { bytes: text.len() });
            }
            bytes += text.len();
            if bytes > CAPABILITIES_BYTES_MAX {
                return Err(CapabilityError::TooLargeTogether { bytes });
            }
            if !is_label(text) {
                return Err(CapabilityError::Invalid { found: text.into() });
            }
            if !seen.insert(text) {
                return Err(CapabilityError::Duplicate { found: text.into() });
            }
        }
        Self::new(seen.into_iter().filter_map(Capability::parse))
    }

    /// Whether a capability is in the set.
    #[must_use]
    pub fn has(&self, capability: Capability) -> bool {
        self.0.contains(&capability)
    }

    /// The log this connection carries, if the set names one.
    #[must_use]
    pub fn log(&self) -> Option<LogId> {
        self.0.iter().find_map(|capability| match capability {
            Capability::Log(log) => Some(*log),
            Capability::Lifecycle
            | Capability::RepairReconcile
            | Capability::Incarnation(_)
            | Capability::SnapshotChunks
            | Capability::BlobRanges
            | Capability::History
            | Capability::BlobWait
            | Capability::Window => None,
        })
    }

    /// The incarnation of the peer's data, if the set names one.
    #[must_use]
    pub fn incarnation(&self) -> Option<Incarnation> {
        self.0.iter().find_map(|capability| match capability {
            Capability::Incarnation(incarnation) => Some(*incarnation),
            Capability::Lifecycle
            | Capability::RepairReconcile
            | Capability::Log(_)
            | Capability::SnapshotChunks
            | Capability::BlobRanges
            | Capability::History
            | Capability::BlobWait
            | Capability::Window => None,
        })
    }

    /// The texts of the set, sorted bytewise as they are declared.
    #[must_use]
    pub fn texts(&self) -> Vec<String> {
        let mut texts: Vec<_> = self.0.iter().map(Capability::to_string).collect();
        texts.sort_unstable();
        texts
    }
}

/// Whether a text is of printable ASCII without space, and not empty: what the reference allows in
/// capabilities and identities.
pub(super) fn is_label(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    fn all() -> [Capability; 9] {
        [
            Capability::Lifecycle,
            Capability::RepairReconcile,
            Capability::Log(LogId([0xab; 16])),
            Capability::Incarnation(Incarnation { counter: 1, nonce: [2; 8] }),
            Capability::SnapshotChunks,
            Capability::BlobRanges,
            Capability::History,
            Capability::BlobWait,
            Capability::Window,
        ]
    }

    #[test]
    fn every_capability_reads_back_and_all_fit_a_declaration() {
        for capability in all() {
            assert_eq!(Capability::parse(&capability.to_string()), Some(capability));
        }
        let set = Capabilities::new(all()).expect("one log, one incarnation");
        let texts = set.texts();
        assert!(texts.is_sorted());
        assert_eq!(Capabilities::parse(texts.iter().map(String::as_str)), Ok(set.clone()));
        assert_eq!(set.log(), Some(LogId([0xab; 16])));
        assert_eq!(set.incarnation(), Some(Incarnation { counter: 1, nonce: [2; 8] }));
    }

    #[test]
    fn unknown_ones_are_ignored_even_if_nearly_ours() {
        let declared = [
            "LIFECYCLE.V1",
            "strandline.log.xyz",
            "strandline.inc.00",
            "strandline.log.ABABABABABABABABABABABABABABABAB",
        ];
        assert_eq!(Capabilities::parse(declared), Ok(Capabilities::default()));
    }

    #[test]
    fn too_many() {
        let names: Vec<_> = (0..17).map(|i| format!("c{i}")).collect();
        assert!(Capabilities::parse(names[..16].iter().map(String::as_str)).is_ok());
        assert_eq!(
            Capabilities::parse(names.iter().map(String::as_str)),
            Err(CapabilityError::TooMany { count: 17 })
        );
    }

    #[test]
    fn too_large() {
        let name = "c".repeat(65);
        assert!(Capabilities::parse([&name[..64]]).is_ok());
        assert_eq!(Capabilities::parse([&*name]), Err(CapabilityError::TooLarge { bytes: 65 }));
    }

    #[test]
    fn too_large_together() {
        let names: Vec<_> = (0..9).map(|i| format!("{i:061}")).collect();
        assert!(Capabilities::parse(names[..8].iter().map(String::as_str)).is_ok());
        assert_eq!(
            Capabilities::parse(names.iter().map(String::as_str)),
            Err(CapabilityError::TooLargeTogether { bytes: 549 })
        );
    }

    #[test]
    fn invalid() {
        for text in ["", "a b", "\u{e9}", "a\n", "\u{7f}"] {
            assert_eq!(Capabilities::parse([text]), Err(CapabilityError::Invalid { found: text.into() }));
        }
    }

    #[test]
    fn duplicate_even_if_unknown() {
        assert_eq!(
            Capabilities::parse(["future.v9", "future.v9"]),
            Err(CapabilityError::Duplicate { found: "future.v9".into() })
        );
    }

    #[test]
    fn ambiguous_log_and_incarnation() {
        let logs = [Capability::Log(LogId([1; 16])), Capability::Log(LogId([2; 16]))];
        assert!(matches!(Capabilities::new(logs), Err(CapabilityError::Ambiguous { kind: "log", .. })));
        let lives = [1, 2].map(|counter| Capability::Incarnation(Incarnation { counter, nonce: [0; 8] }));
        let refused = Capabilities::new(lives);
        assert!(matches!(refused, Err(CapabilityError::Ambiguous { kind: "incarnation", .. })));
    }
}
