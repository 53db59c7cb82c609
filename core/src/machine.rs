//! How a host runs a root machine: one trait each, and the only drain loop.

use crate::error::StorageFault;
use crate::ticket::{Operation, Ticket, Tickets};
use crate::time::{Instant, Now};
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

/// A root: what a host runs. `handle_*` calls change state, `poll_*` calls only hand out from
/// their own queue, so the order of polls cannot matter.
///
/// A caller may poll at any time, may call [`Machine::handle_timeout`] too early or too late, and
/// may hand in completions in any order.
pub trait Machine {
    /// An effect for the host to execute.
    type Command;
    /// Something for the host to know.
    type Event;
    /// The answer to a command.
    type Completion;
    /// What frames are sent on.
    type Channel: Copy + Ord;

    /// Takes the answer to a command.
    fn handle_completion(&mut self, now: Now, completion: Self::Completion);
    /// Tells that time has passed. A spurious call is harmless.
    fn handle_timeout(&mut self, now: Now);
    /// The next effect, if any.
    #[must_use]
    fn poll_command(&mut self) -> Option<Self::Command>;
    /// The next event, if any.
    #[must_use]
    fn poll_event(&mut self) -> Option<Self::Event>;
    /// Appends the next frame for `channel` to `buf`. `None` for a channel that is gone.
    #[must_use]
    fn poll_channel(&mut self, channel: Self::Channel, buf: &mut Vec<u8>) -> Option<FrameInfo>;
    /// What is waiting, and the next deadline; constant time.
    fn pending(&self) -> Pending;
}

/// One frame handed out by [`Machine::poll_channel`].
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use]
pub struct FrameInfo {
    /// How many bytes were appended to the buffer.
    pub bytes: usize,
}

/// Everything a host must look at before it sleeps.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Pending {
    /// Commands wait to be polled.
    pub commands: bool,
    /// Events wait to be polled.
    pub events: bool,
    /// Frames wait on some channel.
    pub frames: bool,
    /// When `handle_timeout` is due.
    pub deadline: Option<Instant>,
}

/// Whether a channel can take another frame.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Sent {
    /// Send on.
    More,
    /// This frame was taken; the next one must wait until the channel is ready again.
    Enough,
}

/// What an adapter, or the simulator, supplies.
pub trait Host<M: Machine> {
    /// Starts an effect. Its answer comes back later through `handle_completion`.
    fn execute(&mut self, command: M::Command);
    /// Takes an event.
    fn notify(&mut self, event: M::Event);
    /// The first channel that can take a frame. It stays first until [`Host::done`].
    fn ready(&mut self) -> Option<M::Channel>;
    /// Takes one frame, whole.
    fn send(&mut self, channel: M::Channel, bytes: &[u8]) -> Sent;
    /// The channel is full, gone, or has nothing more to send: the next one becomes first.
    fn done(&mut self, channel: M::Channel);
}

/// What the host does after a drain.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use]
pub enum Next {
    /// The budget ran out: look at the other inputs, then drain again.
    More,
    /// Nothing is left. Wait for an input, at most until the deadline.
    Sleep(Option<Instant>),
}

/// Moves everything a machine has to say into its host: at most `budget` outputs of the three
/// kinds together. The only drain loop there is, so that no host can forget a queue.
pub fn drain<M: Machine, H: Host<M>>(machine: &mut M, host: &mut H, buf: &mut Vec<u8>, budget: u32) -> Next {
    let mut left = budget;
    loop {
        if left == 0 {
            return Next::More;
        }
        if let Some(command) = machine.poll_command() {
            host.execute(command);
        } else if let Some(event) = machine.poll_event() {
            host.notify(event);
        } else if let Some(channel) = host.ready() {
            buf.clear();
            match machine.poll_channel(channel, buf) {
                Some(_) => match host.send(channel, buf) {
                    Sent::More => {}
                    Sent::Enough => host.done(channel),
                },
                None => host.done(channel),
            }
        } else {
            return Next::Sleep(machine.pending().deadline);
        }
        left -= 1;
    }
}

/// Where a root's parts push their effects: the root's output queues and its ledger of tickets.
///
/// A part is generic over the root's purpose `P`, command `C` and event `E`, so that one part can
/// serve several roots.
#[derive(Debug)]
pub struct Out<P, C, E> {
    tickets: Tickets<P>,
    commands: VecDeque<C>,
    events: VecDeque<E>,
}

impl<P, C, E> Out<P, C, E> {
    /// Empty queues over a ledger.
    #[must_use]
    pub fn new(tickets: Tickets<P>) -> Self {
        Self { tickets, commands: VecDeque::new(), events: VecDeque::new() }
    }

    /// Queues the command that `make` builds around a fresh ticket.
    pub fn command<Op, Made>(&mut self, purpose: impl Into<P>, make: impl FnOnce(Ticket<Op>) -> Made)
    where
        Op: Operation,
        Made: Into<C>,
    {
        let ticket = self.tickets.mint(purpose.into());
        self.commands.push_back(make(ticket).into());
    }

    /// Queues a command whose answers do not come as a completion.
    pub fn push(&mut self, command: impl Into<C>) {
        self.commands.push_back(command.into());
    }

    /// Queues an event.
    pub fn event(&mut self, event: impl Into<E>) {
        self.events.push_back(event.into());
    }

    /// Takes the next command.
    pub fn poll_command(&mut self) -> Option<C> {
        self.commands.pop_front()
    }

    /// Takes the next event.
    pub fn poll_event(&mut self) -> Option<E> {
        self.events.pop_front()
    }

    /// The ledger, to settle completions in.
    pub fn tickets(&mut self) -> &mut Tickets<P> {
        &mut self.tickets
    }

    /// How many commands have been handed out or queued and not been answered.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.tickets.outstanding()
    }

    /// Whether commands or events are queued, in the form [`Machine::pending`] reports.
    #[must_use]
    pub fn pending(&self) -> Pending {
        Pending { commands: !self.commands.is_empty(), events: !self.events.is_empty(), ..Pending::default() }
    }
}

/// Deadlines by name: arming, disarming and finding the next one are all cheap.
#[derive(Clone, Debug)]
pub struct Deadlines<K> {
    by_time: BTreeSet<(Instant, K)>,
    by_key: BTreeMap<K, Instant>,
}

impl<K> Default for Deadlines<K> {
    fn default() -> Self {
        Self { by_time: BTreeSet::new(), by_key: BTreeMap::new() }
    }
}

impl<K: Copy + Ord> Deadlines<K> {
    /// Sets the deadline of `key`, in place of an earlier one.
    pub fn arm(&mut self, key: K, at: Instant) {
        self.disarm(key);
        self.by_key.insert(key, at);
        self.by_time.insert((at, key));
    }

    /// Removes the deadline of `key`, if it has one.
    pub fn disarm(&mut self, key: K) {
        if let Some(at) = self.by_key.remove(&key) {
            self.by_time.remove(&(at, key));
        }
    }

    /// The next deadline.
    #[must_use]
    pub fn next(&self) -> Option<Instant> {
        self.by_time.first().map(|(at, _)| *at)
    }

    /// Whether `key` has a deadline.
    #[must_use]
    pub fn armed(&self, key: K) -> bool {
        self.by_key.contains_key(&key)
    }

    /// Takes out one deadline that has come; it is disarmed before its work runs.
    pub fn expire(&mut self, now: Instant) -> Option<K> {
        let (at, key) = *self.by_time.first()?;
        if at > now {
            return None;
        }
        self.disarm(key);
        Some(key)
    }
}

/// A fault that stopped a part for good: it is reported once and nothing is written after it.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Health {
    /// Working.
    Running,
    /// Stopped by this fault; recover from storage.
    Halted(StorageFault),
}
