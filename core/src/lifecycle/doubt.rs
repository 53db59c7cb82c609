//! Blobs that are not what was stored, as a peer that got one finds out: it asks for it once more, and then
//! the blob store looks before anything of it is sent again.
//!
//! A large blob passes in pieces, none of which shows by itself that it is damaged.

use super::blob_work::BlobPurpose;
use super::command::{BlobCommand, BlobPiece, Checked};
use super::session::Session;
use super::shared::{Commit, LinkPurpose, Purpose, Shared};
use crate::error::StorageFault;
use crate::id::LinkId;
use crate::record::BlobKey;
use crate::wire::own::OwnMessage;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

/// Blobs of which one link remembers that it sent their beginning: more than a peer may ask for at once.
const BEGUN_MAX: usize = 64;

/// The large blobs whose beginning a link sent last.
#[derive(Debug, Default)]
pub(super) struct Begun(VecDeque<BlobKey>);

impl Begun {
    /// The first of several pieces of a blob was sent.
    pub(super) fn sent(&mut self, key: BlobKey) {
        if self.0.len() == BEGUN_MAX {
            self.0.pop_front();
        }
        self.0.push_back(key);
    }

    /// The peer asks for the beginning of a blob. Whether it got that before: what it made of the pieces
    /// was of no use.
    pub(super) fn again(&mut self, key: BlobKey) -> bool {
        let at = self.0.iter().position(|begun| *begun == key);
        at.is_some_and(|at| self.0.remove(at).is_some())
    }
}

/// Blobs in doubt, and the questions about them that wait for an answer.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    waiting: BTreeMap<BlobKey, Vec<(LinkId, u64)>>,
    /// Those that the blob store looks at.
    checking: BTreeSet<BlobKey>,
}

impl Doubts {
    /// Whether nothing is in doubt.
    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }
}

impl Shared {
    /// A blob may be damaged. The question of `link` at `place`, if there is one, is answered once that
    /// is known.
    pub(super) fn doubt(&mut self, key: BlobKey, question: Option<(LinkId, u64)>) {
        self.doubts.waiting.entry(key).or_default().extend(question);
        self.check_doubts();
    }

    /// Lets the blob store look at what is in doubt, as soon as a crash would not forget what it finds.
    pub(super) fn check_doubts(&mut self) {
        if self.doubts.is_empty() || self.halted.is_some() || self.committing.is_some() {
            return;
        }
        if !self.opaque.wanting {
            if self.fencing.is_none() {
                let (current, mut opaque) = (self.current.clone(), self.opaque.clone());
                opaque.wanting = true;
                self.save_current(Commit::Scrub, current, opaque);
            }
            return;
        }
        let Self { doubts: Doubts { waiting, checking }, out, .. } = self;
        for key in waiting.keys().copied().filter(|key| checking.insert(*key)) {
            let purpose = Purpose::Blobs(BlobPurpose::Doubt(key));
            out.command(purpose, |ticket| BlobCommand::Verify { ticket, key });
        }
    }

    /// The blob store has looked. Who waits for an answer, and whether there is a blob to answer with.
    pub(super) fn on_doubt_checked(
        &mut self,
        key: BlobKey,
        result: Result<Checked, StorageFault>,
    ) -> (Vec<(LinkId, u64)>, Result<bool, StorageFault>) {
        self.doubts.checking.remove(&key);
        let waiting = self.doubts.waiting.remove(&key).unwrap_or_default();
        let sound = result.map(|checked| match checked {
            Checked::Sound { .. } => true,
            Checked::Missing | Checked::Damaged => false,
        });
        if sound == Ok(false) {
            self.blob_lost(key);
        }
        (waiting, sound)
    }
}

impl Session {
    /// Reads a piece for the peer, whose question is at `place`.
    pub(super) fn read_piece(
        &self,
        shared: &mut Shared,
        (key, offset): (BlobKey, u64),
        bytes_max: u32,
        place: u64,
    ) {
        shared.blob(self.link, LinkPurpose::ServePiece(key, offset, place), |ticket| BlobCommand::Read {
            ticket,
            key,
            offset,
            bytes_max,
        });
    }

    /// What was in doubt was looked at: the question at `place` is answered.
    pub(super) fn on_doubt_settled(
        &mut self,
        shared: &mut Shared,
        key: BlobKey,
        place: u64,
        sound: &Result<bool, StorageFault>,
    ) {
        match sound {
            Ok(true) => self.read_piece(shared, (key, 0), crate::limits::PIECE_BYTES_MAX, place),
            Ok(false) => self.answer_piece(shared, place, OwnMessage::BlobAbsent { key }),
            Err(fault) => self.read_failed(shared, fault.clone()),
        }
    }

    /// Whether a piece that was read shows by itself that its blob is damaged; then that is looked into.
    pub(super) fn is_damaged(&self, shared: &mut Shared, key: BlobKey, piece: &BlobPiece) -> bool {
        let damaged = piece.is_whole() && !piece.has(key);
        if damaged {
            shared.doubt(key, None);
        }
        damaged
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_asks_for_a_beginning_again_doubts_it_once() {
        let mut begun = Begun::default();
        let key = |n: u8| BlobKey([n; 32]);
        assert!(!begun.again(key(1)));
        begun.sent(key(1));
        assert!(!begun.again(key(2)));
        assert!(begun.again(key(1)) && !begun.again(key(1)));
    }

    #[test]
    fn only_the_last_beginnings_are_remembered() {
        let mut begun = Begun::default();
        let key = |n: usize| BlobKey([u8::try_from(n).expect("few"); 32]);
        (0..=BEGUN_MAX).for_each(|n| begun.sent(key(n)));
        assert_eq!(begun.0.len(), BEGUN_MAX);
        assert!(!begun.again(key(0)) && begun.again(key(BEGUN_MAX)));
    }
}
