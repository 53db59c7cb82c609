//! Following the changes of the replica in this process.

use super::node::{NodeBackend, unavailable};
use crate::exit::Failure;
use crate::watch::{CursorReport, CursorText, PageReport, Stands, Watch, page_report};
use std::time::Duration;
use strandline_core::lifecycle::api::{Cursor, Page};
use strandline_core::lifecycle::replica::Replica;
use strandline_file::blocking::BlockingSubscription;
use strandline_file::node::SubscribeFailed;

/// Longest wait for one page, so that whoever asked can be looked after.
const WAIT: Duration = Duration::from_millis(500);

struct NodeWatch<'a> {
    node: &'a NodeBackend,
    subscription: BlockingSubscription,
    verdict: CursorReport,
    /// The last version that was given.
    cursor: Cursor,
}

fn stands(replica: &Replica) -> Stands {
    let status = replica.status();
    Stands { floor: status.floor, tail: status.tail, incarnation: status.incarnation.to_string() }
}

/// What can be vouched for to who has everything up to a cursor.
pub(super) fn judge(node: &NodeBackend, cursor: CursorText) -> Result<CursorReport, Failure> {
    node.read(move |replica| {
        let cursor = cursor.of(replica.cursor());
        CursorReport::new(cursor, &replica.judge(cursor), &stands(replica))
    })
}

/// Follows the changes after a cursor; after the tail if none is given.
pub(super) fn watch(node: &NodeBackend, cursor: Option<CursorText>) -> Result<Box<dyn Watch + '_>, Failure> {
    let ours = node.read(Replica::cursor)?;
    let cursor = cursor.map_or(ours, |cursor| cursor.of(ours));
    let subscription = BlockingSubscription::open(node.handle(), cursor).map_err(|error| match error {
        SubscribeFailed::Unavailable(error) => unavailable(&error),
        SubscribeFailed::Refused(error) => Failure::refused(error.to_string()),
    })?;
    let verdict = CursorReport::new(cursor, subscription.verdict(), &node.read(stands)?);
    Ok(Box::new(NodeWatch { node, subscription, verdict, cursor }))
}

impl Watch for NodeWatch<'_> {
    fn verdict(&self) -> &CursorReport {
        &self.verdict
    }

    fn next(&mut self) -> Result<Option<PageReport>, Failure> {
        let Some(page) = self.subscription.next_within(WAIT) else { return Ok(None) };
        match &page {
            Page::Changes { records, .. } => {
                self.cursor.at = records.last().map_or(self.cursor.at, |record| record.version);
            }
            Page::ResetEnd { cut, .. } => self.cursor.at = *cut,
            Page::Lost(_) | Page::ResetBegin { .. } | Page::State { .. } | Page::Ended(_) => {}
        }
        page_report(page, self.cursor, || self.node.read(stands)).map(Some)
    }

    fn reset(&mut self) -> Result<(), Failure> {
        self.subscription.reset();
        Ok(())
    }
}
