//! Collecting blobs that nothing needs. Nothing is removed on the ground of what was true earlier: a
//! page of stored blobs is held against everything that names one, until nothing that names one of them
//! is left and every member is complete up to where that was found.

use super::api::{Collect, Collected, Done, Event, NAMED_KEYS_MAX, RequestError, RequestId};
use super::blob_work::BlobPurpose;
use super::command::{BlobCommand, ListedBlob, RemovedBlobs};
use super::membership::MemberState;
use super::shared::{Commit, Purpose, Shared};
use crate::error::StorageFault;
use crate::record::{BlobKey, Key, State, Version};
use crate::time::Instant;
use alloc::collections::BTreeMap;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

/// How many stored blobs are judged at once.
const PAGE_BLOBS: u32 = 16_384;
/// How many keys are looked at in one turn.
const STEP_KEYS: usize = 16_384;

/// Where a page stands.
#[derive(Debug)]
enum Stage {
    /// The blob store is asked for it.
    Listing,
    /// The keys after this one were not looked at yet.
    Judging(Option<Key>),
    /// Nothing here names what is left; everyone else must be past it by this time.
    Waiting { found_at: Version, until: Instant },
    /// The blob store removes it.
    Removing,
}

/// A collection under way.
#[derive(Debug)]
pub(super) struct Collection {
    request: RequestId,
    collect: Collect,
    stage: Stage,
    /// The page: what nothing was found to name so far, with its length.
    candidates: BTreeMap<BlobKey, u64>,
    /// The last blob of the page; none if there are no more behind it.
    last: Option<BlobKey>,
    found: Collected,
}

impl Shared {
    /// Begins to collect.
    pub(super) fn begin_collection(
        &mut self,
        request: RequestId,
        collect: Collect,
    ) -> Result<(), RequestError> {
        if self.closing {
            return Err(RequestError::Closing);
        }
        if let Some(fault) = &self.halted {
            return Err(RequestError::Storage(fault.clone()));
        }
        if !self.members.configured() {
            return Err(RequestError::MembershipMissing);
        }
        let busy = |what| Err(RequestError::Busy { what });
        if self.collection.is_some() {
            return busy("a collection of blobs");
        }
        if self.installing() {
            return busy("the installation of a snapshot");
        }
        self.abandon_idle_install();
        self.collection = Some(Collection {
            request,
            collect,
            stage: Stage::Listing,
            candidates: BTreeMap::new(),
            last: None,
            found: Collected::default(),
        });
        self.list_blobs(request, None);
        Ok(())
    }

    fn list_blobs(&mut self, request: RequestId, after: Option<BlobKey>) {
        self.out.command(Purpose::Blobs(BlobPurpose::List(request)), |ticket| BlobCommand::List {
            ticket,
            after,
            count_max: PAGE_BLOBS,
        });
    }

    /// A page of what is stored, for the collection that asked for it.
    pub(super) fn on_blobs_listed(
        &mut self,
        request: RequestId,
        result: Result<Vec<ListedBlob>, StorageFault>,
    ) {
        let Some(collection) = self.collection.as_mut().filter(|c| c.request == request) else { return };
        let page = match result {
            Ok(page) => page,
            Err(fault) => return self.end_collection(Err(RequestError::Storage(fault))),
        };
        let Some(last) = page.last() else {
            return self.end_collection(Ok(()));
        };
        collection.last = (page.len() >= PAGE_BLOBS as usize).then_some(last.key);
        collection.found.looked += page.len() as u64;
        let untouched_ms = collection.collect.untouched_ms;
        let old = page.iter().filter(|blob| blob.untouched_ms >= untouched_ms);
        collection.candidates = old.map(|blob| (blob.key, blob.bytes)).collect();
        collection.stage = Stage::Judging(None);
    }

    /// Something names a blob: it stays.
    pub(super) fn name_blob(&mut self, blob: BlobKey) {
        if let Some(collection) = &mut self.collection {
            match collection.stage {
                Stage::Listing | Stage::Removing => {}
                Stage::Judging(_) | Stage::Waiting { .. } => {
                    collection.candidates.remove(&blob);
                }
            }
        }
    }

    /// Whether a blob is being removed: it may be there now, and not in a moment.
    pub(super) fn is_removing(&self, blob: &BlobKey) -> bool {
        self.collection.as_ref().is_some_and(|collection| match collection.stage {
            Stage::Removing => collection.candidates.contains_key(blob),
            Stage::Listing | Stage::Judging(_) | Stage::Waiting { .. } => false,
        })
    }

    /// Whether blobs are being removed: what names them must be looked up afterwards.
    pub(super) const fn removing(&self) -> bool {
        matches!(&self.collection, Some(Collection { stage: Stage::Removing, .. }))
    }

    /// A snapshot is going to be taken up: what it names was no part of what a page was judged by, and is
    /// not here to be judged before it is all here. None is taken up while blobs are being removed.
    pub(super) fn yield_collection(&mut self) {
        self.end_collection(Err(RequestError::Busy { what: "the installation of a snapshot" }));
    }

    /// When to go on with the collection, if time alone takes it on.
    pub(super) fn collection_due(&self) -> Option<Instant> {
        match self.collection.as_ref()?.stage {
            Stage::Judging(_) => Some(self.now.mono),
            // Its end is looked at again when `current` is replaced.
            Stage::Waiting { .. } if self.committing.is_some() || self.fencing.is_some() => None,
            Stage::Waiting { until, .. } => Some(until),
            Stage::Listing | Stage::Removing => None,
        }
    }

    /// Looks at some more of the keys. A part of them in a turn, so that nobody waits long.
    pub(super) fn step_collection(&mut self) {
        let Self { collection: Some(collection), views, history, config, now, .. } = self else { return };
        let Stage::Judging(after) = &collection.stage else { return };
        let (after, mut last) = (after.clone(), None);
        let mut keys = views.visible_from(after.as_ref());
        for (key, entry) in keys.by_ref().take(STEP_KEYS) {
            if let State::Present { blob } = entry.state {
                collection.candidates.remove(&blob);
            }
            last = Some(key.clone());
        }
        if keys.next().is_some() {
            collection.stage = Stage::Judging(last);
            return;
        }
        drop(keys);
        for blob in views.submitted_blobs() {
            collection.candidates.remove(&blob);
        }
        let until = now.mono.after_ms(config.blob_wait_ms);
        collection.stage = Stage::Waiting { found_at: history.tail(), until };
    }

    /// Whether a page waits for others, and for the blobs that links hold, to be judged to its end.
    pub(super) const fn collection_waits(&self) -> bool {
        matches!(&self.collection, Some(Collection { stage: Stage::Waiting { .. }, .. }))
    }

    /// The last judgement of a page: what links hold stays, and everyone else must be past it.
    pub(super) fn advance_collection(&mut self, held: &dyn Fn(&BlobKey) -> bool) {
        let Some(Collection { stage: Stage::Waiting { found_at, until }, candidates, .. }) =
            &mut self.collection
        else {
            return;
        };
        candidates.retain(|blob, _| !held(blob));
        let (found_at, until) = (*found_at, *until);
        match self.needed_by(found_at) {
            None => self.remove_candidates(),
            Some(_) if self.now.mono < until => {}
            Some((member, acked)) => {
                let floor = found_at;
                self.end_collection(Err(RequestError::Behind { member, acked, floor }));
            }
        }
    }

    /// Who may still need a blob that nothing here named at `found_at`: a peer that reads a snapshot, a
    /// snapshot on its way in, or a member that is not complete up to there.
    fn needed_by(&self, found_at: Version) -> Option<(String, Version)> {
        if !self.pins.is_empty() {
            return Some(("a peer that reads a snapshot".to_string(), self.history.floor()));
        }
        if self.install.is_some() {
            return Some(("the installation of a snapshot".to_string(), self.history.tail()));
        }
        let complete = |member: &super::membership::Member| match member.state {
            MemberState::Joining { cut: None } | MemberState::Lapsed => None,
            MemberState::Joining { cut: Some(_) } | MemberState::Active => {
                Some(self.acked.durable_complete(&member.identity, member.incarnation))
            }
        };
        let behind = |member: &super::membership::Member| {
            let complete = complete(member).filter(|complete| *complete < found_at)?;
            Some((member.identity.clone(), complete))
        };
        self.members.list().iter().find_map(behind)
    }

    fn remove_candidates(&mut self) {
        let Some(collection) = &mut self.collection else { return };
        let removes = !collection.collect.dry_run && !collection.candidates.is_empty();
        if removes && !self.opaque.wanting {
            return self.mark_removal();
        }
        let found = &mut collection.found;
        let room = NAMED_KEYS_MAX - found.keys.len();
        found.keys.extend(collection.candidates.keys().take(room));
        if collection.collect.dry_run {
            found.blobs += collection.candidates.len() as u64;
            found.bytes += collection.candidates.values().sum::<u64>();
            return self.next_page();
        }
        if !removes {
            return self.next_page();
        }
        collection.stage = Stage::Removing;
        let keys: Vec<BlobKey> = collection.candidates.keys().copied().collect();
        let untouched_ms = collection.collect.untouched_ms;
        self.out.command(Purpose::Blobs(BlobPurpose::Remove), |ticket| BlobCommand::Remove {
            ticket,
            keys,
            untouched_ms,
        });
    }

    /// Where a disk loses the end of the journal, an older record is seen again, whose blob is removed
    /// here: a start must look for it, so that nothing is removed before `current` says so. Until then the
    /// page waits, and is judged once more.
    fn mark_removal(&mut self) {
        if self.committing.is_none() && self.fencing.is_none() {
            let (current, mut opaque) = (self.current.clone(), self.opaque.clone());
            opaque.wanting = true;
            self.save_current(Commit::Scrub, current, opaque);
        }
    }

    /// The page was removed.
    pub(super) fn on_blobs_removed(&mut self, result: Result<RemovedBlobs, StorageFault>) {
        let Some(collection) = &mut self.collection else { return };
        // What waited because its blobs were being removed looks again.
        self.freed = true;
        match result {
            Ok(removed) => {
                collection.found.blobs += removed.blobs;
                collection.found.bytes += removed.bytes;
                self.next_page();
            }
            Err(fault) => self.end_collection(Err(RequestError::Storage(fault))),
        }
    }

    fn next_page(&mut self) {
        let Some(collection) = &mut self.collection else { return };
        collection.candidates.clear();
        collection.stage = Stage::Listing;
        match collection.last {
            Some(last) if !self.closing => {
                let request = collection.request;
                self.list_blobs(request, Some(last));
            }
            Some(_) => self.end_collection(Err(RequestError::Closing)),
            None => self.end_collection(Ok(())),
        }
    }

    /// Ends the collection under way, if there is one.
    pub(super) fn end_collection(&mut self, result: Result<(), RequestError>) {
        let Some(Collection { request, found, .. }) = self.collection.take() else { return };
        let done = match result {
            Ok(()) => Done::Collected(found),
            Err(error) => Done::Refused(error),
        };
        self.out.event(Event::Done { request, done });
    }
}
