//! The root's side of compaction, and the commit of `current`: judge what may go, run the part,
//! commit, then remove what is no longer named.

use super::api::{Compacted, Done, Event, RequestError, RequestId};
use super::compact::{CompactPurpose, Compaction, CompactionPlan, CompactionResult};
use super::lagging::BY_POLICY;
use super::membership::{Member, MemberState, compaction_bound};
use super::opaque::{Opaque, floor_bytes};
use super::shared::{Commit, Purpose, Shared};
use crate::error::StorageFault;
use crate::id::Lsn;
use crate::journal::command::{FileName, StorageCommand, StorageOutcome};
use crate::journal::current::Current;
use crate::record::Version;

/// A compaction under way.
#[derive(Debug)]
pub(super) struct Running {
    request: RequestId,
    /// Where it ends, after as many rounds as the bound of keys in memory makes of it.
    target: Version,
    /// What the rounds before achieved.
    before: Compacted,
    part: Compaction,
    /// A fresh segment is awaited before the commit.
    switching: bool,
    /// `current` is being replaced.
    committing: bool,
    /// What it made, until that counts.
    result: Option<CompactionResult>,
}

/// Where a compaction may end: at most what every member has, exactly at a durable record.
fn target(shared: &Shared, upto: Option<Version>) -> Result<(Version, Lsn), RequestError> {
    let (tail, floor) = (shared.history.tail(), shared.history.floor());
    let most = compaction_bound(&shared.members, &shared.acked, tail, floor)?;
    let most = shared.compaction_beside_resets(most)?;
    let found = upto.unwrap_or(most);
    if found <= floor && upto.is_none() {
        return Err(RequestError::NoProgress { floor });
    }
    match shared.history.lsn_of(found) {
        Some(lsn) if found <= most => Ok((found, lsn)),
        Some(_) | None => Err(RequestError::Target { found, floor, most }),
    }
}

impl Shared {
    /// Starts a compaction to the highest version allowed, or to `upto`.
    pub(super) fn begin_compaction(
        &mut self,
        request: RequestId,
        upto: Option<Version>,
    ) -> Result<(), RequestError> {
        if self.closing {
            return Err(RequestError::Closing);
        }
        if let Some(fault) = &self.halted {
            return Err(RequestError::Storage(fault.clone()));
        }
        if self.compaction.is_some() {
            return Err(RequestError::Busy { what: "a compaction" });
        }
        if self.installing() {
            return Err(RequestError::Busy { what: "the installation of a snapshot" });
        }
        if self.fencing.is_some() {
            return Err(RequestError::Busy { what: "a move of the authority" });
        }
        let (target, through) = target(self, upto)?;
        self.abandon_idle_install();
        let before = Compacted {
            floor: self.history.floor(),
            records: 0,
            checkpoint_bytes: 0,
            entries_dropped: 0,
            tombstones_dropped: 0,
        };
        let switching = self.wants_fresh_segment(request, through);
        self.begin_round(request, target, through, before)?;
        if let Some(running) = self.compaction.as_mut().filter(|_| switching) {
            running.switching = true;
            let gate = self.gate();
            self.journal.switch_segment(gate, &mut self.out);
        }
        Ok(())
    }

    /// Begins one round of a compaction to `target`: as far as its bound of keys reaches.
    fn begin_round(
        &mut self,
        request: RequestId,
        target: Version,
        through: Lsn,
        before: Compacted,
    ) -> Result<(), RequestError> {
        let floor = self.history.floor();
        let Some((first, _)) = self.history.first_after(floor) else {
            return Err(RequestError::NoProgress { floor });
        };
        let number = self.take_checkpoint_number();
        let part = Compaction::start(CompactionPlan {
            log: self.current.log,
            target,
            floor,
            floor_digest: self.history.floor_digest(),
            base: self.current.checkpoint,
            number,
            first,
            through,
            epochs: self.history.epochs(),
            keys_per_round_max: self.config.compaction_keys_max,
        });
        self.compaction = Some(Running {
            request,
            target,
            before,
            part,
            switching: false,
            committing: false,
            result: None,
        });
        self.advance_compaction();
        Ok(())
    }

    /// Whether a member that begins to read above `version` now would lose its place to the compaction
    /// under way, which was judged before it counted.
    pub(super) fn too_late_to_count(&self, identity: &str, version: Version) -> bool {
        let taken = self.compaction.as_ref().is_some_and(|running| running.target > version);
        let counts = |member: &Member| match member.state {
            MemberState::Joining { .. } | MemberState::Lapsed => false,
            MemberState::Active => true,
        };
        taken && self.members.get(identity).is_some_and(|member| !counts(member))
    }

    /// The number of the next checkpoint; never given twice in one run, and files of earlier runs
    /// that `current` does not name were removed before this one began.
    pub(super) fn take_checkpoint_number(&mut self) -> u64 {
        let number = self.current.next_checkpoint;
        self.current.next_checkpoint += 1;
        number
    }

    /// A command of the compaction was answered.
    pub(super) fn on_compaction(&mut self, purpose: CompactPurpose, outcome: StorageOutcome) {
        if let Some(running) = &mut self.compaction {
            running.part.handle(purpose, outcome);
        }
        self.advance_compaction();
    }

    /// Goes on with a compaction that waits for its fresh segment.
    pub(super) fn advance_switching(&mut self) {
        if self.compaction.as_ref().is_some_and(|running| running.switching) {
            self.advance_compaction();
        }
    }

    pub(super) fn advance_compaction(&mut self) {
        let Some(mut running) = self.compaction.take() else { return };
        if running.result.is_none() {
            running.part.step(self.journal.index(), &mut self.out);
            match running.part.result() {
                None => {}
                Some(Ok(result)) => running.result = Some(result),
                Some(Err(error)) => {
                    self.removals.insert(running.part.file());
                    self.remove_unused();
                    self.freed = true;
                    return self.answer_compaction(running.request, Done::Refused(error));
                }
            }
        }
        running.switching &= self.journal.take_switched_if(running.switching).is_none();
        // One replacement of `current` at a time.
        let due = !running.switching && !running.committing && self.committing.is_none();
        if let Some(result) = running.result.as_ref().filter(|_| due) {
            running.committing = true;
            self.commit_compaction(result);
        }
        self.compaction = Some(running);
    }

    fn commit_compaction(&mut self, result: &CompactionResult) {
        self.obsolete = self.current.checkpoint.map(|c| FileName::Checkpoint(c.number)).into_iter().collect();
        let (mut current, mut opaque) = (self.current.clone(), self.opaque.clone());
        current.checkpoint = Some(result.checkpoint);
        current.floor = floor_bytes(result.floor);
        current.floor_digest = result.floor_digest;
        current.first_segment = self.journal.removable_before(Some(result.floor_lsn));
        opaque.checkpoint_records = result.records;
        // What was removed or set aside until now may be named again by a record below the floor, if a
        // later one, not in the checkpoint, is lost.
        opaque.wanting = self.wanting() || (opaque.wanting && result.floor < self.history.tail());
        self.save_current(Commit::Compaction, current, opaque);
    }

    /// Replaces `current`: the commit point. What peers are told, and what files are kept, follows the
    /// old one until the new one is durable.
    pub(super) fn save_current(&mut self, commit: Commit, mut current: Current, opaque: Opaque) {
        current.opaque = opaque.encode();
        let (file, bytes) = (FileName::Current, current.encode());
        self.committing = Some((current, opaque));
        self.out.command(Purpose::Current(commit), |ticket| StorageCommand::Replace { ticket, file, bytes });
    }

    /// The replacement of `current` is durable.
    pub(super) fn committed(&mut self) {
        let Some((current, opaque)) = self.committing.take() else {
            unreachable!("current was being replaced");
        };
        // Numbers of checkpoints may have been taken meanwhile.
        let next_checkpoint = self.current.next_checkpoint.max(current.next_checkpoint);
        (self.current, self.opaque) = (Current { next_checkpoint, ..current }, opaque);
    }

    /// `current` names the new checkpoint.
    pub(super) fn compacted(&mut self) {
        let Some(Running { request, target: goal, before, result: Some(result), .. }) =
            self.compaction.take()
        else {
            unreachable!("a compaction was being committed");
        };
        let entries = self.history.entries();
        self.history.raise_floor(result.floor, result.floor_digest);
        let tombstones_dropped = self.views.purge(&result.tombstones, result.floor);
        self.drop_segments();
        let compacted = Compacted {
            floor: result.floor,
            records: result.records,
            checkpoint_bytes: result.checkpoint.bytes,
            entries_dropped: before.entries_dropped + entries - self.history.entries(),
            tombstones_dropped: before.tombstones_dropped + tombstones_dropped,
        };
        // The next round is judged afresh: a member may have come that needs what is left.
        if result.floor < goal
            && !self.closing
            && let Ok((goal, through)) = target(self, Some(goal))
            && self.begin_round(request, goal, through, compacted).is_ok()
        {
            return;
        }
        self.answer_compaction(request, Done::Compacted(compacted));
    }

    /// Tells whoever asked for a compaction how it ended; one by policy is told to everyone.
    fn answer_compaction(&mut self, request: RequestId, done: Done) {
        match (request == BY_POLICY, done) {
            (false, done) => self.out.event(Event::Done { request, done }),
            (true, Done::Compacted(compacted)) => self.out.event(Event::Compacted { compacted }),
            (
                true,
                Done::Refused(_) | Done::Members | Done::Fenced(_) | Done::Collected(_) | Done::Scrubbed(_),
            ) => self.lagging.rests = true,
        }
    }

    /// Whoever asked for the compaction under way is told that a fault ended it.
    pub(super) fn refuse_running(&mut self, fault: &StorageFault) {
        if let Some(running) = self.compaction.take() {
            let done = Done::Refused(RequestError::Storage(fault.clone()));
            self.answer_compaction(running.request, done);
        }
    }

    /// Removes the segments that `current` no longer names, and what its last commit made useless.
    pub(super) fn drop_segments(&mut self) {
        let first = self.current.first_segment;
        let gone = self.journal.index().segments().map(|s| s.number()).filter(|n| *n < first);
        self.removals.extend(gone.map(FileName::Segment));
        self.journal.drop_before(first);
        let obsolete = core::mem::take(&mut self.obsolete);
        self.removals.extend(obsolete);
        self.remove_unused();
    }
}
