//! What goes into a hub and what comes out of it.

use super::admission::NotAdmitted;
use super::buffer::Entry;
use super::decide::{Claim, Reason};
use super::position::{Mark, Position};
use super::report::{EndReason, LostReason};
use super::shared::TopicId;
use super::topic_name::TopicName;
use crate::error::{Classified, Family, StorageFault};
use crate::id::Incarnation;
use crate::ticket::{Completion, Operation, Ticket};
use crate::time::WallTime;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

/// One subscriber of one topic. Never used again for another one.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct SubscriberId {
    pub(super) topic: TopicId,
    pub(super) number: u64,
}

/// One subscription at the server. A later one has a higher number; what comes from an ended one is
/// ignored.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct SubscriptionId {
    pub(super) number: u64,
    pub(super) topic: TopicId,
}

impl SubscriptionId {
    /// The number.
    #[must_use]
    pub const fn number(self) -> u64 {
        self.number
    }
}

/// One publish on its way to the server.
#[derive(Clone, Copy, Debug, Eq, Ord, PartialEq, PartialOrd)]
pub struct PublishId(pub(super) u64);

/// Where a subscriber wants to begin.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum From {
    /// After what it has; judged.
    After(Claim),
    /// With what comes from now on.
    Now,
    /// With the oldest event that is held. A hole in what is held is told in its place.
    Earliest,
    /// With the oldest held event that is not older than this.
    Since(WallTime),
    /// With the newest held event.
    Last,
}

/// A wish to subscribe.
#[derive(Clone, Copy, Debug)]
pub struct Subscribe<'a> {
    /// Who asks, for the limit per client.
    pub client: Option<&'a str>,
    /// Where to begin.
    pub from: From,
    /// A limit on this topic's subscribers in place of the configured one.
    pub topic_subscribers_max: Option<u32>,
}

impl Subscribe<'_> {
    /// By nobody in particular.
    #[must_use]
    pub const fn new(from: From) -> Self {
        Self { client: None, from, topic_subscribers_max: None }
    }
}

/// Why nobody was subscribed: our caller's matter.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SubscribeError {
    /// The hub is closed.
    #[error("expected an open hub, found it closed")]
    Closed,
    /// The topic has all the subscribers it may have.
    #[error("expected room for another subscriber of the topic, found the limit of {max}")]
    TopicLimit {
        /// The limit.
        max: u32,
    },
    /// See [`NotAdmitted`].
    #[error(transparent)]
    NotAdmitted(#[from] NotAdmitted),
    /// Every topic that has a state is in use.
    #[error("expected room for another topic, found the limit of {max}")]
    Topics {
        /// The limit.
        max: usize,
    },
}

impl Classified for SubscribeError {
    const FAMILY: Family = Family::Caller;
}

/// What is published.
#[derive(Clone, Copy, Debug)]
pub struct Publish<'a> {
    /// Repeats of one token within `token_ms` are one publish.
    pub token: Option<&'a str>,
    /// A name for clients to dispatch on: no control characters; may be empty.
    pub kind: &'a str,
    /// The bytes.
    pub payload: &'a [u8],
    /// When it happened; `None` takes the hub's clock.
    pub at: Option<WallTime>,
}

impl<'a> Publish<'a> {
    /// A nameless event of now, without a token.
    #[must_use]
    pub const fn new(payload: &'a [u8]) -> Self {
        Self { token: None, kind: "", payload, at: None }
    }
}

/// How a publish that was taken goes on.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[must_use]
pub enum Publishing {
    /// It is in.
    Done(Accepted),
    /// It is on its way; [`Event::Published`] tells how it ended.
    Sent(PublishId),
}

/// A publish that is in.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Accepted {
    /// Its position and ID space.
    pub mark: Mark,
    /// Its token had been seen: this is the position of the first publish.
    pub repeated: bool,
}

/// A publish of which it is certain that nothing was sent: our caller's matter.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PublishError {
    /// The hub is closed.
    #[error("expected an open hub, found it closed")]
    Closed,
    /// The event is too large.
    #[error("expected an event of at most {max} bytes, found {found}")]
    TooLarge {
        /// The limit.
        max: usize,
        /// What it has.
        found: usize,
    },
    /// The kind holds a control character.
    #[error("expected a kind without control characters, found {found:?}")]
    BadKind {
        /// The first of them.
        found: char,
    },
    /// The kind is a name of the notices that clients get, or ends as one that says base64: its events could
    /// not be told from those.
    #[error("expected a kind of your own, found {found:?} in it, which frames have themselves")]
    ReservedKind {
        /// The name, or the end.
        found: &'static str,
    },
    /// Every topic that has a state is in use.
    #[error("expected room for another topic, found the limit of {max}")]
    Topics {
        /// The limit.
        max: usize,
    },
    /// Too many publishes are on their way.
    #[error("expected at most {max} publishes on their way, found as many")]
    Busy {
        /// The limit.
        max: usize,
    },
    /// Positions come from outside: the call must name one above the last of its topic.
    #[error("expected a position above {head}, found {found}")]
    Position {
        /// The last position of the topic.
        head: Position,
        /// What was named.
        found: Position,
    },
    /// Positions of this hub come from elsewhere than this call.
    #[error("expected the publish call of this hub's source, found the other one")]
    Source,
}

impl Classified for PublishError {
    const FAMILY: Family = Family::Caller;
}

/// How a publish over a server ended.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Outcome {
    /// It is in.
    Accepted(Accepted),
    /// The server could mint no sequence; nothing was sent.
    NoSequence,
    /// It is not in: the server refused it before it did anything, or could not be reached.
    Refused(StorageFault),
    /// It may be in or not. A repeat with the same token is safe.
    Uncertain(StorageFault),
}

/// Something a subscriber is given. The order is the order of its stream.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Item {
    /// The stream is joined.
    Opened(Opened),
    /// An event.
    Event {
        /// It, shared.
        entry: Arc<Entry>,
        /// How it came.
        how: How,
    },
    /// The subscriber was too slow: what follows, up to `through`, is backfilled from the buffer.
    Gap {
        /// The last event that fitted.
        after: Position,
        /// The last that did not.
        through: Position,
    },
    /// From here on nothing is vouched for, until [`Item::SyncRequired`] follows.
    Stale {
        /// Why.
        reason: Reason,
    },
    /// Fetch the state anew, at or after `at`: from there this stream goes on live.
    SyncRequired {
        /// Why.
        reason: Reason,
        /// The position that replaces the client's.
        at: Mark,
    },
    /// The stream is over.
    Closed,
}

/// How a stream begins.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Opened {
    /// Where the subscriber stands before anything else was handed out: its cursor for now. `None`
    /// until the first event of a source that says no positions.
    pub from: Option<Mark>,
    /// Everything after `from` up to here is held and follows.
    pub through: Option<Mark>,
    /// A cursor was judged complete.
    pub resumed: bool,
}

/// How an event came to a subscriber.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum How {
    /// As it was published.
    Live,
    /// After a cursor, or from the beginning that was asked for.
    Replayed,
    /// After a gap of a slow subscriber.
    Backfilled,
}

/// Something the host should know. Nothing of the hub is locked or half done when it is handed out.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Event {
    /// This subscriber has items to poll, after it had none.
    Ready(SubscriberId),
    /// A publish over the server ended.
    Published {
        /// Which.
        id: PublishId,
        /// How.
        outcome: Outcome,
    },
    /// A resume was refused.
    Refused {
        /// The topic.
        topic: TopicName,
        /// Why.
        reason: Reason,
    },
    /// A coverage that had vouched for at least one event ended.
    CoverageLost {
        /// The topic.
        topic: TopicName,
        /// Why.
        reason: LostReason,
    },
    /// A subscription at the server ended.
    SubscriptionEnded {
        /// The topic.
        topic: TopicName,
        /// Why.
        reason: EndReason,
    },
    /// A subscriber did not take its events in time.
    Slow {
        /// Which.
        subscriber: SubscriberId,
        /// The topic.
        topic: TopicName,
    },
}

/// An effect for the host to execute at the server.
#[derive(Debug)]
#[must_use]
pub enum Command {
    /// Subscribe to the topic's channel; answers come as [`Upstream`] inputs with this number.
    Subscribe {
        /// The number of the subscription.
        id: SubscriptionId,
        /// The topic.
        topic: TopicName,
    },
    /// End a subscription.
    Unsubscribe {
        /// Its number.
        id: SubscriptionId,
        /// The topic.
        topic: TopicName,
    },
    /// End a subscription over which nothing came for three heartbeats, and with it the use of its
    /// connection: the next subscription goes over another one, whatever this one says of itself. What
    /// else comes over it may go on.
    Abandon {
        /// Its number.
        id: SubscriptionId,
        /// The topic.
        topic: TopicName,
    },
    /// Run the position script.
    Position {
        /// Answers what it read.
        ticket: Ticket<op::Position>,
        /// The topic.
        topic: TopicName,
        /// The highest position seen of the topic. A state of the same incarnation below it was put
        /// back: the script makes the next incarnation. The highest sequence there is says that the
        /// whole space is spent.
        seen: Option<Mark>,
        /// A nonce in case the script makes an incarnation.
        nonce: [u8; 8],
    },
    /// Run the publish script.
    Publish {
        /// Answers the position, or that none could be minted.
        ticket: Ticket<op::Publish>,
        /// The topic.
        topic: TopicName,
        /// As in [`Command::Position`].
        seen: Option<Mark>,
        /// As in [`Command::Position`].
        nonce: [u8; 8],
        /// Of this publish: it is repeated with the same one only.
        token: String,
        /// What is published.
        kind: Box<str>,
        /// What is published.
        payload: Box<[u8]>,
        /// When it happened.
        at: WallTime,
    },
    /// Read events of the shared history.
    History {
        /// Answers what it holds after `after`.
        ticket: Ticket<op::History>,
        /// The topic.
        topic: TopicName,
        /// The position of the client.
        after: Mark,
        /// At most this many.
        events_max: u32,
    },
}

/// What a shared history holds after a client's position.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum History {
    /// Events from the next position on, one after the other; fewer or none if it does not hold them.
    Run(Vec<Message>),
    /// Every event of the topic after that position, which it knows, up to `through`.
    Through {
        /// The events, in order.
        events: Vec<Message>,
        /// It vouches up to here.
        through: Position,
    },
    /// It vouches for nothing after that position.
    Refused(Reason),
}

/// What a message carried.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Message {
    /// Its position and ID space.
    pub mark: Mark,
    /// When it was published.
    pub at: WallTime,
    /// See [`Publish::kind`].
    pub kind: Box<str>,
    /// The bytes.
    pub payload: Box<[u8]>,
}

/// What comes in over a subscription at the server, in the order of its connection.
#[derive(Clone, Debug)]
pub enum Upstream {
    /// The server confirmed it.
    Confirmed,
    /// An event.
    Message(Message),
    /// A position script's message: what was minted when it ran.
    Position {
        /// The ID space.
        incarnation: Incarnation,
        /// The last position given out.
        minted: Position,
    },
    /// A message that cannot be decoded.
    Undecodable,
    /// The client library lost the connection and subscribed again by itself.
    Resubscribed,
    /// The connection is lost.
    Lost,
}

/// The operations of [`Command`].
pub mod op {
    /// [`super::Command::Position`]
    #[derive(Debug)]
    pub enum Position {}
    /// [`super::Command::Publish`]
    #[derive(Debug)]
    pub enum Publish {}
    /// [`super::Command::History`]
    #[derive(Debug)]
    pub enum History {}
}

/// What the position script read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Standing {
    /// The state.
    At {
        /// The ID space.
        incarnation: Incarnation,
        /// The last position given out; zero if none was.
        minted: Position,
    },
    /// The key holds something that is not ours; nothing was changed.
    Unreadable,
}

/// What the publish script did.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Minted {
    /// Published, now or by an earlier run with the same token.
    Accepted(Accepted),
    /// The key holds something that is not ours: no position was minted, nothing was published.
    NoSequence,
    /// It did not run: the server says so in its own words, as a replica does that takes no writes, or it
    /// was never asked. Whatever leaves that open is a fault instead.
    Refused(StorageFault),
}

/// The answer to a [`Command`].
#[derive(Debug)]
pub enum CommandOutcome {
    /// Of [`Command::Position`].
    Position(Result<Standing, StorageFault>),
    /// Of [`Command::Publish`].
    Publish(Result<Minted, StorageFault>),
    /// Of [`Command::History`].
    History(Result<History, StorageFault>),
}

/// The answer to a [`Command`], with its ticket used up.
pub type HubCompletion = Completion<CommandOutcome>;

macro_rules! operations {
    ($($name:ident -> $output:ty),* $(,)?) => {$(
        impl Operation for op::$name {
            type Output = $output;
            type Outcome = CommandOutcome;
            fn outcome(result: Result<Self::Output, StorageFault>) -> CommandOutcome {
                CommandOutcome::$name(result)
            }
        }
    )*};
}

operations! { Position -> Standing, Publish -> Minted, History -> History }
