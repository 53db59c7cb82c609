//! What the program says: to a person as text and tables, to a program as JSON lines.

use crate::exit::Failure;
use comfy_table::{ContentArrangement, Table, presets};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};

/// Width of tables where there is no terminal to ask.
const COLUMNS: u16 = 120;

/// Where results go and in which form.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Output {
    json: bool,
}

impl Output {
    pub(crate) const fn new(json: bool) -> Self {
        Self { json }
    }

    pub(crate) const fn is_json(self) -> bool {
        self.json
    }

    /// One result: `text` for people or `value` as one line of JSON.
    pub(crate) fn result(self, text: impl Display, value: &impl Serialize) -> Result<(), Failure> {
        if self.json { write_line(&mut io::stdout().lock(), &json(value)) } else { self.text(text) }
    }

    /// A line for people only.
    pub(crate) fn text(self, text: impl Display) -> Result<(), Failure> {
        if self.json { Ok(()) } else { write_line(&mut io::stdout().lock(), &text.to_string()) }
    }

    /// A table for people only.
    pub(crate) fn table<const N: usize>(
        self,
        headers: [&str; N],
        rows: impl IntoIterator<Item = [String; N]>,
    ) -> Result<(), Failure> {
        let mut table = Table::new();
        table.load_style(presets::UTF8_FULL_CONDENSED);
        table.set_content_arrangement(ContentArrangement::Dynamic);
        if !io::stdout().is_terminal() {
            table.set_width(COLUMNS);
        }
        table.set_header(headers);
        table.add_rows(rows);
        self.text(table)
    }

    /// Something a person should know that is no result; on standard error, never in JSON mode.
    pub(crate) fn note(self, text: impl Display) {
        if !self.json {
            // Nothing can be done where standard error is gone.
            let _ = writeln!(io::stderr().lock(), "{text}");
        }
    }

    /// Something that a person and a program must know and that is no result; on standard error.
    pub(crate) fn warning(self, text: impl Display, value: &impl Serialize) {
        let text = if self.json { json(value) } else { text.to_string() };
        // Nothing can be done where standard error is gone.
        let _ = writeln!(io::stderr().lock(), "{text}");
    }

    /// The end of a command that failed; on standard error.
    pub(crate) fn failure(self, failure: &Failure) {
        #[derive(Serialize)]
        struct Line<'a> {
            error: &'a Failure,
        }
        let text = if self.json { json(&Line { error: failure }) } else { format!("strandline: {failure}") };
        // Nothing can be done where standard error is gone; the exit code still tells.
        let _ = writeln!(io::stderr().lock(), "{text}");
    }

    /// A progress bar on standard error, hidden unless that is a terminal.
    pub(crate) fn progress(self, what: &'static str, total: u64) -> ProgressBar {
        if self.json || !io::stderr().is_terminal() {
            return ProgressBar::hidden();
        }
        let style = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {eta}")
            .expect("the template is constant and valid");
        ProgressBar::new(total).with_style(style).with_message(what)
    }
}

fn json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("our values have string keys and no failing parts")
}

fn write_line(out: &mut impl Write, line: &str) -> Result<(), Failure> {
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|error| Failure::output(&error))
}
