//! Members that fall too far behind lapse, so that they do not hold compaction up for ever; and
//! compaction that nobody has to ask for.

use super::api::{Event, RequestId};
use super::bound::counted;
use super::membership::{MemberInput, compaction_bound};
use super::shared::Shared;
use crate::id::Lsn;
use crate::record::Version;
use crate::time::Instant;
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

/// Names the requests that nobody made: compactions by policy.
pub(super) const BY_POLICY: RequestId = RequestId(0);

/// How far a member is behind.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Behind {
    /// Bytes of journal above what it counts at.
    pub(super) bytes: u64,
    /// How long there has been something that it has not acknowledged.
    pub(super) ms: u64,
}

/// A tail that a member has to reach, and since when.
#[derive(Clone, Copy, Debug)]
struct Goal {
    tail: Version,
    since: Instant,
}

/// What this run remembers of members that are behind. Time counts from the start of the run.
#[derive(Debug, Default)]
pub(super) struct Lagging {
    goals: BTreeMap<String, Goal>,
    /// The last compaction by policy failed; the next one waits for a sign of life.
    pub(super) rests: bool,
}

impl Shared {
    /// How far one member is behind, who counts at `version`.
    pub(super) fn member_behind(&self, identity: &str, version: Version) -> Behind {
        let behind = version < self.history.tail();
        let goal = self.lagging.goals.get(identity).filter(|goal| behind && version < goal.tail);
        let bytes = if behind { self.journal.index().bytes_after(self.last_upto(version)) } else { 0 };
        Behind { bytes, ms: goal.map_or(0, |goal| ms(self.now.mono.since(goal.since))) }
    }

    /// The last entry of the journal that holds a version at or below this one.
    fn last_upto(&self, version: Version) -> Option<Lsn> {
        let next = self.history.first_after(version).map(|(lsn, _)| lsn);
        next.map_or_else(|| self.journal.durable(), Lsn::before)
    }

    /// Judges every member that counts; those too far behind lapse.
    pub(super) fn judge_lags(&mut self) {
        let (tail, now) = (self.history.tail(), self.now.mono);
        let (bytes_max, ms_max) = (self.config.member_lag_bytes_max, self.config.member_lag_ms_max);
        let Self { members, acked, lagging, .. } = self;
        lagging.goals.retain(|identity, _| members.get(identity).is_some());
        for member in members.list() {
            let reached = counted(member, acked);
            let goal = lagging.goals.get_mut(&member.identity);
            match (reached, goal) {
                (Some(version), Some(goal)) if version >= goal.tail => *goal = Goal { tail, since: now },
                (Some(_), Some(_)) => {}
                (Some(_), None) => {
                    lagging.goals.insert(member.identity.clone(), Goal { tail, since: now });
                }
                (None, _) => {
                    lagging.goals.remove(&member.identity);
                }
            }
        }
        let counts: Vec<(String, Version)> = self
            .members
            .list()
            .iter()
            .filter_map(|member| counted(member, &self.acked).map(|at| (member.identity.clone(), at)))
            .collect();
        for (identity, acked) in counts {
            let lag = self.member_behind(&identity, acked);
            let too_far =
                bytes_max.is_some_and(|max| lag.bytes > max) || ms_max.is_some_and(|max| lag.ms > max);
            if too_far {
                self.member_input(&identity, MemberInput::TooFarBehind);
                let (lag_bytes, lag_ms) = (lag.bytes, lag.ms);
                self.out.event(Event::MemberLapsed { identity, acked, lag_bytes, lag_ms });
                self.policy_due = true;
            }
        }
    }

    /// Whether the journal alone says that some member may be too far behind.
    pub(super) fn lag_suspected(&self) -> bool {
        self.config.member_lag_bytes_max.is_some_and(|max| self.journal.index().bytes() > max)
    }

    /// A peer's journal is read from `cut` on: a member counts there, unless it lapsed and is the same
    /// life of its data, which must be reseeded first.
    pub(super) fn member_reads(&mut self, identity: &str, cut: Version) {
        if self.members.lapsed(identity) {
            return;
        }
        self.member_input(identity, MemberInput::Reads { cut });
        self.member_input(identity, MemberInput::Acknowledged { version: cut });
    }

    /// Compacts if the policy asks for it and enough may go: at least half of what the policy keeps.
    pub(super) fn compact_by_policy(&mut self) {
        if !core::mem::take(&mut self.policy_due) || self.lagging.rests || !self.policy_wants() {
            return;
        }
        // Whoever asked for something else meanwhile comes first; the next durable batch asks again.
        let _ = self.begin_compaction(BY_POLICY, None);
    }

    fn policy_wants(&self) -> bool {
        let (bytes_max, entries_max) = (self.config.compact_after_bytes, self.config.compact_after_entries);
        let entries = self.history.entries();
        let index = self.journal.index();
        let over = |max: Option<u64>, found: u64| max.is_some_and(|max| found >= max.max(1));
        if !over(entries_max, entries) && !over(bytes_max, index.bytes()) {
            return false;
        }
        let (tail, floor) = (self.history.tail(), self.history.floor());
        let Ok(bound) = compaction_bound(&self.members, &self.acked, tail, floor) else { return false };
        let half = |max: Option<u64>, found: u64| max.is_some_and(|max| found >= max.div_ceil(2));
        let kept = index.bytes_after(self.last_upto(floor));
        let freed = kept.saturating_sub(index.bytes_after(self.last_upto(bound)));
        (over(entries_max, entries) && half(entries_max, self.history.records_between(floor, bound)))
            || (over(bytes_max, kept) && half(bytes_max, freed))
    }

    /// Whether a compaction up to `through` should begin a fresh segment: else what it drops stays in
    /// the segment that grows, and a journal at its limit would stay there.
    pub(super) fn wants_fresh_segment(&self, request: RequestId, through: Lsn) -> bool {
        let (index, limits) = (self.journal.index(), self.journal.limits());
        let live = self.journal.segment();
        let within = index.locate(through).map(|found| found.position.segment) == live;
        let half_full = index.bytes().saturating_mul(2) >= limits.journal_bytes_max
            || index.entries().saturating_mul(2) >= limits.journal_entries_max;
        within && (half_full || request == BY_POLICY)
    }
}

fn ms(duration: core::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
