//! Making the pages that subscriptions asked for.

use super::{Doing, SubscriptionRead, cursor};
use crate::error::StorageFault;
use crate::journal::read::{EntryReader, ReadRequest};
use crate::lifecycle::api::{CursorReason, Event, Page, Served, SubscriptionEnd, SubscriptionId};
use crate::lifecycle::entry::is_record;
use crate::lifecycle::shared::{ReadFor, Shared};
use crate::lifecycle::subscribe::state::StateReader;
use crate::limits::PIECE_BYTES_MAX;
use crate::record::{AuthorityId, Record, RecordView, Version};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::ControlFlow;

impl Shared {
    /// Serves every subscription that may have something to do. Called after every input.
    pub(in crate::lifecycle) fn serve_subscriptions(&mut self) {
        if self.compaction.is_none() && !self.installing() {
            let parked = core::mem::take(&mut self.subscriptions.parked);
            self.subscriptions.woken.extend(parked);
        }
        while let Some(id) = self.next_to_serve() {
            self.serve(id);
        }
    }

    /// Who waits for a read comes first, in the order in which they came.
    fn next_to_serve(&mut self) -> Option<SubscriptionId> {
        let free = self.subscriptions.reads_out < self.config.subscription_reads_max;
        let waited = if free { self.subscriptions.waiting.pop_front() } else { None };
        waited.or_else(|| self.subscriptions.woken.pop_first())
    }

    /// Makes the next page of one subscription, or begins to read for it.
    fn serve(&mut self, id: SubscriptionId) {
        let Some(subscription) = self.subscriptions.open.get_mut(&id) else { return };
        // One read at a time: what is woken meanwhile begins no second one.
        if !subscription.asked || subscription.reading == Some(subscription.turn) {
            return;
        }
        let at = subscription.at;
        match &mut subscription.doing {
            Doing::Lost => {}
            Doing::Losing(verdict) => {
                let verdict = verdict.clone();
                self.put_doing(id, Doing::Lost);
                self.give(id, Page::Lost(verdict));
            }
            Doing::Following => self.serve_changes(id, at),
            Doing::Reading(reader) => {
                let reader = *reader;
                self.read_changes(id, reader);
            }
            Doing::ResetAsked => self.begin_reset(id),
            Doing::State(state) => match state.wants() {
                Some((file, offset)) => {
                    if let Some(turn) = self.take_read(id) {
                        let purpose = ReadFor::Subscription(id, turn, SubscriptionRead::State);
                        self.read(file, offset, PIECE_BYTES_MAX, purpose);
                    }
                }
                None => self.end_reset(id),
            },
        }
    }

    /// Gives a subscription the page that it asked for.
    fn give(&mut self, id: SubscriptionId, page: Page) {
        if let Some(subscription) = self.subscriptions.open.get_mut(&id) {
            subscription.asked = false;
            self.out.event(Event::Page { subscription: id, page });
        }
    }

    fn give_changes(&mut self, id: SubscriptionId, records: Vec<Record>, served: Served) {
        let Some(last) = records.last().map(|record| record.version) else { return };
        let behind = self.behind(last).unwrap_or(0);
        if let Some(subscription) = self.subscriptions.open.get_mut(&id) {
            subscription.at = last;
            if behind == 0 {
                subscription.hold_until = None;
            }
        }
        self.give(id, Page::Changes { records, served, behind });
    }

    fn serve_changes(&mut self, id: SubscriptionId, at: Version) {
        if at < self.history.floor() {
            let verdict = cursor::gap(at, self.history.floor(), CursorReason::BelowFloor);
            self.put_doing(id, Doing::Lost);
            return self.give(id, Page::Lost(verdict));
        }
        match self.recent.after(at, u64::from(self.config.page_bytes_max)) {
            // At the tail: the next durable change wakes it.
            Some(records) if records.is_empty() => {}
            Some(records) => self.give_changes(id, records, Served::Memory),
            None => {
                let first = self.history.first_after(at).map(|(lsn, _)| lsn);
                let last = self.history.lsn_of(self.history.tail());
                let (Some(first), Some(last)) = (first, last) else {
                    unreachable!("memory holds what comes after the tail, which is nothing");
                };
                self.read_changes(id, EntryReader::new(first, last));
            }
        }
    }

    fn read_changes(&mut self, id: SubscriptionId, reader: EntryReader) {
        let request = match reader.request(self.journal.index(), self.config.page_bytes_max) {
            Ok(Some(request)) => request,
            // A compaction took the entries, or there is no more to read: look where it stands now.
            Ok(None) | Err(_) => {
                self.put_doing(id, Doing::Following);
                self.subscriptions.woken.insert(id);
                return;
            }
        };
        self.put_doing(id, Doing::Reading(reader));
        if let Some(turn) = self.take_read(id) {
            let purpose = ReadFor::Subscription(id, turn, SubscriptionRead::Changes(request));
            self.read(request.file, request.offset, request.bytes, purpose);
        }
    }

    /// Takes one of the reads that may be under way. The turn that the read is for; `None` if the
    /// subscription must wait for its place.
    fn take_read(&mut self, id: SubscriptionId) -> Option<u64> {
        let subscription = self.subscriptions.open.get_mut(&id)?;
        if self.subscriptions.reads_out >= self.config.subscription_reads_max {
            if !self.subscriptions.waiting.contains(&id) {
                self.subscriptions.waiting.push_back(id);
            }
            return None;
        }
        subscription.reading = Some(subscription.turn);
        self.subscriptions.reads_out += 1;
        Some(subscription.turn)
    }

    /// A read for a subscription was answered.
    pub(in crate::lifecycle) fn on_subscription_read(
        &mut self,
        id: SubscriptionId,
        turn: u64,
        read: SubscriptionRead,
        result: Result<Vec<u8>, StorageFault>,
    ) {
        self.subscriptions.reads_out -= 1;
        let Some(subscription) = self.subscriptions.open.get_mut(&id).filter(|sub| sub.turn == turn) else {
            return;
        };
        subscription.reading = None;
        self.subscriptions.woken.insert(id);
        match read {
            SubscriptionRead::Changes(request) => self.on_changes_read(id, &request, result),
            SubscriptionRead::State => self.on_state_read(id, result),
        }
    }

    fn on_changes_read(
        &mut self,
        id: SubscriptionId,
        request: &ReadRequest,
        result: Result<Vec<u8>, StorageFault>,
    ) {
        let Some(subscription) = self.subscriptions.open.get_mut(&id) else { return };
        let Doing::Reading(reader) = &mut subscription.doing else { return };
        match result.and_then(|bytes| records_of(reader, request, &bytes)) {
            Ok(records) if records.is_empty() => {}
            Ok(records) => {
                self.put_doing(id, Doing::Following);
                self.give_changes(id, records, Served::Journal);
            }
            // A compaction took the file meanwhile: look where it stands now.
            Err(_) if reader.request(self.journal.index(), 1).is_err() => {
                self.put_doing(id, Doing::Following)
            }
            Err(fault) => self.end_subscription(id, SubscriptionEnd::Storage(fault)),
        }
    }

    fn begin_reset(&mut self, id: SubscriptionId) {
        // What is being compacted was judged before this reset counted.
        if self.compaction.is_some() || self.installing() {
            self.subscriptions.parked.insert(id);
            return;
        }
        let (now, cut) = (self.now.mono, self.history.floor());
        let until = now.after_ms(self.config.snapshot_pin_ms);
        let state = StateReader::new(self.current.log, cut, self.current.checkpoint, until);
        if let Some(number) = state.pinned() {
            self.pin(number);
        }
        self.put_doing(id, Doing::State(Box::new(state)));
        if let Some(subscription) = self.subscriptions.open.get_mut(&id) {
            subscription.hold_until = Some(now.after_ms(self.config.reset_hold_ms));
        }
        self.give(id, Page::ResetBegin { cut });
    }

    fn on_state_read(&mut self, id: SubscriptionId, result: Result<Vec<u8>, StorageFault>) {
        let Some(subscription) = self.subscriptions.open.get_mut(&id) else { return };
        let Doing::State(state) = &mut subscription.doing else { return };
        let before = state.pinned();
        match result.and_then(|bytes| state.take(&bytes)) {
            Ok((records, read_to_its_end)) => {
                if let Some(number) = read_to_its_end {
                    self.unpin(number);
                }
                if !records.is_empty() {
                    self.give(id, Page::State { records });
                }
            }
            Err(fault) => {
                // A reader that failed within names its checkpoint no more.
                if let Some(number) = before.filter(|_| state.pinned().is_none()) {
                    self.unpin(number);
                }
                self.end_subscription(id, SubscriptionEnd::Storage(fault));
            }
        }
    }

    fn end_reset(&mut self, id: SubscriptionId) {
        let Some(subscription) = self.subscriptions.open.get_mut(&id) else { return };
        let Doing::State(state) = &subscription.doing else { return };
        let (cut, keys) = (state.cut, state.keys);
        subscription.at = cut;
        if cut == self.history.tail() {
            subscription.hold_until = None;
        }
        self.put_doing(id, Doing::Following);
        self.give(id, Page::ResetEnd { cut, keys });
    }
}

/// The records that a read brought.
fn records_of(
    reader: &mut EntryReader,
    request: &ReadRequest,
    bytes: &[u8],
) -> Result<Vec<Record>, StorageFault> {
    let mut records: Vec<Record> = Vec::new();
    let mut authority = AuthorityId::from_text("");
    let mut bad = None;
    reader.accept(request, bytes, &mut |lsn, kind, entry| {
        if !is_record(kind) {
            return ControlFlow::Continue(());
        }
        match RecordView::parse(entry) {
            Ok(view) => {
                let record = view.to_record_sharing(&authority);
                authority = record.authority.clone();
                records.push(record);
                ControlFlow::Continue(())
            }
            Err(error) => {
                bad = Some(alloc::format!("entry {lsn}: {error}"));
                ControlFlow::Break(())
            }
        }
    })?;
    match bad {
        None => Ok(records),
        Some(detail) => Err(StorageFault::damaged(request.file, request.offset, detail)),
    }
}
