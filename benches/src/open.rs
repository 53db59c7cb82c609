//! Opening what is stored.

use crate::measure::{Better, Row, Scale, medians, thousands};
use crate::records::{PAYLOAD_BYTES, payload, record};
use std::error::Error;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Instant;
use strandline_core::id::LogId;
use strandline_core::lifecycle::api::{Change, Mutation};
use strandline_core::lifecycle::recovery::Init;
use strandline_core::record::AuthorityId;
use strandline_file::blocking::BlockingReplica;
use strandline_file::node::NodeConfig;
use strandline_file::{BareJournal, JournalOptions};

/// What a plain scan reads at once: a buffer that stays in the cache.
const SCAN_BYTES: usize = 256 << 10;

/// Mutations of one unit while the replica is filled.
const BATCH: usize = 128;

/// The segments of a directory, each with the length of what is written in it.
fn written(path: &Path) -> std::io::Result<Vec<(PathBuf, u64)>> {
    let mut segments = Vec::new();
    for entry in std::fs::read_dir(path)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with("segment-") {
            let bytes = std::fs::read(entry.path())?;
            let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |at| at as u64 + 1);
            segments.push((entry.path(), end));
        }
    }
    segments.sort();
    Ok(segments)
}

/// Reads what is written in the segments, shows each piece; how many bytes there were.
fn scan(segments: &[(PathBuf, u64)], mut piece: impl FnMut(&[u8])) -> std::io::Result<u64> {
    let mut buffer = vec![0; SCAN_BYTES];
    let mut total = 0;
    for (path, bytes) in segments {
        let mut file = File::open(path)?.take(*bytes);
        loop {
            let count = file.read(&mut buffer)?;
            if count == 0 {
                break;
            }
            piece(&buffer[..count]);
            total += count as u64;
        }
    }
    Ok(total)
}

/// Recovery of a bare journal, all entries shown, beside a CRC over the same bytes.
pub(crate) fn recovery(scale: &Scale, work: &Path, rows: &mut Vec<Row>) -> Result<(), Box<dyn Error>> {
    let path = work.join("recovery");
    let entries = 400_000 / scale.divisor;
    let (journal, _) = BareJournal::create(&path, JournalOptions::default())?;
    for first in (0..entries).step_by(1000) {
        let payloads: Vec<_> = (first..entries.min(first + 1000)).map(payload).collect();
        journal.append_batch(&payloads.iter().map(Vec::as_slice).collect::<Vec<_>>())?;
    }
    journal.close()?;
    let segments = written(&path)?;
    let megabytes = entries as f64 * PAYLOAD_BYTES as f64 / 1e6;
    let expected = (0..entries).fold(0u64, |sum, number| sum.wrapping_add(u64::from(payload(number)[0])));
    let mut ours = || {
        let (mut count, mut sum) = (0, 0u64);
        let start = Instant::now();
        let (journal, _) = BareJournal::open_with(&path, JournalOptions::default(), |_, payload| {
            count += 1;
            sum = sum.wrapping_add(u64::from(payload[0]));
        })
        .expect("it opens");
        let elapsed = start.elapsed().as_secs_f64();
        journal.close().expect("it closes");
        assert_eq!((count, sum), (entries, expected), "every entry was shown");
        megabytes / elapsed
    };
    let mut theirs = || {
        let start = Instant::now();
        let mut crc = crc32fast::Hasher::new();
        let bytes = scan(&segments, |piece| crc.update(piece)).expect("it reads");
        std::hint::black_box(crc.finalize());
        let elapsed = start.elapsed().as_secs_f64();
        assert!(bytes >= entries * PAYLOAD_BYTES as u64);
        megabytes / elapsed
    };
    let [ours, theirs] = medians(scale.rounds, [&mut ours, &mut theirs]);
    rows.push(Row {
        name: format!("recovery of {} entries", thousands(entries)),
        ours,
        theirs,
        unit: "MB/s",
        beside: "CRC over the same bytes, 256 KiB buffer",
        better: Better::Higher,
    });
    Ok(std::fs::remove_dir_all(path)?)
}

/// Open of a replica with 65,536 records, beside reading its journal's bytes.
pub(crate) fn replica(scale: &Scale, work: &Path, rows: &mut Vec<Row>) -> Result<(), Box<dyn Error>> {
    let path = work.join("replica");
    let entries = 65_536 / scale.divisor;
    let namespaces = vec![record(1).key.namespace().to_vec()];
    let authority = Some(AuthorityId::from_text("a"));
    let init = Init { log: LogId([7; 16]), identity: "a".into(), namespaces, authority };
    let (replica, _) = BlockingReplica::create(&path, init, NodeConfig::default())?;
    for first in (1..=entries).step_by(BATCH) {
        let delete = |n| Mutation { key: record(n).key, change: Change::Delete, if_version: None };
        let accepted = replica.write_batch((first..first + BATCH as u64).map(delete).collect())?;
        assert_eq!(accepted.len(), BATCH);
    }
    replica.close()?;
    let segments = written(&path)?;
    let mut ours = || {
        let start = Instant::now();
        let (replica, report) = BlockingReplica::open(&path, NodeConfig::default()).expect("it opens");
        let elapsed = start.elapsed().as_secs_f64();
        assert!(report.entries >= entries, "{} of {entries} entries", report.entries);
        replica.close().expect("it closes");
        elapsed * 1e3
    };
    let mut theirs = || {
        let start = Instant::now();
        scan(&segments, |piece| assert!(!std::hint::black_box(piece).is_empty())).expect("it reads");
        start.elapsed().as_secs_f64() * 1e3
    };
    let [ours, theirs] = medians(scale.rounds, [&mut ours, &mut theirs]);
    rows.push(Row {
        name: format!("open a replica of {} records", thousands(entries)),
        ours,
        theirs,
        unit: "ms",
        beside: "reading its journal",
        better: Better::Lower,
    });
    Ok(std::fs::remove_dir_all(path)?)
}
