//! What must hold of a replica, whatever is done to it.

use crate::blobs::Blobs;
use std::collections::BTreeMap;
use strandline_core::id::Lsn;
use strandline_core::lifecycle::api::{Accepted, Change, Mutation, Scan, Status};
use strandline_core::lifecycle::replica::Replica;
use strandline_core::limits::FRAME_PAYLOAD_BYTES_MAX;
use strandline_core::record::{Key, State, Version};
use strandline_core::wire::capability::Capabilities;
use strandline_core::wire::limits::WireLimits;
use strandline_core::wire::message::{Message, decode_message};
use strandline_core::wire::own::OwnMessage;

pub(crate) struct Watch {
    writes: bool,
    /// What was submitted here, as far as it was not lost before anyone was told of it.
    written: BTreeMap<Version, (Key, Change)>,
    lsn: Option<Lsn>,
    tail: Version,
}

impl Watch {
    pub(crate) fn new(writes: bool) -> Self {
        Self { writes, written: BTreeMap::new(), lsn: None, tail: Version::ZERO }
    }

    /// Mutations were accepted, when the last version submitted was `before`.
    pub(crate) fn wrote(&mut self, mutations: &[Mutation], accepted: &[Accepted], before: Version) {
        assert!(self.writes, "a follower accepted mutations");
        assert_eq!(mutations.len(), accepted.len());
        let mut last = before;
        for (mutation, accepted) in mutations.iter().zip(accepted) {
            assert!(accepted.version > last, "{} is given out after {last}", accepted.version);
            last = accepted.version;
            self.written.insert(accepted.version, (mutation.key.clone(), mutation.change));
        }
    }

    /// Everything up to `upto` is said to be durable.
    pub(crate) fn durable(&mut self, upto: Lsn) {
        assert!(Some(upto) > self.lsn, "{upto:?} is durable after {:?}", self.lsn);
        self.lsn = Some(upto);
    }

    /// The replica was recovered; what nobody was told of may be gone.
    pub(crate) fn recovered(&mut self, status: &Status) {
        self.lsn = None;
        self.written.retain(|version, _| *version <= status.tail);
    }

    /// A frame goes out, when the durable tail is `tail`.
    pub(crate) fn sent(&self, frame: &[u8], capabilities: &Capabilities, tail: Version) {
        let payload = frame.get(8..).expect("a frame has a header");
        assert!(payload.len() <= FRAME_PAYLOAD_BYTES_MAX as usize);
        let message = decode_message(payload, &WireLimits::default(), capabilities);
        let told = match message.unwrap_or_else(|error| panic!("we say what nobody reads: {error}")) {
            Message::Ack { watermark } => watermark,
            Message::Batch(batch) => batch.to,
            Message::Snapshot(snapshot) => snapshot.watermark,
            Message::Own(OwnMessage::Position(position)) => position.tail.version,
            Message::Own(OwnMessage::SnapshotOffer(offer)) => offer.cut,
            Message::Record(_) | Message::Blob(_) | Message::Own(_) => Version::ZERO,
        };
        assert!(told <= tail, "a peer is told of {told}, {tail} is durable");
    }

    /// What a replica shows of itself.
    pub(crate) fn look(&mut self, replica: &Replica, status: &Status, blobs: &Blobs) {
        assert!(status.tail >= self.tail, "the tail fell from {} to {}", self.tail, status.tail);
        self.tail = status.tail;
        assert!(status.floor <= status.tail && status.tail <= status.submitted);
        for link in &status.links {
            // A follower knows of a peer's records that it does not have itself.
            let known = !self.writes || link.acked <= status.tail;
            assert!(known, "{} acknowledged {}", link.identity, link.acked);
        }
        let scan = Scan { namespace: None, prefix: Vec::new(), after: None, entries_max: 100, deleted: true };
        let page = replica.scan(&scan);
        assert!(page.entries.is_sorted_by(|a, b| a.0 < b.0) && page.next.is_none());
        for (key, entry) in &page.entries {
            assert!(entry.version <= status.tail, "{key} is seen at {}", entry.version);
            if let State::Present { blob } = entry.state {
                assert!(blobs.stored.contains_key(&blob), "{key} names a blob that is not there");
            }
        }
        if self.writes {
            self.as_written(
                status,
                &page.entries.into_iter().map(|(key, e)| (key, (e.version, e.state))).collect(),
            );
        }
    }

    /// Every key is what the last durable write made of it.
    fn as_written(&self, status: &Status, found: &BTreeMap<Key, (Version, State)>) {
        let mut expected: BTreeMap<Key, (Version, State)> = BTreeMap::new();
        for (version, (key, change)) in self.written.range(..=status.tail) {
            let state = match change {
                Change::Put { blob } => State::Present { blob: *blob },
                Change::Delete => State::Deleted,
            };
            expected.insert(key.clone(), (*version, state));
        }
        // A tombstone at or below the floor may be dropped.
        expected.retain(|key, (version, state)| {
            *state != State::Deleted || *version > status.floor || found.contains_key(key)
        });
        assert_eq!(*found, expected, "at {}", status.tail);
    }
}
