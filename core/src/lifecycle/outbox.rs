//! What waits to leave over one link: frames, and answers that must keep the order of their questions.

use crate::wire::own::OwnMessage;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// Frames that wait for the link, in order.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    frames: VecDeque<Vec<u8>>,
    bytes: u64,
}

impl Outbox {
    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// How many bytes wait.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn push(&mut self, frame: Vec<u8>) {
        self.bytes += frame.len() as u64;
        self.frames.push_back(frame);
    }

    pub(super) fn pop(&mut self) -> Option<Vec<u8>> {
        let frame = self.frames.pop_front()?;
        self.bytes -= frame.len() as u64;
        Some(frame)
    }
}

/// Answers that must leave in the order of their questions.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    first: u64,
    answers: VecDeque<Option<OwnMessage>>,
}

impl Pieces {
    /// Whether every question was answered.
    pub(super) fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }

    /// A question was taken; its place in the order.
    pub(super) fn ask(&mut self) -> u64 {
        self.answers.push_back(None);
        self.first + self.answers.len() as u64 - 1
    }

    /// The answer to the question at `place`.
    pub(super) fn answer(&mut self, place: u64, message: OwnMessage) {
        let at = place.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        if let Some(answer) = at.and_then(|at| self.answers.get_mut(at)) {
            *answer = Some(message);
        }
    }

    /// The next answer whose turn it is.
    pub(super) fn next(&mut self) -> Option<OwnMessage> {
        self.answers.front()?.as_ref()?;
        self.first += 1;
        self.answers.pop_front().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::BlobKey;

    #[test]
    fn the_outbox_knows_what_waits() {
        let mut outbox = Outbox::default();
        outbox.push(alloc::vec![1, 2]);
        outbox.push(alloc::vec![3]);
        assert_eq!(outbox.bytes(), 3);
        assert_eq!(outbox.pop(), Some(alloc::vec![1, 2]));
        assert_eq!((outbox.bytes(), outbox.is_empty()), (1, false));
    }

    #[test]
    fn answers_leave_in_the_order_of_their_questions() {
        let answer = |n| OwnMessage::BlobAbsent { key: BlobKey([n; 32]) };
        let mut pieces = Pieces::default();
        let (first, second) = (pieces.ask(), pieces.ask());
        pieces.answer(second, answer(2));
        assert_eq!(pieces.next(), None);
        pieces.answer(first, answer(1));
        assert_eq!((pieces.next(), pieces.next(), pieces.next()), (Some(answer(1)), Some(answer(2)), None));
    }
}
