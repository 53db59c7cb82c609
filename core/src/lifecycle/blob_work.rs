//! What a replica asks of the blob store on its own account: whether what is wanted came, what of the
//! state below the floor is missing, and letting go of parts that nobody goes on with.

use super::api::RequestId;
use super::command::BlobCommand;
use super::partials::Partial;
use super::shared::{Purpose, Shared};
use crate::error::StorageFault;
use crate::record::{BlobKey, Key, State, Version};
use alloc::vec::Vec;

/// How many blobs are looked up at once.
const LOOK: usize = 1024;

/// What a blob command of no link is for.
#[derive(Debug)]
pub(super) enum BlobPurpose {
    /// A part that nobody goes on with goes.
    Abandon,
    /// Which of the wanted blobs are stored by now.
    LookWanted(Vec<BlobKey>),
    /// Which blobs of these keys are missing, and whether keys follow them.
    LookBelow(Vec<(Key, Version, BlobKey)>, Option<Key>),
    /// A page of what is stored, for a collection.
    List(RequestId),
    /// What is collected.
    Remove,
    /// A blob that a scrub looks at.
    Verify(Key, Version, BlobKey),
    /// A blob that a peer could not use.
    Doubt(BlobKey),
}

impl Shared {
    /// Up to where the durable records have their blobs.
    pub(super) fn complete(&self) -> Version {
        self.wanted.complete(self.history.tail())
    }

    /// Whether a start would have to look for what is missing: no entry of the journal says it of all.
    pub(super) fn wanting(&self) -> bool {
        self.wanted.len() > 0 || self.wanted.unlooked().is_some() || self.may_lose_blobs()
    }

    /// Whether a blob that is stored now may be removed, or found damaged and set aside, at any moment.
    pub(super) fn may_lose_blobs(&self) -> bool {
        self.scrubbing.is_some() || self.collection.is_some() || !self.doubts.is_empty()
    }

    /// A link leaves a blob that came in part.
    pub(super) fn keep_partial(&mut self, key: BlobKey, partial: Partial) {
        let gone = self.partials.keep(key, partial, self.now.mono);
        self.abandon(gone);
    }

    /// Parts that nobody went on with for long are abandoned.
    pub(super) fn expire_partials(&mut self) {
        let expired = self.partials.expire(self.now.mono, self.config.snapshot_pin_ms);
        self.abandon(expired);
    }

    fn abandon(&mut self, keys: impl IntoIterator<Item = BlobKey>) {
        for key in keys {
            self.out
                .command(Purpose::Blobs(BlobPurpose::Abandon), |ticket| BlobCommand::Abandon { ticket, key });
        }
    }

    /// A blob is stored: parts of it are of no more use, and what waited for it does not wait. Whether a
    /// record did.
    pub(super) fn blob_stored(&mut self, key: BlobKey) -> bool {
        let _ = self.partials.take(key);
        self.install_has_blob(key);
        self.wanted.stored(key)
    }

    /// A blob turned out to be lost or damaged. Any record may name it: those on their way are looked at
    /// anew before they are submitted, those that are submitted wait for it, and the visible ones are
    /// looked at, with whatever else was lost.
    pub(super) fn blob_lost(&mut self, blob: BlobKey) {
        self.blobs_lost += 1;
        let Self { views, wanted, .. } = self;
        for (key, version) in views.submitted_naming(blob) {
            wanted.want(key.clone(), version, blob);
        }
        self.look_anew();
    }

    /// Looks at the blobs of all keys, whatever is known of them.
    pub(super) fn look_anew(&mut self) {
        self.wanted.begin_look(self.looking);
        self.look_for_blobs();
    }

    /// Looks for what is wanted, unless a look is out.
    pub(super) fn look_for_blobs(&mut self) {
        if self.looking || self.halted.is_some() || self.closing {
            return;
        }
        if let Some(after) = self.wanted.unlooked().cloned() {
            return self.look_below(after.as_ref());
        }
        if self.wanted.len() == 0 {
            return;
        }
        let keys = self.wanted.round(LOOK);
        self.look(BlobPurpose::LookWanted(keys.clone()), keys);
    }

    fn look(&mut self, purpose: BlobPurpose, keys: Vec<BlobKey>) {
        self.looking = true;
        self.out.command(Purpose::Blobs(purpose), |ticket| BlobCommand::Stat { ticket, keys });
    }

    fn look_below(&mut self, after: Option<&Key>) {
        let mut found = Vec::new();
        let mut last = None;
        let mut keys = self.views.visible_from(after);
        for (key, entry) in keys.by_ref().take(LOOK) {
            last = Some(key.clone());
            if let State::Present { blob } = entry.state {
                found.push((key.clone(), entry.version, blob));
            }
        }
        let next = keys.next().and(last);
        drop(keys);
        let keys = found.iter().map(|(_, _, blob)| *blob).collect();
        self.look(BlobPurpose::LookBelow(found, next), keys);
    }

    /// The blob store said which of the wanted blobs are there: those are stored.
    pub(super) fn on_look_wanted(
        &mut self,
        keys: &[BlobKey],
        result: Result<Vec<Option<u64>>, StorageFault>,
    ) -> Vec<BlobKey> {
        self.looking = false;
        let lengths = result.unwrap_or_default();
        let there =
            keys.iter().zip(&lengths).filter(|(key, length)| length.is_some() && !self.is_removing(key));
        there.map(|(key, _)| *key).collect()
    }

    /// The blob store said which blobs of the state below the floor are there.
    pub(super) fn on_look_below(
        &mut self,
        looked: Vec<(Key, Version, BlobKey)>,
        next: Option<Key>,
        result: Result<Vec<Option<u64>>, StorageFault>,
    ) {
        self.looking = false;
        // What could not be looked up is looked up again later.
        let Ok(lengths) = result else { return };
        for ((key, version, blob), length) in looked.into_iter().zip(lengths) {
            let current = self.views.visible(&key).is_some_and(|entry| entry.version == version);
            if length.is_none() && current {
                self.wanted.want(key, version, blob);
            }
        }
        let more = next.is_some();
        self.wanted.looked(next);
        if more {
            self.look_for_blobs();
        }
    }
}
