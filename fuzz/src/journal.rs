//! Recovery of a journal, from any bytes and from any alteration of a valid directory.

use std::collections::{BTreeMap, BTreeSet};
use strandline_core::id::{LogId, Run};
use strandline_core::journal::command::{
    FileName, Listed, SegmentNumber, StorageCommand, StorageCompletion, StorageOutcome,
};
use strandline_core::journal::limits::JournalLimits;
use strandline_core::journal::recovery::{
    JournalRecovery, Origin, RecoveryFault, RecoveryPurpose, RecoveryStep,
};
use strandline_core::journal::writer::{Journal, JournalPurpose};
use strandline_core::machine::Out;
use strandline_core::seed::Seed;
use strandline_core::ticket::Tickets;

const LOG: LogId = LogId([7; 16]);
const LIMITS: JournalLimits = JournalLimits {
    segment_bytes: 1024,
    batch_bytes_max: 160,
    entry_bytes_max: 100,
    pending_bytes_max: 400,
    pending_entries_max: 20,
    read_bytes_max: 100,
    journal_bytes_max: 4000,
    journal_entries_max: 200,
    seal_ms: 1000,
};

type Files = BTreeMap<u64, Vec<u8>>;
type Entries = Vec<(u64, u8, Vec<u8>)>;

enum Purpose {
    Journal(JournalPurpose),
    Recovery(RecoveryPurpose),
}

impl From<JournalPurpose> for Purpose {
    fn from(purpose: JournalPurpose) -> Self {
        Self::Journal(purpose)
    }
}

impl From<RecoveryPurpose> for Purpose {
    fn from(purpose: RecoveryPurpose) -> Self {
        Self::Recovery(purpose)
    }
}

type Output = Out<Purpose, StorageCommand, ()>;

/// Recovery never panics, never invents or alters an entry, and loses none without saying so.
///
/// The first byte picks: any bytes as the only segment, or alterations (segment, offset, value; four
/// bytes each) of a valid directory.
///
/// # Panics
/// If a promise is broken.
pub fn check(data: &[u8]) -> bool {
    let Some((first, rest)) = data.split_first() else { return false };
    if first & 1 == 0 {
        let mut files = Files::from([(1, rest.to_vec())]);
        return recover(&mut files, Origin::New).is_ok();
    }
    altered(rest, first & 2 == 0)
}

fn altered(alterations: &[u8], sealed: bool) -> bool {
    let (mut files, whole, batches) = valid(sealed);
    let mut hit = BTreeSet::new();
    for alteration in alterations.chunks_exact(4) {
        let segment = 1 + u64::from(alteration[0]) % files.len() as u64;
        let file = files.get_mut(&segment).expect("there");
        let at = usize::from(u16::from_be_bytes([alteration[1], alteration[2]])) % file.len();
        if file[at] != alteration[3] {
            file[at] = alteration[3];
            hit.insert((segment, at as u64));
        }
    }
    let Ok(entries) = recover(&mut files, Origin::Existing) else { return false };
    assert!(entries.len() <= whole.len() && entries[..] == whole[..entries.len()], "invented or altered");
    // What is missing without a refusal lies behind the last byte that could have proven it.
    for (entry, (segment, from, to)) in batches.iter().enumerate() {
        if entry >= entries.len() {
            assert!(
                hit.range((*segment, *from)..(*segment, *to)).next().is_some(),
                "entry {entry} is gone, and nothing of it was touched"
            );
        }
    }
    // A second recovery finds what the first one left.
    assert_eq!(recover(&mut files, Origin::Existing), Ok(entries));
    true
}

/// Three segments with ten entries in batches of their own, and where each batch lies (the seal,
/// which proves the last one, counts as its end).
fn valid(sealed: bool) -> (Files, Entries, Vec<(u64, u64, u64)>) {
    let mut files = Files::new();
    let mut out: Output = Out::new(Tickets::new(Run(1)));
    let mut journal = live(&mut files, &mut out);
    let mut batches = Vec::new();
    let mut entries = Vec::new();
    for n in 1..=10_u8 {
        let lsn = journal.append(1, &[n; 15]).expect("room");
        settle(&mut journal, &mut files, &mut out);
        let located = journal.index().locate(lsn).expect("durable");
        let (segment, offset) = (located.position.segment.0, located.position.offset);
        batches.push((segment, offset, offset + located.bytes));
        entries.push((lsn.get(), 1, vec![n; 15]));
        if n % 4 == 0 {
            journal.switch_segment(None, &mut out);
            settle(&mut journal, &mut files, &mut out);
        }
    }
    if sealed {
        journal.seal(None, &mut out);
        settle(&mut journal, &mut files, &mut out);
    }
    (files, entries, batches)
}

fn live(files: &mut Files, out: &mut Output) -> Journal {
    let mut recovery = JournalRecovery::new(LIMITS, LOG, SegmentNumber(1), Origin::New, Seed::new([1; 32]));
    match recovery.start(&[], out).expect("nothing to read") {
        RecoveryStep::Done(recovered) => {
            let mut journal = recovered.journal;
            settle(&mut journal, files, out);
            journal
        }
        RecoveryStep::Working => panic!("nothing to wait for"),
    }
}

fn settle(journal: &mut Journal, files: &mut Files, out: &mut Output) {
    journal.submit(None, out);
    while let Some(command) = out.poll_command() {
        let completion = execute(files, command);
        match out.tickets().settle(completion) {
            Some((Purpose::Journal(purpose), StorageOutcome::Append(result))) => {
                journal.handle_append(purpose, result).expect("a disk that works");
            }
            Some((Purpose::Journal(purpose), StorageOutcome::Prepare(result))) => {
                journal.handle_prepare(purpose, result).expect("a disk that works");
            }
            _ => panic!("a live journal appends and prepares"),
        }
        journal.submit(None, out);
    }
}

fn recover(files: &mut Files, origin: Origin) -> Result<Entries, RecoveryFault> {
    let mut out: Output = Out::new(Tickets::new(Run(2)));
    let held: usize = files.values().map(Vec::len).sum();
    let mut recovery = JournalRecovery::new(LIMITS, LOG, SegmentNumber(1), origin, Seed::new([2; 32]));
    let listed: Vec<Listed> = files
        .iter()
        .map(|(number, file)| Listed {
            file: FileName::Segment(SegmentNumber(*number)),
            bytes: file.len() as u64,
        })
        .collect();
    let mut entries = Entries::new();
    let mut step = recovery.start(&listed, &mut out)?;
    while matches!(step, RecoveryStep::Working) {
        let command = out.poll_command().expect("a command is out");
        if let StorageCommand::Read { bytes_max, .. } = &command {
            assert!(*bytes_max as usize <= held, "reads more than the files hold");
        }
        let completion = execute(files, command);
        let Some((Purpose::Recovery(purpose), outcome)) = out.tickets().settle(completion) else {
            panic!("recovery asked")
        };
        let mut visit = |lsn: strandline_core::id::Lsn, kind: u8, bytes: &[u8]| {
            entries.push((lsn.get(), kind, bytes.to_vec()));
            Ok(())
        };
        step = recovery.handle(purpose, outcome, &mut visit, &mut out)?;
    }
    Ok(entries)
}

fn execute(files: &mut Files, command: StorageCommand) -> StorageCompletion {
    match command {
        StorageCommand::Read { ticket, file, offset, bytes_max } => {
            let FileName::Segment(number) = file else { panic!("only segments are read") };
            let bytes = files[&number.0].iter().skip(offset as usize).take(bytes_max as usize);
            ticket.complete(Ok(bytes.copied().collect()))
        }
        StorageCommand::Prepare { ticket, segment, bytes } => {
            files.insert(segment.0, vec![0; bytes as usize]);
            ticket.complete(Ok(()))
        }
        StorageCommand::Append { ticket, segment, offset, bytes } => {
            let file = files.get_mut(&segment.0).expect("prepared");
            let end = offset as usize + bytes.len();
            file.resize(file.len().max(end), 0);
            file[offset as usize..end].copy_from_slice(&bytes);
            ticket.complete(Ok(()))
        }
        StorageCommand::Cut { ticket, segment, offset } => {
            let file = files.get_mut(&segment.0).expect("there");
            file[offset as usize..].fill(0);
            ticket.complete(Ok(0))
        }
        StorageCommand::Sync { ticket, .. } => ticket.complete(Ok(())),
        StorageCommand::List { .. }
        | StorageCommand::Replace { .. }
        | StorageCommand::Write { .. }
        | StorageCommand::Remove { .. } => panic!("a journal has no use for this"),
    }
}
