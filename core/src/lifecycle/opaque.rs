//! What protocol A keeps in `current` beside what the journal names itself.

use crate::error::StorageFault;
use crate::journal::command::FileName;
use crate::record::{AuthorityId, Version};
use alloc::vec::Vec;

/// The protocol's part of `current`: one byte of flags (1: the digest chain starts from an anchor that
/// every replica of the log shares; 2: records may lack their blobs that
/// no entry of the journal says it of), whether the first segment was ever entered (one
/// byte, 0 or 1), the number of records in the checkpoint (be64), and the authority identity if this
/// replica writes the log (the rest, empty if not).
#[derive(Clone, Debug, Eq, PartialEq)]
pub(super) struct Opaque {
    pub(super) chained: bool,
    /// Records may lack their blobs, and no entry of the journal says so: a start must look for them.
    pub(super) wanting: bool,
    pub(super) entered: bool,
    pub(super) checkpoint_records: u64,
    pub(super) authority: Option<AuthorityId>,
}

impl Opaque {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(64);
        out.push(u8::from(self.chained) | u8::from(self.wanting) << 1);
        out.push(u8::from(self.entered));
        out.extend_from_slice(&self.checkpoint_records.to_be_bytes());
        if let Some(authority) = &self.authority {
            out.extend_from_slice(authority.as_str().as_bytes());
        }
        out
    }

    pub(super) fn decode(bytes: &[u8]) -> Result<Self, StorageFault> {
        let damaged = |found| {
            let detail =
                alloc::format!("expected two bytes of flags, a count and an authority, found {found}");
            StorageFault::damaged(FileName::Current, 0, detail)
        };
        let Some(([chained, entered, count @ ..], authority)) = bytes.split_first_chunk::<10>() else {
            return Err(damaged(alloc::format!("{} bytes", bytes.len())));
        };
        let flag = |byte: u8| match byte {
            0 | 1 => Ok(byte == 1),
            other => Err(damaged(alloc::format!("a flag of {other}"))),
        };
        if *chained > 3 {
            return Err(damaged(alloc::format!("flags of {chained}")));
        }
        let authority = core::str::from_utf8(authority).map_err(|e| damaged(alloc::format!("{e}")))?;
        Ok(Self {
            chained: *chained & 1 != 0,
            wanting: *chained & 2 != 0,
            entered: flag(*entered)?,
            checkpoint_records: u64::from_be_bytes(*count),
            authority: (!authority.is_empty()).then(|| AuthorityId::from_text(authority)),
        })
    }
}

/// A version as `current` keeps it: epoch and sequence, big endian.
pub(super) fn floor_bytes(version: Version) -> [u8; 16] {
    let mut out = [0; 16];
    out[..8].copy_from_slice(&version.epoch.to_be_bytes());
    out[8..].copy_from_slice(&version.sequence.to_be_bytes());
    out
}

/// The inverse of [`floor_bytes`].
pub(super) fn floor_version(bytes: [u8; 16]) -> Version {
    let number = u128::from_be_bytes(bytes);
    Version::new((number >> 64) as u64, number as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn round_trips() {
        let authority = Some(AuthorityId::from_text("node-a"));
        let opaque =
            Opaque { chained: true, wanting: true, entered: false, checkpoint_records: 7, authority };
        assert_eq!(Opaque::decode(&opaque.encode()), Ok(opaque));
        let version = Version::new(3, u64::MAX);
        assert_eq!(floor_version(floor_bytes(version)), version);
    }

    #[test]
    fn other_bytes_are_damage() {
        assert!(Opaque::decode(&[]).is_err());
        assert!(Opaque::decode(&[4, 0, 0, 0, 0, 0, 0, 0, 0, 0]).is_err());
    }
}
