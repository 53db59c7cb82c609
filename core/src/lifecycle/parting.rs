//! Where two histories part: searched for by digests, so that a person sees it on both sides.

use super::api::{Divergence, PairReason, PairVerdict};
use super::judge::short;
use super::session::Session;
use super::shared::Shared;
use crate::record::Version;
use crate::time::Instant;
use crate::verdict::Verdict;

/// The search for the first version that differs.
#[derive(Debug)]
pub(super) struct Search {
    /// What was found, its `at` being narrowed.
    found: Divergence,
    /// Nothing is known to differ up to here.
    low: Version,
    /// The lowest version of ours known not to be the peer's.
    high: Version,
    /// `high` is only suspected: the peer is ahead, and may or may not go on from our history.
    suspected: bool,
    pub(super) asked: Version,
    since: Instant,
}

impl Session {
    /// Histories differ: repair ends at once, and the verdict is given when it is known where they
    /// part, or that it cannot be known.
    pub(super) fn part(&mut self, shared: &mut Shared, verdict: PairVerdict) {
        let Verdict::Diverged(found) = verdict else { return self.stop(shared, verdict) };
        let (floor, tail) = (shared.history.floor(), shared.history.tail());
        let (high, suspected) = match found.reason {
            PairReason::OtherHistory => (Some(found.at), false),
            PairReason::ForeignVersion => (shared.history.first_after(found.at).map(|(_, v)| v), false),
            PairReason::AheadOfTail | PairReason::OtherIncarnation => (Some(tail), true),
            PairReason::BelowFloor
            | PairReason::FencedEpoch
            | PairReason::SnapshotTooLarge
            | PairReason::BlobTooLarge
            | PairReason::BlobMissing
            | PairReason::NoProgress => (None, false),
        };
        let high = high.filter(|high| {
            self.peer.history && shared.opaque.chained && *high > floor && shared.history.contains(*high)
        });
        let Some(high) = high else { return self.stop(shared, Verdict::Diverged(found)) };
        self.halt_repair(shared);
        let since = shared.now.mono;
        self.evidence.search =
            Some(Search { found, low: floor, high, suspected, asked: Version::ZERO, since });
        self.ask_next(shared);
    }

    fn ask_next(&mut self, shared: &mut Shared) {
        let Some(search) = &mut self.evidence.search else { return };
        let records = shared.history.records_between(search.low, search.high);
        let next = match (search.suspected, records) {
            (true, _) => Some(search.high),
            (false, 0 | 1) => None,
            (false, records) => shared.history.nth_after(search.low, records / 2),
        };
        let Some(next) = next else { return self.parted(shared) };
        search.asked = next;
        search.since = shared.now.mono;
        if !self.ask_digest(shared, next) {
            self.parted(shared);
        }
    }

    /// One answer of the search. `theirs` is absent where the peer's log has no such version.
    pub(super) fn part_step(
        &mut self,
        shared: &mut Shared,
        version: Version,
        ours: Option<[u8; 32]>,
        theirs: Option<[u8; 32]>,
    ) {
        let Some(search) = self.evidence.search.as_mut().filter(|search| search.asked == version) else {
            return;
        };
        let same = match (ours, theirs) {
            (Some(ours), Some(theirs)) => ours == theirs,
            // Below its floor it cannot tell; above, it would know a version that it has.
            (_, None) => version <= self.evidence.peer_floor,
            // A compaction of ours took it.
            (None, Some(_)) => true,
        };
        match (search.suspected, same) {
            // The peer goes on from where we end.
            (true, true) => return self.parted(shared),
            (true, false) => {
                search.suspected = false;
                search.found.reason = PairReason::OtherHistory;
            }
            (false, true) => search.low = version,
            (false, false) => {
                search.high = version;
                if let (Some(ours), Some(theirs)) = (ours, theirs) {
                    (search.found.ours, search.found.theirs) = (short(&ours), short(&theirs));
                }
            }
        }
        self.ask_next(shared);
    }

    /// The search is over: the verdict, with the lowest version of ours known to differ.
    fn parted(&mut self, shared: &mut Shared) {
        let Some(Search { mut found, high, suspected, .. }) = self.evidence.search.take() else { return };
        // What is only suspected may part below what was searched.
        found.at = if suspected { found.at.min(high) } else { high };
        self.stop(shared, Verdict::Diverged(found));
    }

    /// A search whose peer does not answer ends with what is known.
    pub(super) fn expire_search(&mut self, shared: &mut Shared) {
        let keepalive_ms = shared.config.keepalive_ms;
        let late = |search: &Search| search.since.after_ms(keepalive_ms) <= shared.now.mono;
        if self.evidence.search.as_ref().is_some_and(late) {
            self.parted(shared);
        }
    }

    /// The peer stopped, and said why: our own search is of no use any more.
    pub(super) fn drop_search(&mut self) {
        self.evidence.search = None;
        self.evidence.held.clear();
        self.evidence.asked = None;
    }
}
