//! A reader or consumer under the root, and what is outstanding of it.

use super::command::Said;
use super::consuming::Consuming;
use super::event::Item;
use super::reading::{Reading, Want};
use crate::stream::error::{CallerError, StreamError};
use crate::stream::failover::Vouched;
use crate::stream::op::{Nonce, StreamOp};
use crate::stream::reply::StreamReply;
use crate::stream::vouching::Failover;
use alloc::boxed::Box;
use alloc::vec::Vec;

/// One reader or consumer.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) party: Party,
    /// What the loop is held up by.
    pub(super) held: Held,
    /// Failures in a row.
    pub(super) failures: u32,
    /// A chore's answer is out, or its pause after a failure.
    pub(super) tends: bool,
    /// Failed tries to leave.
    pub(super) unleft: u32,
    /// It is to end once nothing is outstanding.
    pub(super) closing: bool,
}

/// What a loop is held up by.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Held {
    /// Nothing.
    No,
    /// A step whose answer is out.
    Step,
    /// A wait for news; who leaves does not stay for it.
    Wait,
    /// The pause after a failure; who leaves does not stay for it either.
    Pause,
}

/// Which of the two.
#[derive(Debug)]
pub(super) enum Party {
    Reader(Box<Reading>),
    Consumer(Box<Consuming>),
}

impl Seat {
    pub(super) const fn new(party: Party) -> Self {
        Self { party, held: Held::No, failures: 0, tends: false, unleft: 0, closing: false }
    }

    /// The consumer, if it is one.
    pub(super) fn consumer(&mut self) -> Option<&mut Consuming> {
        match &mut self.party {
            Party::Reader(_) => None,
            Party::Consumer(consuming) => Some(consuming),
        }
    }

    /// Whether the loop can go on. Who leaves first waits for the chore that is out: its effect must not
    /// come after the leaving.
    pub(super) const fn is_free(&self) -> bool {
        if self.closing && self.tends {
            return false;
        }
        match self.held {
            Held::No => true,
            Held::Step => false,
            Held::Wait | Held::Pause => self.closing,
        }
    }
}

impl Party {
    pub(super) fn want(&mut self) {
        match self {
            Self::Reader(reading) => reading.want(),
            Self::Consumer(consuming) => consuming.want(),
        }
    }

    /// What its loop wants next.
    pub(super) fn next(&mut self, nonce: Nonce) -> Result<Want, CallerError> {
        match self {
            Self::Reader(reading) => reading.next(nonce),
            Self::Consumer(consuming) => consuming.next(nonce),
        }
    }

    /// What is left to do before it ends; `None` when nothing is.
    pub(super) fn leave(&mut self, nonce: Nonce) -> Option<Want> {
        match self {
            // A reader leaves no trace.
            Self::Reader(_) => None,
            Self::Consumer(consuming) => consuming.leave(nonce),
        }
    }

    /// Goes on behind a stream whose read failed, and leaves it out for a while; how often it has failed in a
    /// row. `None` where there is nothing else to go on with.
    pub(super) fn rest(&mut self, op: &StreamOp) -> Option<u32> {
        match self {
            Self::Reader(reading) => reading.rest(op),
            Self::Consumer(consuming) => consuming.rest(op),
        }
    }

    /// Lets what was left out be read again.
    pub(super) fn rouse(&mut self) {
        match self {
            Self::Reader(reading) => reading.rouse(),
            Self::Consumer(consuming) => consuming.rouse(),
        }
    }

    /// What is noted of the server of a stream when something is asked of it.
    pub(super) fn noted(&self, op: &StreamOp) -> Option<Vouched> {
        match self {
            // Nothing else of a reader is ever under way.
            Self::Reader(_) => None,
            Self::Consumer(consuming) => consuming.noted(op),
        }
    }

    /// Takes what an answer says of its server's history, before the answer itself; with what was noted
    /// when it was asked.
    pub(super) fn heard(&mut self, op: &StreamOp, asked: Option<Vouched>, said: Said) -> Option<Failover> {
        let Said::Stands(standing) = said else { return None };
        match self {
            Self::Reader(reading) => reading.heard(op, standing.as_ref()),
            Self::Consumer(consuming) => consuming.heard(op, asked, standing.as_ref()),
        }
    }

    pub(super) fn answered(
        &mut self,
        op: &StreamOp,
        result: Result<StreamReply, StreamError>,
    ) -> Result<Vec<Item>, StreamError> {
        match self {
            Self::Reader(reading) => reading.answered(op, result),
            Self::Consumer(consuming) => consuming.answered(op, result),
        }
    }

    /// Whether it goes on after a refusal: while attaching every refusal is its caller's to know, later
    /// only what a server may get over is tried again.
    pub(super) fn outlives(&self, error: &StreamError) -> bool {
        let ready = match self {
            Self::Reader(reading) => reading.is_ready(),
            Self::Consumer(consuming) => consuming.is_ready(),
        };
        match error {
            StreamError::Caller(_) => false,
            StreamError::Foreign(_) | StreamError::Server(_) => ready,
        }
    }
}
