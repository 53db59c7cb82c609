//! The loop of one reader: attach, read, wait, and again.

use super::command::LogPosition;
use super::event::{Delivery, Gap, Item};
use crate::stream::error::{CallerError, StreamError};
use crate::stream::handle::Handle;
use crate::stream::op::{Nonce, StreamOp};
use crate::stream::reader::{Read, Reader};
use crate::stream::reply::{Dropped, GapReason, StreamReply};
use crate::stream::settings::Taking;
use alloc::collections::VecDeque;
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
    attaching: VecDeque<Handle>,
    wait_ms: u64,
    ready: bool,
    wanted: bool,
    /// A pass is under way.
    passing: bool,
    /// The pass brought something.
    brought: bool,
}

impl Reading {
    pub(super) fn new(streams: Vec<Handle>, taking: Taking) -> Self {
        let wait_ms = taking.block_ms;
        Self {
            reader: Reader::new(taking),
            attaching: streams.into(),
            wait_ms,
            ready: false,
            wanted: false,
            passing: false,
            brought: true,
        }
    }

    /// The host has room for more.
    pub(super) fn want(&mut self) {
        self.wanted = true;
    }

    /// What is next. Called only while nothing of it is outstanding.
    pub(super) fn next(&mut self, nonce: Nonce) -> Result<Want, CallerError> {
        if let Some(op) = self.reader.op(nonce) {
            return Ok(Want::Ask(op));
        }
        if let Some(handle) = self.attaching.pop_front() {
            self.reader.attach(&handle)?;
            return self.next(nonce);
        }
        if !self.ready {
            self.ready = true;
            return Ok(Want::Ready);
        }
        if self.passing {
            self.passing = false;
            if !self.brought {
                return Ok(Want::Wait { logs: self.positions(), wait_ms: self.wait_ms });
            }
        }
        if !self.wanted {
            return Ok(Want::Rest);
        }
        (self.passing, self.brought) = (true, false);
        self.reader.pass()?;
        self.next(nonce)
    }

    fn positions(&self) -> Vec<LogPosition> {
        let position = |(stream, generation, after)| LogPosition { stream, generation, after };
        self.reader.positions().into_iter().map(position).collect()
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
            (self.brought, self.wanted) = (true, false);
        }
        Ok(items)
    }

    /// Whether it was attached to all its streams.
    pub(super) const fn is_ready(&self) -> bool {
        self.ready
    }
}
