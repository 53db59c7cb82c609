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
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// How many keys are looked at for one announcement.
const ANNOUNCED_KEYS_MAX: usize = 16_384;

/// A frame that waits until the blobs it needs were acknowledged.
#[derive(Debug)]
pub(super) struct Push {
    frame: Pushed,
    /// Not read yet.
    blobs: Vec<BlobKey>,
    /// A blob that the first record needs and that cannot be sent.
    stuck: Option<(BlobKey, PairReason)>,
}

impl Push {
    /// Whether it waits for a blob that cannot be sent.
    pub(super) const fn is_stuck(&self) -> bool {
        self.stuck.is_some()
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

    /// Leaves out what a later durable record supersedes of what needs `key`. Whether that leaves
    /// anything to send; `Err` if the blob is still needed by the very first record, or by a snapshot.
    fn without(&mut self, shared: &Shared, key: BlobKey) -> Result<Left, ()> {
        let superseded = |record: &Record| {
            blob_of(record) == Some(key)
                && shared.views.visible(&record.key).is_some_and(|entry| entry.version > record.version)
        };
        let needs = |record: &Record| blob_of(record) == Some(key);
        match self {
            Self::Snapshot(snapshot) => {
                snapshot.records.retain(|record| !superseded(record));
                if snapshot.records.iter().any(needs) { Err(()) } else { Ok(Left::Something) }
            }
            Self::Batch(batch) => {
                let last = batch.records.last().map_or(batch.from, |record| record.version);
                batch.records.retain(|record| !superseded(record));
                match batch.records.iter().position(needs) {
                    Some(0) => return Err(()),
                    Some(first) => {
                        batch.records.truncate(first);
                        batch.more = true;
                    }
                    None => {}
                }
                batch.to = batch.records.last().map_or(batch.from, |record| record.version);
                Ok(if batch.records.is_empty() { Left::Nothing { last } } else { Left::Something })
            }
        }
    }
}

/// What is left of a frame.
enum Left {
    Something,
    /// All its records, up to this one, were superseded.
    Nothing {
        last: Version,
    },
}

impl Session {
    /// Sends a batch's or snapshot's blobs ahead, then the frame.
    pub(super) fn push(&mut self, shared: &mut Shared, frame: Pushed) {
        let blobs: BTreeSet<BlobKey> = frame.records().iter().filter_map(blob_of).collect();
        let blobs = blobs.into_iter().rev().collect();
        self.source = Source::Pushing(Push { frame, blobs, stuck: None });
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
        let done = push.blobs.is_empty() && self.pushed.is_empty() && push.stuck.is_none();
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
        let Source::Pushing(push) = &mut self.source else { return };
        match push.frame.without(shared, key) {
            Err(()) => {
                push.stuck = Some((key, reason));
                self.give_verdict(shared, Verdict::Unknown { reason });
            }
            Ok(Left::Something) => {
                push.stuck = push.stuck.filter(|(stuck, _)| *stuck != key);
                let needed: BTreeSet<BlobKey> = push.frame.records().iter().filter_map(blob_of).collect();
                push.blobs.retain(|blob| needed.contains(blob));
                self.pump_push(shared);
            }
            Ok(Left::Nothing { last }) => {
                self.skipped = last;
                self.pushed.clear();
                self.source = Source::Idle;
                self.pump_source(shared);
            }
        }
    }

    /// Tries again with the blob that could not be sent; after one was stored only if it is that one.
    pub(super) fn push_again(&mut self, shared: &mut Shared, stored: Option<BlobKey>) {
        let Source::Pushing(push) = &mut self.source else { return };
        if let Some((key, _)) = push.stuck.take_if(|(key, _)| stored.is_none_or(|stored| stored == *key)) {
            push.blobs.push(key);
            self.pump_push(shared);
        }
    }

    /// More is durable: what is waited for may be superseded by now.
    pub(super) fn reconsider_push(&mut self, shared: &mut Shared) {
        if let Source::Pushing(push) = &self.source
            && let Some((key, reason)) = push.stuck
        {
            self.push_failed(shared, key, reason);
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
