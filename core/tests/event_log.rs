//! The journal driven by a small root on a disk in memory: group commit, gates, seals, switches,
//! failures, and power cuts at every byte.

mod common;

use common::disk::{Disk, Torn};
use common::event_log::{Config, DiskHost, Event, EventLog, LATE, SMALL, open};
use strandline_core::error::{StorageAction, StorageCause, StorageFault};
use strandline_core::id::Lsn;
use strandline_core::journal::command::{FileName, SegmentNumber, StorageCommand};
use strandline_core::journal::limits::JournalLimits;
use strandline_core::journal::read::EntryReader;
use strandline_core::journal::recovery::{EndCase, Origin};
use strandline_core::journal::writer::AppendError;
use strandline_core::machine::Machine;
use strandline_core::time::Now;

const LIMITS: JournalLimits = JournalLimits { segment_bytes: 512, read_bytes_max: 96, ..SMALL };

const CONFIG: Config = Config { limits: LIMITS, origin: Origin::New, first_segment: 1, run: 1 };

fn lsn(n: u64) -> Option<Lsn> {
    Lsn::new(n)
}

/// A log with `count` entries of 5 bytes, each in a batch of its own.
fn filled(count: u64) -> (EventLog, DiskHost) {
    let (mut log, mut host) = open(&CONFIG, Disk::default());
    for n in 1..=count {
        log.append(&[(1, &[n as u8; 5])]).unwrap();
        host.settle(&mut log);
    }
    (log, host)
}

fn append_bytes(command: &StorageCommand) -> (u64, &[u8]) {
    let StorageCommand::Append { offset, bytes, .. } = command else { panic!("{command:?}") };
    (*offset, bytes)
}

#[test]
fn a_new_log_enters_its_first_segment_before_any_append() {
    let (_, host) = open(&CONFIG, Disk::default());
    assert!(host.opened());
    assert!(host.disk.files.contains_key(&FileName::Segment(SegmentNumber(1))));
}

#[test]
fn what_gathers_during_an_append_leaves_as_one_batch() {
    let (mut log, mut host) = filled(1);
    host.hold = true;
    for n in 2..=5 {
        log.append(&[(1, &[n; 5])]).unwrap();
        host.settle(&mut log);
    }
    assert_eq!(host.held.len(), 1, "one append in flight");
    assert_eq!(append_bytes(&host.held[0]).1.len(), 48 + 16);
    host.hold = false;
    let first = host.held.pop_front().unwrap();
    host.hold = true;
    let done = host.disk.execute(first);
    log.handle_completion(Now::default(), done);
    host.settle(&mut log);
    assert_eq!(host.durable(), 2);
    assert_eq!(append_bytes(&host.held[0]).1.len(), 48 + 32, "three entries in one batch");
    host.release(&mut log);
    assert_eq!(host.durable(), 5);
}

#[test]
fn entries_above_the_gate_wait_and_groups_are_never_split() {
    let (mut log, mut host) = filled(1);
    log.set_gate(lsn(3));
    log.append(&[(1, b"two")]).unwrap();
    log.append(&[(1, b"three"), (1, b"four")]).unwrap();
    host.settle(&mut log);
    assert_eq!(host.durable(), 2);
    log.set_gate(lsn(4));
    host.settle(&mut log);
    assert_eq!(host.durable(), 4);
    log.append(&[(1, b"five")]).unwrap();
    log.set_gate(None);
    host.settle(&mut log);
    assert_eq!(host.durable(), 5);
}

#[test]
fn a_seal_is_written_once_and_only_if_it_adds_something() {
    let (mut log, mut host) = filled(1);
    assert!(log.journal().needs_seal());
    for requests in 1..=3 {
        let before = host.written.len();
        for _ in 0..requests {
            log.handle_timeout(LATE);
            host.settle(&mut log);
        }
        let seals = host.written[before..].iter().filter(|bytes| **bytes == 48).count();
        assert_eq!(seals, 1);
        assert!(!log.journal().needs_seal());
        log.append(&[(1, b"more")]).unwrap();
        host.settle(&mut log);
        assert!(log.journal().needs_seal(), "an old request to seal is not carried over");
    }
}

#[test]
fn a_seal_without_room_enters_the_next_segment_which_records_as_much() {
    let (mut log, mut host) = filled(7);
    assert_eq!(log.journal().segment(), Some(SegmentNumber(1)), "full to the last byte");
    log.seal();
    host.settle(&mut log);
    assert_eq!((log.journal().segment(), log.journal().needs_seal()), (Some(SegmentNumber(2)), false));
    log.append(&[(1, b"more")]).unwrap();
    host.settle(&mut log);
    assert!(log.journal().needs_seal(), "an old request to seal is not carried over");
}

#[test]
fn no_segment_outgrows_its_prepared_length() {
    for len in 0..=100 {
        let (mut log, mut host) = open(&CONFIG, Disk::default());
        for _ in 0..20 {
            log.append(&[(1, &[1; 100][..len])]).unwrap();
            host.settle(&mut log);
            log.seal();
            host.settle(&mut log);
        }
        let mut files = host.disk.files.iter().filter(|(file, _)| matches!(file, FileName::Segment(_)));
        assert!(files.all(|(_, f)| f.cache.len() == 512), "entries of {len}");
        assert_eq!(host.durable(), 20);
    }
}

#[test]
fn a_halt_is_reported_once() {
    let (mut log, mut host) = filled(2);
    host.hold = true;
    log.append(&[(1, &[3; 5])]).unwrap();
    log.append(&[(1, &[4; 5])]).unwrap();
    host.settle(&mut log);
    let third = host.held.pop_front().unwrap();
    let done = host.disk.execute(third);
    log.handle_completion(Now::default(), done);
    host.settle(&mut log);
    assert!(matches!(host.held[0], StorageCommand::Prepare { .. }) && host.held.len() == 2);
    for (failing, at) in [(StorageAction::Write, 1), (StorageAction::Prepare, 0)] {
        host.disk.failing = Some(failing);
        let failed = host.held.remove(at).unwrap();
        let failed = host.disk.execute(failed);
        log.handle_completion(Now::default(), failed);
        host.settle(&mut log);
    }
    assert_eq!(host.events.iter().filter(|event| matches!(event, Event::Halted(_))).count(), 1);
    assert_eq!((log.journal().durable(), host.held.len()), (lsn(3), 0));
}

#[test]
fn a_seal_asked_for_during_an_append_follows_it() {
    let (mut log, mut host) = filled(1);
    host.hold = true;
    log.append(&[(1, b"more")]).unwrap();
    log.seal();
    host.release(&mut log);
    assert!(!log.journal().needs_seal());
    assert_eq!(host.durable(), 2);
}

#[test]
fn the_next_segment_is_prepared_beside_the_appends() {
    let (mut log, mut host) = open(&CONFIG, Disk::default());
    while host.disk.files.len() == 1 {
        log.append(&[(1, &[9; 60])]).unwrap();
        host.settle(&mut log);
    }
    assert_eq!(log.journal().segment(), Some(SegmentNumber(1)), "ahead of need");
    while log.journal().segment() == Some(SegmentNumber(1)) {
        log.append(&[(1, &[9; 60])]).unwrap();
        host.settle(&mut log);
    }
    assert!(!log.journal().index().segments().any(|s| s.entries() == 0));
}

#[test]
fn a_forced_switch_leaves_all_older_segments_droppable() {
    let (mut log, mut host) = filled(2);
    host.hold = true;
    log.append(&[(1, b"in flight")]).unwrap();
    log.append(&[(1, b"pending")]).unwrap();
    log.switch_segment();
    log.append(&[(1, b"after")]).unwrap();
    host.release(&mut log);
    assert_eq!(host.durable(), 5);
    let Some(Event::Entered(fresh)) =
        host.events.iter().rev().find(|event| matches!(event, Event::Entered(_)))
    else {
        panic!("{:?}", host.events)
    };
    assert_eq!((fresh.segment, Some(fresh.first_lsn)), (SegmentNumber(2), lsn(5)));
    let journal = log.journal();
    assert_eq!(journal.removable_before(lsn(4)), SegmentNumber(2));
    assert_eq!(journal.removable_before(lsn(3)), SegmentNumber(1));
    let mut index = journal.index().clone();
    index.drop_before(SegmentNumber(2));
    assert_eq!((index.first_lsn(), index.next_lsn().before()), (fresh.first_lsn, lsn(5)));

    let config = Config { first_segment: 2, origin: Origin::Existing, run: 2, ..CONFIG };
    let (log, host) = open(&config, host.disk);
    assert_eq!(log.entries, [(5, 1, b"after".to_vec())]);
    assert_eq!(host.recovered().removed, [FileName::Segment(SegmentNumber(1))]);
}

#[test]
fn append_refuses_what_recovery_would_refuse() {
    let (mut log, mut host) = open(&CONFIG, Disk::default());
    let max = LIMITS.entry_bytes_max;
    assert_eq!(log.append(&[(1, &[0; 101])]), Err(AppendError::EntryTooLarge { bytes: 101, bytes_max: max }));
    assert!(matches!(
        log.append(&[(1, &[0; 100]), (1, &[0; 100])]),
        Err(AppendError::GroupTooLarge { bytes: 210, bytes_max: 160 })
    ));
    assert_eq!(log.append(&[]), Err(AppendError::GroupEmpty));
    let entries_max = LIMITS.pending_entries_max;
    let many = vec![(1, &b""[..]); entries_max as usize + 1];
    let entries = u64::from(entries_max) + 1;
    assert_eq!(
        log.append(&many),
        Err(AppendError::GroupTooLong { entries, entries_max }),
        "room never comes"
    );
    host.hold = true;
    let refused = loop {
        if let Err(refused) = log.append(&[(1, &[0; 95])]) {
            break refused;
        }
    };
    assert!(matches!(refused, AppendError::Full { bytes: 400, .. }), "{refused}");
    host.release(&mut log);
    let refused = loop {
        host.settle(&mut log);
        if let Err(refused) = log.append(&[(1, &[0; 95])]) {
            break refused;
        }
    };
    assert!(matches!(refused, AppendError::JournalFull { bytes: 4000, .. }), "{refused}");
    host.settle(&mut log);
    let (log, _) = open(&Config { origin: Origin::Existing, run: 2, ..CONFIG }, host.disk);
    assert_eq!(log.entries.len(), 40, "a full journal opens");
}

#[test]
fn the_limits_of_the_journal_count_what_is_in_flight() {
    for limits in [
        JournalLimits { journal_bytes_max: 200, ..LIMITS },
        JournalLimits { journal_entries_max: 2, ..LIMITS },
    ] {
        let (mut log, mut host) = open(&Config { limits, ..CONFIG }, Disk::default());
        host.hold = true;
        log.append(&[(1, &[0; 95])]).unwrap();
        log.append(&[(1, &[0; 95])]).unwrap();
        let refused = log.append(&[(1, &[0; 95])]).unwrap_err();
        assert!(matches!(refused, AppendError::JournalFull { bytes: 200, entries: 2, .. }), "{refused}");
    }
}

#[test]
fn a_failed_append_halts_for_good() {
    let (mut log, mut host) = filled(2);
    host.disk.failing = Some(StorageAction::Write);
    log.append(&[(1, b"lost?")]).unwrap();
    host.settle(&mut log);
    assert!(host.halted());
    host.disk.failing = None;
    assert_eq!(log.append(&[(1, b"more")]), Err(AppendError::Halted));
    let before = host.written.len();
    log.handle_timeout(LATE);
    host.settle(&mut log);
    assert_eq!(
        (host.written.len(), log.journal().durable()),
        (before, lsn(2)),
        "nothing is written any more"
    );
}

/// The bytes are in the page cache, clean: a second sync would succeed and mean nothing.
#[test]
fn a_failed_sync_halts_for_good() {
    let (mut log, mut host) = filled(2);
    host.hold = true;
    log.append(&[(1, b"lost?")]).unwrap();
    host.settle(&mut log);
    let Some(StorageCommand::Append { ticket, .. }) = host.held.pop_front() else { panic!("no append") };
    let (action, cause) = (StorageAction::Sync, StorageCause::Failed);
    let fault = StorageFault { action, file: "disk".into(), offset: None, cause, detail: "injected".into() };
    log.handle_completion(Now::default(), ticket.complete(Err(fault)));
    host.release(&mut log);
    assert!(host.halted());
    assert_eq!(log.append(&[(1, b"more")]), Err(AppendError::Halted));
    assert_eq!((host.durable(), log.journal().durable()), (2, lsn(2)));
}

#[test]
fn a_failed_prepare_halts_only_when_it_is_needed() {
    let (mut log, mut host) = open(&CONFIG, Disk::default());
    host.disk.failing = Some(StorageAction::Prepare);
    let mut appended = 0;
    while !host.halted() {
        log.append(&[(1, &[9; 60])]).unwrap();
        appended += 1;
        host.settle(&mut log);
    }
    assert_eq!(host.durable(), appended - 1, "the first segment was filled");
    assert_eq!(log.journal().segment(), Some(SegmentNumber(1)));
}

#[test]
fn a_prepare_that_failed_ahead_is_tried_again_on_need() {
    let (mut log, mut host) = open(&CONFIG, Disk::default());
    host.disk.failing = Some(StorageAction::Prepare);
    for _ in 0..3 {
        log.append(&[(1, &[9; 60])]).unwrap();
        host.settle(&mut log);
    }
    host.disk.failing = None;
    for _ in 0..3 {
        log.append(&[(1, &[9; 60])]).unwrap();
        host.settle(&mut log);
    }
    assert!(!host.halted());
    assert_eq!((host.durable(), log.journal().segment()), (6, Some(SegmentNumber(2))));
}

#[test]
fn late_answers_of_an_older_run_are_stale() {
    let (mut old, mut host) = filled(1);
    host.hold = true;
    old.append(&[(1, b"late")]).unwrap();
    host.settle(&mut old);
    let mut disk = host.disk.clone();
    disk.power_cut();
    let (mut new, mut other) = open(&Config { origin: Origin::Existing, run: 2, ..CONFIG }, disk);
    let late = host.disk.execute(host.held.pop_front().unwrap());
    new.handle_completion(Now::default(), late);
    other.settle(&mut new);
    assert_eq!((new.stale(), new.journal().durable()), (1, lsn(1)));
}

#[test]
fn entries_are_read_back_across_segments() {
    let (mut log, mut host) = filled(30);
    let index = log.journal().index().clone();
    assert!(index.segments().len() > 2);
    let mut reader = EntryReader::new(Lsn::FIRST.plus(3), Lsn::FIRST.plus(28));
    let mut seen = Vec::new();
    while let Some(request) = reader.request(&index, 200).unwrap() {
        let FileName::Segment(number) = request.file else { panic!("{request:?}") };
        let file = host.disk.segment(number.0);
        let bytes = &file[request.offset as usize..][..request.bytes as usize];
        reader
            .accept(&request, bytes, &mut |lsn, kind, bytes| {
                assert_eq!((kind, bytes), (1, &[lsn.get() as u8; 5][..]));
                seen.push(lsn.get());
                std::ops::ControlFlow::Continue(())
            })
            .unwrap();
    }
    assert_eq!(seen, (4..=29).collect::<Vec<_>>());
}

/// One event or group of the script: lengths of the entries appended together.
const SCRIPT: [&[usize]; 9] =
    [&[3], &[100], &[20, 20, 20], &[0], &[90, 50], &[7], &[100], &[60, 1, 1], &[33]];

/// Runs the script, with a seal and a switch inside, until it ends or power is lost. The disk gets
/// its turn after every `turn` steps: what gathers between leaves as one batch.
fn run_script(log: &mut EventLog, host: &mut DiskHost, turn: usize) -> Vec<(u64, u8, Vec<u8>)> {
    let mut appended = Vec::new();
    for (step, lengths) in SCRIPT.iter().enumerate() {
        if host.crashed {
            break;
        }
        let group: Vec<Vec<u8>> = lengths.iter().map(|len| vec![0xA0 + step as u8; *len]).collect();
        let events: Vec<(u8, &[u8])> = group.iter().map(|bytes| (step as u8, &bytes[..])).collect();
        let last = log.append(&events).unwrap().get();
        for (at, (kind, bytes)) in events.iter().enumerate() {
            appended.push((last + 1 + at as u64 - events.len() as u64, *kind, bytes.to_vec()));
        }
        match step {
            2 => log.seal(),
            5 => log.switch_segment(),
            _ => {}
        }
        if (step + 1) % turn == 0 {
            host.settle(log);
        }
    }
    appended
}

/// Recovers `disk` and checks what came back: a whole prefix of what was appended, with everything
/// acknowledged, ending between groups; and that the log goes on.
fn check(disk: Disk, config: &Config, appended: &[(u64, u8, Vec<u8>)], durable: u64, what: &str) -> Disk {
    let (mut log, mut host) = open(config, disk);
    assert!(host.refused().is_none(), "{what}: {:?}", host.refused());
    let kept = log.entries.len();
    assert!(kept as u64 >= durable, "{what}: {durable} acknowledged, {kept} recovered");
    assert_eq!(log.entries[..], appended[..kept], "{what}");
    let split = kept > 0 && kept < appended.len() && appended[kept - 1].1 == appended[kept].1;
    assert!(!split, "{what}: a group was split at {kept}");
    let recovered = host.disk.clone();
    log.append(&[(77, b"next")]).unwrap();
    host.settle(&mut log);
    assert_eq!(host.durable(), kept as u64 + 1, "{what}: the next append works");
    let (again, host) = open(&Config { run: config.run + 1, origin: Origin::Existing, ..*config }, {
        host.disk.power_cut();
        host.disk
    });
    assert!(host.refused().is_none(), "{what}: again: {:?}", host.refused());
    assert_eq!(again.entries.len(), kept + 1, "{what}: again");
    recovered
}

/// Every way to tear a write of `bytes` bytes.
fn tears(bytes: usize) -> impl Iterator<Item = Torn> {
    (0..=bytes).map(Torn::First).chain((1..bytes).map(Torn::AllBut)).chain([Torn::Cached])
}

#[test]
fn a_power_cut_at_every_byte_loses_nothing_acknowledged_and_invents_nothing() {
    for turn in [1, 3] {
        cut_power_everywhere(turn);
    }
}

fn cut_power_everywhere(turn: usize) {
    let (mut log, mut host) = open(&CONFIG, Disk::default());
    let all = run_script(&mut log, &mut host, turn);
    assert_eq!(host.durable(), all.len() as u64);
    let writes = host.written;
    for (command, bytes) in writes.iter().enumerate() {
        for torn in tears(*bytes) {
            let (mut log, mut host) = (EventLog::open(&CONFIG), DiskHost::new(Disk::default()));
            host.crash_at = Some((command, torn));
            host.settle(&mut log);
            let appended = if host.crashed { Vec::new() } else { run_script(&mut log, &mut host, turn) };
            let origin = if host.opened() { Origin::Existing } else { Origin::New };
            let durable = host.durable();
            let config = Config { run: 2, origin, ..CONFIG };
            check(host.disk, &config, &appended, durable, &format!("command {command}, {torn:?}"));
        }
    }
}

#[test]
fn a_recovery_that_is_cut_off_itself_converges() {
    let (mut log, mut host) = open(&CONFIG, Disk::default());
    run_script(&mut log, &mut host, 1);
    let last = host.written.len() - 1;
    let torn_bytes = host.written[last];
    for torn in [Torn::First(torn_bytes - 3), Torn::AllBut(40), Torn::Cached, Torn::First(20)] {
        let (mut log, mut host) = (EventLog::open(&CONFIG), DiskHost::new(Disk::default()));
        host.crash_at = Some((last, torn));
        host.settle(&mut log);
        let appended = run_script(&mut log, &mut host, 1);
        let (disk, durable) = (host.disk.clone(), host.durable());
        let config = Config { run: 2, origin: Origin::Existing, ..CONFIG };
        let (_, whole) = open(&config, disk.clone());
        for (command, bytes) in whole.written.iter().enumerate() {
            for again in tears(*bytes) {
                let (mut log, mut host) = (EventLog::open(&config), DiskHost::new(disk.clone()));
                host.crash_at = Some((command, again));
                host.settle(&mut log);
                let what = format!("{torn:?}, then recovery at {command}, {again:?}");
                check(host.disk, &Config { run: 3, ..config }, &appended, durable, &what);
            }
        }
    }
}

#[test]
fn what_only_the_page_cache_held_is_durable_before_it_is_built_on() {
    let (mut log, mut host) = filled(2);
    host.crash_at = Some((host.written.len(), Torn::Cached));
    log.append(&[(1, b"cached")]).unwrap();
    host.settle(&mut log);
    let (log, mut host) = open(&Config { origin: Origin::Existing, run: 2, ..CONFIG }, host.disk);
    assert_eq!(log.entries.len(), 3);
    host.disk.power_cut();
    let (log, host) = open(&Config { origin: Origin::Existing, run: 3, ..CONFIG }, host.disk);
    assert_eq!(log.entries.len(), 3);
    assert_eq!(host.recovered().cases, [EndCase::Unentered, EndCase::ZeroTail]);
}

/// After a failed sync the page cache may show a batch that no later sync takes to the disk.
#[test]
fn the_last_batch_is_written_again_before_it_is_vouched_for() {
    let (_, host) = filled(2);
    let again = Config { origin: Origin::Existing, run: 2, ..CONFIG };
    let (mut log, mut host) = (EventLog::open(&again), DiskHost::new(host.disk));
    host.hold = true;
    let mut written = Vec::new();
    host.settle(&mut log);
    while let Some(command) = host.held.pop_front() {
        if let StorageCommand::Append { segment, offset, bytes, .. } = &command {
            written.push((segment.0, *offset, bytes.clone()));
        }
        let completion = host.disk.execute(command);
        log.handle_completion(Now::default(), completion);
        host.settle(&mut log);
    }
    assert_eq!(host.recovered().entries, 2);
    let [(segment, offset, bytes)] = &written[..] else { panic!("{written:?}") };
    let stored = &host.disk.segment(*segment)[usize::try_from(*offset).expect("small")..];
    let (batch, behind) = stored.split_at(bytes.len());
    assert_eq!(batch, bytes);
    assert!(!batch.iter().all(|byte| *byte == 0) && behind.iter().all(|byte| *byte == 0), "the last one");
}

#[test]
fn a_segment_that_only_the_page_cache_held_is_durable_before_it_is_entered() {
    let (mut log, mut host) = filled(2);
    host.crash_at = Some((host.written.len() + 1, Torn::Cached));
    log.append(&[(1, &[3; 5])]).unwrap();
    host.settle(&mut log);
    assert!(host.crashed, "while the second segment was prepared");
    let (mut log, mut host) = open(&Config { origin: Origin::Existing, run: 2, ..CONFIG }, host.disk);
    assert_eq!(host.recovered().cases, [EndCase::Unentered, EndCase::ZeroTail]);
    for n in 4..=12 {
        log.append(&[(1, &[n; 5])]).unwrap();
        host.settle(&mut log);
    }
    assert_eq!((log.journal().segment(), host.durable()), (Some(SegmentNumber(2)), 12));
    host.disk.power_cut();
    let (log, _) = open(&Config { origin: Origin::Existing, run: 3, ..CONFIG }, host.disk);
    assert_eq!(log.entries.len(), 12);
}

#[test]
fn recovery_knows_whether_the_last_batch_is_sealed() {
    let again = Config { origin: Origin::Existing, run: 2, ..CONFIG };
    let (mut log, mut host) = filled(2);
    assert!(open(&again, host.disk.clone()).0.journal().needs_seal());
    log.seal();
    host.settle(&mut log);
    assert!(!open(&again, host.disk).0.journal().needs_seal());
}

#[test]
fn a_batch_longer_than_an_old_segment_goes_to_a_new_one() {
    let small = JournalLimits { segment_bytes: 128, batch_bytes_max: 16, entry_bytes_max: 8, ..LIMITS };
    let (_, host) = open(&Config { limits: small, ..CONFIG }, Disk::default());
    let again = Config { origin: Origin::Existing, run: 2, ..CONFIG };
    let (mut log, mut host) = open(&again, host.disk);
    log.append(&[(1, &[1; 100])]).unwrap();
    host.settle(&mut log);
    assert_eq!((log.journal().segment(), host.durable()), (Some(SegmentNumber(2)), 1));
    let (log, _) = open(&Config { run: 3, ..again }, host.disk);
    assert_eq!(log.entries.len(), 1, "an empty segment in the middle is no gap");
}

/// Ten entries in three segments, and a way to ask for the files.
fn three_segments() -> (EventLog, DiskHost) {
    let (mut log, mut host) = filled(4);
    for n in 5..=10 {
        if n % 4 == 1 {
            log.switch_segment();
        }
        log.append(&[(1, &[n; 5])]).unwrap();
        host.settle(&mut log);
    }
    (log, host)
}

fn segments(host: &DiskHost) -> Vec<u64> {
    let number = |file: &FileName| match file {
        FileName::Segment(number) => Some(number.0),
        FileName::Current
        | FileName::Authority
        | FileName::Members
        | FileName::Acked
        | FileName::Checkpoint(_) => None,
    };
    host.disk.files.keys().filter_map(number).collect()
}

fn compacted(host: &DiskHost) -> Vec<u64> {
    let number = |event: &Event| match event {
        Event::Compacted(segment) => Some(segment.0),
        Event::Recovered(_)
        | Event::Refused(_)
        | Event::Entered(_)
        | Event::Durable(_)
        | Event::Halted(_) => None,
    };
    host.events.iter().filter_map(number).collect()
}

#[test]
fn compaction_drops_whole_segments_below_and_current_names_the_rest_first() {
    let (mut log, mut host) = three_segments();
    assert_eq!(log.log().compact_to(Lsn::FIRST.plus(3)), None, "entry 4 lies in the first segment too");
    host.hold = true;
    assert_eq!(log.log().compact_to(Lsn::FIRST.plus(7)), Some(SegmentNumber(2)));
    host.settle(&mut log);
    assert!(matches!(host.held[0], StorageCommand::Replace { file: FileName::Current, .. }));
    assert_eq!((host.held.len(), segments(&host)[0]), (1, 1), "nothing is removed before");
    host.release(&mut log);
    assert_eq!((segments(&host)[0], compacted(&host)), (2, vec![2]));
    assert_eq!(log.journal().index().first_lsn(), Lsn::FIRST.plus(4));
    assert_eq!(log.log().compact_to(Lsn::FIRST.plus(90)), Some(SegmentNumber(3)), "the newest stays");
    host.settle(&mut log);
    assert_eq!((segments(&host)[0], compacted(&host)), (3, vec![2, 3]));
}

#[test]
fn a_pinned_segment_is_removed_when_the_pin_goes() {
    let (mut log, mut host) = three_segments();
    let pin = log.log().pin();
    log.log().compact_to(Lsn::FIRST.plus(8));
    host.settle(&mut log);
    assert_eq!((segments(&host)[0], compacted(&host)), (1, vec![3]), "forgotten, and still there");
    log.log().unpin(pin);
    host.settle(&mut log);
    assert_eq!(segments(&host)[0], 3);
}

#[test]
fn a_compaction_that_cannot_be_committed_halts() {
    let (mut log, mut host) = three_segments();
    host.disk.failing = Some(StorageAction::Replace);
    log.log().compact_to(Lsn::FIRST.plus(8));
    host.settle(&mut log);
    assert!(host.halted());
    assert_eq!(segments(&host)[0], 1);
    assert_eq!(log.append(&[(1, b"more")]), Err(AppendError::Halted));
}

#[test]
fn the_idle_seal_is_due_seal_ms_after_the_last_append() {
    let (mut log, mut host) = filled(1);
    let due = log.pending().deadline.unwrap();
    assert_eq!(due, strandline_core::time::Instant(0).after_ms(SMALL.seal_ms));
    log.handle_timeout(Now::default());
    host.settle(&mut log);
    assert!(log.journal().needs_seal(), "too early");
    log.handle_timeout(LATE);
    host.settle(&mut log);
    assert!(!log.journal().needs_seal());
    assert_eq!(log.pending().deadline, None);
}
