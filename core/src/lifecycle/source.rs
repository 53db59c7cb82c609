//! The sending side of a link: plan, blobs ahead where the peer cannot ask for them, send, wait for
//! the durable acknowledgement, and on and on as records arrive and across compactions.

use super::api::{CloseReason, Event, PairReason, PeerFaultKind};
use super::checkpoint_read::{CheckpointItem, CheckpointLimits, CheckpointReader};
use super::command::BlobCommand;
use super::entry::ENTRY_RECORD;
use super::membership::MemberInput;
use super::session::Session;
use super::shared::{LinkPurpose, ReadFor, Shared};
use crate::error::StorageFault;
use crate::id::Lsn;
use crate::journal::command::FileName;
use crate::journal::current::CheckpointRef;
use crate::journal::read::{EntryReader, ReadRequest};
use crate::limits::PIECE_BYTES_MAX;
use crate::record::{BlobKey, RecordView, State, Version};
use crate::time::Instant;
use crate::verdict::Verdict;
use crate::wire::batch_builder::BatchBuilder;
use crate::wire::message::Message;
use crate::wire::own::{OwnMessage, SnapshotChunk, SnapshotGet, SnapshotOffer};
use crate::wire::repair::Snapshot;
use alloc::collections::BTreeSet;
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
    /// A batch or snapshot frame is out.
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
    blobs: BTreeSet<BlobKey>,
}

/// What a read for a plan brought beyond the batch it was made for: at most `read_bytes_max`.
#[derive(Debug)]
pub(super) struct ReadAhead {
    request: ReadRequest,
    bytes: Vec<u8>,
}

impl ReadAhead {
    /// Whether it holds the first byte that `request` asks for. Segments are never written anew, so
    /// what was read stays what is there.
    fn covers(&self, request: &ReadRequest) -> bool {
        let end = self.request.offset + u64::from(self.request.bytes);
        self.request.file == request.file && (self.request.offset..end).contains(&request.offset)
    }
}

/// A frame that waits until the blobs it needs were acknowledged.
#[derive(Debug)]
pub(super) struct Push {
    payload: Vec<u8>,
    blobs: Vec<BlobKey>,
}

/// A snapshot that the peer reads.
#[derive(Debug)]
pub(super) struct Serving {
    checkpoint: CheckpointRef,
    cut: Version,
    pub(super) until: Instant,
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
            self.read_ahead = None;
            if self.synced != Some(tail) && !tail.is_zero() {
                self.synced = Some(tail);
                shared.out.event(Event::Synced { link: self.link, tail });
            }
            return;
        }
        if shared.halted.is_some() || !self.has_room(shared) || self.comparing() {
            return;
        }
        if self.evidence.rests(shared.now.mono) {
            shared.blocked.insert(self.link);
            return;
        }
        if shared.too_late_to_count(&self.peer.identity, self.acked.max(floor)) {
            return;
        }
        if self.acked < floor {
            return self.begin_snapshot(shared);
        }
        self.begin_plan(shared);
    }

    fn begin_plan(&mut self, shared: &mut Shared) {
        let Some((from, _)) = shared.history.first_after(self.acked) else { return };
        let Some(through) = shared.history.lsn_of(shared.history.tail()) else { return };
        // From here on the journal above what the peer has is needed: it counts at that.
        let acked = self.acked;
        shared.member_reads(&self.peer.identity, acked);
        self.source = Source::Planning(Plan {
            reader: EntryReader::new(from, through),
            builder: BatchBuilder::new(self.acked, shared.config.wire.repair),
            through,
            last: None,
            blobs: BTreeSet::new(),
        });
        self.continue_plan(shared);
    }

    fn continue_plan(&mut self, shared: &mut Shared) {
        let Source::Planning(plan) = &self.source else { return };
        let bytes_max = shared.config.journal.read_bytes_max;
        match plan.reader.request(shared.journal.index(), bytes_max) {
            // A read holds many batches for a peer: what it brought is used up before the next.
            Ok(Some(request)) => match self.read_ahead.take_if(|ahead| ahead.covers(&request)) {
                Some(ahead) => self.on_plan_read(shared, ahead.request, Ok(ahead.bytes)),
                None => {
                    let purpose = ReadFor::Plan(self.link, request);
                    shared.read(request.file, request.offset, request.bytes, purpose);
                }
            },
            Ok(None) => self.finish_plan(shared),
            // A compaction took the entries: begin anew, from the snapshot.
            Err(_) => {
                self.source = Source::Idle;
                self.pump_source(shared);
            }
        }
    }

    /// Entries for the plan were read.
    pub(super) fn on_plan_read(
        &mut self,
        shared: &mut Shared,
        request: ReadRequest,
        result: Result<Vec<u8>, StorageFault>,
    ) {
        let Source::Planning(plan) = &mut self.source else { return };
        let mut full = false;
        let mut bad = None;
        let accepted = result.and_then(|bytes| {
            let visited = plan.reader.accept(&request, &bytes, &mut |lsn, kind, entry| {
                if kind != ENTRY_RECORD {
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
                if let State::Present { blob } = record.state {
                    plan.blobs.insert(blob);
                }
                ControlFlow::Continue(())
            });
            let keep = full && bytes.len() as u64 <= u64::from(shared.config.journal.read_bytes_max);
            self.read_ahead = keep.then_some(ReadAhead { request, bytes });
            visited
        });
        match (accepted, bad) {
            (Ok(()), None) if full => self.finish_plan(shared),
            (Ok(()), None) => self.continue_plan(shared),
            (Ok(()), Some(detail)) => {
                let fault = StorageFault::damaged(request.file, request.offset, detail);
                self.read_failed(shared, fault);
            }
            (Err(fault), _) => {
                if plan.reader.request(shared.journal.index(), 1).is_err() {
                    self.source = Source::Idle;
                    return self.pump_source(shared);
                }
                self.read_failed(shared, fault);
            }
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
        if let Some(to) = shared.history.version_at(last) {
            self.evidence.sends(to);
        }
        let mut payload = Vec::new();
        if let Err(error) = plan.builder.finish(more, &mut payload) {
            unreachable!("every record of the batch was found to fit: {error}");
        }
        self.send_with_blobs(shared, payload, plan.blobs);
    }

    /// Sends a frame, its blobs ahead where the peer cannot ask for them itself.
    fn send_with_blobs(&mut self, shared: &mut Shared, payload: Vec<u8>, blobs: BTreeSet<BlobKey>) {
        if self.peer.ranges || blobs.is_empty() {
            self.send_payload(shared, &payload);
            self.source = Source::Sent;
            return;
        }
        self.source = Source::Pushing(Push { payload, blobs: blobs.into_iter().rev().collect() });
        self.pump_push(shared);
    }

    /// Reads the next blobs to push while there is room, and sends the frame when all are
    /// acknowledged.
    pub(super) fn pump_push(&mut self, shared: &mut Shared) {
        let open_max = shared.config.blob_requests_max as usize;
        let room = self.has_room(shared);
        let Source::Pushing(push) = &mut self.source else { return };
        let mut reads = Vec::new();
        while room && self.pushed.len() < open_max {
            let Some(key) = push.blobs.pop() else { break };
            self.pushed.insert(key);
            reads.push(key);
        }
        let done = push.blobs.is_empty() && self.pushed.is_empty();
        let payload = if done { core::mem::take(&mut push.payload) } else { Vec::new() };
        for key in reads {
            self.read_whole(shared, key);
        }
        if done {
            self.send_payload(shared, &payload);
            self.source = Source::Sent;
        }
    }

    /// Reads a whole blob for the peer: one byte more than it may have tells that it is too large.
    pub(super) fn read_whole(&mut self, shared: &mut Shared, key: BlobKey) {
        self.serving += 1;
        let bytes_max = super::session::blob_put_bytes_max(&shared.config) + 1;
        shared.blob(self.link, LinkPurpose::ServeWhole(key), |ticket| BlobCommand::Read {
            ticket,
            key,
            offset: 0,
            bytes_max,
        });
    }

    /// A blob that a record of the frame needs cannot be sent.
    pub(super) fn push_failed(&mut self, shared: &mut Shared, reason: PairReason) {
        self.stop(shared, Verdict::Unknown { reason });
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
        shared.pin(checkpoint.number);
        let until = shared.now.mono.after_ms(shared.config.snapshot_pin_ms);
        self.source = Source::Snapshot(Serving { checkpoint, cut, until });
        let offer = SnapshotOffer {
            cut,
            cut_digest: shared.opaque.chained.then(|| shared.history.floor_digest()),
            bytes: checkpoint.bytes,
            sha256: checkpoint.sha256,
            records: shared.opaque.checkpoint_records,
        };
        self.send_own(shared, OwnMessage::SnapshotOffer(offer));
    }

    /// The peer asks for a piece of the snapshot.
    pub(super) fn on_snapshot_get(&mut self, shared: &mut Shared, get: SnapshotGet) {
        let SnapshotGet { sha256, offset } = get;
        let Source::Snapshot(serving) = &mut self.source else {
            if matches!(self.source, Source::Idle | Source::Planning(_) | Source::Framing | Source::Sent) {
                // Its pin ran out, or the peer asked again after it had all: offer anew if needed.
                return self.pump_source(shared);
            }
            let found = alloc::format!("a request at {offset}");
            return self.fault(
                shared,
                PeerFaultKind::Sequence,
                "requests for a snapshot that was offered",
                found,
            );
        };
        if serving.checkpoint.sha256 != sha256 || offset >= serving.checkpoint.bytes {
            let expected = alloc::format!("an offset below {} of the offer", serving.checkpoint.bytes);
            return self.fault(shared, PeerFaultKind::Snapshot, expected, alloc::format!("{offset}"));
        }
        self.serving += 1;
        serving.until = shared.now.mono.after_ms(shared.config.snapshot_pin_ms);
        let file = FileName::Checkpoint(serving.checkpoint.number);
        shared.read(
            file,
            offset,
            PIECE_BYTES_MAX,
            ReadFor::SnapshotPiece(self.link, offset, self.pieces.ask()),
        );
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

    /// The peer's acknowledgement was accepted: what was out is settled.
    pub(super) fn source_acked(&mut self, shared: &mut Shared, version: Version) {
        match &self.source {
            Source::Waiting | Source::Sent => self.source = Source::Idle,
            Source::Snapshot(serving) if version >= serving.cut => {
                self.drop_source(shared);
                self.source = Source::Idle;
            }
            Source::Off
            | Source::Idle
            | Source::Planning(_)
            | Source::Framing
            | Source::Pushing(_)
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
    }

    /// The pin of a snapshot whose peer asked for nothing runs out.
    pub(super) fn expire_snapshot(&mut self, shared: &mut Shared) {
        let expired = matches!(&self.source, Source::Snapshot(s) if s.until <= shared.now.mono);
        if expired {
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
        let blobs = records.iter().filter_map(|r| match r.state {
            State::Present { blob } => Some(blob),
            State::Deleted => None,
        });
        let blobs = blobs.collect();
        let message = Message::Snapshot(Snapshot { watermark: cut, records });
        let mut payload = Vec::new();
        if crate::wire::message::encode(&message, &shared.config.wire, &mut payload).is_err() {
            let reason = PairReason::SnapshotTooLarge;
            return self.stop(shared, Verdict::Unknown { reason });
        }
        self.send_with_blobs(shared, payload, blobs);
    }
}
