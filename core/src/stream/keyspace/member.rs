//! Who is in a group: registering, staying alive, leaving.

use super::Step;
use super::books::MapBook;
use super::later;
use super::space::{Data, Member, Space};
use crate::stream::error::{CallerError, ServerFault, StreamError};
use crate::stream::layout::Layout;
use crate::stream::limits::GROUP_MEMBERS_MAX;
use crate::stream::name::{ConsumerName, GroupName};
use crate::stream::reply::Told;

pub(super) fn register(
    step: &Step<'_>,
    space: &mut Space,
    group: &GroupName,
    consumer: &ConsumerName,
) -> Result<Told, StreamError> {
    let data = space.data(step.life().generation);
    has_room(data, group, consumer)?;
    let log = data.log.as_mut().and_then(|log| log.groups.get_mut(group));
    log.ok_or(ServerFault::NoGroup)?.consumers.insert(consumer.clone());
    say_alive(step, data, group, consumer);
    Ok(Told::Done)
}

/// A member that was taken out while it was silent is one again.
pub(super) fn keep_alive(
    step: &Step<'_>,
    space: &mut Space,
    group: &GroupName,
    consumer: &ConsumerName,
) -> Result<Told, StreamError> {
    let data = space.data(step.life().generation);
    has_room(data, group, consumer)?;
    say_alive(step, data, group, consumer);
    Ok(Told::Done)
}

fn has_room(data: &Data, group: &GroupName, consumer: &ConsumerName) -> Result<(), StreamError> {
    let members = data.groups.get(group).map(|group| group.members.as_slice()).unwrap_or_default();
    let is_member = members.iter().any(|member| member.consumer == *consumer);
    if is_member || members.len() < GROUP_MEMBERS_MAX { Ok(()) } else { Err(CallerError::GroupFull.into()) }
}

fn say_alive(step: &Step<'_>, data: &mut Data, name: &GroupName, consumer: &ConsumerName) {
    let group = data.groups.entry(name.clone()).or_default();
    let alive_us = step.now.us();
    let member = group.members.iter_mut().find(|member| member.consumer == *consumer);
    let is_new = member.is_none();
    match member {
        Some(member) => member.alive_us = alive_us,
        None => group.members.push(Member { consumer: consumer.clone(), alive_us }),
    }
    if step.layout == Layout::Pulse {
        if is_new {
            data.books.members.change(false);
        }
        alive_book(data, name).change(false);
        data.book_group(step.life(), name);
    }
}

fn alive_book<'a>(data: &'a mut Data, group: &GroupName) -> &'a mut MapBook {
    data.books.alive.entry(group.clone()).or_default()
}

/// Takes a member out of the books. The consumer in the log is another matter.
pub(super) fn forget(step: &Step<'_>, data: &mut Data, name: &GroupName, consumer: &ConsumerName) {
    let Some(group) = data.groups.get_mut(name) else { return };
    let before = group.members.len();
    group.members.retain(|member| member.consumer != *consumer);
    let was_member = group.members.len() < before;
    let is_empty = group.members.is_empty();
    if was_member && step.layout == Layout::Pulse {
        data.books.members.change(is_empty);
        alive_book(data, name).change(true);
    }
}

/// What vanished from the log stays pending, so that a claim tells of it; then the consumer stays too.
pub(super) fn detach(
    step: &Step<'_>,
    space: &mut Space,
    group: &GroupName,
    consumer: &ConsumerName,
    release: bool,
) -> Told {
    let Some(data) = space.data.get_mut(&step.life().generation) else {
        return Told::Detached { deleted: true };
    };
    if release {
        later::release(data, group, consumer);
    }
    let log = data.log.as_mut().and_then(|log| log.groups.get_mut(group));
    let deleted = log.is_none_or(|log| log.delete_settled(consumer));
    forget(step, data, group, consumer);
    Told::Detached { deleted }
}
