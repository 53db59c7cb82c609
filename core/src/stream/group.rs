//! A consumer of a group: joining, reading, settling, leaving, on one or several streams.

mod pass;

use self::pass::Pass;
use super::contract::{GroupContract, Start};
use super::error::{CallerError, ServerFault, StreamError};
use super::event::{Entry, EventId, Ids};
use super::failover::{Standing, Vouched};
use super::handle::Handle;
use super::limits::READ_EVENTS_MAX;
use super::name::{ConsumerName, GroupName, StreamName};
use super::op::{Nonce, StreamOp, Verb};
use super::reader::LogPosition;
use super::reply::{Missed, StreamReply, Told};
use super::resting::Resting;
use super::settings::Taking;
use super::vouching::{Failover, Judged, Vouching};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// A part: it holds what a consumer is attached to and decides what is asked next. It does no I/O.
///
/// It is driven like a [`super::reader::Reader`], and anything may be begun while an answer is still out.
/// Settling an entry twice, or one that was taken over by
/// another consumer, is safe: it counts for nothing.
#[derive(Clone, Debug)]
pub struct Consumer {
    group: GroupName,
    name: ConsumerName,
    taking: Taking,
    lease_ms: u64,
    attached: Vec<Attached>,
    phase: Phase,
    resting: Resting,
    failure: Option<StreamError>,
    closed: bool,
}

#[derive(Clone, Debug)]
struct Attached {
    handle: Handle,
    start: Start,
    settled: Option<EventId>,
    /// Up to here everything was given to somebody of the group.
    reached: EventId,
    vouching: Vouching,
}

#[derive(Clone, Debug)]
enum Phase {
    Idle,
    Joining {
        attached: Attached,
        step: Join,
        leases: bool,
    },
    Checking(usize),
    Reading(usize),
    /// Acknowledging what was not shown, before going on behind it.
    Settling {
        at: usize,
        ids: Ids,
    },
    Repairing(usize),
    Leaving {
        at: usize,
        only: bool,
        release: bool,
    },
}

/// The steps of joining a stream, in this order.
#[derive(Clone, Copy, Debug)]
enum Join {
    Bind,
    Open,
    Lease,
    Sweep { fence: u64 },
    Register,
}

/// What a step of a consumer brought.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Taken {
    /// Nothing yet: ask for the next operation.
    More,
    /// Entries of a stream that the filter shows; they are pending for this consumer, unless it
    /// acknowledges before handing over. With the holes of the group that nobody was told of.
    Entries(StreamName, Vec<Entry>, Vec<Missed>),
    /// A missing group was made again at its cursor.
    Repaired {
        /// Of which stream.
        stream: StreamName,
        /// Whether the log had been absent: what it held is lost.
        log_was_absent: bool,
    },
}

impl Consumer {
    /// A consumer of nothing yet; [`Consumer::join`] follows.
    #[must_use]
    pub fn new(group: GroupName, name: ConsumerName, taking: Taking, lease_ms: u64) -> Self {
        Self {
            group,
            name,
            taking,
            lease_ms,
            attached: Vec::new(),
            phase: Phase::Idle,
            resting: Resting::default(),
            failure: None,
            closed: false,
        }
    }

    /// The group.
    #[must_use]
    pub const fn group(&self) -> &GroupName {
        &self.group
    }

    /// Who it is.
    #[must_use]
    pub const fn name(&self) -> &ConsumerName {
        &self.name
    }

    /// How many streams are attached.
    #[must_use]
    pub const fn attached(&self) -> usize {
        self.attached.len()
    }

    /// Whether it left every stream, or ended with a generation.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        self.closed
    }

    /// The handle of an attached stream.
    #[must_use]
    pub fn handle(&self, stream: &StreamName) -> Option<&Handle> {
        self.attached.iter().map(|attached| &attached.handle).find(|handle| handle.stream() == stream)
    }

    /// Begins to join the group on a stream: the first one of a new consumer also cleans up after those
    /// that went silent.
    ///
    /// # Errors
    /// `ConsumerClosed`.
    pub fn join(&mut self, handle: &Handle, start: Option<Start>) -> Result<(), CallerError> {
        self.is_open()?;
        if let Some(at) = self.find(handle.stream()) {
            self.phase = Phase::Checking(at);
            return Ok(());
        }
        let start = start.unwrap_or(self.taking.start);
        let (handle, vouching) = (handle.clone(), Vouching::default());
        let attached = Attached { handle, start, settled: None, reached: EventId::ZERO, vouching };
        let leases = self.attached.is_empty();
        self.phase = Phase::Joining { attached, step: Join::Bind, leases };
        Ok(())
    }

    /// Begins to leave one stream. One that is not attached changes nothing.
    ///
    /// # Errors
    /// `LastStream` for the only one, `ConsumerClosed`.
    pub fn leave(&mut self, stream: &StreamName) -> Result<(), CallerError> {
        self.is_open()?;
        let Some(at) = self.find(stream) else { return Ok(()) };
        if self.attached.len() == 1 {
            return Err(CallerError::LastStream);
        }
        self.phase = Phase::Leaving { at, only: true, release: false };
        Ok(())
    }

    /// Lets each read from now on take at most so many events, of at least one and at most
    /// [`READ_EVENTS_MAX`]: what is taken and not wanted would stay pending. To be called between passes; an
    /// answer to a read that asked for another number brings nothing.
    pub const fn read_at_most(&mut self, events: u32) {
        self.taking.events_max = match events {
            0 => 1,
            READ_EVENTS_MAX.. => READ_EVENTS_MAX,
            events => events,
        };
    }

    /// Begins a pass over all streams.
    ///
    /// # Errors
    /// `ConsumerClosed`.
    pub fn pass(&mut self) -> Result<(), CallerError> {
        if self.closed {
            return Err(CallerError::ConsumerClosed);
        }
        self.phase = Phase::Reading(self.awake(0));
        Ok(())
    }

    /// Goes on behind a stream whose step of a pass had no answer, or was refused by its server for now, and
    /// leaves it out until [`Consumer::rouse`]; how often it has failed in a row. A refusal is to be taken by
    /// [`Consumer::answered`] before. What was not settled stays pending, and a group that was not made again
    /// says so with its next read.
    ///
    /// `None` where it is to be asked again: there is no other stream, the operation is no step of a pass, or
    /// settles what is handed out only once it is settled, which would be lost if it was.
    pub fn rest(&mut self, op: &StreamOp) -> Option<u32> {
        let at = self.find(&op.stream).filter(|_| self.attached.len() > 1)?;
        // A step without an answer is still asked; one that was refused is not: then its operation tells.
        let repairs = match (&self.phase, Pass::of(&op.verb)) {
            (Phase::Idle | Phase::Reading(_), Some(Pass::Read)) => false,
            (Phase::Idle | Phase::Settling { .. }, Some(Pass::Settle)) if !self.taking.no_ack => false,
            (Phase::Idle | Phase::Repairing(_), Some(Pass::Repair)) => true,
            (Phase::Idle | Phase::Reading(_) | Phase::Settling { .. } | Phase::Repairing(_), _) => {
                return None;
            }
            (Phase::Joining { .. } | Phase::Checking(_) | Phase::Leaving { .. }, _) => return None,
        };
        let failures = self.resting.rest(&op.stream);
        let next = self.awake(at + 1);
        self.phase = if repairs { Phase::Repairing(next) } else { Phase::Reading(next) };
        Some(failures)
    }

    /// Lets streams that were left out be read again, from the next pass on.
    pub fn rouse(&mut self) {
        self.resting.rouse();
    }

    /// The first place from `at` on that is to be read.
    fn awake(&self, at: usize) -> usize {
        self.resting.next(at, self.attached.iter().map(|attached| attached.handle.stream()))
    }

    /// Begins to leave every stream. What could not be left stays attached for another try; what is
    /// pending stays pending, for others to claim.
    pub fn close(&mut self) {
        self.leave_all(false);
    }

    /// Begins to leave every stream like [`Consumer::close`], and gives back what is pending, for others
    /// to claim at once. Not in the Pulse layout.
    pub fn release(&mut self) {
        self.leave_all(true);
    }

    fn leave_all(&mut self, release: bool) {
        self.failure = None;
        self.phase = Phase::Leaving { at: 0, only: false, release };
        self.closed |= self.attached.is_empty();
    }

    /// Where each attached stream that is not left out is read on from, as far as the group was given
    /// anything: for waiting.
    #[must_use]
    pub fn positions(&self) -> Vec<LogPosition> {
        let position = |attached: &Attached| {
            let (stream, bound) = (attached.handle.stream().clone(), attached.handle.bound()?);
            Some(LogPosition { stream, generation: bound.generation, after: attached.reached })
        };
        let awake = self.attached.iter().filter(|a| !self.resting.is_asleep(a.handle.stream()));
        awake.filter_map(position).collect()
    }

    /// The names of the attached streams.
    pub fn streams(&self) -> impl Iterator<Item = &StreamName> {
        self.attached.iter().map(|attached| attached.handle.stream())
    }

    const fn is_open(&self) -> Result<(), CallerError> {
        if self.closed { Err(CallerError::ConsumerClosed) } else { Ok(()) }
    }

    fn find(&self, stream: &StreamName) -> Option<usize> {
        self.attached.iter().position(|attached| attached.handle.stream() == stream)
    }

    fn contract(&self, start: Start) -> GroupContract {
        GroupContract { start, ..self.taking.contract() }
    }

    /// Who this consumer is as the owner of a lease: one name for each stream, so that two consumers of
    /// one process compete.
    #[must_use]
    pub fn owner(&self, stream: &StreamName) -> String {
        format!("{}/{stream}", self.name)
    }

    fn open(&self, attached: &Attached) -> Verb {
        let contract = self.contract(attached.start);
        Verb::GroupOpen { group: self.group.clone(), contract, settled: attached.settled }
    }

    /// The operation that repairs the group on a stream, whether it needs it or not.
    #[must_use]
    pub fn repair(&self, stream: &StreamName, nonce: Nonce) -> Option<StreamOp> {
        let attached = &self.attached[self.find(stream)?];
        Some(attached.handle.op(self.open(attached), nonce))
    }

    /// What is to be asked; `None` when there is nothing.
    #[must_use]
    pub fn op(&self, nonce: Nonce) -> Option<StreamOp> {
        let (attached, verb) = match &self.phase {
            Phase::Idle => return None,
            Phase::Joining { attached, step, .. } => (attached, self.join_verb(attached, *step)),
            Phase::Checking(at) => (self.attached.get(*at)?, Verb::Open),
            Phase::Reading(at) => {
                let (group, consumer) = (self.group.clone(), self.name.clone());
                let verb = Verb::GroupRead { group, consumer, events_max: self.taking.events_max };
                (self.attached.get(*at)?, verb)
            }
            Phase::Settling { at, ids } => {
                let verb = Verb::GroupAck { group: self.group.clone(), ids: ids.clone() };
                (self.attached.get(*at)?, verb)
            }
            Phase::Repairing(at) => {
                let attached = self.attached.get(*at)?;
                (attached, self.open(attached))
            }
            Phase::Leaving { at, release, .. } => {
                let (group, consumer, release) = (self.group.clone(), self.name.clone(), *release);
                (self.attached.get(*at)?, Verb::GroupDetach { group, consumer, release })
            }
        };
        Some(attached.handle.op(verb, nonce))
    }

    fn join_verb(&self, attached: &Attached, step: Join) -> Verb {
        let group = self.group.clone();
        let owner = self.owner(attached.handle.stream());
        match step {
            Join::Bind => Verb::Open,
            Join::Open => self.open(attached),
            Join::Lease => Verb::LeaseAcquire { group, owner, lease_ms: self.lease_ms },
            Join::Sweep { fence } => {
                let lease = super::op::Lease { owner, fence, lease_ms: self.lease_ms };
                Verb::GroupSweep { group, lease, grace_ms: self.taking.grace_ms }
            }
            Join::Register => Verb::GroupRegister { group, consumer: self.name.clone() },
        }
    }

    /// Takes where the server stood beside an answer about a stream, whether it is the loop's or not; `None`
    /// where it did not say. What it tells is to be handed out before anything of that answer.
    ///
    /// The group itself is as the server has it: what it forgot of a group's progress comes again.
    ///
    /// `asked` is what [`Consumer::noted`] was when the operation was asked: the loop and the chores of a
    /// consumer are under way together, and the answer of one that was overtaken is no server that fell behind.
    pub fn heard(
        &mut self,
        op: &StreamOp,
        asked: Option<Vouched>,
        standing: Option<&Standing>,
    ) -> Option<Failover> {
        let at = self.find(&op.stream)?;
        let Attached { vouching, reached, .. } = &mut self.attached[at];
        let Judged { survival, kept } = vouching.heard_since(asked, standing)?;
        let handed_out = *reached;
        if survival.ends_history() {
            *reached = kept.unwrap_or(EventId::ZERO);
        }
        Some(Failover { stream: op.stream.clone(), survival, handed_out, kept })
    }

    /// The newest note of the server of a stream.
    #[must_use]
    pub fn noted(&self, op: &StreamOp) -> Option<Vouched> {
        self.find(&op.stream).and_then(|at| self.attached[at].vouching.noted())
    }

    /// Takes note of an answer that was taken: up to where the group was given everything, by a server that
    /// stood there.
    pub fn note(&mut self, op: &StreamOp, standing: &Standing) {
        if let Some(at) = self.find(&op.stream) {
            let Attached { vouching, reached, .. } = &mut self.attached[at];
            vouching.note_moved(*reached, standing);
        }
    }

    /// Takes an answer, and tells what it brought.
    ///
    /// An answer to what is no longer asked, because the caller began something else meanwhile, brings
    /// nothing: entries in it stay pending for this consumer, for others to claim.
    ///
    /// # Errors
    /// What the operation was refused with. While reading, a generation that ended closes the consumer.
    pub fn answered(
        &mut self,
        op: &StreamOp,
        result: Result<StreamReply, StreamError>,
    ) -> Result<Taken, StreamError> {
        if !self.op(op.by.nonce).is_some_and(|asked| asked.is_like(op)) {
            return Ok(Taken::More);
        }
        let phase = core::mem::replace(&mut self.phase, Phase::Idle);
        match phase {
            Phase::Idle => Ok(Taken::More),
            Phase::Joining { attached, step, leases } => self.has_joined(op, result, attached, step, leases),
            Phase::Checking(_) => result.map(|_| Taken::More),
            Phase::Reading(at) => self.has_read(at, op, result),
            Phase::Settling { at, ids } => {
                self.note_cursor(op, &result);
                if let Err(error) = self.end_if_final(result) {
                    // What waits to be handed out once this is settled must not be by anything else, and an
                    // asking before this one may have settled it: so this is asked again.
                    if self.taking.no_ack {
                        self.phase = Phase::Settling { at, ids };
                    }
                    return Err(error);
                }
                self.phase = Phase::Reading(self.awake(at + 1));
                Ok(Taken::More)
            }
            Phase::Repairing(at) => {
                let reply = self.end_if_final(result)?;
                self.phase = Phase::Repairing(self.awake(at + 1));
                let log_was_absent = matches!(reply.told, Told::GroupOpened { log_was_absent: true, .. });
                Ok(Taken::Repaired { stream: op.stream.clone(), log_was_absent })
            }
            Phase::Leaving { at, only, release } => self.has_left(at, only, release, result),
        }
    }

    fn has_joined(
        &mut self,
        op: &StreamOp,
        result: Result<StreamReply, StreamError>,
        mut attached: Attached,
        step: Join,
        leases: bool,
    ) -> Result<Taken, StreamError> {
        attached.handle.answered(&op.verb, &result);
        let step = match step {
            Join::Bind => result.map(|_| Join::Open)?,
            Join::Open => {
                if let Told::GroupOpened { cursor, .. } = result?.told {
                    attached.settled = Some(cursor);
                }
                if leases { Join::Lease } else { Join::Register }
            }
            // Cleaning up is a courtesy: whether it works or not, the consumer joins.
            Join::Lease => match result.map(|reply| reply.told) {
                Ok(Told::Leased { acquired: true, fence }) => Join::Sweep { fence },
                Ok(_) | Err(_) => Join::Register,
            },
            Join::Sweep { .. } => Join::Register,
            Join::Register => {
                result?;
                self.attached.push(attached);
                self.attached.sort_by(|a, b| a.handle.stream().cmp(b.handle.stream()));
                return Ok(Taken::More);
            }
        };
        self.phase = Phase::Joining { attached, step, leases };
        Ok(Taken::More)
    }

    fn has_read(
        &mut self,
        at: usize,
        op: &StreamOp,
        result: Result<StreamReply, StreamError>,
    ) -> Result<Taken, StreamError> {
        // Where the record is lost but can be written again, the group is made again with it.
        if let Err(
            StreamError::Server(ServerFault::NoGroup) | StreamError::Caller(CallerError::StreamNotFound),
        ) = result
        {
            self.phase = Phase::Repairing(self.awake(0));
            return Ok(Taken::More);
        }
        let Told::Taken { entries, reached, missed } = self.end_if_final(result)?.told else {
            return Ok(Taken::More);
        };
        if let Some(attached) = self.attached.get_mut(at) {
            attached.reached = reached;
        }
        let filter = &self.taking.filter;
        let shows = |entry: &Entry| entry.stored.event().is_some_and(|event| filter.shows(event));
        let (shown, hidden): (Vec<Entry>, Vec<Entry>) = entries.into_iter().partition(shows);
        let mut ids: Vec<EventId> = hidden.iter().map(|entry| entry.id).collect();
        if self.taking.no_ack {
            ids.extend(shown.iter().map(|entry| entry.id));
        }
        // One read never brings more than one acknowledgement takes.
        self.resting.answered(&op.stream);
        self.phase = if ids.is_empty() {
            Phase::Reading(self.awake(at + 1))
        } else {
            Phase::Settling { at, ids: Ids::new(ids)? }
        };
        Ok(Taken::Entries(op.stream.clone(), shown, missed))
    }

    fn has_left(
        &mut self,
        at: usize,
        only: bool,
        release: bool,
        result: Result<StreamReply, StreamError>,
    ) -> Result<Taken, StreamError> {
        let at = match result {
            Err(error) if !error.is_final() && !is_gone(&error) => {
                if only {
                    return Err(error);
                }
                self.failure.get_or_insert(error);
                at + 1
            }
            Ok(_) | Err(_) => {
                self.attached.remove(at);
                at
            }
        };
        if only {
            return Ok(Taken::More);
        }
        if at < self.attached.len() {
            self.phase = Phase::Leaving { at, only, release };
            return Ok(Taken::More);
        }
        self.closed = self.attached.is_empty();
        self.failure.take().map_or(Ok(Taken::More), Err)
    }

    fn end_if_final(&mut self, result: Result<StreamReply, StreamError>) -> Result<StreamReply, StreamError> {
        if result.as_ref().is_err_and(StreamError::is_final) {
            self.closed = true;
        }
        result
    }

    /// Takes note of what an acknowledgement settled: a group that is lost with everything else is made
    /// again there.
    pub fn note_cursor(&mut self, op: &StreamOp, result: &Result<StreamReply, StreamError>) {
        let Ok(StreamReply { told: Told::Acked { cursor: Some(cursor), .. }, .. }) = result else { return };
        if let Some(at) = self.find(&op.stream) {
            self.attached[at].settled = Some(*cursor);
        }
    }
}

/// What is not there needs no leaving.
const fn is_gone(error: &StreamError) -> bool {
    matches!(error, StreamError::Caller(CallerError::StreamNotFound))
}

#[cfg(test)]
mod tests;
