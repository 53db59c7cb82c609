//! Speeds, each beside a reference that was measured in the same run.
//!
//! Prints a table and writes `target/bench/summary.json`. Every figure is the median of rounds in
//! which ours and the references take turns; compare ratios, since the machine may be shared.
//! `BENCH_QUICK=1` takes one short round, to see that everything runs; `BENCH_ONLY=journal`, `replica`,
//! `live` or `streams` takes these rows only.

mod append;
mod cpu;
mod live;
mod measure;
mod open;
mod plan;
mod records;
mod repair;
mod streams;

use comfy_table::{CellAlignment, Table, presets};
use measure::{Row, Scale};
use serde::Serialize;
use std::error::Error;
use std::path::{Path, PathBuf};

/// Where the summary goes and the files of the runs lie: the build's own folder, on a disk.
fn folder() -> Result<PathBuf, Box<dyn Error>> {
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"), PathBuf::from);
    let folder = target.join("bench");
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// One row as the summary holds it.
#[derive(Serialize)]
struct Line<'a> {
    name: &'a str,
    ours: f64,
    unit: &'a str,
    beside: String,
    ratio: f64,
}

impl<'a> From<&'a Row> for Line<'a> {
    fn from(row: &'a Row) -> Self {
        let beside = format!("{}: {:.1} {}", row.beside, row.theirs, row.unit);
        Self { name: &row.name, ours: row.ours, unit: row.unit, beside, ratio: row.ratio() }
    }
}

fn print(rows: &[Row]) {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header(["name", "ours", "unit", "beside", "theirs", "ratio"]);
    for row in rows {
        table.add_row([
            row.name.clone(),
            format!("{:.1}", row.ours),
            row.unit.to_owned(),
            row.beside.to_owned(),
            format!("{:.1}", row.theirs),
            format!("{:.2}", row.ratio()),
        ]);
    }
    for column in [1, 4, 5] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    println!("{table}");
}

fn main() -> Result<(), Box<dyn Error>> {
    let scale = Scale::from_environment();
    let folder = folder()?;
    let work = tempfile::tempdir_in(&folder)?;
    let mut rows = Vec::new();
    let only = std::env::var("BENCH_ONLY").ok();
    let wanted = |part: &str| only.as_deref().is_none_or(|only| only == part);
    if wanted("journal") {
        cpu::encode(&scale, &mut rows)?;
        append::rows(&scale, work.path(), &mut rows)?;
        open::recovery(&scale, work.path(), &mut rows)?;
    }
    if wanted("replica") {
        open::replica(&scale, work.path(), &mut rows)?;
        repair::rows(&scale, work.path(), &mut rows)?;
        plan::rows(&scale, &mut rows)?;
        cpu::decode(&scale, &mut rows)?;
        cpu::apply(&scale, &mut rows);
    }
    if wanted("live") {
        live::rows(&scale, &mut rows)?;
    }
    if wanted("streams") {
        streams::rows(&scale, work.path(), &mut rows)?;
    }
    let lines: Vec<_> = rows.iter().map(Line::from).collect();
    let summary = folder.join("summary.json");
    std::fs::write(&summary, serde_json::to_vec_pretty(&lines)?)?;
    print(&rows);
    println!("{} rows, medians of {}; ratio 1 or more: ours is as good or better", rows.len(), scale.rounds);
    Ok(())
}
