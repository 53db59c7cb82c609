//! The owner: one thread holds the root without locks. Inputs, completions and the timer reach it
//! through one channel, and what the root says goes out through one drain.

use super::api::{
    CloseReply, Ending, LinkReply, Request, RequestReply, Unavailable, WaitPolicy, WriteError, owner_lost,
};
use super::links::{LinkSink, Links};
use super::reply::{Permit, Reply};
use super::subscription::{Opened, PageCall, Subscribers};
use super::waiters::{Parked, Submission, Waiters};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::mpsc::{Receiver, Sender};
use strandline_core::error::StorageFault;
use strandline_core::id::LinkId;
use strandline_core::lifecycle::api::{
    Accepted, Cursor, Event, Flow, LinkRefused, LinkRole, Mutation, MutationError, RequestId, SubscriptionId,
};
use strandline_core::lifecycle::command::{Command, ReplicaCompletion};
use strandline_core::lifecycle::replica::Replica;
use strandline_core::machine::{Host, Machine, Next, Sent, drain};
use strandline_core::time::{Instant, Now, WallTime};
use strandline_core::wire::handshake::Authenticated;

/// Most inputs taken before the root is drained: the more, the larger a group commit can be.
const INPUTS_PER_TURN_MAX: u32 = 1024;

/// Most outputs taken before inputs are looked at again.
const OUTPUTS_PER_TURN_MAX: u32 = 1024;

/// The inputs of a replica, apart from completions and time. A trait so that the owner's tests can
/// drive it with a root whose every step they choose.
pub(crate) trait Root:
    Machine<Command = Command, Event = Event, Completion = ReplicaCompletion, Channel = LinkId>
{
    fn mutations(&mut self, now: Now, mutations: &[Mutation]) -> Result<Vec<Accepted>, MutationError>;
    fn link_up(&mut self, now: Now, peer: &Authenticated, role: LinkRole) -> Result<LinkId, LinkRefused>;
    fn received(&mut self, now: Now, link: LinkId, bytes: &[u8]) -> Flow;
    fn link_down(&mut self, now: Now, link: LinkId);
    fn request(&mut self, now: Now, request: Request) -> RequestId;
    fn subscribe(&mut self, now: Now, cursor: Cursor) -> Opened;
    fn subscription(&mut self, now: Now, input: SubscriptionInput);
    fn close(&mut self, now: Now);
}

impl Root for Replica {
    fn mutations(&mut self, now: Now, mutations: &[Mutation]) -> Result<Vec<Accepted>, MutationError> {
        self.handle_mutations(now, mutations)
    }
    fn link_up(&mut self, now: Now, peer: &Authenticated, role: LinkRole) -> Result<LinkId, LinkRefused> {
        self.handle_link_up(now, peer, role)
    }
    fn received(&mut self, now: Now, link: LinkId, bytes: &[u8]) -> Flow {
        self.handle_received(now, link, bytes)
    }
    fn link_down(&mut self, now: Now, link: LinkId) {
        self.handle_link_down(now, link);
    }
    fn request(&mut self, now: Now, request: Request) -> RequestId {
        match request {
            Request::Compact { upto } => self.handle_compact(now, upto),
            Request::Members(change) => self.handle_members(now, change),
            Request::Collect(collect) => self.handle_collect(now, collect),
            Request::Scrub(scrub) => self.handle_scrub(now, scrub),
            Request::Fence { epoch } => self.handle_fence(now, epoch),
        }
    }
    fn subscribe(&mut self, now: Now, cursor: Cursor) -> Opened {
        self.handle_subscribe(now, cursor)
    }
    fn subscription(&mut self, now: Now, input: SubscriptionInput) {
        match input {
            SubscriptionInput::Want(id) => self.handle_page_wanted(now, id),
            SubscriptionInput::Reset(id) => self.handle_reset(now, id),
            SubscriptionInput::End(id) => self.handle_unsubscribe(now, id),
        }
    }
    fn close(&mut self, now: Now) {
        self.handle_close(now);
    }
}

/// Work on the root's durable state; told why if it cannot be done.
pub(crate) type ReadCall<R> = Box<dyn FnOnce(Result<&R, Unavailable>) + Send>;

/// Someone who is told every event, until it answers `Break`.
pub(crate) type EventCall = Box<dyn FnMut(&Event) -> ControlFlow<()> + Send>;

/// Everything that can reach the owner.
pub(crate) enum Input<R> {
    Submit { submission: Submission, policy: WaitPolicy },
    Read(Read<R>),
    Request { request: Request, reply: RequestReply },
    LinkUp { peer: Box<Authenticated>, role: LinkRole, sink: Box<dyn LinkSink>, reply: LinkReply },
    Received { link: LinkId, bytes: Vec<u8>, done: Reply<()> },
    LinkReady(LinkId),
    LinkDown(LinkId),
    Subscribe { call: EventCall, permit: Permit },
    OpenSubscription { cursor: Cursor, call: PageCall, permit: Permit, reply: Reply<Opened> },
    Subscription(SubscriptionInput),
    Close(CloseReply),
    Completed(ReplicaCompletion),
}

/// What someone who subscribed asks for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SubscriptionInput {
    /// The next page.
    Want(SubscriptionId),
    /// The state, and what comes after it.
    Reset(SubscriptionId),
    /// Nothing more.
    End(SubscriptionId),
}

/// A read that is told so if it is never done.
pub(crate) struct Read<R> {
    pub(crate) call: Option<ReadCall<R>>,
    pub(crate) _permit: Permit,
}

impl<R> Drop for Read<R> {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            call(Err(Unavailable::Closed));
        }
    }
}

/// Both clocks of this machine, the monotonic one counted from the start of a node.
#[derive(Debug)]
pub struct Clock(std::time::Instant);

impl Clock {
    /// Starts counting.
    #[must_use]
    pub fn start() -> Self {
        Self(std::time::Instant::now())
    }

    /// What they say.
    #[must_use]
    pub fn now(&self) -> Now {
        let mono = u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let wall = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
        Now { mono: Instant(mono), wall: WallTime(wall) }
    }
}

/// The root, its inputs and the world outside.
pub(crate) struct Owner<R, X> {
    root: R,
    inputs: Receiver<Input<R>>,
    /// Keeps the channel open, so that waiting on it always waits.
    _open: Sender<Input<R>>,
    outside: Outside<X>,
    clock: Clock,
    parked: Parked,
    closing: Vec<CloseReply>,
    close_handed_in: bool,
}

/// How an owner ended, for those who asked it to.
pub(crate) struct Ended<R> {
    closing: Vec<CloseReply>,
    fault: Option<StorageFault>,
    /// Open until the ending is set, so that nobody finds the owner gone before.
    inputs: Receiver<Input<R>>,
}

impl<R> Ended<R> {
    /// Tells everyone who called `close`, and those who will.
    pub(crate) fn answer(self, ending: &Ending) {
        let ended = ending.get_or_init(|| self.fault.map_or(Ok(()), Err));
        drop(self.inputs);
        for reply in self.closing {
            reply.give(Some(ended.clone()));
        }
    }
}

impl<R: Root, X: FnMut(Command)> Owner<R, X> {
    pub(crate) fn new(
        root: R,
        (open, inputs): (Sender<Input<R>>, Receiver<Input<R>>),
        execute: X,
        clock: Clock,
    ) -> Self {
        Self {
            root,
            inputs,
            _open: open,
            outside: Outside::new(execute),
            clock,
            parked: Parked::default(),
            closing: Vec::new(),
            close_handed_in: false,
        }
    }

    /// Runs until the root has closed.
    pub(crate) fn run(mut self) -> Ended<R> {
        let mut buf = Vec::new();
        let mut now = self.clock.now();
        let mut next = drain(&mut self.root, &mut self.outside, &mut buf, OUTPUTS_PER_TURN_MAX);
        while !(self.outside.closed && matches!(next, Next::Sleep(_))) {
            let first = self.wait(now, next);
            now = self.clock.now();
            self.turn(now, first);
            next = drain(&mut self.root, &mut self.outside, &mut buf, OUTPUTS_PER_TURN_MAX);
            if std::mem::take(&mut self.outside.room) {
                self.retry_parked(now);
                next = Next::More;
            }
        }
        self.outside.links.close_all();
        Ended { closing: self.closing, fault: self.outside.fault, inputs: self.inputs }
    }

    /// The next input, or `None` when it is time for something else.
    fn wait(&self, now: Now, next: Next) -> Option<Input<R>> {
        match next {
            Next::More => self.inputs.try_recv().ok(),
            Next::Sleep(None) => self.inputs.recv().ok(),
            Next::Sleep(Some(deadline)) => self.inputs.recv_timeout(deadline.since(now.mono)).ok(),
        }
    }

    /// Takes `first` and what else is there, then the timer.
    fn turn(&mut self, now: Now, mut first: Option<Input<R>>) {
        for _ in 0..INPUTS_PER_TURN_MAX {
            let Some(input) = first.take().or_else(|| self.inputs.try_recv().ok()) else { break };
            self.take(now, input);
        }
        if self.root.pending().deadline.is_some_and(|deadline| deadline <= now.mono) {
            self.root.handle_timeout(now);
        }
        if !self.closing.is_empty() && !self.close_handed_in && self.parked.is_empty() {
            self.close_handed_in = true;
            self.root.close(now);
        }
    }

    fn take(&mut self, now: Now, input: Input<R>) {
        match input {
            Input::Submit { submission, policy } => self.submit(now, submission, policy),
            Input::Read(mut read) => {
                if let Some(call) = read.call.take() {
                    call(Ok(&self.root));
                }
            }
            Input::Request { request, reply } => {
                let id = self.root.request(now, request);
                self.outside.requests.insert(id, reply);
            }
            Input::LinkUp { peer, role, sink, reply } => {
                let up = self.root.link_up(now, &peer, role);
                if let Ok(link) = &up {
                    self.outside.links.insert(*link, sink);
                }
                reply.give(up);
            }
            Input::Received { link, bytes, done } => match self.root.received(now, link, &bytes) {
                Flow::More => done.give(()),
                Flow::Pause => self.outside.links.pause(link, done),
            },
            Input::LinkReady(link) => self.outside.links.sink_ready(link),
            Input::LinkDown(link) => {
                self.outside.links.remove(link);
                self.root.link_down(now, link);
            }
            Input::Subscribe { call, permit } => self.outside.subscribers.push((call, permit)),
            Input::OpenSubscription { cursor, call, permit, reply } => {
                let opened = self.root.subscribe(now, cursor);
                if let Ok((id, _)) = &opened {
                    self.outside.pages.insert(*id, call, permit);
                }
                reply.give(opened);
            }
            Input::Subscription(input) => {
                self.root.subscription(now, input);
                if let SubscriptionInput::End(id) = input {
                    self.outside.pages.remove(id);
                }
            }
            Input::Close(reply) => self.closing.push(reply),
            Input::Completed(completion) => self.root.handle_completion(now, completion),
        }
    }

    fn submit(&mut self, now: Now, submission: Submission, policy: WaitPolicy) {
        if !self.closing.is_empty() {
            return submission.reply.give(Err(Unavailable::Closed.into()));
        }
        let refused = match self.parked.blocked() {
            Some(full) => Some((submission, full.clone())),
            None => self.offer(now, submission),
        };
        if let Some((submission, full)) = refused {
            match policy {
                WaitPolicy::Wait => self.parked.park(submission, full),
                WaitPolicy::Fail => submission.reply.give(Err(WriteError::Refused(full))),
            }
        }
    }

    /// Offers a submission to the root; gives it back if the write queue is full.
    fn offer(&mut self, now: Now, mut submission: Submission) -> Option<(Submission, MutationError)> {
        // From here on a panic of the root leaves open how far it got.
        submission.reply.when_lost(|| Err(WriteError::Uncertain(owner_lost())));
        match self.root.mutations(now, &submission.mutations) {
            Ok(accepted) => self.outside.waiters.wait(accepted, submission.reply),
            Err(full) if matches!(full, MutationError::Full { .. }) => {
                submission.reply.when_lost(|| Err(Unavailable::Closed.into()));
                return Some((submission, full));
            }
            Err(error) => submission.reply.give(Err(WriteError::Refused(error))),
        }
        None
    }

    fn retry_parked(&mut self, now: Now) {
        while let Some(submission) = self.parked.pop() {
            if let Some((submission, full)) = self.offer(now, submission) {
                return self.parked.unpop(submission, full);
            }
        }
    }
}

/// The host of the drain.
struct Outside<X> {
    execute: X,
    waiters: Waiters,
    requests: BTreeMap<RequestId, RequestReply>,
    links: Links,
    subscribers: Vec<(EventCall, Permit)>,
    pages: Subscribers,
    /// The write queue may have room, or will say for good that it has not.
    room: bool,
    fault: Option<StorageFault>,
    closed: bool,
}

impl<X> Outside<X> {
    fn new(execute: X) -> Self {
        Self {
            execute,
            waiters: Waiters::default(),
            requests: BTreeMap::new(),
            links: Links::default(),
            subscribers: Vec::new(),
            pages: Subscribers::default(),
            room: false,
            fault: None,
            closed: false,
        }
    }
}

impl<R: Root, X: FnMut(Command)> Host<R> for Outside<X> {
    fn execute(&mut self, command: Command) {
        (self.execute)(command);
    }

    fn notify(&mut self, event: Event) {
        self.subscribers.retain_mut(|(call, _)| call(&event).is_continue());
        match event {
            Event::Durable { upto } => {
                self.waiters.durable(upto);
                self.room = true;
            }
            Event::Halted { fault } => {
                self.waiters.halted(&fault);
                self.fault = Some(fault);
                self.room = true;
            }
            Event::Frames { link } => self.links.frames(link),
            Event::Resume { link } => self.links.resume(link),
            Event::CloseLink { link, reason } => self.links.close(link, reason),
            Event::Done { request, done } => {
                if let Some(reply) = self.requests.remove(&request) {
                    reply.give(Ok(done));
                }
            }
            Event::Closed => self.closed = true,
            Event::Page { subscription, page } => self.pages.page(subscription, page),
            Event::Verdict { .. }
            | Event::Synced { .. }
            | Event::Installed { .. }
            | Event::EpochStarted { .. }
            | Event::MemberLapsed { .. }
            | Event::Compacted { .. } => {}
        }
    }

    fn ready(&mut self) -> Option<LinkId> {
        self.links.first()
    }

    fn send(&mut self, channel: LinkId, bytes: &[u8]) -> Sent {
        self.links.send(channel, bytes)
    }

    fn done(&mut self, channel: LinkId) {
        self.links.done(channel);
    }
}

#[cfg(test)]
mod tests;
