//! Groups: made at their cursor, read from, settled.

use super::Step;
use super::expiry::touch;
use super::log::LogGroup;
use super::space::{Data, Space};
use crate::stream::contract::{GroupContract, Start};
use crate::stream::error::{CallerError, ServerFault, StreamError};
use crate::stream::event::{EventId, Ids};
use crate::stream::layout::Layout;
use crate::stream::limits::READ_EVENTS_MAX;
use crate::stream::name::{ConsumerName, GroupName};
use crate::stream::reply::{Dropped, GapReason, Told};
use alloc::vec::Vec;

pub(super) fn open(
    step: &Step<'_>,
    space: &mut Space,
    group: &GroupName,
    contract: &GroupContract,
    settled: Option<EventId>,
) -> Result<Told, StreamError> {
    let generation = step.life().generation;
    let stored = step.held(space).and_then(|data| data.groups.get(group));
    if stored.and_then(|group| group.contract.as_ref()).is_some_and(|stored| stored != contract) {
        return Err(CallerError::GroupConfigMismatch.into());
    }
    step.plan.commit(step.layout, space);
    let data = space.data(generation);
    data.groups.entry(group.clone()).or_default().contract = Some(contract.clone());
    let log_was_absent = data.log.is_none();
    let cursor = ensure(step, data, group, contract.start, settled);
    touch(step, data);
    if step.layout == Layout::Pulse {
        data.book_group(step.life(), group);
    }
    Ok(Told::GroupOpened { log_was_absent, cursor })
}

/// Makes the group where it is missing: at its cursor, else at what the asker knows to be settled, else
/// at its start.
fn ensure(
    step: &Step<'_>,
    data: &mut Data,
    name: &GroupName,
    start: Start,
    settled: Option<EventId>,
) -> EventId {
    let cursor = data.groups.get(name).and_then(|group| group.cursor);
    let known = cursor.or(settled);
    let was_absent = data.log.is_none();
    let log = data.log();
    let delivered = match (known, start) {
        // Nobody has come past the start that was asked for: it is as at first, and moves no log.
        (Some(id), Start::After(asked)) if id == asked && was_absent => log.last.max(id),
        (Some(id), Start::After(asked)) if id == asked => id,
        // The log starts behind everything that was settled.
        (Some(id), _) if was_absent => {
            log.last = log.last.max(id);
            log.last
        }
        // Settled in a log that is gone, under a clock that was ahead: all that is here is new.
        (Some(id), _) if id > log.last => EventId::ZERO,
        (Some(id), _) => id,
        (None, Start::Newest) => log.last,
        (None, Start::Oldest) => EventId::ZERO,
        (None, Start::After(id)) => id,
    };
    let seen = log.seen_up_to(delivered);
    // Made again: unless something settled is still kept, nobody can tell that this is the log in which
    // the group had events.
    let continues = cursor.is_none_or(|id| log.entries.range(..=id).next().is_some());
    let made = !log.groups.contains_key(name);
    let lost = made && !continues;
    log.groups.entry(name.clone()).or_insert_with(|| LogGroup { delivered, seen, ..LogGroup::default() });
    let reached = log.settled(&log.groups[name]);
    let group = data.groups.entry(name.clone()).or_default();
    if let (Some(after), true, Layout::Tagged) = (group.cursor, lost, step.layout) {
        group.miss(step.now, GapReason::LogLost, Dropped { after, before: None, events: None });
    }
    if made && step.layout == Layout::Tagged {
        group.reached = delivered;
    }
    let cursor = *group.cursor.get_or_insert(reached);
    if step.layout == Layout::Pulse {
        data.book_kept(step.life());
    }
    cursor
}

pub(super) fn read(
    step: &Step<'_>,
    space: &mut Space,
    group: &GroupName,
    consumer: &ConsumerName,
    events_max: u32,
) -> Result<Told, StreamError> {
    let data = space.data.get_mut(&step.life().generation).ok_or(ServerFault::NoGroup)?;
    let log = data.log.as_mut().ok_or(ServerFault::NoGroup)?;
    let events_max = events_max.min(READ_EVENTS_MAX);
    let after = log.groups.get(group).ok_or(ServerFault::NoGroup)?.delivered;
    let entries = log.deliver(group, consumer, events_max, step.now).ok_or(ServerFault::NoGroup)?;
    let dropped = log.note_delivered(group, after, &entries, events_max);
    let caught_up = entries.len() < events_max as usize;
    let reached = entries.last().filter(|_| !caught_up).map_or(log.last, |entry| entry.id);
    let missed = match step.layout {
        Layout::Tagged => {
            let held = data.groups.entry(group.clone()).or_default();
            if let Some(dropped) = dropped {
                held.miss(step.now, GapReason::Trimmed, dropped);
            }
            if let Some(last) = entries.last() {
                held.reached = last.id;
            }
            held.missed.clone()
        }
        Layout::Pulse => Vec::new(),
    };
    Ok(Told::Taken { entries, reached, missed })
}

pub(super) fn ack(step: &Step<'_>, space: &mut Space, name: &GroupName, ids: &Ids) -> Told {
    let nothing = Told::Acked { count: 0, cursor: None };
    let Some(data) = space.data.get_mut(&step.life().generation) else { return nothing };
    let Some(log) = data.log.as_mut() else { return nothing };
    let Some(group) = log.groups.get_mut(name) else { return nothing };
    let count = ids.as_slice().iter().filter(|id| group.pending.remove(id).is_some()).count() as u64;
    if count == 0 {
        return nothing;
    }
    Told::Acked { count, cursor: settle(step, data, name) }
}

/// Moves the cursor over the settled prefix.
pub(super) fn settle(step: &Step<'_>, data: &mut Data, name: &GroupName) -> Option<EventId> {
    let log = data.log.as_ref()?;
    let reached = log.settled(log.groups.get(name)?);
    let stored = &mut data.groups.entry(name.clone()).or_default().cursor;
    // The reference lets the cursor fall when all before it is gone; ours never falls.
    let cursor = match step.layout {
        Layout::Pulse => reached,
        Layout::Tagged => stored.map_or(reached, |stored| stored.max(reached)),
    };
    *stored = Some(cursor);
    if step.layout == Layout::Pulse {
        data.book_kept(step.life());
    }
    Some(cursor)
}
