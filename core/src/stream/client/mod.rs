//! The root of protocol B on the side of who uses streams.

mod command;
mod consuming;
mod counters;
mod event;
mod handles;
mod keeping;
mod party;
mod reading;
mod repeat;
mod rounds;
mod tend;
mod tending;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_counters;
#[cfg(test)]
mod tests_failover;
#[cfg(test)]
mod tests_lasting;
#[cfg(test)]
mod tests_refused;

pub use self::command::{
    CallId, ClientCompletion, Command, CommandOutcome, Execution, HandleId, Origin, PartyId, Waited, op,
};
pub use self::consuming::{Consume, Give};
pub use self::counters::{Failovers, Fenced, Missing, StreamCounters};
pub use self::event::{ClientEvent, Delivery, End, Failure, Gap, Item};
pub use super::reader::LogPosition;
pub use super::reply::GapReason;
pub use super::vouching::Failover;

use self::command::Said;
use self::consuming::Consuming;
use self::keeping::Keeping;
use self::party::{Held, Party, Seat};
use self::reading::{Reading, Want};
use super::error::CallerError;
use super::failover::Vouched;
use super::handle::Handle;
use super::layout::Layout;
use super::limits::REST_MS_MAX;
use super::op::{Nonce, StreamOp, Verb};
use super::reply::{Outcome, Uncertain};
use super::settings::Taking;
use crate::id::Run;
use crate::machine::{Deadlines, FrameInfo, Machine, Out, Pending};
use crate::seed::Seed;
use crate::ticket::Tickets;
use crate::time::Now;
use alloc::boxed::Box;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;

/// A root: handles, readers and consumers of one server.
///
/// A caller may poll at any time, may call [`Machine::handle_timeout`] too early or too late, may answer
/// commands in any order, and may name calls, handles and parties that are gone: that changes nothing.
/// A command that is never answered holds up only whom it is for.
///
/// ```
/// use strandline_core::machine::Machine as _;
/// use strandline_core::stream::client::{ClientEvent, Command, Execution, StreamClient};
/// use strandline_core::stream::op::Condition;
/// use strandline_core::stream::reply::{Outcome, Told};
/// use strandline_core::stream::{Event, Keyspace, Layout, ServerTime, StreamName, Verb, Wanted};
/// use strandline_core::{id::Run, seed::Seed, time::Now};
///
/// let (now, mut server) = (Now::default(), Keyspace::new(Layout::Tagged));
/// let mut client = StreamClient::new(Layout::Tagged, Run(1), Seed::new([7; 32]), now);
/// let orders = client.handle_stream(now, StreamName::new("orders").unwrap(), Wanted::default()).unwrap();
/// let event = Event::new("created", "one").unwrap();
/// let call = client.handle_call(now, orders, Verb::Add { event, condition: Condition::Always });
/// let Some(Command::Execute { ticket, op, .. }) = client.poll_command() else { panic!("a command") };
/// let at = ServerTime::from_ms(5);
/// let outcome = Outcome::Answered { at: Some(at), result: server.apply(at, &op) };
/// client.handle_completion(now, ticket.complete(Ok(Execution::Ended(outcome))));
/// let Some(ClientEvent::Called { call: of, result: Ok(Told::Added { id: Some(_) }) }) = client.poll_event()
/// else {
///     panic!("published")
/// };
/// assert_eq!(of, call);
/// ```
#[derive(Debug)]
pub struct StreamClient {
    out: Out<Purpose, Command, ClientEvent>,
    deadlines: Deadlines<Timer>,
    now: Now,
    layout: Layout,
    seed: Seed,
    /// How many numbers were given out: of nonces, calls, handles and parties.
    next: u64,
    handles: BTreeMap<HandleId, Keeping>,
    /// Calls that wait to be asked again.
    repeats: BTreeMap<CallId, Call>,
    seats: BTreeMap<PartyId, Seat>,
    counters: StreamCounters,
    /// Nothing is asked again.
    shut: bool,
}

/// What a command was for.
#[derive(Debug)]
enum Purpose {
    Call(CallId, Call),
    Step(PartyId, Asked),
    Chore(PartyId, Asked),
    Wait(PartyId),
}

/// What a party asked.
#[derive(Debug)]
struct Asked {
    op: StreamOp,
    /// What it had noted of the server by then: a step and a chore may be out together.
    noted: Option<Vouched>,
}

/// A call that is under way.
#[derive(Debug)]
struct Call {
    by: By,
    op: StreamOp,
    /// What its handle had noted of the server by then.
    noted: Option<Vouched>,
    /// How often it was asked without an answer.
    unanswered: u32,
}

/// By whom a call is made: who learns from its answer.
#[derive(Clone, Copy, Debug)]
enum By {
    Handle(HandleId),
    Party(PartyId),
}

#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
enum Timer {
    Repeat(CallId),
    Again(PartyId),
    KeepAlive(PartyId),
    LookAfter(PartyId),
    TendAgain(PartyId),
    Rouse(PartyId),
}

impl StreamClient {
    /// A client of nothing yet. `run` and `seed` must differ from every start before.
    #[must_use]
    pub fn new(layout: Layout, run: Run, seed: Seed, now: Now) -> Self {
        Self {
            out: Out::new(Tickets::new(run)),
            deadlines: Deadlines::default(),
            now,
            layout,
            seed,
            next: 0,
            handles: BTreeMap::new(),
            repeats: BTreeMap::new(),
            seats: BTreeMap::new(),
            counters: StreamCounters::default(),
            shut: false,
        }
    }

    /// The layout of the server.
    #[must_use]
    pub const fn layout(&self) -> Layout {
        self.layout
    }

    /// What it has counted so far.
    #[must_use]
    pub const fn counters(&self) -> &StreamCounters {
        &self.counters
    }

    /// Asks by a handle. It ends with [`ClientEvent::Called`]; what may be asked again after an unknown
    /// outcome is, a few times.
    pub fn handle_call(&mut self, now: Now, handle: HandleId, verb: Verb) -> CallId {
        self.now = self.now.latest(now);
        let call = CallId(self.number());
        let nonce = self.nonce();
        match self.handles.get(&handle) {
            Some(asks) => {
                let (op, noted) = (asks.handle.op(verb, nonce), asks.noted());
                self.ask(call, Call { by: By::Handle(handle), op, noted, unanswered: 0 });
            }
            None => self.out.event(ClientEvent::Called { call, result: Err(Failure::Closed) }),
        }
        call
    }

    /// No call is asked again from now on, as its host ends. Those that wait to be end as unknown; one that
    /// is out ends with its answer, or as unknown without one.
    pub fn handle_shut(&mut self, now: Now) {
        self.now = self.now.latest(now);
        self.shut = true;
        for (call, Call { op, .. }) in core::mem::take(&mut self.repeats) {
            self.deadlines.disarm(Timer::Repeat(call));
            let uncertain = Failure::Uncertain(Box::new(Uncertain::new(op)));
            self.out.event(ClientEvent::Called { call, result: Err(uncertain) });
        }
    }

    /// A reader of these streams. It attaches to each as it is, and never makes one; it hands out only
    /// what is wanted by [`StreamClient::handle_want`].
    pub fn handle_reader(&mut self, now: Now, streams: &[HandleId], taking: Taking) -> PartyId {
        self.now = self.now.latest(now);
        let handles = self.clones(streams);
        self.seat(Party::Reader(Box::new(Reading::new(handles, taking))))
    }

    /// A consumer of a group on these streams, each made if need be; the group too. It hands out only
    /// what is wanted by [`StreamClient::handle_want`], and keeps alive and tends its group all the time.
    ///
    /// # Errors
    /// See [`Consume::checked`].
    pub fn handle_consumer(
        &mut self,
        now: Now,
        streams: &[HandleId],
        consume: Consume,
    ) -> Result<PartyId, CallerError> {
        self.now = self.now.latest(now);
        let handles = self.clones(streams);
        let consuming = Consuming::new(handles, consume.checked()?, self.layout);
        Ok(self.seat(Party::Consumer(Box::new(consuming))))
    }

    fn clones(&self, streams: &[HandleId]) -> Vec<Handle> {
        streams.iter().filter_map(|id| self.handles.get(id)).map(|keeping| keeping.handle.clone()).collect()
    }

    fn seat(&mut self, party: Party) -> PartyId {
        let id = PartyId(self.number());
        self.seats.insert(id, Seat::new(party));
        self.advance(id);
        id
    }

    /// The host has room for what the next read brings.
    pub fn handle_want(&mut self, now: Now, party: PartyId) {
        self.now = self.now.latest(now);
        if let Some(seat) = self.seats.get_mut(&party) {
            seat.party.want();
            self.advance(party);
        }
    }

    /// Ends a reader or consumer; [`ClientEvent::Ended`] follows.
    pub fn handle_close(&mut self, now: Now, party: PartyId) {
        self.now = self.now.latest(now);
        if let Some(seat) = self.seats.get_mut(&party) {
            seat.closing = true;
            self.advance(party);
        }
    }

    const fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    fn nonce(&mut self) -> Nonce {
        let number = self.number();
        Nonce(self.seed.bytes("nonce", number))
    }

    fn ask(&mut self, call: CallId, of: Call) {
        let (op, noted) = (of.op.clone(), of.op.verb.hands_out());
        let make = |ticket| Command::Execute { ticket, op, origin: Origin::Call(call), noted };
        self.out.command(Purpose::Call(call, of), make);
    }

    /// Lets a reader or consumer go on, unless something of it is outstanding.
    fn advance(&mut self, id: PartyId) {
        loop {
            let nonce = self.nonce();
            let Some(seat) = self.seats.get_mut(&id).filter(|seat| seat.is_free()) else { return };
            let want = if seat.closing {
                let Some(want) = seat.party.leave(nonce) else { return self.end(id, End::Closed) };
                Ok(want)
            } else {
                seat.party.next(nonce)
            };
            match want {
                Ok(Want::Ask(op)) => {
                    seat.held = Held::Step;
                    let asked = Asked { op: op.clone(), noted: seat.party.noted(&op) };
                    let noted = op.verb.hands_out();
                    let make = |ticket| Command::Execute { ticket, op, origin: Origin::Party(id), noted };
                    return self.out.command(Purpose::Step(id, asked), make);
                }
                Ok(Want::Wait { logs, wait_ms }) => {
                    seat.held = Held::Wait;
                    // What is left out is looked for again by the pass behind the wait.
                    let rests = self.deadlines.armed(Timer::Rouse(id));
                    let wait_ms = if rests { wait_ms.min(REST_MS_MAX) } else { wait_ms };
                    let make = |ticket| Command::Wait { ticket, party: id, logs, wait_ms };
                    return self.out.command(Purpose::Wait(id), make);
                }
                Ok(Want::Ready) => {
                    self.out.event(ClientEvent::Ready { party: id });
                    self.begin_tending(id);
                }
                Ok(Want::Rest) => return,
                Err(error) => return self.end(id, End::Failed(error.into())),
            }
        }
    }

    fn end(&mut self, id: PartyId, end: End) {
        if self.seats.remove(&id).is_some() {
            for timer in [Timer::Again, Timer::KeepAlive, Timer::LookAfter, Timer::TendAgain, Timer::Rouse] {
                self.deadlines.disarm(timer(id));
            }
            self.out.event(ClientEvent::Ended { party: id, end });
        }
    }

    /// A call ended, or is to be asked again.
    fn called(&mut self, call: CallId, mut of: Call, execution: Execution) {
        let (outcome, said) = execution.parts();
        self.counters.ended(outcome.as_ref());
        let result = match outcome {
            Some(Outcome::Answered { result, .. }) => {
                match of.by {
                    By::Handle(id) => {
                        if let Some(keeping) = self.handles.get_mut(&id)
                            && let Some(failover) = keeping.answered(&of.op.verb, &result, said, of.noted)
                        {
                            self.counters.survived(failover.survival);
                            self.out.event(ClientEvent::Failover { handle: id, failover });
                        }
                    }
                    By::Party(id) => {
                        if let Some(consuming) = self.seats.get_mut(&id).and_then(Seat::consumer) {
                            consuming.note_settled(&of.op, &result);
                        }
                    }
                }
                result.map(|reply| reply.told).map_err(Failure::Refused)
            }
            Some(Outcome::Uncertain(_)) if !self.shut && repeat::call(&of.op, of.unanswered) => {
                of.unanswered += 1;
                let wait_ms = repeat::wait_ms(&self.seed, call.0, of.unanswered);
                self.deadlines.arm(Timer::Repeat(call), self.now.mono.after_ms(wait_ms));
                self.repeats.insert(call, of);
                return;
            }
            Some(Outcome::Uncertain(uncertain)) => Err(Failure::Uncertain(Box::new(uncertain))),
            None => Err(Failure::Uncertain(Box::new(Uncertain::new(of.op)))),
        };
        self.out.event(ClientEvent::Called { call, result });
    }

    /// A step of a loop ended.
    fn stepped(&mut self, id: PartyId, asked: &Asked, execution: Execution) {
        let (outcome, said) = execution.parts();
        self.counters.ended(outcome.as_ref());
        self.lived_through(id, asked, said);
        let op = &asked.op;
        let Some(seat) = self.seats.get_mut(&id) else { return };
        seat.held = Held::No;
        let result = match outcome {
            Some(Outcome::Answered { result, .. }) => result,
            Some(Outcome::Uncertain(_)) | None => {
                // The part has not moved: it asks the same again.
                seat.unleft += u32::from(seat.closing);
                let uncertain = Failure::Uncertain(Box::new(Uncertain::new(op.clone())));
                if seat.unleft > repeat::CALL_REPEATS_MAX {
                    return self.end(id, End::Failed(uncertain));
                }
                return self.trouble(id, op, uncertain);
            }
        };
        match seat.party.answered(op, result) {
            Ok(items) => {
                seat.failures = 0;
                self.hand_out(id, items);
                self.advance(id);
            }
            // What cannot be left is told to who leaves; it stays to be claimed after its grace.
            Err(error) if seat.closing => self.end(id, End::Failed(Failure::Refused(error))),
            Err(error) if seat.party.outlives(&error) => self.trouble(id, op, Failure::Refused(error)),
            Err(error) => self.end(id, End::Failed(Failure::Refused(error))),
        }
    }

    /// Tells of a change of history before anything of the answer that showed it.
    fn lived_through(&mut self, id: PartyId, asked: &Asked, said: Said) {
        let heard = |seat: &mut Seat| seat.party.heard(&asked.op, asked.noted, said);
        if let Some(failover) = self.seats.get_mut(&id).and_then(heard) {
            self.hand_out(id, alloc::vec![Item::Failover(failover)]);
        }
    }

    fn hand_out(&mut self, party: PartyId, items: Vec<Item>) {
        if !items.is_empty() {
            self.counters.items(&items);
            self.out.event(ClientEvent::Items { party, items });
        }
    }

    /// Something failed that is tried again, after a while that grows. The other streams go on meanwhile.
    fn trouble(&mut self, id: PartyId, op: &StreamOp, failure: Failure) {
        let Some(seat) = self.seats.get_mut(&id) else { return };
        self.out.event(ClientEvent::Trouble { party: id, failure });
        let resting = if seat.closing { None } else { seat.party.rest(op) };
        let Some(failures) = resting else {
            return pause(seat, id, &self.seed, &mut self.deadlines, self.now);
        };
        let wait_ms = repeat::wait_ms(&self.seed, id.0, failures);
        self.deadlines.arm(Timer::Rouse(id), self.now.mono.after_ms(wait_ms));
        self.advance(id);
    }

    fn waited(&mut self, id: PartyId, waited: Waited) {
        // Who leaves did not stay for it.
        let Some(seat) = self.seats.get_mut(&id).filter(|seat| seat.held == Held::Wait) else { return };
        seat.held = Held::No;
        match waited {
            Waited::Rung | Waited::TimeOut => self.advance(id),
            Waited::Broken => pause(seat, id, &self.seed, &mut self.deadlines, self.now),
        }
    }
}

/// Holds a loop up after a failure: longer, the more there were in a row.
fn pause(seat: &mut Seat, id: PartyId, seed: &Seed, deadlines: &mut Deadlines<Timer>, now: Now) {
    seat.held = Held::Pause;
    seat.failures += 1;
    deadlines.arm(Timer::Again(id), now.mono.after_ms(repeat::wait_ms(seed, id.0, seat.failures)));
}

impl Machine for StreamClient {
    type Command = Command;
    type Event = ClientEvent;
    type Completion = ClientCompletion;
    type Channel = core::convert::Infallible;

    fn handle_completion(&mut self, now: Now, completion: ClientCompletion) {
        self.now = self.now.latest(now);
        let Some((purpose, outcome)) = self.out.tickets().settle(completion) else { return };
        match (purpose, outcome) {
            (Purpose::Call(call, of), CommandOutcome::Execute(execution)) => self.called(call, of, execution),
            (Purpose::Step(party, asked), CommandOutcome::Execute(execution)) => {
                self.stepped(party, &asked, execution);
            }
            (Purpose::Chore(party, asked), CommandOutcome::Execute(execution)) => {
                self.tended(party, &asked, execution);
            }
            (Purpose::Wait(party), CommandOutcome::Wait(waited)) => self.waited(party, waited),
            (Purpose::Call(..) | Purpose::Step(..) | Purpose::Chore(..), CommandOutcome::Wait(_))
            | (Purpose::Wait(_), CommandOutcome::Execute(_)) => {
                unreachable!("a ticket answers its own kind of command")
            }
        }
    }

    fn handle_timeout(&mut self, now: Now) {
        self.now = self.now.latest(now);
        while let Some(timer) = self.deadlines.expire(self.now.mono) {
            match timer {
                Timer::Repeat(call) => {
                    if let Some(of) = self.repeats.remove(&call) {
                        self.ask(call, of);
                    }
                }
                Timer::Again(party) => {
                    if let Some(seat) = self.seats.get_mut(&party) {
                        seat.held = Held::No;
                        self.advance(party);
                    }
                }
                Timer::Rouse(party) => {
                    if let Some(seat) = self.seats.get_mut(&party) {
                        seat.party.rouse();
                    }
                }
                Timer::KeepAlive(party) => self.keep_alive(party),
                Timer::LookAfter(party) => self.look_after(party),
                Timer::TendAgain(party) => self.tend_again(party),
            }
        }
    }

    fn poll_command(&mut self) -> Option<Command> {
        self.out.poll_command()
    }

    fn poll_event(&mut self) -> Option<ClientEvent> {
        self.out.poll_event()
    }

    fn poll_channel(&mut self, channel: Self::Channel, _buf: &mut Vec<u8>) -> Option<FrameInfo> {
        match channel {}
    }

    fn pending(&self) -> Pending {
        Pending { deadline: self.deadlines.next(), ..self.out.pending() }
    }
}
