//! Findings about running replicas of the reference, each with our better answer. Those about files
//! and messages are tested where those are read.

mod common;

use common::cluster::{Cluster, blob_key, put, small_config};
use common::disk::Disk;
use common::event_log::{Config, Event as LogEvent, SMALL, open};
use strandline_core::error::StorageAction;
use strandline_core::id::Lsn;
use strandline_core::journal::command::{FileName, StorageCommand};
use strandline_core::journal::recovery::Origin;
use strandline_core::journal::writer::AppendError;
use strandline_core::lifecycle::api::{Done, Event, MembersChange};
use strandline_core::lifecycle::config::ReplicaConfig;
use strandline_core::lifecycle::history::ANCHOR_RECORDS;
use strandline_core::machine::Machine as _;
use strandline_core::time::Now;

const NEW: Config = Config { limits: SMALL, origin: Origin::New, first_segment: 1, run: 1 };
const AGAIN: Config = Config { origin: Origin::Existing, run: 2, ..NEW };

/// The reference appends after the torn bytes and acknowledges; after a restart nothing is readable.
#[test]
fn finding_b_after_a_short_write_nothing_is_written_and_all_that_was_acknowledged_is_read() {
    const ACKNOWLEDGED: [(u64, u8, &[u8]); 2] = [(1, 1, b"first"), (2, 1, b"second")];
    let (mut cut, mut kept) = (0, 0);
    for short in 0..=64 {
        let (mut log, mut host) = open(&NEW, Disk::default());
        for (_, kind, payload) in ACKNOWLEDGED {
            log.append(&[(kind, payload)]).expect("room");
            host.settle(&mut log);
        }
        assert_eq!(host.durable(), 2);
        host.hold = true;
        log.append(&[(1, b"torn")]).expect("room");
        log.append(&[(1, b"behind it")]).expect("room");
        host.settle(&mut log);
        let command = host.held.pop_front().expect("an append");
        let StorageCommand::Append { segment, offset, bytes, .. } = &command else { panic!("{command:?}") };
        let (segment, from) = (*segment, *offset as usize);
        assert_eq!(bytes.len(), 64);
        host.disk.failing = Some(StorageAction::Write);
        let failed = host.disk.execute(command);
        host.disk.failing = None;
        let mut whole = true;
        host.disk.damage(segment.0, |file| {
            let missing = &mut file[from + short..from + 64];
            whole = missing.iter().all(|byte| *byte == 0);
            missing.fill(0);
        });
        let mut before = host.disk.clone();
        log.handle_completion(Now::default(), failed);
        host.settle(&mut log);
        assert!(host.halted());
        assert_eq!(log.append(&[(1, b"torn")]), Err(AppendError::Halted), "no second copy");
        assert_eq!(log.append(&[(1, b"another")]), Err(AppendError::Halted));
        host.release(&mut log);
        assert_eq!(log.journal().durable(), Lsn::new(2));
        assert_eq!(*host.disk.segment(segment.0), *before.segment(segment.0), "nothing goes after garbage");

        let (mut log, mut host) = open(&AGAIN, host.disk);
        let mut expected = ACKNOWLEDGED.map(|(lsn, kind, payload)| (lsn, kind, payload.to_vec())).to_vec();
        if whole {
            // All of it is there, so that "failed" meant "uncertain"; it counts once, as an entry.
            expected.push((3, 1, b"torn".to_vec()));
            kept += 1;
        } else {
            cut += usize::from(short > 0);
        }
        assert_eq!(log.entries, expected, "{short}");
        log.append(&[(1, b"goes on")]).expect("room");
        host.settle(&mut log);
        assert!(host.events.iter().any(|e| matches!(e, LogEvent::Durable(lsn) if lsn.get() > 2)));
    }
    assert!(cut > 0 && kept > 0, "{cut} {kept}");
}

/// A writer with so many records of one blob.
fn writer(records: usize, config: ReplicaConfig) -> (Cluster, usize) {
    let mut cluster = Cluster::new(1);
    let a = cluster.add("a", true, config);
    write(&mut cluster, a, 0, records);
    (cluster, a)
}

fn write(cluster: &mut Cluster, at: usize, first: usize, records: usize) {
    let blob = blob_key(b"the same for all");
    cluster.nodes[at].host.blobs.stored.insert(blob, b"the same for all".to_vec());
    for n in first..first + records {
        let key = format!("a key that is long enough to make the metadata large {n:07}");
        cluster.mutate(at, &[put(&key, blob)]).expect("accepted");
        if n % 16 == 15 {
            cluster.run(at, |_| true);
        }
    }
    cluster.run(at, |_| true);
}

/// Compacts with nobody who counts.
fn compact(cluster: &mut Cluster, at: usize) {
    let now = cluster.now;
    let request = cluster.replica(at).handle_members(now, MembersChange::Clear);
    assert_eq!(cluster.done(at, request), Done::Members);
    let request = cluster.replica(at).handle_compact(now, None);
    assert!(matches!(cluster.done(at, request), Done::Compacted(_)));
}

/// The reference refuses more than 128 records, and more than 64 KiB.
#[test]
fn finding_c_a_snapshot_of_any_size_bootstraps_a_peer() {
    const RECORDS: usize = 1000;
    let (mut cluster, a) = writer(RECORDS, ReplicaConfig::default());
    compact(&mut cluster, a);
    let checkpoint = |(file, content): (&FileName, &common::disk::File)| {
        matches!(file, FileName::Checkpoint(_)).then(|| content.cache.len())
    };
    let bytes = cluster.nodes[a].host.disk.files.iter().find_map(checkpoint).expect("a checkpoint");
    assert!(bytes > 64 << 10, "{bytes}");
    let b = cluster.add("b", false, ReplicaConfig::default());
    cluster.connect(b, a).expect("connects");
    cluster.settle();
    assert!(cluster.nodes[b].host.events.iter().any(|e| matches!(e, Event::Installed { .. })));
    let contents = cluster.contents(b);
    assert_eq!(contents.len(), RECORDS);
    assert!(contents.values().all(Option::is_some), "blobs too");
    assert_eq!(contents, cluster.contents(a));
    let (ours, theirs) = (cluster.replica(a).status(), cluster.replica(b).status());
    assert_eq!((ours.tail, ours.tail_digest, ours.floor), (theirs.tail, theirs.tail_digest, theirs.floor));
}

/// In the reference nothing leads back from a crash between its two renames: not a start, not a
/// compaction, and no peer is served.
#[test]
fn finding_e_every_boundary_of_a_compaction_leads_back_to_work() {
    let mut floors = std::collections::BTreeSet::new();
    for count in 0.. {
        let (mut cluster, a) = writer(100, small_config());
        compact(&mut cluster, a);
        write(&mut cluster, a, 100, 50);
        let (before, contents) = (cluster.replica(a).status(), cluster.contents(a));
        let now = cluster.now;
        cluster.replica(a).handle_compact(now, None);
        let mut executed = 0;
        cluster.drain(a);
        while executed < count && cluster.execute_next(a) {
            cluster.drain(a);
            executed += 1;
        }
        cluster.kill(a);
        cluster.restart(a);
        let after = cluster.replica(a).status();
        assert_eq!((after.tail, after.tail_digest), (before.tail, before.tail_digest), "{count}");
        assert!([before.floor, before.tail].contains(&after.floor), "{count}: {}", after.floor);
        assert_eq!(cluster.contents(a), contents, "{count}");
        floors.insert(after.floor);

        write(&mut cluster, a, 150, 10);
        compact(&mut cluster, a);
        let b = cluster.add("b", false, small_config());
        cluster.connect(b, a).expect("connects");
        cluster.settle();
        assert_eq!(cluster.contents(b).len(), 160, "{count}");
        assert_eq!(cluster.contents(a), cluster.contents(b), "{count}");
        if executed < count {
            break;
        }
    }
    assert_eq!(floors.len(), 2, "both states were seen");
}

/// What the source reads to bring a peer 128 records further, in a journal of so many.
fn bytes_read_for_a_batch(before: usize) -> u64 {
    let (mut cluster, a) = writer(before, ReplicaConfig::default());
    let b = cluster.add("b", false, ReplicaConfig::default());
    let (link, _) = cluster.connect(a, b).expect("connects");
    cluster.settle();
    cluster.cut(a, link);
    write(&mut cluster, a, before, 128);
    cluster.nodes[a].host.disk.segment_bytes_read = 0;
    cluster.connect(a, b).expect("connects");
    cluster.settle();
    assert_eq!(cluster.replica(b).status().tail, cluster.replica(a).status().tail);
    cluster.nodes[a].host.disk.segment_bytes_read
}

/// The reference copies its whole journal for every batch.
#[test]
fn finding_g_and_j16_a_plan_reads_as_much_in_a_long_journal_as_in_a_short_one() {
    // As far behind the last anchor of the digest, so that as much of it is computed again.
    let (short, long) = (200, 200 + 4 * ANCHOR_RECORDS as usize);
    let (of_short, of_long) = (bytes_read_for_a_batch(short), bytes_read_for_a_batch(long));
    assert!(of_short > 0);
    assert!(
        of_long <= of_short + of_short / 4,
        "{of_long} bytes of a journal 20 times as long as {of_short}"
    );
}

/// What the source reads to bring an empty peer to so many records.
fn bytes_read_for_a_repair(records: usize, config: ReplicaConfig) -> u64 {
    let (mut cluster, a) = writer(records, config.clone());
    let b = cluster.add("b", false, config);
    cluster.nodes[a].host.disk.segment_bytes_read = 0;
    cluster.connect(a, b).expect("connects");
    cluster.settle();
    assert_eq!(cluster.contents(b).len(), records);
    cluster.nodes[a].host.disk.segment_bytes_read
}

/// The reference goes through the batch again for every record in it, and copies its whole journal
/// for every batch.
#[test]
fn finding_j16_a_repair_reads_in_proportion_to_its_records() {
    let [one, two, three] = [500, 1000, 1500].map(|records| bytes_read_for_a_repair(records, small_config()));
    let (first, second) = (two - one, three - two);
    assert!(second <= first + first / 10, "{first} bytes for 500 records more, then {second}");
}

/// A read is larger than a batch for a peer: what it brought is used up before the next one.
#[test]
fn finding_j16_a_repair_reads_each_entry_about_once() {
    let records = 2000;
    let read = bytes_read_for_a_repair(records, ReplicaConfig::default());
    let (mut cluster, a) = writer(records, ReplicaConfig::default());
    let held = cluster.replica(a).status().journal_bytes;
    assert!(read <= 2 * held, "{read} bytes read of a journal of {held}");
}
