//! Every decoder of a message.

use serde_json::Value;
use strandline_core::wire::capability::{Capabilities, Capability};
use strandline_core::wire::limits::WireLimits;
use strandline_core::wire::message::{Message, MessageType, decode_message, decode_repair_frame, encode};

/// What a decoder accepts is JSON to a parser that is not ours, and encodes to JSON of the same value,
/// which decodes to the same message and encodes to the same bytes.
///
/// # Panics
/// If a promise is broken.
pub fn check(data: &[u8]) -> bool {
    let limits = WireLimits::default();
    let everything = Capabilities::new(MessageType::ALL.iter().filter_map(|kind| Some(kind.needs()?.0)))
        .expect("no message needs a log or an incarnation");
    let decoded = decode_message(data, &limits, &everything);
    repair_agrees(data, decoded.as_ref().ok(), &limits);
    let Ok(message) = decoded else { return false };

    let theirs: Value = serde_json::from_slice(data).expect("what we accept is JSON");
    let mut encoded = Vec::new();
    encode(&message, &limits, &mut encoded).expect("what was decoded can be encoded");
    let ours: Value = serde_json::from_slice(&encoded).expect("what we encode is JSON");
    assert_eq!(ours, theirs, "the same value, however it was written");

    let again = decode_message(&encoded, &limits, &everything).expect("what we encode decodes");
    assert_eq!(again, message);
    let mut twice = Vec::new();
    encode(&again, &limits, &mut twice).expect("what was encoded once can be encoded again");
    assert_eq!(twice, encoded, "a message has one encoding");

    undeclared(data, &ours, &limits);
    true
}

/// The decoder of repair frames takes what the decoder of all messages takes, if it is repair.
fn repair_agrees(data: &[u8], message: Option<&Message>, limits: &WireLimits) {
    let expected = message.filter(|message| match message {
        Message::Batch(_) | Message::Snapshot(_) | Message::Ack { .. } => true,
        Message::Record(_) | Message::Blob(_) | Message::Own(_) => false,
    });
    assert_eq!(decode_repair_frame(data, limits).ok().as_ref(), expected);
}

/// A peer that declared nothing sends only what needs nothing.
fn undeclared(data: &[u8], value: &Value, limits: &WireLimits) {
    let name = value["type"].as_str().expect("a type");
    let needs: Option<Capability> = MessageType::parse(name).expect("a known type").needs().map(|n| n.0);
    let accepted = decode_message(data, limits, &Capabilities::default()).is_ok();
    assert_eq!(accepted, needs.is_none(), "{name} without its capability");
}
