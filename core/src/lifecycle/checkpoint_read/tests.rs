//! Each rule a checkpoint can break, by name.

use super::*;
use crate::lifecycle::checkpoint::{CheckpointWriter, CheckpointWritten};
use crate::lifecycle::history::EpochMark;
use crate::record::{AuthorityId, BlobKey, Key, Record, State};
use proptest::prelude::*;

const LOG: LogId = LogId([7; 16]);

fn header() -> CheckpointHeader {
    let authority = AuthorityId::from_text("node-a");
    let epochs = alloc::vec![EpochMark {
        epoch: 1,
        start: Version::new(1, 1),
        previous_end: Version::ZERO,
        authority
    }];
    CheckpointHeader { log: LOG, cut: Version::new(1, 99), cut_digest: [3; 32], epochs }
}

fn record(key: &[u8], sequence: u64) -> Record {
    let state =
        if sequence.is_multiple_of(2) { State::Deleted } else { State::Present { blob: BlobKey([5; 32]) } };
    Record {
        key: Key::from_parts(b"n", key).expect("short"),
        state,
        version: Version::new(1, sequence),
        authority: AuthorityId::from_text("node-a"),
    }
}

fn written(records: &[Record]) -> (Vec<u8>, CheckpointWritten) {
    let mut writer = CheckpointWriter::new(&header());
    for record in records {
        writer.push(record).expect("sorted");
    }
    let (_, bytes, written) = writer.finish();
    (bytes, written)
}

fn small() -> Vec<u8> {
    written(&[record(b"a", 1), record(b"b", 2)]).0
}

fn read(bytes: &[u8], piece: usize, limits: CheckpointLimits) -> Result<CheckpointSummary, CheckpointError> {
    let mut reader = CheckpointReader::new(limits);
    for piece in bytes.chunks(piece.max(1)) {
        reader.push(piece, &mut |_| Ok(()))?;
    }
    reader.finish()
}

fn broken(bytes: &[u8]) -> CheckpointRule {
    read(bytes, 7, CheckpointLimits::of(LOG)).expect_err("refused").rule
}

/// Bytes of a file whose only block holds `content`, with every CRC right.
fn crafted(content: &[u8], count: u64) -> Vec<u8> {
    let mut bytes = written(&[]).0;
    bytes.truncate(bytes.len() - 16);
    for (length, part) in [(content.len() as u32, content), (0, &count.to_be_bytes())] {
        bytes.extend(length.to_be_bytes());
        bytes.extend(block_crc(length.to_be_bytes(), part).to_be_bytes());
        bytes.extend(part);
    }
    bytes
}

fn content(records: &[Record]) -> Vec<u8> {
    let mut out = Vec::new();
    for record in records {
        out.extend((record.canonical_bytes() as u32).to_be_bytes());
        record.encode_canonical(&mut out);
    }
    out
}

#[test]
fn magic() {
    let mut bytes = small();
    bytes[0] ^= 1;
    assert_eq!(broken(&bytes), CheckpointRule::Magic);
}

#[test]
fn newer_format() {
    let mut bytes = small();
    bytes[11] = 2;
    assert_eq!(broken(&bytes), CheckpointRule::Format);
}

#[test]
fn format_that_never_was() {
    let mut bytes = small();
    bytes[11] = 0;
    assert_eq!(broken(&bytes), CheckpointRule::Header);
}

#[test]
fn header_limit() {
    let mut bytes = small();
    bytes[12] = 1;
    assert_eq!(broken(&bytes), CheckpointRule::Limit);
}

#[test]
fn header_damaged() {
    let mut bytes = small();
    bytes[HEAD_BYTES + 40] ^= 1;
    assert_eq!(broken(&bytes), CheckpointRule::Header);
}

#[test]
fn another_log() {
    let limits = CheckpointLimits::of(LogId([8; 16]));
    assert_eq!(read(&small(), 99, limits).expect_err("refused").rule, CheckpointRule::Log);
}

#[test]
fn block_damaged() {
    let mut bytes = small();
    let at = bytes.len() - 40;
    bytes[at] ^= 1;
    assert_eq!(broken(&bytes), CheckpointRule::Block);
}

#[test]
fn block_limit() {
    let mut bytes = written(&[]).0;
    let at = bytes.len() - 16;
    bytes[at] = 0xff;
    assert_eq!(broken(&bytes), CheckpointRule::Block);
}

#[test]
fn record_beyond_its_block() {
    assert_eq!(broken(&crafted(&[0, 0, 0, 9, 1], 1)), CheckpointRule::Record);
}

#[test]
fn record_not_canonical() {
    assert_eq!(broken(&crafted(&[0, 0, 0, 1, 1], 1)), CheckpointRule::Record);
}

#[test]
fn keys_out_of_order() {
    let bytes = crafted(&content(&[record(b"b", 1), record(b"a", 2)]), 2);
    assert_eq!(broken(&bytes), CheckpointRule::Order);
}

#[test]
fn a_key_twice() {
    let bytes = crafted(&content(&[record(b"a", 1), record(b"a", 2)]), 2);
    assert_eq!(broken(&bytes), CheckpointRule::Order);
}

#[test]
fn a_record_above_the_cut() {
    assert_eq!(broken(&crafted(&content(&[record(b"a", 100)]), 1)), CheckpointRule::Cut);
}

#[test]
fn another_count() {
    assert_eq!(broken(&crafted(&content(&[record(b"a", 1)]), 2)), CheckpointRule::Count);
}

#[test]
fn end_damaged() {
    let mut bytes = small();
    *bytes.last_mut().expect("not empty") ^= 1;
    assert_eq!(broken(&bytes), CheckpointRule::End);
}

#[test]
fn every_shorter_file_has_no_end() {
    let bytes = small();
    for end in 0..bytes.len() {
        assert_eq!(broken(&bytes[..end]), CheckpointRule::End, "{end}");
    }
}

#[test]
fn trailing_bytes() {
    let mut bytes = small();
    bytes.push(0);
    assert_eq!(broken(&bytes), CheckpointRule::Trailing);
}

#[test]
fn size_limits() {
    let bytes = small();
    let exact =
        CheckpointLimits { bytes_max: bytes.len() as u64, records_max: 2, ..CheckpointLimits::of(LOG) };
    assert!(read(&bytes, 5, exact).is_ok());
    for limits in [
        CheckpointLimits { bytes_max: exact.bytes_max - 1, ..exact },
        CheckpointLimits { records_max: 1, ..exact },
    ] {
        assert_eq!(read(&bytes, 5, limits).expect_err("refused").rule, CheckpointRule::Limit);
    }
}

#[test]
fn a_refusal_of_the_visitor_is_final() {
    let mut reader = CheckpointReader::new(CheckpointLimits::of(LOG));
    let refusal = CheckpointError::new(CheckpointRule::Use, 0, "nothing", "something");
    let refused = reader.push(&small(), &mut |_| Err(refusal.clone()));
    assert_eq!(refused, Err(refusal.clone()));
    assert_eq!(reader.push(&[], &mut |_| Ok(())), Err(refusal.clone()));
    assert_eq!(reader.finish(), Err(refusal));
}

#[test]
fn every_flipped_bit_is_found() {
    let bytes = small();
    for i in 0..bytes.len() * 8 {
        let mut bytes = bytes.clone();
        bytes[i / 8] ^= 1 << (i % 8);
        assert!(read(&bytes, 64, CheckpointLimits::of(LOG)).is_err(), "bit {i}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn what_was_written_is_read_in_pieces_of_any_size(
        keys in proptest::collection::btree_set(proptest::collection::vec(any::<u8>(), 1..1500), 0..300),
        piece in 1usize..5000,
    ) {
        let records: Vec<Record> =
            keys.iter().enumerate().map(|(i, key)| record(key, 1 + i as u64 % 99)).collect();
        let (bytes, written) = written(&records);
        let mut found = Vec::new();
        let mut headers = 0;
        let mut reader = CheckpointReader::new(CheckpointLimits::of(LOG));
        for piece in bytes.chunks(piece) {
            reader.push(piece, &mut |item| {
                match item {
                    CheckpointItem::Header(_) => headers += 1,
                    CheckpointItem::Record { view, .. } => found.push(view.to_record()),
                }
                Ok(())
            })?;
        }
        let summary = reader.finish()?;
        prop_assert_eq!((headers, &found), (1, &records));
        let expected = CheckpointSummary {
            header: header(), records: written.records, bytes: written.bytes, sha256: written.sha256,
        };
        prop_assert_eq!(summary, expected);
    }
}
