//! The side of the root that is about consumers: their chores, and what they do with events.

use super::command::{CallId, Command, Execution, Origin, PartyId};
use super::consuming::Give;
use super::event::{ClientEvent, End, Failure};
use super::{Asked, By, Call, Purpose, StreamClient, Timer, repeat};
use crate::stream::error::{CallerError, Setting};
use crate::stream::event::Ids;
use crate::stream::limits::NACK_DELAY_MS_MAX;
use crate::stream::name::StreamName;
use crate::stream::reply::Outcome;
use crate::time::Now;

impl StreamClient {
    /// Settles, gives back or buries events of a stream that a consumer was handed. It ends with
    /// [`ClientEvent::Called`]. Events that were taken over by another consumer meanwhile count for
    /// nothing, except that anybody of a group may settle.
    pub fn handle_give(
        &mut self,
        now: Now,
        party: PartyId,
        stream: &StreamName,
        give: Give,
        ids: Ids,
    ) -> CallId {
        self.now = self.now.latest(now);
        let call = CallId(self.number());
        let nonce = self.nonce();
        let refused = match give {
            Give::Nack { delay_ms } if delay_ms > NACK_DELAY_MS_MAX => {
                Some(CallerError::InvalidOption { setting: Setting::Delay })
            }
            Give::Ack | Give::Nack { .. } | Give::Bury => None,
        };
        let consuming = self.seats.get_mut(&party).filter(|seat| !seat.closing);
        let op = match (refused, consuming.and_then(|seat| seat.consumer())) {
            (Some(error), _) => Err(error),
            (None, None) => Err(CallerError::ConsumerClosed),
            (None, Some(consuming)) => {
                consuming.give(stream, give, ids, nonce).ok_or(CallerError::NotAttached)
            }
        };
        match op {
            Ok(op) => self.ask(call, Call { by: By::Party(party), op, noted: None, unanswered: 0 }),
            Err(error) => self.out.event(ClientEvent::Called { call, result: Err(error.into()) }),
        }
        call
    }

    /// A consumer has joined all its streams: from now on it has chores.
    pub(super) fn begin_tending(&mut self, id: PartyId) {
        if self.seats.get_mut(&id).and_then(|seat| seat.consumer()).is_some() {
            self.arm_keep_alive(id);
            self.look_after(id);
        }
    }

    /// Twice in the time after which it would count as silent, at most.
    fn arm_keep_alive(&mut self, id: PartyId) {
        if let Some(consuming) = self.seats.get_mut(&id).and_then(|seat| seat.consumer()) {
            let grace_ms = consuming.tending.rules().grace_ms;
            self.deadlines.arm(Timer::KeepAlive(id), self.now.mono.after_ms(grace_ms.div_ceil(2)));
        }
    }

    pub(super) fn keep_alive(&mut self, id: PartyId) {
        self.arm_keep_alive(id);
        if let Some(consuming) = self.seats.get_mut(&id).and_then(|seat| seat.consumer()) {
            consuming.keep_alive();
        }
        self.tend(id);
    }

    pub(super) fn look_after(&mut self, id: PartyId) {
        if let Some(consuming) = self.seats.get_mut(&id).and_then(|seat| seat.consumer()) {
            consuming.look_after();
            let every_ms = consuming.tending.rules().lease_ms / 2;
            self.deadlines.arm(Timer::LookAfter(id), self.now.mono.after_ms(every_ms));
        }
        self.tend(id);
    }

    pub(super) fn tend_again(&mut self, id: PartyId) {
        if let Some(seat) = self.seats.get_mut(&id) {
            seat.tends = false;
        }
        self.tend(id);
        self.advance(id);
    }

    /// Begins the next chore, unless one is out or the consumer leaves.
    fn tend(&mut self, id: PartyId) {
        let nonce = self.nonce();
        let Some(seat) = self.seats.get_mut(&id).filter(|seat| !seat.tends && !seat.closing) else { return };
        let Some(op) = seat.consumer().and_then(|consuming| consuming.chore(nonce)) else { return };
        seat.tends = true;
        let asked = Asked { op: op.clone(), noted: seat.party.noted(&op) };
        let noted = op.verb.hands_out();
        let make = |ticket| Command::Execute { ticket, op, origin: Origin::Party(id), noted };
        self.out.command(Purpose::Chore(id, asked), make);
    }

    /// A chore ended.
    pub(super) fn tended(&mut self, id: PartyId, asked: &Asked, execution: Execution) {
        let (outcome, said) = execution.parts();
        self.counters.ended(outcome.as_ref());
        self.lived_through(id, asked, said);
        let op = &asked.op;
        let Some(seat) = self.seats.get_mut(&id) else { return };
        let result = match outcome {
            Some(Outcome::Answered { result, .. }) => result,
            Some(Outcome::Uncertain(_)) | None => {
                // The same chore is done again, behind those of other streams: they may lie elsewhere. Events
                // taken over by an answer that never came are pending here, and come back by a later claim.
                if let Some(consuming) = seat.consumer() {
                    consuming.tending.put_off();
                }
                let wait_ms = repeat::wait_ms(&self.seed, id.0, 1);
                self.deadlines.arm(Timer::TendAgain(id), self.now.mono.after_ms(wait_ms));
                return;
            }
        };
        let Some(consuming) = seat.consumer() else { return };
        match consuming.tended(op, result) {
            Ok(tended) => {
                seat.tends = tended.again;
                for (stream, fence) in tended.leases {
                    self.counters.leased(fence.is_some());
                    self.out.event(ClientEvent::Leased { party: id, stream, fence });
                }
                if let Some(error) = tended.trouble {
                    let failure = Failure::Refused(error);
                    self.out.event(ClientEvent::Trouble { party: id, failure });
                }
                self.hand_out(id, tended.items);
                if tended.again {
                    let wait_ms = repeat::wait_ms(&self.seed, id.0, 1);
                    self.deadlines.arm(Timer::TendAgain(id), self.now.mono.after_ms(wait_ms));
                    return;
                }
                self.tend(id);
                self.advance(id);
            }
            Err(error) => self.end(id, End::Failed(Failure::Refused(error))),
        }
    }
}
