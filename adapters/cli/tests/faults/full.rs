//! Full disks: a limit of the system on the length of files, a small file system that is really full,
//! and calls that fail as if it were. What does not fit is refused or uncertain and says why; nothing
//! acknowledged is lost; with room again the next process goes on.

use crate::client::{self, Work, complaints, judge, short};
use crate::scratch;
use crate::shim::Shim;
use crate::support::Replica;
use crate::told::Told;
use std::path::Path;
use std::process::Command;

/// Runs the child with room for everything.
fn works(log: &Path, run: u64, steps: u64, told: &mut Told) {
    let ended = client::child(log, Work::Steps { run, steps }, &Shim::default()).output().expect("runs");
    told.hear(&ended.stdout);
    assert!(ended.status.success(), "{}", complaints(&ended));
    assert_eq!(told.uncertain + told.refused, 0, "{}", complaints(&ended));
}

/// Runs the child, made by `start`, without room: somebody must be told, with these words.
fn does_not_fit(mut start: Command, told: &mut Told, words: &str) {
    let ended = start.output().expect("runs");
    let before = told.acknowledged;
    told.hear(&ended.stdout);
    let said = complaints(&ended);
    assert!(told.uncertain + told.refused > 0, "everything fitted: {said}");
    assert!(said.contains(words), "expected {words:?} in {said}");
    println!(
        "without room: {} acknowledged, {} uncertain, {} refused",
        told.acknowledged - before,
        told.uncertain,
        told.refused
    );
}

/// What was told holds, and the next process goes on.
fn goes_on(log: &Path, mut told: Told) {
    judge(log, short(), &told).unwrap_or_else(|why| panic!("{why}"));
    (told.uncertain, told.refused) = (0, 0);
    works(log, 3, 10, &mut told);
    judge(log, short(), &told).unwrap_or_else(|why| panic!("{why}"));
}

#[test]
fn a_limit_on_the_length_of_files() {
    let home = scratch();
    let log = home.path().join("log");
    let mut told = Told::default();
    // Little, so that it is the next segment that does not fit.
    works(&log, 1, 1, &mut told);
    // 16 blocks of 512 bytes: less than a segment. The ignored signal makes it an error.
    let mut shell = Command::new("sh");
    shell.args(["-c", r#"trap "" XFSZ; ulimit -f 16; exec "$0" "$@""#]);
    shell.arg(std::env::current_exe().expect("itself"));
    client::prepare(&mut shell, &log, Work::Steps { run: 2, steps: 40 });
    does_not_fit(shell, &mut told, "File too large");
    goes_on(&log, told);
}

#[test]
fn calls_that_fail_as_on_a_full_disk() {
    let home = scratch();
    let log = home.path().join("log");
    let mut told = Told::default();
    works(&log, 1, 10, &mut told);
    does_not_fit(no_room_after(&log, 60), &mut told, "No space left on device");
    goes_on(&log, told);
}

/// A child whose writes fail from one on.
fn no_room_after(log: &Path, writes: u64) -> Command {
    let shim =
        Shim::default().with_rules(format!("write log/ {writes} short; write log/ {}+ 28", writes + 1));
    client::child(log, Work::Steps { run: 2, steps: 40 }, &shim)
}

/// A file system in memory, gone when it is dropped.
struct Mounted<'a>(&'a Path);

impl<'a> Mounted<'a> {
    fn new(at: &'a Path, bytes: u64) -> Result<Self, String> {
        let size = format!("size={bytes},mode=0700");
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(at).output();
        match mount {
            Ok(ended) if ended.status.success() => Ok(Self(at)),
            Ok(ended) => Err(complaints(&ended)),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        // A lazy one does not fail while something is still being closed.
        let _ = Command::new("umount").arg("-l").arg(self.0).status();
    }
}

#[test]
fn a_small_file_system_that_is_full() {
    let home = tempfile::tempdir().expect("a folder");
    let mounted = Mounted::new(home.path(), 2 << 20);
    let log = home.path().join("log");
    let mut told = Told::default();
    works(&log, 1, 10, &mut told);
    match &mounted {
        Ok(_) => {
            println!("a tmpfs of 2 MiB was mounted, and filled");
            let filler = home.path().join("filler");
            fill(&filler, 96 << 10);
            let child = client::child(&log, Work::Steps { run: 2, steps: 40 }, &Shim::default());
            does_not_fit(child, &mut told, "No space left on device");
            std::fs::remove_file(filler).expect("removes");
        }
        Err(why) => {
            println!("no tmpfs, played by failing calls instead: mount says {why}");
            does_not_fit(no_room_after(&log, 90), &mut told, "No space left on device");
        }
    }
    goes_on(&log, told);
}

/// Fills the file system but for some bytes.
fn fill(filler: &Path, left: u64) {
    use std::io::Write;
    let mut file = std::fs::File::create(filler).expect("creates");
    let mut bytes = 0;
    while file.write_all(&[1; 4096]).is_ok() {
        bytes += 4096;
    }
    file.set_len(u64::saturating_sub(bytes, left)).expect("shrinks");
}

#[test]
fn a_node_on_a_full_disk_says_so_and_goes_on_after_its_next_start() {
    let mut node = Replica::writer("a");
    let full = node.path("full");
    let shim = Shim::default().with_rules("write log/ 1+ 28").only_while(&full);
    node.variables = shim.variables();
    node.serve("");
    node.put("before", b"kept");

    // No room for the blob: refused, and nothing else happened.
    std::fs::write(&full, b"").expect("creates");
    let ended = node.try_put("refused", b"bytes");
    assert_eq!(ended.code, 3, "{}", ended.stderr);
    assert!(
        ended.stderr.contains("No space left") && ended.stderr.contains("free space"),
        "{}",
        ended.stderr
    );
    std::fs::remove_file(&full).expect("removes");
    node.put("between", b"kept");

    // No room for the record: nobody knows, and the node ends, since its journal has.
    std::fs::write(&full, b"").expect("creates");
    let ended = node.run(["delete", "before"]);
    assert_eq!(ended.code, 5, "{}", ended.stderr);
    assert!(ended.stderr.contains("No space left"), "{}", ended.stderr);
    assert_eq!(node.ended(), 3);
    assert!(node.said().contains("No space left") && node.said().contains("free space"), "{}", node.said());
    let ended = node.try_put("refused", b"bytes");
    assert_eq!(ended.code, 3, "nor does the directory open without room: {}", ended.stderr);
    std::fs::remove_file(&full).expect("removes");

    node.serve("");
    assert_eq!(node.plain(["get", "between"]).stdout, b"kept");
    assert_eq!(node.run(["get", "refused"]).code, 1);
    let before = node.run(["get", "before"]).code;
    assert!(before == 0 || before == 1, "uncertain is before or after");
    node.put("after", b"goes on");
    assert_eq!(node.run(["verify"]).code, 0);
    assert_eq!(node.stop(), 0);
}
