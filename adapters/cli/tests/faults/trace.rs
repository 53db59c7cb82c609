//! What a traced program did to files, as `tests/shim/src/trace.rs` records it.

use std::path::Path;

/// A file or folder: device and inode.
pub(crate) type FileId = (u64, u64);

/// A name in a folder.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) folder: FileId,
    pub(crate) name: Vec<u8>,
}

/// How a sync ended.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum SyncEnded {
    Ok,
    Failed,
    /// By a signal: nothing was synced, and nothing was reported.
    Interrupted,
}

/// One record of a trace.
#[derive(Clone, Debug)]
pub(crate) enum Record {
    Write { file: FileId, at: u64, bytes: Vec<u8> },
    Zeros { file: FileId, at: u64, bytes: u64 },
    Resize { file: FileId, bytes: u64 },
    SyncBegin { file: FileId, number: String },
    SyncEnd { file: FileId, number: String, ended: SyncEnded },
    Create { place: Place, file: FileId },
    Mkdir { place: Place, folder: FileId },
    Rename { from: Place, to: Place },
    Unlink { place: Place },
    Say { bytes: Vec<u8> },
    Struck { rule: String },
}

/// Reads a trace.
///
/// # Panics
/// On a record of an unknown call, or that is no record: then the trace proves nothing. A killed
/// program may leave the last record torn; it is left out.
pub(crate) fn read(path: &Path) -> Vec<Record> {
    let bytes = std::fs::read(path).unwrap_or_else(|e| panic!("no trace {}: {e}", path.display()));
    let mut rest = &bytes[..];
    let mut records = Vec::new();
    while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
        let line = std::str::from_utf8(&rest[..end]).expect("words").to_owned();
        rest = &rest[end + 1..];
        let words: Vec<&str> = line.split(' ').collect();
        let mut take = |word: &str| -> Option<Vec<u8>> {
            let count: usize = number(word);
            let (taken, after) = rest.split_at_checked(count)?;
            rest = after;
            Some(taken.to_vec())
        };
        let Some(record) = parse(&words, &mut take) else { break };
        records.push(record);
    }
    records
}

/// One record; `None` if its bytes are torn.
fn parse(words: &[&str], take: &mut impl FnMut(&str) -> Option<Vec<u8>>) -> Option<Record> {
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    Some(match *words {
        ["write", file, at, count] => Record::Write { file: id(file), at: number(at), bytes: take(count)? },
        ["zeros", file, at, count] => Record::Zeros { file: id(file), at: number(at), bytes: number(count) },
        ["resize", file, bytes] => Record::Resize { file: id(file), bytes: number(bytes) },
        ["sync-begin", file, number] => Record::SyncBegin { file: id(file), number: number.to_owned() },
        ["sync-end", file, number, ended] => {
            let ended = match ended {
                "ok" => SyncEnded::Ok,
                "failed" => SyncEnded::Failed,
                "interrupted" => SyncEnded::Interrupted,
                _ => panic!("no end of a sync: {ended:?}"),
            };
            Record::SyncEnd { file: id(file), number: number.to_owned(), ended }
        }
        ["create", folder, name, file] => Record::Create { place: place(folder, name), file: id(file) },
        ["mkdir", parent, name, folder] => Record::Mkdir { place: place(parent, name), folder: id(folder) },
        ["rename", from, old, to, new] => Record::Rename { from: place(from, old), to: place(to, new) },
        ["unlink", folder, name] => Record::Unlink { place: place(folder, name) },
        ["say", count] => Record::Say { bytes: take(count)? },
        ["struck", count] => Record::Struck { rule: text(take(count)?) },
        ["unknown", count] => panic!("the trace does not cover {}", text(take(count)?)),
        _ => panic!("no record: {words:?}"),
    })
}

fn number<T: std::str::FromStr>(word: &str) -> T {
    word.parse().unwrap_or_else(|_| panic!("expected a number, found {word:?}"))
}

fn id(word: &str) -> FileId {
    let (device, inode) = word.split_once(':').unwrap_or_else(|| panic!("expected a file, found {word:?}"));
    (number(device), number(inode))
}

fn place(folder: &str, name: &str) -> Place {
    let name = (0..name.len() / 2).map(|at| u8::from_str_radix(&name[2 * at..][..2], 16).expect("hex"));
    Place { folder: id(folder), name: name.collect() }
}
