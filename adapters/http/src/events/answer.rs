//! Answers that are no stream: JSON with a status that a program can act on.

use super::access::{Access, Denied};
use super::ask::BadAsk;
use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use strandline_core::coverage::{NotAdmitted, PublishError, SubscribeError};

/// Why a request got nothing: a short word for programs, a sentence for people.
#[derive(Clone, Debug, Eq, PartialEq, Serialize)]
pub struct Problem {
    /// The status.
    #[serde(skip)]
    pub status: StatusCode,
    /// The word.
    pub error: &'static str,
    /// The sentence.
    pub message: String,
}

impl Problem {
    pub(super) fn new(status: StatusCode, error: &'static str, message: impl ToString) -> Self {
        Self { status, error, message: message.to_string() }
    }

    pub(super) fn draining() -> Self {
        let message = "expected a server that stays, found it about to end: connect again";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "draining", message)
    }

    /// Whether asking again later may help.
    pub(super) fn passes(&self) -> bool {
        matches!(self.status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(&self)).into_response();
        no_store(&mut response);
        if self.passes() {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}

impl From<Denied> for Problem {
    fn from(denied: Denied) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "unauthorized", denied)
    }
}

impl From<BadAsk> for Problem {
    fn from(bad: BadAsk) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "bad_request", bad)
    }
}

impl From<SubscribeError> for Problem {
    fn from(error: SubscribeError) -> Self {
        let (status, word) = match error {
            SubscribeError::Closed => (StatusCode::SERVICE_UNAVAILABLE, "closed"),
            SubscribeError::TopicLimit { .. } => (StatusCode::SERVICE_UNAVAILABLE, "topic_limit"),
            SubscribeError::NotAdmitted(NotAdmitted::Client { .. }) => {
                (StatusCode::TOO_MANY_REQUESTS, "client_limit")
            }
            SubscribeError::NotAdmitted(NotAdmitted::Total { .. }) => {
                (StatusCode::SERVICE_UNAVAILABLE, "total_limit")
            }
            SubscribeError::Topics { .. } => (StatusCode::SERVICE_UNAVAILABLE, "topics_limit"),
        };
        Self::new(status, word, error)
    }
}

impl From<PublishError> for Problem {
    fn from(error: PublishError) -> Self {
        let (status, word) = match error {
            PublishError::Closed => (StatusCode::SERVICE_UNAVAILABLE, "closed"),
            PublishError::TooLarge { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "too_large"),
            PublishError::BadKind { .. } | PublishError::ReservedKind { .. } => {
                (StatusCode::BAD_REQUEST, "bad_kind")
            }
            PublishError::Topics { .. } => (StatusCode::SERVICE_UNAVAILABLE, "topics_limit"),
            PublishError::Busy { .. } => (StatusCode::SERVICE_UNAVAILABLE, "busy"),
            PublishError::Position { .. } | PublishError::Source => {
                (StatusCode::METHOD_NOT_ALLOWED, "read_only")
            }
        };
        Self::new(status, word, error)
    }
}

/// What a request gets whose topics are not all allowed; `None` if they are.
pub(super) fn refused(access: Access) -> Option<Response> {
    match access {
        Access::Allowed => None,
        Access::Denied => {
            let message = "expected topics that this client may use, found one that it may not";
            Some(Problem::new(StatusCode::FORBIDDEN, "forbidden", message).into_response())
        }
        Access::Over => Some(StatusCode::NO_CONTENT.into_response()),
    }
}

/// Positions and verdicts are of this moment.
pub(super) fn no_store(response: &mut Response) {
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
}

pub(super) fn json(value: &impl Serialize) -> Response {
    let mut response = Json(value).into_response();
    no_store(&mut response);
    response
}
