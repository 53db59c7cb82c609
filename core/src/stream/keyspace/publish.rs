//! Publishing and removing.

use super::Step;
use super::expiry::touch;
use super::log::Log;
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
    let log = space.held(generation).and_then(|data| data.log.as_ref());
    let holds = match condition {
        Condition::Always => true,
        Condition::IfExists => log.is_some(),
        Condition::After(id) => log.is_some_and(|log| log.last == id),
    };
    if !holds {
        return Ok(Told::Added { id: None });
    }
    has_position(step, log)?;
    step.plan.commit(step.layout, space);
    let data = space.data(generation);
    let id = append(step, data, event);
    touch(step, data);
    if step.layout == Layout::Pulse {
        data.book_add(step.life());
    }
    Ok(Told::Added { id: Some(id) })
}

/// Refuses before the first effect when the log has given out its last position.
pub(super) fn has_position(step: &Step<'_>, log: Option<&Log>) -> Result<(), StreamError> {
    match log.map(|log| log.next_id(step.now)) {
        Some(None) => Err(ServerFault::NoPosition.into()),
        Some(Some(_)) | None => Ok(()),
    }
}

/// Appends within the bound of the generation's contract.
pub(super) fn append(step: &Step<'_>, data: &mut Data, event: &Event) -> EventId {
    let log = data.log();
    let id = log.next_id(step.now).unwrap_or(EventId::MAX);
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
