//! `strandline history`: what happened to a key.

use super::key::KeyArg;
use crate::backend::Backend;
use crate::context::Context;
use crate::exit::Failure;
use crate::text::{KeyText, VersionText};
use crate::watch::{PageReport, RecordReport};
use serde::Serialize;
use strandline_core::record::{Key, Version};

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
    let (found, floor) = context.with_replica(|replica| changes(replica, &key))?;
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

/// The changes of a key that are still held, up to the tail of this moment, and the floor.
fn changes(replica: &mut dyn Backend, key: &Key) -> Result<(Vec<RecordReport>, Version), Failure> {
    let status = replica.status()?;
    let (floor, tail) = (status.floor.0, status.tail.0);
    let mut found = Vec::new();
    // The change that compaction kept, if the key was not changed since.
    if let Some(entry) = replica.get(key)?.filter(|entry| entry.version <= floor) {
        found.push(RecordReport { key: KeyText::from(key), entry: (&entry).into() });
    }
    if floor < tail {
        found.extend(journaled(replica, key, floor, tail)?);
    }
    Ok((found, floor))
}

/// The changes of a key above `floor`, up to `tail`.
fn journaled(
    replica: &mut dyn Backend,
    key: &Key,
    floor: Version,
    tail: Version,
) -> Result<Vec<RecordReport>, Failure> {
    let from = VersionText(floor).to_string().parse().expect("a version is a cursor");
    let mut watch = replica.watch(Some(from))?;
    if !watch.verdict().is_complete() {
        // Compaction went on meanwhile: no page would ever come.
        return Err(watch.verdict().failure().advise("ask again"));
    }
    let (wanted, mut found, mut at) = (KeyText::from(key), Vec::new(), floor);
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
            Some(PageReport::ResetBegin { .. } | PageReport::State { .. } | PageReport::ResetEnd { .. }) => {
                return Err(Failure::peer("the node began a reset that nobody asked for"));
            }
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::fake::Fake;
    use crate::exit::Exit;
    use std::sync::mpsc::channel;
    use std::time::Duration;
    use strandline_core::lifecycle::api::{Change, Mutation};
    use strandline_core::record::BlobKey;

    fn key() -> Key {
        Key::from_parts(b"files", b"k").expect("short")
    }

    /// A replica with two changes, and what `history` says of it, which must not take for ever.
    fn asked(prepare: impl FnOnce(&mut Fake)) -> Result<usize, Failure> {
        let mut fake = Fake::default();
        for blob in [[1; 32], [2; 32]] {
            let change = Change::Put { blob: BlobKey(blob) };
            fake.batch(&[Mutation { key: key(), change, if_version: None }]).expect("accepted");
        }
        prepare(&mut fake);
        let (answer, answered) = channel();
        std::thread::spawn(move || answer.send(changes(&mut fake, &key()).map(|(found, _)| found.len())));
        answered.recv_timeout(Duration::from_secs(60)).expect("it ends")
    }

    #[test]
    fn a_floor_that_moves_meanwhile_ends_it() {
        assert_eq!(asked(|_| ()), Ok(1), "the fake gives the last change only");
        let failure = asked(|fake| fake.compact_before_watch()).expect_err("is compacted");
        assert_eq!((failure.exit, failure.advice.as_deref()), (Exit::Refused, Some("ask again")));
        assert!(failure.message.contains("below-floor"), "{failure}");
    }
}
