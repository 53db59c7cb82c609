//! The shared server as its scripts make it: a sequence and an ID space per topic, and channels.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use strandline_core::coverage::{
    Accepted, Mark, Message, Minted, Position, Standing, SubscriptionId, Upstream,
};
use strandline_core::error::{StorageAction, StorageCause, StorageFault};
use strandline_core::id::Incarnation;
use strandline_core::time::WallTime;

/// The state of a topic at the server.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum State {
    /// The key does not exist.
    Absent,
    /// The hash of the scripts.
    At {
        /// The ID space.
        incarnation: Incarnation,
        /// The last sequence given out.
        minted: u64,
    },
    /// The key holds something else.
    Rubbish,
}

/// A subscription as the server and the network between see it.
#[derive(Debug, Default)]
pub struct Channel {
    /// The topic.
    pub topic: String,
    /// On its way.
    pub queue: VecDeque<Upstream>,
    /// Nothing arrives any more, and nobody is told.
    pub stalled: bool,
    /// Events on their way, by number: what was sent after them waits behind them.
    pub in_flight: BTreeSet<u64>,
}

/// Which hub, and which of its subscriptions.
pub type ChannelKey = (usize, SubscriptionId);

/// The server.
#[derive(Debug, Default)]
pub struct Broker {
    states: BTreeMap<String, State>,
    tokens: BTreeMap<(String, String), Mark>,
    /// The subscriptions that were confirmed.
    pub channels: BTreeMap<ChannelKey, Channel>,
    /// Scripts fail: the server cannot be reached.
    pub unreachable: bool,
    /// The positions of all topics come from this one counter, in this ID space.
    pub counter: Option<(Incarnation, u64)>,
    spaces: u32,
}

impl Broker {
    /// The state of a topic.
    #[must_use]
    pub fn state(&self, topic: &str) -> State {
        self.states.get(topic).copied().unwrap_or(State::Absent)
    }

    /// Puts a state in the place of what is there.
    pub fn set(&mut self, topic: &str, state: State) {
        self.states.insert(topic.into(), state);
    }

    /// All keys vanish.
    pub fn flush(&mut self) {
        self.states.clear();
        self.tokens.clear();
    }

    /// What both scripts do first: a missing state, one of a spent space, or one behind what was seen
    /// becomes the next incarnation.
    fn standing(&mut self, topic: &str, seen: Option<Mark>, nonce: [u8; 8]) -> Option<(Incarnation, u64)> {
        let (incarnation, minted) = match self.state(topic) {
            State::Rubbish => return None,
            State::At { incarnation, minted }
                if !seen.is_some_and(|seen| {
                    seen.incarnation == incarnation && seen.position > Position::sequence(minted)
                }) =>
            {
                (incarnation, minted)
            }
            State::At { .. } | State::Absent => {
                self.spaces += 1;
                (Incarnation { counter: self.spaces, nonce }, 0)
            }
        };
        self.set(topic, State::At { incarnation, minted });
        Some((incarnation, minted))
    }

    /// The next position of a topic, published by somebody: it is in, and on no channel yet.
    pub fn mint(&mut self, topic: &str, seen: Option<Mark>, nonce: [u8; 8]) -> Option<Mark> {
        if let Some((incarnation, last)) = &mut self.counter {
            if self.states.get(topic) == Some(&State::Rubbish) {
                return None;
            }
            *last += 1;
            return Some(Mark { incarnation: *incarnation, position: Position::sequence(*last) });
        }
        let (incarnation, minted) = self.standing(topic, seen, nonce)?;
        self.set(topic, State::At { incarnation, minted: minted + 1 });
        Some(Mark { incarnation, position: Position::sequence(minted + 1) })
    }

    /// The publish script.
    ///
    /// # Errors
    /// While the server cannot be reached.
    pub fn publish(
        &mut self,
        topic: &str,
        seen: Option<Mark>,
        nonce: [u8; 8],
        token: &str,
        message: impl FnOnce(Mark) -> Message,
    ) -> Result<Minted, StorageFault> {
        self.reached()?;
        let key = (topic.to_owned(), token.to_owned());
        if let Some(mark) = self.tokens.get(&key) {
            return Ok(Minted::Accepted(Accepted { mark: *mark, repeated: true }));
        }
        let Some(mark) = self.mint(topic, seen, nonce) else { return Ok(Minted::NoSequence) };
        self.tokens.insert(key, mark);
        self.send(topic, &Upstream::Message(message(mark)));
        Ok(Minted::Accepted(Accepted { mark, repeated: false }))
    }

    /// The position script, which is the heartbeat too.
    ///
    /// # Errors
    /// While the server cannot be reached.
    pub fn position(
        &mut self,
        topic: &str,
        seen: Option<Mark>,
        nonce: [u8; 8],
    ) -> Result<Standing, StorageFault> {
        self.reached()?;
        let found = match self.counter {
            Some(found) => Some(found),
            None => self.standing(topic, seen, nonce),
        };
        let Some((incarnation, minted)) = found else { return Ok(Standing::Unreadable) };
        let minted = Position::sequence(minted);
        self.send(topic, &Upstream::Position { incarnation, minted });
        Ok(Standing::At { incarnation, minted })
    }

    /// Puts a message on every channel of the topic that works.
    pub fn send(&mut self, topic: &str, what: &Upstream) {
        for channel in self.channels.values_mut().filter(|c| c.topic == topic && !c.stalled) {
            channel.queue.push_back(what.clone());
        }
    }

    fn reached(&self) -> Result<(), StorageFault> {
        if !self.unreachable {
            return Ok(());
        }
        Err(StorageFault {
            action: StorageAction::Write,
            file: "server".into(),
            offset: None,
            cause: StorageCause::Failed,
            detail: "expected an answer, found none".into(),
        })
    }
}

/// An event whose payload is a number.
#[must_use]
pub fn numbered(mark: Mark, number: u64) -> Message {
    Message { mark, at: WallTime(0), kind: "".into(), payload: number.to_string().into_bytes().into() }
}
