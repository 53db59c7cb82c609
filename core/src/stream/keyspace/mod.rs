//! The model: what a server holds, and what each operation does to it.

mod bind;
pub mod books;
mod count;
mod dead;
mod destroy;
mod expiry;
mod group;
mod later;
mod lease;
mod listing;
pub mod log;
pub mod loss;
mod member;
mod missed;
mod once;
mod publish;
mod read;
pub mod space;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_floor;
#[cfg(test)]
mod tests_given;
#[cfg(test)]
mod tests_listing;

use self::bind::Plan;
use self::space::{Data, Life, Space};
use super::error::{CallerError, StreamError};
use super::layout::Layout;
use super::name::StreamName;
use super::op::{StreamOp, Verb};
use super::reply::{StreamReply, Told, replay_result};
use super::time::ServerTime;
use alloc::collections::BTreeMap;

/// Everything a server holds of all streams.
///
/// ```
/// use strandline_core::stream::handle::Handle;
/// use strandline_core::stream::op::{Condition, Nonce, Verb};
/// use strandline_core::stream::reply::Told;
/// use strandline_core::stream::{Event, Keyspace, Layout, ServerTime, StreamName, Wanted};
///
/// let mut server = Keyspace::new(Layout::Tagged);
/// let name = StreamName::new("orders").unwrap();
/// let mut handle = Handle::new(name, Wanted::default(), Layout::Tagged).unwrap();
/// let event = Event::new("created", "one").unwrap();
/// let op = handle.op(Verb::Add { event, condition: Condition::Always }, Nonce([7; 16]));
/// let answer = server.apply(ServerTime::from_ms(5), &op);
/// handle.answered(&op.verb, &answer);
/// assert!(matches!(answer.unwrap().told, Told::Added { id: Some(_) }));
/// assert_eq!(handle.bound().unwrap().generation, 1);
/// ```
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Keyspace {
    layout: Layout,
    spaces: BTreeMap<StreamName, Space>,
}

/// What every operation is given: whose rules, when, and on which generation.
struct Step<'a> {
    layout: Layout,
    now: ServerTime,
    plan: &'a Plan,
}

impl Step<'_> {
    const fn life(&self) -> &Life {
        &self.plan.life
    }

    /// What the generation holds before the step. A generation that this step makes holds nothing,
    /// whatever an earlier incarnation left under its number.
    fn held<'a>(&self, space: &'a Space) -> Option<&'a Data> {
        if self.plan.is_anew(self.layout) { None } else { space.data.get(&self.life().generation) }
    }
}

impl Keyspace {
    /// An empty server.
    #[must_use]
    pub const fn new(layout: Layout) -> Self {
        Self { layout, spaces: BTreeMap::new() }
    }

    /// A server as it was left.
    pub(in crate::stream) const fn restore(layout: Layout, spaces: BTreeMap<StreamName, Space>) -> Self {
        Self { layout, spaces }
    }

    /// What is held for one name, as of the last step.
    pub(in crate::stream) fn held(&self, name: &StreamName) -> Option<&Space> {
        self.spaces.get(name)
    }

    /// Whose rules hold.
    #[must_use]
    pub const fn layout(&self) -> Layout {
        self.layout
    }

    /// What is held for each name, as of the last step.
    pub fn spaces(&self) -> impl Iterator<Item = (&StreamName, &Space)> {
        self.spaces.iter()
    }

    /// What is held for one name at `now`: what has died by then is not shown.
    #[must_use]
    pub fn space(&self, name: &StreamName, now: ServerTime) -> Option<Space> {
        let mut space = self.spaces.get(name)?.clone();
        space.purge(now);
        Some(space)
    }

    /// Does one step. A refused one changes nothing, except that what has expired is gone.
    ///
    /// # Errors
    /// What the operation is refused with; see [`StreamError`].
    pub fn apply(&mut self, now: ServerTime, op: &StreamOp) -> Result<StreamReply, StreamError> {
        if self.layout == Layout::Pulse && op.verb.is_tagged_only() {
            return Err(CallerError::TaggedOnly.into());
        }
        let mut space = self.spaces.remove(&op.stream).unwrap_or_default();
        space.purge(now);
        let result = bind::plan(self.layout, space.life.as_ref(), now, op).and_then(|plan| {
            let step = Step { layout: self.layout, now, plan: &plan };
            let told = dispatch(&step, &mut space, op)?;
            Ok(StreamReply { bound: plan.bound(), told })
        });
        let result = if let Verb::Replay { after, .. } = &op.verb {
            replay_result(result, *after, op.by.bound.is_some())
        } else {
            result
        };
        space.data.retain(|_, data| *data != space::Data::default());
        if space != Space::default() {
            self.spaces.insert(op.stream.clone(), space);
        }
        result
    }
}

fn dispatch(step: &Step<'_>, space: &mut Space, op: &StreamOp) -> Result<Told, StreamError> {
    match &op.verb {
        Verb::Open => {
            step.plan.commit(step.layout, space);
            Ok(Told::Done)
        }
        Verb::Attend => Ok(read::attend(step, space)),
        Verb::Add { event, condition } => publish::add(step, space, event, *condition),
        Verb::AddOnce { key, event } => once::add_once(step, space, key, event),
        Verb::Remove { ids } => Ok(publish::remove(step, space, ids)),
        Verb::Snapshot => read::snapshot(step, space),
        Verb::Destroy => Ok(destroy::destroy(step, space)),
        Verb::Read { after, events_max } => Ok(read::read(step, space, *after, *events_max)),
        Verb::Replay { after, events_max, bytes_max } => {
            read::replay(step, space, *after, *events_max, *bytes_max)
        }
        Verb::GroupOpen { group, contract, settled } => group::open(step, space, group, contract, *settled),
        Verb::GroupRead { group, consumer, events_max } => {
            group::read(step, space, group, consumer, *events_max)
        }
        Verb::GroupAck { group, ids } => Ok(group::ack(step, space, group, ids)),
        Verb::GroupRegister { group, consumer } => member::register(step, space, group, consumer),
        Verb::GroupKeepAlive { group, consumer } => member::keep_alive(step, space, group, consumer),
        Verb::GroupDetach { group, consumer, release } => {
            Ok(member::detach(step, space, group, consumer, *release))
        }
        Verb::GroupNack { group, consumer, ids, delay_ms } => {
            later::nack(step, space, group, consumer, ids, *delay_ms)
        }
        Verb::GroupBury { group, consumer, ids } => dead::bury(step, space, group, consumer, ids),
        Verb::GroupTold { group, through } => Ok(missed::told(step, space, group, *through)),
        Verb::Groups { after, groups_max } => Ok(listing::list(step, space, after.as_ref(), *groups_max)),
        Verb::DeadRead { after, events_max } => Ok(dead::read(step, space, *after, *events_max)),
        Verb::DeadRemove { ids } => Ok(dead::remove(step, space, ids)),
        Verb::LeaseAcquire { group, owner, lease_ms } => {
            Ok(lease::acquire(step, space, group, owner, *lease_ms))
        }
        Verb::LeaseRenew { group, lease } => lease::renew(step, space, group, lease),
        Verb::GroupClaim { group, lease, consumer, idle_ms, from, events_max } => {
            lease::claim(step, space, group, lease, consumer, *idle_ms, *from, *events_max)
        }
        Verb::GroupSweep { group, lease, grace_ms } => lease::sweep(step, space, group, lease, *grace_ms),
    }
}
