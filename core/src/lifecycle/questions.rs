//! Pieces that a peer asked for: read in the order of the questions while there is room for the answers.
//! A question waits here, and the link reads on meanwhile: two peers that ask much of each other would
//! otherwise each wait for the other to read.

use super::session::Session;
use super::shared::{ReadFor, Shared};
use super::source::Source;
use crate::journal::command::FileName;
use crate::limits::PIECE_BYTES_MAX;
use crate::record::BlobKey;
use alloc::collections::VecDeque;

/// So many times as many questions as may be open wait before nothing more is read from the peer: more
/// than a peer asks that waits for its answers.
const WAITING_FACTOR: usize = 8;

/// What a piece is asked of.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Question {
    /// A blob.
    Blob { key: BlobKey, offset: u64, bytes_max: u32 },
    /// The checkpoint of this number.
    Snapshot { number: u64, offset: u64 },
}

/// Questions that were not read for yet, each with its place among the answers.
#[derive(Debug, Default)]
pub(super) struct Questions(VecDeque<(u64, Question)>);

impl Questions {
    /// Whether so many wait that the peer is not read from.
    pub(super) fn are_many(&self, requests_max: u32) -> bool {
        self.0.len() >= WAITING_FACTOR.saturating_mul(requests_max as usize)
    }
}

impl Session {
    /// The peer asks for a piece.
    pub(super) fn ask_piece(&mut self, shared: &mut Shared, question: Question) {
        let place = self.pieces.ask();
        self.questions.0.push_back((place, question));
        self.pump_questions(shared);
    }

    /// Reads for the next questions while there is room for what is read.
    pub(super) fn pump_questions(&mut self, shared: &mut Shared) {
        while !self.questions.0.is_empty()
            && self.serving < shared.config.blob_requests_max
            && self.has_room(shared)
        {
            let Some((place, question)) = self.questions.0.pop_front() else { return };
            match question {
                Question::Blob { key, offset, bytes_max } => {
                    self.serving += 1;
                    if offset == 0 && self.begun.again(key) {
                        shared.doubt(key, Some((self.link, place)));
                    } else {
                        self.read_piece(shared, (key, offset), bytes_max, place);
                    }
                }
                Question::Snapshot { number, offset } if self.serves(number) => {
                    self.serving += 1;
                    let purpose = ReadFor::SnapshotPiece(self.link, offset, place);
                    shared.read(FileName::Checkpoint(number), offset, PIECE_BYTES_MAX, purpose);
                }
                // It was acknowledged, or given up, meanwhile.
                Question::Snapshot { .. } => {
                    self.pieces.pass_over(place);
                    self.send_answers(shared);
                }
            }
        }
    }

    fn serves(&self, number: u64) -> bool {
        matches!(&self.source, Source::Snapshot(serving) if serving.is_of(number))
    }
}
