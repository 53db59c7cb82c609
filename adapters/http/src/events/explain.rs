//! Why an ID is answered as it is, with the evidence.

use super::Events;
use super::access::{self, Action};
use super::answer::{Problem, json, refused};
use super::ask::Ask;
use axum::extract::{Request, State};
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use strandline_core::coverage::{Claim, Coverage, CursorSet, Reason, TopicName, decide};
use strandline_core::id::Incarnation;
use strandline_core::verdict::Verdict;
use strandline_hub::HubHandle;

/// How one topic of an ID would be judged now. Nothing is changed by asking.
#[derive(Clone, Debug, Deserialize, Eq, PartialEq, Serialize)]
pub struct Explained {
    /// The topic.
    pub topic: String,
    /// `complete`, `gap`, `unknown`, or `fresh` if the ID has no position of it.
    pub verdict: String,
    /// Why it is not complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The position that the ID names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// The ID space that the ID names, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor_incarnation: Option<String>,
    /// The lowest cursor that is answered `complete`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor: Option<String>,
    /// The last position that is known here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<String>,
    /// The ID space here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incarnation: Option<String>,
}

/// Judges an ID for topics as `/events` would, but for what a shared server knows beyond this instance.
#[must_use]
pub fn explain(hub: &HubHandle, topics: &[TopicName], id: Option<&str>) -> Vec<Explained> {
    let names: Vec<&str> = topics.iter().map(TopicName::as_str).collect();
    let claims = CursorSet::read(hub.codec(), &names, id);
    let statuses = hub.topics();
    let held = |topic: &TopicName| statuses.iter().find(|s| s.topic == *topic).and_then(|s| s.coverage);
    topics.iter().enumerate().map(|(i, topic)| explained(topic, claims.claim(i), held(topic))).collect()
}

fn explained(topic: &TopicName, claim: Option<Claim>, held: Option<Coverage>) -> Explained {
    let (verdict, reason) = match claim.map(|claim| decide(held.as_ref(), claim)) {
        None => ("fresh", None),
        Some(Verdict::Complete { .. }) => ("complete", None),
        Some(Verdict::Gap { reason, .. }) => ("gap", Some(reason)),
        Some(Verdict::Unknown { reason }) => ("unknown", Some(reason)),
        Some(Verdict::Diverged(never)) => match never {},
    };
    let (cursor, space) = match claim {
        Some(Claim::Cursor(mark)) => (Some(mark.position), Some(mark.incarnation)),
        Some(Claim::Legacy(position)) => (Some(position), None),
        Some(Claim::Unreadable) | None => (None, None),
    };
    Explained {
        topic: topic.to_string(),
        verdict: verdict.into(),
        reason: reason.map(|reason| Reason::label(reason).into()),
        cursor: cursor.map(|position| position.to_string()),
        cursor_incarnation: space.map(hex),
        floor: held.map(|c| c.known_from.before().max(c.evicted_through).to_string()),
        head: held.map(|c| c.head.to_string()),
        incarnation: held.map(|c| hex(c.incarnation)),
    }
}

fn hex(incarnation: Incarnation) -> String {
    incarnation.to_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) async fn page(State(events): State<Events>, request: Request) -> Response {
    match page_of(&events, &request.into_parts().0) {
        Ok(response) => response,
        Err(problem) => problem.into_response(),
    }
}

fn page_of(events: &Events, parts: &Parts) -> Result<Response, Problem> {
    let grant = events.gate().admit(parts)?;
    let ask = Ask::read(parts)?;
    if let Some(response) = refused(access::all(&*grant, &ask.topics, Action::Subscribe)) {
        return Ok(response);
    }
    Ok(json(&explain(events.hub(), &ask.topics, ask.id.0.as_deref())))
}
