//! One hub behind one lock, with what its host must remember.

use futures::channel::oneshot;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use strandline_core::coverage::{Command, Event, Hub, Outcome, PublishId, SubscriberId};
use strandline_core::machine::{Host, Machine, Next, Sent, drain};
use strandline_core::time::Instant;

/// What must be done once the lock is released.
#[derive(Default)]
pub(crate) struct Todo {
    pub(crate) commands: Vec<Command>,
    pub(crate) reports: Vec<Event>,
    pub(crate) wakers: Vec<Waker>,
    pub(crate) outcomes: Vec<(oneshot::Sender<Outcome>, Outcome)>,
    pub(crate) deadline: Option<Instant>,
}

pub(crate) struct Locked {
    pub(crate) hub: Hub,
    pub(crate) wakers: BTreeMap<SubscriberId, Waker>,
    pub(crate) publishing: BTreeMap<PublishId, oneshot::Sender<Outcome>>,
}

pub(crate) struct Shard {
    locked: Mutex<Locked>,
}

impl Shard {
    pub(crate) fn new(hub: Hub) -> Self {
        let locked = Locked { hub, wakers: BTreeMap::new(), publishing: BTreeMap::new() };
        Self { locked: Mutex::new(locked) }
    }

    /// The lock. A panic in a hub is a broken invariant of the core; others go on with what there is.
    pub(crate) fn lock(&self) -> MutexGuard<'_, Locked> {
        self.locked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something to the hub, and collects what follows from it.
    pub(crate) fn with<R>(&self, act: impl FnOnce(&mut Locked) -> R) -> (R, Todo) {
        let mut locked = self.lock();
        let result = act(&mut locked);
        let Locked { hub, wakers, publishing } = &mut *locked;
        let mut collect = Collect { todo: Todo::default(), wakers, publishing };
        let mut buf = Vec::new();
        while drain(hub, &mut collect, &mut buf, u32::MAX) == Next::More {}
        let mut todo = collect.todo;
        todo.deadline = hub.pending().deadline;
        (result, todo)
    }
}

/// Takes a hub's outputs. Items are not pushed: each subscriber's task polls its own.
struct Collect<'a> {
    todo: Todo,
    wakers: &'a mut BTreeMap<SubscriberId, Waker>,
    publishing: &'a mut BTreeMap<PublishId, oneshot::Sender<Outcome>>,
}

impl Host<Hub> for Collect<'_> {
    fn execute(&mut self, command: Command) {
        self.todo.commands.push(command);
    }

    fn notify(&mut self, event: Event) {
        match event {
            Event::Ready(subscriber) => self.todo.wakers.extend(self.wakers.remove(&subscriber)),
            Event::Published { id, outcome } => {
                if let Some(waiter) = self.publishing.remove(&id) {
                    self.todo.outcomes.push((waiter, outcome));
                }
            }
            report @ (Event::Refused { .. }
            | Event::CoverageLost { .. }
            | Event::SubscriptionEnded { .. }
            | Event::Slow { .. }) => self.todo.reports.push(report),
        }
    }

    fn ready(&mut self) -> Option<SubscriberId> {
        None
    }

    fn send(&mut self, _channel: SubscriberId, _bytes: &[u8]) -> Sent {
        Sent::Enough
    }

    fn done(&mut self, _channel: SubscriberId) {}
}
