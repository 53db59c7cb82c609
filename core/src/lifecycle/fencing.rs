//! How the right to write a log moves: an epoch is taken here, or begins elsewhere and is heard of.

use super::api::{Divergence, Done, Event, Fenced, PairReason, PairVerdict, RequestError, RequestId};
use super::authority::{Authority, FenceRefusal};
use super::entry::{ENTRY_EPOCH_START, EpochStart};
use super::epochs::{Side, relate};
use super::opaque::Opaque;
use super::shared::{Commit, Purpose, Shared};
use super::sidecars::AUTHORITY;
use crate::error::StorageFault;
use crate::id::Lsn;
use crate::journal::writer::AppendError;
use crate::record::{AuthorityId, Record, Version};
use crate::verdict::Verdict;
use crate::wire::own::EpochMark;
use alloc::string::ToString;
use alloc::vec::Vec;

/// An epoch that is being taken. Each step is durable before the next: a crash in between leaves the
/// old authority, or completes the move at the next start.
#[derive(Debug)]
pub(super) struct Fencing {
    request: RequestId,
    authority: Authority,
    stage: Stage,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Stage {
    /// What was submitted before becomes durable.
    Draining,
    /// The authority's sidecar is being replaced.
    Reserving,
    /// `current` is being replaced, so that it names this replica as the writer.
    Naming,
    /// The entry that begins the epoch is on its way to the disk.
    Starting,
}

/// The entry of an epoch that is submitted and not durable.
#[derive(Clone, Debug)]
pub(super) struct Beginning {
    lsn: Lsn,
    mark: EpochMark,
}

/// An epoch without a record yet: its start is the version zero of it.
pub(super) fn bare(start: &EpochStart) -> EpochMark {
    let EpochStart { epoch, authority, previous_end } = start;
    let (epoch, authority) = (*epoch, authority.clone());
    EpochMark { epoch, start: Version::new(epoch, 0), previous_end: *previous_end, authority }
}

impl Shared {
    /// The latest epoch known here, submitted or durable, and who writes in it.
    pub(super) fn latest_epoch(&self) -> Option<(u64, &AuthorityId)> {
        self.submitted_epoch.as_ref().map(|(epoch, authority)| (*epoch, authority))
    }

    /// The number of that; of a snapshot that tells no epochs, the epoch it ends in.
    pub(super) fn latest_epoch_number(&self) -> u64 {
        self.latest_epoch().map_or(0, |(epoch, _)| epoch).max(self.submitted.epoch)
    }

    /// The highest epoch that is known of this log, here or at peers.
    pub(super) fn known_epoch(&self) -> u64 {
        let ours = self.authority.as_ref().map_or(0, Authority::epoch);
        ours.max(self.latest_epoch_number()).max(self.peers_epoch)
    }

    /// Appends the entry that begins an epoch, behind everything submitted.
    fn append_epoch_start(&mut self, epoch: u64, authority: &AuthorityId) -> Result<(), AppendError> {
        let start = EpochStart { epoch, authority: authority.clone(), previous_end: self.submitted };
        let mut bytes = Vec::new();
        start.encode(&mut bytes);
        let lsn = self.journal.append(ENTRY_EPOCH_START, &bytes)?;
        self.submitted_epoch = Some((epoch, authority.clone()));
        self.beginning = Some(Beginning { lsn, mark: bare(&start) });
        Ok(())
    }

    /// An authority whose epoch has no beginning in the journal writes that first: a new log's, or one
    /// that was being moved here when the process ended.
    pub(super) fn begin(&mut self) {
        let Some(authority) = &self.authority else { return };
        let (epoch, id) = (authority.epoch(), authority.id().clone());
        if epoch <= self.latest_epoch_number() {
            return;
        }
        if let Err(error) = self.append_epoch_start(epoch, &id) {
            self.authority = None;
            self.fenced =
                Some(alloc::format!("epoch {epoch} cannot begin, compact and fence again: {error}"));
        }
    }

    /// Takes the right to write, in a new epoch.
    pub(super) fn begin_fence(&mut self, request: RequestId, epoch: u64) -> Result<(), RequestError> {
        if self.closing {
            return Err(RequestError::Closing);
        }
        if let Some(fault) = &self.halted {
            return Err(RequestError::Storage(fault.clone()));
        }
        let busy = [
            (self.fencing.is_some() || self.beginning.is_some(), "a move of the authority"),
            (self.compaction.is_some(), "a compaction"),
            (self.installing(), "the installation of a snapshot"),
            (self.committing.is_some(), "a scrub that begins"),
        ];
        if let Some((_, what)) = busy.into_iter().find(|(busy, _)| *busy) {
            return Err(RequestError::Busy { what });
        }
        let id = match &self.opaque.authority {
            Some(id) => id.clone(),
            None => self.config.record.authority(&self.current.identity).map_err(|error| {
                let (member, reason) = (self.current.identity.clone(), error.to_string());
                RequestError::Member { member, reason }
            })?,
        };
        let authority = Authority::fence(id, epoch, self.known_epoch())?;
        self.abandon_idle_install();
        self.fencing = Some(Fencing { request, authority, stage: Stage::Draining });
        Ok(())
    }

    /// Goes on with a move of the authority as far as it can.
    pub(super) fn advance_fence(&mut self) {
        let drained = self.journal.pending_entries() == 0
            && !self.journal.in_flight()
            && self.gated.is_empty()
            && !self.saving_authority();
        let Some(fencing) = &mut self.fencing else { return };
        if fencing.stage != Stage::Draining || !drained || self.halted.is_some() {
            return;
        }
        fencing.stage = Stage::Reserving;
        let content = fencing.authority.initial_content();
        self.authority = None;
        // The content that is stored now says more than that the old epoch is over.
        self.superseded = None;
        self.fenced = Some("the authority is being moved here".to_string());
        self.replace(Purpose::Fence, &AUTHORITY, &content);
    }

    /// The sidecar of the new epoch is stored. A failure is final: which one a recovery finds is
    /// uncertain.
    pub(super) fn on_fence_reserved(&mut self, result: Result<(), StorageFault>) -> Result<(), StorageFault> {
        result?;
        self.refuse_overtaken();
        let Some(fencing) = &mut self.fencing else { return Ok(()) };
        let id = fencing.authority.id().clone();
        if self.opaque.authority.as_ref() == Some(&id) {
            self.start_epoch();
            return Ok(());
        }
        fencing.stage = Stage::Naming;
        let opaque = Opaque { authority: Some(id), ..self.opaque.clone() };
        let current = self.current.clone();
        self.save_current(Commit::Authority, current, opaque);
        Ok(())
    }

    /// `current` names this replica as the log's writer.
    pub(super) fn named(&mut self) {
        self.start_epoch();
    }

    /// Ends the move of an epoch that a peer has gone past meanwhile: a writer of it would be a stale one.
    /// What says on disk that it may begin says from now on that it is over.
    fn refuse_overtaken(&mut self) {
        let known = self.peers_epoch;
        let overtaken = |fencing: &mut Fencing| fencing.authority.epoch() <= known;
        let Some(Fencing { request, authority, stage }) = self.fencing.take_if(overtaken) else { return };
        let found = authority.epoch();
        match stage {
            // Nothing of it was stored.
            Stage::Draining => {}
            Stage::Reserving | Stage::Naming | Stage::Starting => {
                self.superseded = Some(authority.superseded_content(known));
                self.authority = None;
                self.fenced =
                    Some(alloc::format!("epoch {found} was fenced by epoch {known} before it began"));
            }
        }
        self.freed = true;
        let done = Done::Refused(RequestError::Fence(FenceRefusal { known, found }));
        self.out.event(Event::Done { request, done });
    }

    fn start_epoch(&mut self) {
        self.refuse_overtaken();
        let Some(fencing) = &mut self.fencing else { return };
        fencing.stage = Stage::Starting;
        self.authority = Some(fencing.authority.clone());
        self.fenced = None;
        let request = fencing.request;
        self.begin();
        if let Some(reason) = self.fenced.clone() {
            self.fencing = None;
            let done = Done::Refused(RequestError::EpochStart { reason });
            self.out.event(Event::Done { request, done });
        }
    }

    /// The durable prefix grew: an epoch that begins in it is one now.
    pub(super) fn epoch_begun(&mut self, upto: Lsn) {
        let Some(Beginning { mark, .. }) = self.beginning.take_if(|b| b.lsn <= upto) else { return };
        if self.history.epoch() < mark.epoch {
            self.history.begin_epoch(mark.clone());
        }
        let EpochMark { epoch, authority, previous_end, .. } = mark;
        self.out.event(Event::EpochStarted { epoch, authority: authority.clone(), previous_end });
        self.refuse_overtaken();
        if let Some(fencing) = self.fencing.take_if(|fencing| fencing.stage == Stage::Starting) {
            let done = Done::Fenced(Fenced { epoch, authority, previous_end });
            self.out.event(Event::Done { request: fencing.request, done });
        }
    }

    /// Whether peers do not know our latest epoch from us yet; they do from now on. They hear of it
    /// before any record of it, however it came here.
    pub(super) fn epoch_untold(&mut self) -> bool {
        let latest = self.history.epoch();
        core::mem::replace(&mut self.told_epoch, latest) < latest
    }

    /// Whoever asked for the move under way is told that a fault ended it.
    pub(super) fn refuse_fencing(&mut self, fault: &StorageFault) {
        if let Some(fencing) = self.fencing.take() {
            let done = Done::Refused(RequestError::Storage(fault.clone()));
            self.out.event(Event::Done { request: fencing.request, done });
        }
    }

    /// A peer knows of an epoch. One above ours ends our right to write, at once and for good.
    pub(super) fn heard_epoch(&mut self, mark: &EpochMark) {
        self.peers_epoch = self.peers_epoch.max(mark.epoch);
        self.end_authority(mark);
        // What is stored at the moment is waited for.
        if self.fencing.as_ref().is_some_and(|fencing| fencing.stage == Stage::Draining) {
            self.refuse_overtaken();
        }
    }

    fn end_authority(&mut self, mark: &EpochMark) {
        let later = self.authority.as_ref().filter(|authority| authority.epoch() < mark.epoch);
        let Some(authority) = later else { return };
        let reason = alloc::format!(
            "epoch {} was fenced by epoch {} of {}",
            authority.epoch(),
            mark.epoch,
            mark.authority
        );
        self.superseded = Some(authority.superseded_content(mark.epoch));
        self.authority = None;
        self.gated.clear();
        self.fenced = Some(reason);
    }

    /// The verdict over another history, if its epochs tell it from ours up to `tail`.
    pub(super) fn judge_epochs(&self, tail: Version, theirs: Side<'_>) -> Option<PairVerdict> {
        let epochs = self.history.epochs();
        relate(&Side { tail, epochs: &epochs }, &theirs).verdict(|after| {
            let kept = after >= self.history.floor();
            self.history.first_after(after).filter(|_| kept).map(|(_, version)| version)
        })
    }

    /// The verdict over a snapshot of a peer that tells no epochs: a record of an epoch that had ended
    /// here. What a later record of its key hides is not told.
    pub(super) fn over_in(&self, records: &[Record]) -> Option<PairVerdict> {
        let (tail, latest) = (self.history.tail(), self.history.epoch());
        let over = |record: &&Record| record.version > tail && record.version.epoch < latest;
        let at = records.iter().filter(over).map(|record| record.version).min()?;
        Some(fenced_at(at, alloc::format!("epoch {latest}"), at.to_string()))
    }

    /// Stores that our epoch is over, so that it stays so after a restart.
    pub(super) fn save_superseded(&mut self) {
        // One write of the sidecar at a time; a move that goes on stores what says more.
        let moving = self.fencing.as_ref().is_some_and(|fencing| match fencing.stage {
            Stage::Draining | Stage::Reserving | Stage::Naming => true,
            Stage::Starting => false,
        });
        if moving || self.saving_authority() || self.halted.is_some() {
            return;
        }
        if let Some(content) = self.superseded.take() {
            self.begin_authority_save();
            self.replace(Purpose::Authority, &AUTHORITY, &content);
        }
    }

    /// An epoch that began at the very end of the history both have: it is part of ours, too, before
    /// any record of it comes.
    pub(super) fn adopt_epoch(&mut self, mark: &EpochMark, at: Version) {
        let ours = self.latest_epoch_number().max(1);
        let at_the_end = at == self.submitted && at == self.history.tail();
        let free = self.fencing.is_none() && self.beginning.is_none() && !self.installing();
        if mark.start.sequence == 0 && mark.epoch > ours && at_the_end && free && self.authority.is_none() {
            // It was judged by the epochs from before.
            self.abandon_idle_install();
            // Without room for it the next sign of life brings it again.
            let _ = self.append_epoch_start(mark.epoch, &mark.authority);
        }
    }
}

/// Records that were written after their epoch had ended.
pub(super) fn fenced_at(
    at: Version,
    ours: alloc::string::String,
    theirs: alloc::string::String,
) -> PairVerdict {
    Verdict::Diverged(Divergence { at, ours, theirs, reason: PairReason::FencedEpoch })
}
