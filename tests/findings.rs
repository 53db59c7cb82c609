//! Findings about the reference that concern files and messages, each with our better answer. Those
//! about running replicas are tested where those run.

use sha2::{Digest as _, Sha256};
use strandline_core::compat::streamhive::journal::{
    End, Journal, JournalError, JournalLimits, Writer, after_open,
};
use strandline_core::compat::streamhive::membership::{Membership, MembershipFileError, MembershipLimits};
use strandline_core::compat::streamhive::{Improvement, ReferenceNames as _, Rule, envelope, reference};
use strandline_core::record::{BlobKey, Record, RecordLimits, State, Version};
use strandline_core::wire::error::WireError;
use strandline_core::wire::frame::{FrameDecoder, FrameError};
use strandline_core::wire::json_read::Refusal;
use strandline_core::wire::limits::{RepairLimits, WireLimits};
use strandline_core::wire::repair::{Batch, decode_ack, decode_batch};

fn record(limits: &RecordLimits, key: &[u8], sequence: u64) -> Record {
    let blob = BlobKey(Sha256::digest(key).into());
    let state = if sequence.is_multiple_of(3) { State::Deleted } else { State::Present { blob } };
    let (key, authority) = (limits.key(b"documents", key).unwrap(), limits.authority("node-a").unwrap());
    limits.record(key, state, Version::new(1, sequence), authority).unwrap()
}

/// A journal of so many entries, and where each starts.
fn journal_of(entries: u64) -> (Vec<u8>, Vec<usize>) {
    let mut writer = Writer::new(Version::ZERO, JournalLimits::default()).unwrap();
    let mut starts = Vec::new();
    for sequence in 1..=entries {
        starts.push(writer.bytes().len());
        let key = format!("folder/{}", sequence % 97);
        writer.append(&record(&RecordLimits::default(), key.as_bytes(), sequence)).unwrap();
    }
    (writer.into_bytes(), starts)
}

fn journal() -> (Vec<u8>, Vec<usize>) {
    journal_of(1000)
}

/// Of such flips in 1,000 entries the reference opens 436 "fine", and loses up to 215 acknowledged
/// records each time. Only the last 64 KiB are exposed, so fewer entries show the same here.
#[test]
fn finding_a_no_flipped_bit_of_a_length_loses_a_record_silently() {
    let (bytes, starts) = journal_of(100);
    let limits = JournalLimits::default();
    let (mut damaged, mut lost_by_reference) = (0, 0);
    for start in starts {
        for bit in 0..32 {
            let mut bad = bytes.clone();
            bad[start + bit / 8] ^= 1 << (bit % 8);
            let refused = Journal::decode(&bad, &limits).expect_err("a record would be lost");
            assert_eq!(refused.offset(), Some(start as u64));
            let cut_by_reference = after_open(&bad, &limits).len() < bad.len();
            damaged += u32::from(matches!(refused, JournalError::Damaged { .. }));
            lost_by_reference += u32::from(cut_by_reference);
            assert_eq!(
                cut_by_reference,
                refused.rule() == Some(Rule::Improvement(Improvement::DamageNotTorn))
            );
        }
    }
    assert!(damaged > 0 && damaged == lost_by_reference);
}

#[test]
fn finding_a_a_torn_tail_is_still_a_torn_tail() {
    let (bytes, starts) = journal();
    let last = *starts.last().unwrap();
    for end in last + 1..bytes.len() {
        let journal = Journal::decode(&bytes[..end], &JournalLimits::default()).unwrap();
        assert_eq!(journal.records.len(), 999);
        assert_eq!(journal.end, End::Torn { offset: last as u64, bytes: (end - last) as u64 });
    }
}

/// The reference takes the record, can never send it, and everything after it is stuck.
#[test]
fn finding_i_append_takes_only_what_can_be_sent() {
    let of = RecordLimits {
        logical_key_bytes_max: 60_000,
        record_bytes_max: 128 << 10,
        ..RecordLimits::default()
    };
    let limits = JournalLimits { record: of, ..JournalLimits::default() };
    let mut writer = Writer::new(Version::ZERO, limits).unwrap();
    for (key_bytes, fits) in [(48_000, true), (60_000, false)] {
        let large = record(&of, &vec![7; key_bytes], 1 + writer.entries());
        let batch =
            Batch { from: writer.last(), to: large.version, more: false, records: vec![large.clone()] };
        assert_eq!(batch.encode(&RepairLimits::default(), &mut Vec::new()).is_ok(), fits);
        assert_eq!(writer.append(&large).is_ok(), fits, "{key_bytes}");
    }
    assert_eq!(writer.entries(), 1);
}

/// The reference says "corrupt" of the whole file; we name the limit that is too small now.
#[test]
fn finding_i_a_smaller_limit_is_named() {
    let (bytes, _) = journal();
    let record = RecordLimits { record_bytes_max: 64, ..RecordLimits::default() };
    let refused = Journal::decode(&bytes, &JournalLimits { record, ..JournalLimits::default() }).unwrap_err();
    assert!(refused.to_string().contains("expected 1 to 64"), "{refused}");
}

#[test]
fn finding_j2_an_empty_file_is_told_apart_from_a_new_journal() {
    let limits = JournalLimits::default();
    let refused = Journal::decode(b"", &limits).unwrap_err();
    assert_eq!(refused, JournalError::Empty);
    assert_eq!(refused.rule(), Some(Rule::Improvement(Improvement::EmptyFile)));
    let new = Writer::new(Version::ZERO, limits).unwrap();
    assert_eq!(*after_open(b"", &limits), *new.bytes(), "what the reference silently makes of it");
    let cut = Journal::decode(&new.bytes()[..27], &limits).unwrap_err();
    assert!(cut.to_string().contains("never held an entry"), "{cut}");
}

#[test]
fn finding_j3_zeros_left_by_the_file_system_are_a_torn_tail() {
    let (mut bytes, _) = journal();
    let offset = bytes.len() as u64;
    bytes.resize(bytes.len() + 4096, 0);
    let journal = Journal::decode(&bytes, &JournalLimits::default()).unwrap();
    assert_eq!((journal.records.len(), journal.end), (1000, End::Zeros { offset, bytes: 4096 }));
    assert_eq!(journal.end.improvement(), Some(Improvement::ZeroTail));
}

#[test]
fn finding_j10_what_names_no_set_opens_no_fence() {
    let decode = |text: &[u8]| {
        let mut file = Vec::new();
        envelope::put(&mut file, text);
        Membership::decode(&file, &MembershipLimits::default())
    };
    for text in [&b"{}"[..], b"null", b" null\n", b"{\"members\":null}", b"{ \"members\" : null }"] {
        assert_eq!(decode(text), Err(MembershipFileError::NoSet));
    }
    assert_eq!(decode(b"{\"members\":[]}").unwrap().members(), []);
}

#[test]
fn finding_j11_a_failed_open_leaves_the_file() {
    let (mut bytes, _) = journal();
    bytes.push(0);
    let limits = JournalLimits { entries_max: 999, ..JournalLimits::default() };
    let before = bytes.clone();
    assert!(matches!(Journal::decode(&bytes, &limits), Err(JournalError::TooMany { .. })));
    assert_eq!(bytes, before);
    assert_ne!(*after_open(&bytes, &limits), *bytes, "the reference cuts it and then fails");
}

#[test]
fn finding_j14_trailing_data_is_malformed_and_nothing_else() {
    let ack = br#"{"type":"lifecycle.repair.ack","watermark":{"epoch":1,"sequence":1}}{}"#;
    let refused = decode_ack(ack, &WireLimits::default()).unwrap_err();
    assert!(matches!(refused, WireError::RepairMalformed(_)));
    assert_eq!(refused.reference_names(), ["ErrRepairMalformed"]);
    assert_eq!(reference::wire_rule(&refused), Some(Rule::Improvement(Improvement::TrailingDataNamed)));
    let batch = br#"{"type":"lifecycle.repair.batch","from":{"epoch":1,"sequence":1},"to":{"epoch":1,"sequence":1},"more":false,"records":[]} 1"#;
    assert_eq!(
        decode_batch(batch, &WireLimits::default()).unwrap_err().reference_names(),
        ["ErrRepairMalformed"]
    );
}

#[test]
fn finding_j15_reserved_header_bytes_must_be_zero() {
    let (mut bytes, _) = journal();
    for at in 5..8 {
        let mut bad = bytes.clone();
        bad[at] = 1;
        let sum = envelope::checksum(&bad[..24]);
        bad[24..28].copy_from_slice(&sum.to_be_bytes());
        let refused = Journal::decode(&bad, &JournalLimits::default()).unwrap_err();
        assert_eq!(refused.rule(), Some(Rule::Refusal(Refusal::ReservedByte)));
    }
    bytes[5] = 1;
    let refused = Journal::decode(&bytes, &JournalLimits::default()).unwrap_err();
    assert_eq!(refused.reference_names(), ["ErrJournalChecksum"], "without a right CRC it is damage");
}

/// A 32-bit build of the reference lets lengths of 2^31 and more through its limit.
#[test]
fn finding_j18_a_length_above_the_limit_is_refused_unsigned_and_before_allocation() {
    for length in [4 << 20 | 1, i32::MAX as u32, 1 << 31, u32::MAX] {
        let mut header = b"SHV1".to_vec();
        header.extend_from_slice(&length.to_be_bytes());
        let mut decoder = FrameDecoder::default();
        assert_eq!(decoder.push(&header), header.len());
        assert_eq!(decoder.next_frame(), Err(FrameError::TooLarge { bytes: length, bytes_max: 4 << 20 }));
        let mut journal = Writer::new(Version::ZERO, JournalLimits::default()).unwrap().into_bytes();
        journal.extend_from_slice(&length.to_be_bytes());
        let refused = Journal::decode(&journal, &JournalLimits::default()).unwrap_err();
        assert!(matches!(
            refused,
            JournalError::Envelope { source: envelope::EnvelopeError::TooLong { .. }, .. }
        ));
    }
}
