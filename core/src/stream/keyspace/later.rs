//! Giving entries back: at once, or to be claimed later.

use super::Step;
use super::space::{Data, Space};
use crate::stream::error::{ServerFault, StreamError};
use crate::stream::event::{EventId, Ids};
use crate::stream::limits::GROUP_LATER_MAX;
use crate::stream::name::{ConsumerName, GroupName};
use crate::stream::reply::Told;
use alloc::vec::Vec;

/// Puts entries on the shelf, where a claim finds them once they are due.
pub(super) fn nack(
    step: &Step<'_>,
    space: &mut Space,
    name: &GroupName,
    consumer: &ConsumerName,
    ids: &Ids,
    delay_ms: u64,
) -> Result<Told, StreamError> {
    let data = space.data(step.life().generation);
    let log = data.log.as_mut().ok_or(ServerFault::NoGroup)?;
    let held = log.groups.get_mut(name).ok_or(ServerFault::NoGroup)?;
    let later = &mut data.groups.entry(name.clone()).or_default().later;
    let due_ms = step.now.ms().saturating_add(delay_ms);
    let mut count = 0;
    for id in ids.as_slice() {
        let Some(pending) = held.pending.get_mut(id).filter(|pending| pending.consumer == *consumer) else {
            continue;
        };
        if !log.entries.contains_key(id) {
            continue;
        }
        if delay_ms == 0 {
            later.remove(id);
            pending.since_ms = 0;
        } else if later.len() < GROUP_LATER_MAX || later.contains_key(id) {
            later.insert(*id, due_ms);
            pending.since_ms = step.now.ms();
        } else {
            continue;
        }
        pending.consumer = ConsumerName::shelf();
        held.consumers.insert(ConsumerName::shelf());
        count += 1;
    }
    Ok(Told::Nacked { count })
}

/// Before a claim: what is due has been idle for ever, what is not has been idle for no time. What was
/// settled or taken meanwhile is no longer put off.
pub(super) fn ripen(step: &Step<'_>, data: &mut Data, name: &GroupName) {
    let Some(log) = data.log.as_mut() else { return };
    let (Some(held), Some(group)) = (log.groups.get_mut(name), data.groups.get_mut(name)) else { return };
    let shelf = ConsumerName::shelf();
    group.later.retain(|id, due_ms| {
        let pending = held.pending.get_mut(id).filter(|pending| pending.consumer == shelf);
        let Some(pending) = pending.filter(|_| log.entries.contains_key(id)) else { return false };
        let is_due = step.now.has_reached(*due_ms);
        pending.since_ms = if is_due { 0 } else { step.now.ms() };
        !is_due
    });
}

/// Gives back all that is pending for a consumer.
pub(super) fn release(data: &mut Data, name: &GroupName, consumer: &ConsumerName) {
    let Some(log) = data.log.as_mut() else { return };
    let Some(held) = log.groups.get_mut(name) else { return };
    let mine = held.pending.iter().filter(|(_, pending)| pending.consumer == *consumer).map(|(id, _)| *id);
    let mine: Vec<EventId> = mine.filter(|id| log.entries.contains_key(id)).collect();
    for id in mine {
        if let Some(pending) = held.pending.get_mut(&id) {
            pending.consumer = ConsumerName::shelf();
            pending.since_ms = 0;
            held.consumers.insert(ConsumerName::shelf());
        }
    }
}
