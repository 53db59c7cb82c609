//! Findings about the files of the reference, each with our better answer. That a new file's entry
//! is synced (f) can only be seen from within: it is tested in `directory.rs`.

mod common;

use common::{Files, folder, open, other, this_program};
use std::fs;
use std::ops::ControlFlow;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, Stdio};
use strandline_core::id::Lsn;
use strandline_core::journal::command::{FileName, SegmentNumber, StorageCommand};
use strandline_core::journal::writer::AppendError;
use strandline_file::{
    BareJournal, Directory, JournalAppendError, JournalOpenError, JournalOptions, OpenError, OpenMode,
};

fn create(path: &Path) -> BareJournal {
    BareJournal::create(path, JournalOptions::default()).unwrap().0
}

fn reopen(path: &Path) -> Result<BareJournal, JournalOpenError> {
    BareJournal::open(path, JournalOptions::default()).map(|(journal, _)| journal)
}

fn entries(journal: &BareJournal) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let visit = |_, payload: &[u8]| {
        found.push(payload.to_vec());
        ControlFlow::Continue(())
    };
    journal.replay(Lsn::FIRST, visit).unwrap();
    found
}

fn names(path: &Path) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(path).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn segment(path: &Path) -> PathBuf {
    path.join(FileName::Segment(SegmentNumber(1)).to_string())
}

fn in_use(opened: &Result<BareJournal, JournalOpenError>) -> bool {
    matches!(opened, Err(JournalOpenError::Open(OpenError::InUse(_))))
}

/// In the reference both open, and both append under the same version.
#[test]
fn finding_h_a_journal_has_one_opener_in_all_processes() {
    if let Some(folder) = folder() {
        println!("\nrefused: {}", in_use(&reopen(&folder)));
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("j");
    let ask = || {
        let name = "finding_h_a_journal_has_one_opener_in_all_processes";
        let output = other(this_program(), name, &path).output().unwrap();
        assert!(output.status.success());
        String::from_utf8(output.stdout).unwrap()
    };
    let journal = create(&path);
    journal.append(b"ours").unwrap();
    assert!(in_use(&reopen(&path)), "not twice in one process");
    assert!(ask().contains("refused: true"));
    journal.append(b"still ours").unwrap();
    journal.close().unwrap();
    assert!(ask().contains("refused: false"));
    assert_eq!(entries(&reopen(&path).unwrap()), [&b"ours"[..], b"still ours"]);
}

/// The reference goes on appending to the unlinked file, and acknowledges.
#[test]
fn finding_j1_an_append_to_an_unlinked_segment_is_never_acknowledged() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("j");
    let journal = create(&path);
    journal.append(b"before").unwrap();
    let kept = fs::read(segment(&path)).unwrap();
    fs::remove_file(segment(&path)).unwrap();
    let lost = journal.append(b"lost");
    assert!(matches!(lost, Err(JournalAppendError::Uncertain(_))), "{lost:?}");
    assert_eq!(journal.append(b"after"), Err(AppendError::Halted.into()));
    journal.close().unwrap_err();
    assert!(reopen(&path).is_err(), "a journal without its segment is no new journal");
    fs::write(segment(&path), kept).unwrap();
    assert_eq!(entries(&reopen(&path).unwrap()), [b"before"]);
}

#[test]
fn finding_j1_what_is_acknowledged_over_a_replaced_segment_is_in_the_file_that_has_the_name() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("j");
    let journal = create(&path);
    let mut acknowledged = Vec::new();
    for n in 0..4u8 {
        acknowledged.push(vec![n; 100]);
        journal.append(&[n; 100]).unwrap();
        let copy = root.path().join("copy");
        fs::copy(segment(&path), &copy).unwrap();
        fs::rename(copy, segment(&path)).unwrap();
        assert_eq!(entries(&journal), acknowledged, "it reads the file that has the name");
    }
    journal.close().unwrap();
    assert_eq!(entries(&reopen(&path).unwrap()), acknowledged);
}

/// The reference compares paths as text, and through a link overwrote its checkpoint.
#[test]
fn finding_j12_a_path_through_a_link_is_the_same_directory() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("j");
    let links = [root.path().join("link"), root.path().join("link of link"), path.join("../link/.")];
    symlink(&path, &links[0]).unwrap();
    symlink(&links[0], &links[1]).unwrap();
    let journal = create(&path);
    journal.append(b"ours").unwrap();
    let (before, current) = (names(&path), fs::read(path.join("current")).unwrap());
    for link in &links {
        assert!(in_use(&reopen(link)), "{}", link.display());
        let created = BareJournal::create(link, JournalOptions::default());
        assert!(matches!(created, Err(JournalOpenError::Open(OpenError::InUse(_)))), "{created:?}");
    }
    assert_eq!((names(&path), fs::read(path.join("current")).unwrap()), (before, current));
    journal.append(b"still ours").unwrap();
    journal.close().unwrap();
    let through = reopen(&links[1]).unwrap();
    assert!(in_use(&reopen(&path)), "the other way round too");
    assert_eq!(entries(&through), [&b"ours"[..], b"still ours"]);
}

#[test]
fn finding_j12_no_file_is_written_through_a_link_to_another() {
    let root = tempfile::tempdir().unwrap();
    let mut files = Files::open(root.path());
    let (file, bytes) = (FileName::Current, b"which is committed".to_vec());
    files.run(|ticket| StorageCommand::Replace { ticket, file, bytes }).unwrap();
    let segment = SegmentNumber(1);
    files.run(|ticket| StorageCommand::Prepare { ticket, segment, bytes: 64 }).unwrap();
    let current = root.path().join("current");
    let read = || fs::read(&current).unwrap();

    symlink("current", root.path().join("members")).unwrap();
    let (file, bytes) = (FileName::Members, b"members".to_vec());
    files.run(|ticket| StorageCommand::Replace { ticket, file, bytes }).unwrap();
    assert_eq!(read(), b"which is committed");
    let checkpoint = FileName::Checkpoint(7);
    symlink("current", root.path().join(checkpoint.to_string())).unwrap();
    let bytes = b"a checkpoint".to_vec();
    let written = files.run(|ticket| StorageCommand::Write { ticket, file: checkpoint, offset: 0, bytes });
    assert!(written.is_err());
    assert_eq!(read(), b"which is committed");
    fs::remove_file(root.path().join(FileName::Segment(segment).to_string())).unwrap();
    symlink("current", root.path().join(FileName::Segment(segment).to_string())).unwrap();
    let bytes = b"a batch".to_vec();
    assert!(files.run(|ticket| StorageCommand::Append { ticket, segment, offset: 0, bytes }).is_err());
    assert_eq!(read(), b"which is committed");
}

/// Larger than a file of the process that is killed may be.
const TOO_MUCH: usize = 1 << 20;

#[test]
fn finding_j13_the_temporary_files_of_a_killed_process_are_gone_after_the_next_open() {
    if let Some(folder) = folder() {
        let mut files = Files::open(&folder);
        let segment = SegmentNumber(2);
        let (file, bytes) = (FileName::Acked, vec![1; TOO_MUCH]);
        let killed = if folder.join("acked").exists() {
            files.run(|ticket| StorageCommand::Replace { ticket, file, bytes })
        } else {
            files.run(|ticket| StorageCommand::Prepare { ticket, segment, bytes: TOO_MUCH as u64 })
        };
        unreachable!("the system kills whoever writes that much: {killed:?}");
    }
    let root = tempfile::tempdir().unwrap();
    drop(Directory::open(root.path(), OpenMode::Create).unwrap());
    for acked in [false, true] {
        if acked {
            fs::write(root.path().join("acked"), b"old").unwrap();
        }
        let before = names(root.path());
        // Whoever writes more than that into a file is killed there and then, with no chance to clean up.
        let mut shell = Process::new("sh");
        shell.args(["-c", r#"ulimit -c 0; ulimit -f 64; exec "$0" "$@""#]);
        shell.arg(std::env::current_exe().unwrap());
        let name = "finding_j13_the_temporary_files_of_a_killed_process_are_gone_after_the_next_open";
        let output = other(shell, name, root.path()).stderr(Stdio::piped()).output().unwrap();
        assert_eq!(output.status.code(), None, "killed by a signal: {output:?}");
        let left = names(root.path());
        assert_eq!(left.iter().filter(|name| name.starts_with("tmp-")).count(), 1, "{left:?}");
        drop(open(root.path()).unwrap());
        assert_eq!(names(root.path()), before);
    }
    assert_eq!(fs::read(root.path().join("acked")).unwrap(), b"old");
}
