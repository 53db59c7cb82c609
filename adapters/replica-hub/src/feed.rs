//! Feeds a hub with the durable changes of a replica.

use crate::history::{Asked, HistoryLimits, LogBackend, answer};
use futures::StreamExt as _;
use futures::channel::mpsc;
use futures::future::{Either, select};
use std::pin::pin;
use std::time::Duration;
use strandline_core::coverage::log::{self, Place};
use strandline_core::coverage::{HubConfig, LostReason, Publish, PublishError, Source, Width};
use strandline_core::id::Run;
use strandline_core::lifecycle::api::{Cursor, Page, SubscribeRefused, SubscriptionEnd};
use strandline_core::record::Record;
use strandline_file::node::{SubscribeFailed, Unavailable};
use strandline_hub::{Driver, HandleOptions, HubHandle};
use strandline_net::{Handle, Subscription};

/// How long a feed waits before it tries again what the replica could not do just now.
const AGAIN: Duration = Duration::from_millis(200);

/// A hub over a log, and what must run for it.
pub struct ReplicaHub {
    /// The hub. It takes no publishes: what happens in the log is what is published.
    pub hub: HubHandle,
    /// Keeps its time.
    pub driver: Driver,
    /// Feeds it.
    pub feed: Feed,
}

/// Prepares a hub that is fed by a replica from its durable tail on; what lies before is answered out of
/// the log. Driver and feed must be run beside it. Of `config` the source, the width of cursors and the
/// history are set here; `seed` is 32 random bytes.
///
/// Dropping the future changes nothing.
///
/// # Errors
/// The replica cannot be asked where it stands.
pub async fn serve(
    node: Handle,
    config: HubConfig,
    options: HandleOptions,
    limits: HistoryLimits,
    run: Run,
    seed: [u8; 32],
) -> Result<ReplicaHub, Unavailable> {
    let at = node.cursor().await?;
    let mark = log::mark(at);
    let config = HubConfig {
        source: Source::Positioned { incarnation: mark.incarnation, after: mark.position },
        codec: config.codec.width(Width::Version),
        history: true,
        ..config
    };
    let (sender, asked) = mpsc::unbounded();
    let (hub, driver) = HubHandle::new(config, options, LogBackend { asked: sender }, run, seed);
    let feed = Feed { node, hub: hub.clone(), at, fed: true, limits, asked };
    Ok(ReplicaHub { hub, driver, feed })
}

/// The part that reads the log for a hub. Without it nothing is published, and resumes that the buffer
/// cannot answer wait.
#[must_use = "a hub whose feed does not run is given nothing"]
pub struct Feed {
    node: Handle,
    hub: HubHandle,
    /// Up to where the hub was fed, or from where it will be.
    at: Cursor,
    /// The hub vouches for everything after `at`.
    fed: bool,
    limits: HistoryLimits,
    asked: mpsc::UnboundedReceiver<Asked>,
}

/// Why following ended for now.
enum Stopped {
    /// The log lets this place go.
    Lost(Place),
    /// The disk failed under a read, or the hub could not take a change.
    Broken(LostReason),
    /// Nothing follows any more.
    Closed,
}

impl Feed {
    /// Runs until the replica or the hub is closed, and then closes the hub. `sleep` gives a future that
    /// ends after a time.
    ///
    /// Dropping the future ends the feed: the hub is given nothing more, and does not notice.
    pub async fn run<S, F>(self, sleep: S)
    where
        S: Fn(Duration) -> F,
        F: Future<Output = ()>,
    {
        let Self { node, hub, at, fed, limits, asked } = self;
        let follower = Follower { node: node.clone(), hub: hub.clone(), at, fed };
        match select(pin!(follower.run(sleep)), pin!(answer(&node, limits, asked))).await {
            Either::Left(_) | Either::Right(_) => hub.close(),
        }
    }
}

struct Follower {
    node: Handle,
    hub: HubHandle,
    at: Cursor,
    fed: bool,
}

impl Follower {
    async fn run<S, F>(mut self, sleep: S)
    where
        S: Fn(Duration) -> F,
        F: Future<Output = ()>,
    {
        while !self.hub.is_closed() {
            let stopped = match self.node.subscribe(self.at).await {
                Ok(changes) => match log::place(changes.verdict()) {
                    Place::Kept => self.follow(changes).await,
                    lost @ (Place::Cut(_) | Place::Tail) => Stopped::Lost(lost),
                },
                Err(SubscribeFailed::Unavailable(Unavailable::Closed))
                | Err(SubscribeFailed::Refused(SubscribeRefused::Closing)) => Stopped::Closed,
                Err(SubscribeFailed::Unavailable(Unavailable::Busy { .. }))
                | Err(SubscribeFailed::Refused(SubscribeRefused::Full { .. })) => {
                    Stopped::Broken(LostReason::ConnectionLost)
                }
            };
            match stopped {
                Stopped::Closed => return,
                Stopped::Broken(reason) => {
                    self.lose(reason);
                    sleep(AGAIN).await;
                }
                Stopped::Lost(place) => {
                    self.lose(LostReason::Reset);
                    match place {
                        Place::Kept => {}
                        Place::Cut(version) => self.at.at = version,
                        Place::Tail => match self.node.cursor().await {
                            Ok(tail) => self.at = tail,
                            Err(Unavailable::Busy { .. }) => sleep(AGAIN).await,
                            Err(Unavailable::Closed) => return,
                        },
                    }
                }
            }
        }
    }

    /// Nothing is vouched for until the place that the feed goes on from is known to be held.
    fn lose(&mut self, reason: LostReason) {
        if std::mem::replace(&mut self.fed, false) {
            self.hub.feed_lost(reason);
        }
    }

    /// Gives the hub what comes after `at`, which the log holds.
    async fn follow(&mut self, mut changes: Subscription) -> Stopped {
        if !std::mem::replace(&mut self.fed, true) {
            self.hub.feed_began(log::mark(self.at));
        }
        while let Some(page) = changes.next().await {
            match page {
                Page::Changes { records, .. } => {
                    if let Err(stopped) = self.give(&records) {
                        return stopped;
                    }
                }
                Page::Lost(verdict) => return Stopped::Lost(log::place(&verdict)),
                Page::Ended(end) => return ended(&end),
                Page::ResetBegin { .. } | Page::State { .. } | Page::ResetEnd { .. } => {
                    unreachable!("no reset was asked for")
                }
            }
        }
        Stopped::Closed
    }

    fn give(&mut self, records: &[Record]) -> Result<(), Stopped> {
        let space = log::mark(self.at).incarnation;
        for record in records {
            // Also where the hub cannot take it: what follows is read on behind it.
            self.at.at = record.version;
            let message = log::message(space, record);
            if let Some(topic) = log::topic(record.key.namespace()) {
                let publish = Publish { kind: &message.kind, ..Publish::new(&message.payload) };
                match self.hub.publish_at(&topic, message.mark.position, publish) {
                    Ok(_) => {}
                    Err(PublishError::Closed) => return Err(Stopped::Closed),
                    // Its subscribers are told that something is missing, and where to go on.
                    Err(
                        PublishError::TooLarge { .. }
                        | PublishError::BadKind { .. }
                        | PublishError::ReservedKind { .. }
                        | PublishError::Topics { .. }
                        | PublishError::Busy { .. }
                        | PublishError::Position { .. }
                        | PublishError::Source,
                    ) => return Err(Stopped::Broken(LostReason::Missed)),
                }
            }
        }
        self.hub.fed(log::position(self.at.at));
        Ok(())
    }
}

const fn ended(end: &SubscriptionEnd) -> Stopped {
    if log::passes(end) { Stopped::Broken(LostReason::ConnectionLost) } else { Stopped::Closed }
}
