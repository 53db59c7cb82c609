//! `strandline explain`: why a cursor is answered as it is.

use crate::context::Context;
use crate::exit::Failure;
use crate::watch::CursorText;

/// Say what can be vouched for to who has everything up to a cursor, with the evidence and what to do.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// A cursor, as `watch` prints it, or a plain EPOCH.SEQUENCE of this log.
    cursor: CursorText,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<(), Failure> {
    let report = context.with_replica(|replica| replica.judge(args.cursor))?;
    let output = context.output;
    if output.is_json() {
        return output.result("", &report);
    }
    let reason = report.reason.clone().unwrap_or_else(|| "-".to_owned());
    let rows = [
        ("verdict", report.verdict.clone()),
        ("reason", reason),
        ("cursor", report.cursor.to_string()),
        ("floor", report.floor.to_string()),
        ("tail", report.tail.to_string()),
        ("incarnation", report.incarnation.clone()),
        ("that is", report.text.clone()),
        ("what to do", report.advice.unwrap_or_else(|| "nothing: go on from it".to_owned())),
    ];
    output.table(["cursor", ""], rows.map(|(name, value)| [name.to_owned(), value]))
}
