//! What comes back from the host: each outcome goes to the part that asked for it.

use super::{Due, Replica};
use crate::error::StorageFault;
use crate::id::{LinkId, Lsn};
use crate::journal::command::StorageOutcome;
use crate::lifecycle::api::{CloseReason, Event};
use crate::lifecycle::blob_work::BlobPurpose;
use crate::lifecycle::command::BlobOutcome;
use crate::lifecycle::session::Session;
use crate::lifecycle::shared::{Commit, InstallPurpose, LinkPurpose, Purpose, ReadFor};
use crate::record::BlobKey;
use alloc::vec::Vec;

impl Replica {
    fn on_durable(&mut self, upto: Lsn) {
        self.shared.publish();
        self.shared.policy_due = true;
        if self.shared.lag_suspected() {
            self.shared.judge_lags();
        }
        self.shared.out.event(Event::Durable { upto });
        self.due.disarm(Due::Seal);
        self.shared.epoch_begun(upto);
        self.tell_epoch();
        self.each(|session, shared| session.on_durable(shared));
    }

    /// Tells every peer of an epoch that is new here.
    fn tell_epoch(&mut self) {
        if self.shared.epoch_untold() {
            self.each(|session, shared| {
                if session.peer.history {
                    session.send_standing(shared);
                }
            });
        }
    }

    pub(super) fn on_storage(&mut self, purpose: Purpose, outcome: StorageOutcome) {
        match (purpose, outcome) {
            (Purpose::Journal(purpose), StorageOutcome::Append(result)) => {
                match self.shared.journal.handle_append(purpose, result) {
                    // After a fault elsewhere the journal is done as well: what is not yet durable
                    // stays uncertain until recovery.
                    Ok(Some(upto)) if self.shared.halted.is_none() => self.on_durable(upto),
                    Ok(Some(_) | None) => {}
                    Err(halted) => self.halt(halted.0),
                }
            }
            (Purpose::Journal(purpose), StorageOutcome::Prepare(result)) => {
                if let Err(halted) = self.shared.journal.handle_prepare(purpose, result) {
                    self.halt(halted.0);
                }
            }
            (Purpose::Compact(purpose), outcome) => self.shared.on_compaction(purpose, outcome),
            (Purpose::Authority, StorageOutcome::Replace(result)) => {
                if let Err(fault) = self.shared.on_reserved(result) {
                    self.halt(fault);
                }
            }
            (Purpose::Fence, StorageOutcome::Replace(result)) => {
                if let Err(fault) = self.shared.on_fence_reserved(result) {
                    self.halt(fault);
                }
            }
            (Purpose::Members(request), StorageOutcome::Replace(result)) => {
                self.shared.on_members_saved(request, result);
            }
            (Purpose::Acked, StorageOutcome::Replace(result)) => self.shared.on_acked_saved(result),
            (Purpose::Current(commit), StorageOutcome::Replace(result)) => self.on_committed(commit, result),
            (Purpose::Remove, StorageOutcome::Remove(_)) => {}
            (Purpose::Read(file, read), StorageOutcome::Read(result)) => {
                self.shared.read_done(file);
                self.on_read(read, result);
            }
            (
                Purpose::Install(number, purpose),
                StorageOutcome::Write(result) | StorageOutcome::Sync(result),
            ) => {
                self.on_install(number, purpose, result.map(|()| Vec::new()));
            }
            (purpose, outcome) => unreachable!("{outcome:?} answers no {purpose:?}"),
        }
    }

    pub(super) fn on_blob(&mut self, purpose: Purpose, outcome: BlobOutcome) {
        match (purpose, outcome) {
            (Purpose::Install(number, purpose), BlobOutcome::Stat(result)) => {
                self.on_install(number, purpose, result);
            }
            (Purpose::Link(link, purpose), outcome) => self.on_link_blob(link, purpose, outcome),
            (Purpose::Blobs(purpose), outcome) => self.on_own_blob(purpose, outcome),
            (purpose, outcome) => unreachable!("{outcome:?} answers no {purpose:?}"),
        }
    }

    fn on_own_blob(&mut self, purpose: BlobPurpose, outcome: BlobOutcome) {
        match (purpose, outcome) {
            (BlobPurpose::Abandon, BlobOutcome::Abandon(_)) => {}
            (BlobPurpose::LookWanted(keys), BlobOutcome::Stat(result)) => {
                for key in self.shared.on_look_wanted(&keys, result) {
                    self.on_blob_stored(key);
                }
            }
            (BlobPurpose::LookBelow(looked, next), BlobOutcome::Stat(result)) => {
                self.shared.on_look_below(looked, next, result);
                self.each(Session::tell_complete);
                self.each(Session::want_wanted);
            }
            (BlobPurpose::List(request), BlobOutcome::List(result)) => {
                self.shared.on_blobs_listed(request, result);
            }
            (BlobPurpose::Remove, BlobOutcome::Remove(result)) => self.shared.on_blobs_removed(result),
            (BlobPurpose::Verify(key, version, blob), BlobOutcome::Verify(result)) => {
                if self.shared.on_verified(key, version, blob, result) {
                    self.each(Session::want_wanted);
                }
            }
            (BlobPurpose::Doubt(key), BlobOutcome::Verify(result)) => {
                let (waiting, sound) = self.shared.on_doubt_checked(key, result);
                for (link, place) in waiting {
                    self.with(link, |s, shared| s.on_doubt_settled(shared, key, place, &sound));
                    self.with(link, Session::resume);
                }
            }
            (purpose, outcome) => unreachable!("{outcome:?} answers no {purpose:?}"),
        }
    }

    fn on_link_blob(&mut self, link: LinkId, purpose: LinkPurpose, outcome: BlobOutcome) {
        let stored = match (purpose, outcome) {
            (LinkPurpose::StatWanted(look, keys), BlobOutcome::Stat(result)) => {
                self.with(link, |s, shared| s.on_stat_wanted(shared, look, &keys, result));
                None
            }
            (LinkPurpose::StatOffered(keys), BlobOutcome::Stat(result)) => {
                self.with(link, |s, shared| s.on_stat_offered(shared, &keys, result));
                None
            }
            (LinkPurpose::ServePiece(key, offset, place), BlobOutcome::Read(result)) => {
                self.with(link, |s, shared| s.on_serve_piece(shared, key, offset, place, result));
                None
            }
            (LinkPurpose::ServeWhole(key, request), BlobOutcome::Read(result)) => {
                self.with(link, |s, shared| s.on_serve_whole(shared, key, request, result));
                None
            }
            (LinkPurpose::PutOffered(key), BlobOutcome::Put(result)) => {
                let stored = self.with(link, |s, shared| s.on_put_offered(shared, key, result));
                stored.and_then(|stored| stored.then_some(key))
            }
            (LinkPurpose::WriteFetched(key, bytes), BlobOutcome::Write(result)) => {
                self.with(link, |s, shared| s.on_piece_written(shared, key, bytes, result));
                None
            }
            (LinkPurpose::PutFetched(key), BlobOutcome::Put(result))
            | (LinkPurpose::CommitFetched(key), BlobOutcome::Commit(result)) => {
                let stored = self.with(link, |s, shared| s.on_fetched(shared, key, result));
                stored.and_then(|stored| stored.then_some(key))
            }
            (purpose, outcome) => unreachable!("{outcome:?} answers no {purpose:?}"),
        };
        if let Some(key) = stored {
            self.on_blob_stored(key);
        }
        self.with(link, Session::resume);
    }

    fn on_blob_stored(&mut self, key: BlobKey) {
        let settles = self.shared.blob_stored(key);
        self.each(|session, shared| session.on_blob_stored(shared, key, settles));
        self.each(|session, shared| session.pump_install(shared));
    }

    fn on_read(&mut self, read: ReadFor, result: Result<Vec<u8>, StorageFault>) {
        match read {
            ReadFor::Plan(request) => {
                let (bytes, fault) = match result {
                    Ok(bytes) => (Some(bytes), None),
                    Err(fault) => (None, Some(fault)),
                };
                for link in self.shared.sharing.done(request, bytes) {
                    self.with(link, |s, shared| match &fault {
                        None => s.continue_plan(shared),
                        Some(fault) => s.plan_read_failed(shared, &request, fault.clone()),
                    });
                }
            }
            ReadFor::Digest(link, request) => {
                self.with(link, |s, shared| s.on_digest_read(shared, request, result));
            }
            ReadFor::SnapshotPiece(link, offset, place) => {
                self.with(link, |s, shared| s.on_snapshot_piece(shared, offset, place, result));
                self.with(link, Session::resume);
            }
            ReadFor::SnapshotFrame(link) => {
                self.with(link, |s, shared| s.on_snapshot_frame_read(shared, result));
            }
            ReadFor::Subscription(id, turn, read) => {
                self.shared.on_subscription_read(id, turn, read, result);
            }
        }
    }

    fn on_install(
        &mut self,
        number: u64,
        purpose: InstallPurpose,
        result: Result<Vec<Option<u64>>, StorageFault>,
    ) {
        if let Some((link, reason)) = self.shared.on_install(number, purpose, result) {
            self.close_link(link, reason);
        }
        self.each(|session, shared| {
            session.want_install_blobs(shared);
            session.pump_install(shared);
        });
    }

    fn on_committed(&mut self, commit: Commit, result: Result<(), StorageFault>) {
        if let Err(fault) = result {
            // Which `current` a crash would find is uncertain: only recovery can tell.
            return self.halt(fault);
        }
        if self.shared.halted.is_some() {
            return;
        }
        self.shared.committed();
        match commit {
            Commit::Compaction => self.shared.compacted(),
            Commit::Installation => self.shared.installed(),
            Commit::Scrub => {
                self.shared.scrub_may_begin();
                self.shared.advance_compaction();
            }
            Commit::Authority => self.shared.named(),
        }
        self.tell_epoch();
        self.shared.wake_subscriptions();
        self.shared.remove_unused();
        // The journal has room, or a state from which what waited can go on.
        self.each(Session::retry);
    }

    /// The log has stopped for good, whichever of its files failed: nothing is written after this, and
    /// what was submitted and is not durable is uncertain.
    fn halt(&mut self, fault: StorageFault) {
        if self.shared.halted.is_some() {
            return;
        }
        self.shared.halt(&fault);
        self.shared.out.event(Event::Halted { fault });
        self.shared.end_subscriptions();
        for link in self.links.ids() {
            self.close_link(link, CloseReason::Closing);
        }
    }
}
