//! A reader: every reader gets every event, of one or several streams, and leaves no trace.

use super::contract::Start;
use super::error::{CallerError, StreamError};
use super::event::{Entry, EventId};
use super::failover::{Standing, Survival};
use super::handle::Handle;
use super::name::StreamName;
use super::op::{Nonce, StreamOp, Verb};
use super::reply::{Dropped, StreamReply, Told};
use super::resting::Resting;
use super::settings::Taking;
use super::vouching::{Failover, Judged, Vouching};
use alloc::vec::Vec;

/// A part: it holds positions and decides what is asked next. It does no I/O.
///
/// Whoever drives it asks [`Reader::op`], does the operation, and hands the answer to
/// [`Reader::answered`], until there is no operation left. An answer that never came is safe to leave
/// out: the same operation is asked again. It must not be driven from two places at once.
#[derive(Clone, Debug)]
pub struct Reader {
    taking: Taking,
    attached: Vec<Attached>,
    phase: Phase,
    resting: Resting,
    closed: bool,
}

#[derive(Clone, Debug)]
struct Attached {
    handle: Handle,
    after: EventId,
    /// How many entries had been published up to there; `None` where nobody counted.
    seen: Option<u64>,
    notes: Notes,
}

/// What is noted of an attached stream's server.
#[derive(Clone, Debug, Default)]
struct Notes {
    vouching: Vouching,
    /// Where the server stood beside the answer that is being taken.
    standing: Option<Standing>,
    /// The answer that is being taken comes from a history without the end of what was read: to be read on
    /// from here.
    back_to: Option<EventId>,
}

#[derive(Clone, Debug)]
enum Phase {
    Idle,
    /// Binding a stream that is to be read too.
    Attaching(Handle, Notes),
    /// Looking whether an attached generation still lives.
    Checking(usize),
    /// Reading on, stream by stream.
    Reading(usize),
}

/// Where a log is read on from.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct LogPosition {
    /// The stream.
    pub stream: StreamName,
    /// The generation.
    pub generation: u64,
    /// Behind what.
    pub after: EventId,
}

/// What a step of a reader brought.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Read {
    /// Nothing yet: ask for the next operation.
    More,
    /// Entries of a stream that the filter shows, behind what is missing before them.
    Entries(StreamName, Vec<Entry>, Option<Dropped>),
    /// The log of a stream was lost, with what it held behind this position. What is there now is read
    /// from its beginning.
    Lost(StreamName, EventId),
}

impl Reader {
    /// A reader of nothing yet; [`Reader::attach`] follows.
    #[must_use]
    pub fn new(taking: Taking) -> Self {
        let resting = Resting::default();
        Self { taking, attached: Vec::new(), phase: Phase::Idle, resting, closed: false }
    }

    /// How many streams are attached.
    #[must_use]
    pub const fn attached(&self) -> usize {
        self.attached.len()
    }

    /// Where each attached stream that is not left out is read on from. For waiting.
    #[must_use]
    pub fn positions(&self) -> Vec<LogPosition> {
        let position = |attached: &Attached| {
            let (stream, bound) = (attached.handle.stream().clone(), attached.handle.bound()?);
            Some(LogPosition { stream, generation: bound.generation, after: attached.after })
        };
        let awake = self.attached.iter().filter(|a| !self.resting.is_asleep(a.handle.stream()));
        awake.filter_map(position).collect()
    }

    /// Begins to attach a stream. Attaching it twice asks whether it is still there.
    ///
    /// # Errors
    /// `ReaderClosed`.
    pub fn attach(&mut self, handle: &Handle) -> Result<(), CallerError> {
        self.is_open()?;
        self.phase = match self.find(handle.stream()) {
            Some(at) => Phase::Checking(at),
            None => Phase::Attaching(handle.clone(), Notes::default()),
        };
        Ok(())
    }

    /// Stops reading a stream. One that is not attached changes nothing.
    ///
    /// # Errors
    /// `LastStream` for the only one, `ReaderClosed`.
    pub fn detach(&mut self, stream: &StreamName) -> Result<(), CallerError> {
        self.is_open()?;
        let Some(at) = self.find(stream) else { return Ok(()) };
        if self.attached.len() == 1 {
            return Err(CallerError::LastStream);
        }
        self.attached.remove(at);
        Ok(())
    }

    /// Begins a pass over all streams.
    ///
    /// # Errors
    /// `ReaderClosed`.
    pub fn pass(&mut self) -> Result<(), CallerError> {
        if self.closed {
            return Err(CallerError::ReaderClosed);
        }
        self.phase = Phase::Reading(self.awake(0));
        Ok(())
    }

    /// Goes on behind a stream whose read had no answer, or was refused by its server for now, and leaves
    /// it out until [`Reader::rouse`]; how often it has failed in a row. `None` where the operation was
    /// no read, or there is no other stream: then it is asked again.
    pub fn rest(&mut self, op: &StreamOp) -> Option<u32> {
        let is_read = matches!(op.verb, Verb::Read { .. });
        let at = self.find(&op.stream).filter(|_| is_read && self.attached.len() > 1)?;
        let failures = self.resting.rest(&op.stream);
        self.phase = Phase::Reading(self.awake(at + 1));
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

    /// Ends the reader. There is nothing to leave.
    pub fn close(&mut self) {
        self.closed = true;
        self.phase = Phase::Idle;
    }

    /// Whether it was closed, or ended with a generation.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        self.closed
    }

    const fn is_open(&self) -> Result<(), CallerError> {
        if self.closed { Err(CallerError::ReaderClosed) } else { Ok(()) }
    }

    fn find(&self, stream: &StreamName) -> Option<usize> {
        self.attached.iter().position(|attached| attached.handle.stream() == stream)
    }

    /// What is to be asked; `None` when there is nothing.
    #[must_use]
    pub fn op(&self, nonce: Nonce) -> Option<StreamOp> {
        match &self.phase {
            Phase::Idle => None,
            Phase::Attaching(handle, _) => Some(handle.op(Verb::Attend, nonce)),
            Phase::Checking(at) => Some(self.attached.get(*at)?.handle.op(Verb::Attend, nonce)),
            Phase::Reading(at) => {
                let attached = self.attached.get(*at)?;
                let verb = Verb::Read { after: attached.after, events_max: self.taking.events_max };
                Some(attached.handle.op(verb, nonce))
            }
        }
    }

    /// Takes where the server stood beside an answer that [`Reader::answered`] is given next; `None` where
    /// it did not say. What it tells is to be handed out before anything of that answer.
    ///
    /// Where the server lacks the end of what was read, the reader goes back to the last position that is
    /// known to be kept, or to the beginning: what is there now behind it is another history, and read whole.
    pub fn heard(&mut self, op: &StreamOp, standing: Option<&Standing>) -> Option<Failover> {
        let (notes, handed_out) = match &mut self.phase {
            Phase::Attaching(_, notes) => (notes, EventId::ZERO),
            Phase::Idle | Phase::Checking(_) | Phase::Reading(_) => {
                let attached = self.attached.iter_mut().find(|a| *a.handle.stream() == op.stream)?;
                (&mut attached.notes, attached.after)
            }
        };
        notes.standing = standing.copied();
        let Judged { survival, kept } = notes.vouching.heard(standing)?;
        if survival == Survival::Lost {
            notes.back_to = Some(kept.unwrap_or(EventId::ZERO));
        }
        Some(Failover { stream: op.stream.clone(), survival, handed_out, kept })
    }

    /// Takes an answer, and tells what it brought. One to what is no longer asked, because the caller
    /// began something else meanwhile, brings nothing.
    ///
    /// # Errors
    /// What the operation was refused with. A generation that ended closes the reader.
    pub fn answered(
        &mut self,
        op: &StreamOp,
        result: Result<StreamReply, StreamError>,
    ) -> Result<Read, StreamError> {
        if !self.op(op.by.nonce).is_some_and(|asked| asked.is_like(op)) {
            return Ok(Read::More);
        }
        let phase = core::mem::replace(&mut self.phase, Phase::Idle);
        match phase {
            Phase::Idle => Ok(Read::More),
            Phase::Attaching(mut handle, mut notes) => {
                handle.answered(&op.verb, &result);
                let reply = result?;
                let (last, added) = if let Told::Attended { last, added } = reply.told {
                    (last, added)
                } else {
                    (EventId::ZERO, 0)
                };
                // "Newest" is one position from now on, or events between two reads would be missed.
                let (after, seen) = match self.taking.start {
                    Start::Newest => (last, Some(added)),
                    Start::Oldest => (EventId::ZERO, None),
                    Start::After(id) => (id, None),
                };
                notes.note(after);
                self.attached.push(Attached { handle, after, seen, notes });
                self.attached.sort_by(|a, b| a.handle.stream().cmp(b.handle.stream()));
                Ok(Read::More)
            }
            Phase::Checking(_) => result.map(|_| Read::More),
            Phase::Reading(at) => self.has_read(at, op, result),
        }
    }

    fn has_read(
        &mut self,
        at: usize,
        op: &StreamOp,
        result: Result<StreamReply, StreamError>,
    ) -> Result<Read, StreamError> {
        let Some(attached) = self.attached.get_mut(at) else { return Ok(Read::More) };
        attached.handle.answered(&op.verb, &result);
        let reply = match result {
            Ok(reply) => reply,
            Err(error) => {
                if error.is_final() {
                    self.close();
                }
                return Err(error);
            }
        };
        let Told::Read { mut entries, added, kept, anchored } = reply.told else { return Ok(Read::More) };
        if let Some(kept) = attached.notes.back_to.take() {
            (attached.after, attached.seen) = (kept, None);
            self.phase = Phase::Reading(at);
            return Ok(Read::More);
        }
        if attached.is_lost(added) {
            let after = attached.after;
            (attached.after, attached.seen) = (EventId::ZERO, Some(0));
            self.phase = Phase::Reading(at);
            return Ok(Read::Lost(op.stream.clone(), after));
        }
        self.resting.answered(&op.stream);
        let caught_up = entries.len() < self.taking.events_max as usize;
        let dropped = attached.note_read(&entries, added, kept, anchored, caught_up);
        let filter = &self.taking.filter;
        self.phase = Phase::Reading(self.awake(at + 1));
        entries.retain(|entry| entry.stored.event().is_some_and(|event| filter.shows(event)));
        Ok(Read::Entries(op.stream.clone(), entries, dropped))
    }
}

impl Notes {
    fn note(&mut self, at: EventId) {
        if let Some(standing) = self.standing.take() {
            self.vouching.note(at, &standing);
        }
    }
}

impl Attached {
    /// Fewer were ever published than were read: it is another log. One that began anew and has as many
    /// again cannot be told by that, but its positions lie behind.
    fn is_lost(&self, added: u64) -> bool {
        self.seen.is_some_and(|seen| added < seen)
    }

    /// Moves on behind what was read, and tells what is missing before it.
    ///
    /// Only the oldest entries are trimmed: what is kept up to the reader's position proves that nothing
    /// behind it was.
    fn note_read(
        &mut self,
        entries: &[Entry],
        added: u64,
        kept: u64,
        anchored: bool,
        caught_up: bool,
    ) -> Option<Dropped> {
        let (after, seen, count) = (self.after, self.seen, entries.len() as u64);
        let before = entries.first().map(|first| first.id);
        self.seen = match (caught_up, anchored) {
            (true, _) => Some(added),
            (false, true) => seen.map(|seen| seen + count),
            (false, false) => Some(added.saturating_sub(kept.saturating_sub(count))),
        };
        if let Some(last) = entries.last() {
            self.after = last.id;
            self.notes.note(last.id);
        }
        let missing = |kept: u64| {
            let missing = seen.map(|seen| added.saturating_sub(seen).saturating_sub(kept));
            let owed = missing.map_or(after > EventId::ZERO, |missing| missing > 0);
            owed.then_some(Dropped { after, before, events: missing })
        };
        match (before, anchored) {
            (None, _) if seen.is_none() => None,
            (None, _) => missing(0),
            (Some(_), true) => None,
            (Some(_), false) => missing(kept),
        }
    }
}

#[cfg(test)]
mod tests;
