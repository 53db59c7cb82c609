//! The loop of one reader: attach, read, wait, and again.

use super::event::{Delivery, Gap, Item};
use super::rounds::{Round, Rounds};
use crate::stream::error::{CallerError, StreamError};
use crate::stream::failover::Standing;
use crate::stream::handle::Handle;
use crate::stream::op::{Nonce, StreamOp};
use crate::stream::reader::{LogPosition, Read, Reader};
use crate::stream::reply::{Dropped, GapReason, StreamReply};
use crate::stream::settings::Taking;
use crate::stream::vouching::Failover;
use alloc::vec::Vec;

/// What a loop wants next.
#[derive(Debug)]
pub(super) enum Want {
    /// Ask this.
    Ask(StreamOp),
    /// Wait for news.
    Wait { logs: Vec<LogPosition>, wait_ms: u64 },
    /// Say that everything is attached, and ask again.
    Ready,
    /// Nothing, until something is wanted of it.
    Rest,
}

/// A part: a reader and where its loop is.
#[derive(Debug)]
pub(super) struct Reading {
    reader: Reader,
    rounds: Rounds,
    wait_ms: u64,
}

impl Reading {
    pub(super) fn new(streams: Vec<Handle>, taking: Taking) -> Self {
        let wait_ms = taking.block_ms;
        Self { reader: Reader::new(taking), rounds: Rounds::new(streams), wait_ms }
    }

    /// The host has room for more.
    pub(super) fn want(&mut self) {
        self.rounds.want();
    }

    /// What is next. Called only while nothing of it is outstanding.
    pub(super) fn next(&mut self, nonce: Nonce) -> Result<Want, CallerError> {
        if let Some(op) = self.reader.op(nonce) {
            return Ok(Want::Ask(op));
        }
        match self.rounds.next() {
            Round::Attach(handle) => self.reader.attach(&handle)?,
            Round::Ready => return Ok(Want::Ready),
            Round::Wait => {
                return Ok(Want::Wait { logs: self.reader.positions(), wait_ms: self.wait_ms });
            }
            Round::Rest => return Ok(Want::Rest),
            Round::Pass => self.reader.pass()?,
        }
        self.next(nonce)
    }

    /// Goes on behind a stream whose read failed; how often it has in a row.
    pub(super) fn rest(&mut self, op: &StreamOp) -> Option<u32> {
        self.reader.rest(op).filter(|_| self.is_ready())
    }

    pub(super) fn rouse(&mut self) {
        self.reader.rouse();
    }

    /// Takes where the server stood beside an answer, before the answer.
    pub(super) fn heard(&mut self, op: &StreamOp, standing: Option<&Standing>) -> Option<Failover> {
        self.reader.heard(op, standing)
    }

    /// Takes an answer, and tells what is to be handed out.
    pub(super) fn answered(
        &mut self,
        op: &StreamOp,
        result: Result<StreamReply, StreamError>,
    ) -> Result<Vec<Item>, StreamError> {
        let items: Vec<Item> = match self.reader.answered(op, result)? {
            Read::More => Vec::new(),
            Read::Entries(stream, entries, dropped) => {
                let gap = dropped.map(|dropped| Item::Gap(Gap::of(&stream, GapReason::Trimmed, dropped)));
                let deliveries =
                    entries.into_iter().filter_map(|entry| Delivery::of(&stream, entry, 1, None));
                gap.into_iter().chain(deliveries.map(Item::Event)).collect()
            }
            Read::Lost(stream, after) => {
                let dropped = Dropped { after, before: None, events: None };
                alloc::vec![Item::Gap(Gap::of(&stream, GapReason::LogLost, dropped))]
            }
        };
        if !items.is_empty() {
            self.rounds.brought();
        }
        Ok(items)
    }

    /// Whether it was attached to all its streams.
    pub(super) const fn is_ready(&self) -> bool {
        self.rounds.is_ready()
    }
}
