//! Every command through the executor, as a root sees it: tickets out, completions in.

use sha2::{Digest, Sha256};
use std::sync::{Arc, mpsc};
use std::thread::current;
use strandline_core::error::{StorageCause, StorageFault};
use strandline_core::id::Run;
use strandline_core::journal::command::{FileName, Listed, SegmentNumber, StorageCommand, StorageOutcome};
use strandline_core::lifecycle::command::{
    BlobCommand, BlobOutcome, BlobPiece, Command, Outcome, ReplicaCompletion, Stored,
};
use strandline_core::record::BlobKey;
use strandline_core::ticket::{Operation, Ticket, Tickets};
use strandline_file::{BlobStore, Directory, Executor, ExecutorConfig, OpenMode};

const SEGMENT: SegmentNumber = SegmentNumber(1);

struct Rig {
    root: tempfile::TempDir,
    store: Arc<BlobStore>,
    executor: Executor,
    tickets: Tickets<usize>,
    completions: mpsc::Receiver<(String, ReplicaCompletion)>,
}

impl Rig {
    fn new(config: ExecutorConfig) -> Self {
        let root = tempfile::tempdir().unwrap();
        let directory = Arc::new(Directory::open(root.path(), OpenMode::Existing).unwrap());
        let store = Arc::new(BlobStore::open(root.path().join("blobs")).unwrap());
        let (complete, completions) = mpsc::channel();
        let executor = Executor::start(directory, Arc::clone(&store), config, move |completion| {
            complete.send((current().name().unwrap_or_default().to_owned(), completion)).unwrap();
        });
        Self { root, store, executor, tickets: Tickets::new(Run(1)), completions }
    }

    fn start<Op: Operation, C: Into<Command>>(&mut self, number: usize, make: impl FnOnce(Ticket<Op>) -> C) {
        self.executor.execute(make(self.tickets.mint(number)).into());
    }

    fn next(&mut self) -> (usize, String, Outcome) {
        let (thread, completion) = self.completions.recv().unwrap();
        let (number, outcome) = self.tickets.settle(completion).unwrap();
        (number, thread, outcome)
    }

    fn storage<Op: Operation>(&mut self, make: impl FnOnce(Ticket<Op>) -> StorageCommand) -> StorageOutcome {
        self.start(0, make);
        match self.next().2 {
            Outcome::Storage(outcome) => outcome,
            Outcome::Blob(outcome) => panic!("{outcome:?}"),
        }
    }

    fn blob<Op: Operation>(&mut self, make: impl FnOnce(Ticket<Op>) -> BlobCommand) -> BlobOutcome {
        self.start(0, make);
        match self.next().2 {
            Outcome::Blob(outcome) => outcome,
            Outcome::Storage(outcome) => panic!("{outcome:?}"),
        }
    }

    fn write(&mut self, key: BlobKey, offset: u64, bytes: &[u8]) -> Result<(), StorageFault> {
        let bytes = bytes.to_vec();
        let outcome = self.blob(|ticket| BlobCommand::Write { ticket, key, offset, bytes });
        let BlobOutcome::Write(result) = outcome else { panic!("{outcome:?}") };
        result
    }

    fn commit(&mut self, key: BlobKey, total: u64) -> Result<Stored, StorageFault> {
        let outcome = self.blob(|ticket| BlobCommand::Commit { ticket, key, total });
        let BlobOutcome::Commit(result) = outcome else { panic!("{outcome:?}") };
        result
    }

    fn uploads(&self) -> usize {
        std::fs::read_dir(self.root.path().join("blobs/uploads")).unwrap().count()
    }
}

fn key(bytes: &[u8]) -> BlobKey {
    BlobKey(Sha256::digest(bytes).into())
}

#[test]
fn a_journals_life() {
    let mut rig = Rig::new(ExecutorConfig::default());
    let segment = SEGMENT;
    let file = FileName::Segment(segment);
    let outcome = rig.storage(|ticket| StorageCommand::Prepare { ticket, segment, bytes: 64 });
    assert!(matches!(outcome, StorageOutcome::Prepare(Ok(()))));
    let bytes = b"kept torn".to_vec();
    let outcome = rig.storage(|ticket| StorageCommand::Append { ticket, segment, offset: 8, bytes });
    assert!(matches!(outcome, StorageOutcome::Append(Ok(()))));
    let outcome = rig.storage(|ticket| StorageCommand::Cut { ticket, segment, offset: 13 });
    assert!(matches!(outcome, StorageOutcome::Cut(Ok(4))));
    let outcome = rig.storage(|ticket| StorageCommand::Read { ticket, file, offset: 8, bytes_max: 9 });
    assert!(matches!(outcome, StorageOutcome::Read(Ok(read)) if read == b"kept \0\0\0\0"));
    let outcome = rig.storage(|ticket| StorageCommand::Read { ticket, file, offset: 60, bytes_max: 9 });
    assert!(matches!(outcome, StorageOutcome::Read(Ok(read)) if read == [0; 4]));
    let outcome = rig.storage(|ticket| StorageCommand::List { ticket });
    assert!(matches!(outcome, StorageOutcome::List(Ok(list)) if list == [Listed { file, bytes: 64 }]));
    for _ in 0..2 {
        let outcome = rig.storage(|ticket| StorageCommand::Remove { ticket, files: vec![file] });
        assert!(matches!(outcome, StorageOutcome::Remove(Ok(()))));
    }
    let outcome = rig.storage(|ticket| StorageCommand::Read { ticket, file, offset: 0, bytes_max: 1 });
    assert!(matches!(outcome, StorageOutcome::Read(Err(fault)) if fault.cause == StorageCause::Missing));
}

#[test]
fn a_checkpoints_life() {
    let mut rig = Rig::new(ExecutorConfig::default());
    let file = FileName::Checkpoint(1);
    for (number, piece) in ["one ", "two ", "six"].into_iter().enumerate() {
        let offset = 4 * number as u64;
        rig.start(number, |ticket| StorageCommand::Write { ticket, file, offset, bytes: piece.into() });
    }
    rig.start(3, |ticket| StorageCommand::Sync { ticket, file });
    for expected in 0..4 {
        let (number, _, outcome) = rig.next();
        assert_eq!(number, expected, "writes of one file and its sync keep their order");
        assert!(matches!(
            outcome,
            Outcome::Storage(StorageOutcome::Write(Ok(())) | StorageOutcome::Sync(Ok(())))
        ));
    }
    let file = FileName::Current;
    let outcome =
        rig.storage(|ticket| StorageCommand::Replace { ticket, file, bytes: b"checkpoint 1".into() });
    assert!(matches!(outcome, StorageOutcome::Replace(Ok(()))));
    let found = |file: FileName| std::fs::read(rig.root.path().join(file.to_string())).unwrap();
    assert_eq!(found(FileName::Checkpoint(1)), b"one two six");
    assert_eq!(found(FileName::Current), b"checkpoint 1");
}

#[test]
fn appends_and_cuts_keep_their_order_and_prepares_run_beside_them() {
    let mut rig = Rig::new(ExecutorConfig::default());
    let outcome = rig.storage(|ticket| StorageCommand::Prepare { ticket, segment: SEGMENT, bytes: 4096 });
    assert!(matches!(outcome, StorageOutcome::Prepare(Ok(()))));
    let segment = SEGMENT;
    for number in 0..100 {
        if number % 10 == 9 {
            rig.start(number, |ticket| StorageCommand::Cut { ticket, segment, offset: 64 });
        } else {
            let bytes = vec![u8::try_from(number).unwrap(); 32];
            rig.start(number, |ticket| StorageCommand::Append { ticket, segment, offset: 48, bytes });
        }
    }
    rig.start(100, |ticket| StorageCommand::Prepare { ticket, segment: SegmentNumber(2), bytes: 4096 });
    let mut appended = Vec::new();
    for _ in 0..=100 {
        let (number, thread, outcome) = rig.next();
        if number == 100 {
            assert!(matches!(outcome, Outcome::Storage(StorageOutcome::Prepare(Ok(())))), "{outcome:?}");
            assert_eq!(thread, "steps");
        } else {
            let done = matches!(
                outcome,
                Outcome::Storage(StorageOutcome::Append(Ok(())) | StorageOutcome::Cut(Ok(16)))
            );
            assert!(done, "{outcome:?}");
            assert_eq!(thread, "append");
            appended.push(number);
        }
    }
    assert!(appended.into_iter().eq(0..100));
}

#[test]
fn what_was_accepted_is_finished_and_answered_before_shutdown_returns() {
    let mut rig = Rig::new(ExecutorConfig::default());
    let segment = SEGMENT;
    rig.start(0, |ticket| StorageCommand::Replace { ticket, file: FileName::Acked, bytes: vec![1] });
    for number in 1..100_u8 {
        let bytes = vec![number; 1000];
        rig.start(1, |ticket| BlobCommand::Put { ticket, key: key(&bytes), bytes });
        rig.start(2, |ticket| StorageCommand::Append { ticket, segment, offset: 0, bytes: vec![number] });
        rig.start(3, |ticket| BlobCommand::Stat { ticket, keys: vec![BlobKey([number; 32])] });
        rig.start(4, |ticket| StorageCommand::List { ticket });
    }
    let Rig { executor, completions, mut tickets, .. } = rig;
    executor.shutdown();
    for (_, completion) in completions {
        tickets.settle(completion).unwrap();
    }
    assert_eq!(tickets.outstanding(), 0);
}

#[test]
fn a_blob_in_pieces_is_invisible_before_its_commit() {
    let mut rig = Rig::new(ExecutorConfig::default());
    let content: Vec<u8> = (0..700_000_u32).flat_map(u32::to_le_bytes).collect();
    let key = key(&content);
    let mut offset = 0;
    rig.write(key, 0, b"abandoned: offset 0 starts afresh").unwrap();
    for piece in content.chunks(256 << 10) {
        rig.write(key, offset, piece).unwrap();
        offset += piece.len() as u64;
    }
    let outcome = rig.blob(|ticket| BlobCommand::Stat { ticket, keys: vec![key] });
    assert!(matches!(outcome, BlobOutcome::Stat(Ok(found)) if found == [None]));
    assert_eq!(rig.uploads(), 1);
    assert_eq!(rig.commit(key, offset), Ok(Stored::Stored));
    let missing = BlobKey([0; 32]);
    let outcome = rig.blob(|ticket| BlobCommand::Stat { ticket, keys: vec![missing, key, missing] });
    assert!(matches!(outcome, BlobOutcome::Stat(Ok(found)) if found == [None, Some(offset), None]));
    let outcome = rig.blob(|ticket| BlobCommand::Read { ticket, key, offset: 5, bytes_max: 1000 });
    let expected = BlobPiece { total: offset, bytes: content[5..1005].to_vec() };
    assert!(matches!(outcome, BlobOutcome::Read(Ok(Some(piece))) if piece == expected));
    let outcome = rig.blob(|ticket| BlobCommand::Read { ticket, key: missing, offset: 0, bytes_max: 1 });
    assert!(matches!(outcome, BlobOutcome::Read(Ok(None))));
    assert_eq!((rig.store.verify(key), rig.uploads()), (Ok(Some(offset)), 0));
}

#[test]
fn pieces_that_are_not_the_blob_are_thrown_away() {
    let mut rig = Rig::new(ExecutorConfig::default());
    let wanted = key(b"wanted");
    for (bytes, total) in [(b"others", 6), (b"wanted", 7)] {
        rig.write(wanted, 0, bytes).unwrap();
        assert_eq!(rig.commit(wanted, total), Ok(Stored::Mismatch));
        assert_eq!((rig.store.stat(wanted), rig.uploads()), (Ok(None), 0));
    }
    let bytes = b"others".to_vec();
    let outcome = rig.blob(|ticket| BlobCommand::Put { ticket, key: wanted, bytes });
    assert!(matches!(outcome, BlobOutcome::Put(Ok(Stored::Mismatch))));
    assert_eq!((rig.store.keys().count(), rig.uploads()), (0, 0));
}

#[test]
fn an_upload_that_never_began_is_missing() {
    let mut rig = Rig::new(ExecutorConfig::default());
    let wanted = key(b"wanted");
    assert_eq!(rig.write(wanted, 3, b"ted").unwrap_err().cause, StorageCause::Missing);
    assert_eq!(rig.commit(wanted, 6).unwrap_err().cause, StorageCause::Missing);
}

#[test]
fn an_empty_blob_needs_no_piece() {
    let mut rig = Rig::new(ExecutorConfig::default());
    assert_eq!(rig.commit(key(b""), 0), Ok(Stored::Stored));
    assert_eq!(rig.store.verify(key(b"")), Ok(Some(0)));
    assert_eq!(rig.commit(BlobKey([1; 32]), 0), Ok(Stored::Mismatch));
}

#[test]
fn commands_of_one_key_keep_their_order_inside_a_group() {
    let mut rig = Rig::new(ExecutorConfig { blob_threads: 1, ..ExecutorConfig::default() });
    let key = key(b"bytes");
    for round in 0..20 {
        rig.start(4 * round, |ticket| BlobCommand::Put { ticket, key, bytes: b"bytes".into() });
        rig.start(4 * round + 1, |ticket| BlobCommand::Write { ticket, key, offset: 0, bytes: b"by".into() });
        rig.start(4 * round + 2, |ticket| BlobCommand::Write {
            ticket,
            key,
            offset: 2,
            bytes: b"tes".into(),
        });
        rig.start(4 * round + 3, |ticket| BlobCommand::Commit { ticket, key, total: 5 });
    }
    for expected in 0..80 {
        let (number, _, outcome) = rig.next();
        assert_eq!(number, expected);
        assert!(matches!(
            outcome,
            Outcome::Blob(
                BlobOutcome::Put(Ok(Stored::Stored))
                    | BlobOutcome::Write(Ok(()))
                    | BlobOutcome::Commit(Ok(Stored::Stored))
            )
        ));
    }
    assert_eq!((rig.store.verify(key), rig.uploads()), (Ok(Some(5)), 0));
}

#[test]
fn many_puts_are_each_answered_for_themselves() {
    let mut rig = Rig::new(ExecutorConfig::default());
    for number in 0..300 {
        let bytes = format!("blob {number}").into_bytes();
        let key = if number % 3 == 0 { BlobKey([7; 32]) } else { key(&bytes) };
        rig.start(number, |ticket| BlobCommand::Put { ticket, key, bytes });
    }
    for _ in 0..300 {
        let (number, _, outcome) = rig.next();
        let expected = if number % 3 == 0 { Stored::Mismatch } else { Stored::Stored };
        assert!(
            matches!(outcome, Outcome::Blob(BlobOutcome::Put(Ok(stored))) if stored == expected),
            "{number}"
        );
    }
    assert_eq!((rig.store.keys().count(), rig.uploads()), (200, 0));
}

#[test]
fn open_uploads_are_bounded_and_the_one_that_rested_longest_goes() {
    let mut rig = Rig::new(ExecutorConfig { blob_threads: 1, ..ExecutorConfig::default() });
    let key = |number: usize| key(format!("blob {number}").as_bytes());
    for number in 0..64 {
        rig.write(key(number), 0, b"blob ").unwrap();
    }
    rig.write(key(0), 5, b"0").unwrap();
    rig.write(key(64), 0, b"blob 64").unwrap();
    assert_eq!(rig.uploads(), 64);
    assert_eq!(rig.write(key(1), 5, b"1").unwrap_err().cause, StorageCause::Missing);
    assert_eq!(rig.commit(key(0), 6), Ok(Stored::Stored));
    assert_eq!(rig.commit(key(64), 7), Ok(Stored::Stored));
}

#[test]
fn two_executors_share_one_store() {
    let mut one = Rig::new(ExecutorConfig::default());
    let other = tempfile::tempdir().unwrap();
    let directory = Arc::new(Directory::open(other.path(), OpenMode::Existing).unwrap());
    let (complete, completions) = mpsc::channel();
    let executor =
        Executor::start(directory, Arc::clone(&one.store), ExecutorConfig::default(), move |completion| {
            complete.send(completion).unwrap();
        });
    let mut tickets = Tickets::<()>::new(Run(2));
    let key = key(b"shared");
    let put = BlobCommand::Put { ticket: tickets.mint(()), key, bytes: b"shared".into() };
    executor.execute(Command::Blob(put));
    one.start(0, |ticket| BlobCommand::Put { ticket, key, bytes: b"shared".into() });
    let stored = |outcome| matches!(outcome, Outcome::Blob(BlobOutcome::Put(Ok(Stored::Stored))));
    assert!(stored(one.next().2));
    assert!(stored(tickets.settle(completions.recv().unwrap()).unwrap().1));
    assert_eq!((one.store.keys().count(), one.uploads()), (1, 0));
}
