//! Blobs ahead of the records that need them, for peers that cannot ask for pieces. A record whose blob
//! is gone is left out if a later durable record of its key supersedes it; else the link waits there,
//! with a verdict.

use super::api::PairReason;
use super::command::BlobCommand;
use super::receive::blob_of;
use super::session::Session;
use super::shared::{LinkPurpose, Shared};
use super::source::Source;
use crate::record::{BlobKey, Key, Record, Version};
use crate::verdict::Verdict;
use crate::wire::blob::{BlobMessage, PeerKey};
use crate::wire::message::{Message, encode};
use crate::wire::repair::{Batch, Snapshot};
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

/// How many keys are looked at for one announcement.
const ANNOUNCED_KEYS_MAX: usize = 16_384;

/// A frame that waits until the blobs it needs were acknowledged.
#[derive(Debug)]
pub(super) struct Push {
    frame: Pushed,
    /// Not read yet.
    blobs: Vec<BlobKey>,
    /// The blobs that a record of the frame needs and that cannot be sent. A snapshot may need any number
    /// of them; it goes when there is none.
    stuck: BTreeMap<BlobKey, PairReason>,
}

impl Push {
    /// Whether it waits for a blob that cannot be sent.
    pub(super) fn is_stuck(&self) -> bool {
        !self.stuck.is_empty()
    }
}

/// What waits.
#[derive(Debug)]
pub(super) enum Pushed {
    Batch(Batch),
    Snapshot(Snapshot),
}

impl Pushed {
    fn records(&self) -> &[Record] {
        match self {
            Self::Batch(batch) => &batch.records,
            Self::Snapshot(snapshot) => &snapshot.records,
        }
    }

    /// Leaves out what a later durable record supersedes of what needs one of `stuck`, and of a batch what
    /// comes after the first record: that may go once the rest is there.
    fn without(&mut self, shared: &Shared, stuck: &BTreeMap<BlobKey, PairReason>) -> Left {
        let needs = |record: &Record| blob_of(record).is_some_and(|blob| stuck.contains_key(&blob));
        let superseded = |record: &Record| {
            needs(record)
                && shared.views.visible(&record.key).is_some_and(|entry| entry.version > record.version)
        };
        match self {
            Self::Snapshot(snapshot) => snapshot.records.retain(|record| !superseded(record)),
            Self::Batch(batch) => {
                let last = batch.records.last().map_or(batch.from, |record| record.version);
                batch.records.retain(|record| !superseded(record));
                if let Some(later) = batch.records.iter().skip(1).position(needs) {
                    batch.records.truncate(later + 1);
                    batch.more = true;
                }
                let Some(record) = batch.records.last() else { return Left::Nothing { last } };
                batch.to = record.version;
            }
        }
        Left::Something
    }
}

/// What is left of a frame.
enum Left {
    /// Records, of which some may still need blobs that cannot be sent.
    Something,
    /// All its records, up to this one, were superseded.
    Nothing { last: Version },
}

impl Session {
    /// Sends a batch's or snapshot's blobs ahead, then the frame.
    pub(super) fn push(&mut self, shared: &mut Shared, frame: Pushed) {
        let blobs: BTreeSet<BlobKey> = frame.records().iter().filter_map(blob_of).collect();
        let blobs = blobs.into_iter().rev().collect();
        self.source = Source::Pushing(Push { frame, blobs, stuck: BTreeMap::new() });
        self.pump_push(shared);
    }

    /// Reads the next blobs to push while there is room, and sends the frame when all are
    /// acknowledged.
    pub(super) fn pump_push(&mut self, shared: &mut Shared) {
        let open_max = shared.config.blob_requests_max as usize;
        let room = self.has_room(shared);
        let Source::Pushing(push) = &mut self.source else { return };
        let mut reads = Vec::new();
        while room && self.pushed.len() < open_max {
            let Some(key) = push.blobs.pop() else { break };
            self.pushed.insert(key);
            reads.push(key);
        }
        let done = push.blobs.is_empty() && self.pushed.is_empty() && push.stuck.is_empty();
        for key in reads {
            self.read_whole(shared, key, None);
        }
        if done && let Source::Pushing(push) = core::mem::replace(&mut self.source, Source::Idle) {
            self.send_pushed(shared, push.frame);
        }
    }

    fn send_pushed(&mut self, shared: &mut Shared, frame: Pushed) {
        let (message, to) = match frame {
            Pushed::Batch(batch) => {
                let to = batch.to;
                (Message::Batch(batch), Some(to))
            }
            Pushed::Snapshot(snapshot) => (Message::Snapshot(snapshot), None),
        };
        let mut payload = Vec::new();
        if encode(&message, &shared.config.wire, &mut payload).is_err() {
            // Only a snapshot can be too large: a batch was built within the bounds.
            return self.stop(shared, Verdict::Unknown { reason: PairReason::SnapshotTooLarge });
        }
        self.send_frame(shared, &payload, to);
    }

    /// Reads a whole blob for the peer, by a request of its own or ahead of a record: one byte more than
    /// it may have tells that it is too large.
    pub(super) fn read_whole(&mut self, shared: &mut Shared, key: BlobKey, request: Option<u64>) {
        self.serving += 1;
        let bytes_max = super::session::blob_put_bytes_max(&shared.config) + 1;
        shared.blob(self.link, LinkPurpose::ServeWhole(key, request), |ticket| BlobCommand::Read {
            ticket,
            key,
            offset: 0,
            bytes_max,
        });
    }

    /// A blob that a record of the frame needs cannot be sent.
    pub(super) fn push_failed(&mut self, shared: &mut Shared, key: BlobKey, reason: PairReason) {
        self.pushed.remove(&key);
        if let Source::Pushing(push) = &mut self.source {
            push.stuck.insert(key, reason);
            self.reconsider_push(shared);
        }
    }

    /// Tries again with the blobs that could not be sent; after one was stored only with that one.
    pub(super) fn push_again(&mut self, shared: &mut Shared, stored: Option<BlobKey>) {
        let Source::Pushing(push) = &mut self.source else { return };
        let before = push.blobs.len();
        match stored {
            Some(key) => push.blobs.extend(push.stuck.remove(&key).map(|_| key)),
            None => push.blobs.extend(core::mem::take(&mut push.stuck).into_keys()),
        }
        if push.blobs.len() > before {
            self.pump_push(shared);
        }
    }

    /// Goes on without what need not wait for the blobs that cannot be sent: what is superseded, which more
    /// may be whenever more is durable.
    pub(super) fn reconsider_push(&mut self, shared: &mut Shared) {
        let Source::Pushing(push) = &mut self.source else { return };
        if push.stuck.is_empty() {
            return;
        }
        match push.frame.without(shared, &push.stuck) {
            Left::Something => {
                let needed: BTreeSet<BlobKey> = push.frame.records().iter().filter_map(blob_of).collect();
                push.blobs.retain(|blob| needed.contains(blob));
                push.stuck.retain(|blob, _| needed.contains(blob));
                if let Some(reason) = push.stuck.values().next().copied() {
                    self.give_verdict(shared, Verdict::Unknown { reason });
                }
                self.pump_push(shared);
            }
            Left::Nothing { last } => {
                self.skipped = last;
                self.pushed.clear();
                self.source = Source::Idle;
                self.pump_source(shared);
            }
        }
    }

    /// Tells a peer that cannot ask for pieces which blobs of the records it has are here, so that it
    /// can ask for those it lost: on connecting and from time to time, a part of the key space in turn.
    pub(super) fn announce_blobs(&mut self, shared: &mut Shared) {
        if self.peer.ranges || !self.sends() || self.acked.is_zero() || !self.has_room(shared) {
            return;
        }
        let (acked, keys_max) = (self.acked, shared.config.wire.blob.keys_max as usize);
        let mut keys: BTreeSet<BlobKey> = BTreeSet::new();
        let mut last: Option<Key> = None;
        for (looked, (key, entry)) in shared.views.visible_from(self.announced.as_ref()).enumerate() {
            if looked == ANNOUNCED_KEYS_MAX || keys.len() == keys_max {
                last = Some(key.clone());
                break;
            }
            if let crate::record::State::Present { blob } = entry.state
                && entry.version <= acked
                && !shared.wanted.wants(&blob)
            {
                keys.insert(blob);
            }
        }
        self.announced = last;
        if !keys.is_empty() {
            let keys: Vec<PeerKey> = keys.into_iter().map(PeerKey::from).collect();
            self.send(shared, &Message::Blob(BlobMessage::Has { keys }));
        }
    }
}
