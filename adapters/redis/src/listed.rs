//! What the script that lists groups answers.

use crate::decode::{Read, bytes, id, is_empty, list, number, strange, text};
use redis::Value;
use strandline_core::stream::listing::{GroupState, MemberState, OldestPending};
use strandline_core::stream::{ConsumerName, EventId, ForeignFault, GroupContract, GroupName};

/// The groups of an answer, their members by name: a script has no order for them.
pub(crate) fn groups(value: &mut Value) -> Read<Vec<GroupState>> {
    list(value)?.iter_mut().map(group).collect()
}

fn group(value: &mut Value) -> Read<GroupState> {
    let [name, contract, cursor, delivered, lag, pending, oldest, members, fence, later, missed] =
        list(value)?
    else {
        return Err(strange("a group", value));
    };
    let mut members: Vec<MemberState> = list(members)?.iter_mut().map(member).collect::<Read<_>>()?;
    members.sort_by(|a, b| a.consumer.cmp(&b.consumer));
    Ok(GroupState {
        group: theirs(name, GroupName::new, ForeignFault::Books { field: "name".into() })?,
        contract: fields(contract)?,
        cursor: if_told(cursor, id)?,
        delivered: if_told(delivered, id)?,
        lag: if_told(lag, number)?,
        pending: number(pending)?,
        oldest: pending_entry(oldest)?,
        members,
        fence: number(fence)?,
        later: number(later)?,
        missed: number(missed)?,
    })
}

/// A name, which somebody else may have written: one that is none here is no sign of a bad connection.
fn theirs<T, E>(value: &mut Value, new: impl Fn(String) -> Result<T, E>, fault: ForeignFault) -> Read<T> {
    let text = String::from_utf8(bytes(value)?).ok();
    text.and_then(|text| new(text).ok()).ok_or_else(|| fault.into())
}

/// What stands where an empty text stands for nothing.
fn if_told<T>(value: &mut Value, read: impl Fn(&mut Value) -> Read<T>) -> Read<Option<T>> {
    if is_empty(value) { Ok(None) } else { read(value).map(Some) }
}

fn fields(value: &mut Value) -> Read<Option<GroupContract>> {
    let values: Vec<String> = list(value)?.iter_mut().map(text).collect::<Read<_>>()?;
    if values.is_empty() {
        return Ok(None);
    }
    let unreadable = || ForeignFault::Books { field: "contract".into() };
    GroupContract::parse(&values).map(Some).ok_or_else(|| unreadable().into())
}

fn pending_entry(value: &mut Value) -> Read<Option<OldestPending>> {
    let [at, who, idle_ms, count] = match list(value)? {
        [] => return Ok(None),
        [at, who, idle_ms, count] => [at, who, idle_ms, count],
        [..] => return Err(strange("a pending entry", value)),
    };
    let at: EventId = id(at)?;
    // Nobody's name: what was given back, or is held by somebody who has no name here.
    let who = String::from_utf8(bytes(who)?).ok().and_then(|who| ConsumerName::new(who).ok());
    Ok(Some(OldestPending { id: at, consumer: who, idle_ms: number(idle_ms)?, count: number(count)? }))
}

fn member(value: &mut Value) -> Read<MemberState> {
    let [name, silent_ms, pending] = list(value)? else { return Err(strange("a member", value)) };
    Ok(MemberState {
        consumer: theirs(name, ConsumerName::new, ForeignFault::Membership)?,
        silent_ms: if_told(silent_ms, number)?,
        pending: number(pending)?,
    })
}
