//! Looking for damage in the blob store: one blob after the other, no faster than asked for.

use super::api::{BadBlob, Done, Event, NAMED_KEYS_MAX, RequestError, RequestId, Scrub, Scrubbed};
use super::blob_work::BlobPurpose;
use super::command::{BlobCommand, Checked};
use super::shared::{Commit, Purpose, Shared};
use crate::error::StorageFault;
use crate::record::{BlobKey, Key, State, Version};
use crate::time::Instant;

/// How many keys are passed over in one turn in search of a present one.
const STEP_KEYS: usize = 16_384;

/// A scrub under way.
#[derive(Debug)]
pub(super) struct Scrubbing {
    request: RequestId,
    scrub: Scrub,
    /// The key looked at last.
    after: Option<Key>,
    /// When the next blob may be read; none while one is.
    due: Option<Instant>,
    found: Scrubbed,
}

impl Shared {
    /// Begins to look.
    pub(super) fn begin_scrub(&mut self, request: RequestId, scrub: Scrub) -> Result<(), RequestError> {
        if self.closing {
            return Err(RequestError::Closing);
        }
        if self.scrubbing.is_some() {
            return Err(RequestError::Busy { what: "a scrub" });
        }
        if let Some(fault) = &self.halted {
            return Err(RequestError::Storage(fault.clone()));
        }
        if self.committing.is_some() || self.fencing.is_some() {
            let what = "a compaction, the installation of a snapshot, or a move of the authority";
            return Err(RequestError::Busy { what });
        }
        let found = Scrubbed::default();
        self.scrubbing = Some(Scrubbing { request, scrub, after: None, due: None, found });
        if self.opaque.wanting {
            self.scrub_may_begin();
        } else {
            // What is found, and set aside, must be known to be missing after a crash.
            let (current, mut opaque) = (self.current.clone(), self.opaque.clone());
            opaque.wanting = true;
            self.save_current(Commit::Scrub, current, opaque);
        }
        Ok(())
    }

    /// What it finds is remembered from now on.
    pub(super) fn scrub_may_begin(&mut self) {
        if let Some(scrubbing) = &mut self.scrubbing {
            scrubbing.due = Some(self.now.mono);
        }
    }

    /// When the next blob may be read.
    pub(super) fn scrub_due(&self) -> Option<Instant> {
        self.scrubbing.as_ref()?.due
    }

    /// Reads the next blob, if its time has come.
    pub(super) fn step_scrub(&mut self) {
        if self.closing {
            return self.end_scrub(Err(RequestError::Closing));
        }
        let Self { scrubbing: Some(scrubbing), views, .. } = self else { return };
        if scrubbing.due.is_none_or(|due| due > self.now.mono) {
            return;
        }
        let after = scrubbing.after.clone();
        let mut next = None;
        for (key, entry) in views.visible_from(after.as_ref()).take(STEP_KEYS) {
            scrubbing.after = Some(key.clone());
            if let State::Present { blob } = entry.state {
                next = Some((key.clone(), entry.version, blob));
                break;
            }
        }
        if let Some((key, version, blob)) = next {
            scrubbing.due = None;
            let purpose = Purpose::Blobs(BlobPurpose::Verify(key, version, blob));
            self.out.command(purpose, |ticket| BlobCommand::Verify { ticket, key: blob });
        } else if scrubbing.after == after {
            self.end_scrub(Ok(()));
        }
    }

    /// A blob was read. Whether it is wanted now.
    pub(super) fn on_verified(
        &mut self,
        key: Key,
        version: Version,
        blob: BlobKey,
        result: Result<Checked, StorageFault>,
    ) -> bool {
        let Some(scrubbing) = &mut self.scrubbing else { return false };
        scrubbing.found.keys += 1;
        scrubbing.due = Some(self.now.mono);
        let damaged = match result {
            Err(fault) => {
                self.end_scrub(Err(RequestError::Storage(fault)));
                return false;
            }
            Ok(Checked::Sound { bytes }) => {
                scrubbing.found.bytes += bytes;
                let took_ms = bytes.saturating_mul(1000) / scrubbing.scrub.bytes_per_second.max(1);
                scrubbing.due = Some(self.now.mono.after_ms(took_ms));
                return false;
            }
            Ok(Checked::Missing) => false,
            Ok(Checked::Damaged) => true,
        };
        self.blob_lost(blob);
        let Some(scrubbing) = &mut self.scrubbing else { return false };
        // A later record of the key may need another blob by now.
        if self.views.visible(&key).is_none_or(|entry| entry.version != version) {
            return false;
        }
        scrubbing.found.bad += 1;
        if scrubbing.found.blobs.len() < NAMED_KEYS_MAX {
            scrubbing.found.blobs.push(BadBlob { key: key.clone(), blob, damaged });
        }
        if self.wanted.len() >= self.config.blobs_wanted_max as usize {
            return false;
        }
        self.wanted.want(key, version, blob);
        true
    }

    /// Ends the scrub under way, if there is one.
    pub(super) fn end_scrub(&mut self, result: Result<(), RequestError>) {
        let Some(Scrubbing { request, found, .. }) = self.scrubbing.take() else { return };
        let done = match result {
            Ok(()) => Done::Scrubbed(found),
            Err(error) => Done::Refused(error),
        };
        self.out.event(Event::Done { request, done });
    }
}
