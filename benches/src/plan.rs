//! Planning a repair batch from a journal, at several lengths of the log.

use crate::measure::{Better, Row, Scale, medians, ns_per_item, thousands};
use crate::records::record;
use std::collections::BTreeMap;
use std::error::Error;
use std::ops::ControlFlow;
use strandline_core::id::Lsn;
use strandline_core::journal::command::{FileName, Listed, SegmentNumber, StorageCommand, StorageCompletion};
use strandline_core::journal::limits::JournalLimits;
use strandline_core::journal::log::{JournalLog, LogRecovery, NotOpened};
use strandline_core::journal::read::EntryReader;
use strandline_core::lifecycle::entry::{ENTRY_RECORD, JournalEntry};
use strandline_core::lifecycle::history::History;
use strandline_core::machine::Machine;
use strandline_core::record::{Record, Version};
use strandline_core::seed::Seed;
use strandline_core::time::Now;
use strandline_core::wire::batch_builder::BatchBuilder;
use strandline_core::wire::limits::RepairLimits;

/// Records of one batch: the protocol's most.
const BATCH: u64 = 128;

/// Entries appended together, as several writers' are.
const TOGETHER: u64 = 16;

/// Files in memory, for a journal of the core alone.
#[derive(Default)]
struct Memory(BTreeMap<FileName, Vec<u8>>);

impl Memory {
    fn execute(&mut self, command: StorageCommand) -> StorageCompletion {
        match command {
            StorageCommand::List { ticket } => {
                let listed =
                    |(file, bytes): (&FileName, &Vec<u8>)| Listed { file: *file, bytes: bytes.len() as u64 };
                ticket.complete(Ok(self.0.iter().map(listed).collect()))
            }
            StorageCommand::Read { ticket, file, .. } => ticket.complete(Ok(self.0[&file].clone())),
            StorageCommand::Replace { ticket, file, bytes } => {
                self.0.insert(file, bytes);
                ticket.complete(Ok(()))
            }
            StorageCommand::Prepare { ticket, segment, bytes } => {
                self.0.insert(FileName::Segment(segment), vec![0; usize::try_from(bytes).expect("fits")]);
                ticket.complete(Ok(()))
            }
            StorageCommand::Append { ticket, segment, offset, bytes } => {
                let at = usize::try_from(offset).expect("fits");
                self.segment(segment)[at..][..bytes.len()].copy_from_slice(&bytes);
                ticket.complete(Ok(()))
            }
            other @ (StorageCommand::Cut { .. }
            | StorageCommand::Write { .. }
            | StorageCommand::Sync { .. }
            | StorageCommand::Remove { .. }) => unreachable!("a new journal needs no {other:?}"),
        }
    }

    fn segment(&mut self, segment: SegmentNumber) -> &mut Vec<u8> {
        self.0.get_mut(&FileName::Segment(segment)).expect("prepared before")
    }
}

/// A log of records in memory: its journal's bytes, and what the core keeps about it.
struct Log {
    memory: Memory,
    journal: JournalLog,
    history: History,
}

impl Log {
    fn new() -> Self {
        let visit = |_: Lsn, _: u8, _: &[u8]| Ok(());
        let mut memory = Memory::default();
        let mut recovery = LogRecovery::create(JournalLimits::default(), Seed::new([3; 32]), visit);
        while let Some(command) = recovery.poll_command() {
            recovery.handle_completion(Now::default(), memory.execute(command));
        }
        let journal = match recovery.finish() {
            Ok((journal, _)) => journal,
            Err(NotOpened::Failed(error)) => panic!("{error}"),
            Err(NotOpened::Working(_)) => unreachable!("every command was answered"),
        };
        Self { memory, journal, history: History::new(Version::ZERO, [0; 32]) }
    }

    fn extend(&mut self, records: std::ops::RangeInclusive<u64>) {
        let first = *records.start();
        let records: Vec<(Record, Vec<u8>)> = records
            .map(|sequence| {
                let record = record(sequence);
                let mut bytes = Vec::new();
                record.encode_canonical(&mut bytes);
                (record, bytes)
            })
            .collect();
        let entries: Vec<_> = records.iter().map(|(_, bytes)| (ENTRY_RECORD, bytes.as_slice())).collect();
        let (lsn, _) = self.journal.append(&entries).expect("within limits");
        while let Some(command) = self.journal.poll_command() {
            self.journal.handle_completion(Now::default(), self.memory.execute(command));
        }
        while self.journal.poll_event().is_some() {}
        assert_eq!(lsn.get(), first);
        for (at, (record, bytes)) in records.iter().enumerate() {
            self.history.push(lsn.plus(at as u64), record.version, &record.authority, bytes);
        }
    }

    /// The batch for a peer at `from`, as the source plans it: find, read, check, parse, write.
    fn plan(&self, from: Version, payload: &mut Vec<u8>) -> Version {
        let (first, _) = self.history.first_after(from).expect("the log goes on");
        let journal = self.journal.journal();
        let mut reader = EntryReader::new(first, first.plus(BATCH - 1));
        let mut batch = BatchBuilder::new(from, RepairLimits::default());
        let tail = self.history.tail();
        while let Some(request) =
            reader.request(journal.index(), journal.limits().read_bytes_max).expect("retained")
        {
            let file = &self.memory.0[&request.file];
            let at = usize::try_from(request.offset).expect("fits");
            let visit = &mut |_: Lsn, kind: u8, bytes: &[u8]| {
                let Ok(JournalEntry::Record(view)) = JournalEntry::parse(kind, bytes) else {
                    panic!("only records were appended")
                };
                match batch.push(&view.to_record(), view.version < tail) {
                    Ok(()) => ControlFlow::Continue(()),
                    Err(fault) => panic!("{fault}"),
                }
            };
            reader.accept(&request, &file[at..][..request.bytes as usize], visit).expect("as written");
        }
        let more = batch.to() < tail;
        batch.finish(more, payload).expect("within limits")
    }
}

/// One row per length of the log, beside encoding the same records once.
pub(crate) fn rows(scale: &Scale, rows: &mut Vec<Row>) -> Result<(), Box<dyn Error>> {
    let mut log = Log::new();
    for entries in [1000, 65_000, 1_000_000 / scale.divisor] {
        let mut next = log.history.entries() + 1;
        while next <= entries {
            log.extend(next..=entries.min(next + TOGETHER - 1));
            next = log.history.entries() + 1;
        }
        let mut turn = 0u64;
        // Anywhere in the log, so that no batch is found where the last one was.
        let mut from = || {
            turn = turn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            Version::new(1, 1 + (turn >> 33) % (entries - BATCH - 1))
        };
        let mut payload = Vec::new();
        let records: Vec<_> = (501..=500 + BATCH).map(record).collect();
        let encode = |payload: &mut Vec<u8>| {
            let mut batch = BatchBuilder::new(Version::new(1, 500), RepairLimits::default());
            for record in &records {
                batch.push(record, true).expect("within limits");
            }
            batch.finish(true, payload).expect("within limits")
        };
        let mut expected = Vec::new();
        encode(&mut expected);
        log.plan(Version::new(1, 500), &mut payload);
        assert!(payload == expected, "the plan is the batch of the same records");
        let mut other = Vec::new();
        let mut ours = || {
            ns_per_item(scale.compute_time, 1, || {
                payload.clear();
                let from = from();
                let to = log.plan(from, &mut payload);
                assert_eq!(to.sequence - from.sequence, BATCH);
            }) / 1e3
        };
        let mut theirs = || {
            ns_per_item(scale.compute_time, 1, || {
                other.clear();
                assert_eq!(encode(&mut other).sequence, 500 + BATCH);
            }) / 1e3
        };
        let [ours, theirs] = medians(scale.rounds, [&mut ours, &mut theirs]);
        rows.push(Row {
            name: format!("plan a batch of 128 of {}", thousands(entries)),
            ours,
            theirs,
            unit: "us",
            beside: "encoding the same batch only",
            better: Better::Lower,
        });
    }
    Ok(())
}
