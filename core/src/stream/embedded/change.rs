//! What an operation that was done changed: whether it is an entry of the journal, and whether
//! somebody who waits for the stream should look again.

use crate::stream::event::EventId;
use crate::stream::keyspace::Keyspace;
use crate::stream::op::{StreamOp, Verb};
use crate::stream::reply::Told;

/// What must be known of the stream before the step.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Before {
    /// Generation and whether it is active.
    life: Option<(u64, bool)>,
    /// Of the group that is read: whether who asks is one of its consumers, up to where it was given,
    /// and how many entries that was counted to be.
    group: Option<(bool, EventId, Option<u64>)>,
}

impl Before {
    pub(super) fn of(keyspace: &Keyspace, op: &StreamOp) -> Self {
        let space = keyspace.held(&op.stream);
        let life = space.and_then(|space| space.life.as_ref());
        let group = match (&op.verb, life) {
            (Verb::GroupRead { group, consumer, .. }, Some(life)) => space
                .and_then(|space| space.data.get(&life.generation)?.log.as_ref()?.groups.get(group))
                .map(|group| (group.consumers.contains(consumer), group.delivered, group.seen)),
            (_, Some(_) | None) => None,
        };
        Self { life: life.map(|life| (life.generation, life.active)), group }
    }
}

/// Whether a step that was not refused changed anything but by the passing of time.
pub(super) fn changes(keyspace: &Keyspace, before: Before, op: &StreamOp, told: &Told) -> bool {
    let after = Before::of(keyspace, op);
    let made = after.life != before.life;
    match &op.verb {
        Verb::Attend | Verb::Snapshot | Verb::Read { .. } | Verb::Replay { .. } => false,
        Verb::DeadRead { .. } | Verb::Groups { .. } => false,
        Verb::Open => made,
        Verb::Add { .. } => matches!(told, Told::Added { id: Some(_) }),
        Verb::AddOnce { .. } => made || matches!(told, Told::AddedOnce { published: true, .. }),
        Verb::Remove { .. } | Verb::DeadRemove { .. } => {
            matches!(told, Told::Removed { count } if *count > 0)
        }
        Verb::Destroy => matches!(told, Told::Destroyed { now: true }),
        Verb::GroupRead { .. } => {
            let gave = matches!(told, Told::Taken { entries, .. } if !entries.is_empty());
            gave || after.group != before.group
        }
        Verb::GroupAck { .. } => matches!(told, Told::Acked { count, .. } if *count > 0),
        // A hole that is told of no more, or one told of before: it costs an entry either way.
        Verb::GroupTold { .. } => true,
        Verb::GroupNack { .. } => matches!(told, Told::Nacked { count } if *count > 0),
        Verb::GroupBury { .. } => matches!(told, Told::Buried { count, .. } if *count > 0),
        Verb::LeaseAcquire { .. } => matches!(told, Told::Leased { acquired: true, .. }),
        // They write an expiry, an instant or a lease, whatever else they do.
        Verb::GroupOpen { .. } | Verb::GroupRegister { .. } | Verb::GroupKeepAlive { .. } => true,
        Verb::GroupDetach { .. } => true,
        Verb::LeaseRenew { .. } | Verb::GroupClaim { .. } | Verb::GroupSweep { .. } => true,
    }
}

/// Whether a change is one that a reader or consumer waits for: new entries, or the end.
pub(super) const fn wakes(verb: &Verb) -> bool {
    match verb {
        Verb::Open | Verb::Add { .. } | Verb::AddOnce { .. } | Verb::Destroy => true,
        Verb::GroupOpen { .. } => true,
        Verb::Attend | Verb::Snapshot | Verb::Read { .. } | Verb::Replay { .. } => false,
        Verb::Remove { .. } | Verb::GroupRead { .. } | Verb::GroupAck { .. } => false,
        Verb::GroupRegister { .. } | Verb::GroupKeepAlive { .. } | Verb::GroupDetach { .. } => false,
        Verb::GroupNack { .. } | Verb::GroupBury { .. } => false,
        Verb::DeadRead { .. } | Verb::DeadRemove { .. } | Verb::GroupTold { .. } => false,
        Verb::Groups { .. } => false,
        Verb::LeaseAcquire { .. } | Verb::LeaseRenew { .. } => false,
        Verb::GroupClaim { .. } | Verb::GroupSweep { .. } => false,
    }
}
