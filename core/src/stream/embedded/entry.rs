//! An operation as an entry of the journal.
//!
//! Kind 1. Format version (1 byte, 1), the server's clock in microseconds (8), the stream, who asks
//! (bound, wanted, nonce, ended), the number of the verb (1) and its fields. Only operations that can
//! change something have a number.

use super::parts::{
    Read, checked, consumer, contract, count, event, flag, group, group_contract, id, maybe, nonce,
    put_consumer, put_contract, put_count, put_event, put_flag, put_group, put_group_contract, put_id,
    put_maybe, put_nonce, put_stream, put_text, put_u64, stream, text,
};
use crate::journal::command::{FileName, SegmentNumber};
use crate::journal::fields::{Fields, push_bytes};
use crate::stream::event::{EventId, Ids, OnceKey};
use crate::stream::limits::{IDS_PER_CALL_MAX, ONCE_KEY_BYTES_MAX, TIME_MS_MAX};
use crate::stream::op::{Bound, By, Condition, Lease, StreamOp, Verb};
use crate::stream::retention::Wanted;
use crate::stream::time::ServerTime;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// The kind of an entry that is an operation.
pub const OPERATION: u8 = 1;

/// The format version written, and the highest that is read.
const VERSION: u8 = 1;

/// The entry for an operation; `None` for one that never changes anything.
#[must_use]
pub fn encode(at: ServerTime, op: &StreamOp) -> Option<Vec<u8>> {
    let number = number(&op.verb)?;
    let mut out = Vec::with_capacity(256);
    out.push(VERSION);
    put_u64(&mut out, at.us());
    put_stream(&mut out, &op.stream);
    put_by(&mut out, &op.by);
    out.push(number);
    put_verb(&mut out, &op.verb);
    Some(out)
}

/// Reads an entry of the journal.
///
/// # Errors
/// What was expected and what was found.
pub fn decode(kind: u8, payload: &[u8]) -> Result<(ServerTime, StreamOp), String> {
    if kind != OPERATION {
        return Err(format!("expected an entry of kind {OPERATION}, found {kind}"));
    }
    // Whoever reads the segments says which one it is.
    let mut fields = Fields::new(FileName::Segment(SegmentNumber(0)), payload);
    let op = operation(&mut fields).and_then(|op| fields.end().map(|()| op));
    op.map_err(|fault| format!("offset {}: {}", fault.offset.unwrap_or_default(), fault.detail))
}

fn operation(fields: &mut Fields<'_>) -> Read<(ServerTime, StreamOp)> {
    let version = fields.u8()?;
    if version != VERSION {
        return Err(fields.damaged(format!("expected format version {VERSION}, found {version}")));
    }
    let us = fields.u64()?;
    if us > TIME_MS_MAX {
        return Err(fields.damaged(format!("expected a clock of at most {TIME_MS_MAX} us, found {us}")));
    }
    let (stream, by) = (stream(fields)?, by(fields)?);
    let verb = verb(fields)?;
    Ok((ServerTime::from_us(us), StreamOp { stream, by, verb }))
}

const fn number(verb: &Verb) -> Option<u8> {
    match verb {
        Verb::Open => Some(1),
        Verb::Add { .. } => Some(2),
        Verb::AddOnce { .. } => Some(3),
        Verb::Remove { .. } => Some(4),
        Verb::Destroy => Some(5),
        Verb::GroupOpen { .. } => Some(6),
        Verb::GroupRead { .. } => Some(7),
        Verb::GroupAck { .. } => Some(8),
        Verb::GroupRegister { .. } => Some(9),
        Verb::GroupKeepAlive { .. } => Some(10),
        Verb::GroupDetach { .. } => Some(11),
        Verb::LeaseAcquire { .. } => Some(12),
        Verb::LeaseRenew { .. } => Some(13),
        Verb::GroupClaim { .. } => Some(14),
        Verb::GroupSweep { .. } => Some(15),
        Verb::GroupNack { .. } => Some(16),
        Verb::GroupBury { .. } => Some(17),
        Verb::DeadRemove { .. } => Some(18),
        Verb::GroupTold { .. } => Some(19),
        Verb::Attend | Verb::Snapshot | Verb::Read { .. } | Verb::Replay { .. } => None,
        Verb::DeadRead { .. } | Verb::Groups { .. } => None,
    }
}

fn put_by(out: &mut Vec<u8>, by: &By) {
    put_maybe(out, by.bound.as_ref(), |out, bound| {
        put_u64(out, bound.generation);
        put_maybe(out, bound.nonce, put_nonce);
        put_maybe(out, bound.contract.as_ref(), put_contract);
    });
    put_contract(out, &by.wanted.contract);
    put_flag(out, by.wanted.explicit);
    put_nonce(out, by.nonce);
    put_flag(out, by.ended);
}

fn by(fields: &mut Fields<'_>) -> Read<By> {
    let bound = maybe(fields, |fields| {
        let (generation, nonce) = (fields.u64()?, maybe(fields, nonce)?);
        Ok(Bound { generation, nonce, contract: maybe(fields, contract)? })
    })?;
    let wanted = Wanted { contract: contract(fields)?, explicit: flag(fields)? };
    Ok(By { bound, wanted, nonce: nonce(fields)?, ended: flag(fields)? })
}

fn put_ids(out: &mut Vec<u8>, ids: &Ids) {
    put_count(out, ids.as_slice().len());
    for id in ids.as_slice() {
        put_id(out, *id);
    }
}

fn ids(fields: &mut Fields<'_>) -> Read<Ids> {
    let found = fields.count("IDs", IDS_PER_CALL_MAX)?;
    let ids: Vec<EventId> = (0..found).map(|_| id(fields)).collect::<Read<_>>()?;
    checked(fields, Ids::new(ids))
}

fn put_condition(out: &mut Vec<u8>, condition: Condition) {
    match condition {
        Condition::Always => out.push(0),
        Condition::IfExists => out.push(1),
        Condition::After(id) => {
            out.push(2);
            put_id(out, id);
        }
    }
}

fn condition(fields: &mut Fields<'_>) -> Read<Condition> {
    match fields.u8()? {
        0 => Ok(Condition::Always),
        1 => Ok(Condition::IfExists),
        2 => id(fields).map(Condition::After),
        other => Err(fields.damaged(format!("expected a condition of kind 0 to 2, found {other}"))),
    }
}

fn put_lease(out: &mut Vec<u8>, lease: &Lease) {
    put_text(out, &lease.owner);
    put_u64(out, lease.fence);
    put_u64(out, lease.lease_ms);
}

fn lease(fields: &mut Fields<'_>) -> Read<Lease> {
    Ok(Lease { owner: text(fields)?, fence: fields.u64()?, lease_ms: fields.u64()? })
}

fn put_verb(out: &mut Vec<u8>, verb: &Verb) {
    match verb {
        Verb::Open | Verb::Destroy => {}
        Verb::Add { event, condition } => {
            put_event(out, event);
            put_condition(out, *condition);
        }
        Verb::AddOnce { key, event } => {
            push_bytes(out, key.as_bytes());
            put_event(out, event);
        }
        Verb::Remove { ids } | Verb::DeadRemove { ids } => put_ids(out, ids),
        Verb::GroupOpen { group, contract, settled } => {
            put_group(out, group);
            put_group_contract(out, contract);
            put_maybe(out, *settled, put_id);
        }
        Verb::GroupRead { group, consumer, events_max } => {
            put_member(out, group, consumer);
            put_count(out, *events_max as usize);
        }
        Verb::GroupAck { group, ids } => {
            put_group(out, group);
            put_ids(out, ids);
        }
        Verb::GroupRegister { group, consumer } | Verb::GroupKeepAlive { group, consumer } => {
            put_member(out, group, consumer);
        }
        Verb::GroupDetach { group, consumer, release } => {
            put_member(out, group, consumer);
            put_flag(out, *release);
        }
        Verb::GroupNack { group, consumer, ids, delay_ms } => {
            put_member(out, group, consumer);
            put_ids(out, ids);
            put_u64(out, *delay_ms);
        }
        Verb::GroupTold { group, through } => {
            put_group(out, group);
            put_u64(out, *through);
        }
        Verb::GroupBury { group, consumer, ids } => {
            put_member(out, group, consumer);
            put_ids(out, ids);
        }
        Verb::LeaseAcquire { group, owner, lease_ms } => {
            put_group(out, group);
            put_text(out, owner);
            put_u64(out, *lease_ms);
        }
        Verb::LeaseRenew { group, lease } => {
            put_group(out, group);
            put_lease(out, lease);
        }
        Verb::GroupClaim { group, lease, consumer, idle_ms, from, events_max } => {
            put_member(out, group, consumer);
            put_lease(out, lease);
            put_u64(out, *idle_ms);
            put_id(out, *from);
            put_count(out, *events_max as usize);
        }
        Verb::GroupSweep { group, lease, grace_ms } => {
            put_group(out, group);
            put_lease(out, lease);
            put_u64(out, *grace_ms);
        }
        Verb::Attend | Verb::Snapshot | Verb::Read { .. } | Verb::Replay { .. } => {
            unreachable!("it has no number")
        }
        Verb::DeadRead { .. } | Verb::Groups { .. } => {
            unreachable!("it has no number")
        }
    }
}

fn put_member(
    out: &mut Vec<u8>,
    group: &crate::stream::name::GroupName,
    consumer: &crate::stream::name::ConsumerName,
) {
    put_group(out, group);
    put_consumer(out, consumer);
}

fn events_max(fields: &mut Fields<'_>) -> Read<u32> {
    count(fields, "events").map(|found| u32::try_from(found).expect("a count has four bytes"))
}

fn verb(fields: &mut Fields<'_>) -> Read<Verb> {
    Ok(match fields.u8()? {
        1 => Verb::Open,
        2 => Verb::Add { event: event(fields)?, condition: condition(fields)? },
        3 => {
            let key = fields.bytes("bytes of a key", ONCE_KEY_BYTES_MAX)?;
            Verb::AddOnce { key: checked(fields, OnceKey::new(key))?, event: event(fields)? }
        }
        4 => Verb::Remove { ids: ids(fields)? },
        5 => Verb::Destroy,
        6 => Verb::GroupOpen {
            group: group(fields)?,
            contract: group_contract(fields)?,
            settled: maybe(fields, id)?,
        },
        7 => Verb::GroupRead {
            group: group(fields)?,
            consumer: consumer(fields)?,
            events_max: events_max(fields)?,
        },
        8 => Verb::GroupAck { group: group(fields)?, ids: ids(fields)? },
        9 => Verb::GroupRegister { group: group(fields)?, consumer: consumer(fields)? },
        10 => Verb::GroupKeepAlive { group: group(fields)?, consumer: consumer(fields)? },
        11 => {
            Verb::GroupDetach { group: group(fields)?, consumer: consumer(fields)?, release: flag(fields)? }
        }
        12 => Verb::LeaseAcquire { group: group(fields)?, owner: text(fields)?, lease_ms: fields.u64()? },
        13 => Verb::LeaseRenew { group: group(fields)?, lease: lease(fields)? },
        14 => {
            let (group, consumer) = (group(fields)?, consumer(fields)?);
            let (lease, idle_ms, from) = (lease(fields)?, fields.u64()?, id(fields)?);
            Verb::GroupClaim { group, lease, consumer, idle_ms, from, events_max: events_max(fields)? }
        }
        15 => Verb::GroupSweep { group: group(fields)?, lease: lease(fields)?, grace_ms: fields.u64()? },
        16 => Verb::GroupNack {
            group: group(fields)?,
            consumer: consumer(fields)?,
            ids: ids(fields)?,
            delay_ms: fields.u64()?,
        },
        17 => Verb::GroupBury { group: group(fields)?, consumer: consumer(fields)?, ids: ids(fields)? },
        18 => Verb::DeadRemove { ids: ids(fields)? },
        19 => Verb::GroupTold { group: group(fields)?, through: fields.u64()? },
        other => return Err(fields.damaged(format!("expected a verb of number 1 to 19, found {other}"))),
    })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::stream::contract::{GroupContract, Start};
    use crate::stream::event::Event;
    use crate::stream::filter::Filter;
    use crate::stream::handle::Handle;
    use crate::stream::layout::Layout;
    use crate::stream::name::{ConsumerName, GroupName, StreamName};
    use crate::stream::op::Nonce;
    use crate::stream::retention::Settings;
    use alloc::vec;

    /// One operation of each verb that can change something, and of each form of its fields.
    pub(in crate::stream::embedded) fn operations() -> Vec<StreamOp> {
        let group = GroupName::new("g").unwrap();
        let consumer = ConsumerName::new("c").unwrap();
        let event = Event::new("e", "body").unwrap().with_topic("t").unwrap();
        let id = EventId { ms: 3, seq: 4 };
        let ids = Ids::new(vec![id, EventId::MAX]).unwrap();
        let lease = Lease { owner: "o".into(), fence: 2, lease_ms: 300 };
        let contract = |filter| GroupContract { filter, start: Start::After(id), no_ack: true, grace_ms: 5 };
        let verbs = vec![
            Verb::Open,
            Verb::Add { event: event.clone(), condition: Condition::Always },
            Verb::Add { event: event.clone(), condition: Condition::IfExists },
            Verb::Add { event: event.clone(), condition: Condition::After(id) },
            Verb::AddOnce { key: OnceKey::new("k").unwrap(), event },
            Verb::Remove { ids: ids.clone() },
            Verb::Destroy,
            Verb::GroupOpen { group: group.clone(), contract: contract(Filter::All), settled: None },
            Verb::GroupOpen {
                group: group.clone(),
                contract: contract(Filter::Topic("t".into())),
                settled: Some(id),
            },
            Verb::GroupOpen {
                group: group.clone(),
                contract: contract(Filter::pattern("^t").unwrap()),
                settled: None,
            },
            Verb::GroupRead { group: group.clone(), consumer: consumer.clone(), events_max: 7 },
            Verb::GroupNack {
                group: group.clone(),
                consumer: consumer.clone(),
                ids: ids.clone(),
                delay_ms: 12,
            },
            Verb::GroupBury { group: group.clone(), consumer: consumer.clone(), ids: ids.clone() },
            Verb::DeadRemove { ids: ids.clone() },
            Verb::GroupTold { group: group.clone(), through: 5 },
            Verb::GroupAck { group: group.clone(), ids },
            Verb::GroupRegister { group: group.clone(), consumer: consumer.clone() },
            Verb::GroupKeepAlive { group: group.clone(), consumer: consumer.clone() },
            Verb::GroupDetach { group: group.clone(), consumer: consumer.clone(), release: true },
            Verb::LeaseAcquire { group: group.clone(), owner: "o".into(), lease_ms: 9 },
            Verb::LeaseRenew { group: group.clone(), lease: lease.clone() },
            Verb::GroupClaim {
                group: group.clone(),
                lease: lease.clone(),
                consumer,
                idle_ms: 8,
                from: id,
                events_max: 1,
            },
            Verb::GroupSweep { group, lease, grace_ms: 6 },
        ];
        let wanted = Settings::new().max_len(3).ttl(core::time::Duration::from_secs(1)).wanted().unwrap();
        let handle = Handle::new(StreamName::new("orders").unwrap(), wanted, Layout::Tagged).unwrap();
        let mut ops: Vec<StreamOp> = verbs.into_iter().map(|verb| handle.op(verb, Nonce([7; 16]))).collect();
        ops[1].by.bound =
            Some(Bound { generation: 2, nonce: Some(Nonce([3; 16])), contract: Some(wanted.contract) });
        ops[2].by.bound = Some(Bound { generation: 2, nonce: None, contract: None });
        ops[3].by.ended = true;
        ops
    }

    #[test]
    fn every_operation_comes_back() {
        let at = ServerTime::from_us(1_234_567);
        for op in operations() {
            let bytes = encode(at, &op).expect("it can change something");
            assert_eq!(decode(OPERATION, &bytes), Ok((at, op)));
        }
    }

    #[test]
    fn what_is_cut_short_or_goes_on_is_refused() {
        for op in operations() {
            let mut bytes = encode(ServerTime::from_ms(5), &op).unwrap();
            for len in 0..bytes.len() {
                assert!(decode(OPERATION, &bytes[..len]).is_err(), "{:?} cut to {len}", op.verb);
            }
            bytes.push(0);
            assert!(decode(OPERATION, &bytes).is_err(), "{:?}", op.verb);
        }
    }

    #[test]
    fn a_newer_version_and_another_kind_are_named() {
        let mut bytes = encode(ServerTime::from_ms(5), &operations()[0]).unwrap();
        assert_eq!(decode(0, &bytes).unwrap_err(), "expected an entry of kind 1, found 0");
        bytes[0] = 2;
        assert_eq!(decode(1, &bytes).unwrap_err(), "offset 1: expected format version 1, found 2");
    }

    #[test]
    fn what_only_reads_has_no_entry() {
        let handle = Handle::new(StreamName::new("s").unwrap(), Wanted::default(), Layout::Tagged).unwrap();
        let reads = [
            Verb::Attend,
            Verb::Snapshot,
            Verb::Read { after: EventId::ZERO, events_max: 1 },
            Verb::Replay { after: EventId::ZERO, events_max: 1, bytes_max: 1 },
            Verb::DeadRead { after: EventId::ZERO, events_max: 1 },
            Verb::Groups { after: None, groups_max: 1 },
        ];
        for verb in reads {
            assert_eq!(encode(ServerTime::from_ms(1), &handle.op(verb, Nonce([0; 16]))), None);
        }
    }
}
