//! What a script answers, as the reply that the model gives.

use crate::listed::groups;
use redis::Value;
use strandline_core::id::unhex;
use strandline_core::stream::event::{Entry, Stored};
use strandline_core::stream::listing::Groups;
use strandline_core::stream::op::{Bound, Nonce};
use strandline_core::stream::reply::{DeadLetter, Dropped, GapReason, Missed, Told, replay_result};
use strandline_core::stream::word::refusal;
use strandline_core::stream::{
    ConsumerName, Contract, EventId, GroupName, Layout, ServerFault, ServerTime, StreamError, StreamOp,
    StreamReply, Verb,
};

/// What came back from a script.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The step was done, or refused.
    Done(ServerTime, Result<StreamReply, StreamError>),
    /// The stream is at another generation than supposed: nothing was done.
    Moved(u64),
}

/// An answer that is not one of ours.
pub(crate) fn strange(expected: &str, found: &impl core::fmt::Debug) -> StreamError {
    let found: String = format!("{found:?}").chars().take(200).collect();
    ServerFault::Answer { detail: format!("expected {expected}, found {found}") }.into()
}

pub(crate) type Read<T> = Result<T, StreamError>;

/// Taken, not copied: a payload may be large.
pub(crate) fn bytes(value: &mut Value) -> Read<Vec<u8>> {
    if let Value::BulkString(bytes) = value {
        Ok(core::mem::take(bytes))
    } else if let Value::SimpleString(text) = value {
        Ok(core::mem::take(text).into_bytes())
    } else if let Value::Int(number) = value {
        Ok(number.to_string().into_bytes())
    } else {
        Err(strange("text", value))
    }
}

pub(crate) fn text(value: &mut Value) -> Read<String> {
    String::from_utf8(bytes(value)?).map_err(|error| strange("UTF-8", &error))
}

pub(crate) fn number(value: &mut Value) -> Read<u64> {
    text(value)?.parse().map_err(|_| strange("a number", value))
}

pub(crate) fn id(value: &mut Value) -> Read<EventId> {
    EventId::parse(&text(value)?).ok_or_else(|| strange("a position", value))
}

pub(crate) fn list(value: &mut Value) -> Read<&mut [Value]> {
    if !matches!(value, Value::Array(_) | Value::Nil) {
        return Err(strange("a list", value));
    }
    if let Value::Array(list) = value { Ok(list) } else { Ok(&mut []) }
}

fn stored(fields: &mut [Value]) -> Read<Stored> {
    let fields = fields.chunks_exact_mut(2).map(|pair| {
        let [field, value] = pair else { unreachable!("they are two") };
        Ok((bytes(field)?, bytes(value)?))
    });
    Ok(Stored::from_fields(fields.collect::<Read<Vec<_>>>()?))
}

fn entry(value: &mut Value) -> Read<Entry> {
    let [at, fields] = list(value)? else { return Err(strange("an entry", value)) };
    Ok(Entry { id: id(at)?, stored: stored(list(fields)?)? })
}

fn entries(value: &mut Value) -> Read<Vec<Entry>> {
    list(value)?.iter_mut().map(entry).collect()
}

/// The fields of a dead letter stand before those of the event.
fn dead_letter(value: &mut Value) -> Read<DeadLetter> {
    let [at, fields] = list(value)? else { return Err(strange("a dead letter", value)) };
    let [_, group, _, of, _, count, rest @ ..] = list(fields)? else {
        return Err(strange("the fields of a dead letter", value));
    };
    Ok(DeadLetter {
        at: id(at)?,
        group: GroupName::new(text(group)?).map_err(|_| strange("a group", group))?,
        id: id(of)?,
        count: number(count)?,
        stored: stored(rest)?,
    })
}

fn missed(value: &mut Value) -> Read<Vec<Missed>> {
    list(value)?.iter_mut().map(hole).collect()
}

/// A text that stands for nothing.
pub(crate) fn is_empty(value: &Value) -> bool {
    matches!(value, Value::BulkString(bytes) if bytes.is_empty())
}

fn hole(value: &mut Value) -> Read<Missed> {
    let [count, reason, after, before, events] = list(value)? else { return Err(strange("a hole", value)) };
    let dropped = Dropped {
        after: id(after)?,
        before: if is_empty(before) { None } else { Some(id(before)?) },
        events: if is_empty(events) { None } else { Some(number(events)?) },
    };
    let reason = GapReason::parse(&text(reason)?).ok_or_else(|| strange("a reason", reason))?;
    Ok(Missed { number: number(count)?, reason, dropped })
}

/// Consumers that were taken out. One that has no name here was written by somebody else, and is known to
/// nobody who is told of it.
fn names(value: &mut Value) -> Read<Vec<ConsumerName>> {
    let mut names = Vec::new();
    for value in list(value)? {
        let name = String::from_utf8(bytes(value)?).ok();
        names.extend(name.and_then(|name| ConsumerName::new(name).ok()));
    }
    Ok(names)
}

/// A quick way's answer in few words is one text, which a server makes sooner than a list of them.
fn spread(value: Value) -> Value {
    let Value::BulkString(bytes) = &value else { return value };
    let words = bytes.split(|byte| *byte == b' ').map(|word| Value::BulkString(word.to_vec()));
    Value::Array(core::iter::once(Value::BulkString(b"same".to_vec())).chain(words).collect())
}

/// Reads a script's answer.
pub(crate) fn decode(value: Value, op: &StreamOp, layout: Layout) -> Read<Answer> {
    let mut value = spread(value);
    let [kind, at, rest @ ..] = list(&mut value)? else { return Err(strange("an answer", &value)) };
    let at = ServerTime::from_us(number(at)?);
    let result = match (text(kind)?.as_str(), rest) {
        ("moved", [generation]) => return number(generation).map(Answer::Moved),
        ("no", [why]) => Err(refusal(&String::from_utf8_lossy(&bytes(why)?))),
        ("same", rest) => same(rest, op),
        ("ok", [generation, nonce, contract, rest @ ..]) => {
            reply([generation, nonce, contract], rest, &op.verb, layout)
        }
        (_, _) => return Err(strange("same, ok, no or moved", &value)),
    };
    if let Err(StreamError::Server(ServerFault::Answer { detail })) = result {
        return Err(ServerFault::Answer { detail }.into());
    }
    let result = match (&op.verb, result) {
        (Verb::Replay { after, .. }, result) => replay_result(result, *after, op.by.bound.is_some()),
        (Verb::Snapshot, Ok(reply)) => whole(reply),
        (_, result) => result,
    };
    Ok(Answer::Done(at, result))
}

/// One malformed entry fails a whole snapshot.
fn whole(reply: StreamReply) -> Read<StreamReply> {
    if let Told::Entries(entries) = &reply.told
        && let Some(bad) = entries.iter().find(|entry| entry.stored.event().is_none())
    {
        return Err(strandline_core::stream::ForeignFault::MalformedEvent { id: bad.id }.into());
    }
    Ok(reply)
}

/// The step was done on what the asker is bound to, whose contract it knows.
fn same(rest: &mut [Value], op: &StreamOp) -> Read<StreamReply> {
    match op.by.bound {
        Some(bound) => Ok(StreamReply { bound, told: told(&op.verb, rest)? }),
        None => Err(strange("a generation, for somebody who is bound to none", &rest)),
    }
}

fn reply(bound: [&mut Value; 3], rest: &mut [Value], verb: &Verb, layout: Layout) -> Read<StreamReply> {
    let [generation, nonce, contract] = bound;
    let (nonce, contract) = (text(nonce)?, text(contract)?);
    let bound = Bound {
        generation: number(generation)?,
        nonce: unhex(&nonce).map(Nonce),
        contract: if contract.is_empty() { None } else { Some(Contract::parse(&contract, layout)?) },
    };
    Ok(StreamReply { bound, told: told(verb, rest)? })
}

fn told(verb: &Verb, rest: &mut [Value]) -> Read<Told> {
    let flag = |value: &mut Value| text(value).map(|text| text == "1");
    Ok(match (verb, &mut *rest) {
        (Verb::Open | Verb::GroupRegister { .. } | Verb::GroupKeepAlive { .. }, []) => Told::Done,
        (Verb::LeaseRenew { .. } | Verb::GroupTold { .. }, []) => Told::Done,
        (Verb::Attend, [last, added]) => Told::Attended { last: id(last)?, added: number(added)? },
        (Verb::Add { .. }, [at]) if is_empty(at) => Told::Added { id: None },
        (Verb::Add { .. }, [at]) => Told::Added { id: Some(id(at)?) },
        (Verb::AddOnce { .. }, [at, published]) => {
            Told::AddedOnce { id: id(at)?, published: flag(published)? }
        }
        (Verb::Remove { .. } | Verb::DeadRemove { .. }, [count]) => Told::Removed { count: number(count)? },
        (Verb::Snapshot, [list]) => Told::Entries(entries(list)?),
        (Verb::Read { .. }, [list, added, kept, anchored]) => Told::Read {
            entries: entries(list)?,
            added: number(added)?,
            kept: number(kept)?,
            anchored: flag(anchored)?,
        },
        (Verb::GroupRead { .. }, [list, reached, holes]) => {
            Told::Taken { entries: entries(list)?, reached: id(reached)?, missed: missed(holes)? }
        }
        (Verb::Destroy, [now]) => Told::Destroyed { now: flag(now)? },
        (Verb::Replay { .. }, [anchor, list]) => {
            Told::Replayed { anchor: entries(anchor)?.pop(), entries: entries(list)? }
        }
        (Verb::GroupOpen { .. }, [absent, cursor]) => {
            Told::GroupOpened { log_was_absent: flag(absent)?, cursor: id(cursor)? }
        }
        (Verb::GroupAck { .. }, [count, cursor]) => {
            let cursor = if is_empty(cursor) { None } else { Some(id(cursor)?) };
            Told::Acked { count: number(count)?, cursor }
        }
        (Verb::GroupDetach { .. }, [deleted]) => Told::Detached { deleted: flag(deleted)? },
        (Verb::LeaseAcquire { .. }, [acquired, fence]) => {
            Told::Leased { acquired: flag(acquired)?, fence: number(fence)? }
        }
        (Verb::GroupClaim { .. }, [next, taken, vanished, counts, holes]) => Told::Claimed {
            missed: missed(holes)?,
            next: id(next)?,
            entries: entries(taken)?,
            vanished: list(vanished)?.iter_mut().map(id).collect::<Read<_>>()?,
            counts: list(counts)?.iter_mut().map(number).collect::<Read<_>>()?,
        },
        (Verb::GroupNack { .. }, [count]) => Told::Nacked { count: number(count)? },
        (Verb::GroupBury { .. }, [count, cursor]) => {
            let cursor = if is_empty(cursor) { None } else { Some(id(cursor)?) };
            Told::Buried { count: number(count)?, cursor }
        }
        (Verb::Groups { .. }, [rows, more]) => {
            Told::Groups(Groups { groups: groups(rows)?, more: flag(more)? })
        }
        (Verb::DeadRead { .. }, [letters]) => {
            Told::Dead(list(letters)?.iter_mut().map(dead_letter).collect::<Read<_>>()?)
        }
        (Verb::GroupSweep { .. }, [removed, malformed]) => {
            Told::Swept { removed: names(removed)?, malformed: names(malformed)? }
        }
        (_, _) => return Err(strange("the reply of this operation", &rest)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_the_same_answer_as_a_list_of_them() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let list = Value::Array(["same", "1700000000000000", "5-0", "1"].map(text).to_vec());
        assert_eq!(spread(text("1700000000000000 5-0 1")), list);
        assert_eq!(spread(list.clone()), list);
    }
}
