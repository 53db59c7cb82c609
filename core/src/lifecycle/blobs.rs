//! Blobs over a link: asked for in pieces between Strandline peers, sent whole ahead of the records
//! that need them to peers that cannot ask.

use super::api::{CloseReason, PairReason, PeerFaultKind};
use super::command::{BlobCommand, BlobPiece, Stored};
use super::fetch::{PieceRefused, PieceUse};
use super::questions::Question;
use super::session::Session;
use super::shared::{LinkPurpose, Shared};
use super::source::Source;
use crate::error::{StorageCause, StorageFault};
use crate::record::BlobKey;
use crate::wire::blob::{BlobMessage, PeerKey};
use crate::wire::message::Message;
use crate::wire::own::{BlobRange, BlobRangeGet, OwnMessage};
use alloc::string::ToString;
use alloc::vec::Vec;

/// Most bytes of blobs that one request for whole blobs is answered with. From the reference.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// Only SHA-256 keys, verified, exist for us.
fn ours(key: &PeerKey) -> Option<BlobKey> {
    match key {
        PeerKey::Blob(key) => Some(*key),
        PeerKey::Foreign(_) => None,
    }
}

impl Session {
    /// Asks for the next pieces while there is room.
    pub(super) fn pump_fetch(&mut self, shared: &mut Shared) {
        if self.down {
            return;
        }
        if !self.peer.ranges {
            return self.ask_whole(shared);
        }
        let link = self.link;
        loop {
            let Shared { fetching, partials, config, .. } = &mut *shared;
            let busy = |key| fetching.get(&key).is_some_and(|other| *other != link);
            let partial = |key| partials.take(key);
            let Some(request) = self.fetch.next(config.blob_requests_max, busy, partial) else { break };
            shared.fetching.insert(request.key, link);
            let (key, offset, bytes) = (request.key, request.offset, u64::from(request.bytes));
            self.send_own(shared, OwnMessage::BlobRangeGet(BlobRangeGet { key, offset, bytes }));
        }
    }

    /// Asks a peer without pieces for whole blobs, all that are wanted at once.
    fn ask_whole(&mut self, shared: &mut Shared) {
        while let Some(request) = self.fetch.next(shared.config.wire.blob.keys_max, |_| false, |_| None) {
            self.send(shared, &Message::Blob(BlobMessage::Get { key: request.key.into() }));
        }
    }

    /// Gives up what is being fetched; another link may go on with it.
    pub(super) fn drop_fetch(&mut self, shared: &mut Shared) {
        let link = self.link;
        shared.fetching.retain(|_, fetches| *fetches != link);
        for (key, partial) in self.fetch.clear() {
            shared.keep_partial(key, partial);
        }
    }

    /// The peer asks for a piece.
    pub(super) fn on_piece_get(&mut self, shared: &mut Shared, get: BlobRangeGet) {
        let BlobRangeGet { key, offset, bytes } = get;
        self.renew_pin(shared);
        let most = crate::limits::PIECE_BYTES_MAX;
        let bytes_max = u32::try_from(bytes).unwrap_or(most).min(most);
        self.ask_piece(shared, Question::Blob { key, offset, bytes_max });
    }

    /// A piece was read for the peer.
    pub(super) fn on_serve_piece(
        &mut self,
        shared: &mut Shared,
        key: BlobKey,
        offset: u64,
        place: u64,
        result: Result<Option<BlobPiece>, StorageFault>,
    ) {
        match result {
            Ok(Some(piece)) if offset > piece.total => {
                let expected = alloc::format!("an offset within the {} bytes of {key}", piece.total);
                self.fault(shared, PeerFaultKind::Blob, expected, offset.to_string());
            }
            // Damage that no scrub found yet: the peer does not have to find out.
            Ok(Some(piece)) if offset == 0 && self.is_damaged(shared, key, &piece) => {
                self.answer_piece(shared, place, OwnMessage::BlobAbsent { key });
            }
            Ok(Some(piece)) => {
                if offset == 0 && !piece.is_whole() {
                    self.begun.sent(key);
                }
                let (total, data) = (piece.total, piece.bytes);
                self.answer_piece(
                    shared,
                    place,
                    OwnMessage::BlobRange(BlobRange { key, offset, total, data }),
                );
            }
            Ok(None) => self.answer_piece(shared, place, OwnMessage::BlobAbsent { key }),
            Err(fault) => self.read_failed(shared, fault),
        }
    }

    /// Sends the answers whose turn it is.
    pub(super) fn answer_piece(&mut self, shared: &mut Shared, place: u64, message: OwnMessage) {
        self.serving -= 1;
        self.pieces.answer(place, message);
        self.send_answers(shared);
        self.pump_questions(shared);
    }

    /// Queues the answers whose turn it is.
    pub(super) fn send_answers(&mut self, shared: &mut Shared) {
        while let Some(message) = self.pieces.next() {
            self.send_data(shared, &Message::Own(message));
        }
    }

    /// A piece came.
    pub(super) fn on_piece(&mut self, shared: &mut Shared, piece: BlobRange) {
        let BlobRange { key, offset, total, data } = piece;
        if self.is_stopped() {
            return;
        }
        let link = self.link;
        match self.fetch.piece(key, offset, total, data) {
            Ok(PieceUse::Put(bytes)) => {
                shared.blob(link, LinkPurpose::PutFetched(key), |ticket| BlobCommand::Put {
                    ticket,
                    key,
                    bytes,
                });
            }
            Ok(PieceUse::Write(offset, bytes)) => {
                let purpose = LinkPurpose::WriteFetched(key, bytes.len() as u64);
                shared.blob(link, purpose, |ticket| BlobCommand::Write { ticket, key, offset, bytes });
            }
            Ok(PieceUse::Late) => {}
            Ok(PieceUse::Restart) => self.fetch.restart(key),
            Err(PieceRefused { expected }) => {
                let found = alloc::format!("a piece of {key} at {offset} of {total}");
                return self.fault(shared, PeerFaultKind::Blob, expected, found);
            }
        }
        self.pump_fetch(shared);
    }

    /// A piece was written.
    pub(super) fn on_piece_written(
        &mut self,
        shared: &mut Shared,
        key: BlobKey,
        bytes: u64,
        result: Result<(), StorageFault>,
    ) {
        match result {
            Ok(()) => {}
            // The store let go of what came before: begin anew.
            Err(fault) if fault.cause == StorageCause::Missing => {
                self.fetch.restart(key);
                return self.pump_fetch(shared);
            }
            Err(fault) => return self.close(shared, CloseReason::Storage(fault)),
        }
        if let Some(total) = self.fetch.written(key, bytes) {
            shared.blob(self.link, LinkPurpose::CommitFetched(key), |ticket| BlobCommand::Commit {
                ticket,
                key,
                total,
            });
        }
        self.pump_fetch(shared);
    }

    /// A fetched blob is stored, or its bytes are not what the key says. Returns whether it is.
    pub(super) fn on_fetched(
        &mut self,
        shared: &mut Shared,
        key: BlobKey,
        result: Result<Stored, StorageFault>,
    ) -> bool {
        // Another link may be writing pieces of the same blob: its claim stays.
        if shared.fetching.get(&key) == Some(&self.link) {
            shared.fetching.remove(&key);
        }
        let resumed = self.fetch.resumed(key);
        match result {
            Ok(Stored::Stored) => true,
            // A part of it came over another link, so that it is no fault of this peer's.
            Ok(Stored::Mismatch) if resumed => {
                self.fetch.restart(key);
                self.pump_fetch(shared);
                false
            }
            Err(fault) if resumed && fault.cause == StorageCause::Missing => {
                self.fetch.restart(key);
                self.pump_fetch(shared);
                false
            }
            // It may not know yet: it looks when it is asked once more.
            Ok(Stored::Mismatch) if self.fetch.doubt(key) => {
                self.fetch.restart(key);
                self.pump_fetch(shared);
                false
            }
            Ok(Stored::Mismatch) => {
                let expected = alloc::format!("bytes whose SHA-256 is {key}");
                self.fault(shared, PeerFaultKind::Blob, expected, "other bytes");
                false
            }
            Err(fault) => {
                self.close(shared, CloseReason::Storage(fault));
                false
            }
        }
    }

    /// A peer sends a whole blob, ahead of the record that needs it or because we asked.
    pub(super) fn on_blob_put(&mut self, shared: &mut Shared, key: &PeerKey, data: Vec<u8>) {
        let Some(key) = ours(key) else {
            shared.loose_records += 1;
            return;
        };
        self.unasked += 1;
        shared.blob(self.link, LinkPurpose::PutOffered(key), |ticket| BlobCommand::Put {
            ticket,
            key,
            bytes: data,
        });
    }

    /// A whole blob from the peer was stored, or not. Returns whether it was.
    pub(super) fn on_put_offered(
        &mut self,
        shared: &mut Shared,
        key: BlobKey,
        result: Result<Stored, StorageFault>,
    ) -> bool {
        self.unasked -= 1;
        let stored = self.on_fetched(shared, key, result);
        if stored {
            self.send(shared, &Message::Blob(BlobMessage::Ack { key: key.into() }));
        }
        stored
    }

    /// A peer says which blobs it has: we answer which of them we lack, or nothing.
    pub(super) fn on_blob_has(&mut self, shared: &mut Shared, keys: &[PeerKey]) {
        let keys: Vec<BlobKey> = keys.iter().filter_map(ours).collect();
        if keys.is_empty() || !self.takes(shared) {
            return;
        }
        self.unasked += 1;
        shared.blob(self.link, LinkPurpose::StatOffered(keys.clone()), |ticket| BlobCommand::Stat {
            ticket,
            keys,
        });
    }

    /// The blob store said which of the peer's blobs we have.
    pub(super) fn on_stat_offered(
        &mut self,
        shared: &mut Shared,
        keys: &[BlobKey],
        result: Result<Vec<Option<u64>>, StorageFault>,
    ) {
        self.unasked -= 1;
        let lengths = match result {
            Ok(lengths) => lengths,
            Err(fault) => return self.close(shared, CloseReason::Storage(fault)),
        };
        let missing = keys.iter().zip(&lengths).filter(|(_, length)| length.is_none());
        let keys: Vec<PeerKey> = missing.map(|(key, _)| (*key).into()).collect();
        if !keys.is_empty() {
            self.send(shared, &Message::Blob(BlobMessage::Missing { keys }));
        }
    }

    /// A peer asks for whole blobs.
    pub(super) fn on_blob_wanted(&mut self, shared: &mut Shared, keys: &[PeerKey]) {
        if self.serve_queue.len() + keys.len() > shared.config.wire.blob.keys_max as usize {
            let expected =
                alloc::format!("at most {} blobs asked for at once", shared.config.wire.blob.keys_max);
            return self.fault(shared, PeerFaultKind::Limit, expected, keys.len().to_string());
        }
        self.requests += 1;
        let request = self.requests;
        self.serve_queue.extend(keys.iter().filter_map(ours).map(|key| (request, key)));
        self.pump_serve(shared);
    }

    /// Reads the next whole blobs that were asked for while there is room.
    pub(super) fn pump_serve(&mut self, shared: &mut Shared) {
        while self.serving < shared.config.blob_requests_max
            && !self.serve_queue.is_empty()
            && self.has_room(shared)
        {
            let Some((request, key)) = self.serve_queue.pop_front() else { break };
            self.read_whole(shared, key, Some(request));
        }
    }

    /// A whole blob was read for the peer.
    pub(super) fn on_serve_whole(
        &mut self,
        shared: &mut Shared,
        key: BlobKey,
        request: Option<u64>,
        result: Result<Option<BlobPiece>, StorageFault>,
    ) {
        self.serving -= 1;
        let needed = self.pushed.contains(&key);
        match result {
            Ok(Some(piece)) if self.is_damaged(shared, key, &piece) => {
                if needed {
                    self.push_failed(shared, key, PairReason::BlobMissing);
                }
            }
            Ok(Some(piece))
                if piece.total <= u64::from(super::session::blob_put_bytes_max(&shared.config)) =>
            {
                if request.is_none_or(|request| self.may_answer(request, piece.total)) {
                    let data = piece.bytes;
                    self.send_data(shared, &Message::Blob(BlobMessage::Put { key: key.into(), data }));
                }
            }
            Ok(Some(_)) if needed => self.push_failed(shared, key, PairReason::BlobTooLarge),
            Ok(None) if needed => self.push_failed(shared, key, PairReason::BlobMissing),
            // Asked for and not to be had: the reference's peers take silence as an answer.
            Ok(Some(_) | None) => {}
            Err(fault) => return self.read_failed(shared, fault),
        }
        self.pump_serve(shared);
        self.pump_questions(shared);
    }

    /// Whether a request for whole blobs may get so many bytes more. What it does not get the peer asks
    /// for again.
    fn may_answer(&mut self, request: u64, bytes: u64) -> bool {
        if self.answering.0 < request {
            self.answering = (request, 0);
        }
        self.answering.1 += bytes;
        self.answering.1 <= ANSWER_BYTES_MAX
    }

    /// A peer has stored a whole blob.
    pub(super) fn on_blob_ack(&mut self, shared: &mut Shared, key: &PeerKey) {
        if let Some(key) = ours(key)
            && self.pushed.remove(&key)
            && matches!(self.source, Source::Pushing(_))
        {
            self.pump_push(shared);
        }
    }
}
