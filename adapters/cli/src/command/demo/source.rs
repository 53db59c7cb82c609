//! The tree that the demo imports where none is given: the project's own sources if it is started
//! among them, and generated files of all sizes that matter.

use crate::exit::Failure;
use crate::tree::scan::scan;
use std::fs;
use std::path::Path;

/// Generated files beside the large ones: more than a repair batch holds.
const SMALL_FILES: u64 = 400;

/// Larger than a frame of the wire.
const LARGE_BYTES: u64 = 6 << 20;

/// What of the project is copied.
const OWN_SOURCES: [&str; 4] = ["core", "adapters", "docs", "tests"];

/// Fills `target`, an empty directory.
pub(super) fn make(target: &Path) -> Result<(), Failure> {
    for own in OWN_SOURCES {
        if Path::new(own).is_dir() && Path::new("Cargo.toml").is_file() {
            copy(Path::new(own), &target.join("sources").join(own))?;
        }
    }
    let generated = target.join("generated");
    for n in 0..SMALL_FILES {
        let bytes = if n % 8 == 0 { 48 << 10 } else { n * 37 % 9_000 };
        write(&generated.join(format!("group {}/file-{n:04}", n % 16)), &content(n, bytes))?;
    }
    write(&generated.join("large"), &content(SMALL_FILES, LARGE_BYTES))?;
    write(&generated.join("größer ünd \u{1f30a}"), &content(SMALL_FILES + 1, LARGE_BYTES / 2))?;
    write(&generated.join("empty file"), b"")?;
    make_dir(&generated.join("empty directory/inside"))
}

fn make_dir(path: &Path) -> Result<(), Failure> {
    fs::create_dir_all(path).map_err(|e| Failure::io("make", path, &e))
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), Failure> {
    make_dir(path.parent().expect("all lie below the target"))?;
    fs::write(path, bytes).map_err(|e| Failure::io("write", path, &e))
}

fn copy(from: &Path, to: &Path) -> Result<(), Failure> {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;
    let scanned = scan(from, None, u32::MAX)?;
    make_dir(to)?;
    // What a build leaves is no source, and may be many times as large.
    let is_source = |key: &[u8]| key.split(|b| *b == b'/').all(|name| name != b"target");
    for found in scanned.found.into_iter().filter(|found| is_source(&found.key)) {
        let path = OsStr::from_bytes(&found.key);
        if found.is_directory() {
            make_dir(&to.join(path))?;
        } else {
            fs::copy(from.join(path), to.join(path))
                .map_err(|e| Failure::io("copy", &from.join(path), &e))?;
        }
    }
    Ok(())
}

/// Bytes that do not compress and differ between files.
fn content(file: u64, bytes: u64) -> Vec<u8> {
    let mut state = file.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..bytes)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[5]
        })
        .collect()
}
