//! How a hub is set up.

use super::buffer::BufferLimits;
use super::cursor::CursorCodec;
use super::position::Position;
use crate::id::Incarnation;

/// Whether a hole between two positions means a lost event.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Sequencing {
    /// A sequence per topic, minted with the publish: a hole is a lost event.
    Contiguous,
    /// Positions from a source that many topics share: only that nothing was missed while receiving
    /// is claimed.
    Sparse,
}

/// Where the events of a hub come from.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Source {
    /// The hub mints the sequence of each topic itself. Contiguous.
    Minted,
    /// Every event above `after` is handed to this hub with its position. Sparse.
    Positioned {
        /// The ID space of the positions.
        incarnation: Incarnation,
        /// The position after which this hub is given everything.
        after: Position,
    },
    /// Events come over a server that several hubs share.
    Broker(Sequencing),
}

impl Source {
    /// What a hole between positions means.
    #[must_use]
    pub const fn sequencing(self) -> Sequencing {
        match self {
            Self::Minted => Sequencing::Contiguous,
            Self::Positioned { .. } => Sequencing::Sparse,
            Self::Broker(sequencing) => sequencing,
        }
    }
}

/// The bounds of one hub. `None` means no bound where that is possible.
#[derive(Clone, Copy, Debug)]
pub struct HubLimits {
    /// Topics with a state at one time.
    pub topics_max: usize,
    /// Of each topic's replay buffer.
    pub buffer: BufferLimits,
    /// Live events one subscriber may have waiting.
    pub queue_events_max: usize,
    /// Bytes of one event, its kind included.
    pub event_bytes_max: usize,
    /// Subscribers of one topic.
    pub topic_subscribers_max: Option<u32>,
    /// Subscribers of one client.
    pub client_subscribers_max: Option<u32>,
    /// Subscribers in all.
    pub subscribers_max: Option<u32>,
    /// Topics whose subscription lingers without a subscriber.
    pub lingering_topics_max: usize,
    /// Publish tokens remembered per topic.
    pub tokens_max: usize,
    /// Publishes on their way to the server.
    pub publishes_max: usize,
    /// Events fetched from a history tier for one resume.
    pub history_events_max: u32,
}

impl Default for HubLimits {
    fn default() -> Self {
        Self {
            topics_max: 10_000,
            buffer: BufferLimits { events_max: 1_024, bytes_max: 1 << 20, age_ms_max: 300_000 },
            queue_events_max: 64,
            event_bytes_max: 256 << 10,
            topic_subscribers_max: None,
            client_subscribers_max: Some(64),
            subscribers_max: Some(100_000),
            lingering_topics_max: 1_000,
            tokens_max: 1_024,
            publishes_max: 4_096,
            history_events_max: 10_000,
        }
    }
}

/// The periods of one hub, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub struct HubTimes {
    /// A topic of which nothing was heard for this long is asked about; after three such periods
    /// without an answer on the channel its coverage ends. At least 1: a hub refuses to start with less.
    pub heartbeat_ms: u64,
    /// How long a resume waits for what the shared state says was published.
    pub settle_ms: u64,
    /// How long a subscription outlives its last subscriber.
    pub linger_ms: u64,
    /// How long a topic of our own outlives its last publish and subscriber. Zero counts as 1.
    pub topic_idle_ms: u64,
    /// How long before a lost subscription is asked for again.
    pub resubscribe_ms: u64,
    /// How long a publish token is remembered.
    pub token_ms: u64,
}

impl Default for HubTimes {
    fn default() -> Self {
        Self {
            heartbeat_ms: 5_000,
            settle_ms: 250,
            linger_ms: 60_000,
            topic_idle_ms: 3_600_000,
            resubscribe_ms: 500,
            token_ms: 60_000,
        }
    }
}

/// Everything a hub is told at its start.
#[derive(Clone, Debug)]
pub struct HubConfig {
    /// Where events come from.
    pub source: Source,
    /// How cursors are written and read.
    pub codec: CursorCodec,
    /// Bounds.
    pub limits: HubLimits,
    /// Periods.
    pub times: HubTimes,
    /// Whether a [`super::Command::History`] can be answered: a shared history behind the buffer.
    pub history: bool,
}

impl HubConfig {
    /// A hub that mints its own sequences, with open cursors and the default bounds.
    #[must_use]
    pub fn minted() -> Self {
        Self {
            source: Source::Minted,
            codec: CursorCodec::open(""),
            limits: HubLimits::default(),
            times: HubTimes::default(),
            history: false,
        }
    }

    /// A hub over a server whose publish script mints a sequence per topic.
    #[must_use]
    pub fn broker() -> Self {
        Self { source: Source::Broker(Sequencing::Contiguous), ..Self::minted() }
    }
}
