//! `/events` and `/position`.

use super::Events;
use super::access::{self, Action};
use super::answer::{Problem, json, no_store, refused};
use super::ask::{Ask, Style};
use super::feed::{Feed, later};
use axum::Json;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use strandline_core::coverage::{Item, Reason, TopicName};
use strandline_hub::{Delivery, Start};

/// Items looked at before a client that wants a status gets 200 and is told in its stream.
const PEEKED_MAX: usize = 1_024;

pub(super) async fn events(State(events): State<Events>, request: Request) -> Response {
    subscribe(&events, &request.into_parts().0).await
}

/// The stream that a request asks for, for routers of one's own.
///
/// | parameter | says |
/// |---|---|
/// | `topics=a,b`, `topic=a` | which topics, at most 32; the second form takes names with commas |
/// | `last_event_id` | the position, where the header `Last-Event-ID` says none |
/// | `from=now`, `earliest`, `last`, `since:MS` | where topics begin that have no position |
/// | `envelope=json` | events as objects that name their topic |
/// | `client=fetch` | a refused resume is the status 409 (unknown) or 410 (fell behind what is kept) |
///
/// Dropping the future, or the answer, unsubscribes.
pub async fn subscribe(events: &Events, parts: &Parts) -> Response {
    let asked = events.gate().admit(parts).map_err(Problem::from);
    let asked = asked.and_then(|grant| Ok((grant, Ask::read(parts)?)));
    let (grant, ask) = match asked {
        Ok(asked) => asked,
        Err(problem) => return problem.into_response(),
    };
    if let Some(response) = refused(access::all(&*grant, &ask.topics, Action::Subscribe)) {
        return response;
    }
    if events.is_draining() {
        return unavailable(events, ask.style, Problem::draining());
    }
    let start = Start { id: ask.id.0.as_deref(), fresh: ask.fresh, client: grant.client() };
    let subscription = match events.hub().subscribe(&ask.topics, start) {
        Ok(subscription) => subscription,
        Err(error) => return unavailable(events, ask.style, error.into()),
    };
    let mut feed = Feed::new(events, subscription, grant, ask.envelope);
    match ask.style {
        Style::EventSource => feed.into_response(),
        Style::Fetch => match refusal(events, &ask.topics, &mut feed).await {
            Some(refusal) => refusal.into_response(),
            None => feed.into_response(),
        },
    }
}

fn unavailable(events: &Events, style: Style, problem: Problem) -> Response {
    match style {
        Style::EventSource if problem.passes() => later(events.options(), problem.error),
        Style::EventSource | Style::Fetch => problem.into_response(),
    }
}

/// How one topic of a resume was judged.
#[derive(Clone, Debug, Serialize)]
struct Judged {
    topic: String,
    verdict: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
}

/// A refused resume as an answer: fetch the state anew, then subscribe after `id`.
#[derive(Debug, Serialize)]
struct Refusal {
    error: &'static str,
    /// Replaces the client's. `null` while no position exists: then it keeps its own and asks again.
    id: Option<String>,
    topics: Vec<Judged>,
    #[serde(skip)]
    status: StatusCode,
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(&self)).into_response();
        no_store(&mut response);
        response
    }
}

/// Waits until each topic is judged. `None`: all go on, or it takes too long to tell by a status.
async fn refusal(events: &Events, topics: &[TopicName], feed: &mut Feed) -> Option<Refusal> {
    let mut judged: Vec<Option<Judged>> = topics.iter().map(|_| None).collect();
    let mut gone = true;
    // The ID that is handed out must not pass an event which this answer does not carry.
    let mut passed = false;
    let mut peeked = 0;
    let judging = async {
        while judged.iter().any(Option::is_none) || (refused_any(&judged) && !feed.is_positioned()) {
            let Some(Delivery { topic, item }) = feed.peek().await else { break };
            peeked += 1;
            let at = topics.iter().position(|other| other == topic);
            let Some(slot) = at.and_then(|at| judged.get_mut(at)) else { break };
            let (verdict, reason) = match item {
                Item::Opened(opened) => (if opened.resumed { "complete" } else { "fresh" }, None),
                Item::Stale { reason } | Item::SyncRequired { reason, .. } => {
                    ("sync_required", Some(*reason))
                }
                Item::Event { .. } => {
                    passed = true;
                    if peeked >= PEEKED_MAX { break } else { continue }
                }
                Item::Gap { .. } | Item::Closed => continue,
            };
            if slot.as_ref().is_none_or(|judged| judged.reason.is_none()) {
                gone &= reason.is_none_or(fell_behind);
                *slot = Some(Judged { topic: topic.to_string(), verdict, reason: reason.map(Reason::label) });
            }
        }
    };
    let in_time = tokio::time::timeout(events.options().answer(), judging).await.is_ok();
    if !refused_any(&judged) || passed {
        return None;
    }
    let id = Some(feed.id()).filter(|id| in_time && feed.is_positioned() && !id.is_empty());
    let status = if gone { StatusCode::GONE } else { StatusCode::CONFLICT };
    let topics = judged.into_iter().flatten().collect();
    Some(Refusal { error: "sync_required", id, topics, status })
}

fn refused_any(judged: &[Option<Judged>]) -> bool {
    judged.iter().flatten().any(|judged| judged.reason.is_some())
}

/// Whether the client was behind what is kept, so that asking another instance helps as little.
const fn fell_behind(reason: Reason) -> bool {
    match reason {
        Reason::StartsAfterCursor | Reason::Evicted | Reason::BelowFloor => true,
        Reason::Unreadable
        | Reason::NoCoverage
        | Reason::OtherIncarnation
        | Reason::AheadOfHead
        | Reason::Missed
        | Reason::Behind
        | Reason::Unreachable
        | Reason::StateUnreadable
        | Reason::Disconnected
        | Reason::Undecodable
        | Reason::Rewound
        | Reason::OutOfOrder
        | Reason::ForeignPosition
        | Reason::Reset
        | Reason::Closed => false,
    }
}

#[derive(Serialize)]
struct Position {
    id: String,
}

pub(super) async fn position(State(events): State<Events>, request: Request) -> Response {
    let parts = request.into_parts().0;
    match position_of(&events, &parts).await {
        Ok(response) => response,
        Err(problem) => problem.into_response(),
    }
}

async fn position_of(events: &Events, parts: &Parts) -> Result<Response, Problem> {
    let grant = events.gate().admit(parts)?;
    let ask = Ask::read(parts)?;
    if let Some(response) = refused(access::all(&*grant, &ask.topics, Action::Subscribe)) {
        return Ok(response);
    }
    let asked = tokio::time::timeout(events.options().answer(), events.hub().position(&ask.topics));
    match asked.await {
        Ok(position) => Ok(json(&Position { id: position? })),
        Err(_) => {
            let message = "expected a position in time, found none: the server behind does not answer";
            Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "no_position", message))
        }
    }
}
