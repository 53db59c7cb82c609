//! Compaction driven over an in-memory directory.

use super::*;
use crate::id::Run;
use crate::journal::batch::{self, HEADER_BYTES, Sealing};
use crate::journal::command::SegmentNumber;
use crate::journal::segment::{Position, Salt};
use crate::lifecycle::checkpoint::{CheckpointItem, CheckpointLimits, CheckpointReader, CheckpointSummary};
use crate::lifecycle::entry::{ENTRY_EPOCH_START, ENTRY_RECORD, EpochStart};
use crate::lifecycle::history::History;
use crate::record::{AuthorityId, BlobKey, Record, State};
use crate::ticket::{Completion, Tickets};
use alloc::collections::BTreeMap;
use alloc::vec;
use proptest::prelude::*;

const LOG: LogId = LogId([9; 16]);
const SALT: Salt = Salt([5; 8]);

type TestOut = Out<CompactPurpose, StorageCommand, ()>;

/// A log with its journal in one segment, and the files of its directory.
struct Log {
    records: Vec<(Lsn, Record)>,
    history: History,
    index: Index,
    files: BTreeMap<FileName, Vec<u8>>,
    base: Option<CheckpointRef>,
}

/// Key number, and whether it becomes present.
type Change = (u8, bool);

fn key(number: u8) -> Key {
    let mut logical = vec![number / 4];
    logical.resize(2500, b'k');
    logical.push(number);
    Key::from_parts(if number < 5 { b"m" } else { b"n" }, &logical).expect("short")
}

/// Every seventh entry begins an epoch of its own.
fn log(changes: &[Change]) -> Log {
    let mut index = Index::new(Lsn::FIRST);
    index.enter(SegmentNumber(1), SALT);
    let (mut file, mut records, mut version) = (vec![0; 64], Vec::new(), Version::new(1, 0));
    let mut history = History::new(Version::ZERO, [0; 32]);
    let authority = AuthorityId::from_text("a");
    for batch in changes.chunks(3) {
        let at = Position { segment: SegmentNumber(1), offset: file.len() as u64 };
        let (mut bytes, mut count, first_lsn) = (vec![0; HEADER_BYTES], 0, index.next_lsn());
        for (number, present) in batch {
            if records.len() % 7 == 6 {
                let previous_end = version;
                version = Version::new(version.epoch + 1, 0);
                let start = EpochStart { epoch: version.epoch, authority: authority.clone(), previous_end };
                let mut entry = Vec::new();
                start.encode(&mut entry);
                batch::push_entry(&mut bytes, ENTRY_EPOCH_START, &entry);
                count += 1;
            }
            version.sequence += 1;
            let state =
                if *present { State::Present { blob: BlobKey([*number; 32]) } } else { State::Deleted };
            let record = Record { key: key(*number), state, version, authority: authority.clone() };
            let mut canonical = Vec::new();
            record.encode_canonical(&mut canonical);
            batch::push_entry(&mut bytes, ENTRY_RECORD, &canonical);
            let lsn = first_lsn.plus(count);
            count += 1;
            history.push(lsn, version, &authority, &canonical);
            records.push((lsn, record));
        }
        let count = u32::try_from(count).expect("small");
        let sealing = Sealing { salt: SALT, at, first_lsn, count, durable: None, durable_end: at };
        let header = batch::seal(&mut bytes, &sealing);
        index.push(at.offset, &header);
        file.extend(bytes);
    }
    let files = BTreeMap::from([(FileName::Segment(SegmentNumber(1)), file)]);
    Log { records, history, index, files, base: None }
}

/// How the storage behaves.
#[derive(Clone, Copy, Debug, Default)]
struct Manner {
    /// Answers the newest command first.
    newest_first: bool,
    /// Fails this command, counted from 1.
    fails: Option<u32>,
}

impl Log {
    /// The plan to compact up to and with the record at this index.
    fn plan(&self, upto: usize, keys_per_round_max: u32) -> CompactionPlan {
        let (through, target) = &self.records[upto];
        let floor = self.history.floor();
        CompactionPlan {
            log: LOG,
            target: target.version,
            floor,
            floor_digest: self.history.floor_digest(),
            base: self.base,
            number: self.base.map_or(1, |base| base.number + 1),
            first: self.history.first_after(floor).expect("records above the floor").0,
            through: *through,
            epochs: self.history.epochs(),
            keys_per_round_max,
        }
    }

    fn execute(&mut self, command: StorageCommand, fail: bool) -> Completion<StorageOutcome> {
        let fault = |file: FileName| StorageFault::damaged(file, 0, "injected");
        match command {
            StorageCommand::Read { ticket, file, .. } if fail => ticket.complete(Err(fault(file))),
            StorageCommand::Read { ticket, file, offset, bytes_max } => {
                let content = &self.files[&file][usize::try_from(offset).expect("small")..];
                ticket.complete(Ok(content[..content.len().min(bytes_max as usize)].to_vec()))
            }
            StorageCommand::Write { ticket, file, offset, bytes } => {
                let content = self.files.entry(file).or_default();
                assert_eq!(content.len() as u64, offset, "pieces lie one after the other");
                content.extend(bytes);
                ticket.complete(if fail { Err(fault(file)) } else { Ok(()) })
            }
            StorageCommand::Sync { ticket, file } => {
                ticket.complete(if fail { Err(fault(file)) } else { Ok(()) })
            }
            StorageCommand::List { .. }
            | StorageCommand::Prepare { .. }
            | StorageCommand::Append { .. }
            | StorageCommand::Cut { .. }
            | StorageCommand::Replace { .. }
            | StorageCommand::Remove { .. } => panic!("a compaction only reads, writes and syncs"),
        }
    }

    fn run(&mut self, plan: CompactionPlan, manner: Manner) -> (Result<CompactionResult, RequestError>, u32) {
        let mut out = TestOut::new(Tickets::new(Run(1)));
        let mut compaction = Compaction::start(plan);
        let (mut answers, mut commands) = (Vec::new(), 0);
        loop {
            compaction.step(&self.index, &mut out);
            while let Some(command) = out.poll_command() {
                commands += 1;
                answers.push(self.execute(command, manner.fails == Some(commands)));
            }
            assert!(answers.len() <= 1 + WRITES_IN_FLIGHT_MAX as usize, "{} under way", answers.len());
            if let Some(result) = compaction.result() {
                assert_eq!(out.outstanding(), 0, "nothing is under way at the end");
                return (result, commands);
            }
            let at = if manner.newest_first { answers.len() - 1 } else { 0 };
            let (purpose, outcome) = out.tickets().settle(answers.remove(at)).expect("of this run");
            compaction.handle(purpose, outcome);
        }
    }

    /// Takes over what a compaction made, as the root does with `current`.
    fn commit(&mut self, result: &CompactionResult) {
        self.base = Some(result.checkpoint);
        self.history.raise_floor(result.floor, result.floor_digest);
    }

    fn read(&self, named: CheckpointRef) -> (CheckpointSummary, Vec<Record>) {
        let mut records = Vec::new();
        let mut reader = CheckpointReader::new(CheckpointLimits::of(LOG));
        let read = reader.push(&self.files[&FileName::Checkpoint(named.number)], &mut |item| {
            if let CheckpointItem::Record { view, .. } = item {
                records.push(view.to_record());
            }
            Ok(())
        });
        read.expect("a checkpoint");
        (reader.finish().expect("a whole one"), records)
    }

    /// What the checkpoint of a floor must hold, and the tombstones of the prefix above `above`.
    fn expected(&self, floor: Version, above: Version) -> (Vec<Record>, Vec<Key>) {
        let mut last = BTreeMap::new();
        for (_, record) in self.records.iter().filter(|(_, record)| record.version <= floor) {
            last.insert(record.key.clone(), record.clone());
        }
        let (present, deleted): (Vec<_>, Vec<_>) =
            last.into_values().partition(|record| record.state != State::Deleted);
        let deleted = deleted.into_iter().filter(|record| record.version > above);
        (present, deleted.map(|record| record.key).collect())
    }

    /// Compares a result with the model.
    fn check(&self, result: &CompactionResult) {
        let (summary, found) = self.read(result.checkpoint);
        let (present, deleted) = self.expected(result.floor, self.history.floor());
        assert_eq!(found, present);
        assert_eq!(result.tombstones, deleted);
        assert_eq!(result.records, present.len() as u64);
        assert_eq!((summary.bytes, summary.sha256), (result.checkpoint.bytes, result.checkpoint.sha256));
        assert_eq!((summary.header.cut, summary.header.cut_digest), (result.floor, result.floor_digest));
        assert_eq!(summary.header.epochs, result.epochs);
        let (lsn, _) = self.records.iter().find(|(_, r)| r.version == result.floor).expect("a record");
        assert_eq!(result.floor_lsn, *lsn);
        assert!(result.epochs.iter().all(|mark| mark.start <= result.floor));
        let digest = self.records.iter().filter(|(_, record)| record.version <= result.floor).fold(
            [0; 32],
            |digest, (_, record)| {
                let mut canonical = Vec::new();
                record.encode_canonical(&mut canonical);
                crate::lifecycle::history::extend_digest(&digest, &canonical)
            },
        );
        assert_eq!(result.floor_digest, digest);
    }
}

/// Enough for a base of several pieces.
fn many() -> Vec<Change> {
    (0..1200u32).map(|i| ((i * 7 % 251) as u8, i % 5 != 0)).collect()
}

#[test]
fn a_prefix_becomes_a_checkpoint() {
    let mut log = log(&[(1, true), (2, true), (1, false), (3, true)]);
    let (result, _) = log.run(log.plan(2, 99), Manner::default());
    let result = result.expect("compacts");
    log.check(&result);
    assert_eq!((result.records, result.tombstones.clone()), (1, vec![key(1)]));
}

#[test]
fn a_second_round_merges_with_the_base() {
    let mut log = log(&many());
    for upto in [700, 1199] {
        let (result, _) = log.run(log.plan(upto, 999), Manner { newest_first: true, fails: None });
        let result = result.expect("compacts");
        log.check(&result);
        assert_eq!(result.floor, log.records[upto].1.version);
        log.commit(&result);
    }
}

#[test]
fn a_prefix_of_too_many_keys_is_compacted_to_a_lower_target() {
    let mut log = log(&[(1, true), (2, true), (1, true), (3, true), (2, true)]);
    let (result, _) = log.run(log.plan(4, 2), Manner::default());
    let result = result.expect("compacts");
    log.check(&result);
    assert_eq!(result.floor, log.records[2].1.version);
}

#[test]
fn a_failure_of_any_command_ends_it() {
    let mut sound = log(&many());
    let (base, _) = sound.run(sound.plan(700, 999), Manner::default());
    sound.commit(&base.expect("compacts"));
    let (_, commands) = sound.run(sound.plan(1199, 999), Manner::default());
    assert!(commands > 8, "{commands}");
    for fails in 1..=commands {
        for newest_first in [false, true] {
            sound.files.remove(&FileName::Checkpoint(2));
            let (result, _) = sound.run(sound.plan(1199, 999), Manner { newest_first, fails: Some(fails) });
            assert!(matches!(result, Err(RequestError::Storage(_))), "command {fails}");
        }
    }
}

fn fault_of(log: &mut Log, plan: CompactionPlan) -> StorageFault {
    match log.run(plan, Manner::default()).0 {
        Err(RequestError::Storage(fault)) => fault,
        other => panic!("expected a fault, found {other:?}"),
    }
}

fn with_base() -> Log {
    let mut log = log(&[(1, true), (2, true), (3, true), (2, false)]);
    let (result, _) = log.run(log.plan(1, 99), Manner::default());
    log.commit(&result.expect("compacts"));
    log
}

#[test]
fn a_base_of_another_digest() {
    let mut log = with_base();
    let mut plan = log.plan(3, 99);
    plan.base.as_mut().expect("committed").sha256[0] ^= 1;
    assert!(fault_of(&mut log, plan).detail.contains("SHA-256"));
}

#[test]
fn a_base_that_is_damaged() {
    let mut log = with_base();
    let content = log.files.get_mut(&FileName::Checkpoint(1)).expect("committed");
    let at = content.len() - 30;
    content[at] ^= 1;
    let plan = log.plan(3, 99);
    assert_eq!(fault_of(&mut log, plan).file, "checkpoint-0000000000000001");
}

#[test]
fn a_base_that_is_shorter_than_named() {
    let mut log = with_base();
    log.files.get_mut(&FileName::Checkpoint(1)).expect("committed").pop();
    let plan = log.plan(3, 99);
    assert!(fault_of(&mut log, plan).detail.starts_with("expected "));
}

#[test]
fn a_base_of_another_floor() {
    let mut log = with_base();
    let plan = CompactionPlan { floor_digest: [7; 32], ..log.plan(3, 99) };
    assert!(fault_of(&mut log, plan).detail.contains("with digest"));
}

#[test]
fn a_target_that_is_not_where_it_should_be() {
    let mut log = with_base();
    let plan = CompactionPlan { target: Version::new(1, 99), ..log.plan(3, 99) };
    assert!(fault_of(&mut log, plan).detail.starts_with("expected the record 1.99"));
}

#[test]
fn an_answer_to_another_compaction_is_ignored() {
    let log = with_base();
    let mut compaction = Compaction::start(log.plan(3, 99));
    let purpose = CompactPurpose { number: 1, step: CompactStep::Write };
    compaction.handle(purpose, StorageOutcome::Write(Ok(())));
    assert!(compaction.result().is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn rounds_of_any_size_keep_what_the_model_keeps(
        changes in proptest::collection::vec((0u8..24, any::<bool>()), 2..120),
        rounds in proptest::collection::vec((1usize..60, 1u32..30), 1..5),
        newest_first: bool,
    ) {
        let mut log = log(&changes);
        for (length, keys_per_round_max) in rounds {
            let floor = log.history.floor();
            let below = log.records.iter().filter(|(_, record)| record.version <= floor).count();
            if below == log.records.len() {
                break;
            }
            let upto = (below + length - 1).min(log.records.len() - 1);
            let manner = Manner { newest_first, fails: None };
            let (result, _) = log.run(log.plan(upto, keys_per_round_max), manner);
            let result = result.expect("compacts");
            prop_assert!(result.floor > floor && result.floor <= log.records[upto].1.version);
            log.check(&result);
            log.commit(&result);
        }
    }
}
