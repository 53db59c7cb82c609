//! `current`: the one commit point of compaction and snapshot installation.
//!
//! What it names is the state of the directory; everything else is left over and removed. Write and
//! sync new files first, replace `current`, then remove what it no longer names.

use super::command::{FileName, SegmentNumber};
use super::fields::{Fields, push_bytes};
use super::sidecar::Envelope;
use crate::error::StorageFault;
use crate::id::{Incarnation, LogId, Run};
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;

/// Longest identity in bytes of UTF-8.
pub const IDENTITY_BYTES_MAX: usize = 255;
/// Most namespaces.
pub const NAMESPACES_MAX: usize = 1024;
/// Longest namespace.
pub const NAMESPACE_BYTES_MAX: usize = 1024;
/// Longest [`Current::opaque`].
pub const OPAQUE_BYTES_MAX: usize = 64 << 10;

/// The envelope of `current`.
pub const ENVELOPE: Envelope =
    Envelope { file: FileName::Current, magic: *b"SLCU", format: 1, payload_bytes_max: 2 << 20 };

const FIXED_BYTES_MAX: usize = 512;
const _: () = assert!(
    FIXED_BYTES_MAX + IDENTITY_BYTES_MAX + NAMESPACES_MAX * (NAMESPACE_BYTES_MAX + 4) + OPAQUE_BYTES_MAX
        <= ENVELOPE.payload_bytes_max as usize,
    "whatever the bounds allow fits the envelope"
);

/// A checkpoint that `current` names.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct CheckpointRef {
    /// Its number, also its name.
    pub number: u64,
    /// Its length.
    pub bytes: u64,
    /// SHA-256 of the whole file.
    pub sha256: [u8; 32],
}

/// The content of `current`.
///
/// Payload, big endian: log (16), incarnation (12), identity (length 4, bytes), namespaces (count 4,
/// each length 4 and bytes), run (8), first segment (8), next checkpoint (8), checkpoint (0, or 1
/// and number 8, length 8, SHA-256 32), floor (16), its digest (32), opaque (length 4, bytes).
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Current {
    /// The log the directory holds.
    pub log: LogId,
    /// This life of its data.
    pub incarnation: Incarnation,
    /// The replica's name, at most 255 bytes.
    pub identity: String,
    /// What the log may hold: at most 1,024 namespaces of 1,024 bytes.
    pub namespaces: Vec<Vec<u8>>,
    /// The last run of tickets on this directory.
    pub run: Run,
    /// The oldest segment that counts.
    pub first_segment: SegmentNumber,
    /// The number the next checkpoint gets. Numbers are never used twice.
    pub next_checkpoint: u64,
    /// The state below the first segment, if any was compacted.
    pub checkpoint: Option<CheckpointRef>,
    /// The version the checkpoint stands for, as the protocol writes it: epoch, sequence.
    pub floor: [u8; 16],
    /// The digest of the chain at the floor.
    pub floor_digest: [u8; 32],
    /// What the protocol adds, at most 64 KiB.
    pub opaque: Vec<u8>,
}

impl Current {
    /// The whole file.
    ///
    /// # Panics
    /// If a bound is exceeded: whoever fills the fields checks them where they come in.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.identity.len() <= IDENTITY_BYTES_MAX, "identity over its limit");
        assert!(self.namespaces.len() <= NAMESPACES_MAX, "namespaces over their limit");
        assert!(self.namespaces.iter().all(|n| n.len() <= NAMESPACE_BYTES_MAX), "namespace over its limit");
        assert!(self.opaque.len() <= OPAQUE_BYTES_MAX, "opaque over its limit");
        let mut out = Vec::new();
        out.extend_from_slice(&self.log.0);
        out.extend_from_slice(&self.incarnation.to_bytes());
        push_bytes(&mut out, self.identity.as_bytes());
        out.extend_from_slice(&u32::try_from(self.namespaces.len()).expect("bounded above").to_be_bytes());
        for namespace in &self.namespaces {
            push_bytes(&mut out, namespace);
        }
        for number in [self.run.0, self.first_segment.0, self.next_checkpoint] {
            out.extend_from_slice(&number.to_be_bytes());
        }
        out.push(u8::from(self.checkpoint.is_some()));
        if let Some(checkpoint) = &self.checkpoint {
            out.extend_from_slice(&checkpoint.number.to_be_bytes());
            out.extend_from_slice(&checkpoint.bytes.to_be_bytes());
            out.extend_from_slice(&checkpoint.sha256);
        }
        out.extend_from_slice(&self.floor);
        out.extend_from_slice(&self.floor_digest);
        push_bytes(&mut out, &self.opaque);
        ENVELOPE.encode(&out)
    }

    /// Reads the whole file.
    ///
    /// # Errors
    /// A newer format, damage, or a field over its bound, named with its offset.
    pub fn decode(bytes: &[u8]) -> Result<Self, StorageFault> {
        let mut fields = Fields::new(FileName::Current, ENVELOPE.decode(bytes)?);
        let log = LogId(fields.array()?);
        let incarnation = Incarnation::from_bytes(fields.array()?);
        let identity = fields.text("bytes of identity", IDENTITY_BYTES_MAX)?.to_owned();
        let namespaces = (0..fields.count("namespaces", NAMESPACES_MAX)?)
            .map(|_| fields.bytes("bytes of namespace", NAMESPACE_BYTES_MAX).map(<[u8]>::to_vec))
            .collect::<Result<_, _>>()?;
        let run = Run(fields.u64()?);
        let first_segment = SegmentNumber(fields.u64()?);
        let next_checkpoint = fields.u64()?;
        let checkpoint = match fields.u8()? {
            0 => None,
            1 => Some(CheckpointRef { number: fields.u64()?, bytes: fields.u64()?, sha256: fields.array()? }),
            other => return Err(fields.damaged(alloc::format!("expected 0 or 1, found {other}"))),
        };
        let current = Self {
            log,
            incarnation,
            identity,
            namespaces,
            run,
            first_segment,
            next_checkpoint,
            checkpoint,
            floor: fields.array()?,
            floor_digest: fields.array()?,
            opaque: fields.bytes("bytes of opaque", OPAQUE_BYTES_MAX)?.to_vec(),
        };
        fields.end()?;
        Ok(current)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::sidecar;
    use alloc::vec;

    fn current() -> Current {
        Current {
            log: LogId([1; 16]),
            incarnation: Incarnation { counter: 3, nonce: [2; 8] },
            identity: "node-a".into(),
            namespaces: vec![b"files".to_vec(), vec![0, 255]],
            run: Run(9),
            first_segment: SegmentNumber(4),
            next_checkpoint: 6,
            checkpoint: Some(CheckpointRef { number: 5, bytes: 77, sha256: [8; 32] }),
            floor: [7; 16],
            floor_digest: [6; 32],
            opaque: b"more".to_vec(),
        }
    }

    #[test]
    fn current_round_trips_with_and_without_a_checkpoint() {
        let without = Current { checkpoint: None, namespaces: Vec::new(), ..current() };
        for value in [current(), without] {
            assert_eq!(Current::decode(&value.encode()), Ok(value));
        }
    }

    #[test]
    fn the_bounds_fit_the_envelope() {
        let full = Current {
            identity: "x".repeat(IDENTITY_BYTES_MAX),
            namespaces: vec![vec![1; NAMESPACE_BYTES_MAX]; NAMESPACES_MAX],
            opaque: vec![2; OPAQUE_BYTES_MAX],
            ..current()
        };
        assert_eq!(Current::decode(&full.encode()), Ok(full));
    }

    #[test]
    fn a_wrong_payload_under_a_right_checksum_is_refused() {
        let payload = current().encode().split_off(sidecar::HEADER_BYTES);
        for len in 0..payload.len() {
            assert!(Current::decode(&ENVELOPE.encode(&payload[..len])).is_err(), "length {len}");
        }
        let mut long = payload;
        long.push(0);
        let fault = Current::decode(&ENVELOPE.encode(&long)).unwrap_err();
        assert_eq!(fault.detail, "expected the end, found 1 more bytes");
    }
}
