//! `strandline history`: what happened to a key.

use super::key::KeyArg;
use crate::context::Context;
use crate::exit::Failure;
use crate::text::{KeyText, VersionText};
use crate::watch::{PageReport, RecordReport};
use serde::Serialize;
use strandline_core::record::Version;

/// Show every change of a key that the journal still holds, oldest first: version, writer, what it made
/// of the key. What lies at or below the floor was compacted to the last change of each key, which is
/// shown while it is the latest one.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    #[command(flatten)]
    key: KeyArg,
}

#[derive(Serialize)]
struct Line<'a> {
    epoch: u64,
    #[serde(flatten)]
    record: &'a RecordReport,
    /// Whether it is still in the journal, and so are the changes before it, up to the floor.
    retained: bool,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<(), Failure> {
    let key = args.key.key()?;
    let (found, floor) = context.with_replica(|replica| {
        let status = replica.status()?;
        let (floor, tail) = (status.floor.0, status.tail.0);
        let mut found = Vec::new();
        // The change that compaction kept, if the key was not changed since.
        if let Some(entry) = replica.get(&key)?.filter(|entry| entry.version <= floor) {
            found.push(RecordReport { key: KeyText::from(&key), entry: (&entry).into() });
        }
        if floor < tail {
            let from = VersionText(floor).to_string().parse().expect("a version is a cursor");
            let mut watch = replica.watch(Some(from))?;
            let wanted = KeyText::from(&key);
            let mut at = floor;
            while at < tail {
                match watch.next()? {
                    None => {}
                    Some(PageReport::Changes { records, .. }) => {
                        at = records.last().map_or(at, |record| record.entry.version.0);
                        let up_to_tail = records.into_iter().filter(|r| r.entry.version.0 <= tail);
                        found.extend(up_to_tail.filter(|record| record.key == wanted));
                    }
                    Some(PageReport::Lost { verdict }) => return Err(verdict.failure().advise("ask again")),
                    Some(PageReport::Ended { why }) => return Err(Failure::peer(why).advise("ask again")),
                    Some(
                        PageReport::ResetBegin { .. }
                        | PageReport::State { .. }
                        | PageReport::ResetEnd { .. },
                    ) => return Err(Failure::peer("the node began a reset that nobody asked for")),
                }
            }
        }
        Ok((found, floor))
    })?;
    if found.is_empty() {
        return Err(Failure::refused(format!("{key} has no record")));
    }
    for record in &found {
        let at: Version = record.entry.version.0;
        let retained = at > floor;
        let kept = if retained { "" } else { "  (changes before it were compacted)" };
        let text = format!("{:<12} {} by {}{kept}", at.to_string(), record.what(), record.entry.authority);
        context.output.result(text, &Line { epoch: at.epoch, record, retained })?;
    }
    Ok(())
}
