//! Replays the corpora of the fuzz targets through the very code the fuzzer runs.
#![cfg(all(feature = "lifecycle", feature = "streams"))]
#![expect(unreachable_pub, reason = "the checks belong to the fuzz crate, where they are public")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

#[path = "common/blobs.rs"]
#[allow(dead_code, reason = "other test binaries use other parts of it")]
mod blobs;
#[path = "../../fuzz/src/checkpoint.rs"]
mod checkpoint;
#[path = "common/disk.rs"]
#[allow(dead_code, reason = "other test binaries use other parts of it")]
mod disk;
#[path = "../../fuzz/src/frames.rs"]
mod frames;
#[path = "../../fuzz/src/handshake.rs"]
mod handshake;
#[path = "../../fuzz/src/input.rs"]
mod input;
#[path = "../../fuzz/src/journal.rs"]
mod journal;
#[path = "../../fuzz/src/journal_log.rs"]
mod journal_log;
#[path = "../../fuzz/src/messages.rs"]
mod messages;
#[path = "../../fuzz/src/records.rs"]
mod records;
#[path = "../../fuzz/src/recovery.rs"]
mod recovery;
#[path = "../../fuzz/src/replica/mod.rs"]
mod replica;
#[path = "../../fuzz/src/streams.rs"]
mod streams;

/// A target and what it checks; `true` if the input was accepted.
type Target = (&'static str, fn(&[u8]) -> bool);

const TARGETS: [Target; 10] = [
    ("checkpoint", checkpoint::check),
    ("frames", frames::check),
    ("handshake", handshake::check),
    ("journal", journal::check),
    ("journal_log", journal_log::check),
    ("messages", messages::check),
    ("records", records::check),
    ("recovery", recovery::check),
    ("replica", replica::check),
    ("streams", streams::check),
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

/// Targets whose bytes are operations: any bytes are an input, so numbers make inputs, too.
const OPERATIONS: [Target; 3] =
    [("journal_log", journal_log::check), ("recovery", recovery::check), ("replica", replica::check)];

#[test]
fn operations_from_numbers_keep_the_promises() {
    let soak = std::env::var_os("STRANDLINE_SOAK").is_some();
    for (target, check) in OPERATIONS {
        let mut accepted = 0;
        for seed in 0..if soak { 200_000 } else { 2_000 } {
            accepted += u32::from(check(&input_of(seed)));
        }
        println!("{target}: {accepted} inputs accepted");
        assert!(accepted > 100, "{target}: {accepted} inputs did anything");
    }
}

/// The bytes of a seed: some tens to a thousand.
fn input_of(seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    };
    let words = 4 + next() % 125;
    (0..words).flat_map(|_| next().to_be_bytes()).collect()
}
