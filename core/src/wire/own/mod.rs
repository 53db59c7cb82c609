//! `strandline.*`: what Strandline replicas say to each other and to no one else.

pub mod ack;
pub mod blob_range;
pub mod digest;
pub mod position;
pub mod snapshot;
pub mod stop;

pub use ack::Acknowledgement;
pub use blob_range::{BlobRange, BlobRangeGet};
pub use digest::{DigestAt, DigestGet};
pub use position::{EpochMark, Mark, Position};
pub use snapshot::{SnapshotChunk, SnapshotGet, SnapshotOffer};
pub use stop::{Stop, StopVerdict};

use super::error::{EncodeError, OwnFault, WireError};
use super::json_read::{JsonFaultKind, Object, read_object};
use super::json_write::write_number;
use super::limits::{OWN_PAYLOAD_BYTES_MAX, POSITION_EPOCHS_MAX, WireLimits};
use super::message::MessageType;
use crate::id::{hex, unhex};
use crate::record::BlobKey;
use alloc::vec::Vec;

/// A message of Strandline's own.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum OwnMessage {
    /// `strandline.position`: where a replica stands; the first frame of each side.
    Position(Position),
    /// `strandline.digest.get`: asks for the digest of a history at a version.
    DigestGet(DigestGet),
    /// `strandline.digest`: the digest at a version, as an answer or as evidence.
    Digest(DigestAt),
    /// `strandline.snapshot.offer`: a snapshot of this cut can be fetched.
    SnapshotOffer(SnapshotOffer),
    /// `strandline.snapshot.get`: asks for the pieces from an offset on.
    SnapshotGet(SnapshotGet),
    /// `strandline.snapshot.chunk`: a piece of the snapshot asked for.
    SnapshotChunk(SnapshotChunk),
    /// `strandline.blob.get`: asks for a piece of a blob.
    BlobRangeGet(BlobRangeGet),
    /// `strandline.blob.range`: the piece asked for.
    BlobRange(BlobRange),
    /// `strandline.blob.absent`: no such blob is stored.
    BlobAbsent {
        /// Which one.
        key: BlobKey,
    },
    /// `strandline.stop`: why repair stopped.
    Stop(Stop),
    /// `strandline.ack`: what is applied and durable, and up to where with its blobs.
    Ack(Acknowledgement),
}

impl OwnMessage {
    /// Its type.
    #[must_use]
    pub const fn message_type(&self) -> MessageType {
        match self {
            Self::Position(_) => MessageType::Position,
            Self::DigestGet(_) => MessageType::DigestGet,
            Self::Digest(_) => MessageType::Digest,
            Self::SnapshotOffer(_) => MessageType::SnapshotOffer,
            Self::SnapshotGet(_) => MessageType::SnapshotGet,
            Self::SnapshotChunk(_) => MessageType::SnapshotChunk,
            Self::BlobRangeGet(_) => MessageType::BlobRangeGet,
            Self::BlobRange(_) => MessageType::BlobRange,
            Self::BlobAbsent { .. } => MessageType::BlobAbsent,
            Self::Stop(_) => MessageType::Stop,
            Self::Ack(_) => MessageType::OwnAck,
        }
    }

    /// Appends the payload.
    ///
    /// # Errors
    /// A value is out of bounds; `out` is unchanged.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let own = |fault| EncodeError::Own { message: self.message_type().name(), fault };
        self.check().map_err(own)?;
        let start = out.len();
        self.message_type().write_head(out);
        match self {
            Self::Position(position) => position.write(out),
            Self::DigestGet(get) => get.write(out),
            Self::Digest(at) => at.write(out),
            Self::SnapshotOffer(offer) => offer.write(out),
            Self::SnapshotGet(get) => get.write(out),
            Self::SnapshotChunk(chunk) => chunk.write(out),
            Self::BlobRangeGet(get) => get.write(out),
            Self::BlobRange(range) => range.write(out),
            Self::BlobAbsent { key } => blob_range::write_key(key, out),
            Self::Stop(stop) => stop.write(out),
            Self::Ack(ack) => ack.write(out),
        }
        out.push(b'}');
        let bytes = out.len() - start;
        if bytes > OWN_PAYLOAD_BYTES_MAX as usize {
            out.truncate(start);
            return Err(own(OwnFault::PayloadTooLarge { bytes, bytes_max: OWN_PAYLOAD_BYTES_MAX }));
        }
        Ok(())
    }

    /// Reads a payload of a type found before.
    ///
    /// # Panics
    /// If `kind` is not one of Strandline's own.
    pub(super) fn decode(kind: MessageType, payload: &[u8], limits: &WireLimits) -> Result<Self, WireError> {
        let own = |fault| WireError::Own { message: kind.name(), fault };
        if payload.len() > OWN_PAYLOAD_BYTES_MAX as usize {
            let bytes = payload.len();
            return Err(own(OwnFault::PayloadTooLarge { bytes, bytes_max: OWN_PAYLOAD_BYTES_MAX }));
        }
        let message = match kind {
            MessageType::Position => {
                Position::from_object(read(kind, payload)?, &limits.record).map(Self::Position)
            }
            MessageType::DigestGet => Ok(Self::DigestGet(DigestGet::from_object(&read(kind, payload)?))),
            MessageType::Digest => DigestAt::from_object(read(kind, payload)?).map(Self::Digest),
            MessageType::SnapshotOffer => {
                SnapshotOffer::from_object(read(kind, payload)?).map(Self::SnapshotOffer)
            }
            MessageType::SnapshotGet => SnapshotGet::from_object(read(kind, payload)?).map(Self::SnapshotGet),
            MessageType::SnapshotChunk => {
                Ok(Self::SnapshotChunk(SnapshotChunk::from_object(read(kind, payload)?)))
            }
            MessageType::BlobRangeGet => {
                BlobRangeGet::from_object(read(kind, payload)?).map(Self::BlobRangeGet)
            }
            MessageType::BlobRange => BlobRange::from_object(read(kind, payload)?).map(Self::BlobRange),
            MessageType::BlobAbsent => {
                blob_range::absent_key(read(kind, payload)?).map(|key| Self::BlobAbsent { key })
            }
            MessageType::Stop => Stop::from_object(read(kind, payload)?).map(Self::Stop),
            MessageType::OwnAck => Ok(Self::Ack(Acknowledgement::from_object(&read(kind, payload)?))),
            MessageType::Record
            | MessageType::Batch
            | MessageType::Snapshot
            | MessageType::Ack
            | MessageType::BlobPut
            | MessageType::BlobHas
            | MessageType::BlobMissing
            | MessageType::BlobGet
            | MessageType::BlobAck => unreachable!("{kind:?} is the reference's"),
        };
        let message = message.map_err(own)?;
        message.check().map_err(own)?;
        Ok(message)
    }

    fn check(&self) -> Result<(), OwnFault> {
        match self {
            Self::Position(position) => position.check(),
            Self::DigestGet(get) => get.check(),
            Self::Digest(at) => at.check(),
            Self::SnapshotOffer(offer) => offer.check(),
            Self::SnapshotGet(_) | Self::BlobAbsent { .. } => Ok(()),
            Self::SnapshotChunk(chunk) => chunk.check(),
            Self::BlobRangeGet(get) => get.check(),
            Self::BlobRange(range) => range.check(),
            Self::Stop(stop) => stop.check(),
            Self::Ack(ack) => ack.check(),
        }
    }
}

fn read<'de, T: Object<'de>>(kind: MessageType, payload: &'de [u8]) -> Result<T, WireError> {
    let message = kind.name();
    read_object(payload, POSITION_EPOCHS_MAX).map_err(|fault| match fault.kind {
        JsonFaultKind::TooMany { count_max } => {
            let (length, length_max) = (count_max as usize + 1, count_max);
            WireError::Own { message, fault: OwnFault::TooLong { field: "epochs", length, length_max } }
        }
        JsonFaultKind::Malformed | JsonFaultKind::Trailing => WireError::OwnMalformed { message, fault },
    })
}

/// Reads a digest of 64 lower-case hexadecimal digits.
fn digest(field: &'static str, text: &str) -> Result<[u8; 32], OwnFault> {
    unhex(text).ok_or(OwnFault::Digest { field })
}

/// Appends `,"name":"hex"`.
fn write_digest(name: &str, digest: &[u8; 32], out: &mut Vec<u8>) {
    write_name(name, out);
    out.push(b'"');
    out.extend_from_slice(hex(digest).as_bytes());
    out.push(b'"');
}

/// Appends `,"name":number`.
fn write_number_field(name: &str, value: u64, out: &mut Vec<u8>) {
    write_name(name, out);
    write_number(value, out);
}

/// Appends `,"name":`.
fn write_name(name: &str, out: &mut Vec<u8>) {
    out.extend_from_slice(b",\"");
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b"\":");
}

#[cfg(test)]
pub(crate) mod testing {
    //! Encoding and decoding for the tests of each message.

    use super::*;
    use crate::wire::capability::{Capabilities, Capability};
    use crate::wire::message::{Message, decode_message};
    use alloc::string::String;

    /// The payload of a message.
    pub(crate) fn encode(message: &OwnMessage) -> Result<String, EncodeError> {
        let mut out = Vec::new();
        message.encode(&mut out)?;
        Ok(String::from_utf8(out).expect("JSON"))
    }

    /// The message of a payload.
    pub(crate) fn decode(payload: &str) -> Result<OwnMessage, WireError> {
        let declared = Capabilities::new([
            Capability::History,
            Capability::SnapshotChunks,
            Capability::BlobRanges,
            Capability::BlobWait,
        ])
        .expect("no log, no incarnation");
        let message = decode_message(payload.as_bytes(), &WireLimits::default(), &declared)?;
        let Message::Own(message) = message else { panic!("not Strandline's own: {message:?}") };
        Ok(message)
    }

    /// Asserts that a message is written as `payload`, and that it reads back.
    pub(crate) fn both_ways(message: &OwnMessage, payload: &str) {
        assert_eq!(encode(message).as_deref(), Ok(payload));
        assert_eq!(decode(payload).as_ref(), Ok(message));
    }

    /// Asserts that both sides refuse a message with the same fault.
    pub(crate) fn refused_both_ways(message: &OwnMessage, payload: &str, fault: &OwnFault) {
        let name = message.message_type().name();
        assert_eq!(encode(message), Err(EncodeError::Own { message: name, fault: fault.clone() }));
        assert_eq!(decode(payload), Err(WireError::Own { message: name, fault: fault.clone() }));
    }
}
