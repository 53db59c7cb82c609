//! Each row of the table that decides how a journal ends, by name.

mod common;

use common::disk::Disk;
use common::event_log::{Config, DiskHost, SMALL, open};
use strandline_core::error::{StorageAction, StorageCause};
use strandline_core::id::{LogId, Lsn};
use strandline_core::journal::batch::{self, BatchHeader, HEADER_BYTES, Sealing};
use strandline_core::journal::command::{FileName, SegmentNumber};
use strandline_core::journal::limits::JournalLimits;
use strandline_core::journal::recovery::{Decision, EndCase, Origin, RecoveryFault};
use strandline_core::journal::segment::{Position, Salt, SegmentHeader};

const CONFIG: Config = Config { limits: SMALL, origin: Origin::New, first_segment: 1, run: 1 };
const AGAIN: Config = Config { origin: Origin::Existing, run: 2, ..CONFIG };

/// What each batch of [`filled`] occupies.
const BATCH: usize = 48 + 24;

/// A disk with `count` batches of one entry of 15 bytes, in segments that a switch ends after each
/// `switch` of them.
fn filled(count: u64, switch: u64, seal: bool) -> Disk {
    let (mut log, mut host) = open(&CONFIG, Disk::default());
    for n in 1..=count {
        log.append(&[(1, &[n as u8; 15])]).unwrap();
        host.settle(&mut log);
        if n % switch == 0 {
            log.switch_segment();
            host.settle(&mut log);
        }
    }
    if seal {
        log.seal();
        host.settle(&mut log);
    }
    assert_eq!(host.durable(), count);
    host.disk
}

fn batch_at(number: usize) -> usize {
    64 + (number - 1) * BATCH
}

/// Recovers and expects these rows and this many entries.
fn kept(disk: Disk, cases: &[EndCase], entries: usize) -> DiskHost {
    let (mut log, mut host) = open(&AGAIN, disk);
    assert!(host.refused().is_none(), "{:?}", host.refused());
    assert_eq!(host.recovered().cases, cases);
    assert_eq!(log.entries.len(), entries);
    log.append(&[(1, b"goes on")]).unwrap();
    host.settle(&mut log);
    assert_eq!(host.durable(), entries as u64 + 1);
    host
}

/// Recovers and expects a refusal of this row at this place, with nothing changed.
fn refused(config: &Config, disk: Disk, case: EndCase, segment: u64, offset: u64) -> String {
    let before = disk.clone();
    let (_, host) = open(config, disk);
    let Some(RecoveryFault::Refused { case: found, fault }) = host.refused() else {
        panic!("{case:?} expected: {:?}", host.events)
    };
    assert_eq!((*found, fault.offset), (case, Some(offset)), "{fault}");
    assert_eq!(fault.file, FileName::Segment(SegmentNumber(segment)).to_string());
    let Decision::Refuse { cause, advice } = case.decision() else { panic!("{case:?} is no refusal") };
    assert_eq!(fault.cause, cause);
    assert!(fault.detail.ends_with(advice), "{fault}");
    for (name, file) in &before.files {
        assert_eq!(host.disk.files[name].durable, file.durable, "a refusal changes nothing");
    }
    fault.detail.clone()
}

fn salt(disk: &mut Disk, number: u64) -> Salt {
    SegmentHeader::decode(&disk.segment(number)[..64]).unwrap().salt
}

/// Puts a batch of the caller's making at `at`, sealed for `sealed_at`.
fn forge(disk: &mut Disk, at: usize, lsn: u64, salt: Salt, sealed_at: Position, entries: &[(u8, &[u8])]) {
    let mut buf = vec![0; HEADER_BYTES];
    for (kind, bytes) in entries {
        batch::push_entry(&mut buf, *kind, bytes);
    }
    let sealing = Sealing {
        salt,
        at: sealed_at,
        first_lsn: Lsn::new(lsn).unwrap(),
        count: u32::try_from(entries.len()).unwrap(),
        durable: Lsn::new(lsn - 1),
        durable_end: sealed_at,
    };
    let _: BatchHeader = batch::seal(&mut buf, &sealing);
    disk.damage(1, |file| file[at..at + buf.len()].copy_from_slice(&buf));
}

fn at(offset: usize) -> Position {
    Position { segment: SegmentNumber(1), offset: offset as u64 }
}

#[test]
fn clean_end() {
    let mut disk = filled(3, 99, false);
    let end = batch_at(4);
    disk.damage(1, |file| {
        let header = SegmentHeader::decode(&file[..64]).unwrap();
        file[..64].copy_from_slice(&SegmentHeader { prepared_bytes: end as u64, ..header }.encode());
        file.truncate(end);
    });
    kept(disk, &[EndCase::CleanEnd], 3);
}

#[test]
fn zero_tail() {
    let host = kept(filled(3, 99, false), &[EndCase::ZeroTail], 3);
    assert_eq!(host.recovered().cut, None);
}

#[test]
fn empty_newest() {
    kept(filled(2, 2, false), &[EndCase::EmptyNewest], 2);
}

#[test]
fn unentered() {
    let mut disk = filled(8, 99, false);
    assert!(disk.segment(2).iter().all(|b| *b == 0), "prepared ahead");
    let host = kept(disk, &[EndCase::Unentered, EndCase::ZeroTail], 8);
    assert_eq!(host.written.iter().filter(|bytes| **bytes == 1024).count(), 0, "it is not prepared again");
}

#[test]
fn unentered_and_too_short_is_prepared_again() {
    let mut disk = filled(8, 99, false);
    disk.damage(2, |file| file.truncate(20));
    let host = kept(disk, &[EndCase::Unentered, EndCase::ZeroTail], 8);
    assert_eq!(host.written.iter().filter(|bytes| **bytes == 1024).count(), 1);
}

#[test]
fn header_cut_while_creating() {
    for landed in 1..64 {
        let mut disk = filled(3, 3, false);
        disk.damage(2, |file| file[landed..64].fill(0));
        kept(disk, &[EndCase::HeaderCut, EndCase::ZeroTail], 3);
    }
}

#[test]
fn a_header_cut_while_creating_is_prepared_again() {
    let mut disk = filled(3, 3, false);
    disk.damage(2, |file| file[30..64].fill(0));
    let (mut log, mut host) = open(&AGAIN, disk);
    while log.journal().segment() == Some(SegmentNumber(1)) {
        log.append(&[(1, &[9; 60])]).unwrap();
        host.settle(&mut log);
    }
    assert_eq!(host.written.iter().filter(|bytes| **bytes == 1024).count(), 1);
}

#[test]
fn torn_header() {
    let mut disk = filled(3, 99, false);
    disk.damage(1, |file| file[batch_at(3) + 20..batch_at(4)].fill(0));
    let host = kept(disk, &[EndCase::TornHeader], 2);
    let cut = host.recovered().cut.unwrap();
    assert_eq!((cut.at, cut.bytes), (at(batch_at(3)), 16));
    assert_eq!(host.disk.copies[0].2.len(), 16, "a copy is kept");
}

#[test]
fn torn_payload() {
    let mut disk = filled(3, 99, false);
    disk.damage(1, |file| file[batch_at(4) - 8..batch_at(4)].fill(0));
    let host = kept(disk, &[EndCase::TornPayload], 2);
    assert_eq!(host.recovered().cut.unwrap().bytes, BATCH as u64 - 8);
}

#[test]
fn stale_bytes() {
    let mut disk = filled(3, 99, false);
    disk.damage(1, |file| file[batch_at(3)..batch_at(3) + 48].fill(0));
    kept(disk, &[EndCase::StaleBytes], 2);
    let mut disk = filled(3, 99, false);
    disk.damage(1, |file| file[1020] = 1);
    kept(disk, &[EndCase::StaleBytes], 3);
}

#[test]
fn a_batch_of_another_salt_segment_or_offset_is_torn_not_an_entry() {
    let mut disk = filled(3, 99, false);
    let salt = salt(&mut disk, 1);
    let (end, entry) = (batch_at(4), [(1u8, &b"stale"[..])]);
    for (salt, sealed_at) in [
        (Salt([1; 8]), at(end)),
        (salt, Position { segment: SegmentNumber(2), ..at(end) }),
        (salt, at(end + 8)),
    ] {
        let mut disk = disk.clone();
        forge(&mut disk, end, 4, salt, sealed_at, &entry);
        kept(disk, &[EndCase::TornHeader], 3);
    }
    forge(&mut disk, end, 4, salt, at(end), &entry);
    kept(disk, &[EndCase::ZeroTail], 4);
}

#[test]
fn damage_before_intact() {
    let mut disk = filled(5, 99, false);
    disk.damage(1, |file| file[batch_at(2) + 50] ^= 1);
    let detail = refused(&AGAIN, disk, EndCase::DamageBeforeIntact, 1, batch_at(2) as u64);
    assert!(detail.contains("entry 2"), "{detail}");
}

#[test]
fn damage_to_the_last_batch_of_a_sealed_journal() {
    let mut disk = filled(5, 99, true);
    disk.damage(1, |file| file[batch_at(5)..batch_at(6)].fill(0));
    refused(&AGAIN, disk, EndCase::DamageBeforeIntact, 1, batch_at(5) as u64);
}

#[test]
fn damage_is_found_even_if_the_last_batch_is_torn_too() {
    let mut disk = filled(5, 99, false);
    disk.damage(1, |file| {
        file[batch_at(4)] ^= 1;
        file[batch_at(6) - 1] ^= 1;
    });
    refused(&AGAIN, disk, EndCase::DamageBeforeIntact, 1, batch_at(4) as u64);
}

#[test]
fn damage_before_next_segment() {
    let mut disk = filled(4, 2, false);
    disk.damage(1, |file| file[batch_at(2)..].fill(0));
    refused(&AGAIN, disk, EndCase::DamageBeforeNextSegment, 1, batch_at(2) as u64);
}

#[test]
fn wrong_sequence() {
    let mut disk = filled(3, 99, false);
    let salt = salt(&mut disk, 1);
    let end = batch_at(4);
    forge(&mut disk, end, 9, salt, at(end), &[(1, b"nine")]);
    refused(&AGAIN, disk, EndCase::WrongSequence, 1, end as u64);
    let mut disk = filled(4, 2, false);
    disk.damage(2, |file| {
        let header = SegmentHeader::decode(&file[..64]).unwrap();
        file[..64].copy_from_slice(&SegmentHeader { first_lsn: Lsn::FIRST.plus(8), ..header }.encode());
    });
    refused(&AGAIN, disk, EndCase::WrongSequence, 2, 0);
}

#[test]
fn malformed() {
    let mut disk = filled(3, 99, false);
    let (end, salt) = (batch_at(4), salt(&mut disk, 1));
    let mut inner = Vec::new();
    batch::push_entry(&mut inner, 1, b"four");
    let mut buf = vec![0; HEADER_BYTES];
    buf.extend_from_slice(&inner);
    buf[HEADER_BYTES..HEADER_BYTES + 4].copy_from_slice(&9u32.to_be_bytes());
    let sealing = Sealing {
        salt,
        at: at(end),
        first_lsn: Lsn::FIRST.plus(3),
        count: 1,
        durable: None,
        durable_end: at(end),
    };
    let _: BatchHeader = batch::seal(&mut buf, &sealing);
    disk.damage(1, |file| file[end..end + buf.len()].copy_from_slice(&buf));
    refused(&AGAIN, disk, EndCase::Malformed, 1, (end + HEADER_BYTES) as u64);
}

#[test]
fn entry_refused() {
    let mut disk = filled(3, 99, false);
    let (end, salt) = (batch_at(4), salt(&mut disk, 1));
    forge(&mut disk, end, 4, salt, at(end), &[(1, b"good"), (255, b"bad")]);
    let detail = refused(&AGAIN, disk, EndCase::EntryRefused, 1, (end + HEADER_BYTES + 9) as u64);
    assert!(detail.contains("entry 5") && detail.contains("kind 255"), "{detail}");
}

#[test]
fn wrong_segment() {
    let mut disk = filled(4, 2, false);
    let copy = disk.segment(1).clone();
    disk.damage(2, |file| *file = copy);
    refused(&AGAIN, disk, EndCase::WrongSegment, 2, 0);
}

#[test]
fn other_log() {
    let mut disk = filled(3, 99, false);
    disk.damage(1, |file| {
        let header = SegmentHeader::decode(&file[..64]).unwrap();
        file[..64].copy_from_slice(&SegmentHeader { log: LogId([8; 16]), ..header }.encode());
    });
    refused(&AGAIN, disk, EndCase::OtherLog, 1, 0);
}

#[test]
fn missing_segment() {
    let mut disk = filled(6, 2, false);
    disk.files.remove(&FileName::Segment(SegmentNumber(2)));
    refused(&AGAIN, disk, EndCase::MissingSegment, 2, 0);
    let mut disk = filled(6, 2, false);
    disk.files.remove(&FileName::Segment(SegmentNumber(1)));
    refused(&AGAIN, disk.clone(), EndCase::MissingSegment, 1, 0);
    refused(&CONFIG, disk, EndCase::MissingSegment, 1, 0);
    refused(&AGAIN, Disk::default(), EndCase::MissingSegment, 1, 0);
}

#[test]
fn short_segment() {
    let mut disk = filled(4, 2, false);
    disk.damage(1, |file| file.truncate(1000));
    refused(&AGAIN, disk, EndCase::ShortSegment, 1, 0);
}

#[test]
fn bad_header_not_newest() {
    let mut disk = filled(4, 2, false);
    disk.damage(2, |file| file[9] ^= 1);
    refused(&AGAIN, disk, EndCase::BadHeaderNotNewest, 2, 0);
}

#[test]
fn bad_header_then_bytes() {
    let mut disk = filled(3, 2, false);
    disk.damage(2, |file| file[..64].fill(0));
    // The first byte of the batch behind it that is not zero is the length of its payload.
    refused(&AGAIN, disk, EndCase::BadHeaderThenBytes, 2, 64 + 3);
}

#[test]
fn first_not_entered() {
    let mut disk = filled(0, 99, false);
    disk.damage(1, |file| file[5] = 0x40);
    disk.damage(1, |file| file[..64].fill(0));
    refused(&AGAIN, disk.clone(), EndCase::FirstNotEntered, 1, 0);
    let (log, host) = open(&Config { run: 2, ..CONFIG }, disk);
    assert_eq!((host.recovered().cases.as_slice(), log.entries.len()), (&[EndCase::Unentered][..], 0));
    assert!(host.opened());
}

#[test]
fn newer_format() {
    let mut disk = filled(3, 99, false);
    disk.damage(1, |file| file[7] = 2);
    let detail = refused(&AGAIN, disk, EndCase::NewerFormat, 1, 0);
    assert!(detail.starts_with("expected format version 1 at most, found 2"), "{detail}");
}

#[test]
fn limit_exceeded() {
    let limits = [
        (JournalLimits { batch_bytes_max: 19, entry_bytes_max: 14, ..SMALL }, 0),
        (JournalLimits { entry_bytes_max: 14, ..SMALL }, HEADER_BYTES),
        (
            JournalLimits { journal_bytes_max: 59, batch_bytes_max: 59, entry_bytes_max: 50, ..SMALL },
            2 * BATCH,
        ),
        (JournalLimits { journal_entries_max: 2, ..SMALL }, 2 * BATCH),
    ];
    for (limits, offset) in limits {
        let config = Config { limits, ..AGAIN };
        refused(&config, filled(3, 99, false), EndCase::LimitExceeded, 1, (64 + offset) as u64);
    }
}

#[test]
fn read_error() {
    let mut disk = filled(3, 99, false);
    disk.failing = Some(StorageAction::Read);
    let (_, host) = open(&AGAIN, disk);
    let Some(RecoveryFault::Refused { case: EndCase::ReadError, fault }) = host.refused() else {
        panic!("{:?}", host.events)
    };
    assert_eq!(fault.cause, StorageCause::Failed);
    assert_eq!(
        EndCase::ReadError.decision(),
        Decision::Refuse {
            cause: StorageCause::Failed,
            advice: "repair the disk, or restore the file from a copy, then start again",
        }
    );
}

#[test]
fn a_failed_cut_or_sync_ends_recovery() {
    for failing in [StorageAction::Cut, StorageAction::Sync] {
        let mut disk = filled(3, 99, false);
        disk.damage(1, |file| file[batch_at(4) - 8..batch_at(4)].fill(0));
        disk.failing = Some(failing);
        let (_, host) = open(&AGAIN, disk);
        assert!(matches!(host.refused(), Some(RecoveryFault::Failed(fault)) if fault.action == failing));
    }
}
