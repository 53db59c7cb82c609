//! Every decoder of v1 files and messages on damaged and on altered vectors: it never panics, what it
//! accepts is written and read back as the same value, and is JSON to `serde_json` too.

use std::path::Path;
use strandline_core::compat::streamhive::authority::{Authority, AuthorityLimits};
use strandline_core::compat::streamhive::checkpoint::{Checkpoint, CheckpointLimits};
use strandline_core::compat::streamhive::envelope::{self, ENVELOPE_BYTES};
use strandline_core::compat::streamhive::journal::{End, HEADER_BYTES, Journal, JournalLimits, after_open};
use strandline_core::compat::streamhive::membership::{Membership, MembershipLimits};
use strandline_core::compat::streamhive::watermarks::{WatermarkLimits, Watermarks};
use strandline_core::record::Version;
use strandline_core::wire::limits::WireLimits;
use strandline_core::wire::message::{decode_repair_frame, encode};

/// Longest vector that is altered at every byte.
const BYTES_MAX: u64 = 800;

/// Whether the bytes were accepted.
type Check = fn(&[u8]) -> bool;

fn vectors(folder: &str) -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("vectors").join(folder);
    let (mut folders, mut files) = (vec![root], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let entry = entry.unwrap();
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            } else if entry.metadata().unwrap().len() <= BYTES_MAX {
                files.push(entry.path());
            }
        }
    }
    files.sort();
    files.iter().map(|path| std::fs::read(path).unwrap()).collect()
}

/// Every vector, cut at every byte, with every byte changed in a few ways; `seal` makes what was
/// changed consistent again, so that the change reaches what lies inside.
fn play(folder: &str, seal: fn(&mut [u8]), check: Check) {
    let (mut accepted, mut refused) = (0, 0);
    let mut count = |good| *(if good { &mut accepted } else { &mut refused }) += 1;
    for file in vectors(folder) {
        for at in 0..file.len() {
            count(check(&file[..at]));
            for change in [1, 0x20, 0x80] {
                let mut bad = file.clone();
                bad[at] ^= change;
                count(check(&bad));
                seal(&mut bad);
                count(check(&bad));
            }
        }
        count(check(&file));
    }
    assert!(accepted > 0 && refused > 0, "{folder}: {accepted} accepted, {refused} refused");
}

/// Writes the length and the sum of the one envelope a file is.
fn seal_envelope(file: &mut [u8]) {
    if let Some(length) = file.len().checked_sub(ENVELOPE_BYTES).filter(|length| *length > 0) {
        let sum = envelope::checksum(&file[4..4 + length]);
        file[..4].copy_from_slice(&u32::try_from(length).unwrap().to_be_bytes());
        file[4 + length..].copy_from_slice(&sum.to_be_bytes());
    }
}

/// Writes the sum of the first entry of a journal.
fn seal_first_entry(file: &mut [u8]) {
    let Some(entry) = file.get(HEADER_BYTES..).filter(|entry| entry.len() > ENVELOPE_BYTES) else {
        return;
    };
    let length = u32::from_be_bytes(entry[..4].try_into().unwrap()) as usize;
    if let Some(text) = entry.get(4..4 + length).filter(|_| entry.len() >= length + ENVELOPE_BYTES) {
        let sum = envelope::checksum(text).to_be_bytes();
        file[HEADER_BYTES + 4 + length..][..4].copy_from_slice(&sum);
    }
}

fn is_json(text: &[u8]) {
    serde_json::from_slice::<serde_json::Value>(text).expect("accepted JSON is JSON to others too");
}

#[test]
fn journals() {
    play("journal", seal_first_entry, |bytes| {
        let limits = JournalLimits::default();
        let left = after_open(bytes, &limits);
        assert!(bytes.starts_with(&left) || bytes.is_empty());
        let Ok(journal) = Journal::decode(bytes, &limits) else {
            return false;
        };
        let written = journal.encode(&limits).unwrap();
        let again = Journal::decode(&written, &limits).unwrap();
        assert_eq!(again, Journal { end: End::Clean, ..journal });
        true
    });
}

#[test]
fn checkpoints() {
    play("checkpoint", seal_envelope, |bytes| {
        let limits = CheckpointLimits::default();
        let Ok(checkpoint) = Checkpoint::decode(bytes, &limits) else {
            return false;
        };
        is_json(&bytes[4..bytes.len() - 4]);
        assert_eq!(Checkpoint::decode(&checkpoint.encode(&limits).unwrap(), &limits), Ok(checkpoint));
        true
    });
}

#[test]
fn authorities() {
    play("authority", seal_envelope, |bytes| {
        let limits = AuthorityLimits::default();
        let open = |bytes: &[u8]| Authority::open(bytes, "node-a", Version::ZERO, &limits);
        let Ok(authority) = open(bytes) else {
            return false;
        };
        is_json(&bytes[4..bytes.len() - 4]);
        assert_eq!(open(&authority.encode(&limits).unwrap()), Ok(authority));
        true
    });
}

#[test]
fn memberships() {
    play("membership", seal_envelope, |bytes| {
        let limits = MembershipLimits::default();
        let Ok(membership) = Membership::decode(bytes, &limits) else {
            return false;
        };
        is_json(&bytes[4..bytes.len() - 4]);
        assert_eq!(Membership::decode(&membership.encode(&limits).unwrap(), &limits), Ok(membership));
        true
    });
}

#[test]
fn watermarks() {
    play("watermarks", seal_envelope, |bytes| {
        let limits = WatermarkLimits::default();
        let Ok(watermarks) = Watermarks::decode(bytes, &limits) else {
            return false;
        };
        is_json(&bytes[4..bytes.len() - 4]);
        assert_eq!(Watermarks::decode(&watermarks.encode(&limits).unwrap(), &limits), Ok(watermarks));
        true
    });
}

#[test]
fn repair_messages() {
    for folder in ["wire/batch", "wire/snapshot", "wire/ack"] {
        play(
            folder,
            |_| {},
            |payload| {
                let limits = WireLimits::default();
                let Ok(message) = decode_repair_frame(payload, &limits) else {
                    return false;
                };
                is_json(payload);
                let mut written = Vec::new();
                encode(&message, &limits, &mut written).unwrap();
                assert_eq!(decode_repair_frame(&written, &limits), Ok(message));
                true
            },
        );
    }
}
