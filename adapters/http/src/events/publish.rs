//! `/publish`.

use super::Events;
use super::access::{self, Action};
use super::answer::{Problem, json, refused};
use super::ask::{Ask, BadAsk, pairs};
use super::body::Incoming;
use super::site::Site;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use strandline_core::coverage::{Outcome, Publish};

/// The name of the header whose value makes repeats of a publish one.
const TOKEN: &str = "idempotency-key";
/// Longest such value, in bytes.
const TOKEN_BYTES_MAX: usize = 200;

/// A publish that is in.
#[derive(Serialize)]
struct Published {
    /// The cursor of a client that has everything up to it.
    id: String,
    position: String,
    /// An earlier publish had the same token; this is its position.
    repeated: bool,
}

pub(super) async fn publish(State(events): State<Events>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let mut body = Incoming::new(&parts, body);
    let response = published(&events, &parts, &mut body).await.unwrap_or_else(IntoResponse::into_response);
    body.read_off(events.options().answer()).await;
    response
}

async fn published(events: &Events, parts: &Parts, body: &mut Incoming) -> Result<Response, Problem> {
    let grant = events.gate().admit(parts)?;
    if !Site::of(&parts.headers, &events.options().publish_origins).may_publish() {
        let message = "expected a page of this server or a program, found a page of another site";
        return Err(Problem::new(StatusCode::FORBIDDEN, "cross_site", message));
    }
    let ask = Ask::read(parts)?;
    if let Some(response) = refused(access::all(&*grant, &ask.topics, Action::Publish)) {
        return Ok(response);
    }
    // Until here nothing of the body was read.
    let [topic] = &ask.topics[..] else { return Err(BadAsk::Count { found: ask.topics.len() }.into()) };
    let token = token(parts)?;
    let kind = pairs(parts.uri.query().unwrap_or_default(), "kind").next().unwrap_or_default();
    let body = body.read(events.options().body_bytes_max, events.options().body()).await?;
    let publish = Publish { token: token.as_deref(), kind: &kind, payload: &body, at: None };
    match events.hub().publish(topic, publish).await? {
        Outcome::Accepted(accepted) => Ok(json(&Published {
            id: events.hub().codec().write(topic.as_str(), accepted.mark).to_string(),
            position: accepted.mark.position.to_string(),
            repeated: accepted.repeated,
        })),
        Outcome::NoSequence => {
            let message = "expected a state that gives out sequences, found one that cannot be read; \
                           nothing was published";
            Err(Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "no_sequence", message))
        }
        Outcome::Refused(fault) => {
            let message = format!("nothing was published: expected the server to take it, found {fault}");
            Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "refused", message))
        }
        Outcome::Uncertain(fault) => {
            let message = format!(
                "it may be published or not, a repeat with the same {TOKEN} is safe: expected the server to \
                 answer, found {fault}"
            );
            Err(Problem::new(StatusCode::GATEWAY_TIMEOUT, "uncertain", message))
        }
    }
}

fn token(parts: &Parts) -> Result<Option<String>, Problem> {
    let Some(value) = parts.headers.get(TOKEN) else { return Ok(None) };
    let text = value.to_str().ok().filter(|text| !text.is_empty() && text.len() <= TOKEN_BYTES_MAX);
    let bad = || {
        let message = format!(
            "expected an {TOKEN} of 1 to {TOKEN_BYTES_MAX} visible characters, found {} bytes",
            value.len()
        );
        Problem::new(StatusCode::BAD_REQUEST, "bad_token", message)
    };
    text.map(|text| Some(text.to_owned())).ok_or_else(bad)
}
