//! Which publishes of a topic were seen, so that a repeat is not a second one.

use super::position::Mark;
use crate::time::Instant;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};

#[derive(Debug)]
pub(super) struct Tokens {
    marks: BTreeMap<Box<str>, Mark>,
    order: VecDeque<(Instant, Box<str>)>,
}

impl Tokens {
    pub(super) const fn new() -> Self {
        Self { marks: BTreeMap::new(), order: VecDeque::new() }
    }

    /// The position of the publish that had this token.
    pub(super) fn seen(&mut self, now: Instant, token: &str) -> Option<Mark> {
        self.expire(now, usize::MAX);
        self.marks.get(token).copied()
    }

    /// Remembers a token that was not seen, and forgets the oldest one beyond `tokens_max`.
    pub(super) fn remember(
        &mut self,
        now: Instant,
        until: Instant,
        token: &str,
        mark: Mark,
        tokens_max: usize,
    ) {
        self.marks.insert(token.into(), mark);
        self.order.push_back((until, token.into()));
        self.expire(now, tokens_max);
    }

    fn expire(&mut self, now: Instant, tokens_max: usize) {
        while self.order.front().is_some_and(|(until, _)| *until <= now || self.order.len() > tokens_max) {
            if let Some((_, token)) = self.order.pop_front() {
                self.marks.remove(&token);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::position::Position;
    use super::*;
    use crate::id::Incarnation;

    fn mark(position: u64) -> Mark {
        Mark {
            incarnation: Incarnation { counter: 1, nonce: [0; 8] },
            position: Position::sequence(position),
        }
    }

    #[test]
    fn a_token_is_known_until_it_expires() {
        let mut tokens = Tokens::new();
        tokens.remember(Instant(0), Instant(10), "k", mark(1), 9);
        assert_eq!(tokens.seen(Instant(9), "k"), Some(mark(1)));
        assert_eq!(tokens.seen(Instant(10), "k"), None);
        assert!(tokens.marks.is_empty());
    }

    #[test]
    fn the_oldest_goes_first() {
        let mut tokens = Tokens::new();
        for (i, token) in ["a", "b", "c"].into_iter().enumerate() {
            tokens.remember(Instant(0), Instant(10), token, mark(i as u64), 2);
        }
        assert_eq!(tokens.seen(Instant(0), "a"), None);
        assert_eq!(tokens.seen(Instant(0), "c"), Some(mark(2)));
    }
}
