//! How the groups of a generation stand.

use super::Step;
use super::log::{Log, LogGroup};
use super::space::{Group, Space};
use crate::stream::layout::Layout;
use crate::stream::limits::GROUPS_LISTED_MAX;
use crate::stream::listing::{GroupState, Groups, MemberState, OldestPending};
use crate::stream::name::{ConsumerName, GroupName};
use crate::stream::reply::Told;
use alloc::vec::Vec;
use core::ops::Bound as Edge;

/// Groups behind a name that were made, or have a cursor left.
pub(super) fn list(step: &Step<'_>, space: &Space, after: Option<&GroupName>, groups_max: u32) -> Told {
    let Some(data) = step.held(space) else { return Told::Groups(Groups::default()) };
    let behind = (after.map_or(Edge::Unbounded, Edge::Excluded), Edge::Unbounded);
    let made = |group: &Group| group.contract.is_some() || group.cursor.is_some();
    let mut found = data.groups.range::<GroupName, _>(behind).filter(|(_, group)| made(group));
    let groups_max = groups_max.min(GROUPS_LISTED_MAX) as usize;
    let one = |(name, group): (&GroupName, &Group)| state(step, data.log.as_ref(), name, group);
    let groups: Vec<GroupState> = found.by_ref().take(groups_max).map(one).collect();
    Told::Groups(Groups { groups, more: found.next().is_some() })
}

fn state(step: &Step<'_>, log: Option<&Log>, name: &GroupName, group: &Group) -> GroupState {
    let on_log = log.and_then(|log| Some((log, log.groups.get(name)?)));
    let lag = |(log, held): (&Log, &LogGroup)| held.seen.map(|seen| log.added.saturating_sub(seen));
    let pending_of = |consumer| on_log.map_or(0, |(_, held)| held.pending_of(consumer) as u64);
    let mut members: Vec<MemberState> = group
        .members
        .iter()
        .map(|member| MemberState {
            consumer: member.consumer.clone(),
            silent_ms: Some(step.now.us().saturating_sub(member.alive_us) / 1000),
            pending: pending_of(&member.consumer),
        })
        .collect();
    members.sort_by(|a, b| a.consumer.cmp(&b.consumer));
    GroupState {
        group: name.clone(),
        contract: group.contract.clone(),
        cursor: group.cursor,
        delivered: on_log.map(|(_, held)| held.delivered),
        lag: on_log.filter(|_| step.layout == Layout::Tagged).and_then(lag),
        pending: on_log.map_or(0, |(_, held)| held.pending.len() as u64),
        oldest: on_log.and_then(|(_, held)| oldest(step, held)),
        members,
        fence: group.lease.as_ref().map_or(0, |lease| lease.fence),
        later: group.later.len() as u64,
        missed: group.missed.len() as u64,
    }
}

fn oldest(step: &Step<'_>, held: &LogGroup) -> Option<OldestPending> {
    let (id, pending) = held.pending.first_key_value()?;
    let consumer = (pending.consumer != ConsumerName::shelf()).then(|| pending.consumer.clone());
    let idle_ms = step.now.ms().saturating_sub(pending.since_ms);
    Some(OldestPending { id: *id, consumer, idle_ms, count: pending.count })
}
