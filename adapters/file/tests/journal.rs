//! The bare journal: many threads, a killed process, a second opener, a failing disk, compaction.
//!
//! Some tests start themselves again with [`FOLDER`] set and play the other process there.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};
use strandline_core::id::Lsn;
use strandline_core::journal::limits::JournalLimits;
use strandline_core::journal::log::LogError;
use strandline_core::journal::writer::AppendError;
use strandline_file::{
    BareJournal, Directory, JournalAppendError, JournalOpenError, JournalOptions, OpenError, OpenMode,
    ReplayError,
};

const FOLDER: &str = "STRANDLINE_TEST_FOLDER";

const SMALL: JournalOptions = JournalOptions {
    limits: JournalLimits {
        segment_bytes: 64 << 10,
        batch_bytes_max: 4096,
        entry_bytes_max: 1024,
        pending_bytes_max: 8192,
        pending_entries_max: 64,
        read_bytes_max: 4096,
        journal_bytes_max: 64 << 20,
        journal_entries_max: 1 << 20,
        seal_ms: 20,
    },
};

fn folder() -> Option<PathBuf> {
    std::env::var_os(FOLDER).map(PathBuf::from)
}

fn other(mut process: Process, test: &str, folder: &Path) -> Process {
    process.args([test, "--exact", "--nocapture", "--test-threads=1"]).env(FOLDER, folder);
    process.stdout(Stdio::piped());
    process
}

fn this_program() -> Process {
    Process::new(std::env::current_exe().unwrap())
}

fn entries(journal: &BareJournal, from: Lsn) -> Vec<(u64, Vec<u8>)> {
    let mut found = Vec::new();
    let visit = |lsn: Lsn, payload: &[u8]| {
        found.push((lsn.get(), payload.to_vec()));
        ControlFlow::Continue(())
    };
    journal.replay(from, visit).unwrap();
    found
}

/// Bytes written into the segments of a journal.
fn used(path: &Path) -> u64 {
    let segments = std::fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path());
    let segments = segments.filter(|path| path.file_name().unwrap().to_string_lossy().starts_with("segment"));
    let end = |path| std::fs::read(path).unwrap().iter().rposition(|byte| *byte != 0).map_or(0, |at| at + 1);
    segments.map(|path| end(path) as u64).sum()
}

#[test]
fn what_many_threads_append_is_there_once_in_each_ones_order() {
    const THREADS: u32 = 16;
    const EACH: u32 = 200;
    let root = tempfile::tempdir().unwrap();
    let (journal, _) = BareJournal::create(root.path().join("j"), SMALL).unwrap();
    let lsns: Vec<u64> = std::thread::scope(|scope| {
        let append = |thread: u32| {
            let journal = &journal;
            move || {
                let one = |n: u32| [thread.to_be_bytes(), n.to_be_bytes()].concat().repeat(20);
                (0..EACH).map(|n| journal.append(&one(n)).unwrap().get()).collect::<Vec<_>>()
            }
        };
        let threads: Vec<_> = (0..THREADS).map(|thread| scope.spawn(append(thread))).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    let count = u64::from(THREADS * EACH);
    // An entry of 160 bytes alone in its batch takes 48 of header and 168.
    let alone = count * (48 + 168);
    assert!(used(&root.path().join("j")) < alone * 9 / 10, "most were written together with others");
    assert_eq!(lsns.iter().copied().collect::<BTreeSet<_>>(), (1..=count).collect());
    let found = entries(&journal, Lsn::FIRST);
    assert_eq!(found.len() as u64, count);
    for (thread, of_thread) in lsns.chunks(EACH as usize).enumerate() {
        assert!(of_thread.is_sorted(), "thread {thread}");
        for (n, lsn) in of_thread.iter().enumerate() {
            let payload = &found[*lsn as usize - 1].1;
            assert_eq!(payload[..8], [(thread as u32).to_be_bytes(), (n as u32).to_be_bytes()].concat());
        }
    }
    journal.close().unwrap();
    let (journal, opened) = BareJournal::open(root.path().join("j"), SMALL).unwrap();
    assert_eq!((opened.entries, opened.cut), (count, None));
    assert_eq!(entries(&journal, Lsn::FIRST), found);
}

#[test]
fn a_batch_is_one_unit_and_too_large_a_one_is_refused() {
    let root = tempfile::tempdir().unwrap();
    let (journal, _) = BareJournal::create(root.path().join("j"), SMALL).unwrap();
    assert_eq!(journal.append_batch(&[b"a", b"b", b"c"]).unwrap().get(), 3);
    let large = [0; 1000];
    let refused = journal.append_batch(&[&large[..]; 5]);
    assert!(
        matches!(refused, Err(JournalAppendError::Refused(AppendError::GroupTooLarge { .. }))),
        "{refused:?}"
    );
    assert_eq!(journal.append_batch(&[]), Err(AppendError::GroupEmpty.into()));
    let many = journal.append_batch(&[&b""[..]; 65]);
    assert_eq!(
        many,
        Err(AppendError::GroupTooLong { entries: 65, entries_max: 64 }.into()),
        "answered at once"
    );
    assert_eq!(journal.durable().map(Lsn::get), Some(3));
}

#[test]
fn a_replay_starts_anywhere_and_stops_when_told() {
    let root = tempfile::tempdir().unwrap();
    let (journal, _) = BareJournal::create(root.path().join("j"), SMALL).unwrap();
    assert_eq!(entries(&journal, Lsn::FIRST), []);
    for n in 0..50u8 {
        journal.append(&[n; 300]).unwrap();
    }
    assert_eq!(entries(&journal, Lsn::new(48).unwrap()).len(), 3);
    let mut seen = 0;
    journal
        .replay(Lsn::FIRST, |_, _| {
            seen += 1;
            if seen == 7 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .unwrap();
    assert_eq!(seen, 7);
}

#[test]
fn compaction_drops_segments_and_a_replay_under_way_still_reads_them() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("j");
    let (journal, _) = BareJournal::create(&path, SMALL).unwrap();
    for n in 0..300u32 {
        journal.append(&[n as u8; 900]).unwrap();
    }
    let files = || std::fs::read_dir(&path).unwrap().count();
    let before = files();
    let mut read = 0;
    let mut first = Lsn::FIRST;
    journal
        .replay(Lsn::FIRST, |lsn, _| {
            if lsn == Lsn::FIRST {
                first = journal.compact_to(Lsn::new(200).unwrap()).unwrap();
                assert_eq!(files(), before, "still read");
            }
            read += 1;
            ControlFlow::Continue(())
        })
        .unwrap_or_else(|error| {
            // What was forgotten is not planned any more; what was read before stands.
            assert!(matches!(error, ReplayError::Dropped(_)), "{error}");
        });
    assert!(read >= 1 && first > Lsn::FIRST && first.get() <= 200, "{read} {first}");
    assert!(matches!(
        journal.replay(Lsn::FIRST, |_, _| ControlFlow::Continue(())),
        Err(ReplayError::Dropped(_))
    ));
    journal.close().unwrap();
    assert!(files() < before);
    let (journal, opened) = BareJournal::open(&path, SMALL).unwrap();
    assert_eq!((journal.first(), opened.entries), (first, 301 - first.get()));
    assert_eq!(entries(&journal, first).len() as u64, opened.entries);
}

#[test]
fn an_idle_journal_is_sealed_so_that_damage_to_its_last_entry_is_told() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("j");
    let (journal, _) = BareJournal::create(&path, SMALL).unwrap();
    journal.append(&[7; 600]).unwrap();
    let segment = path.join("segment-0000000000000001");
    let written = || std::fs::read(&segment).unwrap().iter().rposition(|byte| *byte != 0).unwrap();
    let before = written();
    while written() == before {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    // No close: what is on disk now is what a crash leaves.
    let copy = root.path().join("copy");
    std::fs::create_dir(&copy).unwrap();
    for name in ["current", "segment-0000000000000001"] {
        std::fs::copy(path.join(name), copy.join(name)).unwrap();
    }
    let mut bytes = std::fs::read(copy.join("segment-0000000000000001")).unwrap();
    bytes[400] ^= 1;
    std::fs::write(copy.join("segment-0000000000000001"), bytes).unwrap();
    let refused = BareJournal::open(&copy, SMALL);
    assert!(matches!(refused, Err(JournalOpenError::Log(LogError::Segments(_)))), "{refused:?}");
}

#[test]
fn who_may_open_what() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("j");
    let missing = BareJournal::open(&path, SMALL);
    assert!(matches!(missing, Err(JournalOpenError::Open(OpenError::Storage(_)))), "{missing:?}");
    drop(Directory::open(&path, OpenMode::Create).unwrap());
    let empty = BareJournal::open(&path, SMALL);
    assert!(matches!(empty, Err(JournalOpenError::Log(LogError::NoJournal))), "{empty:?}");
    let (journal, _) = BareJournal::create(&path, SMALL).unwrap();
    let second = BareJournal::open(&path, SMALL);
    assert!(matches!(second, Err(JournalOpenError::Open(OpenError::InUse(_)))), "{second:?}");
    drop(journal);
    let again = BareJournal::create(&path, SMALL);
    assert!(matches!(again, Err(JournalOpenError::Log(LogError::Exists { .. }))), "{again:?}");
    BareJournal::open(&path, SMALL).unwrap();
}

#[test]
fn a_log_of_a_replica_is_not_opened_as_a_bare_journal() {
    use strandline_core::id::LogId;
    use strandline_core::lifecycle::recovery::Init;
    use strandline_file::blocking::BlockingReplica;
    use strandline_file::node::NodeConfig;
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("log");
    let init =
        Init { log: LogId([7; 16]), identity: "a".into(), namespaces: vec![b"n".to_vec()], authority: None };
    let (replica, _) = BlockingReplica::create(&path, init, NodeConfig::default()).unwrap();
    replica.close().unwrap();
    let refused = BareJournal::open(&path, JournalOptions::default());
    assert!(matches!(refused, Err(JournalOpenError::Log(LogError::OtherKind { .. }))), "{refused:?}");
    let journal = root.path().join("journal");
    BareJournal::create(&journal, JournalOptions::default()).unwrap().0.close().unwrap();
    assert!(BlockingReplica::open(&journal, NodeConfig::default()).is_err());
}

/// The LSN and the thread that a line of the other process tells.
fn acknowledged(line: String) -> Option<(u64, u64)> {
    let mut words = line.strip_prefix("acked ")?.split(' ').map(|word| word.parse().ok());
    Some((words.next()??, words.next()??))
}

#[test]
fn a_killed_process_keeps_what_it_acknowledged() {
    if let Some(folder) = folder() {
        let (journal, _) = BareJournal::open(folder, SMALL).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                let journal = &journal;
                scope.spawn(move || {
                    loop {
                        let lsn = journal.append(&[thread; 100]).unwrap();
                        let line = format!("\nacked {lsn} {thread}\n");
                        std::io::stdout().write_all(line.as_bytes()).unwrap();
                    }
                });
            }
        });
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("j");
    BareJournal::create(&path, SMALL).unwrap().0.close().unwrap();
    let mut acked = Vec::new();
    for round in 1..=8 {
        let name = "a_killed_process_keeps_what_it_acknowledged";
        let mut child = other(this_program(), name, &path).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        acked.extend(lines.by_ref().map_while(Result::ok).take(100 * round).filter_map(acknowledged));
        child.kill().unwrap();
        acked.extend(lines.map_while(Result::ok).filter_map(acknowledged));
        child.wait().unwrap();
        let (journal, opened) = BareJournal::open(&path, SMALL).unwrap();
        let found = entries(&journal, Lsn::FIRST);
        assert_eq!(found.len() as u64, opened.entries);
        for (lsn, thread) in &acked {
            assert_eq!(found[*lsn as usize - 1], (*lsn, vec![*thread as u8; 100]), "round {round}");
        }
        journal.append(b"after").unwrap();
        journal.close().unwrap();
    }
    assert!(acked.len() > 100, "{} acknowledged", acked.len());
}

#[test]
fn a_full_disk_ends_it_for_every_thread() {
    if let Some(folder) = folder() {
        let (journal, _) = BareJournal::open(folder, SMALL).unwrap();
        let uncertain = std::thread::scope(|scope| {
            let append = || loop {
                if let Err(error) = journal.append(&[1; 1000]) {
                    return error;
                }
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(append)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>()
        });
        assert!(uncertain.iter().any(|error| matches!(error, JournalAppendError::Uncertain(_))));
        let more = journal.append(b"more");
        assert_eq!(more, Err(AppendError::Halted.into()));
        journal.close().unwrap_err();
        println!("\nended");
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("j");
    BareJournal::create(&path, SMALL).unwrap().0.close().unwrap();
    // Files may be at most 64 blocks long, of 512 or of 1,024 bytes: the first segment fits at most.
    let mut shell = Process::new("sh");
    let script = r#"trap "" XFSZ; ulimit -f 64; exec "$0" "$@""#;
    shell.args(["-c", script]).arg(std::env::current_exe().unwrap());
    let output = other(shell, "a_full_disk_ends_it_for_every_thread", &path).output().unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).contains("\nended"), "{output:?}");
    let (journal, _) = BareJournal::open(&path, SMALL).unwrap();
    journal.append(b"goes on").unwrap();
}
