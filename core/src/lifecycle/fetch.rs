//! Fetching the blobs that received records need: which pieces to ask for, and what to do with each.
//!
//! Pure bookkeeping for one link. A blob that fits one piece is stored in one step; a larger one is
//! written piece by piece, in order, and committed when all of it was written. A request stays open
//! until its piece was written, and open requests are bounded by their number, so memory is bounded by
//! that number times the longest piece, however slow the disk is. A blob that came in part over
//! another link goes on where that one ended.

use super::partials::Partial;
use crate::limits::PIECE_BYTES_MAX;
use crate::record::BlobKey;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

/// A piece to ask the peer for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct PieceRequest {
    pub(super) key: BlobKey,
    pub(super) offset: u64,
    pub(super) bytes: u32,
}

/// What to do with a piece that came.
#[derive(Debug, Eq, PartialEq)]
pub(super) enum PieceUse {
    /// It is the whole blob: store it.
    Put(Vec<u8>),
    /// Write it at this offset.
    Write(u64, Vec<u8>),
    /// It was asked for, and the blob was stored otherwise meanwhile.
    Late,
    /// What another link left of this blob has another length: begin anew.
    Restart,
}

/// Why a piece was not what was asked for.
#[derive(Debug, Eq, PartialEq)]
pub(super) struct PieceRefused {
    pub(super) expected: &'static str,
}

#[derive(Debug)]
struct Active {
    total: Option<u64>,
    asked: u64,
    received: u64,
    written: u64,
    asked_open: u32,
    /// Pieces that came and are being stored.
    storing: u32,
    /// Another link brought its beginning.
    resumed: bool,
}

/// The blobs one link fetches.
#[derive(Debug, Default)]
pub(super) struct Fetch {
    /// In the order in which they were wanted.
    queue: VecDeque<BlobKey>,
    /// Not stored yet, queued ones included.
    wanted: BTreeSet<BlobKey>,
    active: BTreeMap<BlobKey, Active>,
    /// Answers that will still come for blobs that were stored otherwise.
    late: BTreeMap<BlobKey, u32>,
    /// Large ones that came whole and were not what they should be.
    doubted: BTreeSet<BlobKey>,
    open: u32,
}

impl Fetch {
    /// Wants a blob; wanting it twice is the same.
    pub(super) fn want(&mut self, key: BlobKey) {
        if self.wanted.insert(key) {
            self.queue.push_back(key);
        }
    }

    /// Whether nothing is wanted any more.
    pub(super) fn is_done(&self) -> bool {
        self.wanted.is_empty()
    }

    /// The peer says that it lacks a blob. Whether that leaves us without a blob we want; it is not
    /// asked for again before it is wanted again.
    pub(super) fn absent(&mut self, key: BlobKey) -> bool {
        if self.came_late(key) || !self.wanted.remove(&key) {
            return false;
        }
        self.doubted.remove(&key);
        if let Some(active) = self.active.get_mut(&key) {
            active.asked_open = active.asked_open.saturating_sub(1);
            self.open = self.open.saturating_sub(1);
        }
        self.forget(key);
        true
    }

    /// Begins anew with a blob: what is in the store of it is of no use.
    pub(super) fn restart(&mut self, key: BlobKey) {
        self.forget(key);
        if self.wanted.contains(&key) {
            self.queue.push_front(key);
        }
    }

    /// All pieces of a blob came, and it is not what it should be. Whether the peer is asked for it once
    /// more: for one that passes in several pieces, of which it cannot have seen that itself.
    pub(super) fn doubt(&mut self, key: BlobKey) -> bool {
        let large = |active: &Active| active.total.is_some_and(|total| total > u64::from(PIECE_BYTES_MAX));
        self.active.get(&key).is_some_and(large) && self.doubted.insert(key)
    }

    /// Whether what came of a blob over another link is part of what is in the store of it.
    pub(super) fn resumed(&self, key: BlobKey) -> bool {
        self.active.get(&key).is_some_and(|active| active.resumed)
    }

    /// Whether an answer about `key` is one that nobody waits for any more. Answers come in the order of
    /// the requests, so those come first.
    fn came_late(&mut self, key: BlobKey) -> bool {
        let Some(count) = self.late.get_mut(&key) else { return false };
        *count -= 1;
        if *count == 0 {
            self.late.remove(&key);
        }
        self.open -= 1;
        true
    }

    /// The next piece to ask for while fewer than `open_max` requests are open. `busy` says that
    /// another link fetches the blob: it is left in the queue. `partial` gives what another link left
    /// of it.
    pub(super) fn next(
        &mut self,
        open_max: u32,
        mut busy: impl FnMut(BlobKey) -> bool,
        mut partial: impl FnMut(BlobKey) -> Option<Partial>,
    ) -> Option<PieceRequest> {
        if self.open >= open_max {
            return None;
        }
        let unfinished = self.active.iter_mut().find(|(_, a)| a.total.is_some_and(|total| a.asked < total));
        if let Some((key, active)) = unfinished {
            let request = PieceRequest { key: *key, offset: active.asked, bytes: PIECE_BYTES_MAX };
            active.asked += u64::from(PIECE_BYTES_MAX);
            active.asked_open += 1;
            self.open += 1;
            return Some(request);
        }
        for _ in 0..self.queue.len() {
            let key = self.queue.pop_front()?;
            if !self.wanted.contains(&key) {
                continue;
            }
            if busy(key) {
                self.queue.push_back(key);
                continue;
            }
            let partial = partial(key);
            let offset = partial.map_or(0, |partial| partial.resume_at());
            let total = partial.filter(|_| offset > 0).map(|partial| partial.total);
            let active = Active {
                total,
                asked: offset + u64::from(PIECE_BYTES_MAX),
                received: offset,
                written: offset,
                asked_open: 1,
                storing: 0,
                resumed: offset > 0,
            };
            self.active.insert(key, active);
            self.open += 1;
            return Some(PieceRequest { key, offset, bytes: PIECE_BYTES_MAX });
        }
        None
    }

    /// Takes a piece that came. Pieces of one blob must come in the order they were asked for.
    pub(super) fn piece(
        &mut self,
        key: BlobKey,
        offset: u64,
        total: u64,
        data: Vec<u8>,
    ) -> Result<PieceUse, PieceRefused> {
        let refused = |expected| Err(PieceRefused { expected });
        if self.came_late(key) {
            return Ok(PieceUse::Late);
        }
        let Some(active) = self.active.get_mut(&key) else {
            return refused("a piece that was asked for");
        };
        if active.asked_open == 0 || active.received != offset {
            return refused("the pieces of a blob in the order they were asked for");
        }
        if active.total.is_some_and(|known| known != total) {
            if active.resumed && active.written == active.received {
                active.asked_open -= 1;
                self.open -= 1;
                return Ok(PieceUse::Restart);
            }
            return refused("one length for one blob");
        }
        let rest = total.saturating_sub(offset);
        if data.len() as u64 != rest.min(u64::from(PIECE_BYTES_MAX)) {
            return refused("as many bytes as were asked for, or all that are left");
        }
        active.asked_open -= 1;
        active.storing += 1;
        active.total = Some(total);
        active.received = offset + data.len() as u64;
        if offset == 0 && active.received == total {
            return Ok(PieceUse::Put(data));
        }
        Ok(PieceUse::Write(offset, data))
    }

    /// A piece was written; true when all of the blob was, so that it can be committed.
    pub(super) fn written(&mut self, key: BlobKey, bytes: u64) -> Option<u64> {
        let active = self.active.get_mut(&key).filter(|active| active.storing > 0)?;
        active.written += bytes;
        active.storing -= 1;
        self.open -= 1;
        active.total.filter(|total| active.written == *total)
    }

    /// The blob is stored, by this link or otherwise.
    pub(super) fn stored(&mut self, key: BlobKey) {
        self.wanted.remove(&key);
        self.doubted.remove(&key);
        self.forget(key);
    }

    /// Gives up what was asked for `key`, to ask again later.
    fn forget(&mut self, key: BlobKey) {
        if let Some(active) = self.active.remove(&key) {
            self.open -= active.storing;
            if active.asked_open > 0 {
                *self.late.entry(key).or_default() += active.asked_open;
            }
        }
    }

    /// Wants nothing any more; answers that still come are refused as not asked for. What came in part
    /// is left to another link.
    pub(super) fn clear(&mut self) -> Vec<(BlobKey, Partial)> {
        let part = |(key, active): (&BlobKey, &Active)| {
            let total = active.total.filter(|_| active.received > 0)?;
            Some((*key, Partial { total, received: active.received }))
        };
        let parts = self.active.iter().filter_map(part).collect();
        *self = Self::default();
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const PIECE: u64 = PIECE_BYTES_MAX as u64;

    fn key(n: u8) -> BlobKey {
        BlobKey([n; 32])
    }

    #[test]
    fn a_small_blob_is_one_request_and_one_put() {
        let mut fetch = Fetch::default();
        fetch.want(key(1));
        fetch.want(key(1));
        assert_eq!(fetch.wanted.len(), 1);
        let request = fetch.next(4, |_| false, |_| None).expect("wanted");
        assert_eq!((request.offset, request.key), (0, key(1)));
        assert_eq!(fetch.piece(key(1), 0, 3, vec![1, 2, 3]), Ok(PieceUse::Put(vec![1, 2, 3])));
        fetch.stored(key(1));
        assert!(fetch.is_done() && fetch.next(4, |_| false, |_| None).is_none());
    }

    #[test]
    fn an_empty_blob_is_a_put_of_nothing() {
        let mut fetch = Fetch::default();
        fetch.want(key(1));
        let _ = fetch.next(4, |_| false, |_| None);
        assert_eq!(fetch.piece(key(1), 0, 0, vec![]), Ok(PieceUse::Put(vec![])));
    }

    #[test]
    fn a_large_blob_is_written_in_pieces_and_committed_once() {
        let mut fetch = Fetch::default();
        fetch.want(key(1));
        let total = 2 * PIECE + 5;
        assert_eq!(fetch.next(2, |_| false, |_| None).map(|r| r.offset), Some(0));
        assert_eq!(fetch.next(2, |_| false, |_| None), None, "its length is not known yet");
        let first = fetch.piece(key(1), 0, total, vec![0; PIECE as usize]);
        assert!(matches!(first, Ok(PieceUse::Write(0, _))));
        assert_eq!(fetch.next(2, |_| false, |_| None).map(|r| r.offset), Some(PIECE));
        assert_eq!(fetch.next(2, |_| false, |_| None), None, "the first piece is not written yet");
        assert_eq!(fetch.written(key(1), PIECE), None);
        assert_eq!(fetch.next(2, |_| false, |_| None).map(|r| r.offset), Some(2 * PIECE));
        assert_eq!(fetch.next(2, |_| false, |_| None), None);
        assert!(fetch.piece(key(1), PIECE, total, vec![0; PIECE as usize]).is_ok());
        assert!(fetch.piece(key(1), 2 * PIECE, total, vec![0; 5]).is_ok());
        assert_eq!(fetch.written(key(1), PIECE), None);
        assert_eq!(fetch.written(key(1), 5), Some(total));
    }

    #[test]
    fn pieces_of_a_blob_that_was_stored_otherwise_come_late() {
        let mut fetch = Fetch::default();
        fetch.want(key(1));
        let _ = fetch.next(1, |_| false, |_| None);
        fetch.stored(key(1));
        fetch.want(key(2));
        assert_eq!(fetch.next(1, |_| false, |_| None), None, "its answer still has to come");
        assert_eq!(fetch.piece(key(1), 0, 1, vec![1]), Ok(PieceUse::Late));
        assert!(fetch.piece(key(1), 0, 1, vec![1]).is_err(), "it was asked for once");
        assert!(fetch.next(1, |_| false, |_| None).is_some());
        assert!(fetch.absent(key(2)));
    }

    #[test]
    fn a_blob_that_came_in_part_goes_on_where_it_ended() {
        let total = 3 * PIECE + 5;
        let mut first = Fetch::default();
        first.want(key(1));
        let _ = first.next(4, |_| false, |_| None);
        assert!(first.piece(key(1), 0, total, vec![0; PIECE as usize]).is_ok());
        let _ = first.next(4, |_| false, |_| None);
        assert!(first.piece(key(1), PIECE, total, vec![0; PIECE as usize]).is_ok());
        let left = first.clear();
        let partial = Partial { total, received: 2 * PIECE };
        assert_eq!(left, [(key(1), partial)]);

        let mut second = Fetch::default();
        second.want(key(1));
        assert_eq!(second.next(4, |_| false, |_| Some(partial)).map(|r| r.offset), Some(2 * PIECE));
        assert_eq!(second.next(4, |_| false, |_| None).map(|r| r.offset), Some(3 * PIECE));
        assert!(second.piece(key(1), 2 * PIECE, total, vec![0; PIECE as usize]).is_ok());
        assert!(second.piece(key(1), 3 * PIECE, total, vec![0; 5]).is_ok());
        assert_eq!(second.written(key(1), PIECE), None);
        assert_eq!(second.written(key(1), 5), Some(total));
    }

    #[test]
    fn a_part_of_another_length_is_no_fault_of_this_peer() {
        let mut fetch = Fetch::default();
        fetch.want(key(1));
        let partial = Partial { total: 9 * PIECE, received: 4 * PIECE };
        let _ = fetch.next(1, |_| false, |_| Some(partial));
        let piece = fetch.piece(key(1), 4 * PIECE, 5 * PIECE, vec![0; PIECE as usize]);
        assert_eq!(piece, Ok(PieceUse::Restart));
        fetch.restart(key(1));
        assert_eq!(fetch.next(1, |_| false, |_| None).map(|r| r.offset), Some(0));
        assert_eq!(fetch.next(1, |_| false, |_| None), None, "one request is open");
    }

    #[test]
    fn a_blob_that_the_peer_lacks_is_not_asked_for_again() {
        let mut fetch = Fetch::default();
        fetch.want(key(1));
        let _ = fetch.next(1, |_| false, |_| None);
        assert!(fetch.absent(key(1)) && fetch.is_done());
        assert_eq!(fetch.next(1, |_| false, |_| None), None);
        assert!(!fetch.absent(key(1)), "nobody wants it");
        fetch.want(key(1));
        assert!(fetch.next(1, |_| false, |_| None).is_some());
    }

    #[test]
    fn refused_pieces() {
        let mut fetch = Fetch::default();
        assert!(fetch.piece(key(1), 0, 1, vec![1]).is_err(), "not asked for");
        fetch.want(key(1));
        let _ = fetch.next(4, |_| false, |_| None);
        assert!(fetch.piece(key(1), 9, 10, vec![1]).is_err(), "another offset");
        assert!(fetch.piece(key(1), 0, 10, vec![1]).is_err(), "too short");
        assert!(fetch.piece(key(1), 0, 1, vec![1, 2]).is_err(), "too long");
        assert!(fetch.piece(key(1), 0, 1, vec![1]).is_ok());
    }

    #[test]
    fn only_what_came_in_several_pieces_is_doubted_and_once() {
        let mut fetch = Fetch::default();
        for (n, total) in [(1, PIECE), (2, PIECE + 1)] {
            fetch.want(key(n));
            let _ = fetch.next(4, |_| false, |_| None);
            fetch.piece(key(n), 0, total, vec![n; PIECE as usize]).expect("was asked for");
        }
        assert!(!fetch.doubt(key(1)) && fetch.doubt(key(2)) && !fetch.doubt(key(2)));
        fetch.stored(key(2));
        assert!(!fetch.doubt(key(2)), "nobody wants it");
    }

    #[test]
    fn a_blob_that_another_link_fetches_waits_in_the_queue() {
        let mut fetch = Fetch::default();
        fetch.want(key(1));
        fetch.want(key(2));
        assert_eq!(fetch.next(4, |k| k == key(1), |_| None).map(|r| r.key), Some(key(2)));
        assert_eq!(fetch.next(4, |k| k == key(1), |_| None), None);
        assert_eq!(fetch.next(4, |_| false, |_| None).map(|r| r.key), Some(key(1)));
    }
}
