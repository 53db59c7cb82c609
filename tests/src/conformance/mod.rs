//! Plays the conformance vectors: bytes and decisions recorded from the reference, in both
//! directions. Whatever differs must fall under one row of the two tables of differences, by rule;
//! names of files play no part in that.

pub mod cases;
mod cases_books;
mod cases_compaction;
mod cases_records;
pub mod expectations;
mod files;
mod handshake;
mod input;
mod judge;
mod messages;
mod sessions;

pub use judge::Report;

use input::Input;
use serde_json::Value;
use std::path::Path;

/// What this runner answers to a vector it cannot make sense of.
pub type Trouble = String;

/// Plays every vector of a directory: `manifest.json` with its files, `cases.json`,
/// `isprint_ranges.json` (each may be absent but the manifest).
///
/// # Errors
/// The directory is not of this form. What differs is in the report.
pub fn play(directory: &Path) -> Result<Report, Trouble> {
    let mut report = Report::default();
    let manifest = read_json(&directory.join("manifest.json"))?;
    files::defaults(&manifest, &mut report)?;
    for file in Input::new(&manifest).list("files")? {
        let name = file.text("file")?;
        let bytes = std::fs::read(directory.join(name)).map_err(|error| format!("{name}: {error}"))?;
        report.file(file.text("kind")?);
        play_file(&file, name, &bytes, &mut report).map_err(|trouble| format!("{name}: {trouble}"))?;
    }
    if let Some(cases) = read_json_if_any(&directory.join("cases.json"))? {
        cases::play(&cases, &mut report)?;
    }
    if let Some(ranges) = read_json_if_any(&directory.join("isprint_ranges.json"))? {
        files::printable(&ranges, &mut report)?;
    }
    Ok(report)
}

fn play_file(file: &Input<'_>, name: &str, bytes: &[u8], report: &mut Report) -> Result<(), Trouble> {
    if input::sha256(bytes) != file.text("sha256")? || bytes.len() as u64 != file.number("size")? {
        return Err("the file is not the one the manifest describes".into());
    }
    match file.text("kind")? {
        "journal" => files::journal(file, name, bytes, report),
        "checkpoint" => files::checkpoint(file, name, bytes, report),
        "authority" => files::authority(file, name, bytes, report),
        "membership" => files::membership(file, name, bytes, report),
        "watermarks" => files::watermarks(file, name, bytes, report),
        "wire" => messages::wire(file, name, bytes, report),
        "shv1" => messages::frames(file, name, bytes, report),
        "handshake" => handshake::handshake(file, name, bytes, report),
        other => Err(format!("kind {other:?} is unknown to this runner")),
    }
}

fn read_json(path: &Path) -> Result<Value, Trouble> {
    let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
    serde_json::from_slice(&bytes).map_err(|error| format!("{}: {error}", path.display()))
}

fn read_json_if_any(path: &Path) -> Result<Option<Value>, Trouble> {
    if path.exists() { read_json(path).map(Some) } else { Ok(None) }
}
