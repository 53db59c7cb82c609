//! Checkpoints, as files and as the bytes of a snapshot from a peer.

use sha2::{Digest, Sha256};
use strandline_core::id::LogId;
use strandline_core::lifecycle::checkpoint::{
    CheckpointItem, CheckpointLimits, CheckpointReader, CheckpointWriter,
};
use strandline_core::record::Record;

/// The log of the corpus.
const LOG: LogId = LogId([7; 16]);
/// Longest checkpoint taken from the fuzzer.
const BYTES_MAX: u64 = 1 << 20;

/// What is read writes the same bytes again, whatever the pieces it came in; a checkpoint that ends
/// early is none.
///
/// # Panics
/// If a promise is broken.
pub fn check(data: &[u8]) -> bool {
    let whole = read(data, data.len().max(1));
    let Some((header, records, sha256)) = whole else {
        assert!(read(data, 7).is_none(), "refused whole, taken in pieces");
        return false;
    };
    assert_eq!(sha256, <[u8; 32]>::from(Sha256::digest(data)));
    assert_eq!(read(data, 7), Some((header.clone(), records.clone(), sha256)));
    assert!(read(&data[..data.len() - 1], 64).is_none(), "cut by a byte and taken");

    let mut writer = CheckpointWriter::new(&header);
    for record in &records {
        writer.push(record).expect("sorted and within the cut, as it was read");
    }
    let mut written = Vec::new();
    while let Some((offset, piece)) = writer.take_output() {
        assert_eq!(offset, written.len() as u64);
        written.extend_from_slice(&piece);
    }
    let (offset, piece, end) = writer.finish();
    assert_eq!(offset, written.len() as u64);
    written.extend_from_slice(&piece);
    let again = read(&written, 1 << 16).expect("what is written is read");
    assert_eq!((again.0, again.1), (header, records));
    assert_eq!(end.bytes, written.len() as u64);
    true
}

type Read = (strandline_core::lifecycle::checkpoint::CheckpointHeader, Vec<Record>, [u8; 32]);

fn read(data: &[u8], piece: usize) -> Option<Read> {
    let limits = CheckpointLimits { bytes_max: BYTES_MAX, records_max: 10_000, ..CheckpointLimits::of(LOG) };
    let mut reader = CheckpointReader::new(limits);
    let mut records = Vec::new();
    for bytes in data.chunks(piece) {
        reader
            .push(bytes, &mut |item| {
                if let CheckpointItem::Record { view, .. } = item {
                    records.push(view.to_record());
                }
                Ok(())
            })
            .ok()?;
    }
    let summary = reader.finish().ok()?;
    assert_eq!(summary.records, records.len() as u64);
    Some((summary.header, records, summary.sha256))
}
