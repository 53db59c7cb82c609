//! What waits to leave over one link: frames, and answers that must keep the order of their questions.

use crate::wire::own::OwnMessage;
use alloc::collections::VecDeque;
use alloc::vec::Vec;

/// What a frame is, which decides whether more of it may make us stop reading.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Carries {
    /// Data that was read because there was room for it. Peers that send it to each other must read on.
    Data,
    /// Anything else: a peer that makes us say much, and does not listen, is not read from.
    Words,
}

/// Frames that wait for the link, in order.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    frames: VecDeque<(Carries, Vec<u8>)>,
    bytes: u64,
    words_bytes: u64,
}

impl Outbox {
    pub(super) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// How many bytes wait.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// How many of them are no data.
    pub(super) const fn words_bytes(&self) -> u64 {
        self.words_bytes
    }

    pub(super) fn push(&mut self, carries: Carries, frame: Vec<u8>) {
        self.bytes += frame.len() as u64;
        self.words_bytes += words(carries, &frame);
        self.frames.push_back((carries, frame));
    }

    pub(super) fn pop(&mut self) -> Option<Vec<u8>> {
        let (carries, frame) = self.frames.pop_front()?;
        self.bytes -= frame.len() as u64;
        self.words_bytes -= words(carries, &frame);
        Some(frame)
    }
}

const fn words(carries: Carries, frame: &[u8]) -> u64 {
    match carries {
        Carries::Data => 0,
        Carries::Words => frame.len() as u64,
    }
}

/// Where a question stands.
#[derive(Debug)]
enum Answer {
    Awaited,
    Here(OwnMessage),
    /// Nobody waits for one any more.
    None,
}

/// Answers that must leave in the order of their questions.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    first: u64,
    answers: VecDeque<Answer>,
}

impl Pieces {
    /// Whether every question was answered.
    pub(super) fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }

    /// A question was taken; its place in the order.
    pub(super) fn ask(&mut self) -> u64 {
        self.answers.push_back(Answer::Awaited);
        self.first + self.answers.len() as u64 - 1
    }

    /// The answer to the question at `place`.
    pub(super) fn answer(&mut self, place: u64, message: OwnMessage) {
        self.settle(place, Answer::Here(message));
    }

    /// The question at `place` gets no answer.
    pub(super) fn pass_over(&mut self, place: u64) {
        self.settle(place, Answer::None);
    }

    fn settle(&mut self, place: u64, found: Answer) {
        let at = place.checked_sub(self.first).and_then(|at| usize::try_from(at).ok());
        if let Some(answer) = at.and_then(|at| self.answers.get_mut(at)) {
            *answer = found;
        }
    }

    /// The next answer whose turn it is.
    pub(super) fn next(&mut self) -> Option<OwnMessage> {
        while !matches!(self.answers.front()?, Answer::Awaited) {
            self.first += 1;
            if let Some(Answer::Here(message)) = self.answers.pop_front() {
                return Some(message);
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::BlobKey;

    #[test]
    fn the_outbox_knows_what_waits() {
        let mut outbox = Outbox::default();
        outbox.push(Carries::Data, alloc::vec![1, 2]);
        outbox.push(Carries::Words, alloc::vec![3]);
        assert_eq!((outbox.bytes(), outbox.words_bytes()), (3, 1));
        assert_eq!(outbox.pop(), Some(alloc::vec![1, 2]));
        assert_eq!((outbox.bytes(), outbox.words_bytes(), outbox.is_empty()), (1, 1, false));
        assert_eq!((outbox.pop(), outbox.bytes(), outbox.words_bytes()), (Some(alloc::vec![3]), 0, 0));
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

    #[test]
    fn a_question_without_an_answer_holds_up_no_other() {
        let answer = |n| OwnMessage::BlobAbsent { key: BlobKey([n; 32]) };
        let mut pieces = Pieces::default();
        let (first, second, third) = (pieces.ask(), pieces.ask(), pieces.ask());
        pieces.answer(second, answer(2));
        pieces.pass_over(first);
        pieces.pass_over(third);
        assert_eq!((pieces.next(), pieces.next(), pieces.is_empty()), (Some(answer(2)), None, true));
    }
}
