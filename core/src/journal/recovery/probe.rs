//! What the bytes at one place of a segment are, and what they prove.

use super::super::batch::{BatchHeader, HEADER_BYTES};
use super::super::segment::{ALIGN, Position, Salt, array};
use super::end::EndCase;
use crate::id::Lsn;

/// What lies where the next batch should start.
#[derive(Debug)]
pub(super) enum Probe<'a> {
    /// A batch whose checksums are right.
    Batch { header: BatchHeader, payload: &'a [u8] },
    /// At least this many bytes from here on are needed to tell.
    Short { bytes: u64 },
    /// A batch header that verifies and claims a longer payload than the limit; it is not read.
    TooLong { header: BatchHeader },
    /// No batch. The case holds unless bytes behind it prove more.
    Bad(EndCase),
}

/// Looks at `bytes`, the start of the `room` bytes left at `at`.
pub(super) fn probe(bytes: &[u8], room: u64, payload_bytes_max: u32, salt: Salt, at: Position) -> Probe<'_> {
    let Some((head, rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return Probe::Short { bytes: HEADER_BYTES as u64 };
    };
    let Some(header) = BatchHeader::decode(head, salt, at) else {
        return Probe::Bad(if all_zero(head) { EndCase::StaleBytes } else { EndCase::TornHeader });
    };
    if header.bytes() > room {
        return Probe::Bad(EndCase::TornPayload);
    }
    if header.payload_bytes > payload_bytes_max {
        return Probe::TooLong { header };
    }
    let padded = usize::try_from(header.bytes()).map(|b| b - HEADER_BYTES).unwrap_or(usize::MAX);
    let Some(padded) = rest.get(..padded) else {
        return Probe::Short { bytes: header.bytes() };
    };
    if !header.verifies(padded, salt, at) {
        return Probe::Bad(EndCase::TornPayload);
    }
    Probe::Batch { header, payload: &padded[..header.payload_bytes as usize] }
}

/// Whether all bytes are zero; written so that it becomes a loop over vectors.
pub(super) fn all_zero(bytes: &[u8]) -> bool {
    bytes.chunks(4096).all(|chunk| chunk.iter().fold(0, |sum, b| sum | b) == 0)
}

/// The bad batch that evidence is sought about.
#[derive(Clone, Copy, Debug)]
pub(super) struct Suspect {
    /// Where it lies.
    pub(super) at: Position,
    /// Salt of its segment.
    pub(super) salt: Salt,
    /// The LSN it should have.
    pub(super) lsn: Lsn,
}

/// The first place in `bytes`, which start at `offset` of the suspect's segment, where an intact
/// batch header says that the suspect was durable. Also returns where the search ended: headers
/// that start there or later are not whole in `bytes`.
///
/// The header alone is proof: it verifies under the salt of the segment, and was made only after
/// what it calls durable was. Whether its own payload is torn does not matter. The cheap
/// comparisons come first, so that a checksum is computed only for bytes that say the right thing.
pub(super) fn evidence(bytes: &[u8], offset: u64, suspect: &Suspect) -> (Option<u64>, u64) {
    let first = offset.max(suspect.at.offset + ALIGN);
    let last = (offset + bytes.len() as u64).checked_sub(HEADER_BYTES as u64);
    let end = last.map_or(first, |last| first.max(last + 1).next_multiple_of(ALIGN));
    if all_zero(bytes) {
        return (None, end);
    }
    let mut at = first;
    while at < end {
        let here: &[u8; HEADER_BYTES] = &array(bytes, usize::try_from(at - offset).expect("within bytes"));
        if proves(here, at, suspect) {
            return (Some(at), end);
        }
        at += ALIGN;
    }
    (None, end)
}

fn proves(bytes: &[u8; HEADER_BYTES], offset: u64, suspect: &Suspect) -> bool {
    let number = |at| u64::from_be_bytes(array(bytes, at));
    let durable_end = number(32);
    number(8) >= suspect.lsn.get()
        && number(24) == suspect.at.segment.0
        && (suspect.at.offset + 1..=offset).contains(&durable_end)
        && BatchHeader::decode(bytes, suspect.salt, Position { offset, ..suspect.at }).is_some()
}

#[cfg(test)]
mod tests {
    use super::super::super::batch::{self, Sealing};
    use super::super::super::command::SegmentNumber;
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    const SALT: Salt = Salt([1; 8]);

    fn at(offset: u64) -> Position {
        Position { segment: SegmentNumber(1), offset }
    }

    fn sealed(offset: u64, durable_end: u64, lsn: u64) -> Vec<u8> {
        let mut buf = vec![0; HEADER_BYTES];
        batch::push_entry(&mut buf, 1, b"entry");
        let first_lsn = Lsn::new(lsn).unwrap();
        let sealing = Sealing {
            salt: SALT,
            at: at(offset),
            first_lsn,
            count: 1,
            durable: None,
            durable_end: at(durable_end),
        };
        batch::seal(&mut buf, &sealing);
        buf
    }

    #[test]
    fn each_probe() {
        let good = sealed(64, 64, 1);
        let room = good.len() as u64;
        let look = |bytes, room, max, offset| probe(bytes, room, max, SALT, at(offset));
        assert!(matches!(look(&good, room, 10, 64), Probe::Batch { payload: [0, 0, 0, 5, 1, ..], .. }));
        assert!(matches!(look(&good[..47], room, 10, 64), Probe::Short { bytes: 48 }));
        assert!(matches!(look(&good[..50], room, 10, 64), Probe::Short { bytes: 64 }));
        assert!(matches!(look(&good[..50], room, 9, 64), Probe::TooLong { .. }));
        assert!(matches!(look(&good[..50], room - 8, 10, 64), Probe::Bad(EndCase::TornPayload)));
        assert!(matches!(look(&good, room, 10, 72), Probe::Bad(EndCase::TornHeader)));
        assert!(matches!(look(&[0; 64], room, 10, 64), Probe::Bad(EndCase::StaleBytes)));
    }

    #[test]
    fn evidence_is_found_in_windows_of_any_size_and_only_where_it_proves() {
        let suspect = Suspect { at: at(64), salt: SALT, lsn: Lsn::FIRST };
        let mut file = vec![0; 512];
        file[256..320].copy_from_slice(&sealed(256, 128, 2));
        for window in [56, 64, 100, 512] {
            let (mut from, mut found) = (64, None);
            while found.is_none() && from + 48 <= 512 {
                let bytes = &file[from as usize..(from as usize + window).min(512)];
                let (hit, end) = evidence(bytes, from, &suspect);
                assert!(hit.is_some() || end > from, "the search moves on");
                (found, from) = (hit, end);
            }
            assert_eq!(found, Some(256), "window {window}");
        }
        let later = Suspect { lsn: Lsn::new(3).unwrap(), ..suspect };
        assert_eq!(evidence(&file, 0, &later).0, None, "an older entry");
        let there = Suspect { at: at(128), ..suspect };
        assert_eq!(evidence(&file, 0, &there).0, None, "durable up to the suspect only");
        let other = Suspect { salt: Salt([2; 8]), ..suspect };
        assert_eq!(evidence(&file, 0, &other).0, None, "another salt");
    }
}
