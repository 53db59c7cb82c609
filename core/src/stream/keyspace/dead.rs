//! Events that were given up.

use super::Step;
use super::group::settle;
use super::space::Space;
use crate::stream::error::{CallerError, ServerFault, StreamError};
use crate::stream::event::{EventId, Ids};
use crate::stream::limits::{DEAD_LETTERS_MAX, READ_EVENTS_MAX};
use crate::stream::name::{ConsumerName, GroupName};
use crate::stream::reply::{DeadLetter, Told};
use core::ops::Bound as Edge;

/// Moves entries of a consumer to the dead letters and settles them. All of them fit, or none is moved.
pub(super) fn bury(
    step: &Step<'_>,
    space: &mut Space,
    name: &GroupName,
    consumer: &ConsumerName,
    ids: &Ids,
) -> Result<Told, StreamError> {
    let data = space.data(step.life().generation);
    if data.dead.letters.len() + ids.as_slice().len() > DEAD_LETTERS_MAX {
        return Err(CallerError::DeadLettersFull.into());
    }
    let log = data.log.as_mut().ok_or(ServerFault::NoGroup)?;
    let held = log.groups.get_mut(name).ok_or(ServerFault::NoGroup)?;
    let mut count = 0;
    for id in ids.as_slice() {
        let pending = held.pending.get(id).filter(|pending| pending.consumer == *consumer);
        let (Some(pending), Some(stored)) = (pending, log.entries.get(id)) else { continue };
        let by_clock = EventId { ms: step.now.ms(), seq: 0 };
        let at =
            if by_clock > data.dead.last { by_clock } else { data.dead.last.next().unwrap_or(EventId::MAX) };
        let (group, stored) = (name.clone(), stored.clone());
        data.dead.letters.insert(at, DeadLetter { at, group, id: *id, count: pending.count, stored });
        data.dead.last = at;
        held.pending.remove(id);
        count += 1;
    }
    let cursor = (count > 0).then(|| settle(step, data, name)).flatten();
    Ok(Told::Buried { count, cursor })
}

pub(super) fn read(step: &Step<'_>, space: &Space, after: EventId, events_max: u32) -> Told {
    let dead = space.data.get(&step.life().generation).map(|data| &data.dead.letters);
    let letters =
        dead.into_iter().flat_map(|letters| letters.range((Edge::Excluded(after), Edge::Unbounded)));
    let letters = letters.take(events_max.min(READ_EVENTS_MAX) as usize);
    Told::Dead(letters.map(|(_, letter)| letter.clone()).collect())
}

pub(super) fn remove(step: &Step<'_>, space: &mut Space, ids: &Ids) -> Told {
    let data = space.data.get_mut(&step.life().generation);
    let count = data.map_or(0, |data| {
        ids.as_slice().iter().filter(|id| data.dead.letters.remove(id).is_some()).count() as u64
    });
    Told::Removed { count }
}
