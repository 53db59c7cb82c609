//! A tree of more than 10,000 files and 200 MB, through two nodes over TCP and out again: the same
//! names, the same bytes. How long it took is printed beside tools that do less, and never asserted.

mod support;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};
use support::{Replica, wait_until_within};

const FILES: usize = 10_240;
const FOLDERS: usize = 160;
const LARGEST_BYTES: usize = 8 << 20;

/// Longest wait for the repair; only one that hangs reaches it.
const REPAIR: Duration = Duration::from_secs(300);

/// Bytes that differ from file to file and do not shrink: the same for the same file everywhere.
fn content(file: u64, bytes: usize) -> Vec<u8> {
    let mut state = file.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut out = Vec::with_capacity(bytes + 8);
    while out.len() < bytes {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        out.extend_from_slice(&state.to_le_bytes());
    }
    out.truncate(bytes);
    out
}

/// Most files are small; a few are large, some have the same content, some have none.
fn bytes_of(file: usize) -> usize {
    match file {
        0 => LARGEST_BYTES,
        _ if file.is_multiple_of(97) => 0,
        // Either side of the piece in which blobs travel.
        _ if file.is_multiple_of(101) => (256 << 10) - 1 + file % 3,
        _ if file.is_multiple_of(50) => 350_000 + file * 31 % 500_000,
        _ => file * 7919 % 16_384,
    }
}

fn name_of(file: usize) -> Vec<u8> {
    match file % 16 {
        0 => format!(" spaces and\ttabs {file} "),
        1 => format!("-rf {file}"),
        2 => format!("größe-名前-{file}"),
        3 => format!(".hidden{file}"),
        4 => format!("\"quoted\" '{file}' \\ $HOME;*?"),
        5 => format!("line\nbreak {file}"),
        6 => return [&b"\xff\xfe-"[..], file.to_string().as_bytes()].concat(),
        7 => format!("{}{file}", "long-".repeat(40)),
        _ => format!("file-{file:05}"),
    }
    .into_bytes()
}

fn folder_of(root: &Path, folder: usize) -> PathBuf {
    let mut path = root.join(format!("folder {}", folder % 10));
    for level in 0..folder % 7 {
        path.push(format!("level-{level}-{folder}"));
    }
    path
}

/// Makes the tree; its files and its bytes.
fn grow(root: &Path) -> (usize, usize) {
    let mut bytes = 0;
    for folder in 0..FOLDERS {
        let path = folder_of(root, folder);
        std::fs::create_dir_all(path.join(format!("empty {folder}"))).expect("creates");
        for file in (folder..FILES).step_by(FOLDERS) {
            // Every 64th file has the content of another one.
            let twin = if file % 64 == 63 { file - 1 } else { file };
            let content = content(twin as u64, bytes_of(twin));
            bytes += content.len();
            std::fs::write(path.join(OsStr::from_bytes(&name_of(file))), content).expect("writes");
        }
    }
    (FILES, bytes)
}

/// The names of everything below a folder; true are those of folders.
fn listed(root: &Path) -> BTreeMap<PathBuf, bool> {
    let names = listed_names(root).into_iter();
    names.map(|path| (path.strip_prefix(root).expect("below").to_owned(), path.is_dir())).collect()
}

/// Compares the lists of files and folders, then the bytes of every file.
fn assert_same(source: &Path, target: &Path) {
    let (expected, found) = (listed(source), listed(target));
    let missing = expected.iter().find(|(name, folder)| found.get(*name) != Some(*folder));
    assert!(missing.is_none(), "not in the export: {missing:?}");
    let more = found.keys().find(|name| !expected.contains_key(*name));
    assert!(more.is_none(), "only in the export: {more:?}");
    let read = |root: &Path, name: &Path| std::fs::read(root.join(name)).expect("reads");
    for (name, _) in expected.iter().filter(|(_, folder)| !**folder) {
        assert!(read(source, name) == read(target, name), "other bytes: {}", name.display());
    }
}

/// How long it takes.
fn timed(work: impl FnOnce()) -> Duration {
    let start = Instant::now();
    work();
    start.elapsed()
}

/// Copies the tree with another program, and syncs; how long that took.
fn copied(program: &str, args: &[&str], source: &Path, target: &Path) -> Duration {
    let run = |command: &mut Command| {
        let ended = command.status().unwrap_or_else(|error| {
            panic!("expected the program {:?} (.ci/run installs it): {error}", command.get_program())
        });
        assert!(ended.success(), "{command:?}: {ended}");
    };
    // What was written before is not part of this.
    run(&mut Command::new("sync"));
    let took = timed(|| {
        run(Command::new(program).args(args).arg(source).arg(target));
        run(&mut Command::new("sync"));
    });
    std::fs::remove_dir_all(target).expect("removes");
    took
}

/// How many blobs a replica has; uploads under way do not count.
fn blobs(replica: &Replica) -> usize {
    let mut store = listed_names(&replica.dir().join("blobs"));
    store.retain(|path| path.is_file() && !path.parent().is_some_and(|at| at.ends_with("uploads")));
    store.len()
}

/// Everything below a folder.
fn listed_names(root: &Path) -> Vec<PathBuf> {
    let mut out = Vec::new();
    let mut waiting = vec![root.to_owned()];
    while let Some(at) = waiting.pop() {
        for entry in std::fs::read_dir(at).expect("lists") {
            let entry = entry.expect("reads");
            if entry.file_type().expect("told").is_dir() {
                waiting.push(entry.path());
            }
            out.push(entry.path());
        }
    }
    out
}

struct Times {
    import: Duration,
    repair: Duration,
    export: Duration,
}

/// Takes the tree through both nodes.
fn through(a: &mut Replica, source: &Path, target: &Path) -> Times {
    let import = timed(|| drop(a.done([OsStr::new("import"), source.as_os_str()])));
    let status = a.status();
    let mut b = Replica::new();
    b.done(["init", "--identity", "b", "--follow", "--log", status["log"].as_str().expect("a log")]);
    let address = a.serve("[[peers]]\nidentity = \"b\"\ntoken = \"of b\"\n");
    let call = format!("token = \"of b\"\n[[peers]]\nidentity = \"a\"\naddress = \"{address}\"\n");
    let repair = timed(|| {
        b.serve(&call);
        wait_until_within(REPAIR, "the same tail", || b.status()["tail"] == status["tail"]);
        // Blobs may come after their records.
        let all = blobs(a);
        wait_until_within(REPAIR, "the blobs", || blobs(&b) == all);
    });
    assert_eq!(b.status()["tail_digest"], status["tail_digest"]);
    assert_eq!((a.stop(), b.stop()), (0, 0));
    let export = timed(|| drop(b.done([OsStr::new("export"), target.as_os_str()])));
    Times { import, repair, export }
}

#[test]
fn a_large_tree_is_the_same_after_import_repair_and_export() {
    let mut a = Replica::writer("a");
    let (source, target, copy) = (a.path("source"), a.path("target"), a.path("copy"));
    let (files, bytes) = grow(&source);
    assert!(files >= 10_000 && bytes >= 200 << 20, "{files} files, {bytes} bytes");
    let cp = copied("cp", &["-r", "--"], &source, &copy);
    let from = source.join("");
    let rsync = copied("rsync", &["-a", "--"], &from, &copy);
    let times = through(&mut a, &source, &target);
    assert_same(&source, &target);

    let ratio = |one: Duration, of: Duration| one.as_secs_f64() / of.as_secs_f64();
    let mut out = std::io::stdout().lock();
    writeln!(out, "{files} files, {} MiB; build: {}", bytes >> 20, build()).expect("writes");
    for (what, took, beside, of) in [
        ("import", times.import, "cp -r + sync", cp),
        ("repair", times.repair, "cp -r + sync", cp),
        ("repair", times.repair, "rsync -a + sync", rsync),
        ("export", times.export, "cp -r + sync", cp),
    ] {
        let times = ratio(took, of);
        writeln!(out, "{what}: {took:.1?}, {times:.2} times {beside} ({of:.1?})").expect("writes");
    }
}

const fn build() -> &'static str {
    if cfg!(debug_assertions) { "debug" } else { "release" }
}
