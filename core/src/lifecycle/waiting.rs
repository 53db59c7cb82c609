//! Blobs that do not come: what of a link waits for them, for how long without a word, and how they
//! are asked for again.

use super::api::PairReason;
use super::receive::{Held, Receive, blob_of};
use super::session::Session;
use super::shared::Shared;
use super::source::Source;
use crate::record::BlobKey;
use crate::verdict::Verdict;
use crate::wire::blob::BlobMessage;
use crate::wire::message::Message;
use alloc::vec::Vec;

/// How many blobs that are wanted are asked for at once over one link.
const ROUND: usize = 256;

impl Session {
    /// The peer does not have a blob.
    pub(super) fn on_piece_absent(&mut self, shared: &mut Shared, key: BlobKey) {
        if !self.fetch.absent(key) {
            return;
        }
        if shared.fetching.get(&key) == Some(&self.link) {
            shared.fetching.remove(&key);
            // Another link may ask for it now.
            shared.freed = true;
        }
        let held = match &mut self.receive {
            Receive::Held(held) if held.missing.contains(&key) => Some(held),
            Receive::Held(_) | Receive::Idle | Receive::Stopped => None,
        };
        let needed = held.is_some() || shared.install_misses(self.link, &key);
        match held {
            Some(held) if self.peer.waits => {
                held.missing.remove(&key);
                held.absent.insert(key);
            }
            Some(_) | None => {}
        }
        if !needed {
            // One that a record here waits for: others may have it.
            return self.pump_fetch(shared);
        }
        if !self.peer.waits {
            let reason = PairReason::BlobMissing;
            return self.stop(shared, Verdict::Unknown { reason });
        }
        shared.install_goes_without(self.link, key);
        self.pump_fetch(shared);
        self.advance_batch(shared);
        self.pump_install(shared);
    }

    /// The blobs of batches that came over this link and are not submitted.
    pub(super) fn held_blobs(&self) -> impl Iterator<Item = BlobKey> {
        let held = match &self.receive {
            Receive::Held(held) => Some(&held.batch),
            Receive::Idle | Receive::Stopped => None,
        };
        let held = held.into_iter().flat_map(|batch| batch.records.iter().filter_map(blob_of));
        held.chain(self.arrivals.blobs())
    }

    /// A blob is stored, whoever brought it: what waited for it goes on. If a record did (`settles`), the
    /// peer may have more of those; else it is not bothered before its time.
    pub(super) fn on_blob_stored(&mut self, shared: &mut Shared, key: BlobKey, settles: bool) {
        self.fetch.stored(key);
        if let Receive::Held(held) = &mut self.receive {
            held.missing.remove(&key);
            held.absent.remove(&key);
        }
        self.tell_complete(shared);
        if settles && self.fetch.is_done() {
            self.want_wanted(shared);
        }
        self.pump_fetch(shared);
        self.advance_batch(shared);
        self.push_again(shared, Some(key));
    }

    /// Asks this peer for blobs that records here wait for, some at a time.
    pub(super) fn want_wanted(&mut self, shared: &mut Shared) {
        if !self.peer.ranges || self.is_stopped() || self.judging() || !self.fetch.is_done() {
            return;
        }
        for key in shared.wanted.round(ROUND) {
            self.fetch.want(key);
        }
        self.pump_fetch(shared);
    }

    /// Whether it was said that this link waits for blobs, and it still does.
    pub(super) fn waits_for_blobs(&self) -> bool {
        let held = matches!(&self.receive, Receive::Held(Held { before: Some(_), .. }));
        held || matches!(&self.source, Source::Pushing(push) if push.is_stuck())
    }

    /// Looks again, from time to time, at everything that waits for a blob.
    pub(super) fn look_at_waiting(&mut self, shared: &mut Shared) {
        if self.down || self.is_stopped() {
            return;
        }
        self.ask_again(shared);
        self.push_again(shared, None);
        self.announce_blobs(shared);
        self.want_wanted(shared);
    }

    /// The blobs of the held batch did not come in time: says so, and asks for them again. They may
    /// still come, and then the batch goes on.
    fn ask_again(&mut self, shared: &mut Shared) {
        let (now, wait_ms) = (shared.now.mono, shared.config.blob_wait_ms);
        let Receive::Held(held) = &mut self.receive else { return };
        let waits = !held.missing.is_empty() || !held.absent.is_empty();
        if !waits || held.since.after_ms(wait_ms) > now {
            return;
        }
        let Held { missing, absent, before, .. } = held;
        // Those that the peer did not have it may have by now.
        missing.append(absent);
        let keys: Vec<BlobKey> = missing.iter().copied().collect();
        before.get_or_insert_with(|| self.verdict.clone());
        self.give_verdict(shared, Verdict::Unknown { reason: PairReason::BlobMissing });
        for key in keys {
            if self.peer.ranges {
                self.fetch.want(key);
            } else {
                self.send(shared, &Message::Blob(BlobMessage::Get { key: key.into() }));
            }
        }
        self.pump_fetch(shared);
    }
}
