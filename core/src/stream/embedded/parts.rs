//! How the parts of an operation and of a keyspace are written: big endian, strings behind their
//! length, what may be absent behind a byte 0 or 1. Read strictly: what is read is written back to
//! the same bytes.

use crate::error::StorageFault;
use crate::journal::fields::{Fields, push_bytes};
use crate::stream::contract::{GroupContract, Start};
use crate::stream::error::CallerError;
use crate::stream::event::{Event, EventId};
use crate::stream::filter::Filter;
use crate::stream::layout::Layout;
use crate::stream::limits::{EVENT_BYTES_MAX, NAME_CHARS_MAX};
use crate::stream::name::{ConsumerName, GroupName, StreamName};
use crate::stream::op::Nonce;
use crate::stream::retention::Contract;
use alloc::borrow::ToOwned;
use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

/// Whose rules hold in an embedded keyspace.
pub(super) const LAYOUT: Layout = Layout::Tagged;

/// Longest name: characters of at most four bytes.
const NAME_BYTES_MAX: usize = NAME_CHARS_MAX * 4;

/// Longest text without a bound of its own: topic or pattern of a filter, owner of a lease. An entry
/// of the journal is not longer.
const TEXT_BYTES_MAX: usize = 2 << 20;

/// Longest text of a contract or a start.
const SHORT_BYTES_MAX: usize = 256;

pub(super) type Read<T> = Result<T, StorageFault>;

pub(super) fn put_u64(out: &mut Vec<u8>, number: u64) {
    out.extend_from_slice(&number.to_be_bytes());
}

pub(super) fn put_count(out: &mut Vec<u8>, count: usize) {
    let count = u32::try_from(count).expect("what is held in memory is below 4 Gi");
    out.extend_from_slice(&count.to_be_bytes());
}

/// A count of things that take a byte or more each: no more than 4 Gi can follow.
pub(super) fn count(fields: &mut Fields<'_>, what: &str) -> Read<usize> {
    fields.count(what, u32::MAX as usize)
}

pub(super) fn put_flag(out: &mut Vec<u8>, flag: bool) {
    out.push(u8::from(flag));
}

pub(super) fn flag(fields: &mut Fields<'_>) -> Read<bool> {
    match fields.u8()? {
        0 => Ok(false),
        1 => Ok(true),
        other => Err(fields.damaged(format!("expected 0 or 1, found {other}"))),
    }
}

pub(super) fn put_maybe<T>(out: &mut Vec<u8>, value: Option<T>, put: impl FnOnce(&mut Vec<u8>, T)) {
    put_flag(out, value.is_some());
    if let Some(value) = value {
        put(out, value);
    }
}

pub(super) fn maybe<'a, T>(
    fields: &mut Fields<'a>,
    read: impl FnOnce(&mut Fields<'a>) -> Read<T>,
) -> Read<Option<T>> {
    if flag(fields)? { read(fields).map(Some) } else { Ok(None) }
}

/// A value that its own constructor refuses was never written by us.
pub(super) fn checked<T>(fields: &Fields<'_>, value: Result<T, CallerError>) -> Read<T> {
    value.map_err(|error| fields.damaged(error.to_string()))
}

macro_rules! name {
    ($put:ident, $read:ident, $type:ident) => {
        pub(super) fn $put(out: &mut Vec<u8>, name: &$type) {
            push_bytes(out, name.as_str().as_bytes());
        }

        pub(super) fn $read(fields: &mut Fields<'_>) -> Read<$type> {
            let name = fields.text("bytes of a name", NAME_BYTES_MAX)?.to_owned();
            checked(fields, $type::new(name))
        }
    };
}

name!(put_stream, stream, StreamName);
name!(put_group, group, GroupName);

pub(super) fn put_consumer(out: &mut Vec<u8>, name: &ConsumerName) {
    push_bytes(out, name.as_str().as_bytes());
}

/// The name of a consumer, or of whoever holds what was given back.
pub(super) fn consumer(fields: &mut Fields<'_>) -> Read<ConsumerName> {
    let name = fields.text("bytes of a name", NAME_BYTES_MAX)?.to_owned();
    let shelf = ConsumerName::shelf();
    if name == shelf.as_str() { Ok(shelf) } else { checked(fields, ConsumerName::new(name)) }
}

pub(super) fn put_text(out: &mut Vec<u8>, text: &str) {
    push_bytes(out, text.as_bytes());
}

pub(super) fn text(fields: &mut Fields<'_>) -> Read<String> {
    fields.text("bytes of text", TEXT_BYTES_MAX).map(ToOwned::to_owned)
}

pub(super) fn put_id(out: &mut Vec<u8>, id: EventId) {
    put_u64(out, id.ms);
    put_u64(out, id.seq);
}

pub(super) fn id(fields: &mut Fields<'_>) -> Read<EventId> {
    Ok(EventId { ms: fields.u64()?, seq: fields.u64()? })
}

pub(super) fn nonce(fields: &mut Fields<'_>) -> Read<Nonce> {
    fields.array().map(Nonce)
}

pub(super) fn put_nonce(out: &mut Vec<u8>, nonce: Nonce) {
    out.extend_from_slice(&nonce.0);
}

pub(super) fn put_event(out: &mut Vec<u8>, event: &Event) {
    for part in [event.name(), event.topic(), event.payload()] {
        push_bytes(out, part);
    }
}

pub(super) fn event(fields: &mut Fields<'_>) -> Read<Event> {
    let mut part = || fields.bytes("bytes of an event", EVENT_BYTES_MAX).map(<[u8]>::to_vec);
    let (name, topic, payload) = (part()?, part()?, part()?);
    checked(fields, Event::new(name, payload).and_then(|event| event.with_topic(topic)))
}

/// In its canonical text.
pub(super) fn put_contract(out: &mut Vec<u8>, contract: &Contract) {
    put_text(out, &contract.text(LAYOUT));
}

pub(super) fn contract(fields: &mut Fields<'_>) -> Read<Contract> {
    let text = fields.text("bytes of a contract", SHORT_BYTES_MAX)?;
    Contract::parse(text, LAYOUT).map_err(|error| fields.damaged(error.to_string()))
}

pub(super) fn put_group_contract(out: &mut Vec<u8>, contract: &GroupContract) {
    let (kind, value) = match &contract.filter {
        Filter::All => (0, String::new()),
        Filter::Topic(_) => (1, contract.filter.parts().1),
        Filter::Pattern(_) => (2, contract.filter.parts().1),
    };
    out.push(kind);
    put_text(out, &value);
    put_text(out, &contract.start.to_string());
    put_flag(out, contract.no_ack);
    put_u64(out, contract.grace_ms);
}

pub(super) fn group_contract(fields: &mut Fields<'_>) -> Read<GroupContract> {
    let (kind, value) = (fields.u8()?, text(fields)?);
    let filter = match kind {
        0 if value.is_empty() => Filter::All,
        1 => Filter::Topic(value),
        2 => checked(fields, Filter::pattern(&value))?,
        other => return Err(fields.damaged(format!("expected a filter of kind 0 to 2, found {other}"))),
    };
    let start = fields.text("bytes of a start", SHORT_BYTES_MAX)?;
    let start =
        Start::parse(start).ok_or_else(|| fields.damaged(format!("expected a start, found {start}")))?;
    Ok(GroupContract { filter, start, no_ack: flag(fields)?, grace_ms: fields.u64()? })
}
