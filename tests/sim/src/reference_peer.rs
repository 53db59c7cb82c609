//! A peer of the reference, StreamHive v0.14, as a source sees it: it declares nothing of Strandline's,
//! says where it stands, takes blobs ahead of the records that need them, and ends a connection over
//! which it is sent what its protocol does not have.

use crate::blobs::BlobStore;
use crate::model::Mirror;
use std::collections::VecDeque;
use strandline_core::lifecycle::delivery::{Delivery, delivery};
use strandline_core::record::{Record, Version};
use strandline_core::wire::blob::{BlobMessage, PeerKey};
use strandline_core::wire::capability::{Capabilities, Capability};
use strandline_core::wire::frame::{FrameDecoder, write_frame};
use strandline_core::wire::limits::WireLimits;
use strandline_core::wire::message::{Message, decode_message, encode};
use strandline_core::wire::repair::{Batch, Snapshot};

/// What the peer took.
#[derive(Clone, Debug)]
pub enum Given {
    /// Records that follow its tail.
    Batch(Batch),
    /// A state that takes the place of its own.
    Snapshot(Snapshot),
}

impl Given {
    /// The records of it.
    #[must_use]
    pub fn records(&self) -> &[Record] {
        match self {
            Self::Batch(batch) => &batch.records,
            Self::Snapshot(snapshot) => &snapshot.records,
        }
    }

    /// Where the peer stands once it has taken it.
    #[must_use]
    pub const fn to(&self) -> Version {
        match self {
            Self::Batch(batch) => batch.to,
            Self::Snapshot(snapshot) => snapshot.watermark,
        }
    }
}

/// Why the peer ends a connection.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Refused {
    /// Its protocol has no such message.
    Unknown(String),
    /// Records that do not begin where it ends.
    Gap(Version),
    /// Bytes that are not what their key says.
    Blob,
}

/// The peer. What it took it keeps, whatever becomes of its connection.
#[derive(Debug, Default)]
pub struct ReferencePeer {
    /// The last version it took.
    pub tail: Version,
    /// What it shows.
    pub mirror: Mirror,
    /// Its blobs.
    pub blobs: BlobStore,
    /// Bytes on their way out.
    pub out: VecDeque<u8>,
    decoder: FrameDecoder,
    unread: Vec<u8>,
}

impl ReferencePeer {
    /// What it declares.
    #[must_use]
    pub fn capabilities() -> Capabilities {
        Capabilities::new([Capability::Lifecycle, Capability::RepairReconcile]).expect("two")
    }

    /// It is connected anew: it says where it stands.
    pub fn connected(&mut self) {
        self.decoder = FrameDecoder::default();
        self.unread.clear();
        self.out.clear();
        self.send(&Message::Ack { watermark: self.tail });
    }

    /// Takes bytes, split anywhere.
    pub fn received(&mut self, bytes: &[u8]) {
        self.unread.extend_from_slice(bytes);
    }

    /// Handles the next whole message of a node that `declared` so. What it would take is handed out, and
    /// taken by [`ReferencePeer::take`]. `Ok(None)` if there is no whole message.
    ///
    /// # Errors
    /// The connection must end.
    pub fn next(&mut self, declared: &Capabilities) -> Result<Option<Given>, Refused> {
        loop {
            let taken = self.decoder.push(&self.unread);
            self.unread.drain(..taken);
            let unknown = |error: String| Refused::Unknown(error);
            let message = match self.decoder.next_frame().map_err(|error| unknown(error.to_string()))? {
                Some(payload) => decode_message(payload, &WireLimits::default(), declared)
                    .map_err(|error| unknown(error.to_string()))?,
                None => return Ok(None),
            };
            if let Some(given) = self.message(message)? {
                return Ok(Some(given));
            }
        }
    }

    fn message(&mut self, message: Message) -> Result<Option<Given>, Refused> {
        match message {
            Message::Batch(batch) => match delivery(self.tail, batch.from, batch.to) {
                Delivery::Ready => return Ok(Some(Given::Batch(batch))),
                Delivery::Duplicate => self.send(&Message::Ack { watermark: self.tail }),
                Delivery::Gap => return Err(Refused::Gap(batch.from)),
            },
            Message::Snapshot(snapshot) if snapshot.watermark > self.tail => {
                return Ok(Some(Given::Snapshot(snapshot)));
            }
            Message::Snapshot(_) => self.send(&Message::Ack { watermark: self.tail }),
            Message::Blob(message) => self.blob(message)?,
            Message::Record(_) | Message::Ack { .. } | Message::Own(_) => {
                return Err(Refused::Unknown(format!("{message:?}")));
            }
        }
        Ok(None)
    }

    fn blob(&mut self, message: BlobMessage) -> Result<(), Refused> {
        match message {
            BlobMessage::Put { key: PeerKey::Blob(key), data } => {
                self.blobs.store_bytes(&data);
                if !self.blobs.holds(&key) {
                    return Err(Refused::Blob);
                }
                self.send(&Message::Blob(BlobMessage::Ack { key: key.into() }));
            }
            BlobMessage::Has { keys } => {
                let lacks = |key: &PeerKey| matches!(key, PeerKey::Blob(key) if !self.blobs.holds(key));
                let keys: Vec<PeerKey> = keys.into_iter().filter(lacks).collect();
                if !keys.is_empty() {
                    self.send(&Message::Blob(BlobMessage::Missing { keys }));
                }
            }
            BlobMessage::Put { .. }
            | BlobMessage::Missing { .. }
            | BlobMessage::Get { .. }
            | BlobMessage::Ack { .. } => {}
        }
        Ok(())
    }

    /// Takes what [`ReferencePeer::next`] handed out, and acknowledges it.
    pub fn take(&mut self, given: &Given) {
        if let Given::Snapshot(_) = given {
            self.mirror.clear();
        }
        for record in given.records() {
            self.mirror.insert(record.key.clone(), (record.state, record.version));
        }
        self.tail = given.to();
        self.send(&Message::Ack { watermark: self.tail });
    }

    fn send(&mut self, message: &Message) {
        let (mut payload, mut frame) = (Vec::new(), Vec::new());
        encode(message, &WireLimits::default(), &mut payload).expect("within limits");
        write_frame(&payload, &mut frame).expect("small");
        self.out.extend(frame);
    }
}
