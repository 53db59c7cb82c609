//! The generated parts of `docs/FORMATS.md`.

use std::fmt::Write as _;
use strandline_core::compat::streamhive::tables_markdown;
use strandline_core::id::{Incarnation, LogId, Lsn, Run};
use strandline_core::journal::batch::{self, Sealing};
use strandline_core::journal::command::SegmentNumber;
use strandline_core::journal::current::Current;
use strandline_core::journal::limits::JournalLimits;
use strandline_core::journal::recovery::{Decision, EndCase};
use strandline_core::journal::segment::{self, Position, Salt, SegmentHeader};
use strandline_core::lifecycle::checkpoint::{CheckpointHeader, CheckpointWriter};
use strandline_core::lifecycle::entry::{ENTRY_EPOCH_START, ENTRY_RECORD, EpochStart};
use strandline_core::record::{AuthorityId, Key, Record, State, Version};
use strandline_core::stream::embedded::entry;
use strandline_core::stream::op::Nonce;
use strandline_core::stream::{Event, Handle, Layout, OnceKey, ServerTime, StreamName, Verb, Wanted};

pub(crate) fn parts() -> Vec<(&'static str, String)> {
    vec![
        ("journal limits", journal_limits()),
        ("segment header", dump(&segment_header().encode())),
        ("batch", dump(&example_batch())),
        ("record", dump(&canonical())),
        ("epoch start", dump(&epoch_start())),
        ("current", dump(&current())),
        ("checkpoint", dump(&checkpoint())),
        ("stream entry", dump(&stream_entry())),
        ("recovery", recovery()),
        ("differences", tables_markdown()),
    ]
}

/// Sixteen bytes a line: offset, hexadecimal, printable ASCII.
pub(crate) fn dump(bytes: &[u8]) -> String {
    let mut out = String::from("```text\n");
    for (i, line) in bytes.chunks(16).enumerate() {
        let mut hex = String::new();
        for byte in line {
            let _ = write!(hex, "{byte:02x} ");
        }
        let text: String =
            line.iter().map(|b| if b.is_ascii_graphic() { char::from(*b) } else { '.' }).collect();
        let _ = writeln!(out, "{:06x}  {hex:<48} {text}", i * 16);
    }
    out + "```"
}

const LOG: LogId = LogId([0x11; 16]);
const SALT: Salt = Salt([0x22; 8]);
const CUT: Version = Version::new(1, 7);

fn record() -> Record {
    Record {
        key: Key::from_parts(b"files", b"a.txt").expect("short"),
        state: State::Deleted,
        version: CUT,
        authority: AuthorityId::from_text("a"),
    }
}

fn canonical() -> Vec<u8> {
    let mut out = Vec::new();
    record().encode_canonical(&mut out);
    out
}

fn stream_entry() -> Vec<u8> {
    let stream = StreamName::new("orders").expect("a name");
    let handle = Handle::new(stream, Wanted::default(), Layout::Tagged).expect("a name");
    let event = Event::new("created", "one").expect("small");
    let key = OnceKey::new("order-1").expect("short");
    let op = handle.op(Verb::AddOnce { key, event }, Nonce([0x33; 16]));
    entry::encode(ServerTime::from_ms(1_700_000_000_000), &op).expect("it changes something")
}

fn epoch_start() -> Vec<u8> {
    let mut out = Vec::new();
    let authority = AuthorityId::from_text("a");
    EpochStart { epoch: 1, authority, previous_end: Version::ZERO }.encode(&mut out);
    out
}

fn segment_header() -> SegmentHeader {
    SegmentHeader {
        log: LOG,
        number: SegmentNumber(1),
        first_lsn: Lsn::FIRST,
        salt: SALT,
        previous_end: 0,
        prepared_bytes: JournalLimits::default().segment_bytes,
    }
}

/// The first batch of a log: its first epoch, and a record.
fn example_batch() -> Vec<u8> {
    let at = Position { segment: SegmentNumber(1), offset: segment::HEADER_BYTES };
    let mut buf = vec![0; batch::HEADER_BYTES];
    batch::push_entry(&mut buf, ENTRY_EPOCH_START, &epoch_start());
    batch::push_entry(&mut buf, ENTRY_RECORD, &canonical());
    let sealing = Sealing { salt: SALT, at, first_lsn: Lsn::FIRST, count: 2, durable: None, durable_end: at };
    let _ = batch::seal(&mut buf, &sealing);
    buf
}

fn current() -> Vec<u8> {
    let mut opaque = vec![1, 1];
    opaque.extend_from_slice(&0u64.to_be_bytes());
    opaque.extend_from_slice(b"a");
    Current {
        log: LOG,
        incarnation: Incarnation { counter: 1, nonce: [0x33; 8] },
        identity: "a".into(),
        namespaces: vec![b"files".to_vec()],
        run: Run(1),
        first_segment: SegmentNumber(1),
        next_checkpoint: 1,
        checkpoint: None,
        floor: [0; 16],
        floor_digest: [0; 32],
        opaque,
    }
    .encode()
}

fn checkpoint() -> Vec<u8> {
    let header = CheckpointHeader { log: LOG, cut: CUT, cut_digest: [0x44; 32], epochs: Vec::new() };
    let mut writer = CheckpointWriter::new(&header);
    writer.push(&record()).expect("one record");
    writer.finish().1
}

fn journal_limits() -> String {
    let JournalLimits {
        segment_bytes,
        batch_bytes_max,
        entry_bytes_max,
        pending_bytes_max,
        pending_entries_max,
        read_bytes_max,
        journal_bytes_max,
        journal_entries_max,
        seal_ms,
    } = JournalLimits::default();
    let rows = [
        ("segment_bytes", segment_bytes),
        ("batch_bytes_max", batch_bytes_max.into()),
        ("entry_bytes_max", entry_bytes_max.into()),
        ("pending_bytes_max", pending_bytes_max.into()),
        ("pending_entries_max", pending_entries_max.into()),
        ("read_bytes_max", read_bytes_max.into()),
        ("journal_bytes_max", journal_bytes_max),
        ("journal_entries_max", journal_entries_max),
        ("seal_ms", seal_ms),
    ];
    limits_table(&rows)
}

pub(crate) fn limits_table(rows: &[(&str, u64)]) -> String {
    let mut out = String::from("| limit | default |\n|---|---|\n");
    for (name, value) in rows {
        let _ = writeln!(out, "| `{name}` | {value} |");
    }
    out
}

/// What recovery finds in a case, and the case that follows in the table. A new case does not
/// compile before it is documented.
fn row(case: EndCase) -> (&'static str, Option<EndCase>) {
    use EndCase as E;
    match case {
        E::CleanEnd => ("the last batch ends where the file ends", Some(E::ZeroTail)),
        E::ZeroTail => ("only zeros follow the last batch: prepared space", Some(E::EmptyNewest)),
        E::EmptyNewest => ("the newest segment was entered and holds no batch yet", Some(E::Unentered)),
        E::Unentered => ("the newest segment is all zeros: prepared, never entered", Some(E::HeaderCut)),
        E::HeaderCut => (
            "the newest segment's header does not verify, and only zeros follow: it was being entered",
            Some(E::TornHeader),
        ),
        E::TornHeader => (
            "a batch header that does not verify, and no proof behind it that it was durable",
            Some(E::TornPayload),
        ),
        E::TornPayload => (
            "a batch header that verifies over a payload that does not, and no proof behind it",
            Some(E::StaleBytes),
        ),
        E::StaleBytes => (
            "zeros where a header would be, then other bytes that prove nothing",
            Some(E::DamageBeforeIntact),
        ),
        E::DamageBeforeIntact => (
            "a batch does not verify, and an intact header behind it says that it was durable",
            Some(E::DamageBeforeNextSegment),
        ),
        E::DamageBeforeNextSegment => (
            "a batch does not verify, and the next segment's header says that it was durable",
            Some(E::WrongSequence),
        ),
        E::WrongSequence => {
            ("a batch or segment verifies, but its LSN is not the one that comes next", Some(E::Malformed))
        }
        E::Malformed => ("a batch verifies, but its payload is not entries", Some(E::EntryRefused)),
        E::EntryRefused => ("an entry is none that this program knows", Some(E::WrongSegment)),
        E::WrongSegment => ("a segment names another number than its file does", Some(E::OtherLog)),
        E::OtherLog => ("a segment belongs to another log", Some(E::MissingSegment)),
        E::MissingSegment => ("the first segment, or one in the middle, is not there", Some(E::ShortSegment)),
        E::ShortSegment => ("a file is shorter than it was prepared", Some(E::BadHeaderNotNewest)),
        E::BadHeaderNotNewest => {
            ("a bad header in a segment with a newer one behind it", Some(E::BadHeaderThenBytes))
        }
        E::BadHeaderThenBytes => (
            "a bad header in the newest segment, with other bytes than zeros behind",
            Some(E::FirstNotEntered),
        ),
        E::FirstNotEntered => {
            ("the first segment, which `current` names, has no valid header", Some(E::NewerFormat))
        }
        E::NewerFormat => ("a segment of a newer format", Some(E::LimitExceeded)),
        E::LimitExceeded => ("more than the limits allow", Some(E::ReadError)),
        E::ReadError => ("a read failed, or gave fewer bytes than the file was listed with", None),
    }
}

fn recovery() -> String {
    let mut out = String::from("| case | what is found | decision |\n|---|---|---|\n");
    let mut next = Some(EndCase::CleanEnd);
    while let Some(case) = next {
        let (found, following) = row(case);
        let decision = match case.decision() {
            Decision::Keep => "keep: the journal goes on here".to_owned(),
            Decision::Cut => "cut: nothing from here on was acknowledged; a copy is kept".to_owned(),
            Decision::Prepare => "prepare again: the segment holds nothing".to_owned(),
            Decision::Refuse { cause, advice } => format!("refuse ({cause:?}): {advice}"),
        };
        let _ = writeln!(out, "| `{case:?}` | {found} | {decision} |");
        next = following;
    }
    out
}
