//! Publishing and removing.

use super::Step;
use super::expiry::touch;
use super::space::{Data, Space};
use crate::stream::error::{ServerFault, StreamError};
use crate::stream::event::{Event, EventId, Ids, Stored};
use crate::stream::layout::Layout;
use crate::stream::op::Condition;
use crate::stream::reply::Told;

pub(super) fn add(
    step: &Step<'_>,
    space: &mut Space,
    event: &Event,
    condition: Condition,
) -> Result<Told, StreamError> {
    let generation = step.life().generation;
    let held = step.held(space);
    let log = held.and_then(|data| data.log.as_ref());
    let holds = match condition {
        Condition::Always => true,
        Condition::IfExists => log.is_some(),
        Condition::After(id) => log.is_some_and(|log| log.last == id),
    };
    if !holds {
        return Ok(Told::Added { id: None });
    }
    has_position(step, held)?;
    step.plan.commit(step.layout, space);
    let data = space.data(generation);
    let id = append(step, data, event);
    touch(step, data);
    if step.layout == Layout::Pulse {
        data.book_add(step.life());
    }
    Ok(Told::Added { id: Some(id) })
}

/// Refuses before the first effect when the log, or the one that would be made, has given out its last
/// position.
pub(super) fn has_position(step: &Step<'_>, held: Option<&Data>) -> Result<(), StreamError> {
    let next = |data: &Data| match &data.log {
        Some(log) => log.next_id(step.now),
        None => data.new_log().next_id(step.now),
    };
    match held.map(next) {
        Some(None) => Err(ServerFault::NoPosition.into()),
        Some(Some(_)) | None => Ok(()),
    }
}

/// Appends within the bound of the generation's contract.
pub(super) fn append(step: &Step<'_>, data: &mut Data, event: &Event) -> EventId {
    let log = data.log();
    let id = log.next_id(step.now).expect("a position is left: that was looked at");
    log.append(id, Stored::Event(event.clone()));
    if let Some(max_len) = step.life().contract.max_len {
        log.trim(max_len.get());
    }
    id
}

pub(super) fn remove(step: &Step<'_>, space: &mut Space, ids: &Ids) -> Told {
    let data = space.data.get_mut(&step.life().generation);
    let count = data
        .and_then(|data| data.log.as_mut())
        .map_or(0, |log| ids.as_slice().iter().filter(|id| log.entries.remove(id).is_some()).count() as u64);
    Told::Removed { count }
}
