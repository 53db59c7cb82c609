//! A keyspace as a checkpoint.
//!
//! Magic `SLSK`, format version (4 bytes, 1), the server's clock in microseconds (8), and every name in
//! order with its record and the data of its generations. Maps are in the order of their keys.

use super::parts::{
    LAYOUT, Read, consumer, contract, count, event, flag, group, group_contract, id, maybe, nonce,
    put_consumer, put_contract, put_count, put_event, put_flag, put_group, put_group_contract, put_id,
    put_maybe, put_nonce, put_stream, put_text, put_u64, stream, text,
};
use crate::journal::command::FileName;
use crate::journal::fields::{Fields, push_bytes};
use crate::stream::event::Stored;
use crate::stream::keyspace::Keyspace;
use crate::stream::keyspace::books::Books;
use crate::stream::keyspace::log::{Log, LogGroup, Pending};
use crate::stream::keyspace::space::{
    Data, Dead, Group, Identity, LeaseState, Life, Member, Once, Record, Space,
};
use crate::stream::limits::{
    DEAD_LETTERS_MAX, GROUP_LATER_MAX, GROUP_MEMBERS_MAX, GROUP_MISSED_MAX, ONCE_KEY_BYTES_MAX,
    ONCE_RECORDS_MAX, TIME_MS_MAX,
};
use crate::stream::reply::{DeadLetter, Dropped, GapReason, Missed};
use crate::stream::time::ServerTime;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

const MAGIC: [u8; 4] = *b"SLSK";
const FORMAT: u32 = 1;

/// The keyspace is longer than a checkpoint may be.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct TooLarge;

/// Writes a keyspace; stops once it is longer than `bytes_max`.
pub(super) fn encode(at: ServerTime, keyspace: &Keyspace, bytes_max: u64) -> Result<Vec<u8>, TooLarge> {
    let mut out = MAGIC.to_vec();
    out.extend_from_slice(&FORMAT.to_be_bytes());
    put_u64(&mut out, at.us());
    put_count(&mut out, keyspace.spaces().count());
    for (name, space) in keyspace.spaces() {
        put_stream(&mut out, name);
        put_maybe(&mut out, space.life.as_ref(), put_life);
        put_count(&mut out, space.data.len());
        for (generation, data) in &space.data {
            put_u64(&mut out, *generation);
            put_data(&mut out, data, bytes_max)?;
        }
    }
    if out.len() as u64 > bytes_max { Err(TooLarge) } else { Ok(out) }
}

/// Reads what [`encode`] writes, and nothing else.
pub(super) fn decode(bytes: &[u8]) -> Result<(ServerTime, Keyspace), String> {
    // Whoever reads the file says which one it is.
    let mut fields = Fields::new(FileName::Checkpoint(0), bytes);
    let read = keyspace(&mut fields).and_then(|read| fields.end().map(|()| read));
    read.map_err(|fault| format!("offset {}: {}", fault.offset.unwrap_or_default(), fault.detail))
}

fn keyspace(fields: &mut Fields<'_>) -> Read<(ServerTime, Keyspace)> {
    let magic: [u8; 4] = fields.array()?;
    let format = fields.u32()?;
    if magic != MAGIC || format != FORMAT {
        let magic = magic.escape_ascii();
        return Err(fields.damaged(format!("expected SLSK of format {FORMAT}, found {magic} of {format}")));
    }
    let us = fields.u64()?;
    if us > TIME_MS_MAX {
        return Err(fields.damaged(format!("expected a clock of at most {TIME_MS_MAX} us, found {us}")));
    }
    let spaces = map(fields, "names", stream, space)?;
    Ok((ServerTime::from_us(us), Keyspace::restore(LAYOUT, spaces)))
}

/// A map whose keys rise.
fn map<'a, K: Ord, V>(
    fields: &mut Fields<'a>,
    what: &str,
    key: impl Fn(&mut Fields<'a>) -> Read<K>,
    value: impl Fn(&mut Fields<'a>) -> Read<V>,
) -> Read<BTreeMap<K, V>> {
    let mut read = BTreeMap::new();
    for _ in 0..count(fields, what)? {
        let key = key(fields)?;
        if read.last_key_value().is_some_and(|(last, _)| *last >= key) {
            return Err(fields.damaged(format!("expected {what} that rise")));
        }
        read.insert(key, value(fields)?);
    }
    Ok(read)
}

fn put_life(out: &mut Vec<u8>, life: &Life) {
    put_flag(out, life.active);
    put_u64(out, life.generation);
    put_maybe(out, life.nonce, put_nonce);
    put_contract(out, &life.contract);
}

fn life(fields: &mut Fields<'_>) -> Read<Life> {
    Ok(Life {
        active: flag(fields)?,
        generation: fields.u64()?,
        nonce: maybe(fields, nonce)?,
        contract: contract(fields)?,
    })
}

fn space(fields: &mut Fields<'_>) -> Read<Space> {
    let life = maybe(fields, life)?;
    Ok(Space { life, data: map(fields, "generations", Fields::u64, data)? })
}

fn put_data(out: &mut Vec<u8>, data: &Data, bytes_max: u64) -> Result<(), TooLarge> {
    put_flag(out, data.log.is_some());
    if let Some(log) = &data.log {
        put_log(out, log, bytes_max)?;
    }
    put_count(out, data.once.records.len());
    for (key, record) in &data.once.records {
        push_bytes(out, key);
        put_id(out, record.id);
        put_identity(out, &record.identity);
        put_u64(out, record.expires_at_ms);
    }
    put_maybe(out, data.once.expires_at_ms, put_u64);
    put_count(out, data.groups.len());
    for (name, group) in &data.groups {
        put_group(out, name);
        put_group_books(out, group);
    }
    put_dead(out, &data.dead, bytes_max)?;
    if out.len() as u64 > bytes_max { Err(TooLarge) } else { Ok(()) }
}

fn data(fields: &mut Fields<'_>) -> Read<Data> {
    let log = maybe(fields, log)?;
    let records = map(fields, "idempotency records", once_key, record)?;
    if records.len() > ONCE_RECORDS_MAX {
        let found = records.len();
        return Err(fields.damaged(format!("expected at most {ONCE_RECORDS_MAX} records, found {found}")));
    }
    let by_instant = records.iter().map(|(key, record)| (record.expires_at_ms, key.clone())).collect();
    let once = Once { records, by_instant, expires_at_ms: maybe(fields, Fields::u64)? };
    let (groups, dead) = (map(fields, "groups", group, group_books)?, dead(fields)?);
    // The Pulse layout alone has books.
    Ok(Data { log, once, groups, dead, books: Books::default() })
}

fn put_dead(out: &mut Vec<u8>, dead: &Dead, bytes_max: u64) -> Result<(), TooLarge> {
    put_count(out, dead.letters.len());
    for (at, letter) in &dead.letters {
        put_id(out, *at);
        put_group(out, &letter.group);
        put_id(out, letter.id);
        put_u64(out, letter.count);
        put_stored(out, &letter.stored);
        if out.len() as u64 > bytes_max {
            return Err(TooLarge);
        }
    }
    put_id(out, dead.last);
    Ok(())
}

fn dead(fields: &mut Fields<'_>) -> Read<Dead> {
    let letters = map(fields, "dead letters", id, |fields| {
        Ok((group(fields)?, id(fields)?, fields.u64()?, stored(fields)?))
    })?;
    let (found, last) = (letters.len(), id(fields)?);
    if found > DEAD_LETTERS_MAX {
        return Err(
            fields.damaged(format!("expected at most {DEAD_LETTERS_MAX} dead letters, found {found}"))
        );
    }
    if letters.last_key_value().is_some_and(|(newest, _)| *newest > last) {
        return Err(fields.damaged(format!("expected no dead letter after {last}")));
    }
    let letter = |(at, (group, id, count, stored))| (at, DeadLetter { at, group, id, count, stored });
    Ok(Dead { letters: letters.into_iter().map(letter).collect(), last })
}

fn once_key(fields: &mut Fields<'_>) -> Read<Vec<u8>> {
    fields.bytes("bytes of a key", ONCE_KEY_BYTES_MAX).map(<[u8]>::to_vec)
}

fn put_identity(out: &mut Vec<u8>, identity: &Identity) {
    match identity {
        Identity::Digest(digest) => out.extend_from_slice(digest),
        Identity::Exact(_) => unreachable!("the Pulse layout alone keeps the bytes"),
    }
}

fn record(fields: &mut Fields<'_>) -> Read<Record> {
    let (id, identity) = (id(fields)?, Identity::Digest(fields.array()?));
    Ok(Record { id, identity, expires_at_ms: fields.u64()? })
}

fn put_log(out: &mut Vec<u8>, log: &Log, bytes_max: u64) -> Result<(), TooLarge> {
    put_count(out, log.entries.len());
    for (id, stored) in &log.entries {
        put_id(out, *id);
        put_stored(out, stored);
        if out.len() as u64 > bytes_max {
            return Err(TooLarge);
        }
    }
    put_id(out, log.last);
    put_u64(out, log.added);
    put_count(out, log.groups.len());
    for (name, group) in &log.groups {
        put_group(out, name);
        put_log_group(out, group);
    }
    put_maybe(out, log.expires_at_ms, put_u64);
    Ok(())
}

fn log(fields: &mut Fields<'_>) -> Read<Log> {
    let entries = map(fields, "entries", id, stored)?;
    let (last, added) = (id(fields)?, fields.u64()?);
    if entries.last_key_value().is_some_and(|(newest, _)| *newest > last) {
        return Err(fields.damaged(format!("expected no entry after {last}")));
    }
    let groups = map(fields, "groups", group, log_group)?;
    Ok(Log { entries, last, added, groups, expires_at_ms: maybe(fields, Fields::u64)? })
}

fn put_stored(out: &mut Vec<u8>, stored: &Stored) {
    match stored {
        Stored::Event(event) => {
            out.push(0);
            put_event(out, event);
        }
        Stored::Loose(event) => {
            out.push(1);
            put_event(out, event);
        }
        Stored::Malformed => out.push(2),
    }
}

fn stored(fields: &mut Fields<'_>) -> Read<Stored> {
    match fields.u8()? {
        0 => event(fields).map(Stored::Event),
        1 => event(fields).map(Stored::Loose),
        2 => Ok(Stored::Malformed),
        other => Err(fields.damaged(format!("expected an entry of kind 0 to 2, found {other}"))),
    }
}

fn put_log_group(out: &mut Vec<u8>, group: &LogGroup) {
    put_id(out, group.delivered);
    put_count(out, group.consumers.len());
    for name in &group.consumers {
        put_consumer(out, name);
    }
    put_count(out, group.pending.len());
    for (id, pending) in &group.pending {
        put_id(out, *id);
        put_consumer(out, &pending.consumer);
        put_u64(out, pending.since_ms);
        put_u64(out, pending.count);
    }
    put_maybe(out, group.seen, put_u64);
}

fn log_group(fields: &mut Fields<'_>) -> Read<LogGroup> {
    let delivered = id(fields)?;
    let consumers: BTreeSet<_> = map(fields, "consumers", consumer, |_| Ok(()))?.into_keys().collect();
    let pending = map(fields, "pending entries", id, |fields| {
        Ok(Pending { consumer: consumer(fields)?, since_ms: fields.u64()?, count: fields.u64()? })
    })?;
    Ok(LogGroup { delivered, consumers, pending, seen: maybe(fields, Fields::u64)? })
}

fn put_group_books(out: &mut Vec<u8>, group: &Group) {
    put_maybe(out, group.contract.as_ref(), put_group_contract);
    put_maybe(out, group.cursor, put_id);
    put_maybe(out, group.lease.as_ref(), |out, lease| {
        put_text(out, &lease.owner);
        put_u64(out, lease.fence);
        put_u64(out, lease.until_ms);
    });
    put_count(out, group.members.len());
    for member in &group.members {
        put_consumer(out, &member.consumer);
        put_u64(out, member.alive_us);
    }
    put_count(out, group.later.len());
    for (id, due_ms) in &group.later {
        put_id(out, *id);
        put_u64(out, *due_ms);
    }
    put_count(out, group.missed.len());
    for missed in &group.missed {
        put_u64(out, missed.number);
        put_text(out, missed.reason.word());
        put_id(out, missed.dropped.after);
        put_maybe(out, missed.dropped.before, put_id);
        put_maybe(out, missed.dropped.events, put_u64);
    }
    put_u64(out, group.missed_last);
    put_id(out, group.reached);
}

fn missed(fields: &mut Fields<'_>) -> Read<Missed> {
    let (number, word) = (fields.u64()?, text(fields)?);
    let Some(reason) = GapReason::parse(&word) else {
        return Err(fields.damaged(format!("expected why events are missing, found {word:?}")));
    };
    let (after, before) = (id(fields)?, maybe(fields, id)?);
    Ok(Missed { number, reason, dropped: Dropped { after, before, events: maybe(fields, Fields::u64)? } })
}

fn group_books(fields: &mut Fields<'_>) -> Read<Group> {
    let (contract, cursor) = (maybe(fields, group_contract)?, maybe(fields, id)?);
    let lease = maybe(fields, |fields| {
        Ok(LeaseState { owner: text(fields)?, fence: fields.u64()?, until_ms: fields.u64()? })
    })?;
    let members = (0..fields.count("members", GROUP_MEMBERS_MAX)?)
        .map(|_| Ok(Member { consumer: consumer(fields)?, alive_us: fields.u64()? }))
        .collect::<Read<_>>()?;
    let later = map(fields, "entries put off", id, Fields::u64)?;
    if later.len() > GROUP_LATER_MAX {
        let found = later.len();
        return Err(
            fields.damaged(format!("expected at most {GROUP_LATER_MAX} entries put off, found {found}"))
        );
    }
    let holes = fields.count("holes", GROUP_MISSED_MAX)?;
    let missed = (0..holes).map(|_| missed(fields)).collect::<Read<Vec<_>>>()?;
    let (missed_last, reached) = (fields.u64()?, id(fields)?);
    Ok(Group { contract, cursor, lease, members, later, missed, missed_last, reached })
}

#[cfg(test)]
mod tests {
    use super::super::entry::tests::operations;
    use super::*;

    fn keyspace() -> Keyspace {
        let mut keyspace = Keyspace::new(LAYOUT);
        let mut done = 0;
        for (at, mut op) in operations().into_iter().cycle().take(60).enumerate() {
            op.by.bound = None;
            op.by.ended = false;
            if at < 40 && op.verb == crate::stream::op::Verb::Destroy {
                continue;
            }
            done += u64::from(keyspace.apply(ServerTime::from_ms(1 + at as u64), &op).is_ok());
        }
        assert!(done > 30, "the state is rich enough: {done}");
        keyspace
    }

    #[test]
    fn a_keyspace_comes_back() {
        let (at, keyspace) = (ServerTime::from_us(77), keyspace());
        let bytes = encode(at, &keyspace, u64::MAX).unwrap();
        assert_eq!(decode(&bytes), Ok((at, keyspace)));
    }

    #[test]
    fn what_was_given_back_put_off_and_buried_comes_back() {
        use crate::stream::contract::{GroupContract, Start};
        use crate::stream::event::{Event, EventId, Ids};
        use crate::stream::filter::Filter;
        use crate::stream::handle::Handle;
        use crate::stream::name::{ConsumerName, GroupName, StreamName};
        use crate::stream::op::{Condition, Nonce, Verb};
        use crate::stream::reply::Told;
        use crate::stream::retention::Wanted;

        let handle = Handle::new(StreamName::new("s").unwrap(), Wanted::default(), LAYOUT).unwrap();
        let (group, consumer) = (GroupName::new("g").unwrap(), ConsumerName::new("c").unwrap());
        let mut keyspace = Keyspace::new(LAYOUT);
        let mut step = |at, verb| {
            let op = handle.op(verb, Nonce([7; 16]));
            keyspace.apply(ServerTime::from_ms(at), &op).unwrap().told
        };
        for at in 1..4 {
            let event = Event::new("e", "body").unwrap();
            let _ = step(at, Verb::Add { event, condition: Condition::Always });
        }
        let contract =
            GroupContract { filter: Filter::All, start: Start::Oldest, no_ack: false, grace_ms: 5 };
        let _ = step(4, Verb::GroupOpen { group: group.clone(), contract, settled: None });
        let _ = step(5, Verb::GroupRegister { group: group.clone(), consumer: consumer.clone() });
        let _ = step(6, Verb::GroupRead { group: group.clone(), consumer: consumer.clone(), events_max: 9 });
        let one = |ms| Ids::new(alloc::vec![EventId { ms, seq: 0 }]).unwrap();
        let nack = |ms, delay_ms| Verb::GroupNack {
            group: group.clone(),
            consumer: consumer.clone(),
            ids: one(ms),
            delay_ms,
        };
        assert_eq!(step(7, nack(1, 0)), Told::Nacked { count: 1 });
        assert_eq!(step(8, nack(2, 50)), Told::Nacked { count: 1 });
        let bury = Verb::GroupBury { group: group.clone(), consumer: consumer.clone(), ids: one(3) };
        assert!(matches!(step(9, bury), Told::Buried { count: 1, .. }));
        let bytes = encode(ServerTime::from_ms(9), &keyspace, u64::MAX).unwrap();
        assert_eq!(decode(&bytes), Ok((ServerTime::from_ms(9), keyspace)));
    }

    #[test]
    fn what_is_cut_short_or_goes_on_is_refused() {
        let mut bytes = encode(ServerTime::from_us(77), &keyspace(), u64::MAX).unwrap();
        for len in 0..bytes.len() {
            assert!(decode(&bytes[..len]).is_err(), "cut to {len}");
        }
        bytes.push(0);
        assert!(decode(&bytes).is_err());
    }

    #[test]
    fn what_is_read_is_written_back_to_the_same_bytes() {
        let bytes = encode(ServerTime::from_us(77), &keyspace(), u64::MAX).unwrap();
        for bit in 0..bytes.len() * 8 {
            let mut other = bytes.clone();
            other[bit / 8] ^= 1 << (bit % 8);
            if let Ok((at, keyspace)) = decode(&other) {
                assert_eq!(encode(at, &keyspace, u64::MAX), Ok(other), "bit {bit}");
            }
        }
    }

    #[test]
    fn one_that_is_too_long_is_not_written() {
        let keyspace = keyspace();
        let bytes = encode(ServerTime::from_us(7), &keyspace, u64::MAX).unwrap().len() as u64;
        assert_eq!(encode(ServerTime::from_us(7), &keyspace, bytes - 1), Err(TooLarge));
        assert!(encode(ServerTime::from_us(7), &keyspace, bytes).is_ok());
    }
}
