//! Bytes on the disk that are not the bytes that were written, and reads that fail. Nothing is
//! believed that was not written: the log is refused, or the blob is reported, or it hit a place that
//! holds nothing.

use crate::client::{Work, child, complaints, judge, run, short};
use crate::disk::Dice;
use crate::shim::Shim;
use crate::told::Told;
use crate::trace::Record;
use crate::{scratch, soak};
use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const SECTOR: u64 = 512;

/// A log that was closed in order, and what its clients were told.
fn closed(dir: &Path) -> Told {
    let ran = run(dir, Work::Steps { run: 0, steps: 30 }, "");
    assert!(ran.closed, "{}", ran.complaints);
    std::fs::remove_file(dir.with_extension("trace")).expect("removes");
    let mut told = Told::default();
    for record in &ran.records {
        if let Record::Say { bytes } = record {
            told.hear(bytes);
        }
    }
    told
}

/// The files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("lists") {
        let entry = entry.expect("lists");
        if entry.file_type().expect("is there").is_dir() {
            found.extend(files(&entry.path()));
        } else {
            found.push(entry.path());
        }
    }
    found.sort();
    found
}

fn copy(from: &Path, to: &Path) {
    for file in files(from) {
        let target = to.join(file.strip_prefix(from).expect("below"));
        std::fs::create_dir_all(target.parent().expect("below")).expect("creates");
        std::fs::copy(file, target).expect("copies");
    }
}

/// What becomes of bytes.
#[derive(Clone, Copy, Debug)]
enum Damage {
    BitFlip,
    StaleSector,
    MisdirectedWrite,
}

impl Damage {
    /// Damages a file somewhere; false if that changes nothing.
    fn strike(self, file: &File, bytes: u64, dice: &mut Dice) -> bool {
        let sectors = bytes.div_ceil(SECTOR);
        let at = dice.below(sectors) * SECTOR;
        let read = |at: u64| {
            let mut sector = vec![0; SECTOR.min(bytes - at) as usize];
            file.read_exact_at(&mut sector, at).expect("reads");
            sector
        };
        let old = read(at);
        let mut new = old.clone();
        match self {
            Self::BitFlip => {
                let byte = dice.below(old.len() as u64) as usize;
                new[byte] ^= 1 << dice.below(8);
            }
            Self::StaleSector => new.fill(0),
            Self::MisdirectedWrite => {
                let other = read(dice.below(sectors) * SECTOR);
                let count = other.len().min(new.len());
                new[..count].copy_from_slice(&other[..count]);
            }
        }
        file.write_all_at(&new, at).expect("writes");
        old != new
    }
}

#[test]
fn damage_to_a_log_that_was_closed_is_reported_or_hit_a_place_that_holds_nothing() {
    let home = scratch();
    let log = home.path().join("log");
    let told = closed(&log);
    let (mut dice, mut reported, mut harmless) = (Dice(11), 0, 0);
    for damage in [Damage::BitFlip, Damage::StaleSector, Damage::MisdirectedWrite] {
        for round in 0..if soak() { 5_000 } else { 120 } {
            let image = scratch();
            let copied = image.path().join("log");
            copy(&log, &copied);
            // Most of the bytes are in blobs, most of the promises are not.
            let mut targets = files(&copied);
            targets.retain(|file| file.starts_with(copied.join("blobs")) == (round % 4 == 0));
            let target = &targets[dice.below(targets.len() as u64) as usize];
            let file = OpenOptions::new().read(true).write(true).open(target).expect("opens");
            let bytes = file.metadata().expect("is there").len();
            if bytes == 0 || !damage.strike(&file, bytes, &mut dice) {
                continue;
            }
            match judge(&copied, short(), &told) {
                Ok(()) => harmless += 1,
                // A damaged version number may look like one of the future.
                Err(why) if why.contains("damaged: ") || why.contains("format too new: ") => reported += 1,
                Err(why) => panic!("{damage:?} in {}: {why}", target.display()),
            }
        }
    }
    println!("{reported} damages reported, {harmless} harmless");
    assert!(reported > 50, "too few to prove anything");
}

#[test]
fn a_read_that_fails_is_never_the_end_of_a_file() {
    let home = scratch();
    let log = home.path().join("log");
    let told = closed(&log);
    let mut refused = 0;
    for (file, most) in [("current", 1), ("segment-", 9), ("checkpoint", 2), ("authority", 1)] {
        for number in 1..=most {
            let trace = home.path().join("trace");
            let _ = std::fs::remove_file(&trace);
            let shim = Shim::tracing(&trace).with_rules(format!("read log/{file} {number} 5"));
            let ended = child(&log, Work::Open, &shim).output().expect("runs");
            let said = complaints(&ended);
            let records = if trace.exists() { crate::trace::read(&trace) } else { Vec::new() };
            let struck = records.iter().any(|record| matches!(record, Record::Struck { .. }));
            assert!(struck || number > 1, "{file}: no read fitted");
            if struck {
                assert!(
                    said.contains("not opened") && said.contains("os error 5"),
                    "{file} {number}: {said}"
                );
                refused += 1;
            }
            let unharmed = judge(&log, short(), &told);
            assert_eq!(unharmed, Ok(()), "after read {number} of {file} had failed");
        }
    }
    let shim = Shim::default().with_rules("read * 1+ short");
    let ended = child(&log, Work::Open, &shim).output().expect("runs");
    assert!(ended.stdout.windows(6).any(|word| word == b"closed"), "short reads: {}", complaints(&ended));
    println!("{refused} failed reads, each of them refused");
}
