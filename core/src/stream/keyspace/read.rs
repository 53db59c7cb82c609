//! Reading without a trace: attending, reading on, snapshots and replays.

use super::Step;
use super::bind::not_elapsed;
use super::log::Log;
use super::space::Space;
use crate::stream::error::{CallerError, ForeignFault, ReplayCause, StreamError};
use crate::stream::event::{Entry, Event, EventId};
use crate::stream::limits::READ_EVENTS_MAX;
use crate::stream::reply::Told;
use alloc::string::ToString as _;
use alloc::vec::Vec;

fn log<'a>(step: &Step<'_>, space: &'a Space) -> Option<&'a Log> {
    space.data.get(&step.life().generation).and_then(|data| data.log.as_ref())
}

pub(super) fn attend(step: &Step<'_>, space: &mut Space) -> Told {
    step.plan.commit(step.layout, space);
    let log = log(step, space);
    Told::Attended { last: log.map_or(EventId::ZERO, |log| log.last), added: log.map_or(0, |log| log.added) }
}

pub(super) fn read(step: &Step<'_>, space: &mut Space, after: EventId, events_max: u32) -> Told {
    step.plan.commit(step.layout, space);
    let Some(log) = log(step, space) else {
        return Told::Read { entries: Vec::new(), added: 0, kept: 0, anchored: false };
    };
    let entries = log.after(after, events_max.min(READ_EVENTS_MAX));
    let anchored = !entries.is_empty() && log.entries.range(..=after).next().is_some();
    Told::Read { entries, added: log.added, kept: log.entries.len() as u64, anchored }
}

pub(super) fn snapshot(step: &Step<'_>, space: &Space) -> Result<Told, StreamError> {
    let Some(max_len) = step.life().contract.max_len else {
        return Err(CallerError::SnapshotUnbounded.into());
    };
    not_elapsed(&step.life().contract, step.now)?;
    let Some(log) = log(step, space) else { return Ok(Told::Entries(Vec::new())) };
    if log.entries.len() as u64 > max_len.get() {
        return Err(CallerError::SnapshotBoundExceeded { max_len: max_len.get() }.into());
    }
    let mut entries = Vec::with_capacity(log.entries.len());
    for (id, stored) in &log.entries {
        if stored.event().is_none() {
            return Err(ForeignFault::MalformedEvent { id: *id }.into());
        }
        entries.push(Entry { id: *id, stored: stored.clone() });
    }
    Ok(Told::Entries(entries))
}

/// What an event costs a replay's budget.
fn cost(id: EventId, event: &Event) -> u64 {
    (id.to_string().len() + event.bytes()) as u64
}

pub(super) fn replay(
    step: &Step<'_>,
    space: &Space,
    after: EventId,
    events_max: u32,
    bytes_max: u64,
) -> Result<Told, StreamError> {
    let log = log(step, space);
    let anchor = if after == EventId::ZERO {
        None
    } else {
        let stored = log.and_then(|log| log.entries.get(&after));
        let stored =
            stored.ok_or(CallerError::ReplayPositionUnavailable { cause: ReplayCause::NotRetained })?.clone();
        let event = stored.exact().ok_or(ForeignFault::MalformedEvent { id: after })?;
        within(after, event, bytes_max)?;
        Some(Entry { id: after, stored })
    };
    let mut entries = Vec::new();
    let mut left = bytes_max;
    for entry in log.map(|log| log.after(after, events_max)).unwrap_or_default() {
        let event = entry.stored.exact().ok_or(ForeignFault::MalformedEvent { id: entry.id })?;
        let cost = cost(entry.id, event);
        if cost > left {
            if entries.is_empty() {
                within(entry.id, event, bytes_max)?;
            }
            break;
        }
        left -= cost;
        entries.push(entry);
    }
    Ok(Told::Replayed { anchor, entries })
}

fn within(id: EventId, event: &Event, bytes_max: u64) -> Result<(), StreamError> {
    let bytes = cost(id, event);
    if bytes > bytes_max {
        return Err(CallerError::ReplayEventTooLarge { bytes, bytes_max }.into());
    }
    Ok(())
}
