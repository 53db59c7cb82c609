//! The shared server as its scripts make it: a sequence and an ID space per topic, and channels.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use strandline_core::coverage::{
    Accepted, History, Mark, Message, Minted, Position, Standing, SubscriptionId, Upstream,
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

/// What both scripts are asked with.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// The topic.
    pub topic: &'a str,
    /// The highest position that the caller has seen.
    pub seen: Option<Mark>,
    /// For the ID space that the script may make.
    pub nonce: [u8; 8],
}

/// What runs the scripts and holds the states.
pub trait Server {
    /// The state of a topic.
    fn state(&mut self, topic: &str) -> State;
    /// Puts rubbish in its place, or nothing.
    fn spoil(&mut self, topic: &str, rubbish: bool);
    /// All keys vanish.
    fn flush(&mut self);
    /// The publish script.
    ///
    /// # Errors
    /// If it cannot be run.
    fn publish(&mut self, asked: Asked<'_>, token: &str, payload: &[u8]) -> Result<Minted, StorageFault>;
    /// The position script.
    ///
    /// # Errors
    /// If it cannot be run.
    fn position(&mut self, asked: Asked<'_>) -> Result<Standing, StorageFault>;
    /// What was published since this was asked last, in order.
    fn sent(&mut self) -> Vec<(String, Upstream)>;
    /// The events right after a position, out of a bounded history; a server without one has none.
    fn history(&mut self, _topic: &str, _after: Mark, _events_max: u32) -> Vec<Message> {
        Vec::new()
    }
    /// A history loses events behind the scripts' back: all, or the one at this place.
    fn forget(&mut self, _topic: &str, _only: Option<usize>) {}
    /// Another server takes its place, which lacks the last publishes: so many, over all topics.
    fn fail_over(&mut self, _lost: usize) {}
}

/// The scripts, as they are meant.
#[derive(Debug, Default)]
pub struct ModelServer {
    states: BTreeMap<String, State>,
    tokens: BTreeMap<(String, String), Mark>,
    sent: Vec<(String, Upstream)>,
    histories: BTreeMap<String, VecDeque<Message>>,
    spaces: u32,
    /// How often another server took the place of this one, and at which of them each state was written.
    lineage: u64,
    written: BTreeMap<String, u64>,
    /// Every publish, in order, by topic and token.
    publishes: Vec<(String, String, Mark)>,
}

/// Events that a history of the model keeps.
pub(super) const HISTORY_EVENTS_MAX: usize = 12;

impl ModelServer {
    /// What both scripts do first: a missing state, one that another server wrote, or one behind what was
    /// seen becomes the next incarnation.
    fn standing(&mut self, asked: Asked<'_>) -> Option<(Incarnation, u64)> {
        let behind = |incarnation, minted| {
            asked.seen.is_some_and(|seen| {
                let lacks = seen.incarnation == incarnation && seen.position > Position::sequence(minted);
                lacks || seen.incarnation.counter > incarnation.counter
            })
        };
        let ours = self.written.insert(asked.topic.to_owned(), self.lineage) == Some(self.lineage);
        let (incarnation, minted) = match self.state(asked.topic) {
            State::Rubbish => return None,
            State::At { incarnation, minted } if ours && !behind(incarnation, minted) => {
                (incarnation, minted)
            }
            State::At { .. } | State::Absent => {
                self.spaces += 1;
                self.histories.remove(asked.topic);
                (Incarnation { counter: self.spaces, nonce: asked.nonce }, 0)
            }
        };
        self.states.insert(asked.topic.into(), State::At { incarnation, minted });
        Some((incarnation, minted))
    }
}

impl Server for ModelServer {
    fn state(&mut self, topic: &str) -> State {
        self.states.get(topic).copied().unwrap_or(State::Absent)
    }

    fn spoil(&mut self, topic: &str, rubbish: bool) {
        self.states.insert(topic.into(), if rubbish { State::Rubbish } else { State::Absent });
    }

    fn flush(&mut self) {
        self.states.clear();
        self.tokens.clear();
        self.histories.clear();
    }

    fn publish(&mut self, asked: Asked<'_>, token: &str, payload: &[u8]) -> Result<Minted, StorageFault> {
        let key = (asked.topic.to_owned(), token.to_owned());
        if let Some(mark) = self.tokens.get(&key) {
            return Ok(Minted::Accepted(Accepted { mark: *mark, repeated: true }));
        }
        let Some((incarnation, minted)) = self.standing(asked) else { return Ok(Minted::NoSequence) };
        self.states.insert(asked.topic.into(), State::At { incarnation, minted: minted + 1 });
        let mark = Mark { incarnation, position: Position::sequence(minted + 1) };
        self.publishes.push((key.0.clone(), key.1.clone(), mark));
        self.tokens.insert(key, mark);
        let history = self.histories.entry(asked.topic.into()).or_default();
        history.push_back(event(mark, payload));
        while history.len() > HISTORY_EVENTS_MAX {
            history.pop_front();
        }
        self.sent.push((asked.topic.into(), Upstream::Message(event(mark, payload))));
        Ok(Minted::Accepted(Accepted { mark, repeated: false }))
    }

    fn position(&mut self, asked: Asked<'_>) -> Result<Standing, StorageFault> {
        let Some((incarnation, minted)) = self.standing(asked) else { return Ok(Standing::Unreadable) };
        let minted = Position::sequence(minted);
        self.sent.push((asked.topic.into(), Upstream::Position { incarnation, minted }));
        Ok(Standing::At { incarnation, minted })
    }

    fn sent(&mut self) -> Vec<(String, Upstream)> {
        std::mem::take(&mut self.sent)
    }

    fn history(&mut self, topic: &str, after: Mark, events_max: u32) -> Vec<Message> {
        let held = self.histories.get(topic).into_iter().flatten();
        // By position alone, as the server reads its stream: whose they are is for the hub to see.
        let behind = held.filter(|message| message.mark.position > after.position);
        behind.take(events_max as usize).cloned().collect()
    }

    fn forget(&mut self, topic: &str, only: Option<usize>) {
        match (self.histories.get_mut(topic), only) {
            (Some(history), Some(place)) => _ = history.remove(place % history.len().max(1)),
            (Some(history), None) => history.clear(),
            (None, _) => {}
        }
    }

    fn fail_over(&mut self, lost: usize) {
        self.lineage += 1;
        for (topic, token, mark) in self.publishes.split_off(self.publishes.len().saturating_sub(lost)) {
            let Some(State::At { incarnation, minted }) = self.states.get_mut(&topic) else { continue };
            // What was published in a space before is older than the state, which was not lost.
            if *incarnation == mark.incarnation {
                *minted = (*minted).min(mark.position.as_sequence().expect("a sequence") - 1);
                self.tokens.remove(&(topic.clone(), token));
                let last = *minted;
                if let Some(history) = self.histories.get_mut(&topic) {
                    history.retain(|message| message.mark.position <= Position::sequence(last));
                }
            }
        }
    }
}

/// The server, and the network between it and the hubs.
pub struct Broker {
    server: Box<dyn Server>,
    /// The subscriptions that were confirmed.
    pub channels: BTreeMap<ChannelKey, Channel>,
    /// Scripts fail: the server cannot be reached.
    pub unreachable: bool,
    /// The positions of all topics come from this one counter, in this ID space.
    pub counter: Option<(Incarnation, u64)>,
    elsewhere: u64,
}

impl Default for Broker {
    fn default() -> Self {
        Self::over(Box::<ModelServer>::default())
    }
}

impl Broker {
    /// A network before this server.
    #[must_use]
    pub fn over(server: Box<dyn Server>) -> Self {
        Self { server, channels: BTreeMap::new(), unreachable: false, counter: None, elsewhere: 0 }
    }

    /// The state of a topic.
    pub fn state(&mut self, topic: &str) -> State {
        self.server.state(topic)
    }

    /// Puts rubbish in the place of a topic's state, or nothing.
    pub fn spoil(&mut self, topic: &str, rubbish: bool) {
        self.server.spoil(topic, rubbish);
    }

    /// All keys vanish.
    pub fn flush(&mut self) {
        self.server.flush();
    }

    /// The next position of a topic, published by somebody else: it is in, and on no channel of ours.
    pub fn mint(&mut self, topic: &str, nonce: [u8; 8], payload: &[u8]) -> Option<Mark> {
        if self.counter.is_some() {
            return self.count(topic);
        }
        self.elsewhere += 1;
        let token = format!("elsewhere {}", self.elsewhere);
        let minted = self.server.publish(Asked { topic, seen: None, nonce }, &token, payload);
        self.server.sent();
        match minted {
            Ok(Minted::Accepted(accepted)) => Some(accepted.mark),
            Ok(Minted::NoSequence | Minted::Refused(_)) | Err(_) => None,
        }
    }

    fn count(&mut self, topic: &str) -> Option<Mark> {
        if self.server.state(topic) == State::Rubbish {
            return None;
        }
        let (incarnation, last) = self.counter.as_mut()?;
        *last += 1;
        Some(Mark { incarnation: *incarnation, position: Position::sequence(*last) })
    }

    /// The publish script.
    ///
    /// # Errors
    /// While the server cannot be reached.
    pub fn publish(&mut self, asked: Asked<'_>, token: &str, payload: &[u8]) -> Result<Minted, StorageFault> {
        self.reached()?;
        if self.counter.is_some() {
            let Some(mark) = self.count(asked.topic) else { return Ok(Minted::NoSequence) };
            self.send(asked.topic, &Upstream::Message(event(mark, payload)));
            return Ok(Minted::Accepted(Accepted { mark, repeated: false }));
        }
        let minted = self.server.publish(asked, token, payload);
        self.pass_on();
        minted
    }

    /// The position script, which is the heartbeat too.
    ///
    /// # Errors
    /// While the server cannot be reached.
    pub fn position(&mut self, asked: Asked<'_>) -> Result<Standing, StorageFault> {
        self.reached()?;
        if let Some((incarnation, minted)) = self.counter {
            let minted = Position::sequence(minted);
            self.send(asked.topic, &Upstream::Position { incarnation, minted });
            return Ok(Standing::At { incarnation, minted });
        }
        let standing = self.server.position(asked);
        self.pass_on();
        standing
    }

    /// What the shared history holds right after a position.
    ///
    /// # Errors
    /// While the server cannot be reached.
    pub fn history(&mut self, topic: &str, after: Mark, events_max: u32) -> Result<History, StorageFault> {
        self.reached()?;
        Ok(History::Run(self.server.history(topic, after, events_max)))
    }

    /// A history loses events behind the scripts' back.
    pub fn forget(&mut self, topic: &str, only: Option<usize>) {
        self.server.forget(topic, only);
    }

    /// Another server takes the place of this one, which lacks the last publishes.
    pub fn fail_over(&mut self, lost: usize) {
        self.server.fail_over(lost);
    }

    fn pass_on(&mut self) {
        for (topic, what) in self.server.sent() {
            self.send(&topic, &what);
        }
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

/// An event as the scripts send it in these tests.
#[must_use]
pub fn event(mark: Mark, payload: &[u8]) -> Message {
    Message { mark, at: WallTime(0), kind: "".into(), payload: payload.into() }
}
