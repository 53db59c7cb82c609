//! Fenced recovery: one owner at a time takes over what stale consumers left.

use super::Step;
use super::later;
use super::member::forget;
use super::space::{LeaseState, Space};
use crate::stream::error::{CallerError, ServerFault, StreamError};
use crate::stream::event::EventId;
use crate::stream::layout::Layout;
use crate::stream::limits::READ_EVENTS_MAX;
use crate::stream::name::{ConsumerName, GroupName};
use crate::stream::op::Lease;
use crate::stream::reply::Told;
use alloc::collections::BTreeSet;
use alloc::string::ToString as _;
use alloc::vec::Vec;

/// The fence rises on every change of owner and after every lapse.
pub(super) fn acquire(
    step: &Step<'_>,
    space: &mut Space,
    group: &GroupName,
    owner: &str,
    lease_ms: u64,
) -> Told {
    let now_ms = step.now.ms();
    let data = space.data(step.life().generation);
    let held = data.groups.entry(group.clone()).or_default();
    let fence = match &held.lease {
        Some(held) if held.until_ms > now_ms && held.owner == owner => held.fence,
        Some(held) if held.until_ms > now_ms => {
            return Told::Leased { acquired: false, fence: held.fence };
        }
        Some(lapsed) => lapsed.fence + 1,
        None => 1,
    };
    let until_ms = now_ms.saturating_add(lease_ms);
    held.lease = Some(LeaseState { owner: owner.to_string(), fence, until_ms });
    if step.layout == Layout::Pulse {
        data.book_group(step.life(), group);
    }
    Told::Leased { acquired: true, fence }
}

/// Renews a lease that is still the owner's.
pub(super) fn renew(
    step: &Step<'_>,
    space: &mut Space,
    group: &GroupName,
    lease: &Lease,
) -> Result<Told, StreamError> {
    check(step, space, group, lease)?;
    extend(step, space, group, lease);
    Ok(Told::Done)
}

fn check(step: &Step<'_>, space: &Space, group: &GroupName, lease: &Lease) -> Result<(), StreamError> {
    let group = step.held(space).and_then(|data| data.groups.get(group));
    match group.and_then(|group| group.lease.as_ref()) {
        Some(held)
            if held.owner == lease.owner && held.fence == lease.fence && held.until_ms > step.now.ms() =>
        {
            Ok(())
        }
        Some(_) | None => Err(CallerError::LeaseLost { fence: lease.fence }.into()),
    }
}

fn extend(step: &Step<'_>, space: &mut Space, group: &GroupName, lease: &Lease) {
    let group = space.data(step.life().generation).groups.get_mut(group);
    if let Some(held) = group.and_then(|group| group.lease.as_mut()) {
        held.until_ms = step.now.ms().saturating_add(lease.lease_ms);
    }
}

#[expect(clippy::too_many_arguments, reason = "the fields of one operation")]
pub(super) fn claim(
    step: &Step<'_>,
    space: &mut Space,
    group: &GroupName,
    lease: &Lease,
    consumer: &ConsumerName,
    idle_ms: u64,
    from: EventId,
    events_max: u32,
) -> Result<Told, StreamError> {
    check(step, space, group, lease)?;
    let data = space.data(step.life().generation);
    if step.layout == Layout::Tagged {
        later::ripen(step, data, group);
    }
    let log = data.log.as_mut();
    let events_max = events_max.min(READ_EVENTS_MAX);
    let claim = log
        .and_then(|log| log.claim(group, consumer, idle_ms, from, events_max, step.now))
        .ok_or(ServerFault::NoGroup)?;
    let missed = match step.layout {
        Layout::Tagged => {
            let held = data.groups.entry(group.clone()).or_default();
            held.miss_pending(step.now, &claim.vanished);
            held.missed.clone()
        }
        Layout::Pulse => Vec::new(),
    };
    extend(step, space, group, lease);
    Ok(Told::Claimed {
        missed,
        next: claim.next,
        entries: claim.entries,
        vanished: claim.vanished,
        counts: claim.counts,
    })
}

/// Takes out whoever was silent for more than twice the grace, and whoever never registered.
pub(super) fn sweep(
    step: &Step<'_>,
    space: &mut Space,
    name: &GroupName,
    lease: &Lease,
    grace_ms: u64,
) -> Result<Told, StreamError> {
    check(step, space, name, lease)?;
    let data = space.data(step.life().generation);
    let log = data.log.as_ref().and_then(|log| log.groups.get(name)).ok_or(ServerFault::NoGroup)?;
    let members = data.groups.get(name).map(|group| group.members.as_slice()).unwrap_or_default();
    let alive_us = |consumer: &ConsumerName| {
        members.iter().find(|member| member.consumer == *consumer).map(|member| member.alive_us)
    };
    let silent_us_max = grace_ms.saturating_mul(2000);
    let stale = |consumer: &ConsumerName| {
        alive_us(consumer).is_none_or(|alive| step.now.us().saturating_sub(alive) > silent_us_max)
    };
    let all: BTreeSet<ConsumerName> =
        log.consumers.iter().chain(members.iter().map(|member| &member.consumer)).cloned().collect();
    let shelf = ConsumerName::shelf();
    let removed: Vec<ConsumerName> = all.into_iter().filter(|c| *c != shelf && stale(c)).collect();
    for consumer in &removed {
        if let Some(log) = data.log.as_mut().and_then(|log| log.groups.get_mut(name)) {
            log.delete_settled(consumer);
        }
        forget(step, data, name, consumer);
    }
    extend(step, space, name, lease);
    Ok(Told::Swept { removed, malformed: Vec::new() })
}
