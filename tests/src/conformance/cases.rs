//! Decisions without files: each section of `cases.json` by its name.

use super::Trouble;
use super::cases_books::{self as books, BOOKS};
use super::cases_compaction as compaction;
use super::cases_records as records;
use super::input::Input;
use super::judge::Report;
use serde_json::Value;

type Play = fn(&Input<'_>, &str, &mut Report) -> Result<(), Trouble>;

/// Sections that are lists of cases, each case on its own.
const SECTIONS: [(&str, Play); 16] = [
    ("applier", records::applier),
    ("apply", records::apply),
    ("authority_create", books::authority_create),
    ("authority_next", books::authority_next),
    ("capability", super::messages::capability),
    ("capability_gate", super::messages::capability_gate),
    ("compaction", compaction::compaction),
    ("delivery", records::delivery),
    ("install_snapshot", compaction::install_snapshot),
    ("journal_append", records::journal_append),
    ("membership_progress", books::membership_progress),
    ("membership_replace", books::membership_replace),
    ("plan", records::plan),
    ("session_handle", super::sessions::session_handle),
    ("validate", records::validate),
    ("watermarks_at", books::watermarks_at),
];

/// Sections that explain others.
const EXPLANATIONS: [&str; 2] = ["conventions", "plan_generator"];

/// Plays all sections.
///
/// # Errors
/// A section or a case is not of the form expected.
pub fn play(cases: &Value, report: &mut Report) -> Result<(), Trouble> {
    let input = Input::new(cases);
    for section in input.object()?.keys() {
        let list = input.field(section);
        if let Some((_, play)) = SECTIONS.iter().find(|(name, _)| name == section) {
            for (index, case) in list.elements()?.iter().enumerate() {
                let name = case_name(section, index, case);
                report.case(section);
                play(case, &name, report).map_err(|trouble| format!("{name}: {trouble}"))?;
            }
        } else if let Some((_, play)) = BOOKS.iter().find(|(name, _)| name == section) {
            play(&list, section, report).map_err(|trouble| format!("{section}: {trouble}"))?;
        } else if !EXPLANATIONS.contains(&section.as_str()) {
            return Err(format!("section {section:?} is unknown to this runner"));
        }
    }
    Ok(())
}

fn case_name(section: &str, index: usize, case: &Input<'_>) -> String {
    let id = case.number("id").unwrap_or(index as u64);
    format!("{section} {id}")
}
