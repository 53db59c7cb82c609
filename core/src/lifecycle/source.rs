//! The sending side of a link: plan, blobs ahead where the peer cannot ask for them, send, wait for
//! the durable acknowledgement, and on and on as records arrive and across compactions.

use super::api::{CloseReason, Event, PairReason, PeerFaultKind};
use super::checkpoint_read::{CheckpointItem, CheckpointLimits, CheckpointReader};
use super::entry::is_record;
use super::membership::MemberInput;
use super::outbox::Carries;
use super::pushing::{Push, Pushed};
use super::questions::Question;
use super::session::Session;
use super::shared::{ReadFor, Shared};
use super::sharing::{Ask, Block};
use crate::error::StorageFault;
use crate::id::Lsn;
use crate::journal::command::FileName;
use crate::journal::current::CheckpointRef;
use crate::journal::read::{EntryReader, ReadRequest};
use crate::record::{Record, RecordView, Version};
use crate::time::Instant;
use crate::verdict::Verdict;
use crate::wire::batch_builder::BatchBuilder;
use crate::wire::message::Message;
use crate::wire::own::{OwnMessage, SnapshotChunk, SnapshotGet, SnapshotOffer};
use crate::wire::repair::{Batch, Snapshot};
use alloc::vec::Vec;
use core::ops::ControlFlow;

/// Where sending stands.
#[derive(Debug)]
pub(super) enum Source {
    /// The link is for receiving only.
    Off,
    /// The peer has not said, or has not been judged, where it stands.
    Waiting,
    /// The peer has everything it was sent.
    Idle,
    /// Reading the next batch.
    Planning(Plan),
    /// Reading the checkpoint for a snapshot in one frame.
    Framing,
    /// Sending the blobs of the next batch or snapshot ahead of it.
    Pushing(Push),
    /// As many batches are out as may be, or a snapshot frame.
    Sent,
    /// The peer reads a snapshot in pieces.
    Snapshot(Serving),
    /// A verdict ended repair on this link.
    Stopped,
}

/// The next batch, as far as it was read.
#[derive(Debug)]
pub(super) struct Plan {
    reader: EntryReader,
    builder: BatchBuilder,
    through: Lsn,
    last: Option<Lsn>,
    from: Version,
    /// The records themselves, for a peer whose blobs go ahead of them: some may have to be left out.
    records: Option<Vec<Record>>,
}

/// A snapshot that the peer reads.
#[derive(Debug)]
pub(super) struct Serving {
    checkpoint: CheckpointRef,
    cut: Version,
    pub(super) until: Instant,
}

impl Serving {
    /// Whether the checkpoint of this number is what the peer reads.
    pub(super) const fn is_of(&self, number: u64) -> bool {
        self.checkpoint.number == number
    }
}

impl Session {
    /// Goes on sending if there is something to send and room for it.
    pub(super) fn pump_source(&mut self, shared: &mut Shared) {
        if self.down || !matches!(self.source, Source::Idle) {
            return;
        }
        let (floor, tail) = (shared.history.floor(), shared.history.tail());
        if let Some(theirs) = self.ahead {
            if tail >= theirs.tail {
                self.ahead = None;
                self.source = Source::Waiting;
                self.judge_standing(shared, theirs);
            }
            return;
        }
        if self.acked >= tail {
            return self.report_synced(shared, tail);
        }
        let from = self.flight.back().map_or(self.acked, |sent| self.acked.max(*sent));
        if shared.halted.is_some() || from >= tail || !self.has_room(shared) || self.comparing() {
            return;
        }
        if self.evidence.rests(shared.now.mono) {
            shared.blocked.insert(self.link);
            return;
        }
        if shared.too_late_to_count(&self.peer.identity, self.acked.max(floor)) {
            return;
        }
        if from >= floor {
            return self.begin_plan(shared, from);
        }
        // A snapshot takes the place of everything: what is out is answered first.
        if self.flight.is_empty() {
            self.begin_snapshot(shared);
        }
    }

    /// The peer has all our records; it is in sync when it has their blobs as well.
    fn report_synced(&mut self, shared: &mut Shared, tail: Version) {
        let complete = shared.acked.get(&self.peer.identity).map(|mark| mark.complete);
        let whole = !self.peer.waits || complete >= Some(tail);
        if whole && self.synced != Some(tail) && !tail.is_zero() {
            self.synced = Some(tail);
            shared.out.event(Event::Synced { link: self.link, tail });
        }
    }

    fn begin_plan(&mut self, shared: &mut Shared, after: Version) {
        let Some((from, _)) = shared.history.first_after(after.max(self.skipped)) else { return };
        let Some(through) = shared.history.lsn_of(shared.history.tail()) else { return };
        // From here on the journal above what the peer has is needed: it counts at that.
        let acked = self.acked;
        shared.member_reads(&self.peer.identity, acked);
        self.source = Source::Planning(Plan {
            reader: EntryReader::new(from, through),
            builder: BatchBuilder::new(after, shared.config.wire.repair),
            through,
            last: None,
            from: after,
            records: (!self.peer.ranges).then(Vec::new),
        });
        self.continue_plan(shared);
    }

    /// Goes on with the next batch: from what was read for any peer, or by a read.
    pub(super) fn continue_plan(&mut self, shared: &mut Shared) {
        let Source::Planning(plan) = &self.source else { return };
        let bytes_max = shared.config.journal.read_bytes_max;
        match plan.reader.request(shared.journal.index(), bytes_max) {
            Ok(Some(request)) => match shared.sharing.ask(self.link, request) {
                Ask::Here(block) => self.take_block(shared, &block),
                Ask::Read => shared.read(request.file, request.offset, request.bytes, ReadFor::Plan(request)),
                Ask::Wait => {}
            },
            Ok(None) => self.finish_plan(shared),
            // A compaction took the entries: begin anew, from the snapshot.
            Err(_) => {
                self.source = Source::Idle;
                self.pump_source(shared);
            }
        }
    }

    /// Entries that the plan needs are here.
    fn take_block(&mut self, shared: &mut Shared, block: &Block) {
        let Source::Planning(plan) = &mut self.source else { return };
        let mut full = false;
        let mut bad = None;
        let accepted = plan.reader.accept(&block.request, &block.bytes, &mut |lsn, kind, entry| {
            if !is_record(kind) {
                return ControlFlow::Continue(());
            }
            let record = match RecordView::parse(entry) {
                Ok(view) => view.to_record(),
                Err(error) => {
                    bad = Some(alloc::format!("entry {lsn}: {error}"));
                    return ControlFlow::Break(());
                }
            };
            if plan.builder.push(&record, lsn < plan.through).is_err() {
                full = true;
                return ControlFlow::Break(());
            }
            plan.last = Some(lsn);
            if let Some(records) = &mut plan.records {
                records.push(record);
            }
            ControlFlow::Continue(())
        });
        let request = &block.request;
        match (accepted, bad) {
            (Ok(()), None) if full => self.finish_plan(shared),
            (Ok(()), None) => self.continue_plan(shared),
            (Ok(()), Some(detail)) => {
                let fault = StorageFault::damaged(request.file, request.offset, detail);
                self.read_failed(shared, fault);
            }
            (Err(fault), _) => self.plan_read_failed(shared, request, fault),
        }
    }

    /// What the plan needs could not be read, or was not what the journal wrote.
    pub(super) fn plan_read_failed(
        &mut self,
        shared: &mut Shared,
        request: &ReadRequest,
        fault: StorageFault,
    ) {
        let Source::Planning(plan) = &self.source else { return };
        match plan.reader.request(shared.journal.index(), 1) {
            Err(_) => {
                self.source = Source::Idle;
                self.pump_source(shared);
            }
            Ok(Some(needs)) if needs.file == request.file => self.read_failed(shared, fault),
            Ok(_) => self.continue_plan(shared),
        }
    }

    /// The disk failed us while reading for this peer: the link ends, the log does not.
    pub(super) fn read_failed(&mut self, shared: &mut Shared, fault: StorageFault) {
        self.close(shared, CloseReason::Storage(fault));
    }

    fn finish_plan(&mut self, shared: &mut Shared) {
        let Source::Planning(plan) = core::mem::replace(&mut self.source, Source::Idle) else { return };
        let Some(last) = plan.last else {
            // A record that no batch can hold would be a hole in our own limits.
            debug_assert!(false, "a plan without a record");
            return;
        };
        let more = last < plan.through;
        if let Some(records) = plan.records {
            let to = records.last().map_or(plan.from, |record| record.version);
            return self.push(shared, Pushed::Batch(Batch { from: plan.from, to, more, records }));
        }
        let mut payload = Vec::new();
        match plan.builder.finish(more, &mut payload) {
            Ok(to) => self.send_frame(shared, &payload, Some(to)),
            Err(error) => unreachable!("every record of the batch was found to fit: {error}"),
        }
    }

    /// Sends a batch that ends at `to`, or a snapshot, and goes on if more may be out.
    pub(super) fn send_frame(&mut self, shared: &mut Shared, payload: &[u8], to: Option<Version>) {
        self.send_payload(shared, Carries::Data, payload);
        if let Some(to) = to {
            self.evidence.sends(to);
            self.flight.push_back(to);
        }
        let more = to.is_some() && self.flight.len() < self.peer.batches_open_max();
        self.source = if more { Source::Idle } else { Source::Sent };
        self.pump_source(shared);
    }

    fn begin_snapshot(&mut self, shared: &mut Shared) {
        let Some(checkpoint) = shared.current.checkpoint else {
            unreachable!("a floor above zero has a checkpoint");
        };
        let cut = shared.history.floor();
        shared.member_input(&self.peer.identity, MemberInput::Reads { cut });
        self.evidence.sends(cut);
        if !self.peer.chunks {
            return self.begin_snapshot_frame(shared, checkpoint);
        }
        self.pin_snapshot(shared, checkpoint, cut);
        let offer = SnapshotOffer {
            cut,
            cut_digest: shared.opaque.chained.then(|| shared.history.floor_digest()),
            bytes: checkpoint.bytes,
            sha256: checkpoint.sha256,
            records: shared.opaque.checkpoint_records,
        };
        self.send_own(shared, OwnMessage::SnapshotOffer(offer));
    }

    fn pin_snapshot(&mut self, shared: &mut Shared, checkpoint: CheckpointRef, cut: Version) {
        shared.pin(checkpoint.number);
        let until = shared.now.mono.after_ms(shared.config.snapshot_pin_ms);
        self.source = Source::Snapshot(Serving { checkpoint, cut, until });
    }

    /// Pins a snapshot anew whose pin ran out, if it is still the one to offer: the peer goes on where it
    /// stands, and needs no new offer, which its questions would cross.
    fn pin_again(&mut self, shared: &mut Shared, sha256: [u8; 32]) {
        let cut = shared.history.floor();
        let Some(checkpoint) = shared.current.checkpoint.filter(|found| found.sha256 == sha256) else {
            return;
        };
        if matches!(self.source, Source::Idle) && self.acked < cut && self.flight.is_empty() {
            shared.member_input(&self.peer.identity, MemberInput::Reads { cut });
            self.pin_snapshot(shared, checkpoint, cut);
        }
    }

    /// The peer asks for a piece of the snapshot.
    pub(super) fn on_snapshot_get(&mut self, shared: &mut Shared, get: SnapshotGet) {
        let SnapshotGet { sha256, offset } = get;
        self.pin_again(shared, sha256);
        let serving = match &mut self.source {
            Source::Snapshot(serving) => serving,
            // Its pin ran out, or the peer asked again after it had all: offer anew if needed.
            Source::Idle | Source::Planning(_) | Source::Framing | Source::Sent => {
                return self.pump_source(shared);
            }
            // On its way when this side stopped.
            Source::Stopped => return,
            Source::Off | Source::Waiting | Source::Pushing(_) => {
                let (expected, found) =
                    ("requests for a snapshot that was offered", alloc::format!("a request at {offset}"));
                return self.fault(shared, PeerFaultKind::Sequence, expected, found);
            }
        };
        if serving.checkpoint.sha256 != sha256 {
            // Of the one before: the offer of this one is on its way to the peer.
            return;
        }
        if offset >= serving.checkpoint.bytes {
            let expected = alloc::format!("an offset below {} of the offer", serving.checkpoint.bytes);
            return self.fault(shared, PeerFaultKind::Snapshot, expected, alloc::format!("{offset}"));
        }
        serving.until = shared.now.mono.after_ms(shared.config.snapshot_pin_ms);
        let number = serving.checkpoint.number;
        self.ask_piece(shared, Question::Snapshot { number, offset });
    }

    /// A piece of the snapshot was read.
    pub(super) fn on_snapshot_piece(
        &mut self,
        shared: &mut Shared,
        offset: u64,
        place: u64,
        result: Result<Vec<u8>, StorageFault>,
    ) {
        match result {
            Ok(data) if data.is_empty() => {
                let Source::Snapshot(serving) = &self.source else { return };
                let file = FileName::Checkpoint(serving.checkpoint.number);
                let detail = "expected more of the checkpoint, found its end";
                self.read_failed(shared, StorageFault::damaged(file, offset, detail));
            }
            Ok(data) => {
                self.answer_piece(shared, place, OwnMessage::SnapshotChunk(SnapshotChunk { offset, data }));
            }
            Err(fault) => self.read_failed(shared, fault),
        }
    }

    /// Whether the peer is being sent what the journal holds.
    pub(super) fn is_behind(&self) -> bool {
        !self.flight.is_empty() || matches!(self.source, Source::Planning(_) | Source::Pushing(_))
    }

    /// Whether an acknowledgement up to here answers something that is out.
    pub(super) fn answers(&self, version: Version) -> bool {
        match &self.source {
            Source::Snapshot(serving) => version >= serving.cut,
            Source::Sent if self.flight.is_empty() => true,
            Source::Off
            | Source::Waiting
            | Source::Idle
            | Source::Planning(_)
            | Source::Framing
            | Source::Pushing(_)
            | Source::Sent
            | Source::Stopped => self.flight.front().is_some_and(|to| *to <= version),
        }
    }

    /// The peer's acknowledgement was accepted: what was out is settled.
    pub(super) fn source_acked(&mut self, shared: &mut Shared, version: Version) {
        if self.peer.window {
            while self.flight.front().is_some_and(|to| *to <= version) {
                self.flight.pop_front();
            }
        } else {
            self.flight.clear();
        }
        match &self.source {
            Source::Waiting => {
                self.source = Source::Idle;
                self.announce_blobs(shared);
            }
            Source::Sent if self.flight.len() < self.peer.batches_open_max() => self.source = Source::Idle,
            Source::Snapshot(serving) if version >= serving.cut => {
                self.drop_source(shared);
                self.source = Source::Idle;
            }
            Source::Off
            | Source::Idle
            | Source::Planning(_)
            | Source::Framing
            | Source::Pushing(_)
            | Source::Sent
            | Source::Snapshot(_)
            | Source::Stopped => {}
        }
        self.pump_source(shared);
    }

    /// Gives up what is being sent, and its pin.
    pub(super) fn drop_source(&mut self, shared: &mut Shared) {
        if let Source::Snapshot(serving) = core::mem::replace(&mut self.source, Source::Off) {
            shared.unpin(serving.checkpoint.number);
        }
        self.pushed.clear();
        self.flight.clear();
    }

    /// The peer fetches blobs, those of the snapshot first: it did not forget the rest of that.
    pub(super) fn renew_pin(&mut self, shared: &Shared) {
        if let Source::Snapshot(serving) = &mut self.source {
            serving.until = shared.now.mono.after_ms(shared.config.snapshot_pin_ms);
        }
    }

    /// The pin of a snapshot whose peer asked for nothing runs out. What it asked for is answered first,
    /// so that no piece comes behind the offer of another snapshot.
    pub(super) fn expire_snapshot(&mut self, shared: &mut Shared) {
        let expired = matches!(&self.source, Source::Snapshot(s) if s.until <= shared.now.mono);
        if expired && self.pieces.is_empty() {
            self.drop_source(shared);
            self.source = Source::Idle;
        }
    }

    fn begin_snapshot_frame(&mut self, shared: &mut Shared, checkpoint: CheckpointRef) {
        let payload_bytes_max = u64::from(shared.config.wire.repair.payload_bytes_max);
        if shared.opaque.checkpoint_records > u64::from(shared.config.wire.repair.records_max)
            || checkpoint.bytes > 2 * payload_bytes_max
        {
            let reason = PairReason::SnapshotTooLarge;
            return self.stop(shared, Verdict::Unknown { reason });
        }
        self.source = Source::Framing;
        let bytes_max = u32::try_from(checkpoint.bytes).unwrap_or(u32::MAX);
        let file = FileName::Checkpoint(checkpoint.number);
        shared.read(file, 0, bytes_max, ReadFor::SnapshotFrame(self.link));
    }

    /// The checkpoint for a snapshot in one frame was read.
    pub(super) fn on_snapshot_frame_read(
        &mut self,
        shared: &mut Shared,
        result: Result<Vec<u8>, StorageFault>,
    ) {
        if !matches!(self.source, Source::Framing) {
            return;
        }
        let cut = shared.history.floor();
        let log = shared.current.log;
        let mut records = Vec::new();
        let decoded = result.and_then(|bytes| {
            let mut reader = CheckpointReader::new(CheckpointLimits::of(log));
            let read = reader.push(&bytes, &mut |item| {
                if let CheckpointItem::Record { view, .. } = item {
                    records.push(view.to_record());
                }
                Ok(())
            });
            let number = shared.current.checkpoint.map_or(0, |c| c.number);
            read.and_then(|()| reader.finish())
                .map_err(|error| error.into_fault(FileName::Checkpoint(number)))
        });
        match decoded {
            Ok(summary) if summary.header.cut == cut => {}
            // A compaction raised the floor meanwhile: begin anew from its checkpoint.
            Ok(_) => {
                self.source = Source::Idle;
                return self.pump_source(shared);
            }
            Err(fault) => return self.read_failed(shared, fault),
        }
        let snapshot = Snapshot { watermark: cut, records };
        if self.peer.ranges {
            return self.send_snapshot_frame(shared, snapshot);
        }
        self.push(shared, Pushed::Snapshot(snapshot));
    }

    fn send_snapshot_frame(&mut self, shared: &mut Shared, snapshot: Snapshot) {
        let mut payload = Vec::new();
        let message = Message::Snapshot(snapshot);
        if crate::wire::message::encode(&message, &shared.config.wire, &mut payload).is_err() {
            let reason = PairReason::SnapshotTooLarge;
            return self.stop(shared, Verdict::Unknown { reason });
        }
        self.send_frame(shared, &payload, None);
    }
}
