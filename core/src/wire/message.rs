//! Every message that follows the handshake, its type found before anything else is read.

use super::blob::{BlobMessage, BlobType};
use super::capability::{Capabilities, Capability};
use super::error::{EncodeError, WireError};
use super::json_read::{JsonFault, JsonFaultKind, json_object, read_object};
use super::limits::WireLimits;
use super::own::OwnMessage;
use super::repair::{self, Batch, Snapshot};
use crate::record::{Record, Version};
use alloc::borrow::Cow;
use alloc::vec::Vec;

/// A message between two replicas.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Message {
    /// One record on its own.
    Record(Record),
    /// A piece of a log.
    Batch(Batch),
    /// A whole state in one frame.
    Snapshot(Snapshot),
    /// Everything up to the watermark is applied and durable.
    Ack {
        /// The receiver's durable tail.
        watermark: Version,
    },
    /// About blobs.
    Blob(BlobMessage),
    /// Strandline's own.
    Own(OwnMessage),
}

/// The type of a message: one row each, with its name on the wire and what it needs.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub enum MessageType {
    /// [`Message::Record`]
    Record,
    /// [`Message::Batch`]
    Batch,
    /// [`Message::Snapshot`]
    Snapshot,
    /// [`Message::Ack`]
    Ack,
    /// [`BlobMessage::Put`]
    BlobPut,
    /// [`BlobMessage::Has`]
    BlobHas,
    /// [`BlobMessage::Missing`]
    BlobMissing,
    /// [`BlobMessage::Get`]
    BlobGet,
    /// [`BlobMessage::Ack`]
    BlobAck,
    /// [`OwnMessage::Position`]
    Position,
    /// [`OwnMessage::DigestGet`]
    DigestGet,
    /// [`OwnMessage::Digest`]
    Digest,
    /// [`OwnMessage::SnapshotOffer`]
    SnapshotOffer,
    /// [`OwnMessage::SnapshotGet`]
    SnapshotGet,
    /// [`OwnMessage::SnapshotChunk`]
    SnapshotChunk,
    /// [`OwnMessage::BlobRangeGet`]
    BlobRangeGet,
    /// [`OwnMessage::BlobRange`]
    BlobRange,
    /// [`OwnMessage::BlobAbsent`]
    BlobAbsent,
    /// [`OwnMessage::Stop`]
    Stop,
    /// [`OwnMessage::Ack`]
    OwnAck,
}

impl MessageType {
    /// Every type.
    pub const ALL: [Self; 20] = [
        Self::Record,
        Self::Batch,
        Self::Snapshot,
        Self::Ack,
        Self::BlobPut,
        Self::BlobHas,
        Self::BlobMissing,
        Self::BlobGet,
        Self::BlobAck,
        Self::Position,
        Self::DigestGet,
        Self::Digest,
        Self::SnapshotOffer,
        Self::SnapshotGet,
        Self::SnapshotChunk,
        Self::BlobRangeGet,
        Self::BlobRange,
        Self::BlobAbsent,
        Self::Stop,
        Self::OwnAck,
    ];

    /// Its name on the wire.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Record => "lifecycle.record",
            Self::Batch => "lifecycle.repair.batch",
            Self::Snapshot => "lifecycle.repair.snapshot",
            Self::Ack => "lifecycle.repair.ack",
            Self::BlobPut => "blob.put",
            Self::BlobHas => "blob.has",
            Self::BlobMissing => "blob.missing",
            Self::BlobGet => "blob.get",
            Self::BlobAck => "blob.ack",
            Self::Position => "strandline.position",
            Self::DigestGet => "strandline.digest.get",
            Self::Digest => "strandline.digest",
            Self::SnapshotOffer => "strandline.snapshot.offer",
            Self::SnapshotGet => "strandline.snapshot.get",
            Self::SnapshotChunk => "strandline.snapshot.chunk",
            Self::BlobRangeGet => "strandline.blob.get",
            Self::BlobRange => "strandline.blob.range",
            Self::BlobAbsent => "strandline.blob.absent",
            Self::Stop => "strandline.stop",
            Self::OwnAck => "strandline.ack",
        }
    }

    /// The type of a name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// The capability that the sender must have declared, and its name.
    #[must_use]
    pub const fn needs(self) -> Option<(Capability, &'static str)> {
        match self {
            Self::Record | Self::Batch | Self::Snapshot | Self::Ack => {
                Some((Capability::Lifecycle, "lifecycle.v1"))
            }
            Self::BlobPut | Self::BlobHas | Self::BlobMissing | Self::BlobGet | Self::BlobAck => None,
            Self::Position | Self::DigestGet | Self::Digest | Self::Stop => {
                Some((Capability::History, "strandline.history.v1"))
            }
            Self::SnapshotOffer | Self::SnapshotGet | Self::SnapshotChunk => {
                Some((Capability::SnapshotChunks, "strandline.snapshot-chunks.v1"))
            }
            Self::BlobRangeGet | Self::BlobRange | Self::BlobAbsent => {
                Some((Capability::BlobRanges, "strandline.blob-ranges.v1"))
            }
            Self::OwnAck => Some((Capability::BlobWait, "strandline.blob-wait.v1")),
        }
    }

    /// Appends what every payload starts with.
    pub(super) fn write_head(self, out: &mut Vec<u8>) {
        out.extend_from_slice(br#"{"type":""#);
        out.extend_from_slice(self.name().as_bytes());
        out.push(b'"');
    }
}

/// Refuses `lifecycle.*` from a peer that did not declare `lifecycle.v1`, before anything is read.
///
/// # Errors
/// [`WireError::CapabilityRequired`]
pub fn require_lifecycle(declared: &Capabilities) -> Result<(), WireError> {
    require(MessageType::Record, declared)
}

fn require(kind: MessageType, declared: &Capabilities) -> Result<(), WireError> {
    match kind.needs() {
        Some((capability, name)) if !declared.has(capability) => {
            Err(WireError::CapabilityRequired { capability: name })
        }
        Some(_) | None => Ok(()),
    }
}

/// Reads one message of a peer that declared these capabilities.
///
/// ```
/// use strandline_core::record::Version;
/// use strandline_core::wire::capability::{Capabilities, Capability};
/// use strandline_core::wire::limits::WireLimits;
/// use strandline_core::wire::message::{Message, decode_message, encode};
/// let limits = WireLimits::default();
/// let peer = Capabilities::new([Capability::Lifecycle])?;
/// let ack = Message::Ack { watermark: Version::new(1, 7) };
/// let mut payload = Vec::new();
/// encode(&ack, &limits, &mut payload)?;
/// assert_eq!(decode_message(&payload, &limits, &peer)?, ack);
/// assert!(decode_message(&payload, &limits, &Capabilities::default()).is_err());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// In order: no type can be found, the type is unknown, its capability was not declared, the payload
/// is not such a message.
pub fn decode_message(
    payload: &[u8],
    limits: &WireLimits,
    declared: &Capabilities,
) -> Result<Message, WireError> {
    let found = find_type(payload).map_err(WireError::Malformed)?;
    let kind = MessageType::parse(&found)
        .ok_or_else(|| WireError::UnknownMessageType { found: WireError::shown_type(&found) })?;
    require(kind, declared)?;
    match kind {
        MessageType::Record => repair::decode_record(payload, limits).map(Message::Record),
        MessageType::Batch => repair::decode_batch(payload, limits).map(Message::Batch),
        MessageType::Snapshot => repair::decode_snapshot(payload, limits).map(Message::Snapshot),
        MessageType::Ack => repair::decode_ack(payload, limits).map(|watermark| Message::Ack { watermark }),
        MessageType::BlobPut => blob(BlobType::Put, payload, limits),
        MessageType::BlobHas => blob(BlobType::Has, payload, limits),
        MessageType::BlobMissing => blob(BlobType::Missing, payload, limits),
        MessageType::BlobGet => blob(BlobType::Get, payload, limits),
        MessageType::BlobAck => blob(BlobType::Ack, payload, limits),
        MessageType::Position
        | MessageType::DigestGet
        | MessageType::Digest
        | MessageType::SnapshotOffer
        | MessageType::SnapshotGet
        | MessageType::SnapshotChunk
        | MessageType::BlobRangeGet
        | MessageType::BlobRange
        | MessageType::BlobAbsent
        | MessageType::Stop
        | MessageType::OwnAck => OwnMessage::decode(kind, payload, limits).map(Message::Own),
    }
}

fn blob(kind: BlobType, payload: &[u8], limits: &WireLimits) -> Result<Message, WireError> {
    BlobMessage::decode(kind, payload, &limits.blob).map(Message::Blob)
}

/// Reads one `lifecycle.repair.*` message.
///
/// # Errors
/// In order: too long, malformed, another type, the payload is not such a message.
pub fn decode_repair_frame(payload: &[u8], limits: &WireLimits) -> Result<Message, WireError> {
    repair::check_payload(payload, &limits.repair)?;
    let found = find_type(payload).map_err(WireError::RepairMalformed)?;
    match MessageType::parse(&found) {
        Some(MessageType::Batch) => repair::decode_batch(payload, limits).map(Message::Batch),
        Some(MessageType::Snapshot) => repair::decode_snapshot(payload, limits).map(Message::Snapshot),
        Some(MessageType::Ack) => {
            repair::decode_ack(payload, limits).map(|watermark| Message::Ack { watermark })
        }
        Some(
            MessageType::Record
            | MessageType::BlobPut
            | MessageType::BlobHas
            | MessageType::BlobMissing
            | MessageType::BlobGet
            | MessageType::BlobAck
            | MessageType::Position
            | MessageType::DigestGet
            | MessageType::Digest
            | MessageType::SnapshotOffer
            | MessageType::SnapshotGet
            | MessageType::SnapshotChunk
            | MessageType::BlobRangeGet
            | MessageType::BlobRange
            | MessageType::BlobAbsent
            | MessageType::Stop
            | MessageType::OwnAck,
        )
        | None => Err(not_repair(payload)),
    }
}

/// Why a payload that no repair decoder will read is refused: it is not JSON, or of another type.
fn not_repair(payload: &[u8]) -> WireError {
    match read_object::<TypeObject<'_>>(payload, 0) {
        Ok(object) if object.kind.is_empty() => WireError::RepairMalformed(JsonFault {
            detail: "type is empty, expected lifecycle.repair.*".into(),
            refusal: None,
            kind: JsonFaultKind::Malformed,
        }),
        Ok(object) => WireError::MessageType {
            expected: "lifecycle.repair.*",
            found: WireError::shown_type(&object.kind),
        },
        Err(fault) => WireError::RepairMalformed(fault),
    }
}

/// Appends a message's payload; the caller frames it.
///
/// # Errors
/// The message exceeds a limit or is none; `out` is unchanged.
pub fn encode(message: &Message, limits: &WireLimits, out: &mut Vec<u8>) -> Result<(), EncodeError> {
    match message {
        Message::Record(record) => repair::encode_record(record, limits, out),
        Message::Batch(batch) => batch.encode(&limits.repair, out),
        Message::Snapshot(snapshot) => snapshot.encode(&limits.repair, out),
        Message::Ack { watermark } => repair::encode_ack(*watermark, &limits.repair, out),
        Message::Blob(message) => message.encode(&limits.blob, out),
        Message::Own(message) => message.encode(out),
    }
}

json_object! {
    struct TypeObject<'de> = "a message" skip unknown {
        kind: Cow<'de, str> = always "type",
    }
}

/// Finds the type wherever it stands. Where it stands first and plain, as writers put it, the rest is
/// left to the type's own decoder, which refuses a second one.
fn find_type(payload: &[u8]) -> Result<Cow<'_, str>, JsonFault> {
    if let Some(rest) = payload.strip_prefix(br#"{"type":""#) {
        let end = rest.iter().position(|b| !matches!(b, b'a'..=b'z' | b'.'));
        if let Some((name, [b'"', ..])) = end.map(|end| rest.split_at(end)) {
            return Ok(core::str::from_utf8(name).expect("ASCII").into());
        }
    }
    read_object::<TypeObject<'_>>(payload, 0).map(|object| object.kind)
}

#[cfg(test)]
mod tests {
    use super::super::json_read::Refusal;
    use super::*;

    fn decode(payload: &str) -> Result<Message, WireError> {
        let declared = Capabilities::new([Capability::Lifecycle]).expect("one");
        decode_message(payload.as_bytes(), &WireLimits::default(), &declared)
    }

    const ACK: &str = r#"{"type":"lifecycle.repair.ack","watermark":{"epoch":1,"sequence":2}}"#;

    #[test]
    fn every_name_reads_back() {
        for kind in MessageType::ALL {
            assert_eq!(MessageType::parse(kind.name()), Some(kind));
        }
        assert_eq!(MessageType::parse("blob.Put"), None);
    }

    #[test]
    fn needed_capabilities_are_named_as_they_are_declared() {
        for kind in MessageType::ALL {
            if let Some((capability, name)) = kind.needs() {
                assert_eq!(Capability::parse(name), Some(capability), "{kind:?}");
            }
        }
    }

    #[test]
    fn the_type_is_found_wherever_it_stands() {
        for payload in [
            ACK,
            r#"{"watermark":{"epoch":1,"sequence":2},"type":"lifecycle.repair.ack"}"#,
            r#" { "type" : "lifecycle\u002erepair.ack", "watermark":{"epoch":1,"sequence":2}}"#,
        ] {
            assert_eq!(decode(payload), Ok(Message::Ack { watermark: Version::new(1, 2) }), "{payload}");
        }
    }

    #[test]
    fn a_second_type_is_refused_whichever_would_win() {
        for payload in [
            r#"{"type":"lifecycle.repair.ack","type":"blob.get","watermark":{"epoch":1,"sequence":2}}"#,
            r#"{ "type":"blob.get","type":"lifecycle.repair.ack","watermark":{"epoch":1,"sequence":2}}"#,
        ] {
            assert_eq!(decode(payload).expect_err(payload).refusal(), Some(Refusal::DuplicateName));
        }
    }

    #[test]
    fn the_capability_is_asked_for_before_the_rest_is_read() {
        for kind in MessageType::ALL {
            let payload = alloc::format!(r#"{{"type":"{}","garbage"#, kind.name());
            let declared = Capabilities::default();
            let refused = decode_message(payload.as_bytes(), &WireLimits::default(), &declared);
            assert_eq!(
                matches!(refused, Err(WireError::CapabilityRequired { .. })),
                kind.needs().is_some(),
                "{kind:?}"
            );
        }
        assert!(require_lifecycle(&Capabilities::default()).is_err());
    }

    #[test]
    fn unknown_and_missing_types() {
        assert_eq!(
            decode(r#"{"type":"blob.list"}"#),
            Err(WireError::UnknownMessageType { found: "blob.list".into() })
        );
        let refused = decode(r#"{"watermark":1}"#).expect_err("no type");
        assert_eq!(refused.refusal(), Some(Refusal::AbsentField));
        assert!(matches!(decode("x"), Err(WireError::Malformed(_))));
    }

    #[test]
    fn a_repair_frame_is_of_a_repair_type() {
        let limits = WireLimits::default();
        assert!(decode_repair_frame(ACK.as_bytes(), &limits).is_ok());
        for payload in [r#"{"type":"blob.put","records":5}"#, r#"{"type":"lifecycle.record"}"#] {
            let refused = decode_repair_frame(payload.as_bytes(), &limits);
            assert!(matches!(refused, Err(WireError::MessageType { .. })), "{payload}");
        }
        for payload in
            ["", "x", r#"{"type":""}"#, r#"{"type":"lifecycle.record""#, r#"{"type":"lifecycle.record"}x"#]
        {
            let refused = decode_repair_frame(payload.as_bytes(), &limits);
            assert!(matches!(refused, Err(WireError::RepairMalformed(_))), "{payload}");
        }
    }
}
