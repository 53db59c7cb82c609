//! Damage of every kind to a valid directory: recovery refuses, or gives back what was written.

mod common;

use common::disk::Disk;
use common::event_log::{Config, SMALL, open};
use common::numbers::Numbers;
use strandline_core::journal::command::{FileName, SegmentNumber};
use strandline_core::journal::recovery::{EndCase, Origin, RecoveryFault};

const CONFIG: Config = Config { limits: SMALL, origin: Origin::New, first_segment: 1, run: 1 };
const AGAIN: Config = Config { origin: Origin::Existing, run: 2, ..CONFIG };

/// What each batch of [`filled`] occupies.
const BATCH: usize = 48 + 24;

/// Ten batches of one entry of 15 bytes, four to a segment.
fn filled(seal: bool) -> Disk {
    let (mut log, mut host) = open(&CONFIG, Disk::default());
    for n in 1..=10 {
        log.append(&[(1, &[n; 15])]).unwrap();
        host.settle(&mut log);
        if n % 4 == 0 {
            log.switch_segment();
            host.settle(&mut log);
        }
    }
    if seal {
        log.seal();
        host.settle(&mut log);
    }
    assert_eq!(host.durable(), 10);
    host.disk
}

/// Entries of a disk, or the refusal of it.
fn outcome(disk: &Disk) -> Result<Vec<(u64, u8, Vec<u8>)>, EndCase> {
    let (log, host) = open(&AGAIN, disk.clone());
    match host.refused() {
        None => Ok(log.entries),
        Some(RecoveryFault::Refused { case, .. }) => Err(*case),
        Some(RecoveryFault::Failed(fault)) => panic!("{fault}"),
    }
}

/// The block of the third segment of a sealed journal of ten that holds the end of batch 10, and
/// the seal.
const LAST_BLOCK: usize = (64 + 2 * BATCH) / 64;

#[test]
fn no_flipped_bit_and_no_zeroed_block_of_a_sealed_journal_loses_or_alters_an_entry() {
    let disk = filled(true);
    let whole = outcome(&disk).unwrap();
    assert_eq!(whole.len(), 10);
    let (mut refused, mut harmless) = (0, 0);
    let mut judge = |damaged: &Disk, what: String| match outcome(damaged) {
        Err(_) => refused += 1,
        Ok(entries) => {
            assert_eq!(entries, whole, "{what}");
            harmless += 1;
        }
    };
    for segment in 1..=3 {
        for byte in 0..1024 {
            for bit in [0, 7] {
                let mut damaged = disk.clone();
                damaged.damage(segment, |file| file[byte] ^= 1 << bit);
                judge(&damaged, format!("segment {segment}, byte {byte}, bit {bit}"));
            }
        }
        for block in 0..1024 / 64 {
            if segment == 3 && block == LAST_BLOCK {
                continue;
            }
            let mut damaged = disk.clone();
            damaged.damage(segment, |file| file[block * 64..][..64].fill(0));
            judge(&damaged, format!("segment {segment}, block {block}"));
        }
    }
    // The one undecidable case: one block holds the end of the last batch and its seal.
    let mut damaged = disk.clone();
    damaged.damage(3, |file| file[LAST_BLOCK * 64..][..64].fill(0));
    assert_eq!(outcome(&damaged).unwrap(), whole[..9]);
    // Ten batches and three headers; the final seal and the space behind each end are harmless.
    let held = (10 * BATCH + 3 * 64) * 2;
    assert!(refused >= held, "{refused} of {held} refused, {harmless} harmless");
}

#[test]
fn no_mutation_yields_an_entry_that_was_not_written() {
    let mut numbers = Numbers(1);
    for seal in [false, true] {
        let disk = filled(seal);
        let whole = outcome(&disk).unwrap();
        let (mut refused, mut shorter) = (0, 0);
        for round in 0..4000 {
            let mut damaged = disk.clone();
            for _ in 0..=numbers.below(2) {
                let segment = 1 + numbers.below(3) as u64;
                let (to, from, len) = (numbers.below(1024), numbers.below(1024), 1 + numbers.below(200));
                let kind = numbers.below(4);
                damaged.damage(segment, |file| mutate(file, kind, to, from, len));
            }
            match outcome(&damaged) {
                Err(_) => refused += 1,
                Ok(entries) => {
                    assert_eq!(entries[..], whole[..entries.len()], "round {round}");
                    assert!(entries.len() >= 8, "round {round}: earlier segments prove their entries");
                    shorter += usize::from(entries.len() < whole.len());
                }
            }
        }
        assert!(refused > 1000 && shorter < 1000, "{refused} refused, {shorter} cut");
    }
}

fn mutate(file: &mut Vec<u8>, kind: usize, to: usize, from: usize, len: usize) {
    let len = len.min(file.len().saturating_sub(to.max(from)));
    match kind {
        _ if len == 0 => {}
        0 => file.copy_within(from..from + len, to),
        1 => file[to..to + len].fill(0),
        2 => file[to..to + len].iter_mut().for_each(|b| *b = b.wrapping_mul(5).wrapping_add(from as u8)),
        _ => file.truncate(file.len() - len),
    }
}

#[test]
fn any_bytes_at_all_are_refused_or_empty() {
    let mut numbers = Numbers(2);
    for _ in 0..2000 {
        let mut disk = filled(false);
        let keep = if numbers.below(2) == 0 { 0 } else { 64 };
        let bytes = keep + numbers.below(600);
        disk.files.remove(&FileName::Segment(SegmentNumber(2)));
        disk.files.remove(&FileName::Segment(SegmentNumber(3)));
        disk.damage(1, |file| {
            file.truncate(if keep == 0 { bytes } else { 1024 });
            file[keep..].iter_mut().for_each(|b| *b = numbers.below(256) as u8);
        });
        assert!(outcome(&disk).map_or(true, |entries| keep == 64 && entries.is_empty()));
    }
}
