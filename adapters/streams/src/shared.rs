//! What all handles of one backend share: the root machine, and who waits for what it says.

use crate::alarm::Alarm;
use crate::backend::{Backend, executed};
use futures::channel::oneshot;
use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::{Instant as Clock, SystemTime};
use strandline_core::id::Run;
use strandline_core::machine::{Host, Next, Sent, drain};
use strandline_core::seed::Seed;
use strandline_core::stream::client::{
    CallId, ClientCompletion, ClientEvent, Command, End, Execution, Failover, Failure, HandleId, Item,
    Origin, PartyId, StreamClient, op,
};
use strandline_core::stream::error::{ServerFault, StreamError};
use strandline_core::stream::reply::Told;
use strandline_core::stream::{StreamName, StreamOp, Verb};
use strandline_core::ticket::Ticket;
use strandline_core::time::{Instant, Now, WallTime};

/// Outputs of the machine that are taken in one go.
const BUDGET: u32 = 10_000;

pub(crate) struct Shared {
    state: Mutex<State>,
    pub(crate) backend: Arc<dyn Backend>,
    pub(crate) alarm: Alarm,
    origin: Clock,
}

/// Closes what is shared when it is dropped: the last of those who use it has gone, or the driver.
pub(crate) struct Closes(pub(crate) Arc<Shared>);

impl Drop for Closes {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// The machine and what it said.
pub(crate) struct State {
    pub(crate) client: StreamClient,
    said: Said,
}

/// What the machine said and nobody has taken yet.
#[derive(Default)]
struct Said {
    jobs: VecDeque<Command>,
    calls: BTreeMap<CallId, oneshot::Sender<Result<Told, Failure>>>,
    boxes: BTreeMap<PartyId, Mailbox>,
    /// The last failover that each handle was told of.
    failovers: BTreeMap<HandleId, Failover>,
    wakers: Vec<Waker>,
    closed: bool,
}

/// What a reader or consumer has been told.
#[derive(Default)]
pub(crate) struct Mailbox {
    pub(crate) items: VecDeque<Item>,
    pub(crate) ready: bool,
    pub(crate) end: Option<End>,
    /// Leases that are held: stream and fence.
    pub(crate) leases: BTreeMap<StreamName, u64>,
    /// What failed last and is tried again.
    pub(crate) trouble: Option<Failure>,
    pub(crate) waker: Option<Waker>,
}

impl Mailbox {
    /// Nothing will be told any more.
    fn close(&mut self) {
        self.end.get_or_insert(End::Failed(Failure::Closed));
    }
}

impl Host<StreamClient> for Said {
    fn execute(&mut self, command: Command) {
        self.jobs.push_back(command);
    }

    fn notify(&mut self, event: ClientEvent) {
        let party = match event {
            ClientEvent::Called { call, result } => {
                // Whoever asked may have gone.
                if let Some(sender) = self.calls.remove(&call) {
                    let _ = sender.send(result);
                }
                return;
            }
            ClientEvent::Failover { handle, failover } => {
                self.failovers.insert(handle, failover);
                return;
            }
            ClientEvent::Ready { party }
            | ClientEvent::Items { party, .. }
            | ClientEvent::Leased { party, .. }
            | ClientEvent::Trouble { party, .. }
            | ClientEvent::Ended { party, .. } => party,
        };
        let Some(mailbox) = self.boxes.get_mut(&party) else { return };
        match event {
            ClientEvent::Called { .. } | ClientEvent::Failover { .. } => {}
            ClientEvent::Ready { .. } => mailbox.ready = true,
            ClientEvent::Items { items, .. } => mailbox.items.extend(items),
            ClientEvent::Leased { stream, fence: Some(fence), .. } => {
                mailbox.leases.insert(stream, fence);
            }
            ClientEvent::Leased { stream, fence: None, .. } => {
                mailbox.leases.remove(&stream);
            }
            ClientEvent::Trouble { failure, .. } => mailbox.trouble = Some(failure),
            ClientEvent::Ended { end, .. } => mailbox.end = Some(end),
        }
        self.wakers.extend(mailbox.waker.take());
    }

    fn ready(&mut self) -> Option<Infallible> {
        None
    }

    fn send(&mut self, channel: Infallible, _bytes: &[u8]) -> Sent {
        match channel {}
    }

    fn done(&mut self, channel: Infallible) {
        match channel {}
    }
}

impl Shared {
    pub(crate) fn new(backend: Arc<dyn Backend>) -> Result<Arc<Self>, StreamError> {
        let mut seed = [0; 32];
        getrandom::fill(&mut seed).map_err(|error| ServerFault::Answer {
            detail: format!("expected entropy of this machine, found {error}"),
        })?;
        let origin = Clock::now();
        let client = StreamClient::new(backend.layout(), Run(1), Seed::new(seed), at(origin));
        let state = Mutex::new(State { client, said: Said::default() });
        Ok(Arc::new(Self { state, backend, alarm: Alarm::default(), origin }))
    }

    pub(crate) fn now(&self) -> Now {
        at(self.origin)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets `act` use the machine, takes everything the machine then says, and tells those who wait.
    pub(crate) fn turn<T>(&self, act: impl FnOnce(&mut State, Now) -> T) -> T {
        self.turn_then(act, |given, _, _| given)
    }

    /// A turn, and `then` with the machine's next deadline, before anybody else has one.
    fn turn_then<G, T>(
        &self,
        act: impl FnOnce(&mut State, Now) -> G,
        then: impl FnOnce(G, &mut Said, Option<Instant>) -> T,
    ) -> T {
        let mut state = self.lock();
        let given = act(&mut state, self.now());
        let State { client, said } = &mut *state;
        let mut nothing = Vec::new();
        let deadline = loop {
            match drain(client, said, &mut nothing, BUDGET) {
                Next::More => {}
                Next::Sleep(deadline) => break deadline,
            }
        };
        let given = then(given, said, deadline);
        let wakers = std::mem::take(&mut said.wakers);
        let rings = !said.jobs.is_empty() || self.alarm.sleeps_past(deadline);
        drop(state);
        for waker in wakers {
            waker.wake();
        }
        if rings {
            self.alarm.ring();
        }
        given
    }

    /// What is there for a reader or consumer.
    pub(crate) fn with_mailbox<T>(&self, party: PartyId, act: impl FnOnce(&mut Mailbox) -> T) -> Option<T> {
        self.lock().said.boxes.get_mut(&party).map(act)
    }

    /// The last failover that a handle was told of.
    pub(crate) fn failover(&self, handle: HandleId) -> Option<Failover> {
        self.lock().said.failovers.get(&handle).cloned()
    }

    pub(crate) fn forget(&self, handle: HandleId) {
        self.turn(|state, now| {
            state.client.handle_forget(now, handle);
            state.said.failovers.remove(&handle);
        });
    }

    /// Makes room for what a party will be told. In the turn that seats it, before anything is told.
    pub(crate) fn seat(&self, make: impl FnOnce(&mut StreamClient, Now) -> PartyId) -> PartyId {
        self.turn(|state, now| {
            let party = make(&mut state.client, now);
            let mut mailbox = Mailbox::default();
            if state.said.closed {
                mailbox.close();
            }
            state.said.boxes.insert(party, mailbox);
            party
        })
    }

    pub(crate) fn unseat(&self, party: PartyId) {
        self.turn(|state, now| {
            state.client.handle_close(now, party);
            state.said.boxes.remove(&party);
        });
    }

    pub(crate) fn complete(&self, completion: ClientCompletion) {
        use strandline_core::machine::Machine as _;
        self.turn(|state, now| state.client.handle_completion(now, completion));
    }

    /// The next command for the driver.
    pub(crate) fn next_job(&self) -> Option<Command> {
        self.lock().said.jobs.pop_front()
    }

    /// Tells the machine the time; its next deadline, until which the driver sleeps.
    pub(crate) fn tick(&self) -> Option<Instant> {
        use strandline_core::machine::Machine as _;
        let sleeps = |(), _: &mut Said, deadline| {
            self.alarm.sleeps_until(deadline);
            deadline
        };
        self.turn_then(|state, now| state.client.handle_timeout(now), sleeps)
    }

    /// Nothing is begun any more. Calls that nobody would see through end as unknown.
    pub(crate) fn close(&self) {
        self.turn(State::close);
        self.alarm.ring();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().said.closed
    }

    /// Asks by a handle. The first asking is done here, in the caller's task.
    pub(crate) async fn call(self: &Arc<Self>, handle: HandleId, verb: Verb) -> Result<Told, Failure> {
        self.ask(|client, now| client.handle_call(now, handle, verb)).await
    }

    /// Lets `begin` begin a call, and sees it through. Once closed, nothing is begun.
    pub(crate) async fn ask(
        self: &Arc<Self>,
        begin: impl FnOnce(&mut StreamClient, Now) -> CallId,
    ) -> Result<Told, Failure> {
        let act = |state: &mut State, now: Now| {
            if state.said.closed {
                return None;
            }
            let call = begin(&mut state.client, now);
            let (sender, receiver) = oneshot::channel();
            state.said.calls.insert(call, sender);
            Some((call, receiver))
        };
        let begun = self
            .turn_then(act, |begun, said, _| begun.map(|(call, receiver)| (said.own_job(call), receiver)));
        let Some((job, receiver)) = begun else { return Err(Failure::Closed) };
        if let Some((ticket, op, noted)) = job {
            let asking = Asking::new(self, ticket);
            asking.complete(executed(&*self.backend, op, noted).await);
        }
        receiver.await.expect("a call is forgotten only with what it is told")
    }
}

impl State {
    fn close(&mut self, now: Now) {
        use strandline_core::machine::Machine as _;
        let said = &mut self.said;
        said.closed = true;
        for mailbox in said.boxes.values_mut() {
            mailbox.close();
            said.wakers.extend(mailbox.waker.take());
        }
        self.client.handle_shut(now);
        // Only the driver would have taken these.
        for job in std::mem::take(&mut said.jobs) {
            if let Command::Execute { ticket, .. } = job {
                self.client.handle_completion(now, ticket.complete(Ok(Execution::GivenUp)));
            }
        }
    }
}

impl Said {
    /// The first asking of a call, for its caller.
    fn own_job(&mut self, call: CallId) -> Option<(Ticket<op::Execute>, StreamOp, bool)> {
        let mine =
            |job: &Command| matches!(job, Command::Execute { origin: Origin::Call(of), .. } if *of == call);
        let at = self.jobs.iter().rposition(mine)?;
        match self.jobs.remove(at)? {
            Command::Execute { ticket, op, noted, .. } => Some((ticket, op, noted)),
            Command::Wait { .. } => None,
        }
    }
}

/// An operation that is out. Whoever waits for its answer may go away before it comes: that leaves its
/// outcome unknown.
pub(crate) struct Asking {
    shared: Arc<Shared>,
    ticket: Option<Ticket<op::Execute>>,
}

impl Asking {
    pub(crate) fn new(shared: &Arc<Shared>, ticket: Ticket<op::Execute>) -> Self {
        Self { shared: shared.clone(), ticket: Some(ticket) }
    }

    pub(crate) fn complete(mut self, execution: Execution) {
        self.end(execution);
    }

    fn end(&mut self, execution: Execution) {
        if let Some(ticket) = self.ticket.take() {
            self.shared.complete(ticket.complete(Ok(execution)));
        }
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        self.end(Execution::GivenUp);
    }
}

fn at(origin: Clock) -> Now {
    let mono = u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX);
    let wall = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Now { mono: Instant(mono), wall: WallTime(u64::try_from(wall.as_millis()).unwrap_or(u64::MAX)) }
}
