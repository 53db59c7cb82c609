//! How a hub stands, as its status page shows it.

use axum::http::request::Parts;
use axum::response::Html;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::Duration;
use strandline_core::coverage::{Counters, LostReason, Publish, Reason, TopicName, TopicStatus};
use strandline_http::events::{Access, Action, Denied, Gate, Grant};
use strandline_hub::HubHandle;

/// Topics that the page shows, by name.
const TOPICS_MAX: usize = 500;
/// How often it is told.
const PERIOD: Duration = Duration::from_millis(500);
/// The topic, on a hub of its own, that carries it.
const TOPIC: &str = "status";

pub(super) async fn page() -> Html<&'static str> {
    Html(include_str!("page.html"))
}

/// Who may do what with the page's own hub: look.
pub(super) struct ReadOnly;

impl Gate for ReadOnly {
    fn admit(&self, _request: &Parts) -> Result<Box<dyn Grant>, Denied> {
        Ok(Box::new(Self))
    }
}

impl Grant for ReadOnly {
    fn topic(&self, topic: &TopicName, action: Action) -> Access {
        match action {
            Action::Subscribe if topic.as_str() == TOPIC => Access::Allowed,
            Action::Subscribe | Action::Publish => Access::Denied,
        }
    }
}

#[derive(Serialize)]
struct Status {
    streams: usize,
    topics_in_all: usize,
    topics: Vec<Topic>,
    published: u64,
    verdicts: BTreeMap<&'static str, u64>,
    refused: BTreeMap<&'static str, u64>,
    lost: BTreeMap<&'static str, u64>,
    slow: BTreeMap<&'static str, u64>,
}

#[derive(Serialize)]
struct Topic {
    topic: String,
    covered: bool,
    floor: String,
    head: String,
    held_events: usize,
    held_bytes: usize,
    subscribers: usize,
}

/// Tells how `hub` stands on `told`, while anybody looks.
pub(super) async fn tell(hub: HubHandle, told: HubHandle) {
    let topic = TopicName::parse(TOPIC).expect("a topic");
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    while !hub.is_closed() {
        ticks.tick().await;
        if told.streams() > 0 {
            let status = serde_json::to_vec(&status(&hub)).expect("text keys and numbers");
            if let Err(error) = told.publish(&topic, Publish::new(&status)).await {
                tracing::debug!(%error, "the status is not told");
            }
        }
    }
}

fn status(hub: &HubHandle) -> Status {
    let topics = hub.topics();
    let Counters { published, resumed, fresh, refused, lost, sync_required, dropped, backfilled, .. } =
        hub.counters();
    Status {
        streams: hub.streams(),
        topics_in_all: topics.len(),
        topics: topics.iter().take(TOPICS_MAX).map(shown).collect(),
        published,
        verdicts: BTreeMap::from([
            ("complete", resumed),
            ("fresh", fresh),
            ("refused", refused.values().sum()),
            ("sync_required", sync_required),
        ]),
        refused: refused.into_iter().map(|(reason, count)| (Reason::label(reason), count)).collect(),
        lost: lost.into_iter().map(|(reason, count)| (LostReason::label(reason), count)).collect(),
        slow: BTreeMap::from([("dropped", dropped), ("backfilled", backfilled)]),
    }
}

fn shown(status: &TopicStatus) -> Topic {
    let coverage = status.coverage;
    Topic {
        topic: status.topic.to_string(),
        covered: coverage.is_some(),
        floor: coverage.map_or(0, |c| c.known_from.before().max(c.evicted_through).get()).to_string(),
        head: coverage.map_or(0, |c| c.head.get()).to_string(),
        held_events: status.held_events,
        held_bytes: status.held_bytes,
        subscribers: status.subscribers,
    }
}
