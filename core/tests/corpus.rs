//! Replays the corpora of the fuzz targets through the very code the fuzzer runs.
#![cfg(feature = "lifecycle")]
#![expect(unreachable_pub, reason = "the checks belong to the fuzz crate, where they are public")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

#[path = "../../fuzz/src/checkpoint.rs"]
mod checkpoint;
#[path = "../../fuzz/src/frames.rs"]
mod frames;
#[path = "../../fuzz/src/handshake.rs"]
mod handshake;
#[path = "../../fuzz/src/journal.rs"]
mod journal;
#[path = "../../fuzz/src/messages.rs"]
mod messages;
#[path = "../../fuzz/src/records.rs"]
mod records;

/// A target and what it checks; `true` if the input was accepted.
type Target = (&'static str, fn(&[u8]) -> bool);

const TARGETS: [Target; 6] = [
    ("checkpoint", checkpoint::check),
    ("frames", frames::check),
    ("handshake", handshake::check),
    ("journal", journal::check),
    ("messages", messages::check),
    ("records", records::check),
];

fn fuzz_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz")
}

fn names(dir: &Path) -> BTreeSet<String> {
    let entries = fs::read_dir(dir).unwrap_or_else(|e| panic!("{}: {e}", dir.display()));
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn every_input_of_every_corpus_keeps_the_promises() {
    for (target, check) in TARGETS {
        let dir = fuzz_dir().join("corpus").join(target);
        let (mut accepted, mut refused) = (0, 0);
        for name in names(&dir) {
            let taken = check(&fs::read(dir.join(&name)).unwrap());
            println!("{target}: {name}: {}", if taken { "accepted" } else { "refused" });
            *if taken { &mut accepted } else { &mut refused } += 1;
        }
        assert!(accepted > 0 && refused > 0, "{target}: {accepted} inputs accepted, {refused} refused");
    }
}

#[test]
fn every_fuzz_target_is_replayed() {
    let replayed: BTreeSet<String> = TARGETS.iter().map(|(target, _)| (*target).to_owned()).collect();
    let targets: BTreeSet<String> = names(&fuzz_dir().join("fuzz_targets"))
        .iter()
        .map(|file| file.strip_suffix(".rs").expect("a target is a Rust file").to_owned())
        .collect();
    assert_eq!(replayed, targets);
    assert_eq!(replayed, names(&fuzz_dir().join("corpus")));
}
